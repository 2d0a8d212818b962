//! Loaded programs and how they are run.
//!
//! A run takes a virtual CPU for this thread, puts an environment block and a context on this thread's stack, and makes
//! one call. Meanwhile the program's handle keeps code, maps and runtime alive.

use crate::budget::Budget;
use crate::contract;
use crate::dispatch::{CollectOnDrop, Connected};
use crate::ending::Interrupts;
use crate::error::Error;
use crate::helpers;
use crate::image::{self, ALIGNMENT, Buffer, Engine, Image, Input, LoadTimes, TIMERS, takes_part};
use crate::netfilter::NativeHook;
use crate::observe::Life;
use crate::packet::{Outcome, Packet, Redirect};
use crate::run_state::{RunState, StateType};
use crate::shared::Shared;
use crate::shown::Layout;
use crate::stats::{Counted, LinkCounts, RunStats};
use crate::tenant::Tenant;
use crate::timers::SweepOnDrop;
use skep_abi::{Entry, Linkage, Native, ProgramType, SkbContext, TAIL_CALL, XdpContext};
use skep_btf::Btf;
use skep_isa::{CallTarget, Imm64, Insn};
use skep_jit::Compiled;
use skep_maps::{Charge, Map};
use skep_verifier::Verified;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

mod call;
mod coverage;
mod observed;
mod with_state;

pub(crate) use call::Call;
pub use coverage::{Coverage, CoveredLine};
pub use with_state::WithState;

/// A verified and compiled program. Cheap to clone; clones are the same program. Any number of threads may run
/// it at once.
///
/// What a call looks at is in one cache line: a host that calls thousands of programs in turn waits for memory twice
/// for each, here and for the code.
#[derive(Clone)]
#[repr(align(64))]
pub struct Program {
    /// The entry, if a run needs no virtual CPU: [`image::needs_no_cpu`].
    bare: Option<skep_jit::Entry>,
    /// The image's.
    input: Input,
    image: Arc<Connected>,
    shared: Arc<Shared>,
    /// The link through which a hook runs it.
    link: Option<Arc<LinkCounts>>,
    // After the references, so dropped after it: then it collects cycles. Only for programs that name arrays.
    _collect: Option<CollectOnDrop>,
    // Likewise: then it ends timers that nobody could notice. Only for programs with callbacks of timers.
    _sweep: Option<SweepOnDrop>,
    /// The budget of this handle's runs, instead of the runtime's.
    budget: Option<Box<Budget>>,
}

const _: () = assert!(size_of::<Program>() == 64);

