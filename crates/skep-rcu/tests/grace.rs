//! The promises of grace periods, callbacks and barriers, in every kind of domain.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;

use skep_rcu::{Domain, Error, Grace, KeeperState, raw};

const GRACES: [Grace; 3] = [Grace::Normal, Grace::Sleepable, Grace::Both];

/// With and without membarrier, with and without a keeper.
fn all_kinds() -> Vec<Domain> {
    let mut kinds = Vec::new();
    for membarrier in [true, false] {
        for keeper in [true, false] {
            let domain = Domain::builder().slots(8).membarrier(membarrier).keeper(keeper).build().unwrap();
            kinds.push(domain);
        }
    }
    kinds
}

/// Runs `inside` on this thread while another thread is in the given sections.
fn with_a_reader_inside(domain: &Domain, normal: bool, sleepable: bool, inside: impl FnOnce()) {
    let (entered, leave) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let _normal = normal.then(|| domain.enter().unwrap());
            let _sleepable = sleepable.then(|| domain.enter_sleepable().unwrap());
            entered.wait();
            leave.wait();
        });
        entered.wait();
        inside();
        leave.wait();
        reader.join().unwrap();
    });
}

#[test]
fn a_cookie_passes_at_once_when_no_reader_is_inside() {
    for domain in all_kinds() {
        for grace in GRACES {
            let cookie = domain.cookie();
            assert!(!domain.passed(cookie, grace), "nobody has looked yet");
            assert!(domain.try_pass(cookie, grace));
            assert!(domain.passed(cookie, grace));
        }
    }
}

#[test]
fn a_reader_blocks_later_cookies_of_its_flavour() {
    for domain in all_kinds() {
        for (normal, sleepable) in [(true, false), (false, true), (true, true)] {
            let before = domain.cookie();
            let mut after = None;
            with_a_reader_inside(&domain, normal, sleepable, || {
                let cookie = domain.cookie();
                assert!(domain.try_pass(before, Grace::Both), "the section is younger than this cookie");
                assert_eq!(domain.try_pass(cookie, Grace::Normal), !normal);
                assert_eq!(domain.try_pass(cookie, Grace::Sleepable), !sleepable);
                assert!(!domain.try_pass(cookie, Grace::Both));
                after = Some(cookie);
            });
            assert!(domain.try_pass(after.unwrap(), Grace::Both));
        }
    }
}

#[test]
fn a_nested_section_keeps_the_epoch_of_the_outermost_one() {
    for domain in all_kinds() {
        let reader = domain.reader().unwrap();
        let outer = reader.enter();
        let cookie = domain.cookie();
        let inner = domain.enter().unwrap();
        drop(outer); // in any order
        reader.read(|| ());
        assert!(!domain.try_pass(cookie, Grace::Normal));
        drop(inner);
        assert!(domain.try_pass(cookie, Grace::Normal));
    }
}

#[test]
fn a_section_moved_out_of_its_closure_still_counts() {
    for domain in all_kinds() {
        let reader = domain.reader().unwrap();
        let mut escaped = None;
        let cookie = reader.read(|| {
            escaped = Some(domain.enter().unwrap());
            domain.cookie()
        });
        assert!(!domain.try_pass(cookie, Grace::Normal));
        drop(escaped);
        assert!(domain.try_pass(cookie, Grace::Normal));
    }
}

#[test]
fn a_panic_in_a_section_ends_it() {
    for domain in all_kinds() {
        let reader = domain.reader().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            reader.read(|| std::panic::resume_unwind(Box::new(())));
        }));
        assert!(panicked.is_err());
        assert_eq!(domain.synchronize(Grace::Both), Ok(()));
    }
}

#[test]
fn deep_nesting_changes_no_epoch() {
    let domain = Domain::new(1).unwrap();
    let outer = domain.enter().unwrap();
    let cookie = domain.cookie();
    let sections: Vec<_> = (0..200_000).map(|_| domain.enter().unwrap()).collect();
    assert!(!domain.try_pass(cookie, Grace::Normal));
    drop(outer);
    assert!(!domain.try_pass(cookie, Grace::Normal));
    drop(sections);
    assert!(domain.try_pass(cookie, Grace::Normal));
}

#[test]
fn synchronize_returns_after_the_readers_have_left_and_not_before() {
    for domain in all_kinds() {
        for expedited in [false, true] {
            for grace in GRACES {
                let left = AtomicBool::new(false);
                let entered = Barrier::new(2);
                thread::scope(|scope| {
                    let reader = scope.spawn(|| {
                        let normal = domain.enter().unwrap();
                        let sleepable = domain.enter_sleepable().unwrap();
                        entered.wait();
                        thread::sleep(std::time::Duration::from_millis(5));
                        left.store(true, Ordering::Relaxed);
                        drop((normal, sleepable));
                    });
                    entered.wait();
                    if expedited {
                        domain.synchronize_expedited(grace).unwrap();
                    } else {
                        domain.synchronize(grace).unwrap();
                    }
                    assert!(left.load(Ordering::Relaxed));
                    reader.join().unwrap();
                });
            }
        }
    }
}

