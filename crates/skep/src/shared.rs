//! What all programs of a runtime share while they run. Helpers find it through [`RunEnv::host`].

use crate::budget::Budget;
use crate::dispatch::{Connected, Dispatch, EntryHook, EntryKind, Watchers};
use crate::ending::{self, Ending, Interrupts, Reason};
use crate::error::{Error, Exhausted};
use crate::image::{Engine, Image};
use crate::machine_objects::MachineObjects;
use crate::observe::Observed;
use crate::registry::Registry;
use crate::run_state::StateType;
use crate::surroundings::Surroundings;
use crate::timers::Timers;
use skep_abi::{EndsLink, HelperFn, HelperProto, RunEnv, TAIL_CALL};
use skep_interp::Interpreter;
use skep_isa::{CallTarget, Insn};
use skep_maps::{Map, Policy};
use skep_rcu::Domain;
use skep_text::{Arena, Loads};
use skep_verifier::Verified;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// Receives what programs print: the program's name and the message without its line end.
pub(crate) type Log = dyn Fn(&str, &str) + Send + Sync;

/// What programs and helpers can reach while they run.
pub(crate) struct Shared {
    pub(crate) arena: Arena,
    /// How programs are compiled.
    pub(crate) jit: skep_jit::Options,
    pub(crate) domain: Domain,
    /// Who wants runs to be counted: bits of [`crate::registry`]. A run that begins at the same time may be counted or
    /// not.
    pub(crate) counts_runs: AtomicU8,
    pub(crate) observed: Observed,
    /// Everything that is loaded.
    pub(crate) registry: Registry,
    pub(crate) map_memory: u64,
    /// Whether maps are made for other processes to map.
    pub(crate) shares_maps: bool,
    /// The most instructions that the verifier walks for one program.
    pub(crate) max_walked: u64,
    /// Whether what programs execute is counted.
    pub(crate) coverage: bool,
    /// Whether addresses may leave all programs.
    pub(crate) privileged: bool,
    /// Whether addresses may leave no program.
    pub(crate) confined: bool,
    /// When freed elements of maps are reused.
    pub(crate) policy: Policy,
    /// Prototype and implementation by number.
    pub(crate) helpers: BTreeMap<u32, Helper>,
    /// What compiled code calls, for runs that do not end early and for those that may. Made for the first such
    /// program.
    pub(crate) calls: [OnceLock<Calls>; 2],
    /// Types of the host's own, and functions for their programs.
    pub(crate) hosts: crate::host::Registered,
    /// Whether the numbers are Linux's, so that the compiler may inline some of them.
    pub(crate) linux_numbers: bool,
    /// The targets of tail calls.
    pub(crate) dispatch: Arc<Dispatch>,
    /// Probe loads for the interpreter; made for the first program that has one.
    pub(crate) loads: OnceLock<Arc<Loads>>,
    pub(crate) log: Box<Log>,
    /// What programs see of a machine.
    pub(crate) surroundings: Arc<Surroundings>,
    /// Times that programs see are multiples of this many nanoseconds; 0 for as they are.
    pub(crate) granularity: u64,
    pub(crate) machine_objects: Arc<MachineObjects>,
    pub(crate) timers: Arc<Timers>,
    /// Runs close the host's guarded memory.
    #[cfg(feature = "guard")]
    pub(crate) guards: bool,
    /// Who must have signed what is loaded.
    #[cfg(feature = "signatures")]
    pub(crate) signers: Option<Box<dyn crate::signature::Keys>>,
    /// The budget of a run for which the host gives none; programs are charged if there is one.
    pub(crate) budget: Option<Budget>,
    /// Of all runs.
    pub(crate) interrupts: Interrupts,
    /// Programs of redirection targets, by number. A leaf.
    pub(crate) target_programs: Mutex<TargetPrograms>,
}

/// The programs that elements of maps of devices and CPUs name.
#[derive(Default)]
pub(crate) struct TargetPrograms {
    pub(crate) known: BTreeMap<u32, Weak<Connected>>,
    /// The last number that was given out.
    last: u32,
}

/// What compiled code of a runtime's programs calls, by number, as [`Linkage`](skep_abi::Linkage) has it.
pub(crate) struct Calls {
    pub(crate) helpers: Arc<[(u32, HelperFn)]>,
    pub(crate) functions: Arc<[(u32, HelperFn)]>,
}

