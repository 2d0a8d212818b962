//! Creation, growth, writing, and access by children.

use super::*;
use crate::sys::inject;

#[test]
fn only_the_populated_part_of_a_pack_has_memory_full_of_traps() {
    alone(|| {
        let is_one = probe::neighbours_are_one_mapping();
        probe::shown(is_one, Hidden::OneMapping, "a pack is one mapping, however many steps it was made in");
        for kind in KINDS.into_iter().flat_map(|kind| [kind, Kind { huge: true, ..kind }]) {
            let mut made = Made::new(&kind, 1);
            for to in [page_size(), STEP, STEP, 3 * STEP, STEP, PACK_BYTES / 2, PACK_BYTES] {
                let before = made.pack().populated();
                made.pack().populate(to).unwrap();
                let populated = made.pack().populated();
                assert_eq!(populated, before.max(to), "{kind:?}");
                assert!(made.is_all_traps(0..populated));
                assert_eq!(made.memory().unwrap_or(populated), populated, "{kind:?}");

                let mappings = mappings();
                let at = |address| mappings.iter().find(|mapping| mapping.range.contains(&address)).unwrap();
                let place = made.place();
                let first = at(place);
                assert!(first.permissions.starts_with("r-x"), "{first:?}");
                // One mapping, however many steps it was made in.
                assert!(first.range == (place..place + populated) || !is_one, "{kind:?}: {first:?}");
                assert!(at(place + populated).permissions.starts_with("---"));
                assert_nothing_is_writable_and_executable("populated");
            }
            let before = made.pack().populated();
            made.pack().populate(usize::MAX / 2).unwrap();
            assert_eq!(made.pack().populated(), before, "a pack does not grow beyond its length");
            // SAFETY: the pack is unused.
            assert!(unsafe { made.pack.take().unwrap().unmap() }.is_ok());
            assert_nothing_is_writable_and_executable("unmapped");
        }
    });
}

#[test]
fn a_write_changes_its_bytes_and_no_others() {
    for kind in KINDS {
        let made = Made::new(&kind, STEP);
        let writer = made.pack().writer();
        let mut model = arch::TRAP.repeat(STEP / arch::TRAP.len());
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % below
        };
        for round in 0..2000 {
            let len = [1, 3, 8, 30, 64, 1000, 9000][random(7)];
            let at = random(STEP - len);
            let address = made.place() + at;
            match round % 4 {
                0 => {
                    let step = arch::TRAP.len();
                    let (at, len) = (at / step * step, len.next_multiple_of(step));
                    // SAFETY: ours, and within the populated part: `len` grows by less than the room left.
                    unsafe { writer.fill_with_traps(made.place() + at, len) }.unwrap();
                    model[at..at + len].copy_from_slice(&arch::TRAP.repeat(len / step));
                }
                1 => {
                    const SIZE: usize = size_of::<arch::Word>();
                    let at = at / SIZE * SIZE;
                    let word = arch::Word::from_ne_bytes([round as u8; SIZE]);
                    // SAFETY: ours, and aligned.
                    unsafe { writer.store(made.place() + at, word) }.unwrap();
                    model[at..at + SIZE].copy_from_slice(&word.to_ne_bytes());
                }
                _ => {
                    let bytes: Vec<u8> = (0..len).map(|_| random(256) as u8).collect();
                    // SAFETY: ours.
                    unsafe { writer.copy(address, &bytes) }.unwrap();
                    model[at..at + len].copy_from_slice(&bytes);
                }
            }
            assert_eq!(made.bytes(0..STEP), model, "{kind:?}, round {round}: {len} at {at}");
        }
    }
}

#[test]
fn code_runs_in_every_kind_and_in_children_too() {
    alone(|| {
        for kind in KINDS {
            let made = Made::new(&kind, STEP);
            assert_eq!(made.run(64, 42), 42, "{kind:?}");
            let address = made.place() + 64;
            assert!(in_fork(|| call(address) == 42), "{kind:?}");
            assert!(in_fork(|| !mappings().iter().any(Mapping::is_writable_and_executable)), "{kind:?}");
            // The child's end changed nothing, and the parent continues to write.
            assert_eq!(made.run(64, 43), 43, "{kind:?}");
        }
    });
}

#[test]
fn neighbouring_packs_do_not_disturb_each_other() {
    for kind in KINDS {
        let reservation = Reservation::new(3 * PACK_BYTES, None, 0).unwrap();
        let place = |index| reservation.slots().start + index * PACK_BYTES;
        // SAFETY: the reservation is ours and unused, and goes after the packs.
        let pack = |index| unsafe { Pack::new(&kind, place(index), PACK_BYTES, STEP) }.unwrap();
        let write = |pack: &Pack, value| {
            let at = pack.executable.end - 64;
            // SAFETY: populated, and nothing else writes there.
            unsafe { pack.writer().copy(at, &returns(value)) }.unwrap();
            at
        };
        let packs = [0, 1, 2].map(pack);
        for pack in &packs {
            pack.populate(PACK_BYTES).unwrap();
        }
        let [first, middle, last] = packs;
        let places = [write(&first, 1), write(&last, 3)];
        // SAFETY: it is unused.
        assert!(unsafe { middle.unmap() }.is_ok());
        assert_eq!(places.map(call), [1, 3], "{kind:?}");
        let middle = pack(1);
        assert_eq!(middle.populated(), STEP);
        middle.populate(PACK_BYTES).unwrap();
        assert_eq!([write(&middle, 2), places[0], places[1]].map(call), [2, 1, 3], "{kind:?}");
        drop((first, middle, last));
    }
}