impl Program {
    pub(crate) fn load(
        shared: &Arc<Shared>,
        mut verified: Verified,
        linkage: Arc<Linkage>,
        maps: &[Option<Arc<Map>>],
        host: Option<&Btf>,
        link_time: Duration,
        (types, tenant): (Option<Arc<Btf>>, Option<&Arc<Tenant>>),
    ) -> Result<Self, Error> {
        contract::check(&verified, maps)?;
        let linkage = if shared.coverage { coverage::counted(&verified, &linkage) } else { linkage };
        let charge = match tenant {
            Some(tenant) => shared.charging(|| tenant.charge_program())?,
            None => Charge::default(),
        };
        let name = || verified.name().to_owned();
        let started = std::time::Instant::now();
        let mut options = shared.jit;
        options.patchable = types.is_some();
        let compile = || {
            skep_jit::compile(&verified, &linkage, options, &shared.arena)
                .map_err(|source| Error::Compile { program: name(), source })
        };
        let mut compiled = compile()?;
        #[cfg(feature = "guard")]
        if shared.guards {
            compiled = without_openings(compiled, compile, name)?;
        }
        if let Some(tenant) = tenant {
            shared.charging(|| tenant.charge_code(&mut compiled))?;
        }
        let jit_time = started.elapsed();
        let mut layout = None;
        let input = match (verified.entry(), verified.program_type().native) {
            _ if verified.is_extension() => Input::Inside,
            _ if verified.is_watcher() => {
                helpers::over_contexts::check(&verified)?;
                Input::Inside
            }
            (Entry::Buffer { len }, Some(Native::Buffer)) => {
                // Programs that it tail-calls get the same buffer.
                let leaves = named(&verified, maps).values().any(|map| takes_part(map));
                let aligned = leaves || verified.insns().iter().any(is_atomic);
                Input::Buffer(Buffer { len, aligned })
            }
            (Entry::Context, Some(Native::Xdp)) => Input::Xdp,
            (Entry::Context, Some(Native::Skb)) => Input::Skb,
            (Entry::Context, Some(Native::Struct | Native::Bytes)) => {
                helpers::over_contexts::check(&verified)?;
                Input::Context
            }
            (Entry::Context, Some(Native::Host)) => {
                helpers::over_contexts::check(&verified)?;
                Input::Host
            }
            (Entry::Context, Some(Native::Netfilter)) => {
                helpers::over_contexts::check(&verified)?;
                Input::Netfilter
            }
            (Entry::Context, Some(Native::Arguments)) => {
                helpers::over_contexts::check(&verified)?;
                Input::Arguments
            }
            (Entry::Context, Some(Native::Iterator)) => {
                helpers::over_contexts::check(&verified)?;
                let shown = Layout::of(verified.target(), host);
                let target = || verified.target().unwrap_or_default().to_owned();
                let lacks = |why| Error::IteratorNotProvided { program: name(), target: target(), why };
                layout = Some(Box::new(shown.map_err(lacks)?));
                Input::Shown
            }
            _ => {
                let program_type = verified.program_type().name;
                return Err(Error::TypeNotProvided { program: name(), program_type });
            }
        };
        let functions = vec![(); verified.functions().len()];
        let shared_name = verified.name().into();
        let maps = named(&verified, maps);
        let needs_no_cpu = types.is_none() && image::needs_no_cpu(&verified, &linkage, input, &maps);
        // An extension may take one too.
        let locks = types.is_some() || verified.insns().iter().any(may_lock);
        let takes = taken_state(shared, &verified)?;
        let defers = image::defers(&verified);
        // What follows asks for no instruction.
        verified.pack();
        let image = Image {
            _life: Life::begin(&shared_name),
            name: shared_name,
            mapped_arena: maps.values().find(|map| map.arena().is_some() && map.file().is_some()).cloned(),
            maps,
            entry: compiled.entry(),
            sleepable: verified.is_sleepable(),
            locks,
            takes,
            defers,
            verified,
            compiled: Arc::new(compiled),
            tail_entry: OnceLock::new(),
            interpreter: OnceLock::new(),
            needs_no_cpu,
            ends: linkage.ends.is_some(),
            linkage,
            input,
            layout,
            link_time,
            jit_time,
            counted: Counted::default(),
            tenant: tenant.cloned(),
            _charge: charge,
            interrupts: Interrupts::default(),
            entries: types.iter().flat_map(|_| functions.iter()).map(|_| AtomicPtr::default()).collect(),
            types,
        };
        for map in image.maps() {
            shared.dispatch.holders.add(map);
        }
        let connected = Connected::new(image, &shared.dispatch)?;
        if connected.defers {
            shared.may_defer(&connected);
        }
        shared.registry.add_program(&connected, &shared.counts_runs, shared.domain.limit());
        Ok(Self::of(connected, shared))
    }

    /// This program, as a hook runs it: runs count for the link too.
    pub(crate) fn through(&self, link: Option<&Arc<LinkCounts>>) -> Self {
        Self { link: link.cloned(), ..self.clone() }
    }

    /// A handle of a program that something else keeps alive.
    pub(crate) fn of(image: Arc<Connected>, shared: &Arc<Shared>) -> Self {
        let collect = image.uses_arrays().then(|| CollectOnDrop(Arc::clone(&shared.dispatch)));
        let sweep = image.defers.then(|| SweepOnDrop(Arc::clone(&shared.timers)));
        Self {
            bare: image.needs_no_cpu.then_some(image.entry),
            input: image.input,
            image,
            shared: Arc::clone(shared),
            link: None,
            _collect: collect,
            _sweep: sweep,
            budget: None,
        }
    }

