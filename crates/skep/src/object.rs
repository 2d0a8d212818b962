//! Objects: parsed files or bytes with programs, not loaded yet.

mod maps;
#[cfg(feature = "signatures")]
mod signed;

use crate::error::Error;
use crate::host::{self, HostType, Registered};
use maps::Maps;
use skep_abi::{
    AttachTo, Context, Entry, Function, HelperProto, MapDef, ProgramSource, ProgramType, TargetFunction,
};
use skep_isa::{CallTarget, Insn};
use skep_verifier::{Abilities, Config, Unverified, Verified};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A parsed object: programs, map definitions and global variables. None of it is trusted.
#[derive(Clone, Debug)]
pub struct Object {
    content: Content,
    maps: Maps,
    /// The host's types that programs are verified for.
    host_types: Option<Arc<skep_btf::Btf>>,
    /// The program type of another host's section.
    context: Option<&'static HostType>,
    parse: Duration,
    /// The SHA-256 of the file.
    #[cfg(feature = "audit")]
    digest: Option<[u8; 32]>,
    /// What was parsed, and the signature of that.
    #[cfg(feature = "signatures")]
    signed: signed::Content,
}

#[derive(Clone, Debug)]
enum Content {
    Elf(Box<skep_elf::Object>),
    Sources(Vec<ProgramSource>, Option<Arc<skep_btf::Btf>>),
}

/// Choices about a program before it is verified.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramOptions {
    /// Its type, instead of the one that its section names.
    pub program_type: Option<&'static ProgramType>,
    /// For programs over a buffer, the buffer's length in bytes.
    pub buffer_len: u32,
    /// Lets the program sleep if its type may, as `.s` in its section's name does (`raw.s`). A sleepable program runs
    /// in a sleepable read-side critical section, so it may block or run long, and reads maps between
    /// `bpf_rcu_read_lock` and `bpf_rcu_read_unlock`.
    pub sleepable: bool,
}

/// Choices for a verification without a load.
#[derive(Default)]
pub struct VerifyOptions<'a> {
    /// Whether every memory access must be aligned to its size.
    pub strict_alignment: bool,
    /// Whether addresses may leave the program as numbers, as Linux allows its root user: see
    /// [`RuntimeBuilder::privileged`](crate::RuntimeBuilder::privileged).
    pub privileged: bool,
    /// Functions that the host of the program provides
    /// ([`Prototypes`](crate::function::Prototypes), for example).
    pub host: &'a [HelperProto],
    /// Whether the answer is about a kernel: a runtime's own tasks and control groups are not there.
    pub for_kernel: bool,
    /// What the verification makes use of.
    pub abilities: Abilities,
    /// Receives the lines of the verifier's log, in the syntax of Linux's verifier.
    pub log: Option<&'a mut dyn FnMut(&str)>,
}

/// A global variable of an object or a module.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name in the source.
    pub name: String,
    /// Index of the map that holds it, in [`Object::maps`] or
    /// [`Module::maps`](crate::Module::maps).
    pub map: usize,
    /// Its offset in the map's value, or from the start of an arena, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Whether programs can only read it.
    pub read_only: bool,
}

