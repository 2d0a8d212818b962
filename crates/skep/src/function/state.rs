//! State that the caller of a run lends to the functions that the run calls.
//!
//! ```text
//!   run_with_state(&mut packet, &mut state)      the caller's stack: RunState { type, address, lent }
//!       env.state ───────────────────────────────────^
//!       program ── call ──> f(state: State<T>)       sets lent, gives it back when it ends
//!                             └─ callback ── call ──> g(state: State<T>)    lent already: g is not called, EBUSY
//! ```
//!
//! Invariant: there is at most one `State` of a run at a time, and only while the run's caller has lent its `&mut T`.
//! Watchers, extensions and tail-called programs are part of the run. Those that a host starts inside of a function are
//! runs of their own.
//!
//! What would break it: a run on another thread with the same environment; a state of another type behind the address.

use super::argument::{Argument, Registers};
use super::errno::Errno;
use skep_abi::{ArgKind, RunEnv};
use std::any::{Any, TypeId, type_name};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The state of the run, which its caller lends ([`Program::with_state`](crate::Program::with_state)). Takes no register.
///
/// Only functions that return a [`Result`] with [`Errno`] can take it:
///
/// - A program that calls such a function runs only with a state of this type: otherwise the run is an error before it
///   begins. This cannot be known of programs that it tail-calls and of those that replace or watch its functions; there
///   the function is not called, and the program gets [`Errno::ENXIO`].
/// - A function that has the state may call back into the program ([`Callback`](super::Callback)). If the program then
///   calls a function that takes the state, that one is not called, and the program gets [`Errno::EBUSY`]. Dropping the
///   state first avoids that.
///
/// ```
/// use skep::function::{Errno, State};
/// use skep::{Object, Runtime};
///
/// struct Budget { left: u64 }
///
/// fn spend(mut budget: State<'_, Budget>, amount: u32) -> Result<(), Errno> {
///     budget.left = budget.left.checked_sub(amount.into()).ok_or(Errno::ENOSPC)?;
///     Ok(())
/// }
///
/// let runtime = Runtime::builder().function(1000, "spend", spend).build()?;
/// let insns = skep::isa::assemble("r1 = 30\ncall spend#1000\nexit").expect("the text is right");
/// let object = Object::from_insns("spending", &skep::abi::RAW, insns);
/// let module = runtime.linker(&object).buffer_len(4).load()?;
/// let program = &module.programs()[0];
///
/// let mut budget = Budget { left: 40 };
/// assert_eq!(program.run_raw_with_state(&mut [0; 4], &mut budget)?, 0);
/// assert_eq!(program.run_raw_with_state(&mut [0; 4], &mut budget)? as i64, -28); // ENOSPC
/// assert_eq!(budget.left, 10);
/// assert!(program.run_raw(&mut [0; 4]).is_err(), "this run has no budget");
/// # Ok::<(), skep::Error>(())
/// ```
///
/// A function that cannot fail cannot take it:
///
/// ```compile_fail
/// # use skep::function::State;
/// let _ = skep::Runtime::builder().function(1000, "f", |_: State<'_, u32>| -> u32 { 1 });
/// ```
///
/// and a run has one state only:
///
/// ```compile_fail
/// # use skep::function::{Errno, State};
/// fn two(_: State<'_, u32>, _: State<'_, u64>) -> Result<(), Errno> { Ok(()) }
/// let _ = skep::Runtime::builder().function(1000, "two", two);
/// ```
pub struct State<'a, T> {
    value: NonNull<T>,
    lent: &'a Cell<bool>,
    /// The caller of the run lends it for this long at least.
    borrow: PhantomData<&'a mut T>,
}

/// A type of state.
#[derive(Clone, Copy)]
pub struct StateType {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
}

/// What a run knows of its state. Its address is [`RunEnv::state`].
pub(crate) struct RunState<'a> {
    of: StateType,
    value: NonNull<()>,
    /// Whether a function has it.
    lent: Cell<bool>,
    borrow: PhantomData<&'a mut ()>,
}

impl StateType {
    pub(super) const fn of<T: Any>() -> Self {
        Self { id: TypeId::of::<T>, name: type_name::<T> }
    }

    pub(crate) fn id(self) -> TypeId {
        (self.id)()
    }

    pub(crate) fn name(self) -> &'static str {
        (self.name)()
    }
}

impl<'a> RunState<'a> {
    pub(crate) fn new<T: Any>(state: &'a mut T) -> Self {
        let value = NonNull::from(state).cast();
        Self { of: StateType::of::<T>(), value, lent: Cell::new(false), borrow: PhantomData }
    }

    pub(crate) fn of(&self) -> StateType {
        self.of
    }
}

impl<T> Deref for State<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the run's caller lends a `T` for the whole run, and this is the only `State` of the run.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for State<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for State<'_, T> {
    fn drop(&mut self) {
        self.lent.set(false);
    }
}

impl<T: fmt::Debug> fmt::Debug for State<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&**self).finish()
    }
}

/// The state during a call, or why the function cannot have it.
#[derive(Debug)]
pub struct HeldState<T>(Result<(NonNull<T>, NonNull<Cell<bool>>), Errno>);

impl<T> Drop for HeldState<T> {
    fn drop(&mut self) {
        // Also if the function forgot its `State`.
        if let Ok((_, lent)) = self.0 {
            // SAFETY: the call in progress is of the run that lends it.
            unsafe { lent.as_ref() }.set(false);
        }
    }
}

// SAFETY: accesses what the run's caller lends, and no memory of the program.
unsafe impl<T: Any> Argument for State<'_, T> {
    type Lent<'a> = State<'a, T>;
    type Held = HeldState<T>;
    const KINDS: &'static [ArgKind] = &[];
    const STATE: Option<StateType> = Some(StateType::of::<T>());
    unsafe fn hold(registers: &mut Registers) -> HeldState<T> {
        let env: *mut RunEnv = registers.env();
        // SAFETY: the environment is that of the run in progress, and its state is null or lives as long as the run.
        let run = unsafe {
            std::ptr::with_exposed_provenance::<RunState<'_>>((*env).state as usize).as_ref()
        };
        HeldState(match run.filter(|run| run.of.id() == TypeId::of::<T>()) {
            None => Err(Errno::ENXIO),
            Some(run) if run.lent.replace(true) => Err(Errno::EBUSY),
            Some(run) => Ok((run.value.cast(), NonNull::from(&run.lent))),
        })
    }
    fn refuses(held: &HeldState<T>) -> Option<Errno> {
        held.0.as_ref().err().copied()
    }
    fn lend(held: &mut HeldState<T>) -> State<'_, T> {
        let Ok((value, lent)) = held.0 else { unreachable!("a refused function is not called") };
        // SAFETY: the run lends it for the time of the call, and the borrow of `held` ends with the call.
        State { value, lent: unsafe { lent.as_ref() }, borrow: PhantomData }
    }
}