pub(crate) struct Helper {
    pub(crate) proto: HelperProto,
    /// `None` if the prototype is known but there is no implementation.
    pub(crate) call: Option<HelperFn>,
    /// Whether it is a function of the host, whose panics end the run.
    pub(crate) may_panic: bool,
    /// What the implementation owns. Its address is noted before each call if it has bytes.
    pub(crate) owned: Option<Arc<dyn Any + Send + Sync>>,
    /// The state of the run that it takes.
    pub(crate) takes: Option<StateType>,
    /// Whether it is the host's.
    pub(crate) of_host: bool,
}

impl Helper {
    /// One of this crate's own.
    pub(crate) fn provided(proto: &HelperProto, call: HelperFn) -> Self {
        Self {
            proto: proto.clone(),
            call: Some(call),
            owned: None,
            takes: None,
            of_host: false,
            may_panic: false,
        }
    }

    /// What engines note before each call.
    pub(crate) fn noted(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.owned.clone().filter(|owned| size_of_val(&**owned) > 0)
    }
}

impl Shared {
    /// The runtime of a run.
    ///
    /// # Safety
    ///
    /// `env` is the environment of the run in progress, which a program made.
    pub(crate) unsafe fn of_run<'a>(env: *mut RunEnv) -> &'a Self {
        // SAFETY: the caller's promise; the runtime outlives the run.
        unsafe { &*((*env).host as *const Self) }
    }