    #[inline]
    pub(crate) fn image(&self) -> &Arc<Connected> {
        &self.image
    }

    /// The runtime that it was loaded into.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs it on a packet, which it may change. Returns its result; the lower 32 bits are significant.
    ///
    /// If it reads objects of the host ([`Object::set_host_types`](crate::Object::set_host_types)), the thread must not
    /// block SIGSEGV or SIGBUS: a load that faults would end the process.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] for programs that take a buffer; [`Error::Slots`] if every virtual CPU of the runtime is
    /// in use where this thread may not wait for one ([`RuntimeBuilder::cpus`](crate::RuntimeBuilder::cpus));
    /// [`Error::StateMissing`] for programs that need a [state](Program::with_state); [`Error::LockHeld`] in a signal
    /// handler that interrupted this thread while it held the lock of a map value, for programs that take such locks or
    /// make tail calls.
    ///
    /// # Signal handlers
    ///
    /// A handler may run a program, except as this thread's first run in the runtime: that claims a virtual CPU, which
    /// allocates. In a thread that keeps none, a handler that interrupts the claim of a run gets [`Error::Slots`], and
    /// one that claims itself may wait.
    #[inline]
    pub fn run(&self, packet: &mut Packet) -> Result<u64, Error> {
        self.run_with(Engine::Jit, packet)
    }

    /// [`Program::run`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`Program::run`], and [`Error::Interpret`] if the interpreter cannot run the program.
    #[inline]
    pub fn run_with(&self, engine: Engine, packet: &mut Packet) -> Result<u64, Error> {
        self.run_lending(engine, packet, None)
    }

    #[inline]
    fn run_lending(
        &self,
        engine: Engine,
        packet: &mut Packet,
        state: Option<&RunState<'_>>,
    ) -> Result<u64, Error> {
        match self.input {
            Input::Xdp => {
                let mut context: XdpContext = packet.xdp();
                let effects;
                (context.packet, effects) = packet.begin();
                let address = &raw mut context as u64;
                // SAFETY: the context describes the packet's buffer, which is borrowed for the whole run, and
                // is the structure that this program type was verified for.
                let result = unsafe { self.call(Call::on_context(engine, address, effects).lending(state)) };
                packet.take_xdp(&context);
                result
            }
            Input::Skb => {
                let mut context: SkbContext = packet.skb(self.program_type().from_network);
                let effects;
                (context.packet, effects) = packet.begin();
                let address = &raw mut context as u64;
                // SAFETY: as above.
                let result = unsafe { self.call(Call::on_context(engine, address, effects).lending(state)) };
                packet.take_skb(&context);
                result
            }
            Input::Netfilter => {
                let mut hook = NativeHook::new(packet);
                let effects;
                (hook.skb.packet, effects) = packet.begin();
                let address = hook.words();
                // SAFETY: the words lead to the hook's state and to the context, which describes the packet's buffer,
                // and is borrowed for the whole run. They have the layout of the types that the program was verified
                // with.
                unsafe { self.call(Call::on_context(engine, address, effects).lending(state)) }
            }
            Input::Buffer(Buffer { len, .. }) => {
                Err(self.wrong_input(format!("a buffer of {len} bytes"), "a packet".into()))
            }
            Input::Context => {
                Err(self.wrong_input("a context (Program::run_context)".into(), "a packet".into()))
            }
            Input::Host => Err(self.wrong_input(HOST.into(), "a packet".into())),
            Input::Arguments => {
                Err(self.wrong_input("arguments (OpsMember::call)".into(), "a packet".into()))
            }
            Input::Shown => Err(self.wrong_input(SHOWN.into(), "a packet".into())),
            Input::Inside => Err(self.wrong_input(INSIDE.into(), "a packet".into())),
        }
    }

