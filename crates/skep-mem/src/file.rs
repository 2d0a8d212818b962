//! Memory in a file, which other processes can map.
//!
//! ```text
//!   this process   | base ...................... base + len |
//!                        \________ same pages ________/
//!   another        | ... its own mapping of file() ... |
//! ```
//!
//! The file exists in memory alone (memfd_create(2)). Its size never changes, so no access to the mapping can fail.
//!
//! Memory that must never change again, because somebody relies on what it says, is sealed (`F_SEAL_WRITE`). The kernel
//! does that only while nobody has it mapped writable, so this process first replaces its own mapping by one for
//! reading.

use std::ptr::{self, NonNull};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::Error;

/// Another process can write to the memory through a mapping of its own, so it cannot become constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another process has mapped the memory for writing: it must unmap it first")]
pub struct Mapped;

/// An empty file in memory, for [`Block::in_given_file`](crate::Block::in_given_file). `name` is for people: `/proc`
/// shows it.
///
/// # Errors
///
/// [`Error::OutOfMemory`], also if there are too many open files.
pub fn memory_file(name: &str) -> Result<OwnedFd, Error> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know that flag.
        Err(rustix::io::Errno::INVAL) => memfd_create(name, flags),
        made => made,
    };
    file.map_err(|_| Error::OutOfMemory { bytes: 0 })
}

#[derive(Debug)]
pub(crate) struct FileMemory {
    base: NonNull<u8>,
    len: usize,
    file: OwnedFd,
}

// SAFETY: plain memory that belongs to no thread; it is reached only through raw pointers, and their users guarantee
// that accesses are valid.
unsafe impl Send for FileMemory {}
// SAFETY: as above; the methods read the immutable fields only.
unsafe impl Sync for FileMemory {}

impl FileMemory {
    /// `len` is not 0, and is rounded up to whole pages.
    pub(crate) fn new(name: &str, len: usize) -> Result<Self, Error> {
        Self::of(memory_file(name)?, len)
    }

