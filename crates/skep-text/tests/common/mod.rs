//! Shared code of the tests: machine code to run, an independent reader of /proc/self/smaps, and children.

#![allow(dead_code, reason = "every test file uses its own part of this")]

mod arch;
pub(crate) mod probe;

use std::ops::Range;
use std::process::ExitStatus;
use std::sync::OnceLock;

use skep_text::{Arena, Text};

#[allow(unused_imports, reason = "as above")]
pub(crate) use skep_testkit::{Hidden, hidden, is_emulated, skip};

pub(crate) use self::arch::*;

pub(crate) fn is_all_traps(bytes: &[u8]) -> bool {
    bytes.chunks(TRAP.len()).all(|bytes| bytes == TRAP)
}

/// Places `code`, followed by traps up to `len` bytes.
pub(crate) fn place(arena: &Arena, code: &[u8], len: usize) -> Result<Text, skep_text::Error> {
    let mut draft = arena.draft(len)?;
    draft.bytes_mut()[..code.len()].copy_from_slice(code);
    draft.finalize()
}

pub(crate) fn place_returns(arena: &Arena, value: u32) -> Text {
    let code = returns(value);
    place(arena, &code, code.len()).unwrap()
}

pub(crate) fn call(text: &Text) -> u32 {
    call_at(text.address())
}

/// Calls the code at `address`. The tests pass addresses of live functions made by [`returns`], or stale ones in
/// children that are expected to die.
pub(crate) fn call_at(address: usize) -> u32 {
    let pointer = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: see above.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(pointer) };
    function()
}

/// Reads memory by address, where no live handle covers it.
pub(crate) fn peek(range: Range<usize>) -> Vec<u8> {
    let start = std::ptr::with_exposed_provenance::<u8>(range.start);
    // SAFETY: the tests pass mapped ranges of packs that no thread writes at the moment.
    unsafe { std::slice::from_raw_parts(start, range.len()) }.to_vec()
}

/// One mapping as the kernel describes it.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) range: Range<usize>,
    pub(crate) permissions: String,
    pub(crate) inode: u64,
    pub(crate) name: String,
    pub(crate) flags: Vec<String>,
}

impl Mapping {
    pub(crate) fn has(&self, permission: char) -> bool {
        self.permissions.contains(permission)
    }

    pub(crate) fn flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }
}

/// Every mapping of this process, from /proc/self/smaps.
pub(crate) fn mappings() -> Vec<Mapping> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "VmFlags:" {
            let flags = words[1..].iter().map(|&flag| flag.to_owned()).collect();
            mappings.last_mut().unwrap().flags = flags;
        } else if let Some((start, end)) = words[0].split_once('-') {
            mappings.push(Mapping {
                range: usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap(),
                permissions: words[1].to_owned(),
                inode: words[4].parse().unwrap(),
                name: words[5..].join(" "),
                flags: Vec::new(),
            });
        }
    }
    assert!(mappings.len() > 5, "smaps was not understood");
    static ARE_WHOLE: OnceLock<bool> = OnceLock::new();
    if !ARE_WHOLE.get_or_init(probe::neighbours_are_one_mapping) {
        // Then the parts of a mapping are joined here.
        mappings.dedup_by(|next, before| {
            let is_part = before.range.end == next.range.start
                && (&before.permissions, before.inode, &before.name)
                    == (&next.permissions, next.inode, &next.name);
            if is_part {
                before.range.end = next.range.end;
            }
            is_part
        });
    }
    mappings
}

/// The mappings inside the arena's range.
pub(crate) fn executable_views(arena: &Arena) -> Vec<Mapping> {
    let range = arena.range();
    let inside = |mapping: &Mapping| range.start <= mapping.range.start && mapping.range.end <= range.end;
    mappings().into_iter().filter(|mapping| inside(mapping) && mapping.has('x')).collect()
}

/// The mappings of the same files outside of the arena's range.
pub(crate) fn writable_views(arena: &Arena) -> Vec<Mapping> {
    let inodes: Vec<u64> = executable_views(arena).iter().map(|mapping| mapping.inode).collect();
    let range = arena.range();
    let outside = |mapping: &Mapping| !range.contains(&mapping.range.start);
    mappings().into_iter().filter(|mapping| outside(mapping) && inodes.contains(&mapping.inode)).collect()
}

/// The environment variable that makes a test do in a child what its parent watches.
const CHILD: &str = "SKEP_TEXT_CHILD";

pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the calling test again as a child, in which [`is_child`] is true.
pub(crate) fn run_as_child() -> ExitStatus {
    run_as_child_with("1")
}

/// As [`run_as_child`], with an argument, which the child gets from [`child_argument`].
pub(crate) fn run_as_child_with(argument: &str) -> ExitStatus {
    skep_testkit::this_test().env(CHILD, argument).status().unwrap()
}

pub(crate) fn child_argument() -> String {
    std::env::var(CHILD).unwrap()
}

/// Some children die of a signal; their memory is of no interest.
pub(crate) fn dump_no_core() {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
}

/// Whether it becomes true before patience ends.
pub(crate) fn eventually(is_true: impl Fn() -> bool) -> bool {
    for _ in 0..2000 {
        if is_true() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    false
}

/// SplitMix64: good enough to shuffle a test, and the same every time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % limit as u64) as usize
    }
}