    /// Runs it on a packet and tells what it did: the result, where the packet goes, copies.
    ///
    /// ```
    /// use skep::{Object, Packet, Redirect, Runtime};
    ///
    /// let insns = skep::isa::assemble(
    ///     "r1 = 3              // the device
    ///      r2 = 0
    ///      call redirect#23
    ///      exit",
    /// )
    /// .expect("the text is right");
    /// let runtime = Runtime::new()?;
    /// let xdp = skep::abi::ProgramType::from_name("xdp").expect("a type");
    /// let module = runtime.load(&Object::from_insns("to_three", xdp, insns))?;
    /// let outcome = module.programs()[0].outcome(&mut Packet::new(&[0; 64]))?;
    /// assert_eq!(outcome.verdict, Some("redirect"));
    /// assert_eq!(outcome.redirect, Some(Redirect::Device { index: 3, ingress: false }));
    /// # Ok::<(), skep::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Program::run`].
    pub fn outcome(&self, packet: &mut Packet) -> Result<Outcome, Error> {
        self.outcome_with(Engine::Jit, packet)
    }

    /// [`Program::outcome`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`Program::run_with`].
    pub fn outcome_with(&self, engine: Engine, packet: &mut Packet) -> Result<Outcome, Error> {
        self.outcome_lending(engine, packet, None)
    }

    fn outcome_lending(
        &self,
        engine: Engine,
        packet: &mut Packet,
        state: Option<&RunState<'_>>,
    ) -> Result<Outcome, Error> {
        let before = packet.bytes().to_vec();
        packet.effects.events = Some(Vec::new());
        let result = self.run_lending(engine, packet, state);
        let events = packet.effects.events.take().unwrap_or_default();
        let result = result?;
        let verdict = self.program_type().verdict(result);
        let stream = |to: &Redirect| matches!(to, Redirect::Stream { .. });
        // A stream's packet passes to the other socket.
        let wanted = |to: &Redirect| verdict == Some(if stream(to) { "pass" } else { "redirect" });
        let redirect = packet.effects.redirect.filter(wanted);
        let several = redirect == Some(Redirect::Devices);
        let devices = packet.effects.devices.iter().filter(|_| several).map(|target| target.index).collect();
        Ok(Outcome {
            result,
            verdict,
            redirect,
            devices,
            events,
            socket: packet.effects.chosen().map(|native| Arc::clone(native.socket())),
            clones: std::mem::take(&mut packet.effects.clones),
            changed: before != packet.bytes(),
        })
    }

    /// Runs a program of type `raw` on a buffer, which it may change. Returns its result.
    ///
    /// The buffer may begin at any address. If a program has atomic operations and the address is not a multiple of 8,
    /// it works on an aligned copy, which takes time.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] for other types and for a buffer of another size than the program was verified
    /// for ([`crate::Linker::buffer_len`]); [`Error::Slots`] and [`Error::LockHeld`] as for [`Program::run`].
    #[inline]
    pub fn run_raw(&self, buffer: &mut [u8]) -> Result<u64, Error> {
        self.run_raw_with(Engine::Jit, buffer)
    }

    /// [`Program::run_raw`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`Program::run_raw`], and [`Error::Interpret`] as for [`Program::run_with`].
    #[inline]
    pub fn run_raw_with(&self, engine: Engine, buffer: &mut [u8]) -> Result<u64, Error> {
        self.run_raw_lending(engine, buffer, None)
    }

    #[inline]
    fn run_raw_lending(
        &self,
        engine: Engine,
        buffer: &mut [u8],
        state: Option<&RunState<'_>>,
    ) -> Result<u64, Error> {
        match self.input {
            Input::Buffer(Buffer { len, .. }) if len as usize != buffer.len() => {
                let given = format!("one of {} bytes", buffer.len());
                Err(self.wrong_input(format!("a buffer of {len} bytes"), given))
            }
            Input::Buffer(Buffer { aligned: true, .. })
                if !buffer.as_ptr().addr().is_multiple_of(ALIGNMENT) =>
            {
                self.run_on_copy(engine, buffer, state)
            }
            Input::Buffer(Buffer { len, .. }) => {
                // SAFETY: the buffer has the length that the program was verified for, begins where the program's
                // atomic operations are aligned, and is borrowed for the whole run.
                unsafe { self.call(Call::on_buffer(engine, buffer.as_mut_ptr() as u64, len).lending(state)) }
            }
            Input::Xdp | Input::Skb | Input::Netfilter => {
                Err(self.wrong_input("a packet".into(), "a buffer".into()))
            }
            Input::Context => {
                Err(self.wrong_input("a context (Program::run_context)".into(), "a buffer".into()))
            }
            Input::Host => Err(self.wrong_input(HOST.into(), "a buffer".into())),
            Input::Arguments => {
                Err(self.wrong_input("arguments (OpsMember::call)".into(), "a buffer".into()))
            }
            Input::Shown => Err(self.wrong_input(SHOWN.into(), "a buffer".into())),
            Input::Inside => Err(self.wrong_input(INSIDE.into(), "a buffer".into())),
        }
    }

