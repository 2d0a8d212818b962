//! Programs: `BPF_PROG_LOAD`, `BPF_PROG_BIND_MAP`.

use crate::attr::{ATTRIBUTE_SIZE, Attr, BindMap, ProgLoad};
use crate::btf::BtfObject;
use crate::caller::Caller;
use crate::engine::{CoreRelocation, Engine, FunctionInfo, LineInfo, ProgramRequest};
use crate::errno::Errno;
use crate::log::Log;
use crate::maps::{MapObject, kind::ARENA, no_token};
use crate::name;
use crate::object::{Handle, Object};
use crate::signed::SignedProgram;
use crate::system::System;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use lock_api::Mutex;

/// The most instructions.
const MOST_INSNS: u32 = 1_000_000;
/// The most maps of a program.
const MOST_MAPS: usize = 64;
/// The most descriptors that a caller binds.
const MOST_DESCRIPTORS: u32 = 1 << 16;
/// The most bytes of a licence, with its end.
const LICENCE: usize = 128;
/// Flags of a load that Linux 6.12 knows: bits 0 to 7, and the one of tokens.
const FLAGS: u32 = 0xff | F_TOKEN_FD;
const F_TOKEN_FD: u32 = 1 << 16;
/// Kinds of programs that Linux 6.12 knows: below this.
const TYPES_END: u32 = 33;
/// Types of programs whose target has a type: tracing, struct_ops, ext, lsm.
const WITH_TARGET: [u32; 4] = [26, 27, 28, 29];
/// Bytes of `struct bpf_func_info`, `struct bpf_line_info` and `struct bpf_core_relo` that this library knows, and the
/// most of a record.
const FUNCTION_INFO: u32 = 8;
const LINE_INFO: u32 = 16;
const CORE_RELOCATION: u32 = 16;
const MOST_RECORD: u32 = 252;

/// `BPF_LD | BPF_IMM | BPF_DW`.
pub(crate) const LOAD_IMM64: u8 = 0x18;
/// What such a load's source register says its number is.
pub(crate) const MAP_FD: u8 = 1;
pub(crate) const MAP_VALUE: u8 = 2;
pub(crate) const MAP_IDX: u8 = 5;
pub(crate) const MAP_IDX_VALUE: u8 = 6;

/// A loaded program.
pub struct ProgramObject<E: Engine> {
    id: u32,
    program: E::Program,
    name: String,
    program_type: u32,
    expected_attach_type: u32,
    created: u64,
    created_by: u32,
    maps: Mutex<E::Lock, Vec<Arc<MapObject<E>>>>,
    btf: Option<Arc<BtfObject<E>>>,
    functions: Vec<FunctionInfo>,
    lines: Vec<LineInfo>,
    attach_type_id: u32,
    /// What it was loaded for, until it is attached there.
    target: Mutex<E::Lock, Option<Arc<ProgramObject<E>>>>,
}

