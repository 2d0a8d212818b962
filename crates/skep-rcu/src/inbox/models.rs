//! Models of the keeper's sleep and of the threads that wait for it. A lost wake-up is a deadlock, which loom
//! reports.

use std::mem::ManuallyDrop;

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::barrier::Barrier;
use crate::model::{begin, model, must_fail};
use crate::readers::{FENCED, Readers};

const NOTHING: [bool; GRACES.len()] = [false; GRACES.len()];

/// Takes until it has `count` pieces of work, and calls `park` in between.
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
        // On a deadlock loom panics in an arbitrary thread; dropping a handle then would panic again.
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
        // One request may stand for both, but none may be lost.
        while !inbox.take_poll_requests() {
            inbox.park(None, NOTHING);
        }
        requesters.into_iter().for_each(|requesters| requesters.join().unwrap());
        drop(ManuallyDrop::into_inner(inbox));
    });
}

#[test]
fn loom_work_queued_while_its_kind_was_blocked_is_taken_later() {
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
fn loom_rejects_a_keeper_that_checks_and_then_parks() {
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

/// A keeper that lives as long as the domain; the last handle queues work and is dropped. `live` is the keeper's main
/// function and returns how many pieces of work it had.
fn last_handle(
    live: impl Fn(&Inbox, &Readers) -> usize + Copy + Send + Sync + 'static,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let shared = Arc::new((Inbox::new(Mode::Keeper), Readers::new(1, 0, Barrier::Fences)));
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
fn loom_rejects_a_keeper_that_checks_for_closing_before_it_takes() {
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
fn loom_rejects_a_keeper_that_checks_for_closing_after_it_takes() {
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
fn loom_a_waiting_thread_wakes_whichever_thread_scans() {
    model(|| {
        let shared = Arc::new((Inbox::new(Mode::Keeper), Readers::new(1, 0, Barrier::Fences)));
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
        // The keeper needs no request: it ends with this model only when it has scanned itself.
        inbox.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
