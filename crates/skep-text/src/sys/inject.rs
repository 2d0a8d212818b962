//! Making system calls fail, in this crate's own tests.
//!
//! A plan belongs to the thread that made it and ends with its guard; other threads, other tests among them, go on
//! undisturbed. A call that is made to fail is not made at all.
//!
//! ```text
//! let plan = inject::fail_nth(3, Errno::NOMEM);      the fourth call from now on fails with ENOMEM
//! let result = ..;
//! plan.failed()                                      the step whose call that was; None: there were not so many
//! plan.steps()                                       all steps that calls were made for, in order
//! ```

use std::cell::RefCell;

use rustix::io::Errno;

use crate::error::SystemCall;

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

struct Plan {
    which: Which,
    errno: Errno,
    made: Vec<SystemCall>,
    failed: Option<SystemCall>,
}

#[derive(Clone, Copy)]
enum Which {
    None,
    Nth(usize),
    All(SystemCall),
}

/// The plan of this thread, until it is dropped.
#[must_use]
pub(crate) struct Guard(());

/// Lets every call through, and counts them.
pub(crate) fn record() -> Guard {
    plan(Which::None, Errno::IO)
}

/// Lets the call number `nth`, counted from 0, fail with `errno`.
pub(crate) fn fail_nth(nth: usize, errno: Errno) -> Guard {
    plan(Which::Nth(nth), errno)
}

/// Lets every call made for `step` fail with `errno`.
pub(crate) fn fail_every(call: SystemCall, errno: Errno) -> Guard {
    plan(Which::All(call), errno)
}

/// How many calls the plan of this thread has counted; 0 where there is none.
pub(crate) fn calls_so_far() -> usize {
    PLAN.with_borrow(|plan| plan.as_ref().map_or(0, |plan| plan.made.len()))
}

impl Guard {
    /// How many calls were made or made to fail.
    pub(crate) fn calls(&self) -> usize {
        self.made().len()
    }

    /// What these calls were made for, in their order.
    pub(crate) fn made(&self) -> Vec<SystemCall> {
        PLAN.with_borrow(|plan| plan.as_ref().map_or(Vec::new(), |plan| plan.made.clone()))
    }

    /// The step whose call was made to fail first.
    pub(crate) fn failed(&self) -> Option<SystemCall> {
        PLAN.with_borrow(|plan| plan.as_ref().and_then(|plan| plan.failed))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        PLAN.set(None);
    }
}

fn plan(which: Which, errno: Errno) -> Guard {
    let before = PLAN.replace(Some(Plan { which, errno, made: Vec::new(), failed: None }));
    assert!(before.is_none(), "a thread has one plan at a time");
    Guard(())
}

/// Whether the call that is about to be made for `step` fails, and how.
pub(super) fn failure(call: SystemCall) -> Option<Errno> {
    PLAN.with_borrow_mut(|plan| {
        let plan = plan.as_mut()?;
        plan.made.push(call);
        let fails = match plan.which {
            Which::None => false,
            Which::Nth(nth) => nth + 1 == plan.made.len(),
            Which::All(which) => which == call,
        };
        if !fails {
            return None;
        }
        plan.failed.get_or_insert(call);
        Some(plan.errno)
    })
}
