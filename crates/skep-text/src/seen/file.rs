//! Files that tools read, in directories that others may write to.
//!
//! The problem: the names of these files can be guessed, and every user can write to `/tmp`. A symbolic or hard link
//! there to another of this user's files would make us write into that file; another user's file there would tell
//! that user where our code is, and let that user deceive the profiler.
//!
//! So a file is opened without following links, and used only if it is a plain file of this user's, with one name,
//! that no other user may write to. It is readable only for this user: `perf` as the same user or as root can read
//! it.
//!
//! An earlier process with the same number may have left a file. Its time reveals it: everything that this process
//! writes is newer than the process.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::{During, Error, SystemCall};

/// Whether an existing file may be opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Open,
    Refuse,
}

/// Opens `path` for writing, or creates the file.
pub(super) fn open(
    path: &Path,
    existing: Existing,
    flags: OFlags,
    call: SystemCall,
) -> Result<OwnedFd, Error> {
    // NONBLOCK: a FIFO without a reader is an error in place of a wait. It does nothing for plain files.
    let flags = flags | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let flags = if existing == Existing::Refuse { flags | OFlags::EXCL } else { flags };
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).during(call)?;
    check(path, &rustix::fs::fstat(&file).during(call)?)?;
    Ok(file)
}

/// Describes what `path` names, without following a link. `None` when there is nothing.
pub(super) fn look(path: &Path, call: SystemCall) -> Result<Option<Stat>, Error> {
    match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        result => result.map(Some).during(call),
    }
}

/// Refuses what another user could have made or could change.
pub(super) fn check(path: &Path, stat: &Stat) -> Result<(), Error> {
    let found = if FileType::from_raw_mode(stat.st_mode as RawMode) != FileType::RegularFile {
        "is not a plain file"
    } else if stat.st_uid != rustix::process::geteuid().as_raw() {
        "belongs to another user"
    } else if stat.st_nlink > 1 {
        "is also known by another name"
    } else if stat.st_mode & 0o022 != 0 {
        "can be written by other users"
    } else {
        return Ok(());
    };
    Err(Error::NotOurs { path: path.to_owned(), found })
}

/// Whether `file` is still what `path` names.
pub(super) fn is_still_at(file: &OwnedFd, path: &Path) -> bool {
    let named = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    matches!((rustix::fs::fstat(file.as_fd()), named), (Ok(ours), Ok(named))
        if (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino))
}

/// Whether a file was last written before this process began. False where that cannot be known.
pub(super) fn is_stale(stat: &Stat) -> bool {
    // The types of these fields differ between architectures.
    let (seconds, nanoseconds) = (i128::from(stat.st_mtime), stat.st_mtime_nsec as i128);
    process_start().is_some_and(|start| seconds * 1_000_000_000 + nanoseconds < i128::from(start))
}

/// When this process began, in nanoseconds of CLOCK_REALTIME.
fn process_start() -> Option<i64> {
    // proc_pid_stat(5): field 22 is the start in clock ticks since boot. The second field, in parentheses, may hold
    // anything, also parentheses.
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: i64 = stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()?;
    let since_boot = ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second() as i64);
    let now = |clock| {
        let now = clock_gettime(clock);
        now.tv_sec * 1_000_000_000 + now.tv_nsec
    };
    Some(now(ClockId::Realtime) - now(ClockId::Boottime) + since_boot)
}

/// What was not written.
#[derive(Default)]
pub(super) struct Loss {
    pub(super) texts: u64,
    pub(super) reason: Option<Errno>,
}

impl Loss {
    /// Whether writing has stopped for good; then one more text is missing.
    pub(super) fn count_if_stopped(&mut self) -> bool {
        self.texts += u64::from(self.reason.is_some());
        self.reason.is_some()
    }

    /// Stops writing for good.
    pub(super) fn stop(&mut self, reason: Errno) {
        self.texts += 1;
        self.reason = Some(reason);
    }

    pub(super) fn report(&self, tool: super::Tool) -> Option<super::Missed> {
        self.reason.map(|reason| super::Missed { tool, texts: self.texts, reason: reason.into() })
    }
}

/// Nothing panics under these locks; were one poisoned all the same, what it guards is whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_began_before_now_and_after_boot() {
        let now = clock_gettime(ClockId::Realtime);
        let now = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        let up = clock_gettime(ClockId::Boottime);
        let start = process_start().unwrap();
        assert!(start < now && now - up.tv_sec * 1_000_000_000 - 2_000_000_000 < start);
    }
}