#[test]
fn waiting_inside_a_section_of_the_same_flavour_is_an_error() {
    for domain in all_kinds() {
        let normal = domain.enter().unwrap();
        for grace in [Grace::Normal, Grace::Both] {
            assert_eq!(domain.synchronize(grace), Err(Error::InsideSection));
            assert_eq!(domain.synchronize_expedited(grace), Err(Error::InsideSection));
        }
        assert_eq!(domain.barrier(), Err(Error::InsideSection));
        assert_eq!(domain.synchronize(Grace::Sleepable), Ok(()));
        assert_eq!(domain.synchronize_expedited(Grace::Sleepable), Ok(()));
        drop(normal);
        let _sleepable = domain.enter_sleepable().unwrap();
        assert_eq!(domain.synchronize(Grace::Sleepable), Err(Error::InsideSection));
        assert_eq!(domain.synchronize(Grace::Normal), Ok(()));
    }
}

#[test]
fn waiting_on_the_keeper_is_an_error() {
    for domain in all_kinds() {
        let (send, receive) = mpsc::channel();
        let handle = domain.clone();
        domain.call(Grace::Normal, move || {
            let errors = [
                handle.synchronize(Grace::Normal),
                handle.synchronize_expedited(Grace::Sleepable),
                handle.barrier(),
            ];
            send.send(errors).unwrap();
        });
        domain.barrier().unwrap();
        assert_eq!(receive.recv().unwrap(), [Err(Error::OnKeeper); 3]);
    }
}

#[test]
fn callbacks_run_once_in_order_before_barrier_returns() {
    for domain in all_kinds() {
        const EACH: usize = 1000;
        let ran: Arc<[Mutex<Vec<usize>>; 4]> = Arc::default();
        for number in 0..EACH {
            for (index, grace) in GRACES.into_iter().enumerate() {
                let ran = Arc::clone(&ran);
                domain.call(grace, move || ran[index].lock().unwrap().push(number));
            }
            let ran = Arc::clone(&ran);
            domain.defer(move || ran[3].lock().unwrap().push(number));
        }
        domain.barrier().unwrap();
        for queue in ran.iter() {
            assert_eq!(*queue.lock().unwrap(), (0..EACH).collect::<Vec<_>>());
        }
        let stats = domain.stats();
        assert_eq!((stats.waiting, stats.panicked), (0, 0), "{stats:?}");
        assert_eq!(stats.finished, 4 * EACH as u64 + 4, "and the barrier's own");
    }
}

#[test]
fn a_sleepable_reader_blocks_no_normal_callback() {
    for domain in all_kinds() {
        let (send, receive) = mpsc::channel();
        let late = Arc::new(AtomicUsize::new(0));
        with_a_reader_inside(&domain, false, true, || {
            for grace in [Grace::Sleepable, Grace::Both] {
                let late = Arc::clone(&late);
                domain.call(grace, move || {
                    late.fetch_add(1, Ordering::Relaxed);
                });
            }
            let normal = send.clone();
            domain.call(Grace::Normal, move || normal.send(()).unwrap());
            let deferred = send.clone();
            domain.defer(move || deferred.send(()).unwrap());
            receive.recv().unwrap();
            receive.recv().unwrap();
            assert_eq!(domain.synchronize(Grace::Normal), Ok(()));
            assert_eq!(late.load(Ordering::Relaxed), 0);
        });
        domain.barrier().unwrap();
        assert_eq!(late.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn a_normal_reader_blocks_no_sleepable_callback() {
    for domain in all_kinds() {
        let (send, receive) = mpsc::channel();
        with_a_reader_inside(&domain, true, false, || {
            domain.call(Grace::Sleepable, move || send.send(()).unwrap());
            receive.recv().unwrap();
            assert_eq!(domain.synchronize(Grace::Sleepable), Ok(()));
        });
    }
}

#[test]
fn a_callback_that_panics_is_counted_and_loses_nothing() {
    for domain in all_kinds() {
        struct PanicsAgain;
        impl Drop for PanicsAgain {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new(()));
            }
        }
        let ran = Arc::new(AtomicUsize::new(0));
        for number in 0..30 {
            let ran = Arc::clone(&ran);
            domain.call(Grace::Both, move || {
                ran.fetch_add(1, Ordering::Relaxed);
                match number % 3 {
                    0 => std::panic::resume_unwind(Box::new("on purpose")),
                    1 => std::panic::resume_unwind(Box::new(PanicsAgain)),
                    _ => {}
                }
            });
        }
        domain.barrier().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 30);
        assert_eq!(domain.stats().panicked, 20);
    }
}

