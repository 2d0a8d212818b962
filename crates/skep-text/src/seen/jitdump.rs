//! jitdump: a binary log of all code, with the time of each text and its bytes, for `perf inject --jit`.
//!
//! ```text
//!   file header    | magic | version | size | machine | 0 | process | time (8) | flags (8) |         40 bytes
//!   LOAD           | 0 | size | time (8) | process | thread | address (8) | address (8) |
//!                  | length (8) | index (8) | name, zero | code |                            56 bytes and more
//!   CLOSE          | 3 | 16 | time (8) |                                           when the last arena is gone
//! ```
//!
//! Numbers have 4 bytes where nothing else is said, in the machine's own order. Times are nanoseconds of
//! CLOCK_MONOTONIC, as those of `perf record --clockid mono` (Linux, tools/perf/Documentation/
//! jitdump-specification.txt, version 1).
//!
//! perf learns of the file by a *marker*: the process maps the first page of it executable, once, and perf's recording
//! has that mapping with the file's name. The page is never run, nor is it writable.
//!
//! Protocol: arenas of a process share one file for each directory. It stays open and mapped as long as the process
//! lives, so that a profiler that attaches late sees the marker, and an arena made after the last one was dropped
//! continues the same file, overwriting the CLOSE.
//!
//! Invariants: records are whole and in order of time; a partly written record is cut off again.
//!
//! What would break it: a second writer of the same file, which is why a file that the process has mapped is
//! refused.

use std::fs;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

use super::file::{self, Existing, Loss};
use super::{Missed, Tool};
use crate::arch;
use crate::error::{During, Error, SystemCall};

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const FILE_HEADER: usize = 40;
const LOAD_HEADER: usize = 56;
const CLOSE_RECORD: usize = 16;

const LOAD: u32 = 0;
const CLOSE: u32 = 3;

/// One arena's share of a dump.
pub(super) struct JitDump {
    dump: Arc<Dump>,
}

struct Dump {
    path: PathBuf,
    file: OwnedFd,
    /// The process that may write.
    process: u32,
    state: Mutex<State>,
}

struct State {
    /// Where the next record goes.
    end: u64,
    /// The number of the next text.
    index: u64,
    /// Number of arenas that write.
    users: usize,
    loss: Loss,
}

/// The dumps of this process, and after a fork those of its parent.
static OPEN: Mutex<Vec<Arc<Dump>>> = Mutex::new(Vec::new());

impl JitDump {
    pub(super) fn open(directory: &Path) -> Result<Self, Error> {
        let process = std::process::id();
        let path = directory.join(format!("jit-{process}.dump"));
        let mut open = file::lock(&OPEN);
        open.retain(|dump| dump.process == process && file::is_still_at(&dump.file, &dump.path));
        // Compared by file and not by name: a directory has many names.
        let dump = match open.iter().find(|dump| file::is_still_at(&dump.file, &path)) {
            Some(dump) => Arc::clone(dump),
            None => {
                let dump = Arc::new(Dump::create(path, process)?);
                open.push(Arc::clone(&dump));
                dump
            }
        };
        file::lock(&dump.state).users += 1;
        Ok(Self { dump })
    }

