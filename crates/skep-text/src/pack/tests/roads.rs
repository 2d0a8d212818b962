//! Ways by which code must not be writable, and the ways left open on purpose.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::mm::{MremapFlags, mprotect, mremap, munmap};
use rustix::{fs, mm};

use super::*;

const WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

fn map(fd: &OwnedFd, protection: ProtFlags) -> rustix::io::Result<*mut std::ffi::c_void> {
    // SAFETY: a new mapping at an address of the kernel's choice.
    unsafe { mm::mmap(ptr::null_mut(), PACK_BYTES, protection, MapFlags::SHARED, fd, 0) }
}

fn make_writable(at: *mut std::ffi::c_void, len: usize) -> rustix::io::Result<()> {
    // SAFETY: expected to change nothing; if it does, no code runs there afterwards.
    unsafe { mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE) }
}

fn try_to_write(fd: &OwnedFd) -> rustix::io::Result<usize> {
    rustix::io::pwrite(fd, b"x", 0)
}

#[test]
fn the_executable_view_of_a_file_can_never_be_written() {
    alone(|| {
        let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
        for kind in &KINDS[..2] {
            let made = Made::new(kind, STEP);
            let at = ptr::with_exposed_provenance_mut(made.place());
            assert_eq!(make_writable(at, STEP), Err(Errno::ACCESS));
            assert_eq!(make_writable(at, PACK_BYTES), Err(Errno::ACCESS), "nor what is not populated yet");

            memory.read_exact_at(&mut [0], made.place() as u64).unwrap();
            for offset in [0, STEP] {
                memory.write_at(&[0x90], (made.place() + offset) as u64).unwrap_err();
            }
            assert!(made.is_all_traps(0..STEP));

            // mremap(2) with an old size of 0 makes a second mapping of a shared one. It has no more rights.
            let shown = probe::mappings_can_be_doubled();
            if !probe::shown(shown, Hidden::DoubledMappings, "a second mapping has no more rights") {
                continue;
            }
            // SAFETY: a new mapping at an address of the kernel's choice.
            let copy = unsafe { mremap(at, 0, STEP, MremapFlags::MAYMOVE) }.unwrap();
            assert_eq!(make_writable(copy, STEP), Err(Errno::ACCESS));
            assert_nothing_is_writable_and_executable("mapped again");
            // SAFETY: the unused mapping made above.
            unsafe { munmap(copy, STEP) }.unwrap();
        }
    });
}

#[test]
fn the_sealed_file_cannot_be_mapped_writable_written_or_resized() {
    let made = Made::new(&KINDS[0], STEP);
    let reading = made.file.as_ref().unwrap();
    assert_eq!(map(reading, WRITE).unwrap_err(), Errno::ACCESS);
    assert_eq!(try_to_write(reading).unwrap_err(), Errno::BADF);

    // Opening the file again by its name in /proc gives no more rights.
    let mut paths = vec![format!("/proc/self/fd/{}", reading.as_raw_fd())];
    // The mappings have names, too; with the privilege of following them.
    paths.push(format!("/proc/self/map_files/{:x}-{:x}", made.place(), made.place() + STEP));
    let mut opened = 0;
    for path in paths {
        let Ok(again) = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { continue };
        opened += 1;
        assert_eq!(map(&again, WRITE).unwrap_err(), Errno::PERM);
        assert_eq!(try_to_write(&again).unwrap_err(), Errno::PERM);
        assert_eq!(fs::ftruncate(&again, 0).unwrap_err(), Errno::PERM);
        assert_eq!(fs::ftruncate(&again, 2 * PACK_BYTES as u64).unwrap_err(), Errno::PERM);
        assert_eq!(fs::fcntl_add_seals(&again, SealFlags::WRITE).unwrap_err(), Errno::PERM);
        let punch = fs::FallocateFlags::PUNCH_HOLE | fs::FallocateFlags::KEEP_SIZE;
        assert_eq!(fs::fallocate(&again, punch, 0, 4096).unwrap_err(), Errno::PERM);
        // Mapped without write permission it cannot get it later either.
        let at = map(&again, ProtFlags::READ).unwrap();
        assert_eq!(make_writable(at, PACK_BYTES), Err(Errno::ACCESS));
        // SAFETY: the unused mapping made above.
        unsafe { munmap(at, PACK_BYTES) }.unwrap();
    }
    assert!(opened > 0, "the road through the descriptor is open to everybody");
    assert!(made.is_all_traps(0..STEP));
}

