//! Every system call of every operation fails in turn: the error names the call, and nothing is lost.

use std::cell::Cell;

use super::life::call_of;
use super::*;
use crate::sys::inject;

/// Calls whose failure is not an error.
const BEST_EFFORT: [SystemCall; 3] =
    [SystemCall::AdvisePages, SystemCall::SealMapping, SystemCall::ReturnMemory];

const ERRNOS: [Errno; 5] = [Errno::NOMEM, Errno::PERM, Errno::INVAL, Errno::ACCESS, Errno::MFILE];

fn all_kinds() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().flat_map(|kind| [kind, Kind { huge: true, ..kind }])
}

/// The process's resources that an operation could leak: mappings and descriptors.
#[derive(Debug, PartialEq)]
struct Belongings {
    mappings: Vec<String>,
    descriptors: usize,
}

impl Belongings {
    fn now() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        // The allocator's own mappings come and go with the tests' strings and vectors.
        let ours = |line: &&str| {
            line.contains("skep-text") || line.contains("---") || line.contains("x") && !line.contains('/')
        };
        let mappings = maps.lines().filter(ours).map(str::to_owned).collect();
        Self { mappings, descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count() }
    }
}

/// Runs `operation` with its first call failing, then its second, and so on until there are no more; `judge` receives
/// the step whose call failed.
fn each_call<T>(
    errno: Errno,
    mut operation: impl FnMut() -> T,
    mut judge: impl FnMut(SystemCall, T),
) -> usize {
    for nth in 0.. {
        let plan = inject::fail_nth(nth, errno);
        let result = operation();
        let (failed, calls) = (plan.failed(), plan.calls());
        drop(plan);
        assert_eq!(failed.is_some(), calls > nth);
        match failed {
            Some(call) => judge(call, result),
            // The operation made fewer calls.
            None => return nth,
        }
    }
    unreachable!("an operation makes finitely many calls")
}

#[test]
fn any_failure_to_make_a_pack_is_named_and_leaks_nothing() {
    alone(|| {
        for kind in all_kinds() {
            for populate in [STEP, PACK_BYTES] {
                let reservation = Reservation::new(PACK_BYTES, None, 0).unwrap();
                let place = reservation.slots().start;
                // SAFETY: the reservation is ours; a pack that came to be is unmapped before the next.
                let birth = || unsafe { Pack::new(&kind, place, PACK_BYTES, populate) };
                // SAFETY: the pack is unused.
                assert!(unsafe { birth().unwrap().unmap() }.is_ok());
                for errno in ERRNOS {
                    let before = Belongings::now();
                    let calls = each_call(errno, birth, |failed, result| {
                        match result {
                            Err(error) => {
                                assert_eq!(call_of(&error), Some(failed), "{kind:?} {error}");
                                assert_eq!(error.errno(), Some(errno));
                            }
                            Ok(pack) => {
                                // The operation used one of its fallbacks.
                                let detour = errno == Errno::INVAL
                                    && matches!(failed, SystemCall::CreateFile | SystemCall::AllocateFile)
                                    || failed == SystemCall::MakeExecutable
                                        && matches!(errno, Errno::PERM | Errno::ACCESS)
                                    || BEST_EFFORT.contains(&failed);
                                assert!(detour, "{kind:?}: {failed:?} {errno}");
                                assert!(pack.populated() >= populate);
                                // SAFETY: the pack is unused.
                                assert!(unsafe { pack.unmap() }.is_ok());
                            }
                        }
                        assert_eq!(Belongings::now(), before, "{kind:?}: {failed:?} {errno}");
                    });
                    assert!(calls > 2, "{calls}");
                    // The last time nothing failed, and the pack was dropped in its place.
                    // SAFETY: the address range is unused.
                    unsafe { range::reserve_again(reservation.slots()) }.unwrap();
                }
            }
        }
    });
}

#[test]
fn any_failing_growth_or_promotion_leaves_the_pack_usable() {
    alone(|| {
        for kind in all_kinds() {
            for errno in ERRNOS {
                for promote in [false, true] {
                    let made = Made::new(&kind, STEP);
                    made.run(0, 11);
                    let populated = Cell::new(STEP);
                    let operation = || {
                        populated.set(made.pack().populated());
                        if promote { made.pack().promote() } else { made.pack().populate(3 * STEP) }
                    };
                    let before = Belongings::now();
                    let mut memory = made.memory();
                    each_call(errno, operation, |failed, result| {
                        let error = result.expect_err("there is no other way");
                        assert_eq!(call_of(&error), Some(failed), "{kind:?} {error}");
                        let now = made.pack().populated();
                        let halfway = promote && now == PACK_BYTES;
                        assert!(now == populated.get() || halfway, "{kind:?}: {failed:?}");
                        assert!(made.is_all_traps(64..now), "{kind:?}: {failed:?}");
                        if !halfway {
                            assert_eq!(Belongings::now(), before, "{kind:?}: {failed:?}");
                            // Sealed files keep, for the next try, what they have got.
                            if kind.medium != Medium::Memfd {
                                assert_eq!(made.memory(), memory, "{kind:?}: {failed:?}");
                            }
                        }
                        memory = made.memory();
                        assert_eq!(made.run(0, 12), 12);
                    });
                    assert_eq!(made.run(0, 13), 13);
                    assert!(promote || made.memory().is_none_or(|memory| memory == 3 * STEP));
                }
            }
        }
    });
}

#[test]
fn a_pack_that_cannot_be_unmapped_is_returned_unchanged() {
    alone(|| {
        for kind in all_kinds() {
            let empty = Belongings::now();
            let mut made = Made::new(&kind, STEP);
            made.file = None;
            made.run(0, 11);
            let before = Belongings::now();
            let plan = inject::fail_nth(0, Errno::NOMEM);
            // SAFETY: the pack is unused.
            made.pack = Some(unsafe { made.pack.take().unwrap().unmap() }.expect_err("its only call failed"));
            assert_eq!(plan.failed(), Some(SystemCall::ReturnMemory));
            drop(plan);
            assert_eq!(Belongings::now(), before);
            assert_eq!(made.run(0, 12), 12);
            made.pack().populate(2 * STEP).unwrap();

            // The alias's addresses may be lost, its memory may not.
            let plan = inject::fail_nth(1, Errno::NOMEM);
            // SAFETY: the pack is unused.
            assert!(unsafe { made.pack.take().unwrap().unmap() }.is_ok());
            let lost = plan.failed().is_some();
            drop(plan);
            drop(made);
            assert_eq!(lost, kind.medium == Medium::Memfd);
            let now = Belongings::now();
            assert_eq!(now.descriptors, empty.descriptors);
            assert!(!now.mappings.iter().any(|line| line.contains("skep-text")), "{now:?}");
            assert!(lost || now == empty, "{now:?} {empty:?}");
        }
    });
}
