//! What can go wrong with code memory, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why code memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A draft of no bytes was asked for.
    #[error("a text of no bytes was asked for; there is nothing to place")]
    Empty,

    /// A draft was asked for that no arena of this range could ever hold.
    #[error(
        "a text of {len} bytes was asked for, but the whole range has {range}; \
         make the arena with a larger Config::reserve (at most {max}) or the text smaller"
    )]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Bytes in the arena's address range.
        range: usize,
        /// The largest range this architecture's direct branches allow.
        max: usize,
    },

    /// The reserved address range has no room left in one piece.
    #[error(
        "no {len} bytes in one piece are left in the arena's range of {range} bytes; \
         drop texts that are not used, or make the arena with a larger Config::reserve (at most {max})"
    )]
    RangeFull {
        /// Bytes asked for.
        len: usize,
        /// Bytes in the arena's address range.
        range: usize,
        /// The largest range this architecture's direct branches allow.
        max: usize,
    },

    /// More memory would be needed than the arena was allowed to use.
    #[error(
        "{wanted} more bytes of code memory are needed; {mapped} are in use and the limit is {limit}; \
         drop texts that are not used, or raise Config::limit"
    )]
    Limit {
        /// Bytes that would have been mapped anew.
        wanted: usize,
        /// Bytes mapped already, as packs and as texts of their own.
        mapped: usize,
        /// [`Config::limit`](crate::Config::limit).
        limit: usize,
    },

    /// The configuration leaves no room for a single pack.
    #[error("{setting} is {bytes} bytes, and a pack alone takes {pack}; make it at least that")]
    TooSmall {
        /// The setting at fault.
        setting: &'static str,
        /// What it was set to.
        bytes: usize,
        /// Bytes in a pack.
        pack: usize,
    },

    /// The process is a forked child: the writable side of the arena stayed with the parent.
    #[error(
        "this arena belongs to the parent process: a forked child may run its texts, not add any; \
         make a new arena in the child"
    )]
    Forked,

    /// A file for profilers is there already, and is not one that may be written.
    #[error(
        "{} {found}, so names and addresses of code are not written there; remove it, or choose another directory for \
         Config::jitdump, or leave Config::perf_map off", path.display()
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: &'static str,
    },

    /// The operating system refused something that code memory needs.
    #[error("{step} failed: {error}; {}", step.remedy(error))]
    System {
        /// What was asked of the system.
        step: Step,
        /// What it answered.
        #[source]
        error: io::Error,
    },
}

/// What was being asked of the operating system when it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Reserving a range of addresses (`mmap`, PROT_NONE).
    ReserveRange,
    /// Creating the memory file of a pack (`memfd_create`).
    CreateFile,
    /// Giving that file its memory, filled with traps (`pwrite`).
    AllocateFile,
    /// Opening it a second time, read-only, through `/proc/self/fd`.
    ReopenFile,
    /// Mapping the writable view (`mmap`, `mprotect`).
    MapWritable,
    /// Keeping the writable view from children (`madvise`, MADV_DONTFORK).
    HideFromChildren,
    /// Sealing the file against other writers (`fcntl`, F_ADD_SEALS).
    SealFile,
    /// Mapping the executable view (`mmap`, PROT_READ and PROT_EXEC).
    MapExecutable,
    /// Setting up the page that tells a forked child from its parent (`madvise`, MADV_WIPEONFORK).
    WatchForks,
    /// Making other CPUs drop instructions fetched before (`membarrier`, SYNC_CORE).
    SyncCores,
    /// Opening or making the perf map, `/tmp/perf-PID.map`.
    OpenPerfMap,
    /// Making the jitdump, `jit-PID.dump`, in the directory that the host chose.
    OpenJitdump,
    /// Mapping the jitdump executable, by which `perf` recognises it.
    MarkJitdump,
}

impl Step {
    fn remedy(self, error: &io::Error) -> &'static str {
        let out_of_memory = error.kind() == io::ErrorKind::OutOfMemory;
        match self {
            Self::ReserveRange => {
                "the address space is limited (ulimit -v, a seccomp filter): raise the limit, or set a smaller \
                 Config::reserve"
            }
            Self::CreateFile | Self::ReopenFile if too_many_files(error) => {
                "raise the limit on open files (ulimit -n); two are needed for a moment"
            }
            Self::CreateFile => {
                "code memory is made of memfd files: allow memfd_create in the sandbox's system call filter"
            }
            Self::AllocateFile => {
                "there is not enough memory: raise the memory limit of the control group or the process, or set a \
                 smaller Config::limit"
            }
            Self::ReopenFile => "the executable view is opened through /proc/self/fd: mount procfs on /proc",
            Self::MapWritable | Self::MapExecutable if out_of_memory => {
                "there is not enough memory, or the process has too many mappings (sysctl vm.max_map_count)"
            }
            Self::MapWritable => "allow shared mappings of memfd files in the sandbox or security policy",
            Self::MapExecutable => {
                "the security policy forbids executable mappings of memfd files: under SELinux allow this domain \
                 `execute` on its tmpfs files, under a system call filter allow mmap with PROT_EXEC"
            }
            Self::HideFromChildren | Self::WatchForks | Self::SealFile => {
                "Linux 5.1 or later is needed, and a system call filter that lets madvise and fcntl through"
            }
            Self::OpenPerfMap => {
                "the file is /tmp/perf-PID.map: remove what is there already (a link, another user's file), make /tmp \
                 writable, or leave Config::perf_map off"
            }
            Self::OpenJitdump => {
                "give Config::jitdump a directory that exists and that this process may write to, with room for the file"
            }
            Self::MarkJitdump => {
                "give Config::jitdump a directory on a file system that is not mounted noexec, and allow executable \
                 mappings of files in the sandbox or security policy"
            }
            Self::SyncCores => {
                "Linux 4.16 or later with CONFIG_MEMBARRIER is needed on this architecture: allow membarrier in \
                 the sandbox's system call filter"
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReserveRange => "reserving an address range for code",
            Self::CreateFile => "creating a memory file for code",
            Self::AllocateFile => "allocating memory for code",
            Self::ReopenFile => "opening the code's memory file read-only",
            Self::MapWritable => "mapping the writable view of code memory",
            Self::HideFromChildren => "keeping the writable view of code memory from child processes",
            Self::SealFile => "sealing the code's memory file",
            Self::MapExecutable => "mapping the executable view of code memory",
            Self::WatchForks => "setting up the detection of forks",
            Self::SyncCores => "synchronising the instruction streams of other CPUs",
            Self::OpenPerfMap => "opening the perf map",
            Self::OpenJitdump => "making the jitdump",
            Self::MarkJitdump => "mapping the jitdump executable",
        })
    }
}

fn too_many_files(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(rustix::io::Errno::MFILE.raw_os_error())
        || errno == Some(rustix::io::Errno::NFILE.raw_os_error())
}

/// Turns a system call's error into ours, naming the step.
pub(crate) trait During<T> {
    fn during(self, step: Step) -> Result<T, Error>;
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, step: Step) -> Result<T, Error> {
        self.map_err(|errno| Error::System { step, error: errno.into() })
    }
}
