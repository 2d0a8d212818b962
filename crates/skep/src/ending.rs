//! How a run ends before its program does: out of budget, interrupted by another thread, or by a panic in a function of
//! the host.
//!
//! ```text
//!   begin: RunEnv::ending = address of an Ending, RunEnv::units = the first slice of the budget
//!     compiled code, the interpreter: units -= weight; below 0: poll ----> the next slice, or over
//!     a function of the host panics: panicked -------------------------> over
//!     helpers that acquire and release: the ledger
//!   end:   over: the ledger's contents are released; the reason becomes an error
//! ```
//!
//! *Over* is [`RunEnv::ENDED`] in [`RunEnv::thrown`]. It is set only where the code that runs looks at it: by `poll` in
//! runtimes whose programs are charged, and by functions of the host in programs that call some. If it were set
//! elsewhere, code with exceptions would take it for one, and run an exception callback with locks held.
//!
//! The verifier proves for each path what it holds, not for each place where many paths meet. So what a run holds is
//! written down while it runs, by the helpers that acquire and release; helpers without a ledger are used where no run
//! can end early.

mod ledger;

pub(crate) use ledger::{Held, Release};

use crate::budget::Budget;
use ledger::Ledger;
use skep_abi::{HelperFn, RunEnv};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Units between two looks at the clock and at interruptions.
const SLICE: u64 = 1 << 14;

/// Why a run ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Its units are used up.
    Units,
    /// Its time is.
    Time,
    /// Another thread ended it.
    Interrupted,
    /// A function of the host panicked: its address, or `None` for the log; the message.
    Panicked(Option<usize>, String),
}

/// How often something was interrupted. A run remembers the number at its beginning.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(AtomicU64);

impl Interrupts {
    /// Interrupts the runs in progress.
    pub(crate) fn interrupt(&self) {
        // Release: pairs with the Acquire in `now`, so that the thread of an interrupted run sees what the host did
        // before.
        self.0.fetch_add(1, Ordering::Release);
    }

    fn now(&self) -> u64 {
        // Acquire: pairs with the Release in `interrupt`.
        self.0.load(Ordering::Acquire)
    }
}