#[allow(missing_docs, reason = "the names of the system call's own fields")]
impl<E: Engine> ProgramObject<E> {
    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The engine's program.
    pub fn program(&self) -> &E::Program {
        &self.program
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its type.
    pub fn program_type(&self) -> u32 {
        self.program_type
    }

    /// How it expects to be attached.
    pub fn expected_attach_type(&self) -> u32 {
        self.expected_attach_type
    }

    pub(crate) fn created(&self) -> u64 {
        self.created
    }

    pub(crate) fn created_by(&self) -> u32 {
        self.created_by
    }

    pub(crate) fn map_ids(&self) -> Vec<u32> {
        self.maps.lock().iter().map(|map| map.id()).collect()
    }

    pub(crate) fn btf(&self) -> Option<&Arc<BtfObject<E>>> {
        self.btf.as_ref()
    }

    pub(crate) fn functions(&self) -> &[FunctionInfo] {
        &self.functions
    }

    pub(crate) fn lines(&self) -> &[LineInfo] {
        &self.lines
    }

    /// The program that it was loaded for, until it is attached there.
    pub(crate) fn target(&self) -> Option<Arc<Self>> {
        self.target.lock().clone()
    }

    /// It was attached to what it was loaded for.
    pub(crate) fn take_target(&self) {
        let taken = self.target.lock().take();
        drop(taken);
    }

    /// The type of what it is attached to.
    pub(crate) fn attach_type_id(&self) -> u32 {
        self.attach_type_id
    }

    /// The identifier of the types of the program that it is attached to, or 0 for the kernel's, and the number of what
    /// it is attached to in them.
    pub fn attached_to(&self) -> (u32, u32) {
        let btf = self.target().and_then(|program| program.btf().map(|btf| btf.id()));
        (btf.unwrap_or(0), self.attach_type_id)
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn prog_load(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        const { assert!(size_of::<ProgLoad>() == ATTRIBUTE_SIZE) };
        const TRUE_SIZE: usize = core::mem::offset_of!(ProgLoad, log_true_size);
        let load: ProgLoad = attr.get()?;
        if load.prog_flags & !FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        if load.prog_flags & F_TOKEN_FD != 0 {
            return Err(no_token(caller, load.prog_token_fd));
        }
        if load.insn_cnt == 0 || load.insn_cnt > MOST_INSNS {
            return Err(Errno::E2BIG);
        }
        let attach_program = match load.attach_prog_fd {
            0 => None,
            descriptor => {
                let target = caller.handle(descriptor).or(Err(Errno::EINVAL))?;
                match target.object() {
                    // The types that are meant without it, too.
                    Object::Btf(btf) if btf.is_kernel() => None,
                    _ => Some(target.program()?),
                }
            }
        };
        if load.attach_btf_id != 0 && !WITH_TARGET.contains(&load.prog_type) {
            return Err(Errno::EINVAL);
        }
        if load.prog_type == 0 || load.prog_type >= TYPES_END {
            return Err(Errno::EINVAL);
        }
        let mut insns = vec![0; load.insn_cnt as usize * 8];
        caller.read(load.insns, &mut insns)?;
        let signature = self.signature(caller, &load, &insns)?;
        let licence = self.licence(caller, load.license)?;
        if load.prog_ifindex != 0 {
            // No device runs programs itself.
            let there = self.engine().has_device(load.prog_ifindex);
            return Err(if there { Errno::EOPNOTSUPP } else { Errno::EINVAL });
        }
        let name = name::parse(&load.prog_name)?;
        let mut log = Log::new(load.log_level, load.log_buf, load.log_size)?;
        let resolved = self.resolve(caller, &load, &mut insns, &mut log);
        let loaded = resolved.and_then(|parts| {
            let request = ProgramRequest {
                program_type: load.prog_type,
                expected_attach_type: load.expected_attach_type,
                insns: &insns,
                maps: &parts.maps,
                licence: &licence,
                name: &name,
                flags: load.prog_flags,
                types: parts.btf.as_ref().map(|btf| btf.types()),
                functions: &parts.functions,
                lines: &parts.lines,
                attach_type_id: load.attach_btf_id,
                attach_program: attach_program.as_ref().map(|program| program.program()),
                log_level: load.log_level,
                signature: signature.as_ref().map(SignedProgram::as_request),
            };
            let mut line = |text: &str| log.line(text);
            let wanted = load.log_level != 0;
            let program = self.engine().load(&request, wanted.then_some(&mut line as _))?;
            Ok((program, parts))
        });
        let written = log.finish(caller);
        if attr.has(TRUE_SIZE, 4) {
            attr.put(caller, TRUE_SIZE, &log.true_size().to_ne_bytes())?;
        }
        // Linux says first that the log did not fit.
        written?;
        let (program, parts) = loaded?;
        let id = self.with(|registry| registry.programs.reserve());
        let object = Arc::new(ProgramObject {
            id,
            program,
            name,
            program_type: load.prog_type,
            expected_attach_type: load.expected_attach_type,
            created: self.engine().now(),
            created_by: caller.user(),
            maps: Mutex::new(parts.maps),
            btf: parts.btf,
            functions: parts.functions,
            lines: parts.lines,
            attach_type_id: load.attach_btf_id,
            target: Mutex::new(attach_program),
        });
        self.with(|registry| registry.programs.insert(id, &object));
        let handle = Handle::new(self.shared(), Object::Program(object));
        caller.install(handle).map(i64::from)
    }

    fn licence(&self, caller: &mut impl Caller<E>, address: u64) -> Result<String, Errno> {
        let text = read_text(caller, address, LICENCE - 1)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Types, functions, lines and maps of a load. Loads of map addresses then name maps by their indices.
    fn resolve(
        &self,
        caller: &mut impl Caller<E>,
        load: &ProgLoad,
        insns: &mut [u8],
        log: &mut Log,
    ) -> Result<Parts<E>, Errno> {
        let counts = load.func_info_cnt != 0 || load.line_info_cnt != 0;
        // Without functions and lines, Linux does not look at the rest.
        let btf = if counts { Some(caller.handle(load.prog_btf_fd)?.btf()?) } else { None };
        let functions =
            self.records(caller, load.func_info, load.func_info_cnt, load.func_info_rec_size, FUNCTION_INFO)?;
        let functions = functions
            .chunks_exact(8)
            .map(|record| FunctionInfo { slot: word(record, 0), ty: word(record, 1) });
        let functions: Vec<_> = functions.collect();
        let lines =
            self.records(caller, load.line_info, load.line_info_cnt, load.line_info_rec_size, LINE_INFO)?;
        let lines = lines.chunks_exact(16).map(|record| LineInfo {
            slot: word(record, 0),
            file: word(record, 1),
            text: word(record, 2),
            line_and_column: word(record, 3),
        });
        let lines = lines.collect();
        if let Some(btf) = &btf {
            self.relocate(caller, load, insns, (btf, log))?;
        }
        let mut maps = self.bound(caller, load, log)?;
        self.maps_of(caller, load.fd_array, insns, (&mut maps, log))?;
        Ok(Parts { btf, functions, lines, maps })
    }

    /// Applies the relocations that the caller leaves to the kernel.
    fn relocate(
        &self,
        caller: &mut impl Caller<E>,
        load: &ProgLoad,
        insns: &mut [u8],
        (btf, log): (&BtfObject<E>, &mut Log),
    ) -> Result<(), Errno> {
        let (count, size) = (load.core_relo_cnt, load.core_relo_rec_size);
        if count == 0 {
            return Ok(());
        }
        let records = self.records(caller, load.core_relos, count, size, CORE_RELOCATION)?;
        let mut relocations = Vec::new();
        for (index, record) in records.chunks_exact(CORE_RELOCATION as usize).enumerate() {
            let offset = word(record, 0);
            let slot = offset / 8;
            if !offset.is_multiple_of(8) || slot >= load.insn_cnt {
                log.line(&format!(
                    "Invalid core_relo[{index}].insn_off:{offset} prog->len:{}",
                    load.insn_cnt
                ));
                return Err(Errno::EINVAL);
            }
            let (ty, path, kind) = (word(record, 1), word(record, 2), word(record, 3));
            relocations.push(CoreRelocation { slot, ty, path, kind });
        }
        self.engine().relocate(insns, btf.types(), &relocations, &mut |line| log.line(line))
    }

    /// Records of a caller, each cut or padded to `known` bytes.
    fn records(
        &self,
        caller: &mut impl Caller<E>,
        address: u64,
        count: u32,
        size: u32,
        known: u32,
    ) -> Result<Vec<u8>, Errno> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if size < known || size > MOST_RECORD || !size.is_multiple_of(4) || count > MOST_INSNS {
            return Err(Errno::EINVAL);
        }
        if size == known {
            // As most callers have them: one copy.
            let mut records = vec![0; count as usize * size as usize];
            caller.read(address, &mut records)?;
            return Ok(records);
        }
        let mut records = Vec::new();
        let mut record = vec![0; size as usize];
        for at in 0..count {
            caller.read(address.wrapping_add(u64::from(at) * u64::from(size)), &mut record)?;
            let (mine, rest) = record.split_at(known as usize);
            if rest.iter().any(|byte| *byte != 0) {
                return Err(Errno::E2BIG);
            }
            records.extend_from_slice(mine);
        }
        Ok(records)
    }

    /// The maps that the caller binds to the program, whether or not the program names them: `fd_array_cnt`, since
    /// Linux 6.14.
    fn bound(
        &self,
        caller: &mut impl Caller<E>,
        load: &ProgLoad,
        log: &mut Log,
    ) -> Result<Vec<Arc<MapObject<E>>>, Errno> {
        let mut maps = Vec::new();
        if load.fd_array_cnt > MOST_DESCRIPTORS {
            return Err(Errno::E2BIG);
        }
        let mut bytes = vec![0; load.fd_array_cnt as usize * 4];
        caller.read(load.fd_array, &mut bytes)?;
        for descriptor in bytes.as_chunks().0.iter().copied().map(i32::from_ne_bytes) {
            match caller.handle(descriptor).map(|handle| handle.object().clone()) {
                Ok(Object::Map(map)) => {
                    if map.kind() == ARENA {
                        self.place_arena(caller, &map, descriptor, log)?;
                    }
                    use_map(&mut maps, map, log)?;
                }
                // Types of functions that programs call: all are among the kernel's here.
                Ok(Object::Btf(_)) => {}
                other => {
                    log.line(&format!("fd {descriptor} is not pointing to valid bpf_map or btf"));
                    return Err(other.err().unwrap_or(Errno::EINVAL));
                }
            }
        }
        Ok(maps)
    }

    fn maps_of(
        &self,
        caller: &mut impl Caller<E>,
        fd_array: u64,
        insns: &mut [u8],
        (maps, log): (&mut Vec<Arc<MapObject<E>>>, &mut Log),
    ) -> Result<(), Errno> {
        let mut slot = 0;
        while let Some(insn) = insns.get(slot * 8..slot * 8 + 8) {
            if insn[0] != LOAD_IMM64 {
                slot += 1;
                continue;
            }
            let source = insn[1] >> 4;
            let number = i32::from_le_bytes([insn[4], insn[5], insn[6], insn[7]]);
            if !has_second_slot(insns, slot) {
                // The engine says so.
                slot += 1;
                continue;
            }
            let descriptor = match source {
                MAP_FD | MAP_VALUE => number,
                MAP_IDX | MAP_IDX_VALUE => {
                    if fd_array == 0 {
                        log.line("fd_idx without fd_array is invalid");
                        return Err(Errno::EPROTO);
                    }
                    let mut bytes = [0; 4];
                    let offset = i64::from(number).wrapping_mul(4) as u64;
                    caller.read(fd_array.wrapping_add(offset), &mut bytes)?;
                    i32::from_ne_bytes(bytes)
                }
                _ => {
                    slot += 2;
                    continue;
                }
            };
            let found = caller.handle(descriptor).and_then(Handle::map);
            let map = match found {
                Ok((map, _)) => map,
                Err(error) => {
                    log.line(&format!("fd {descriptor} is not pointing to valid bpf_map"));
                    return Err(error);
                }
            };
            if map.kind() == ARENA {
                self.place_arena(caller, &map, descriptor, log)?;
            }
            let index = use_map(maps, map, log)?;
            let by_index = if matches!(source, MAP_FD | MAP_IDX) { MAP_IDX } else { MAP_IDX_VALUE };
            let insn = &mut insns[slot * 8..slot * 8 + 8];
            insn[1] = insn[1] & 0xf | by_index << 4;
            insn[4..8].copy_from_slice(&(index as u32).to_le_bytes());
            slot += 2;
        }
        Ok(())
    }

    /// Programs hold addresses of an arena as the caller has mapped it.
    fn place_arena(
        &self,
        caller: &mut impl Caller<E>,
        map: &MapObject<E>,
        descriptor: i32,
        log: &mut Log,
    ) -> Result<(), Errno> {
        if self.engine().arena_start(map.map()).is_some() {
            return Ok(());
        }
        match caller.mapped_at(descriptor) {
            Some(address) if self.engine().place_arena(map.map(), address) => Ok(()),
            Some(address) => {
                log.line(&format!("no arena can begin at {address:#x}"));
                Err(Errno::EINVAL)
            }
            None => {
                log.line("arena's user address must be set via map_extra or mmap()");
                Err(Errno::EINVAL)
            }
        }
    }

    pub(crate) fn prog_bind_map(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let bind: BindMap = attr.get()?;
        if bind.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let program = caller.handle(bind.prog_fd)?.program()?;
        let map = caller.handle(bind.map_fd)?.map()?.0;
        let mut maps = program.maps.lock();
        if !maps.iter().any(|known| Arc::ptr_eq(known, &map)) {
            maps.push(map);
        }
        Ok(0)
    }
}

/// What a load names.
struct Parts<E: Engine> {
    btf: Option<Arc<BtfObject<E>>>,
    functions: Vec<FunctionInfo>,
    lines: Vec<LineInfo>,
    maps: Vec<Arc<MapObject<E>>>,
}

/// Whether the slot behind this one is the second of a 64-bit load: only its number may not be 0.
fn has_second_slot(insns: &[u8], slot: usize) -> bool {
    insns.get((slot + 1) * 8..(slot + 2) * 8).is_some_and(|second| second[..4] == [0; 4])
}

fn word(record: &[u8], at: usize) -> u32 {
    record[at * 4..at * 4 + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// The index of a map among those of a program.
fn use_map<E: Engine>(
    maps: &mut Vec<Arc<MapObject<E>>>,
    map: Arc<MapObject<E>>,
    log: &mut Log,
) -> Result<usize, Errno> {
    if let Some(known) = maps.iter().position(|other| Arc::ptr_eq(other, &map)) {
        return Ok(known);
    }
    maps.push(map);
    if maps.len() > MOST_MAPS {
        log.line("The total number of maps per program has reached the limit of 64");
        return Err(Errno::E2BIG);
    }
    Ok(maps.len() - 1)
}

/// A text with a zero at its end, cut after `most` bytes.
pub(crate) fn read_text<E: Engine>(
    caller: &mut impl Caller<E>,
    address: u64,
    most: usize,
) -> Result<Vec<u8>, Errno> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < most {
        // Memory may end at any page.
        let now = ((PAGE - at % PAGE) as usize).min(64).min(most - text.len());
        let mut chunk = [0; 64];
        caller.read(at, &mut chunk[..now])?;
        if let Some(end) = chunk[..now].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&chunk[..end]);
            return Ok(text);
        }
        text.extend_from_slice(&chunk[..now]);
        at = at.wrapping_add(now as u64);
    }
    Ok(text)
}
