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

use super::argument::{Argument, Registers};
use super::errno::Errno;
use crate::run_state::{RunState, StateType};
use skep_abi::ArgKind;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The state of the run, which its caller lends ([`Program::with_state`](crate::Program::with_state)). Takes no
/// register.
///
/// Only functions that return a [`Result`] with [`Errno`] can take it:
///
/// - A program that calls such a function runs only with a state of this type: otherwise the run is an error before it
///   begins. This cannot be known of programs that it tail-calls and of those that replace or watch its functions;
///   there the function is not called, and the program gets [`Errno::ENXIO`].
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
        let env = registers.env();
        // SAFETY: the environment is that of the run in progress, and its state is null or lives as long as the run.
        let run = unsafe { RunState::of_run(env) };
        HeldState(match run.and_then(RunState::place::<T>) {
            None => Err(Errno::ENXIO),
            Some((_, lent)) if lent.replace(true) => Err(Errno::EBUSY),
            Some((value, lent)) => Ok((value, NonNull::from(lent))),
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
