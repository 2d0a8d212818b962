//! Promotion into huge pages.

use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Instant;

use super::*;
use crate::sys::inject;

fn huge(kind: Kind) -> Kind {
    Kind { huge: true, ..kind }
}

/// Bytes on huge pages in each view.
fn huge_bytes(pack: &Pack) -> Vec<u64> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut views = vec![pack.executable.clone()];
    if let WriteAccess::Aliased(alias) = &pack.memory {
        views.push(alias.view().clone());
    }
    views.iter().map(|view| procfs::huge_bytes_around(&smaps, view)).collect()
}

/// Whether this machine's kernel makes huge pages of `made`; if not, reports that the test is skipped.
fn promoted(made: &Made, what: &str) -> bool {
    let start = Instant::now();
    let result = made.pack().promote();
    eprintln!("MEASURED: {:?} promoted in {:?}: {result:?}", made.pack().kind.medium, start.elapsed());
    match result {
        Ok(()) => true,
        Err(error) => {
            eprintln!("{error}");
            hidden(Hidden::HugePages, what);
            false
        }
    }
}

#[test]
fn a_promoted_pack_stays_huge_in_every_view() {
    alone(|| {
        for kind in KINDS {
            let made = Made::new(&huge(kind), STEP);
            assert_eq!(made.run(0, 1), 1);
            if !promoted(&made, "huge pages") {
                continue;
            }
            let all = |bytes: Vec<u64>| bytes.iter().all(|&bytes| bytes == PACK_BYTES as u64);
            assert!(all(huge_bytes(made.pack())), "{kind:?}");
            assert_nothing_is_writable_and_executable("promoted");
            assert_eq!(made.pack().populated(), PACK_BYTES);
            assert_eq!(call(made.place()), 1, "what was there stays");
            assert!(made.is_all_traps(STEP..PACK_BYTES), "the new tail is traps");

            assert_eq!(made.run(PACK_BYTES - 64, 2), 2);
            assert!(all(huge_bytes(made.pack())), "{kind:?} after a write");
            let place = made.place();
            assert!(in_fork(|| call(place) == 1));
            assert_eq!(made.run(PACK_BYTES / 2, 3), 3);
            // The kind's documentation: a private page is split when one of two processes writes.
            if kind.medium != Medium::Procmem {
                assert!(all(huge_bytes(made.pack())), "{kind:?} after a fork and a write");
            }
        }
    });
}

#[test]
fn promotion_disturbs_no_running_or_writing_thread() {
    alone(|| {
        for kind in KINDS {
            if !promoted(&Made::new(&huge(kind), STEP), "promotion beside threads that run") {
                continue;
            }
            for _ in 0..10 {
                let made = Made::new(&huge(kind), STEP);
                made.run(0, 77);
                let running = AtomicBool::new(true);
                let started = AtomicUsize::new(0);
                let (made, running, started) = (&made, &running, &started);
                let done = thread::scope(|scope| {
                    let runs = scope.spawn(move || {
                        while running.load(Ordering::Relaxed) {
                            assert_eq!(call(made.place()), 77);
                            started.fetch_max(1, Ordering::AcqRel);
                        }
                    });
                    let writes = scope.spawn(move || {
                        let mut value = 0;
                        while running.load(Ordering::Relaxed) {
                            value += 1;
                            let at = 64 + value as usize % 200 * 64;
                            assert_eq!(made.run(at, value), value);
                            if value > 100 {
                                started.fetch_max(2, Ordering::AcqRel);
                            }
                        }
                    });
                    // A failing thread ends early and reports the reason.
                    while started.load(Ordering::Acquire) < 2 && !runs.is_finished() && !writes.is_finished()
                    {
                        thread::yield_now();
                    }
                    let done = made.pack().promote();
                    running.store(false, Ordering::Relaxed);
                    done
                });
                if let Err(error) = done {
                    // Pages in use at this moment may be refused (EAGAIN), but there is no other failure.
                    assert!(error.may_pass(), "{kind:?}: {error}");
                }
                assert_eq!(call(made.place()), 77);
                assert!(made.is_all_traps(STEP..PACK_BYTES));
            }
        }
    });
}

#[test]
fn a_refused_promotion_says_whether_to_retry() {
    for kind in KINDS {
        for (errno, again) in [(Errno::INVAL, false), (Errno::AGAIN, true), (Errno::NOMEM, true)] {
            let made = Made::new(&huge(kind), STEP);
            let plan = inject::fail_every(SystemCall::Collapse, errno);
            let error = made.pack().promote().unwrap_err();
            drop(plan);
            assert_eq!(error.may_pass(), again, "{error}");
            assert_eq!(super::life::call_of(&error), Some(SystemCall::Collapse));
            assert_eq!(made.run(0, 4), 4);
        }
    }
}

#[test]
fn a_pack_configured_for_base_pages_is_not_promoted() {
    for kind in KINDS {
        let made = Made::new(&kind, STEP);
        let error = made.pack().promote().unwrap_err();
        assert!(!error.may_pass(), "{error}");
        assert_eq!(huge_bytes(made.pack()).iter().sum::<u64>(), 0, "{kind:?}");
        assert_eq!(made.run(0, 4), 4);
    }
}
