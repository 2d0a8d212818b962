//! Making system calls fail, in this crate's own tests.
//!
//! A plan belongs to the thread that made it and ends with its guard; other threads, such as those of other tests,
//! are not affected. A call that is to fail is not made at all.
//!
//! ```text
//! let plan = inject::fail_nth(3, Errno::NOMEM);      the fourth call from now on fails with ENOMEM
//! let result = ..;
//! plan.failed()                                      the call that failed; None if there were fewer calls
//! plan.made()                                        all calls, in order
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

/// The plan of this thread is in force until this is dropped.
#[must_use]
pub(crate) struct Guard(());

/// Lets every call succeed, and records them.
pub(crate) fn record() -> Guard {
    plan(Which::None, Errno::IO)
}

/// Makes call number `nth`, counted from 0, fail with `errno`.
pub(crate) fn fail_nth(nth: usize, errno: Errno) -> Guard {
    plan(Which::Nth(nth), errno)
}

/// Makes every call with the purpose `call` fail with `errno`.
pub(crate) fn fail_every(call: SystemCall, errno: Errno) -> Guard {
    plan(Which::All(call), errno)
}

/// How many calls the plan of this thread has counted; 0 without a plan.
pub(crate) fn calls_so_far() -> usize {
    PLAN.with_borrow(|plan| plan.as_ref().map_or(0, |plan| plan.made.len()))
}

impl Guard {
    /// How many calls were made or made to fail.
    pub(crate) fn calls(&self) -> usize {
        self.made().len()
    }

    /// These calls, in order.
    pub(crate) fn made(&self) -> Vec<SystemCall> {
        PLAN.with_borrow(|plan| plan.as_ref().map_or(Vec::new(), |plan| plan.made.clone()))
    }

    /// The first call that was made to fail.
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

/// The error number with which `call` must fail, if it must.
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
