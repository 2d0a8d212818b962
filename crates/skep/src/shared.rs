//! What all programs of a runtime share while they run. Helpers find it through [`RunEnv::host`].

use crate::dispatch::{Connected, Dispatch};
use crate::error::Error;
use crate::image::Image;
use crate::machine_objects::MachineObjects;
use crate::surroundings::Surroundings;
use crate::timers::Timers;
use skep_abi::{HelperFn, HelperProto, RunEnv};
use skep_interp::Interpreter;
use skep_maps::{Map, Policy};
use skep_rcu::Domain;
use skep_text::{Arena, Loads};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Receives what programs print: the program's name and the message without its line end.
pub(crate) type Log = dyn Fn(&str, &str) + Send + Sync;

/// What programs and helpers can reach while they run.
pub(crate) struct Shared {
    pub(crate) arena: Arena,
    /// How programs are compiled.
    pub(crate) jit: skep_jit::Options,
    pub(crate) domain: Domain,
    /// Whether runs are counted. Alone: a run that begins at the same time may be counted or not.
    pub(crate) counts_runs: AtomicBool,
    pub(crate) map_memory: u64,
    /// Whether maps are made for other processes to map.
    pub(crate) shares_maps: bool,
    /// The most instructions that the verifier walks for one program.
    pub(crate) max_walked: u64,
    /// Whether addresses may leave all programs.
    pub(crate) privileged: bool,
    /// When freed elements of maps are reused.
    pub(crate) policy: Policy,
    /// Prototype and implementation by number.
    pub(crate) helpers: BTreeMap<u32, Helper>,
    /// Whether the numbers are Linux's, so that the compiler may inline some of them.
    pub(crate) linux_numbers: bool,
    /// The targets of tail calls.
    pub(crate) dispatch: Arc<Dispatch>,
    /// Probe loads for the interpreter; made for the first program that has one.
    pub(crate) loads: OnceLock<Arc<Loads>>,
    pub(crate) log: Box<Log>,
    /// What programs see of a machine.
    pub(crate) surroundings: Arc<Surroundings>,
    pub(crate) machine_objects: Arc<MachineObjects>,
    pub(crate) timers: Arc<Timers>,
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

pub(crate) struct Helper {
    pub(crate) proto: HelperProto,
    /// `None` if the prototype is known but there is no implementation.
    pub(crate) call: Option<HelperFn>,
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

    pub(crate) fn log(&self, program: &str, message: &str) {
        (self.log)(program, message);
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
        image.interpreter(|| self.loads(), find)
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