    /// The time in nanoseconds, for all helpers.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.surroundings.clock.now()
    }

    /// A time in nanoseconds as programs may see it. Times that grow stay in order.
    #[inline]
    pub(crate) fn shown(&self, time: u64) -> u64 {
        if self.granularity == 0 { time } else { time - time % self.granularity }
    }

    pub(crate) fn target_programs(&self) -> MutexGuard<'_, TargetPrograms> {
        self.target_programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a program, which it keeps; never 0.
    pub(crate) fn add_target_program(&self, program: &Arc<Connected>) -> u32 {
        let mut programs = self.target_programs();
        programs.known.retain(|_, program| program.strong_count() > 0);
        let mut known = programs.known.iter();
        if let Some((number, _)) = known.find(|(_, known)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(program)))
        {
            return *number;
        }
        // An element may still have the number of a program that is gone, so each number is used once.
        let number = programs.last.saturating_add(1);
        programs.last = number;
        programs.known.insert(number, Arc::downgrade(program));
        number
    }

    /// Passes a message on; fails if the log panics.
    pub(crate) fn log(&self, program: &str, message: &str) -> std::thread::Result<()> {
        // Unwind safety: what the log can reach is the host's own.
        catch_unwind(AssertUnwindSafe(|| (self.log)(program, message)))
    }

    /// How runs of the programs of one load end early, if they do.
    ///
    /// Without budgets only those that may call a function of the host, and those that may run another program inside
    /// of one of their functions, by a tail call or in its place: they look for the end of that one.
    pub(crate) fn ends<'p>(
        &self,
        programs: impl IntoIterator<Item = &'p Verified>,
        patchable: bool,
    ) -> Option<EndsLink> {
        let host = |id: u32| self.helpers.get(&id).is_some_and(|helper| helper.may_panic);
        if self.budget.is_none() {
            if !self.helpers.values().any(|helper| helper.may_panic) {
                return None;
            }
            let ends = |insn: &Insn| {
                let Insn::Call { target: CallTarget::Helper(id) } = *insn else { return false };
                host(id) || (self.linux_numbers && id == TAIL_CALL)
            };
            if !patchable && !programs.into_iter().any(|program| program.insns().iter().any(ends)) {
                return None;
            }
        }
        let over = self.helpers.values().filter(|helper| helper.may_panic || helper.proto.calls_back());
        Some(EndsLink {
            after: over.map(|helper| helper.proto.id).collect(),
            charge: self.budget.map(|_| ending::poll as HelperFn),
        })
    }

    /// What is to be known of the end of a run of this program, if that may be early.
    pub(crate) fn ending<'a>(&'a self, image: &'a Image, budget: Option<Budget>) -> Option<Ending<'a>> {
        if !image.ends {
            return None;
        }
        let budget = budget.or(self.budget).unwrap_or(Budget::UNLIMITED);
        Some(Ending::new(budget, self.budget.is_some(), [&self.interrupts, &image.interrupts]))
    }

    /// What a run that has returned leaves. Fails if it ended early; then everything that it held is released.
    ///
    /// # Safety
    ///
    /// As for [`ending::finish`]; `image` is the program that the run began with.
    pub(crate) unsafe fn finish(
        &self,
        image: &Image,
        env: &mut RunEnv,
        ending: Option<&mut Ending<'_>>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let reason = unsafe { ending::finish(env, ending) };
        if env.sections > 0 {
            self.leave_sections(env);
        }
        let program = || image.name().to_owned();
        Err(match reason {
            None => return Ok(()),
            Some(Reason::Units) => Error::BudgetExhausted { program: program(), of: Exhausted::Units },
            Some(Reason::Time) => Error::BudgetExhausted { program: program(), of: Exhausted::Time },
            Some(Reason::Interrupted) => Error::Interrupted { program: program() },
            Some(Reason::Panicked(function, message)) => {
                let function = function.map_or_else(|| "the log".to_owned(), |address| self.name_of(address));
                Error::HostPanicked { program: program(), function, message }
            }
        })
    }

    /// The same for a run of which no host waits for the result: the log gets the error.
    ///
    /// # Safety
    ///
    /// As for [`Shared::finish`].
    pub(crate) unsafe fn finish_unseen(
        &self,
        image: &Image,
        env: &mut RunEnv,
        ending: Option<&mut Ending<'_>>,
    ) {
        // SAFETY: the caller's promise.
        if let Err(error) = unsafe { self.finish(image, env, ending) } {
            // If the log panics as well, nobody is left to tell.
            let _ = self.log(image.name(), &error.to_string());
        }
    }

    /// The name of the host's function behind that address.
    fn name_of(&self, address: usize) -> String {
        let is =
            |helper: &&Helper| helper.may_panic && helper.call.is_some_and(|call| call as usize == address);
        self.helpers
            .values()
            .find(is)
            .map_or_else(String::new, |helper| helper.proto.name.clone().into_owned())
    }

    /// Probe loads for the interpreter.
    pub(crate) fn loads(&self) -> Result<Arc<Loads>, Error> {
        if let Some(loads) = self.loads.get() {
            return Ok(Arc::clone(loads));
        }
        let made = Arc::new(self.arena.loads()?);
        // Another thread may have been first.
        Ok(Arc::clone(self.loads.get_or_init(|| made)))
    }

    /// The prototype of a helper, for the verifier.
    pub(crate) fn proto(&self, id: u32) -> Option<&HelperProto> {
        self.helpers.get(&id).map(|helper| &helper.proto)
    }

    /// A program as the interpreter takes it.
    #[cold]
    pub(crate) fn interpreter<'a>(&self, image: &'a Image) -> Result<&'a Interpreter, Error> {
        image.interpreter(|| self.loads(), find, enter)
    }

    /// Leaves sections that a run entered and did not leave. The verifier proved that every path leaves them.
    #[cold]
    pub(crate) fn leave_sections(&self, env: &RunEnv) {
        for _ in 0..env.sections {
            // SAFETY: the counted sections were entered without a guard, on this thread.
            unsafe { skep_rcu::raw::leave(&self.domain) };
        }
    }
}

/// For the interpreter: what happens instead of a function.
///
/// # Safety
///
/// As [`skep_interp::EnterFunction`]; the first argument is the address of the program's image.
unsafe fn enter(
    of: u64,
    function: usize,
    args: &[u64; 5],
    env: *mut RunEnv,
    body: &mut dyn FnMut() -> u64,
) -> Option<u64> {
    // SAFETY: the caller's promise: the run keeps its programs.
    let (image, shared) =
        unsafe { (&*std::ptr::with_exposed_provenance::<Image>(of as usize), Shared::of_run(env)) };
    // Acquire pairs with the Release of the change of the entry.
    let hook = image.entries.get(function)?.load(Ordering::Acquire).cast::<EntryHook>();
    // SAFETY: null, or a hook that waits for this run when it is replaced.
    match unsafe { &hook.as_ref()?.kind } {
        EntryKind::Extension(extension) => {
            // A compiled program can be interpreted: both engines refuse the same programs.
            let interpreter = shared.interpreter(extension).ok()?;
            // SAFETY: the extension fits the function, which is called with these arguments.
            Some(unsafe { interpreter.run_extension(*args, env) })
        }
        EntryKind::Watched(watchers) => {
            let count = usize::from(watchers.arguments);
            let mut words = [0; 7];
            words[0] = count as u64;
            words[1..6].copy_from_slice(args);
            // SAFETY: the words are as compiled code has them, and the run is in progress.
            unsafe {
                let first = words.as_mut_ptr().add(1);
                watch(&watchers.before, first, env, Engine::Interpreter);
                let result = body();
                *first.add(count) = result;
                watch(&watchers.after, first, env, Engine::Interpreter);
                Some(result)
            }
        }
    }
}