    pub(super) fn add(&self, name: &str, address: usize, code: &[u8]) {
        let Dump { process, file, state, .. } = &*self.dump;
        if *process != std::process::id() {
            return;
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut state = file::lock(state);
        if state.loss.count_if_stopped() {
            return;
        }
        let size = LOAD_HEADER + name.len() + 1 + code.len();
        let Ok(size32) = u32::try_from(size) else {
            return state.loss.stop(Errno::FBIG);
        };
        let mut header = Vec::with_capacity(LOAD_HEADER + name.len() + 1);
        push_header(&mut header, LOAD, size32);
        header.extend_from_slice(&process.to_ne_bytes());
        header.extend_from_slice(&thread.to_ne_bytes());
        for word in [address as u64, address as u64, code.len() as u64, state.index] {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        header.extend_from_slice(name.as_bytes());
        header.push(0);
        match write_whole(file, state.end, &header, code) {
            Ok(()) => {
                state.end += u64::from(size32);
                state.index += 1;
            }
            Err(errno) => state.loss.stop(errno),
        }
    }

    pub(super) fn missed(&self) -> Option<Missed> {
        file::lock(&self.dump.state).loss.report(Tool::Jitdump)
    }
}

impl Drop for JitDump {
    fn drop(&mut self) {
        if self.dump.process != std::process::id() {
            return;
        }
        let mut state = file::lock(&self.dump.state);
        state.users -= 1;
        if state.users == 0 && state.loss.reason.is_none() {
            let mut record = Vec::with_capacity(CLOSE_RECORD);
            push_header(&mut record, CLOSE, CLOSE_RECORD as u32);
            // The record is optional; `end` stays, so that a later record overwrites it.
            let _ = write_whole(&self.dump.file, state.end, &record, &[]);
        }
    }
}

impl Dump {
    fn create(path: PathBuf, process: u32) -> Result<Self, Error> {
        const STEP: SystemCall = SystemCall::OpenJitdump;
        if let Some(old) = file::look(&path, STEP)? {
            file::check(&path, &old)?;
            if is_mapped(&path, old.st_ino) {
                return Err(Error::NotOurs {
                    path,
                    found: "is being written by another compiler in this process",
                });
            }
            rustix::fs::unlink(&path).during(STEP)?;
        }
        let file = file::open(&path, Existing::Refuse, OFlags::RDWR, STEP)?;

        let mut header = Vec::with_capacity(FILE_HEADER);
        for word in [MAGIC, VERSION, FILE_HEADER as u32, u32::from(arch::ELF_MACHINE), 0, process] {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        header.extend_from_slice(&now().to_ne_bytes());
        header.extend_from_slice(&0u64.to_ne_bytes());
        let marked = write_whole(&file, 0, &header, &[]).during(STEP).and_then(|()| {
            // SAFETY: a new mapping at an address that the kernel chooses; it is never read.
            unsafe {
                mmap(
                    ptr::null_mut(),
                    page_size(),
                    ProtFlags::READ | ProtFlags::EXEC,
                    MapFlags::PRIVATE,
                    &file,
                    0,
                )
            }
            .during(SystemCall::MarkJitdump)
        });
        if let Err(error) = marked {
            let _ = rustix::fs::unlink(&path);
            return Err(error);
        }
        let state = State { end: FILE_HEADER as u64, index: 0, users: 0, loss: Loss::default() };
        Ok(Self { path, file, process, state: Mutex::new(state) })
    }
}

/// The beginning of every record, with the time.
fn push_header(out: &mut Vec<u8>, kind: u32, size: u32) {
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&size.to_ne_bytes());
    out.extend_from_slice(&now().to_ne_bytes());
}

/// Nanoseconds of CLOCK_MONOTONIC.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Writes both, or cuts off what was written.
fn write_whole(file: &OwnedFd, at: u64, head: &[u8], tail: &[u8]) -> Result<(), Errno> {
    let whole = head.len() + tail.len();
    let mut written = 0;
    while written < whole {
        let (head, tail) =
            (&head[written.min(head.len())..], &tail[written.saturating_sub(head.len()).min(tail.len())..]);
        let parts = [IoSlice::new(head), IoSlice::new(tail)];
        match retry_on_intr(|| rustix::io::pwritev(file, &parts, at + written as u64)) {
            Ok(0) => return cut(file, at, Errno::NOSPC),
            Ok(count) => written += count,
            Err(errno) => return cut(file, at, errno),
        }
    }
    Ok(())
}

fn cut(file: &OwnedFd, at: u64, reason: Errno) -> Result<(), Errno> {
    // Where even this is refused, the reader finds a record that is longer than the file.
    let _ = rustix::fs::ftruncate(file, at);
    Err(reason)
}

/// Whether this process has the file mapped, as the marker of a dump that is in use.
fn is_mapped(path: &Path, inode: u64) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // proc_pid_maps(5): the fifth word is the inode, and what follows is the name.
    maps.lines().any(|line| {
        line.ends_with(&*name) && line.split_whitespace().nth(4).is_some_and(|word| word.parse() == Ok(inode))
    })
}
