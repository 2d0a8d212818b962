//! What can go wrong with code memory, and what to do about it.

use std::fmt;
use std::io;

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

    /// A probe does not fit the text that it was declared for.
    #[error("the probe at offset {at} {reason}")]
    Probe {
        /// Its offset in the draft.
        at: usize,
        /// What is wrong with it.
        reason: BadProbe,
    },

    /// Probes need a handler for faults, and the host does not want one.
    #[error(
        "probes need a handler of SIGSEGV and SIGBUS, and this arena was made with Config::fault_handler(false); \
         allow it, or compile the code without probes"
    )]
    ProbesForbidden,

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

/// What is wrong with a [`Probe`](crate::Probe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadProbe {
    /// There is no such instruction: the text is shorter.
    Outside {
        /// Bytes in the text.
        len: usize,
    },
    /// The place to go on at is not in the text.
    ResumesOutside {
        /// Its offset.
        resume: usize,
        /// Bytes in the text.
        len: usize,
    },
    /// It starts, or goes on, between two instructions.
    Misaligned {
        /// The offset to go on at.
        resume: usize,
    },
    /// This register does not exist or must not be zeroed.
    Register {
        /// The machine's number of it.
        register: u8,
    },
    /// There is another probe at the same offset.
    Twice,
}

impl fmt::Display for BadProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { len } => {
                write!(
                    f,
                    "is outside of the text, which has {len} bytes; declare it before cutting the draft, inside"
                )
            }
            Self::ResumesOutside { resume, len } => write!(
                f,
                "goes on at {resume}, but the text has {len} bytes; name an instruction of the same text"
            ),
            Self::Misaligned { resume } => write!(
                f,
                "goes on at {resume}, and one of the two is between instructions; give offsets where instructions start"
            ),
            Self::Register { register } => write!(
                f,
                "cannot zero register {register}; name a general register that is not the stack pointer, or none"
            ),
            Self::Twice => f.write_str("was declared twice; an instruction can be one probe only"),
        }
    }
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
    /// Installing the handler of faults in probes (`sigaction`).
    InstallHandler,
    /// Making the words by which the handler finds the probes of a pack.
    IndexProbes,
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
            Self::InstallHandler => {
                "allow rt_sigaction in the sandbox's system call filter, or make the arena with \
                 Config::fault_handler(false) and use no probes"
            }
            Self::IndexProbes => "free memory, or use no probes",
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
            Self::InstallHandler => "installing the handler of faults in probes",
            Self::IndexProbes => "making room to find probes by their address",
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