/// For compiled code: before a watched function.
///
/// # Safety
///
/// As [`skep_jit::WatchFn`]; `data` is the address of the hook's watchers.
pub(crate) unsafe extern "C" fn before(data: u64, words: *mut u64, env: *mut RunEnv) {
    // SAFETY: the caller's promise: a hook waits for the runs in its stub.
    unsafe {
        let watchers = &*std::ptr::with_exposed_provenance::<Watchers>(data as usize);
        watch(&watchers.before, words, without_count(env), Engine::Jit);
    }
}

/// For compiled code: after a watched function.
///
/// # Safety
///
/// As for [`before`].
pub(crate) unsafe extern "C" fn after(data: u64, words: *mut u64, env: *mut RunEnv) {
    // SAFETY: as in `before`.
    unsafe {
        let watchers = &*std::ptr::with_exposed_provenance::<Watchers>(data as usize);
        watch(&watchers.after, words, without_count(env), Engine::Jit);
    }
}

fn without_count(env: *mut RunEnv) -> *mut RunEnv {
    env.map_addr(|address| address & !(RunEnv::ALIGN - 1))
}

/// Runs the programs that watch a function. Each gets an environment of its own: it is no part of the run around it.
///
/// # Safety
///
/// `words` are the arguments, and the result if there is one, with their number before them; `env` is the environment
/// of the run in progress.
unsafe fn watch(programs: &[Arc<Connected>], words: *mut u64, env: *mut RunEnv, engine: Engine) {
    // SAFETY: the caller's promise.
    let (cpu, thrown, state, shared) =
        unsafe { ((*env).cpu, (*env).thrown, (*env).state, Shared::of_run(env)) };
    // A function that an exception leaves does not return.
    if thrown != 0 {
        return;
    }
    for program in programs {
        let image: &Image = program;
        // Not ordered with anything, as in `Program::call`.
        let counts = shared.counts_runs.load(Ordering::Relaxed) != 0;
        if image.locks && skep_maps::lock::is_held() {
            if counts {
                image.counted.miss(cpu);
            }
            continue;
        }
        let context = words.expose_provenance() as u64;
        let mut own = RunEnv {
            context,
            host: std::ptr::from_ref(shared) as u64,
            program: std::ptr::from_ref(image) as u64,
            cpu,
            state,
            ..RunEnv::default()
        };
        let started = counts.then(Instant::now);
        let mut ending = shared.ending(image, None);
        if let Some(ending) = &mut ending {
            ending.attach(&mut own);
        }
        // SAFETY: the program was verified for this number of words. The run around it keeps the hook, and it the
        // program; it is in a read section.
        unsafe {
            match engine {
                Engine::Jit => drop(image.entry.call(context, 0, &mut own)),
                Engine::Interpreter => {
                    if let Ok(interpreter) = shared.interpreter(image) {
                        interpreter.run(context, 0, &mut own);
                    }
                }
            }
        }
        // SAFETY: the run has returned.
        unsafe { shared.finish_unseen(image, &mut own, ending.as_mut()) };
        if let Some(started) = started {
            image.counted.add(cpu, started.elapsed());
        }
    }
}

/// For the interpreter: the target of a tail call.
///
/// # Safety
///
/// As [`skep_interp::FindProgram`]; the environment is that of a run of this crate's.
unsafe fn find(map: u64, index: u32, env: *mut RunEnv) -> Option<NonNull<Interpreter>> {
    // SAFETY: the caller's promise; a map's handle is its address, and the host of a run its runtime.
    let (map, shared) = unsafe {
        let map = std::ptr::with_exposed_provenance::<Map>(map as usize);
        (&*map, Shared::of_run(env))
    };
    let program = shared.dispatch.program_at(map, index)?;
    // A compiled program can be interpreted: both engines refuse the same programs.
    let interpreter = shared.interpreter(&program);
    debug_assert!(interpreter.is_ok());
    // When it is removed from the element, it is dropped after a grace period, which waits for this run.
    interpreter.ok().map(NonNull::from)
}