    /// The same in a file that exists. Others may have it already, so its size is looked at once it cannot change.
    pub(crate) fn of(file: OwnedFd, len: usize) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: 1, size: len };
        let len = len
            .checked_next_multiple_of(page())
            .filter(|&len| len <= isize::MAX as usize)
            .ok_or(too_large)?;
        let refused = |_| Error::OutOfMemory { bytes: len };
        ftruncate(&file, len as u64).map_err(refused)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(refused)?;
        if fstat(&file).map_err(refused)?.st_size as u64 != len as u64 {
            return Err(Error::OutOfMemory { bytes: len });
        }
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address that the system chooses, affects no other memory.
        let base = unsafe { mmap(ptr::null_mut(), len, both, MapFlags::SHARED, &file, 0) };
        let base = base.map_err(refused)?;
        let base = NonNull::new(base.cast()).ok_or(Error::OutOfMemory { bytes: len })?;
        Ok(Self { base, len, file })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// See [`Block::make_constant`](crate::Block::make_constant).
    ///
    /// # Safety
    ///
    /// This process does not write to the memory during the call nor, if it succeeds, afterwards.
    pub(crate) unsafe fn make_constant(&self) -> Result<(), Mapped> {
        // A private mapping that nobody writes to shows the file, and is none by which the file could be changed.
        // SAFETY: by the caller's contract.
        if !unsafe { self.map_again(ProtFlags::READ, MapFlags::PRIVATE) } {
            return Err(Mapped);
        }
        if fcntl_add_seals(&self.file, SealFlags::WRITE).is_ok() {
            return Ok(());
        }
        // SAFETY: as it was before. If the kernel refuses, which it does for want of memory, the old mapping stays:
        // then the memory can be read, and a write would end the process.
        let again = unsafe { self.map_again(ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED) };
        // Whoever has the file may have forbidden new writers, this process included. Then what is written from now on
        // is this process's own.
        // SAFETY: as above.
        let again = again || unsafe { self.map_again(ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        assert!(again, "memory that could not become constant cannot be mapped for writing again either");
        Err(Mapped)
    }

    /// See [`Block::refuse_writers`](crate::Block::refuse_writers).
    pub(crate) fn refuse_writers(&self) {
        // Linux before 5.1 does not know it, and whoever has the file may have forbidden seals.
        let _sealed = fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE);
    }

    /// Puts another mapping of the file at the same address, in one step: readers notice nothing.
    ///
    /// # Safety
    ///
    /// The process accesses the memory only as the new protection allows.
    unsafe fn map_again(&self, protection: ProtFlags, flags: MapFlags) -> bool {
        let (base, flags) = (self.base.as_ptr().cast(), flags | MapFlags::FIXED);
        // SAFETY: replaces our own mapping by one of the same length with the same bytes.
        unsafe { mmap(base, self.len, protection, flags, &self.file, 0) }.is_ok()
    }
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and unmapped only here. A failure leaks the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a page.
fn page() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another mapping of the same file.
    fn other(memory: &FileMemory, protection: ProtFlags) -> rustix::io::Result<Mapping> {
        // SAFETY: a new mapping at an address that the system chooses.
        let base =
            unsafe { mmap(ptr::null_mut(), memory.len, protection, MapFlags::SHARED, &memory.file, 0)? };
        Ok(Mapping(base.cast(), memory.len))
    }

    struct Mapping(*mut u8, usize);

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `other`.
            unsafe { munmap(self.0.cast(), self.1) }.unwrap();
        }
    }

    const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    #[test]
    fn what_is_written_on_one_side_is_read_on_the_other() {
        let memory = FileMemory::new("test", page() + 1).unwrap();
        assert_eq!(memory.len(), 2 * page());
        let other = other(&memory, BOTH).unwrap();
        // SAFETY: both mappings have two pages, and this thread alone accesses them.
        unsafe {
            memory.base().write(7);
            assert_eq!(other.0.read(), 7);
            other.0.add(page()).write(9);
            assert_eq!(memory.base().add(page()).read(), 9);
        }
    }

    #[test]
    fn nobody_shrinks_the_file_under_the_mapping() {
        let memory = FileMemory::new("test", page()).unwrap();
        assert!(ftruncate(memory.file(), 0).is_err());
        assert!(ftruncate(memory.file(), 3 * page() as u64).is_err());
    }

    #[test]
    fn a_file_that_somebody_keeps_from_growing_becomes_no_memory() {
        let file = memory_file("test").unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        assert!(FileMemory::of(file, page()).is_err());
        let file = memory_file("test").unwrap();
        ftruncate(&file, 100 * page() as u64).unwrap();
        assert_eq!(fstat(FileMemory::of(file, page()).unwrap().file()).unwrap().st_size as usize, page());
    }

    #[test]
    fn constant_memory_keeps_its_bytes_and_takes_no_writer() {
        let memory = FileMemory::new("test", page()).unwrap();
        // SAFETY: within the memory, which this thread alone has.
        unsafe { memory.base().write(7) };
        let writer = other(&memory, BOTH).unwrap();
        // SAFETY: nothing is written below while the memory is constant.
        assert_eq!(unsafe { memory.make_constant() }, Err(Mapped));
        // SAFETY: it is not constant.
        unsafe { memory.base().write(8) };
        drop(writer);
        // SAFETY: nothing is written below.
        assert_eq!(unsafe { memory.make_constant() }, Ok(()));
        // SAFETY: for reading only.
        assert_eq!(unsafe { memory.base().read() }, 8);
        assert!(other(&memory, BOTH).is_err());
        assert!(rustix::io::pwrite(memory.file(), &[1], 0).is_err());
        // SAFETY: for reading only.
        assert_eq!(unsafe { memory.base().read() }, 8);
    }

    #[test]
    fn somebody_who_writes_and_forbids_writers_takes_the_memory_from_nobody() {
        let memory = FileMemory::new("test", page()).unwrap();
        // SAFETY: within the memory, which this thread alone has.
        unsafe { memory.base().write(7) };
        let writer = other(&memory, BOTH).unwrap();
        fcntl_add_seals(memory.file(), SealFlags::FUTURE_WRITE).unwrap();
        // SAFETY: nothing is written below while the memory is constant.
        assert_eq!(unsafe { memory.make_constant() }, Err(Mapped));
        // SAFETY: it is not constant.
        unsafe { memory.base().write(8) };
        // SAFETY: as above.
        assert_eq!(unsafe { memory.base().read() }, 8);
        drop(writer);
        // SAFETY: nothing is written below.
        assert_eq!(unsafe { memory.make_constant() }, Ok(()));
        // SAFETY: for reading only.
        assert_eq!(unsafe { memory.base().read() }, 7, "what the file has");
    }

    #[test]
    fn refused_writers_may_still_read() {
        let memory = FileMemory::new("test", page()).unwrap();
        memory.refuse_writers();
        assert!(other(&memory, BOTH).is_err());
        // SAFETY: within the memory, which this thread alone has.
        unsafe { memory.base().write(5) };
        let mut bytes = [0];
        assert_eq!(rustix::io::pread(memory.file(), &mut bytes, 0), Ok(1));
        assert_eq!(bytes, [5]);
    }
}