#[test]
fn callbacks_waiting_at_the_last_drop_still_run() {
    for domain in all_kinds() {
        let (send, receive) = mpsc::channel();
        let held = Arc::new(Barrier::new(2));
        let waits = Arc::clone(&held);
        let has_keeper = domain.stats().keeper == KeeperState::NotNeededYet;
        if has_keeper {
            domain.defer(move || {
                waits.wait();
            });
        }
        for number in 0..100 {
            let send = send.clone();
            domain.call(GRACES[number % 3], move || send.send(number).unwrap());
        }
        drop(domain); // the keeper is inside deferred work: a drop that waited would never return
        if has_keeper {
            held.wait();
        }
        drop(send);
        let mut ran: Vec<usize> = receive.iter().collect();
        ran.sort_unstable();
        assert_eq!(ran, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn the_last_handle_may_be_dropped_by_a_callback() {
    for domain in all_kinds() {
        let (send, receive) = mpsc::channel();
        let handle = domain.clone();
        let again = send.clone();
        domain.call(Grace::Normal, move || {
            handle.call(Grace::Both, move || again.send(2).unwrap());
            send.send(1).unwrap();
            drop(handle);
        });
        drop(domain);
        assert_eq!(receive.iter().collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn a_burst_of_calls_wakes_the_keeper_a_few_times_at_most() {
    let domain = Domain::new(2).unwrap();
    domain.barrier().unwrap();
    let before = domain.stats().wakes;
    let (started, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (at, on) = (Arc::clone(&started), Arc::clone(&go));
    domain.defer(move || {
        at.wait();
        on.wait();
    });
    started.wait();
    (0..10_000).for_each(|_| domain.call(Grace::Normal, || ()));
    go.wait();
    let wakes = domain.stats().wakes - before;
    domain.barrier().unwrap();
    assert!(wakes <= 1, "{wakes} wake-ups");
}

#[test]
fn only_callbacks_that_can_run_wake_the_keeper() {
    let domain = Domain::new(2).unwrap();
    with_a_reader_inside(&domain, true, false, || {
        let ran = Arc::new(AtomicBool::new(false));
        let late = Arc::clone(&ran);
        domain.call(Grace::Normal, move || late.store(true, Ordering::Relaxed));
        // The first turn with deferred work takes the callback at the latest; the second comes after it.
        for _ in 0..2 {
            let (send, receive) = mpsc::channel();
            domain.defer(move || send.send(()).unwrap());
            receive.recv().unwrap();
        }
        let before = domain.stats().wakes;
        (0..10_000).for_each(|_| domain.call(Grace::Normal, || ()));
        assert_eq!(domain.stats().wakes, before);
        let (send, receive) = mpsc::channel();
        domain.call(Grace::Sleepable, move || send.send(()).unwrap());
        receive.recv().unwrap();
        assert!(!ran.load(Ordering::Relaxed));
    });
    domain.barrier().unwrap();
    assert_eq!(domain.stats().waiting, 0);
}

#[test]
fn a_domain_without_a_startable_keeper_works_and_reports_it() {
    let domain = Domain::builder().keeper_stack(1 << 60).build().unwrap();
    assert_eq!(domain.stats().keeper, KeeperState::NotNeededYet);
    let ran = Arc::new(AtomicU64::new(0));
    for _ in 0..100 {
        let ran = Arc::clone(&ran);
        domain.call(Grace::Both, move || {
            ran.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert_eq!(domain.stats().keeper, KeeperState::Refused);
    assert_eq!(ran.load(Ordering::Relaxed), 100, "nobody was inside: each call ran its own");
    assert_eq!(domain.synchronize(Grace::Both), Ok(()));
    assert_eq!(domain.barrier(), Ok(()));
}

#[test]
fn without_a_keeper_the_polling_thread_runs_due_callbacks() {
    let domain = Domain::builder().keeper(false).build().unwrap();
    assert_eq!(domain.stats().keeper, KeeperState::Unwanted);
    let ran = Arc::new(AtomicBool::new(false));
    with_a_reader_inside(&domain, true, false, || {
        let ran = Arc::clone(&ran);
        domain.call(Grace::Normal, move || ran.store(true, Ordering::Relaxed));
    });
    assert!(!ran.load(Ordering::Relaxed));
    assert_eq!(domain.stats().waiting, 1);
    assert!(domain.try_pass(domain.cookie(), Grace::Normal));
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn a_domain_without_membarrier_reports_it() {
    let domain = Domain::builder().membarrier(false).build().unwrap();
    assert!(!domain.stats().membarrier);
}

#[test]
fn an_unguarded_section_blocks_grace_periods_until_left() {
    for domain in all_kinds() {
        let passes = |grace| domain.try_pass(domain.cookie(), grace);
        let _sleepable = domain.enter_sleepable().unwrap();
        assert!(passes(Grace::Normal) && !passes(Grace::Sleepable));
        raw::enter(&domain).unwrap();
        raw::enter(&domain).unwrap();
        assert!(!passes(Grace::Normal));
        // SAFETY: two were entered.
        unsafe { raw::leave(&domain) };
        assert!(!passes(Grace::Normal), "they nest");
        assert!(!domain.release(), "the slot is in use");
        // SAFETY: one is left.
        unsafe { raw::leave(&domain) };
        assert!(passes(Grace::Normal) && !passes(Grace::Sleepable));
    }
}
