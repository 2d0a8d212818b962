//! One piece of code memory and its two views.
//!
//! ```text
//!                  memfd "skep-text"           sealed: FUTURE_WRITE SHRINK GROW SEAL; its descriptors are closed
//!                 /                 \
//!   executable view                  writable view
//!   r-xs, at its place in the        rw-s, at a random place between guard pages,
//!   arena's range                    not copied into children
//! ```
//!
//! The problem: code must be written, and memory that is writable and executable at once must never exist, not
//! even for a moment; and changing protections back and forth costs microseconds and splits huge pages. So each
//! page is mapped twice. The executable view comes from a descriptor opened read-only, so `mprotect` cannot make it
//! writable; the file is sealed, so nobody can map it writable again; the writable view was never executable and
//! the kernel's memory-deny-write-execute policies have nothing to object to.
//!
//! Protocol of birth, in which each step is undone when a later one fails: file, traps, writable view (mapped
//! inaccessible, hidden from children, only then made writable), seals, executable view, descriptors closed.
//!
//! What would break it: a descriptor that outlives this function; an executable view made before the traps.

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use rustix::param::page_size;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::{fs, mm};

use crate::error::{During, Error, Step};
use crate::{PACK_BYTES, arch, range};

/// Memory with an executable and a writable view, filled with traps at birth.
pub(crate) struct Pack {
    executable: Range<usize>,
    /// None for anonymous memory.
    writable: Option<WritableView>,
}

impl Pack {
    /// Makes `len` bytes of code memory and maps them executable at `place`.
    ///
    /// # Safety
    ///
    /// `place` and the `len` bytes after it belong to a reservation of the caller's and are unused.
    pub(crate) unsafe fn new(place: usize, len: usize, anonymous: bool) -> Result<Self, Error> {
        if anonymous {
            // SAFETY: the caller's.
            return unsafe { Self::anonymous(place, len) };
        }
        // SAFETY: the caller's.
        unsafe { Self::with_file(place, len) }.map(|(pack, _descriptors)| pack)
    }

    /// As [`new`](Self::new), of private anonymous memory without a writable view: what perf looks up in its map, and
    /// what GDB can set breakpoints in.
    unsafe fn anonymous(place: usize, len: usize) -> Result<Self, Error> {
        let len = len.next_multiple_of(page_size());
        let at = ptr::without_provenance_mut(place);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        // SAFETY: MAP_FIXED replaces part of the caller's reservation, which nothing uses.
        unsafe { mm::mmap_anonymous(at, len, ProtFlags::READ | ProtFlags::EXEC, flags) }
            .during(Step::MapExecutable)?;
        let pack = Self { executable: place..place + len, writable: None };
        match write_by_force(place, &arch::TRAP.repeat(len / arch::TRAP.len())) {
            Ok(()) => Ok(pack),
            Err(errno) => {
                // SAFETY: the mapping made above.
                let _ = unsafe { pack.unmap() };
                Err(errno).during(Step::AllocateFile)
            }
        }
    }

    /// As [`new`](Self::new), with the descriptors, which must not outlive the caller.
    unsafe fn with_file(place: usize, len: usize) -> Result<(Self, [OwnedFd; 2]), Error> {
        let len = len.next_multiple_of(page_size());
        let file = create_file()?;
        // Written, not mapped and filled: running out of memory is an error here and not a signal at the first store.
        // It is faster, too.
        write_traps(&file, len).during(Step::AllocateFile)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let read_only =
            fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).during(Step::ReopenFile)?;

        let writable = WritableView::new(&file, len, place)?;
        let seals = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fs::fcntl_add_seals(&file, seals).during(Step::SealFile)?;

        let at = ptr::without_provenance_mut(place);
        let protection = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: MAP_FIXED replaces part of the caller's reservation, which nothing uses.
        unsafe { mm::mmap(at, len, protection, MapFlags::SHARED | MapFlags::FIXED, &read_only, 0) }
            .during(Step::MapExecutable)?;
        // SAFETY: both views are of the same `len` bytes.
        unsafe { arch::publish(writable.start.as_ptr(), ptr::without_provenance(place), len) };
        Ok((Self { executable: place..place + len, writable: Some(writable) }, [file, read_only]))
    }

    /// Where the code is executed.
    pub(crate) fn executable(&self) -> &Range<usize> {
        &self.executable
    }

    /// The same byte in the writable view as `address` is in the executable one.
    pub(crate) fn writable_at(&self, address: usize) -> NonNull<u8> {
        debug_assert!(self.executable.contains(&address));
        match &self.writable {
            // SAFETY: the views have the same length, and the caller's address is in the first.
            Some(view) => unsafe { view.start.add(address - self.executable.start) },
            None => NonNull::new(ptr::with_exposed_provenance_mut(address)).expect("not at null"),
        }
    }

    /// Makes the place inaccessible again and lets the memory go. Gives the pack back when the system refuses.
    ///
    /// # Safety
    ///
    /// Nobody runs, reads or writes anything in the pack.
    pub(crate) unsafe fn unmap(self) -> Result<(), Self> {
        // SAFETY: the executable view replaced a part of the reservation; the caller's for the rest.
        match unsafe { range::reserve_again(self.executable.clone()) } {
            Ok(()) => Ok(()),
            Err(_) => Err(self),
        }
    }

    /// Lets go of the writable view's addresses without unmapping them: in a forked child there is no such view.
    pub(crate) fn forget(self) {
        std::mem::forget(self.writable);
    }
}

