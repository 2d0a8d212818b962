//! The guarantees of every kind of pack, and shared code of the tests of packs.

mod faults;
mod huge;
mod life;
mod roads;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::OnceLock;

use skep_testkit::{Hidden, hidden};

use super::*;
use crate::PACK_BYTES;
use crate::range::Reservation;
pub(super) use crate::tests::arch::returns;
use crate::tests::probe;

pub(super) const STEP: usize = 16 << 10;
pub(super) const KINDS: [Kind; 3] =
    [Kind::new(Medium::Memfd), Kind::new(Medium::Hardened), Kind::new(Medium::Procmem)];

/// A pack in a reservation of its own, with the read-only descriptor of its file still open.
pub(super) struct Made {
    /// `None` when the test has unmapped it.
    pub(super) pack: Option<Pack>,
    pub(super) file: Option<OwnedFd>,
    /// Dropped after the pack.
    pub(super) reservation: Reservation,
}

impl Made {
    pub(super) fn new(kind: &Kind, populate: usize) -> Self {
        let reservation = Reservation::new(PACK_BYTES, None, 0).unwrap();
        let place = reservation.slots().start;
        // SAFETY: the reservation is ours and unused, and is dropped after the pack.
        let (pack, file) = unsafe { Pack::with_files(kind, place, PACK_BYTES, populate) }.unwrap();
        Self { pack: Some(pack), file, reservation }
    }

    pub(super) fn pack(&self) -> &Pack {
        self.pack.as_ref().unwrap()
    }

    pub(super) fn place(&self) -> usize {
        self.reservation.slots().start
    }

    /// Bytes of memory that the pack has according to the system. `None` if unknown.
    pub(super) fn memory(&self) -> Option<usize> {
        match &self.file {
            // stat(2): blocks of 512 bytes.
            Some(file) => Some(rustix::fs::fstat(file).unwrap().st_blocks as usize * 512),
            None => {
                static IS_TOLD: OnceLock<bool> = OnceLock::new();
                let is_told = || {
                    let told = probe::resident_memory_is_told();
                    probe::shown(told, Hidden::ResidentMemory, "anonymous memory comes and goes in steps")
                };
                let resident = |mappings: Vec<Mapping>| {
                    let ours = |mapping: &&Mapping| self.pack().executable.contains(&mapping.range.start);
                    mappings.iter().filter(ours).map(|mapping| mapping.rss).sum()
                };
                IS_TOLD.get_or_init(is_told).then(|| resident(mappings()))
            }
        }
    }

    /// The bytes of `part` as they are executed.
    pub(super) fn bytes(&self, part: Range<usize>) -> &[u8] {
        let at = ptr::with_exposed_provenance(self.place() + part.start);
        // SAFETY: the tests pass populated parts only, and do not write them during the read.
        unsafe { std::slice::from_raw_parts(at, part.len()) }
    }

    pub(super) fn is_all_traps(&self, part: Range<usize>) -> bool {
        self.bytes(part).chunks(arch::TRAP.len()).all(|bytes| bytes == arch::TRAP)
    }

    /// Writes a function that returns `value`, and calls it.
    pub(super) fn run(&self, at: usize, value: u32) -> u32 {
        let code = returns(value);
        let address = self.place() + at;
        let writer = self.pack().writer();
        // SAFETY: the tests write one function at a time, at populated places of its own.
        unsafe {
            writer.copy(address, &code).unwrap();
            let clean = writer.clean_address(address);
            let executable = ptr::with_exposed_provenance(address);
            arch::publish([arch::View { clean, executable, len: code.len() }].into_iter());
        }
        call(address)
    }
}

/// Calls the function that [`returns`] made.
pub(super) fn call(address: usize) -> u32 {
    let pointer = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the tests pass addresses of such functions.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(pointer) };
    function()
}

/// One mapping as /proc/self/smaps describes it.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) range: Range<usize>,
    pub(super) permissions: String,
    pub(super) rss: usize,
}

pub(super) fn mappings() -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let number = |digits| usize::from_str_radix(digits, 16).unwrap();
            let permissions = words.next().unwrap().to_owned();
            mappings.push(Mapping { range: number(start)..number(end), permissions, rss: 0 });
        } else if first == "Rss:" {
            mappings.last_mut().unwrap().rss = words.next().unwrap().parse::<usize>().unwrap() * 1024;
        }
    }
    mappings
}

impl Mapping {
    pub(super) fn is_writable_and_executable(&self) -> bool {
        self.permissions.contains('w') && self.permissions.contains('x')
    }
}

pub(super) fn assert_nothing_is_writable_and_executable(when: &str) {
    for mapping in mappings() {
        assert!(!mapping.is_writable_and_executable(), "{when}: {mapping:?}");
    }
}

/// Runs `test`, the whole of the calling test, in a process of its own, so that no other test changes its counts.
pub(super) fn alone(test: impl FnOnce()) {
    const CHILD: &str = "SKEP_TEXT_TEST_ALONE";
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let output = skep_testkit::this_test().env(CHILD, "1").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
    let matters = |line: &&str| ["SKIPPED", "HIDDEN", "MEASURED"].iter().any(|word| line.starts_with(word));
    for line in err.lines().filter(matters) {
        skep_testkit::say(line);
    }
}

/// Runs `child` in a forked child; returns whether it returned true.
pub(super) fn in_fork(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only calls the tests' closure, which takes no lock and allocates nothing, and exits.
    let status = unsafe { skep_testkit::in_a_child(|| if child() { 0 } else { 1 }) };
    status.success()
}