    /// [`Program::run_raw_with`] on an aligned copy, which is then copied back.
    #[cold]
    fn run_on_copy(
        &self,
        engine: Engine,
        buffer: &mut [u8],
        state: Option<&RunState<'_>>,
    ) -> Result<u64, Error> {
        let mut copy = vec![0u8; buffer.len() + ALIGNMENT];
        let start = copy.as_ptr().align_offset(ALIGNMENT);
        let copy = &mut copy[start..start + buffer.len()];
        copy.copy_from_slice(buffer);
        let result = self.run_raw_lending(engine, copy, state);
        buffer.copy_from_slice(copy);
        result
    }

    /// The same program with a budget for each run of this handle, instead of the runtime's.
    ///
    /// # Errors
    ///
    /// [`Error::NoBudgets`] in a runtime without [`RuntimeBuilder::budget`](crate::RuntimeBuilder::budget).
    pub fn with_budget(&self, budget: Budget) -> Result<Self, Error> {
        self.check_charged()?;
        Ok(Self { budget: Some(Box::new(budget)), ..self.clone() })
    }

    /// Ends all runs of the program that are in progress, on any thread, at their next check: each returns
    /// [`Error::Interrupted`]. Does not wait for that. Runs that begin later are not affected. A run that a tail call
    /// led here counts as one of the program that the host ran.
    ///
    /// # Errors
    ///
    /// [`Error::NoBudgets`] in a runtime without [`RuntimeBuilder::budget`](crate::RuntimeBuilder::budget).
    pub fn interrupt(&self) -> Result<(), Error> {
        self.check_charged()?;
        self.image.interrupts.interrupt();
        Ok(())
    }

