//! Loaded programs and how they are run.
//!
//! A run is: a virtual CPU for this thread, an environment block and a context on this thread's stack, one
//! call. The program's handle keeps code, maps and runtime alive for as long as it takes.

#[cfg(test)]
pub(crate) mod checking;

use crate::contract;
use crate::packet::Packet;
use crate::runtime::Shared;
use crate::tail::LookingForRings;
use crate::{Error, Runtime, helpers, tail};
use skep_abi::{Entry, Linkage, Native, ProgramType, RunEnv, SkbContext, XdpContext};
use skep_interp::Interpreter;
use skep_isa::{CallTarget, Imm64, Insn};
use skep_jit::{Compiled, TailEntry};
use skep_maps::Map;
use skep_verifier::Verified;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A verified and compiled program. Cheap to clone; clones are the same program. Any number of threads may run
/// it at once.
#[derive(Clone)]
pub struct Program {
    inner: Arc<Inner>,
    // Behind the reference: it looks when that is gone. Of programs that name arrays.
    _looking: Option<LookingForRings>,
}

/// How a program is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Machine code.
    #[default]
    Jit,
    /// The interpreter: the oracle, for tests and comparisons.
    Interpreter,
}

/// What loading a program cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTimes {
    /// Taking its instructions out of the object and linking them.
    pub link: Duration,
    /// Verification.
    pub verify: Duration,
    /// Compilation and installation.
    pub jit: Duration,
    /// Of that, installation: a place in the arena, the code written for it, copied there and made runnable.
    pub install: Duration,
}

/// Everything a run needs. Helpers find it through [`RunEnv::program`].
pub(crate) struct Inner {
    verified: Verified,
    /// Of the code, which is at hand without another step.
    entry: skep_jit::Entry,
    compiled: Arc<Compiled>,
    /// Made when it is put into an array for the first time.
    tail_entry: OnceLock<TailEntry>,
    /// Made by the first run that asks for it: most programs never meet the oracle.
    interpreter: OnceLock<Result<Interpreter, skep_interp::Error>>,
    linkage: Arc<Linkage>,
    kind: Kind,
    sleepable: bool,
    /// Whether it may take a lock, itself or in a program that it goes over to.
    locks: bool,
    times: LoadTimes,
    /// Those that the program names, by index.
    maps: BTreeMap<u32, Arc<Map>>,
    shared: Arc<Shared>,
}

/// What is built before the call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Xdp,
    Skb,
    Buffer(Buffer),
}

/// What a program of type `raw` is given.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Buffer {
    len: u32,
    /// Whether it must begin at a multiple of [`ALIGNMENT`]: the verifier took that for granted of every atomic access, and
    /// machines fault on others (aarch64), or may (x86-64, across cache lines).
    aligned: bool,
}

/// What objects of programs begin at multiples of.
const ALIGNMENT: usize = size_of::<u64>();

impl Program {
    pub(crate) fn load(
        runtime: &Runtime,
        verified: Verified,
        linkage: Arc<Linkage>,
        maps: &[Arc<Map>],
        mut times: LoadTimes,
    ) -> Result<Self, Error> {
        contract::check(&verified, maps)?;
        let shared = runtime.shared();
        let name = || verified.name().to_owned();
        let started = std::time::Instant::now();
        let compiled = skep_jit::compile(&verified, &linkage, shared.jit, &shared.arena)
            .map_err(|source| Error::Compile { program: name(), source })?;
        times.jit = started.elapsed();
        times.install = compiled.install_time();
        times.verify = Duration::from_nanos(verified.stats().nanoseconds);
        let kind = match (verified.entry(), verified.program_type().native) {
            (Entry::Buffer { len }, Some(Native::Buffer)) => {
                // Programs that it goes over to by tail calls find the same buffer.
                let leaves = named(&verified, maps).values().any(|map| tail::is_wired(map));
                let aligned = leaves || verified.insns().iter().any(is_atomic);
                Kind::Buffer(Buffer { len, aligned })
            }
            (Entry::Context, Some(Native::Xdp)) => Kind::Xdp,
            (Entry::Context, Some(Native::Skb)) => Kind::Skb,
            _ => {
                let program_type = verified.program_type().name;
                return Err(Error::TypeNotProvided { program: name(), program_type });
            }
        };
        let program = Self::of(Arc::new(Inner {
            maps: named(&verified, maps),
            entry: compiled.entry(),
            sleepable: verified.is_sleepable(),
            locks: verified.insns().iter().any(may_lock),
            verified,
            compiled: Arc::new(compiled),
            tail_entry: OnceLock::new(),
            interpreter: OnceLock::new(),
            linkage,
            kind,
            times,
            shared: Arc::clone(shared),
        }));
        // The maps exist and hold programs already, or will: from here on they know of this one.
        program.inner.shared.connect(&program.inner)?;
        Ok(program)
    }

