//! Models of the keeper's sleep and of those who wait for it. A lost wake-up is a deadlock, which loom finds.

use std::mem::ManuallyDrop;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::barrier::Barrier;
use crate::model::{begin, model, must_fail};
use crate::readers::{FENCED, Readers};

const NOTHING: [bool; GRACES.len()] = [false; GRACES.len()];

/// Takes until it has had `count` pieces of work, sleeping by `park` in between.
fn keep(inbox: &Inbox, count: usize, park: impl Fn(&Inbox)) {
    let mut had = 0;
    while had < count {
        let mut fresh = Fresh::default();
        if inbox.take(&mut fresh).any {
            had += fresh.soon.len() + fresh.after.iter().map(Vec::len).sum::<usize>();
        } else {
            park(inbox);
        }
    }
}

fn two_callers(park: impl Fn(&Inbox) + Copy + Send + Sync + 'static) -> impl Fn() + Send + Sync + 'static {
    move || {
        // Where loom finds a deadlock it panics in whichever thread it is; dropping a handle then would panic again.
        let inbox = ManuallyDrop::new(Arc::new(Inbox::new(Mode::Keeper)));
        let callers = [(1, Queue::Soon), (2, Queue::After(0))].map(|(number, queue)| {
            let inbox = ManuallyDrop::new(Arc::clone(&inbox));
            thread::spawn(move || {
                begin(number);
                inbox.push(queue, Box::new(|| ()));
                drop(ManuallyDrop::into_inner(inbox));
            })
        });
        begin(0);
        keep(&inbox, 2, park);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        drop(ManuallyDrop::into_inner(inbox));
    }
}

#[test]
fn loom_no_wake_up_is_lost() {
    model(two_callers(|inbox| {
        inbox.park(None, NOTHING);
    }));
}

#[test]
fn loom_no_poll_request_is_lost() {
    model(|| {
        let inbox = ManuallyDrop::new(Arc::new(Inbox::new(Mode::Keeper)));
        let requesters = [1, 2].map(|number| {
            let inbox = ManuallyDrop::new(Arc::clone(&inbox));
            thread::spawn(move || {
                begin(number);
                inbox.request_poll();
                drop(ManuallyDrop::into_inner(inbox));
            })
        });
        begin(0);
        // One kick may stand for both, but none may be lost.
        while !inbox.take_poll_requests() {
            inbox.park(None, NOTHING);
        }
        requesters.into_iter().for_each(|requesters| requesters.join().unwrap());
        drop(ManuallyDrop::into_inner(inbox));
    });
}

#[test]
fn loom_work_that_came_while_its_kind_was_held_up_is_taken_when_it_no_longer_is() {
    model(|| {
        let inbox = ManuallyDrop::new(Arc::new(Inbox::new(Mode::Keeper)));
        inbox.lock().held_up = [true, false, false];
        let caller = {
            let inbox = ManuallyDrop::new(Arc::clone(&inbox));
            thread::spawn(move || {
                begin(1);
                inbox.push(Queue::After(0), Box::new(|| ()));
                drop(ManuallyDrop::into_inner(inbox));
            })
        };
        begin(0);
        keep(&inbox, 1, |inbox| {
            inbox.park(None, NOTHING);
        });
        caller.join().unwrap();
        drop(ManuallyDrop::into_inner(inbox));
    });
}

#[test]
fn loom_finds_the_fault_in_a_keeper_that_looks_and_then_goes_to_sleep() {
    must_fail(
        "deadlock",
        two_callers(|inbox| {
            if inbox.has_news() {
                return;
            }
            let seen = inbox.work.now();
            inbox.lock().parked = true;
            inbox.work.wait(seen, None);
        }),
    );
}

/// A keeper that lives as long as the domain, whose last handle queues something and goes. `live` is the keeper's
/// life and returns how many pieces of work it has had.
fn last_handle(
    live: impl Fn(&Inbox, &Readers) -> usize + Copy + Send + Sync + 'static,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new((Inbox::new(Mode::Keeper), Readers::new(1, Barrier::Fences)));
        let shared = ManuallyDrop::new(shared);
        let host = {
            let shared = ManuallyDrop::new(Arc::clone(&shared));
            thread::spawn(move || {
                begin(1);
                let (inbox, readers) = &**shared;
                inbox.push(Queue::Soon, Box::new(|| ()));
                readers.close();
                inbox.close();
                drop(ManuallyDrop::into_inner(shared));
            })
        };
        begin(0);
        assert_eq!(live(&shared.0, &shared.1), 1, "work is left behind");
        host.join().unwrap();
        drop(ManuallyDrop::into_inner(shared));
    }
}

#[test]
fn loom_the_keeper_ends_with_the_last_handle_when_all_has_run() {
    model(last_handle(|inbox, _| {
        let mut had = 0;
        loop {
            let mut fresh = Fresh::default();
            let taken = inbox.take(&mut fresh);
            had += fresh.soon.len();
            match taken {
                Taken { any: true, .. } => {}
                Taken { last: true, .. } => return had,
                Taken { .. } => drop(inbox.park(None, NOTHING)),
            }
        }
    }));
}

#[test]
fn loom_finds_the_fault_in_a_keeper_that_asks_before_it_takes_whether_the_last_handle_is_gone() {
    must_fail(
        "deadlock",
        last_handle(|inbox, readers| {
            let mut had = 0;
            loop {
                let closed = readers.is_closed();
                let mut fresh = Fresh::default();
                let taken = inbox.take(&mut fresh);
                had += fresh.soon.len();
                match (taken.any, closed) {
                    (true, _) => {}
                    (false, true) => return had,
                    (false, false) => drop(inbox.park(None, NOTHING)),
                }
            }
        }),
    );
}

#[test]
fn loom_finds_the_fault_in_a_keeper_that_asks_only_after_it_has_taken() {
    must_fail(
        "work is left behind",
        last_handle(|inbox, readers| {
            let mut had = 0;
            loop {
                let mut fresh = Fresh::default();
                let taken = inbox.take(&mut fresh);
                had += fresh.soon.len();
                match (taken.any, readers.is_closed()) {
                    (true, _) => {}
                    (false, true) => return had,
                    (false, false) => drop(inbox.park(None, NOTHING)),
                }
            }
        }),
    );
}

#[test]
fn loom_who_waits_for_a_grace_period_is_told_whoever_scans() {
    model(|| {
        let shared = Arc::new((Inbox::new(Mode::Keeper), Readers::new(1, Barrier::Fences)));
        let scan = |(inbox, readers): &(Inbox, Readers)| {
            if readers.scan().unwrap() {
                inbox.notify_waiters();
            }
        };
        let (keeper, other) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = [
            thread::spawn(move || {
                begin(1);
                let (inbox, readers) = &*keeper;
                // The keeper's loop until the grace period is over.
                loop {
                    inbox.take(&mut Fresh::default());
                    scan(&keeper);
                    if readers.passed(FENCED | 2, NORMAL) {
                        return;
                    }
                    inbox.park(None, NOTHING);
                }
            }),
            thread::spawn(move || {
                begin(2);
                scan(&other);
            }),
        ];
        begin(0);
        let (inbox, readers) = &*shared;
        let cookie = readers.cookie();
        inbox.wait_until(Some((cookie, &[NORMAL])), |_| readers.passed(cookie, NORMAL).then_some(()));
        // Nobody need have asked the keeper, which ends with this model only when it has looked itself.
        inbox.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
