//! Programs of the running kernel, and memory of its maps that is shared with this process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::LinuxMap;
use crate::bpf::{self, Load};

/// The maximum number of programs that one process loads.
pub const MOST_PROGRAMS: u32 = 10;

/// `BPF_PROG_TYPE_SYSCALL`: a program that runs only by the system call.
const SYSCALL: u32 = 31;
/// `BPF_F_SLEEPABLE`, which programs of that type require.
const SLEEPABLE: u32 = 1 << 4;
/// A program of the running kernel, which runs on request and is attached nowhere. It exists until this is dropped.
#[derive(Debug)]
pub struct LinuxProgram(OwnedFd);

impl LinuxProgram {
    /// Lets the kernel verify a program, given as bytes of instructions that name maps by their descriptors.
    ///
    /// # Errors
    ///
    /// The kernel's, with the end of its verifier's log.
    ///
    /// # Panics
    ///
    /// If this process has already loaded [`MOST_PROGRAMS`].
    pub fn load(code: &[u8]) -> Result<Self, (io::Error, String)> {
        static LOADED: AtomicU32 = AtomicU32::new(0);
        assert!(
            LOADED.fetch_add(1, Ordering::Relaxed) < MOST_PROGRAMS,
            "more than {MOST_PROGRAMS} programs in one process"
        );
        let log = (bpf::LOG_STATS, 1 << 16);
        let program = Load { kind: SYSCALL, flags: SLEEPABLE, code, log_level: log.0, log_size: log.1 };
        bpf::load(&program).map(|(descriptor, _)| Self(descriptor))
    }

    /// Runs it once without a context; returns its result.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn run(&self) -> io::Result<u32> {
        bpf::test_run(self.0.as_fd(), &[], &mut [], 0).map(|(result, _)| result)
    }
}

/// Memory of a map, shared with the kernel and its programs: all accesses are atomic.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is accessed by atomic operations.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps a part of a map's memory; both offset and length are multiples of the page size.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn of(map: &LinuxMap, offset: usize, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, map.fd(), offset) };
        let mapped = NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED);
        mapped.map(|base| Self { base, len, writable }).ok_or_else(io::Error::last_os_error)
    }

    /// The 32-bit word at that offset.
    pub fn load4(&self, at: usize) -> u32 {
        // SAFETY: within the mapping, and aligned.
        unsafe { (*self.place(at, 4).cast::<AtomicU32>()).load(Ordering::Acquire) }
    }

    /// The 64-bit word at that offset.
    pub fn load8(&self, at: usize) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.place(at, 8).cast::<AtomicU64>()).load(Ordering::Acquire) }
    }

    /// Sets the 64-bit word at that offset.
    ///
    /// # Panics
    ///
    /// If the memory is mapped read-only.
    pub fn store8(&self, at: usize, value: u64) {
        assert!(self.writable, "memory that is only read");
        // SAFETY: as above, and mapped to be written.
        unsafe { (*self.place(at, 8).cast::<AtomicU64>()).store(value, Ordering::Release) };
    }

    /// A copy of bytes.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        // SAFETY: each within the mapping.
        let byte = |at| unsafe { (*self.place(at, 1).cast::<AtomicU8>()).load(Ordering::Relaxed) };
        (at..at + len).map(byte).collect()
    }

    /// Writes bytes.
    ///
    /// # Panics
    ///
    /// If the memory is mapped read-only.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(self.writable, "memory that is only read");
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping, and mapped to be written.
            unsafe { (*self.place(at + index, 1).cast::<AtomicU8>()).store(*byte, Ordering::Relaxed) };
        }
    }

    /// The address of an aligned word of that many bytes.
    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.is_multiple_of(bytes) && at + bytes <= self.len, "no word of {bytes} bytes at {at}");
        self.base.as_ptr().wrapping_add(at)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and no address in it is in use any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Observes whether a map wakes a thread that waits for its data.
#[derive(Debug)]
pub struct Waiter(OwnedFd);

impl Waiter {
    /// Starts observing; the map has no data now.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn of(map: &LinuxMap) -> io::Result<Self> {
        // SAFETY: takes no addresses.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just created this descriptor, and only this process owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Edge-triggered: the wake-up counts, not the presence of data.
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: both descriptors are open, and the event outlives the call.
        let added = unsafe { libc::epoll_ctl(fd.as_raw_fd(), libc::EPOLL_CTL_ADD, map.fd(), &raw mut event) };
        if added < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(fd)) }
    }

    /// Whether a wake-up came since the last call, or comes within that time.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn was_told(&self, millis: i32) -> io::Result<bool> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        let told = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, millis) };
        if told < 0 { Err(io::Error::last_os_error()) } else { Ok(told == 1) }
    }
}
