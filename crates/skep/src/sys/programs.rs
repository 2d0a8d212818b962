//! Programs that clients load.

use super::lacking::Lacking;
use super::log::{PathLog, words_of_code};
use super::maps::SysMap;
use super::{SysEngine, errno};
use crate::error::Error;
use crate::linker::Rules;
use crate::object::{Object, functions};
use crate::program::Program;
use crate::runtime::Runtime;
use skep_abi::{Function, LineInfo, MapDef, ProgramSource, ProgramType, Prototype, TYPES, TargetFunction};
use skep_btf::{Btf, Linkage};
use skep_isa::{CallTarget, Insn};
use skep_sys::{CoreRelocation, Errno, MachineCode, ProgramFacts, ProgramRequest};
use skep_verifier::{Abilities, Code};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A program that a client loaded.
#[derive(Debug)]
pub struct SysProgram {
    program: Program,
    gpl_compatible: bool,
    /// As Linux 6.12 computes it.
    tag: [u8; 8],
    needs_expected_place: bool,
    asks_for_task: bool,
}

/// `BPF_F_STRICT_ALIGNMENT` and `BPF_F_ANY_ALIGNMENT`, which counts more.
const F_STRICT_ALIGNMENT: u32 = 1;
const F_ANY_ALIGNMENT: u32 = 2;
/// `BPF_F_SLEEPABLE`.
const F_SLEEPABLE: u32 = 1 << 4;
/// The numbers of types.
const KPROBE: u32 = 2;
const STRUCT_OPS: u32 = 27;
/// The number of extensions.
const EXTENSION: u32 = 28;