/// The only place in the process through which the code can be written.
struct WritableView {
    start: NonNull<u8>,
    /// The view with the guards around it.
    whole: Range<usize>,
}

// SAFETY: an address range; who may write where is for the owners of the chunks to know.
unsafe impl Send for WritableView {}
// SAFETY: as above.
unsafe impl Sync for WritableView {}

impl WritableView {
    /// Maps `file` writable, far from `executable`.
    fn new(file: &OwnedFd, len: usize, executable: usize) -> Result<Self, Error> {
        let room = len.next_multiple_of(PACK_BYTES) + 2 * PACK_BYTES;
        let whole =
            range::reserve(random_hint(executable), room, MapFlags::empty()).during(Step::MapWritable)?;
        // The same offset within a huge page as the executable view has, which one huge page in both needs.
        let start = (whole.start + page_size()).next_multiple_of(PACK_BYTES);
        let at = ptr::with_exposed_provenance_mut::<u8>(start);
        // From here on dropping it unmaps it.
        let view = Self { start: NonNull::new(at).ok_or_else(no_such_place)?, whole };
        let at = at.cast::<c_void>();

        // A fork between two of these steps must not give the child a writable view: inaccessible, hidden, writable.
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: inside the reservation made above, which nobody knows.
        unsafe { mm::mmap(at, len, ProtFlags::empty(), flags, file.as_fd(), 0) }.during(Step::MapWritable)?;
        // SAFETY: the mapping made on the line before.
        unsafe { mm::madvise(at, len, Advice::LinuxDontFork) }.during(Step::HideFromChildren)?;
        // SAFETY: as above.
        unsafe { mm::mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE) }
            .during(Step::MapWritable)?;
        Ok(view)
    }
}

impl Drop for WritableView {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and the pack that goes with it has no users left. A failure leaks addresses.
        let _ = unsafe { mm::munmap(ptr::without_provenance_mut(self.whole.start), self.whole.len()) };
    }
}

/// Writes where this process may only read and execute, through /proc/self/mem.
pub(crate) fn write_by_force(place: usize, bytes: &[u8]) -> rustix::io::Result<()> {
    let file = fs::open("/proc/self/mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::io::pwrite(file, bytes, place as u64)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(Errno::NOMEM),
    }
}

fn create_file() -> Result<OwnedFd, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // NOEXEC_SEAL says that the *file* is never executed as a program; mapping it executable stays allowed, under
    // every setting of vm.memfd_noexec. Linux before 6.3 does not know it.
    match fs::memfd_create(c"skep-text", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => fs::memfd_create(c"skep-text", flags),
        result => result,
    }
    .during(Step::CreateFile)
}