impl Object {
    /// Reads and parses an object file.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] and [`Error::Object`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let object = Self::parse(&bytes)?;
        #[cfg(feature = "signatures")]
        let object = object.named(&path.display().to_string());
        Ok(object)
    }

    /// Parses the bytes of an object file.
    ///
    /// # Errors
    ///
    /// [`Error::Object`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let started = Instant::now();
        let elf = skep_elf::Object::parse(bytes)?;
        let maps: Arc<[MapDef]> = elf.maps().iter().map(|map| map.def.clone()).collect();
        let maps = match elf.btf() {
            Some(types) => Maps::for_host(maps, types, None),
            None => Maps::new(maps),
        };
        Ok(Self {
            content: Content::Elf(Box::new(elf)),
            maps,
            host_types: None,
            context: None,
            parse: started.elapsed(),
            #[cfg(feature = "audit")]
            digest: Some(
                sha2::Digest::finalize(sha2::Digest::chain_update(sha2::Sha256::default(), bytes)).into(),
            ),
            #[cfg(feature = "signatures")]
            signed: signed::Content::of(bytes),
        })
    }

    /// Takes bare instructions, eight bytes each, as a program without maps. Functions are found through the
    /// instructions that call them or take their addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`].
    pub fn from_bytecode(
        name: &str,
        program_type: &'static ProgramType,
        bytes: &[u8],
    ) -> Result<Self, Error> {
        Self::from_bytecode_and_maps(name, program_type, bytes, [])
    }

    /// Takes bare instructions, eight bytes each, as a program that names these maps by their index (`src` 5 and 6
    /// in 64-bit immediate loads). Functions are found through the instructions that
    /// call them or take their addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`].
    pub fn from_bytecode_and_maps(
        name: &str,
        program_type: &'static ProgramType,
        bytes: &[u8],
        maps: impl Into<Arc<[MapDef]>>,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let insns = skep_isa::decode_bytes(bytes)?;
        let object = Self::assemble(name, program_type, insns, maps.into(), started);
        #[cfg(feature = "signatures")]
        let object = Self { signed: signed::Content::of(bytes), ..object };
        Ok(object)
    }

    /// Takes decoded instructions as a program without maps. Functions are found through the instructions
    /// that call them or take their addresses.
    pub fn from_insns(name: &str, program_type: &'static ProgramType, insns: Vec<Insn>) -> Self {
        Self::assemble(name, program_type, insns, Arc::new([]), Instant::now())
    }

    fn assemble(
        name: &str,
        program_type: &'static ProgramType,
        insns: Vec<Insn>,
        maps: Arc<[MapDef]>,
        started: Instant,
    ) -> Self {
        let functions = functions(name, &insns);
        let source = ProgramSource { functions, ..ProgramSource::new(name, program_type, insns) };
        Self {
            content: Content::Sources(vec![source], None),
            maps: Maps::new(maps),
            host_types: None,
            context: None,
            parse: started.elapsed(),
            #[cfg(feature = "audit")]
            digest: None,
            #[cfg(feature = "signatures")]
            signed: signed::Content::default(),
        }
    }

    /// Takes programs as another loader has linked them, with the maps that they name by index; neither is trusted.
    /// `types`: those that programs and maps refer to by number.
    pub fn from_sources(
        programs: Vec<ProgramSource>,
        maps: impl Into<Arc<[MapDef]>>,
        types: Option<Arc<skep_btf::Btf>>,
    ) -> Self {
        let maps = maps.into();
        let maps = match &types {
            Some(types) => Maps::for_host(maps, types, None),
            None => Maps::new(maps),
        };
        Self {
            content: Content::Sources(programs, types),
            maps,
            host_types: None,
            context: None,
            parse: Duration::ZERO,
            #[cfg(feature = "audit")]
            digest: None,
            #[cfg(feature = "signatures")]
            signed: signed::Content::default(),
        }
    }

    /// Sets the host's types, for example those of `/sys/kernel/btf/vmlinux`. Programs are linked against them, and the
    /// host's functions and structures are looked up there.
    ///
    /// A program that gets an object of the host may follow the pointers in it: loads that fault give 0. This needs the
    /// fault handler of code memory ([`Config::fault_handler`](crate::text::Config::fault_handler)); if that is off,
    /// such programs are refused at load.
    pub fn set_host_types(&mut self, types: Arc<skep_btf::Btf>) {
        self.host_types = Some(types);
        self.set_maps(Arc::clone(self.maps.own()));
    }

    /// Says that programs in this type's section are of this type, to verify plug-ins of a host that this process is
    /// not ([`HostType::from_btf`]). A runtime knows its own host's types ([`RuntimeBuilder::context`]).
    ///
    /// [`RuntimeBuilder::context`]: crate::RuntimeBuilder::context
    pub fn set_context(&mut self, host: &'static HostType) {
        self.context = Some(host);
    }

    /// The types of the host that it is for.
    pub(crate) fn host_types(&self) -> Option<&skep_btf::Btf> {
        self.host_types.as_deref()
    }

    /// Whether anything in it depends on the host's types: see [`Object::set_host_types`].
    pub fn refers_to_host(&self) -> bool {
        match &self.content {
            Content::Elf(elf) => elf.refers_to_host(),
            Content::Sources(sources, _) => {
                sources.iter().any(|source| source.program_type.meets_host_types())
            }
        }
    }

    /// Whether linking depends on the host's types: fields are relocated, or the host's functions or variables are
    /// named.
    pub fn is_linked_to_host(&self) -> bool {
        self.elf().is_some_and(skep_elf::Object::is_linked_to_host)
    }

    /// Sets the variables declared with `__kconfig`, from the text of a kernel's configuration and the kernel's release
    /// (`6.18.1`). Without this they are unknown, and an accepted program is accepted for all values.
    ///
    /// # Errors
    ///
    /// [`Error::Object`] if a variable cannot hold its value, or has none.
    pub fn set_config(&mut self, text: &str, release: Option<&str>) -> Result<(), Error> {
        let Content::Elf(elf) = &mut self.content else { return Ok(()) };
        elf.set_config(text, release)?;
        let maps = elf.maps().iter().map(|map| map.def.clone()).collect();
        self.set_maps(maps);
        Ok(())
    }

    fn set_maps(&mut self, own: Arc<[MapDef]>) {
        self.maps = match self.types() {
            Some(types) => Maps::for_host(own, types, self.host_types.as_deref()),
            None => Maps::new(own),
        };
    }

    /// The names of its programs, in the file's order.
    pub fn programs(&self) -> Vec<&str> {
        match &self.content {
            Content::Elf(elf) => elf.programs().iter().map(|program| program.name()).collect(),
            Content::Sources(sources, _) => sources.iter().map(|source| &*source.name).collect(),
        }
    }

    /// The object's own types, which its map definitions refer to by number; `None` if it has none.
    pub fn types(&self) -> Option<&Arc<skep_btf::Btf>> {
        match &self.content {
            Content::Elf(elf) => elf.btf(),
            Content::Sources(_, types) => types.as_ref(),
        }
    }

    /// Its map definitions, in the file's order, those of global variables included.
    pub fn maps(&self) -> &[MapDef] {
        self.maps.own()
    }

    /// Its global variables, in the order of the maps that hold them.
    pub fn variables(&self) -> Vec<Variable> {
        let Some(elf) = self.elf() else { return Vec::new() };
        let maps = elf.maps().iter().enumerate();
        maps.flat_map(|(map, found)| {
            found.variables.iter().map(move |variable| Variable {
                name: variable.name.clone(),
                map,
                offset: variable.offset as usize,
                size: variable.size as usize,
                read_only: variable.read_only,
            })
        })
        .collect()
    }

    /// [`Self::maps`], with a runtime's types in fields that keep objects.
    pub(crate) fn maps_for_runtime(&self) -> &Arc<[MapDef]> {
        self.maps.of_runtime()
    }

    /// [`Self::maps`], with the host's types in fields that keep its objects.
    fn maps_for_host(&self) -> &Arc<[MapDef]> {
        self.maps.of_host()
    }

    /// The SHA-256 of its file, or of its programs' instructions if it has none.
    #[cfg(feature = "audit")]
    pub(crate) fn sha256(&self) -> Option<[u8; 32]> {
        use sha2::Digest;

        if self.digest.is_some() {
            return self.digest;
        }
        let Content::Sources(sources, _) = &self.content else { return None };
        let mut digest = sha2::Sha256::new();
        for source in sources {
            digest.update(skep_isa::encode_bytes(&source.insns).ok()?);
        }
        Some(digest.finalize().into())
    }

    #[cfg(not(feature = "audit"))]
    pub(crate) fn sha256(&self) -> Option<[u8; 32]> {
        None
    }

    /// The time that parsing took.
    pub fn parse_time(&self) -> Duration {
        self.parse
    }

    /// Verifies a program without loading it, against everything that skep's verifier knows, also what no runtime
    /// provides.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] for its name, [`Error::Object`] if it cannot be linked, [`Error::ForeignType`],
    /// [`Error::Refused`].
    pub fn verify(&self, program: &str, options: ProgramOptions) -> Result<Verified, Error> {
        self.verify_with(program, options, VerifyOptions::default())
    }

    /// As [`Object::verify`], with choices.
    ///
    /// # Errors
    ///
    /// As for [`Object::verify`].
    pub fn verify_with(
        &self,
        program: &str,
        options: ProgramOptions,
        how: VerifyOptions<'_>,
    ) -> Result<Verified, Error> {
        let of_host = |id| how.host.iter().find(|proto| proto.id == id);
        let config = Config {
            helpers: &|id| of_host(id).or_else(|| skep_abi::linux_helper(id)),
            strict_alignment: how.strict_alignment,
            privileged: how.privileged,
            abilities: how.abilities,
            btf: self.host_types.as_deref(),
            own_objects: self.host_types.is_none() && !how.for_kernel,
            ..Config::default()
        };
        let unverified = self.unverified(program, options, Arc::clone(self.maps_for_host()), None)?;
        Ok(match how.log {
            Some(log) => skep_verifier::verify_with_log(unverified, &config, log)?,
            None => skep_verifier::verify(unverified, &config)?,
        })
    }

    /// Verifies a program for a load: against the helpers and limits of `config`, and this load's maps.
    pub(crate) fn verify_for<'a>(
        &'a self,
        (config, hosts): (Config<'a>, &Registered),
        program: &str,
        options: ProgramOptions,
        target: Option<&Arc<TargetFunction>>,
        maps: &Arc<[MapDef]>,
        log: Option<&mut dyn FnMut(&str)>,
    ) -> Result<Verified, Error> {
        let mut unverified = self.unverified(program, options, Arc::clone(maps), Some(hosts))?;
        if let Some(target) = target {
            set_target(&mut unverified.source, target)?;
        }
        let kind = unverified.source.program_type;
        // Objects of a kernel are nothing to programs of a host's own types.
        let own = match host::of(kind) {
            Some(_) => None,
            None => self.types_of_runtime(kind).or(self.host_types.as_ref()),
        };
        let shown = crate::shown::shown(kind);
        let config = Config { btf: own.map(|types| &**types), shown, ..config };
        if let Some(symbol) = unverified.source.externs.first() {
            let (program, symbol) = (program.to_owned(), symbol.name.to_string());
            return Err(Error::KernelSymbol { program, symbol });
        }
        Ok(match log {
            Some(log) => skep_verifier::verify_with_log(unverified, &config, log)?,
            None => skep_verifier::verify(unverified, &config)?,
        })
    }

    pub(crate) fn elf(&self) -> Option<&skep_elf::Object> {
        match &self.content {
            Content::Elf(elf) => Some(elf),
            Content::Sources(..) => None,
        }
    }

    /// A program's instructions as the loader linked them, not verified, for tools that inspect them.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] for its name, [`Error::Object`] if it cannot be linked.
    pub fn linked(&self, program: &str, options: ProgramOptions) -> Result<ProgramSource, Error> {
        self.linked_with(program, options, None)
    }

    /// The runtime's own types, where programs of that type are linked against them.
    fn types_of_runtime(&self, kind: &ProgramType) -> Option<&'static Arc<skep_btf::Btf>> {
        crate::netfilter::types(kind).or_else(|| crate::shown::types(kind, self.host_types.as_ref()))
    }

    /// `hosts`: for a runtime with these types of its host. Functions of the runtime take precedence over the host's
    /// functions of the same names.
    fn linked_with(
        &self,
        program: &str,
        options: ProgramOptions,
        hosts: Option<&Registered>,
    ) -> Result<ProgramSource, Error> {
        let own = hosts.is_some();
        let mut source = match &self.content {
            Content::Elf(elf) => {
                let found = elf.program(program).map_err(|_| self.no_program(program))?;
                let own_context = self.context.filter(|host| host.has_section(found.section()));
                let registered = hosts.and_then(|hosts| hosts.of_section(found.section()));
                let of_section = || registered.or(own_context).map(HostType::program_type);
                let kind = match options.program_type.or_else(of_section) {
                    Some(kind) => kind,
                    None => found.program_type()?,
                };
                let of_host = host::of(kind).map(HostType::btf);
                let of_runtime = of_host.or_else(|| if own { self.types_of_runtime(kind) } else { None });
                let target = of_runtime.or(self.host_types.as_ref()).map(|types| &**types);
                let named = |name: &str| {
                    skep_abi::own_kfunc_number(name).or_else(|| hosts?.methods.get(name).copied())
                };
                let functions: Option<&skep_elf::Functions<'_>> =
                    if own || of_host.is_some() || target.is_none() { Some(&named) } else { None };
                let partial = of_runtime.is_some();
                let link = skep_elf::LinkOptions { target, partial, functions, ..Default::default() };
                found.link(Some(kind), &link)?
            }
            Content::Sources(sources, _) => {
                let found = sources.iter().find(|source| source.name == program);
                let source = found.ok_or_else(|| self.no_program(program))?;
                let program_type = options.program_type.unwrap_or(source.program_type);
                ProgramSource { program_type, ..source.clone() }
            }
        };
        let kind = source.program_type;
        source.sleepable |= kind.always_sleeps || options.sleepable && kind.may_sleep;
        for insn in &mut source.insns {
            if let Insn::Call { target } = insn
                && let CallTarget::Kfunc { id, .. } = *target
                && hosts.is_some_and(|hosts| hosts.is_method(id.cast_unsigned()))
            {
                *target = CallTarget::Helper(id.cast_unsigned());
            }
        }
        if own {
            // Linux refuses them all, and a verdict for Linux has to say so.
            skep_isa::resolve_register_calls(&mut source.insns);
        }
        Ok(source)
    }

    fn unverified(
        &self,
        program: &str,
        options: ProgramOptions,
        maps: Arc<[MapDef]>,
        hosts: Option<&Registered>,
    ) -> Result<Unverified, Error> {
        let source = self.linked_with(program, options, hosts)?;
        let program_type = source.program_type;
        // A program type gives the offsets of native structures: one that the caller made up could let a verified
        // program access any memory.
        let known = || skep_abi::TYPES.iter().any(|known| std::ptr::eq(*known, program_type));
        if host::of(program_type).is_none() && !known() {
            return Err(Error::ForeignType { program: source.name, program_type: program_type.name });
        }
        let entry = match source.program_type.context {
            skep_abi::Context::Buffer => Entry::Buffer { len: options.buffer_len },
            _ => Entry::Context,
        };
        Ok(Unverified { source, maps, entry })
    }

    fn no_program(&self, name: &str) -> Error {
        let known = self.programs().into_iter().map(str::to_owned).collect();
        Error::Unknown { what: "program", name: name.to_owned(), known }
    }
}