impl SysProgram {
    pub(super) fn load(
        runtime: &Runtime,
        (host, lacking): (Option<&Arc<Btf>>, &Lacking),
        request: &ProgramRequest<'_, SysEngine>,
        log: Option<&mut dyn FnMut(&str)>,
    ) -> Result<Self, Errno> {
        let mut unwatched = |_: &str| {};
        let level = log.as_ref().map_or(0, |_| request.log_level);
        let log = log.unwrap_or(&mut unwatched);
        let mut program_type = type_of(request.program_type, request.expected_attach_type)?;
        if request.program_type == STRUCT_OPS {
            lacking.note("program type", "struct_ops".to_owned());
            log("struct_ops programs need a structure of the kernel, of which there is none");
            return Err(Errno::ENOTSUPP);
        }
        let sleeps = request.flags & F_SLEEPABLE != 0;
        if program_type.always_sleeps && !sleeps {
            log("Syscall programs can only be sleepable");
            return Err(Errno::EINVAL);
        }
        if sleeps && !program_type.may_sleep && request.program_type == KPROBE {
            // Only functions of applications may be probed so: what it is attached to is not known yet.
            let probes = TYPES.iter().filter(|kind| kind.number == Some(KPROBE));
            program_type =
                probes.copied().find(|kind| kind.may_sleep && kind.attach.is_none()).unwrap_or(program_type);
        }
        if sleeps && !program_type.may_sleep && !program_type.always_sleeps {
            log("Only fentry/fexit/fmod_ret, lsm, iter, uprobe, and struct_ops programs can be sleepable");
            return Err(Errno::EINVAL);
        }
        let source = source(program_type, host, request).map_err(|(error, reason)| {
            log(&reason);
            error
        })?;
        let gpl_compatible = source.gpl_compatible;
        let tag = skep_isa::tag_sha1(&skep_isa::with_map_descriptors(&source.insns));
        let tag = tag.map_err(|_| Errno::EINVAL)?.0;
        let (name, insns) = (source.name.clone(), source.insns.clone());
        let elsewhere = elsewhere(&source);
        let maps: Vec<&SysMap> = request.maps.iter().map(|map| map.map()).collect();
        let definitions = definitions(&maps);
        let types = source.btf.clone().or_else(|| maps.iter().find_map(|map| map.types().cloned()));
        let mut object = Object::from_sources(vec![source], definitions.clone(), types);
        object.take_signature(request);
        if let Some(host) = host {
            object.set_host_types(Arc::clone(host));
        }
        let mut lines = PathLog::new(level);
        let rules = Rules {
            strict_alignment: request.flags & (F_STRICT_ALIGNMENT | F_ANY_ALIGNMENT) == F_STRICT_ALIGNMENT,
            // Suites and fuzzers expect that code which nothing leads to is refused.
            abilities: Abilities { dead_code: false, ..Abilities::default() },
        };
        // Those with types can be replaced and watched, as in Linux.
        let patchable = !request.functions.is_empty();
        let mut linker = runtime.linker(&object).only(&name).patchable(patchable).rules(rules);
        for (def, map) in definitions.iter().zip(&maps) {
            linker = linker.map(&def.name, Arc::clone(map.map()));
        }
        if sleeps {
            linker = linker.sleepable(true);
        }
        if level != 0 {
            linker = linker.log(|line| lines.line(line));
        }
        let loaded = linker.load();
        lines.finish(loaded.as_ref().err(), &insns, log);
        let module = loaded.map_err(|error| {
            #[cfg(feature = "signatures")]
            if let Error::Signature { fault, .. } = &error {
                log(&fault.to_string());
            }
            lacking.note_error(&error);
            refusal(&error)
        })?;
        let program = module.programs.first().cloned().ok_or(Errno::EINVAL)?;
        let needs_expected_place = elsewhere.is_some_and(|source| {
            let mut object = Object::from_sources(vec![source], definitions.clone(), object.types().cloned());
            object.take_signature(request);
            let maps = definitions.iter().zip(&maps);
            let linker = maps.fold(runtime.linker(&object), |linker, (def, map)| {
                linker.map(&def.name, Arc::clone(map.map()))
            });
            linker.load().is_err()
        });
        let asks_for_task = insns.iter().any(asks_for_task);
        Ok(Self { program, gpl_compatible, tag, needs_expected_place, asks_for_task })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The place of the function with that type.
    pub(super) fn function(&self, ty: u32) -> Option<usize> {
        let functions = self.program.verified().functions();
        functions.iter().position(|known| known.prototype.as_ref().is_some_and(|known| known.function == ty))
    }

    /// Whether its results mean something only where it expects to be attached.
    pub(super) fn needs_expected_place(&self) -> bool {
        self.needs_expected_place
    }

    /// Whether it asks who runs it, itself.
    pub(super) fn asks_for_task(&self) -> bool {
        self.asks_for_task
    }

    pub(super) fn facts(&self) -> ProgramFacts {
        let verified = self.program.verified();
        let runs = self.program.stats();
        let compiled = u32::try_from(self.program.compiled().code_bytes()).unwrap_or(u32::MAX);
        ProgramFacts {
            tag: self.tag,
            translated: verified.encoded(),
            compiled,
            functions: verified.functions().len(),
            verified: u32::try_from(verified.stats().walked).unwrap_or(u32::MAX),
            gpl_compatible: self.gpl_compatible,
            run_time: runs.run_time_ns,
            run_count: runs.run_cnt,
            misses: runs.misses,
        }
    }

    pub(super) fn machine_code(&self) -> MachineCode {
        let compiled = self.program.compiled();
        let mut bytes = compiled.text().bytes();
        bytes.truncate(compiled.code_bytes());
        MachineCode {
            address: compiled.text().address() as u64,
            bytes,
            functions: compiled.functions().to_vec(),
            slots: compiled.offsets(),
        }
    }
}

impl Object {
    /// Gives the object what the client says that it signs, and the signature.
    fn take_signature(&mut self, request: &ProgramRequest<'_, SysEngine>) {
        #[cfg(feature = "signatures")]
        if let Some(signature) = request.signature {
            self.sign(signature.insns, signature.message);
        }
        #[cfg(not(feature = "signatures"))]
        let _none_is_checked = request;
    }
}

/// Whether an instruction calls `bpf_get_current_pid_tgid`.
fn asks_for_task(insn: &Insn) -> bool {
    const PID_TGID: u32 = 14;
    matches!(insn, Insn::Call { target: CallTarget::Helper(PID_TGID) })
}

/// Makes instructions fit the host's types. The error says what is wrong.
pub(super) fn relocate(
    bytes: &mut [u8],
    own: &Btf,
    host: Option<&Btf>,
    relocations: &[CoreRelocation],
) -> Result<(), String> {
    let mut insns = skep_isa::decode_bytes(bytes).map_err(|error| error.to_string())?;
    let records = relocations.iter().map(|relocation| {
        let CoreRelocation { slot, ty, path, kind } = *relocation;
        skep_elf::CoreRecord { slot, ty, path, kind }
    });
    skep_elf::relocate_core(&mut insns, own, host, records).map_err(|error| error.to_string())?;
    let relocated = skep_isa::encode_bytes(&insns).map_err(|error| error.to_string())?;
    // No relocation changes how many there are.
    bytes.copy_from_slice(&relocated);
    Ok(())
}

/// The type of that number, for that attachment.
fn type_of(number: u32, attach: u32) -> Result<&'static ProgramType, Errno> {
    // Types for which the attachment decides what programs may do, and what 0 means for them.
    const STRICT: [(u32, u32); 7] = [(8, 0), (9, 2), (18, 8), (21, 39), (25, 21), (30, 36), (32, 45)];
    let of_type = || TYPES.iter().copied().filter(|kind| kind.number == Some(number));
    let attach = match STRICT.iter().find(|(strict, _)| *strict == number) {
        Some((9 | 21, usual)) if attach == 0 => *usual,
        _ => attach,
    };
    let exact = of_type().find(|kind| kind.attach == Some(attach));
    let strict = STRICT.iter().any(|(strict, _)| *strict == number);
    let plain = || of_type().find(|kind| kind.attach.is_none()).or_else(|| of_type().next_back());
    match exact {
        Some(kind) => Ok(kind),
        None if strict => Err(Errno::EINVAL),
        None => plain().ok_or(Errno::EINVAL),
    }
}