/// Makes the file `len` bytes of traps.
fn write_traps(file: &OwnedFd, len: usize) -> rustix::io::Result<()> {
    let traps = arch::TRAP.repeat((1 << 16) / arch::TRAP.len());
    let mut written = 0;
    while written < len {
        let part = traps.len().min(len - written);
        match rustix::io::pwrite(file, &traps[..part], written as u64) {
            // A write may fall short; the next one begins at a whole instruction again.
            Ok(count) if count < arch::TRAP.len() => return Err(Errno::NOSPC),
            Ok(count) => written += count - count % arch::TRAP.len(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Somewhere in the address space, far from `place`: the kernel takes the next best when it is occupied or beyond
/// what this machine has.
fn random_hint(place: usize) -> usize {
    let mut bytes = [0; 8];
    // Early at boot there may be no random numbers; any place is better than none.
    let _ = getrandom(&mut bytes, GetRandomFlags::NONBLOCK);
    let hint = (usize::from_ne_bytes(bytes) & ((1 << 46) - 1)).next_multiple_of(PACK_BYTES);
    if hint.abs_diff(place) > 1 << 40 { hint } else { hint ^ 1 << 45 }
}

fn no_such_place() -> Error {
    Error::System { step: Step::MapWritable, error: Errno::INVAL.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Reservation;

    /// A pack with its descriptors still open, to try what a thief of a descriptor could.
    fn open_pack() -> (Pack, [OwnedFd; 2], Reservation) {
        let reservation = Reservation::new(PACK_BYTES, None).unwrap();
        // SAFETY: the reservation is ours and unused; it is dropped after the pack by the callers.
        let (pack, files) = unsafe { Pack::with_file(reservation.slots().start, PACK_BYTES) }.unwrap();
        (pack, files, reservation)
    }

    #[test]
    fn the_sealed_file_cannot_be_mapped_writable_written_or_resized_by_any_road() {
        let (pack, [file, read_only], _reservation) = open_pack();
        let map = |fd: &OwnedFd, protection, flags| {
            // SAFETY: a new mapping at an address of the kernel's choice.
            unsafe { mm::mmap(ptr::null_mut(), PACK_BYTES, protection, flags, fd, 0) }
        };
        let write = ProtFlags::READ | ProtFlags::WRITE;
        assert_eq!(map(&file, write, MapFlags::SHARED).unwrap_err(), Errno::PERM);
        assert_eq!(map(&read_only, write, MapFlags::SHARED).unwrap_err(), Errno::ACCESS);
        assert_eq!(rustix::io::pwrite(&file, b"x", 0).unwrap_err(), Errno::PERM);
        assert_eq!(rustix::io::pwrite(&read_only, b"x", 0).unwrap_err(), Errno::BADF);
        assert_eq!(fs::ftruncate(&file, 0).unwrap_err(), Errno::PERM);
        assert_eq!(fs::ftruncate(&file, 2 * PACK_BYTES as u64).unwrap_err(), Errno::PERM);
        assert_eq!(fs::fcntl_add_seals(&file, SealFlags::WRITE).unwrap_err(), Errno::PERM);

        // Mapped without write permission it cannot get it later either.
        let at = map(&file, ProtFlags::READ, MapFlags::SHARED).unwrap();
        // SAFETY: the mapping made on the line before, used by nobody.
        let made_writable =
            unsafe { mm::mprotect(at, PACK_BYTES, MprotectFlags::READ | MprotectFlags::WRITE) };
        assert_eq!(made_writable.unwrap_err(), Errno::ACCESS);
        // SAFETY: as above.
        unsafe { mm::munmap(at, PACK_BYTES) }.unwrap();

        // Opening the file again, as anybody who finds its name in /proc could, gives no more.
        let path = format!("/proc/self/fd/{}", read_only.as_raw_fd());
        let again = fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!(map(&again, write, MapFlags::SHARED).unwrap_err(), Errno::PERM);
        assert_eq!(rustix::io::pwrite(&again, b"x", 0).unwrap_err(), Errno::PERM);

        // SAFETY: nobody uses the pack.
        assert!(unsafe { pack.unmap() }.is_ok());
    }

    #[test]
    fn a_pack_is_full_of_traps_at_birth_in_both_views() {
        let (pack, _files, _reservation) = open_pack();
        for start in [pack.executable.start, pack.writable.as_ref().unwrap().start.as_ptr().addr()] {
            // SAFETY: a view of a live pack that nobody writes.
            let bytes =
                unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(start), PACK_BYTES) };
            assert!(bytes.chunks(arch::TRAP.len()).all(|bytes| bytes == arch::TRAP));
        }
        // SAFETY: nobody uses the pack.
        assert!(unsafe { pack.unmap() }.is_ok());
    }

    #[test]
    fn the_writable_view_is_nowhere_near_the_executable_one() {
        let (pack, _files, _reservation) = open_pack();
        let distance = pack.executable.start.abs_diff(pack.writable.as_ref().unwrap().start.as_ptr().addr());
        assert!(distance > 1 << 31, "{distance:#x}");
        // SAFETY: nobody uses the pack.
        assert!(unsafe { pack.unmap() }.is_ok());
    }

    #[test]
    fn each_view_has_the_same_place_within_a_huge_page() {
        let (pack, _files, _reservation) = open_pack();
        assert!(pack.writable.as_ref().unwrap().start.as_ptr().addr().is_multiple_of(PACK_BYTES));
        assert!(pack.executable.start.is_multiple_of(PACK_BYTES));
        // SAFETY: nobody uses the pack.
        assert!(unsafe { pack.unmap() }.is_ok());
    }
}