#[test]
fn a_child_has_no_writable_view() {
    alone(|| {
        let made = Made::new(&KINDS[0], STEP);
        let WriteAccess::Aliased(alias) = &made.pack().memory else { panic!("a memfd pack has an alias") };
        let page = alias.view().start;
        let is_mapped = || {
            let mut resident = 0u8;
            // SAFETY: mincore(2) answers ENOMEM for what is not mapped.
            unsafe { libc::mincore(ptr::without_provenance_mut(page), 1, &mut resident) == 0 }
        };
        assert!(is_mapped());
        let shown = probe::children_do_not_inherit_everything();
        if probe::shown(shown, Hidden::DontFork, "a child has no writable view of a pack") {
            assert!(in_fork(|| !is_mapped()));
        }
    });
}

#[test]
fn without_populate_advice_a_pack_is_populated_at_creation() {
    let first = {
        let plan = inject::record();
        drop(Made::new(&KINDS[0], STEP));
        plan.made().iter().position(|&call| call == SystemCall::AllocateFile).unwrap()
    };
    // The error of Linux before 5.14.
    let plan = inject::fail_nth(first, Errno::INVAL);
    let made = Made::new(&KINDS[0], STEP);
    assert_eq!(plan.failed(), Some(SystemCall::AllocateFile));
    drop(plan);
    assert_eq!(made.pack().populated(), PACK_BYTES);
    assert!(made.is_all_traps(0..PACK_BYTES));
    assert_eq!(made.run(0, 5), 5);
}

#[test]
fn under_mdwe_a_pack_is_populated_at_creation() {
    alone(|| {
        let grown = KINDS.map(|kind| Made::new(&kind, STEP));
        let refuse = libc::PR_MDWE_REFUSE_EXEC_GAIN as libc::c_ulong;
        // SAFETY: integer arguments; it restricts only this process of its own.
        if unsafe { libc::prctl(libc::PR_SET_MDWE, refuse, 0, 0, 0) } != 0 {
            return hidden(Hidden::DenyWriteExecute, "packs under PR_SET_MDWE");
        }
        for (kind, grown) in KINDS.iter().zip(&grown) {
            let made = Made::new(kind, STEP);
            assert_eq!(made.pack().populated(), PACK_BYTES, "{kind:?}");
            assert_eq!(made.memory(), Some(PACK_BYTES));
            assert!(made.is_all_traps(0..PACK_BYTES));
            assert_eq!(made.run(0, 6), 6);

            let error = grown.pack().populate(2 * STEP).unwrap_err();
            assert_eq!(call_of(&error), Some(SystemCall::MakeExecutable));
            assert!(error.to_string().contains("PR_SET_MDWE"), "{error}");
            assert_eq!(grown.pack().populated(), STEP);
            assert_eq!(grown.run(0, 7), 7);
        }
    });
}

#[test]
fn a_file_size_limit_gives_an_error_and_no_signal() {
    alone(|| {
        let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        // SAFETY: it restricts only this process of its own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
        let reservation = Reservation::new(PACK_BYTES, None, 0).unwrap();
        for kind in &KINDS[..2] {
            // SAFETY: the reservation is ours and unused.
            let made = unsafe { Pack::new(kind, reservation.slots().start, PACK_BYTES, STEP) };
            let error = made.err().unwrap();
            assert_eq!(call_of(&error), Some(SystemCall::SizeFile), "{error}");
            assert!(error.to_string().contains("ulimit -f"), "{error}");
        }
    });
}

pub(super) fn call_of(error: &Error) -> Option<SystemCall> {
    match error {
        Error::System { call, .. } => Some(*call),
        _ => None,
    }
}

#[test]
fn a_refused_backing_is_skipped_and_reported() {
    let reservation = Reservation::new(PACK_BYTES, None, 0).unwrap();
    let place = reservation.slots().start;
    // SAFETY: the reservation is ours; each pack is unmapped before the next is made.
    let resolve = |only| unsafe { resolve(only, Kind::new(Medium::Memfd), place, PACK_BYTES, STEP) };
    let done = |resolved: Resolved| {
        // SAFETY: the pack is unused.
        assert!(unsafe { resolved.pack.unmap() }.is_ok());
        (resolved.kind.medium, resolved.refused.len())
    };
    assert_eq!(done(resolve(None).unwrap()), (Medium::Memfd, 0));
    for medium in [Medium::Memfd, Medium::Hardened, Medium::Procmem] {
        assert_eq!(done(resolve(Some(medium)).unwrap()), (medium, 0));
    }

    let plan = inject::fail_every(SystemCall::CreateFile, Errno::NOSYS);
    let resolved = resolve(None).unwrap();
    assert_eq!(resolved.refused[0].0, "memfd");
    assert_eq!(call_of(&resolved.refused[0].1), Some(SystemCall::CreateFile));
    assert_eq!(done(resolved), (Medium::Procmem, 1));
    assert_eq!(call_of(&resolve(Some(Medium::Memfd)).err().unwrap()), Some(SystemCall::CreateFile));
    drop(plan);

    let plan = inject::fail_every(SystemCall::MapExecutable, Errno::ACCESS);
    let error = resolve(None).err().unwrap();
    let Error::NoBacking { refused } = &error else { panic!("{error}") };
    assert_eq!(refused.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["memfd", "procmem"]);
    let text = error.to_string();
    assert!(text.contains("memfd: mapping the executable") && text.contains("procmem: mapping"), "{text}");
    drop(plan);

    // Resources may become free again, so another backing is not chosen for good.
    let _plan = inject::fail_every(SystemCall::CreateFile, Errno::MFILE);
    assert_eq!(call_of(&resolve(None).err().unwrap()), Some(SystemCall::CreateFile));
}