#[test]
fn a_hardened_pack_is_not_writable_or_resizable() {
    alone(|| {
        let count = |maps: &str| maps.lines().filter(|line| line.contains("/memfd:skep-text")).count();
        let writable =
            |maps: &str| maps.lines().any(|line| line.contains("skep-text") && line.contains(" rw"));
        let made = Made::new(&KINDS[1], STEP);
        made.pack().populate(PACK_BYTES).unwrap();
        made.run(0, 1);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(count(&maps) == 1 || !probe::neighbours_are_one_mapping(), "{maps}");
        assert!(!writable(&maps), "{maps}");

        let WriteAccess::File(file) = &made.pack().memory else { panic!("a hardened pack has a file") };
        assert_eq!(fs::ftruncate(file, 0).unwrap_err(), Errno::PERM);
        assert_eq!(fs::ftruncate(file, 2 * PACK_BYTES as u64).unwrap_err(), Errno::PERM);
        // Such a seal would also forbid this crate's writes.
        assert_eq!(fs::fcntl_add_seals(file, SealFlags::FUTURE_WRITE).unwrap_err(), Errno::PERM);
        assert!(rustix::io::fcntl_getfd(file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    });
}

#[test]
fn anonymous_memory_is_writable_only_in_the_documented_ways() {
    let made = Made::new(&KINDS[2], STEP);
    let at = ptr::with_exposed_provenance_mut(made.place());
    assert_eq!(make_writable(at, STEP), Ok(()));
    // SAFETY: our own pages, which no thread runs.
    unsafe { mprotect(at, STEP, MprotectFlags::READ | MprotectFlags::EXEC) }.unwrap();
    let memory = OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    assert_eq!(memory.write_at(&returns(3), made.place() as u64).unwrap(), returns(3).len());
    let WriteAccess::Process(memory) = &made.pack().memory else {
        panic!("this pack has the process's memory")
    };
    assert!(rustix::io::fcntl_getfd(memory).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
}

#[test]
fn the_writable_view_is_far_away_with_equal_alignment() {
    let made = Made::new(&KINDS[0], STEP);
    let WriteAccess::Aliased(alias) = &made.pack().memory else { panic!("a memfd pack has an alias") };
    let distance = made.place().abs_diff(alias.view().start);
    assert!(distance > 1 << 31, "{distance:#x}");
    assert!(made.place().is_multiple_of(PACK_BYTES) && alias.view().start.is_multiple_of(PACK_BYTES));
}

#[test]
fn a_permanent_pack_s_mapping_cannot_be_changed() {
    alone(|| {
        for kind in KINDS {
            let mut made = Made::new(&Kind { permanent: true, huge: true, ..kind }, STEP);
            assert!(!made.pack().is_sealed(), "it is still growing");
            made.pack().populate(PACK_BYTES).unwrap();
            if !made.pack().is_sealed() {
                return hidden(Hidden::SealedMappings, "a permanent pack is sealed");
            }
            let mut views = vec![made.pack().executable().clone()];
            if let WriteAccess::Aliased(alias) = &made.pack().memory {
                views.push(alias.view().clone());
            }
            for view in views {
                let at = ptr::with_exposed_provenance_mut(view.start);
                for flags in [MprotectFlags::empty(), MprotectFlags::READ] {
                    // SAFETY: expected to change nothing.
                    assert_eq!(unsafe { mprotect(at, view.len(), flags) }, Err(Errno::PERM), "{kind:?}");
                }
                // SAFETY: as above.
                assert_eq!(unsafe { munmap(at, view.len()) }, Err(Errno::PERM));
                // SAFETY: as above.
                let moved = unsafe { mremap(at, view.len(), 2 * view.len(), MremapFlags::MAYMOVE) };
                assert_eq!(moved, Err(Errno::PERM));
                // SAFETY: as above.
                let covered = unsafe { range::reserve_again(&view) };
                assert_eq!(covered.unwrap_err().errno(), Some(Errno::PERM));
            }
            // SAFETY: the pack is unused.
            made.pack = Some(unsafe { made.pack.take().unwrap().unmap() }.expect_err("it is sealed"));
            assert_eq!(made.run(128, 9), 9, "and it goes on being written and run");
            promote(made.pack());
            assert_eq!(made.run(128, 10), 10);
        }
    });
}

/// Promotes a pack. The system refuses with `EAGAIN` as long as something else holds a page.
fn promote(pack: &Pack) {
    const TRIES: usize = 250;
    for _ in 0..TRIES {
        match pack.promote() {
            Ok(()) => return,
            Err(Error::System { error, .. }) if error.raw_os_error() == Some(Errno::AGAIN.raw_os_error()) => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("refused {TRIES} times");
}

#[test]
fn without_mseal_a_permanent_pack_works_and_reports_it() {
    let _plan = crate::sys::inject::fail_every(SystemCall::SealMapping, Errno::NOSYS);
    let made = Made::new(&Kind { permanent: true, ..KINDS[0] }, PACK_BYTES);
    assert!(!made.pack().is_sealed());
    assert_eq!(made.run(0, 9), 9);
}

#[test]
fn no_page_is_writable_and_executable_in_a_pack_s_life() {
    alone(|| {
        let rounds = AtomicUsize::new(0);
        thread::scope(|scope| {
            let packs = scope.spawn(|| {
                while rounds.load(Ordering::Relaxed) < 300 {
                    for kind in KINDS {
                        let mut made = Made::new(&Kind { huge: true, ..kind }, STEP);
                        made.run(0, 1);
                        made.pack().populate(4 * STEP).unwrap();
                        made.run(3 * STEP, 2);
                        // Another test checks whether it may be refused.
                        let _ = made.pack().promote();
                        made.run(0, 3);
                        // SAFETY: the pack is unused.
                        assert!(unsafe { made.pack.take().unwrap().unmap() }.is_ok());
                    }
                }
            });
            while !packs.is_finished() {
                for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
                    let permissions = line.split_whitespace().nth(1).unwrap();
                    assert!(!(permissions.contains('w') && permissions.contains('x')), "{line}");
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
}