/// A program of outgoing packets of control groups as one of incoming packets, which have fewer results.
fn elsewhere(source: &ProgramSource) -> Option<ProgramSource> {
    const CGROUP_SKB: u32 = 8;
    const EGRESS: u32 = 1;
    let kind = source.program_type;
    if (kind.number, kind.attach) != (Some(CGROUP_SKB), Some(EGRESS)) {
        return None;
    }
    Some(ProgramSource { program_type: type_of(CGROUP_SKB, 0).ok()?, ..source.clone() })
}

type Unusable = (Errno, String);

/// The program as the loader linked it.
fn source(
    program_type: &'static ProgramType,
    host: Option<&Arc<Btf>>,
    request: &ProgramRequest<'_, SysEngine>,
) -> Result<ProgramSource, Unusable> {
    let invalid = |reason: String| (Errno::EINVAL, reason);
    let mut insns = skep_isa::decode_bytes(request.insns).map_err(|error| {
        let words = words_of_code(&error, request.insns).map_or(String::new(), |words| format!("\n{words}"));
        invalid(format!("{error}{words}"))
    })?;
    for insn in &mut insns {
        // Functions of the runtime's own have numbers of their own.
        // 0 stands for a function that is not there; no path may call it.
        if let Insn::Call { target: CallTarget::Kfunc { id, .. } } = insn
            && *id != 0
        {
            let name = host.and_then(|host| host.name(*id as u32).ok());
            let name =
                name.ok_or_else(|| invalid(format!("kernel function btf_id {id} is not a function")))?;
            let own = skep_abi::own_kfunc_number(name)
                .ok_or_else(|| invalid(format!("calling kernel function {name} is not allowed")))?;
            *id = own as i32;
        }
    }
    // A program of no name has one in messages.
    let name = if request.name.is_empty() { "program" } else { request.name };
    let functions = match (request.types, request.functions) {
        (Some(types), [_, ..]) => named_functions(types, request, insns.len())?,
        _ => functions(name, &insns),
    };
    let (program_type, of) = match request.attach_program {
        None => (program_type, None),
        Some(target) => {
            let of = target_function(target, request).map_err(invalid)?;
            let replaces = program_type.number == Some(EXTENSION);
            (if replaces { of.program_type } else { program_type }, Some(of))
        }
    };
    let lines = match request.types {
        Some(types) => lines(types, request, insns.len())?,
        None => Vec::new(),
    };
    Ok(ProgramSource {
        functions,
        lines,
        target: super::iterators::target(program_type, host.map(|host| &**host), request.attach_type_id)
            .map_err(invalid)?,
        gpl_compatible: is_gpl_compatible(request.licence),
        btf: request.types.cloned(),
        of,
        ..ProgramSource::new(name, program_type, insns)
    })
}

/// The function that a program is loaded for; otherwise why there is none, in Linux's words.
fn target_function(
    target: &SysProgram,
    request: &ProgramRequest<'_, SysEngine>,
) -> Result<Arc<TargetFunction>, String> {
    let id = request.attach_type_id;
    if id == 0 {
        return Err("Tracing programs must provide btf_id".into());
    }
    let (program, extends) = (target.program(), request.program_type == EXTENSION);
    let Some(types) = &program.image().types else {
        return Err("FENTRY/FEXIT program can only be attached to another program annotated with BTF".into());
    };
    let Ok(ty) = types.ty(id) else { return Err(format!("attach_btf_id {id} is invalid")) };
    let name = types.name(id).unwrap_or_default();
    if ty.kind != skep_btf::Kind::Func {
        return Err(format!("attach_btf_id {id} points to wrong type name {name}"));
    }
    let Some(index) = target.function(id) else { return Err(format!("Subprog {name} doesn't exist")) };
    let verified = program.verified();
    if extends && index != 0 && !verified.functions()[index].global {
        return Err("Cannot replace static functions".into());
    }
    if verified.is_watcher() || verified.is_extension() && extends {
        let text = if extends && verified.is_watcher() {
            "Cannot extend fentry/fexit"
        } else {
            "Cannot recursively attach"
        };
        return Err(text.into());
    }
    if verified.is_sleepable() {
        return Err(format!(
            "{name} is a function of a sleepable program, which this runtime does not let others change"
        ));
    }
    program.function_at(index).map_err(|error| error.to_string())
}