    fn check_charged(&self) -> Result<(), Error> {
        match self.shared.budget {
            Some(_) => Ok(()),
            None => Err(Error::NoBudgets { program: self.name().to_owned() }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.image.name()
    }

    /// Its type.
    #[inline]
    pub fn program_type(&self) -> &'static ProgramType {
        self.image.verified.program_type()
    }

    /// What the verifier proved and rewrote.
    pub fn verified(&self) -> &Verified {
        &self.image.verified
    }

    /// Its machine code.
    pub fn compiled(&self) -> &Compiled {
        &self.image.compiled
    }

    /// Its machine code for any architecture's newest processors, for inspection. Addresses of helpers and maps are
    /// those of this process.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] if that backend does not support an instruction.
    pub fn emit(&self, target: skep_jit::Target) -> Result<skep_jit::Emitted, Error> {
        let shared = &self.shared;
        skep_jit::emit(&self.image.verified, &self.image.linkage, shared.jit, target, shared.arena.range())
            .map_err(|source| Error::Compile { program: self.name().to_owned(), source })
    }

    /// The time that loading it took.
    pub fn load_times(&self) -> LoadTimes {
        let image = &self.image;
        LoadTimes {
            link: image.link_time,
            verify: Duration::from_nanos(image.verified.stats().nanoseconds),
            jit: image.jit_time,
            install: image.compiled.install_time(),
        }
    }

    /// Its runs while [statistics were on](crate::Runtime::enable_stats), since the last
    /// [reset](Self::reset_stats). Clones of a program are one program. Sums up the counters of all virtual CPUs.
    pub fn stats(&self) -> RunStats {
        self.image.counted.stats()
    }

    /// Counts runs from 0 again. Runs in progress count afterwards. A client of bpf(2) sees the same counters.
    pub fn reset_stats(&self) {
        self.image.counted.reset();
    }

    /// Refuses programs that run inside of others only.
    pub(crate) fn check_runs_alone(&self) -> Result<(), Error> {
        if self.input != Input::Inside {
            return Ok(());
        }
        let expected = "programs that a host runs".to_owned();
        let given = "one that takes the place of a function of another program, or runs around it".to_owned();
        Err(Error::WrongAttachment { program: self.name().to_owned(), expected, given })
    }

    pub(crate) fn wrong_input(&self, expected: String, given: String) -> Error {
        let program_type = self.program_type().name;
        Error::WrongInput { program: self.name().to_owned(), program_type, expected, given }
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

/// What programs of type `iter` take.
const SHOWN: &str = "what an iterator shows (Program::iterate)";
/// What programs of a host's own types take.
const HOST: &str = "the host's own context (Module::typed)";
/// What runs an extension, or a program that watches a function.
const INSIDE: &str = "a run of the program that it is attached to (Program::attach)";

/// The state that functions of the host take, which the program calls.
fn taken_state(shared: &Shared, program: &Verified) -> Result<Option<StateType>, Error> {
    let mut found: Option<StateType> = None;
    for (insn, fact) in program.insns().iter().zip(program.facts()) {
        let (Insn::Call { target: CallTarget::Helper(id) }, true) = (insn, fact.reached) else { continue };
        let Some(taken) = shared.helpers.get(id).and_then(|helper| helper.takes) else { continue };
        if let Some(first) = found.filter(|found| found.id() != taken.id()) {
            let program = program.name().to_owned();
            return Err(Error::StateTypes { program, first: first.name(), second: taken.name() });
        }
        found = Some(taken);
    }
    Ok(found)
}

/// Whether the instruction may take a lock: through a helper, or a tail-called program.
fn may_lock(insn: &Insn) -> bool {
    match insn {
        Insn::Call { target: CallTarget::Helper(helper) } => {
            matches!(*helper, helpers::lock::SPIN_LOCK | TAIL_CALL) || TIMERS.contains(helper)
        }
        Insn::Call { target: CallTarget::Kfunc { id, .. } } => skep_abi::own_kfunc(id.cast_unsigned())
            .is_some_and(|own| own.params.contains(&skep_abi::OwnParam::Work)),
        _ => false,
    }
}

/// The maps that a program names and that were created, by index.
fn named(program: &Verified, maps: &[Option<Arc<Map>>]) -> BTreeMap<u32, Arc<Map>> {
    let indices = program.insns().iter().filter_map(|insn| match insn {
        Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } => Some(*map),
        _ => None,
    });
    indices.filter_map(|index| Some((index, maps.get(index as usize)?.clone()?))).collect()
}

/// Whether an instruction can fault on an unaligned address.
fn is_atomic(insn: &Insn) -> bool {
    matches!(insn, Insn::Atomic { .. } | Insn::LoadAcquire { .. } | Insn::StoreRelease { .. })
}

/// The code, compiled again if it contains what opens guarded memory: where constants are hidden, they have other bytes
/// each time.
#[cfg(feature = "guard")]
fn without_openings(
    mut compiled: skep_jit::Compiled,
    compile: impl Fn() -> Result<skep_jit::Compiled, Error>,
    name: impl Fn() -> String,
) -> Result<skep_jit::Compiled, Error> {
    const ATTEMPTS: u32 = 8;
    let opens = |compiled: &skep_jit::Compiled| {
        let mut code = compiled.text().bytes();
        code.truncate(compiled.code_bytes());
        skep_guard::opens(&code)
    };
    for _ in 1..ATTEMPTS {
        if opens(&compiled).is_none() {
            break;
        }
        compiled = compile()?;
    }
    match opens(&compiled) {
        None => Ok(compiled),
        Some(offset) => Err(Error::OpensGuard { program: name(), offset }),
    }
}