/// What is known of the end of one run. Helpers find it through [`RunEnv::ending`].
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    /// Units that no slice has had.
    left: u64,
    deadline: Option<Instant>,
    /// The interruptions that it looks at, and their numbers at its beginning.
    interrupts: [Option<(&'a Interrupts, u64)>; 2],
    /// Whether all code that it can reach asks [`poll`] and looks at the answer.
    charged: bool,
    reason: Option<Reason>,
    ledger: Ledger,
}

impl<'a> Ending<'a> {
    /// Of a run that begins now. Only `charged` programs have budgets.
    pub(crate) fn new(budget: Budget, charged: bool, interrupts: [&'a Interrupts; 2]) -> Self {
        Self {
            left: budget.most_units().unwrap_or(u64::MAX),
            deadline: budget.most_time().and_then(|time| Instant::now().checked_add(time)),
            interrupts: interrupts.map(|of| charged.then(|| (of, of.now()))),
            charged,
            reason: None,
            ledger: Ledger::default(),
        }
    }

    /// Puts it into a run's environment, which must not outlive it.
    pub(crate) fn attach(&mut self, env: &mut RunEnv) {
        env.units = self.slice();
        env.ending = (&raw mut *self).expose_provenance() as u64;
    }

    /// Of the run in progress, if it may end early.
    ///
    /// # Safety
    ///
    /// `env` is the environment of the run in progress, and no other reference to its ending is in use.
    unsafe fn of_run<'b>(env: *mut RunEnv) -> Option<&'b mut Self> {
        // SAFETY: the caller's promise; `attach` and `of_log` stored the address of something that outlives the run.
        unsafe { std::ptr::with_exposed_provenance_mut::<Self>((*env).ending as usize).as_mut() }
    }

    /// The next slice of the budget.
    fn slice(&mut self) -> i32 {
        let slice = self.left.min(SLICE);
        self.left -= slice;
        slice as i32
    }

    /// Why it does not go on, except for its units.
    fn stopped(&self) -> Option<Reason> {
        if self.interrupts.iter().flatten().any(|(of, before)| of.now() != *before) {
            return Some(Reason::Interrupted);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then_some(Reason::Time)
    }
}

/// What a run that has returned leaves: releases what it holds if it is over. Returns why it ended early.
///
/// # Safety
///
/// The run with this environment has returned on this thread, which is still in the run's section; `ending` is what was
/// attached to it, if anything was.
pub(crate) unsafe fn finish(env: &mut RunEnv, ending: Option<&mut Ending<'_>>) -> Option<Reason> {
    let Some(ending) = ending else {
        if env.ending == 0 {
            return None;
        }
        // SAFETY: nothing was attached, so this is the box of `log_panicked`.
        let of_log = unsafe {
            Box::from_raw(std::ptr::with_exposed_provenance_mut::<Ending<'_>>(env.ending as usize))
        };
        env.ending = 0;
        return of_log.reason;
    };
    env.ending = 0;
    if env.thrown == RunEnv::ENDED {
        // SAFETY: the caller's promise: the program holds what is in the ledger, and will not use it again.
        unsafe { ending.ledger.release(env.cpu) };
    }
    debug_assert!(ending.ledger.is_empty(), "the program released everything, as the verifier proved");
    ending.reason.take()
}

/// [`skep_abi::EndsLink::charge`]: the next slice of the budget, or the end.
///
/// # Safety
///
/// As for all helpers: `env` is the environment of the run in progress.
pub(crate) unsafe extern "C" fn poll(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise; engines and helpers have no reference to the ending.
    let Some(ending) = unsafe { Ending::of_run(env) }.filter(|ending| ending.charged) else {
        // SAFETY: as above.
        unsafe { (*env).units = i32::MAX };
        return 0;
    };
    if ending.reason.is_none() {
        ending.reason = ending.stopped();
    }
    // SAFETY: as above.
    unsafe {
        while ending.reason.is_none() && (*env).units < 0 {
            match ending.slice() {
                0 => ending.reason = Some(Reason::Units),
                slice => (*env).units += slice,
            }
        }
        if ending.reason.is_none() {
            return 0;
        }
        (*env).thrown = RunEnv::ENDED;
    }
    1
}

/// Charges a call of a function of the program by a helper. Returns whether the run is over.
///
/// # Safety
///
/// As for [`poll`].
#[inline]
pub(crate) unsafe fn charge_callback(env: *mut RunEnv) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if (*env).ending == 0 {
            return false;
        }
        (*env).units = (*env).units.wrapping_sub(Budget::CALLBACK as i32);
        (*env).thrown == RunEnv::ENDED || ((*env).units < 0 && poll(0, 0, 0, 0, 0, env) != 0)
    }
}

/// Calls a function of the host on behalf of a program. If it panics, the run is over when the caller, whose address is
/// `shim`, has returned; it returns `None`.
///
/// # Safety
///
/// As for [`poll`]; the code that runs looks at [`RunEnv::thrown`] after this call, if the run can end at all.
pub(crate) unsafe fn guard<R>(shim: HelperFn, env: *mut RunEnv, call: impl FnOnce() -> R) -> Option<R> {
    // Unwind safety: the program does not run again, and what else the function can reach is the host's own.
    let payload = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => return Some(result),
        Err(payload) => payload,
    };
    // SAFETY: the caller's promise.
    match unsafe { Ending::of_run(env) } {
        Some(ending) => {
            ending.reason.get_or_insert(Reason::Panicked(Some(shim as usize), message(payload)));
            // SAFETY: as above.
            unsafe { (*env).thrown = RunEnv::ENDED };
            None
        }
        // No run that the runtime knows: the process ends, since frames of programs cannot be unwound.
        None => std::panic::resume_unwind(payload),
    }
}

/// The log panicked. The run ends at its next charge, or where the program does.
///
/// # Safety
///
/// As for [`poll`].
pub(crate) unsafe fn log_panicked(payload: Box<dyn Any + Send>, env: *mut RunEnv) {
    let reason = Reason::Panicked(None, message(payload));
    // SAFETY: the caller's promise.
    unsafe {
        match Ending::of_run(env) {
            Some(ending) => {
                ending.reason.get_or_insert(reason);
                (*env).units = 0;
            }
            None => {
                static NOBODY: Interrupts = Interrupts(AtomicU64::new(0));
                let mut ending = Ending::new(Budget::UNLIMITED, false, [&NOBODY; 2]);
                ending.reason = Some(reason);
                (*env).ending = Box::into_raw(Box::new(ending)).expose_provenance() as u64;
            }
        }
    }
}

/// The program has acquired something.
///
/// # Safety
///
/// As for [`poll`]; the program holds it until [`forget`] is called.
#[inline]
pub(crate) unsafe fn record(held: Held, env: *mut RunEnv) {
    // SAFETY: the caller's promise.
    if let Some(ending) = unsafe { Ending::of_run(env) } {
        ending.ledger.record(held);
    }
}

/// The program releases something, or gives it away.
///
/// # Safety
///
/// As for [`poll`].
#[inline]
pub(crate) unsafe fn forget(what: u64, env: *mut RunEnv) {
    // SAFETY: the caller's promise.
    if let Some(ending) = unsafe { Ending::of_run(env) } {
        ending.ledger.forget(what);
    }
}

/// What a panic says.
fn message(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast::<&'static str>() {
        Ok(text) => return (*text).to_owned(),
        Err(payload) => payload.downcast::<String>(),
    };
    match text {
        Ok(text) => *text,
        Err(other) => {
            // Its destructor may panic, too.
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(other))) {
                std::mem::forget(another);
            }
            "a panic without a message".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_to_the_last_unit_whatever_its_slices() {
        for budget in [0, 1, 7, SLICE - 1, SLICE, SLICE + 1, 3 * SLICE + 5] {
            for weight in [1, 3, 4095] {
                let interrupts = [&Interrupts::default(), &Interrupts::default()];
                let mut ending = Ending::new(Budget::units(budget), true, interrupts);
                let mut env = RunEnv::default();
                ending.attach(&mut env);
                let mut used = 0;
                loop {
                    env.units -= weight as i32;
                    // SAFETY: the environment is this test's own.
                    if env.units < 0 && unsafe { poll(0, 0, 0, 0, 0, &raw mut env) } != 0 {
                        break;
                    }
                    used += weight;
                }
                assert_eq!(used, budget / weight * weight, "{budget} by {weight}");
                // SAFETY: as above.
                assert_eq!(unsafe { finish(&mut env, Some(&mut ending)) }, Some(Reason::Units));
            }
        }
    }

    #[test]
    fn panics_without_text_and_with_destructors_that_panic_have_a_message() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("again");
            }
        }
        assert_eq!(message(Box::new("text")), "text");
        assert_eq!(message(Box::new("text".to_owned())), "text");
        assert_eq!(message(Box::new(7)), "a panic without a message");
        assert_eq!(message(Box::new(Bomb)), "a panic without a message");
    }
}
