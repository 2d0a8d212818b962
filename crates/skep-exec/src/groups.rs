//! Control groups: directories of the system's own hierarchy.
//!
//! A group is known by the number of its directory, which is not used again. Programs are attached in the supervisor
//! alone, so a process needs no right to the group.

use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, fstatfs, openat};
use skep_sys::{ControlGroup, Errno};
use std::collections::HashMap;

/// The magic number of version 2 of control groups' file system.
const CGROUP2: i64 = 0x6367_7270;
/// The most groups in each other.
const DEPTH: usize = 256;

/// The group of a directory, with those around it as far as the caller sees them.
pub(crate) fn group(directory: &OwnedFd) -> Result<ControlGroup, Errno> {
    if fstatfs(directory).or(Err(Errno::EBADF))?.f_type as i64 != CGROUP2 {
        return Err(Errno::EBADF);
    }
    let start = fstat(directory).or(Err(Errno::EBADF))?;
    let (mut outer, mut inner) = (Vec::new(), start.st_ino);
    let mut at = parent(directory)?;
    while outer.len() < DEPTH {
        let status = fstat(&at).or(Err(Errno::EBADF))?;
        // The root's parent is itself, or in another file system.
        if status.st_dev != start.st_dev || status.st_ino == inner {
            break;
        }
        outer.push(status.st_ino);
        inner = status.st_ino;
        at = parent(&at)?;
    }
    outer.reverse();
    Ok(ControlGroup::new(&outer, start.st_ino))
}

fn parent(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(directory, "..", flags, Mode::empty()).or(Err(Errno::EBADF))
}

/// The directories of groups that calls named, to see when those with programs are gone.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    directories: Mutex<HashMap<u64, Directory>>,
}

#[derive(Debug)]
struct Directory {
    file: OwnedFd,
    /// For how many looks it has had no programs.
    idle: u32,
}

/// A call may not have attached its program yet when somebody looks.
const IDLE: u32 = 50;

impl Watched {
    /// Remembers the directory of a group.
    pub(crate) fn add(&self, id: u64, file: OwnedFd) {
        let mut known = self.directories.lock();
        known.entry(id).or_insert(Directory { file, idle: 0 }).idle = 0;
    }

    /// The groups of these, which have programs, that are gone.
    pub(crate) fn gone(&self, used: &[u64]) -> Vec<u64> {
        let mut known = self.directories.lock();
        let mut gone = Vec::new();
        known.retain(|id, directory| {
            directory.idle = if used.contains(id) { 0 } else { directory.idle + 1 };
            if directory.idle > IDLE {
                return false;
            }
            let there = is_there(&directory.file);
            if !there && directory.idle == 0 {
                gone.push(*id);
            }
            there || directory.idle > 0
        });
        gone
    }
}

/// Whether a directory has not been removed.
fn is_there(directory: &impl AsFd) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat(directory, "cgroup.procs", flags, Mode::empty()).is_ok()
}