    /// A handle of a program that is kept alive otherwise.
    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        let looking = inner.uses_arrays().then(|| LookingForRings(Arc::clone(&inner.shared)));
        Self { inner, _looking: looking }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Whether it was loaded into that runtime.
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.inner.shared, shared)
    }

    /// Runs it on a packet, which it may change, and returns its result, of which the lower 32 bits count.
    ///
    /// Where it reads objects of the host ([`Object::set_host_types`](crate::Object::set_host_types)), the thread
    /// must not block SIGSEGV or SIGBUS: a load that faults would end the process.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] for programs that take a buffer; [`Error::Slots`] where every virtual CPU of the
    /// runtime belongs to another thread ([`Runtime::release_cpu`]); [`Error::LockHeld`] in a handler of a signal that came
    /// while this thread held the lock of a map's value, for programs that take such locks or make tail calls.
    ///
    /// # Signal handlers
    ///
    /// A program may be run in one, but not as the first of this runtime on its thread: that claims a virtual CPU,
    /// which allocates.
    #[inline]
    pub fn run(&self, packet: &mut Packet) -> Result<u64, Error> {
        self.run_with(Engine::Jit, packet)
    }

    /// [`Program::run`] on an engine of choice.
    ///
    /// # Errors
    ///
    /// As [`Program::run`], and [`Error::Interpret`] where the interpreter is asked for and cannot run the program.
    #[inline]
    pub fn run_with(&self, engine: Engine, packet: &mut Packet) -> Result<u64, Error> {
        match self.inner.kind {
            Kind::Xdp => {
                let mut context: XdpContext = packet.xdp();
                let address = &raw mut context as u64;
                // SAFETY: the context describes the packet's buffer, which is borrowed for the whole run, and
                // is the structure that this program type was verified for.
                let result = unsafe { self.inner.call(engine, address, 0, address)? };
                packet.take_xdp(&context);
                Ok(result)
            }
            Kind::Skb => {
                let mut context: SkbContext = packet.skb();
                let address = &raw mut context as u64;
                // SAFETY: as above.
                let result = unsafe { self.inner.call(engine, address, 0, address)? };
                packet.take_skb(&context);
                Ok(result)
            }
            Kind::Buffer(Buffer { len, .. }) => {
                Err(self.wrong_input(format!("a buffer of {len} bytes"), "a packet".into()))
            }
        }
    }

    /// Runs a program of type `raw` on a buffer, which it may change, and returns its result.
    ///
    /// The buffer may begin anywhere. A program with atomic operations works on a copy of one that does not begin at a
    /// multiple of 8, which takes time.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] for other types and for a buffer of another size than the program was verified
    /// for ([`crate::Linker::buffer_len`]); [`Error::Slots`] and [`Error::LockHeld`] as for [`Program::run`].
    #[inline]
    pub fn run_raw(&self, buffer: &mut [u8]) -> Result<u64, Error> {
        self.run_raw_with(Engine::Jit, buffer)
    }

    /// [`Program::run_raw`] on an engine of choice.
    ///
    /// # Errors
    ///
    /// As [`Program::run_raw`], and [`Error::Interpret`] as for [`Program::run_with`].
    #[inline]
    pub fn run_raw_with(&self, engine: Engine, buffer: &mut [u8]) -> Result<u64, Error> {
        match self.inner.kind {
            Kind::Buffer(Buffer { len, .. }) if len as usize != buffer.len() => {
                let given = format!("one of {} bytes", buffer.len());
                Err(self.wrong_input(format!("a buffer of {len} bytes"), given))
            }
            Kind::Buffer(Buffer { aligned: true, .. })
                if !buffer.as_ptr().addr().is_multiple_of(ALIGNMENT) =>
            {
                self.run_on_copy(engine, buffer)
            }
            Kind::Buffer(Buffer { len, .. }) => {
                // SAFETY: the buffer has the length that the program was verified for, begins where the program's atomic
                // operations are aligned, and is borrowed for the whole run.
                unsafe { self.inner.call(engine, buffer.as_mut_ptr() as u64, u64::from(len), 0) }
            }
            Kind::Xdp | Kind::Skb => Err(self.wrong_input("a packet".into(), "a buffer".into())),
        }
    }

    /// [`Program::run_raw_with`] on a copy that is aligned, which then is what the buffer becomes.
    #[cold]
    fn run_on_copy(&self, engine: Engine, buffer: &mut [u8]) -> Result<u64, Error> {
        let mut copy = vec![0u8; buffer.len() + ALIGNMENT];
        let start = copy.as_ptr().align_offset(ALIGNMENT);
        let copy = &mut copy[start..start + buffer.len()];
        copy.copy_from_slice(buffer);
        let result = self.run_raw_with(engine, copy);
        buffer.copy_from_slice(copy);
        result
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Its type.
    pub fn program_type(&self) -> &'static ProgramType {
        self.inner.verified.program_type()
    }

    /// What the verifier proved and rewrote.
    pub fn verified(&self) -> &Verified {
        &self.inner.verified
    }

    /// Its machine code.
    pub fn compiled(&self) -> &Compiled {
        &self.inner.compiled
    }

    /// Its machine code for another architecture, or for this one's newest processors, to look at: where helpers
    /// and maps are is where they are in this process.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] where the program has an instruction without code there.
    pub fn emit(&self, target: skep_jit::Target) -> Result<skep_jit::Emitted, Error> {
        let shared = &self.inner.shared;
        skep_jit::emit(&self.inner.verified, &self.inner.linkage, shared.jit, target, shared.arena.range())
            .map_err(|source| Error::Compile { program: self.name().to_owned(), source })
    }

    /// What loading it cost.
    pub fn load_times(&self) -> LoadTimes {
        self.inner.times
    }

    fn wrong_input(&self, expected: String, given: String) -> Error {
        let program_type = self.program_type().name;
        Error::WrongInput { program: self.name().to_owned(), program_type, expected, given }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.disconnect(self);
        let arrays = self.uses_arrays();
        // Who looks for rings takes these for the host's until they are gone.
        self.maps = BTreeMap::new();
        if arrays {
            self.shared.look_for_rings();
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name())
            .field("type", &self.program_type().name)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn name(&self) -> &str {
        self.verified.name()
    }

    pub(crate) fn verified(&self) -> &Verified {
        &self.verified
    }

    /// Where tail calls enter it.
    pub(crate) fn tail_entry(&self) -> Result<usize, skep_text::Error> {
        if let Some(entry) = self.tail_entry.get() {
            return Ok(entry.address());
        }
        let entry = self.compiled.tail_entry(&self.shared.arena)?;
        // Another thread may have been first; then nobody has seen this one.
        Ok(self.tail_entry.get_or_init(|| entry).address())
    }

    pub(crate) fn shared_compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// The maps that it names.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Arc<Map>> {
        self.maps.values()
    }

    /// The map of that index, if the program names it.
    pub(crate) fn map(&self, index: u32) -> Option<&Arc<Map>> {
        self.maps.get(&index)
    }

    /// Whether it names arrays of programs or of maps.
    pub(crate) fn uses_arrays(&self) -> bool {
        self.maps().any(|map| tail::is_wired(map))
    }

    /// The program made ready for the interpreter.
    #[cold]
    pub(crate) fn interpreter(&self) -> Result<&Interpreter, Error> {
        if self.interpreter.get().is_none() {
            let probes = self.verified.facts().iter().any(|fact| fact.reached && fact.probe);
            let loads = probes.then(|| self.shared.loads()).transpose()?;
            let _ = self.interpreter.set(
                match loads {
                    Some(loads) => Interpreter::probing(&self.verified, &self.linkage, loads),
                    None => Interpreter::new(&self.verified, &self.linkage),
                }
                .map(|interpreter| interpreter.find_programs(tail::find)),
            );
        }
        // Another thread may have been first, and made the same.
        let Some(made) = self.interpreter.get() else { unreachable!("it was just made") };
        made.as_ref().map_err(|source| Error::Interpret { program: self.name().to_owned(), source: *source })
    }

    pub(crate) fn runtime(&self) -> &Shared {
        &self.shared
    }

    /// # Safety
    ///
    /// `r1` and `r2` are what the program was verified to be given, valid and unshared for the whole run;
    /// `context` is the address of the native context, 0 where there is none.
    #[inline]
    unsafe fn call(&self, engine: Engine, r1: u64, r2: u64, context: u64) -> Result<u64, Error> {
        let interpreter = match engine {
            Engine::Jit => None,
            Engine::Interpreter => Some(self.interpreter()?),
        };
        if self.locks && skep_maps::lock::is_held() {
            return Err(Error::LockHeld);
        }
        let mut env = RunEnv {
            context,
            host: &raw const *self.shared as u64,
            program: &raw const *self as u64,
            ..RunEnv::default()
        };
        // Its number is the virtual CPU; and as long as it lives, no code that this run can reach is reused.
        let (_normal, _sleepable);
        if self.sleepable {
            let section = self.shared.domain.enter_sleepable()?;
            (env.cpu, env.sleepable) = (section.number(), 1);
            _sleepable = section;
        } else {
            let section = self.shared.domain.enter()?;
            env.cpu = section.number();
            _normal = section;
        }
        // SAFETY: the caller's promise; the linkage's maps and helpers live as long as `self`.
        let result = unsafe {
            match interpreter {
                None => self.entry.call(r1, r2, &mut env),
                Some(interpreter) => interpreter.run(r1, r2, &mut env),
            }
        };
        if env.sections > 0 {
            self.leave_sections(&env);
        }
        Ok(result)
    }

    /// Leaves the sections that a run entered and did not leave. The verifier saw that it does, on every path to its end.
    #[cold]
    fn leave_sections(&self, env: &RunEnv) {
        for _ in 0..env.sections {
            // SAFETY: what is counted was entered without a guard, on this thread.
            unsafe { skep_rcu::raw::leave(&self.shared.domain) };
        }
    }
}

/// Whether a lock may be taken there: by a helper, or by a program that is found when it runs.
fn may_lock(insn: &Insn) -> bool {
    matches!(insn, Insn::Call { target: CallTarget::Helper(helpers::lock::SPIN_LOCK | helpers::TAIL_CALL) })
}

/// The maps that a program names, by their index.
fn named(program: &Verified, maps: &[Arc<Map>]) -> BTreeMap<u32, Arc<Map>> {
    let indices = program.insns().iter().filter_map(|insn| match insn {
        Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } => Some(*map),
        _ => None,
    });
    indices.filter_map(|index| Some((index, Arc::clone(maps.get(index as usize)?)))).collect()
}

/// Whether an instruction faults, or may, on an address that is not aligned.
fn is_atomic(insn: &Insn) -> bool {
    matches!(insn, Insn::Atomic { .. } | Insn::LoadAcquire { .. } | Insn::StoreRelease { .. })
}