/// Makes a program one for a function of a loaded program.
fn set_target(source: &mut ProgramSource, target: &Arc<TargetFunction>) -> Result<(), Error> {
    match source.program_type.context {
        Context::Arguments { of: AttachTo::ProgramFunction } => source.program_type = target.program_type,
        Context::Arguments { of: AttachTo::FunctionEntry | AttachTo::FunctionExit } => {}
        _ => {
            return Err(Error::Target {
                program: target.program.clone(),
                function: target.name.clone(),
                why: format!("the section of {} is not freplace, fentry or fexit", source.name),
            });
        }
    }
    source.of = Some(Arc::clone(target));
    Ok(())
}

/// The functions of bare instructions: the program itself, and every target of a local call.
pub(crate) fn functions(name: &str, insns: &[Insn]) -> Vec<Function> {
    let mut starts: Vec<u32> = insns
        .iter()
        .enumerate()
        .filter_map(|(slot, insn)| insn.function_target(slot).filter(|target| *target < insns.len()))
        .filter_map(|target| u32::try_from(target).ok())
        .chain([0])
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let named = |start| if start == 0 { name.to_owned() } else { format!("function_{start}") };
    starts.into_iter().map(|start| Function::new(named(start), start, false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_the_calls_and_their_addresses() {
        let insns = skep_isa::assemble(
            "call inner
             call inner
             r2 = func[round] ll
             exit
             inner:
             r0 = 0
             exit
             round:
             r0 = 0
             exit",
        )
        .unwrap();
        let found: Vec<_> = functions("main", &insns).into_iter().map(|f| (f.name, f.start)).collect();
        assert_eq!(found, [("main".into(), 0), ("function_5".into(), 5), ("function_7".into(), 7)]);
    }
}
