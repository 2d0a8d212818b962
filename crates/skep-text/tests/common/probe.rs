//! Detects what tests can observe on this system, by trying it with memory that is unrelated to the crate. The tests
//! inside the crate share it (`src/tests`).

#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::ffi::c_void;
use std::ptr::null_mut;

use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::{mm, param};
use skep_testkit::{Hidden, hidden};

/// Some pages of our own.
struct Pages {
    at: *mut c_void,
    len: usize,
}

impl Pages {
    fn new(count: usize, protection: ProtFlags, flags: MapFlags) -> Self {
        let len = count * param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { mm::mmap_anonymous(null_mut(), len, protection, flags) }.unwrap();
        Self { at, len }
    }

    fn protect(&self, page: usize, flags: MprotectFlags) {
        let at = self.at.wrapping_byte_add(page * param::page_size());
        // SAFETY: our own, and unused.
        unsafe { mm::mprotect(at, param::page_size(), flags) }.unwrap();
    }

    fn advise(&self, advice: Advice) {
        // SAFETY: our own, and unused.
        unsafe { mm::madvise(self.at, self.len, advice) }.unwrap();
    }

    /// The lines of a file of /proc from our mapping's on.
    fn told(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(file).unwrap();
        let first = format!("{:x}-", self.at.addr());
        text.lines().skip_while(|line| !line.starts_with(&first)).map(str::to_owned).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own, and unused.
        let _ = unsafe { mm::munmap(self.at, self.len) };
    }
}

/// Whether /proc/self/maps shows equal adjacent mappings as one line.
pub(crate) fn neighbours_are_one_mapping() -> bool {
    let pages = Pages::new(2, ProtFlags::empty(), MapFlags::PRIVATE);
    pages.protect(0, MprotectFlags::READ);
    pages.protect(1, MprotectFlags::READ);
    let end = format!("-{:x} ", pages.at.addr() + pages.len);
    pages.told("/proc/self/maps").first().is_some_and(|line| line.contains(&end))
}

/// Whether smaps shows the kernel's flags of a mapping, such as that a child does not inherit it.
pub(crate) fn flags_are_told() -> bool {
    let pages = Pages::new(1, ProtFlags::READ, MapFlags::PRIVATE);
    pages.advise(Advice::LinuxDontFork);
    let told = pages.told("/proc/self/smaps");
    let flags = told.iter().find(|line| line.starts_with("VmFlags:"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "dc"))
}

/// Whether smaps shows how much memory a mapping has.
pub(crate) fn resident_memory_is_told() -> bool {
    let pages = Pages::new(1, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: our own.
    unsafe { pages.at.cast::<u8>().write_volatile(1) };
    let told = pages.told("/proc/self/smaps");
    let resident = told.iter().find_map(|line| line.strip_prefix("Rss:"));
    resident.is_some_and(|kilobytes| kilobytes.trim() != "0 kB")
}

/// Whether a child lacks mappings that it must not inherit.
pub(crate) fn children_do_not_inherit_everything() -> bool {
    let pages = Pages::new(1, ProtFlags::READ, MapFlags::PRIVATE);
    pages.advise(Advice::LinuxDontFork);
    let mut resident = 0_u8;
    // SAFETY: the child makes one system call, which answers ENOMEM for what is not mapped, and exits.
    let status = unsafe { skep_testkit::in_a_child(|| libc::mincore(pages.at, 1, &mut resident)) };
    !status.success()
}

/// Whether a shared mapping can be mapped a second time, by mremap(2) with an old size of 0.
pub(crate) fn mappings_can_be_doubled() -> bool {
    let pages = Pages::new(1, ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice.
    match unsafe { mm::mremap(pages.at, 0, pages.len, MremapFlags::MAYMOVE) } {
        Ok(at) => {
            drop(Pages { at, len: pages.len });
            true
        }
        Err(_) => false,
    }
}

/// Whether `len` bytes can be mapped somewhere within `window` bytes of `address`, whatever maps says.
pub(crate) fn there_is_room_near(address: usize, len: usize, window: usize) -> bool {
    const STEP: usize = 2 << 20;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let lowest = address.saturating_sub(window).next_multiple_of(STEP);
    (lowest..address + window - len).step_by(STEP).any(|start| {
        let at = std::ptr::without_provenance_mut(start);
        // SAFETY: a new mapping at a free address; otherwise it is refused.
        let made = unsafe { mm::mmap_anonymous(at, len, ProtFlags::empty(), flags) };
        made.map(|at| drop(Pages { at, len })).is_ok()
    })
}

/// Returns `is_shown`; if false, reports that `what` cannot be seen, for that reason.
pub(crate) fn shown(is_shown: bool, reason: Hidden, what: &str) -> bool {
    if !is_shown {
        hidden(reason, what);
    }
    is_shown
}