/// The licences that the kernel's documentation calls compatible with the GPL.
fn is_gpl_compatible(licence: &str) -> bool {
    const COMPATIBLE: [&str; 6] =
        ["GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"];
    COMPATIBLE.contains(&licence)
}

fn named_functions(
    types: &Btf,
    request: &ProgramRequest<'_, SysEngine>,
    slots: usize,
) -> Result<Vec<Function>, Unusable> {
    let mut found: Vec<Function> = Vec::new();
    for info in request.functions {
        let ascending = found.last().map_or(info.slot == 0, |last| info.slot > last.start);
        if !ascending || info.slot as usize >= slots {
            let reason = format!("bad func_info: insn_off {} is not in ascending order from 0", info.slot);
            return Err((Errno::EINVAL, reason));
        }
        let damaged = |error: skep_btf::Error| (Errno::EINVAL, error.to_string());
        let prototype = Prototype::of(types, info.ty).map_err(damaged)?;
        let ty = types.ty(info.ty).map_err(damaged)?;
        let name = types.name(info.ty).map_err(damaged)?;
        let global = info.slot != 0 && ty.linkage() == Some(Linkage::Global);
        found.push(Function { prototype, ..Function::new(name, info.slot, global) });
    }
    Ok(found)
}

fn lines(
    types: &Btf,
    request: &ProgramRequest<'_, SysEngine>,
    slots: usize,
) -> Result<Vec<LineInfo>, Unusable> {
    /// A string may be megabytes long, and every line may name it.
    const LONGEST: usize = 512;
    let mut known: BTreeMap<u32, Arc<str>> = BTreeMap::new();
    let mut text = |offset: u32| -> Result<Arc<str>, Unusable> {
        if let Some(text) = known.get(&offset) {
            return Ok(Arc::clone(text));
        }
        let bytes = types.bytes_of_string(offset);
        let bytes =
            bytes.ok_or_else(|| (Errno::EINVAL, "bad line_info: a text is outside of the types".into()))?;
        // The strings after it follow.
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let text: Arc<str> = String::from_utf8_lossy(&text[..text.len().min(LONGEST)]).into();
        known.insert(offset, Arc::clone(&text));
        Ok(text)
    };
    let mut found: Vec<LineInfo> = Vec::new();
    for info in request.lines {
        if found.last().is_some_and(|last| info.slot <= last.slot) || info.slot as usize >= slots {
            let reason = format!("Invalid line_info.insn_off:{} (prog_len:{slots})", info.slot);
            return Err((Errno::EINVAL, reason));
        }
        found.push(LineInfo {
            slot: info.slot,
            file: text(info.file)?,
            text: text(info.text)?,
            line: info.line_and_column >> 10,
            column: info.line_and_column & 0x3ff,
        });
    }
    Ok(found)
}

/// The definitions of a program's maps, each under a name of its own.
fn definitions(maps: &[&SysMap]) -> Vec<MapDef> {
    let mut names = HashSet::new();
    let named = maps.iter().enumerate().map(|(index, map)| {
        let mut def = map.declared();
        if !names.insert(def.name.clone()) {
            def.name = format!("{}#{index}", def.name);
            names.insert(def.name.clone());
        }
        def
    });
    named.collect()
}

/// Linux's number for a refused program.
fn refusal(error: &Error) -> Errno {
    match error {
        Error::Refused(refusal) => match refusal.code {
            Code::Uninitialised
            | Code::OutOfBounds
            | Code::Misaligned
            | Code::MaybeNull
            | Code::PointerArithmetic
            | Code::PointerLeak
            | Code::ReadOnly
            | Code::Argument
            | Code::Stack
            | Code::Context => Errno::EACCES,
            Code::Limit => Errno::E2BIG,
            _ => Errno::EINVAL,
        },
        Error::HelperMissing { .. } | Error::Map(_) | Error::MapMismatch { .. } => Errno::EINVAL,
        other => errno(other),
    }
}
