//! What can go wrong with code memory, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

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

    /// Too many bytes of retired texts wait for readers.
    #[error(
        "{waiting} bytes of dropped texts wait for readers that do not leave their read sections, and the limit is \
         {limit}; end the sections (a thread that waits inside one holds everything up), or raise Config::waiting"
    )]
    Waiting {
        /// Bytes that wait.
        waiting: usize,
        /// [`Config::waiting`](crate::Config::waiting).
        limit: usize,
    },

    /// An alignment was asked for that no place can have.
    #[error("an alignment of {align} bytes was asked for; it must be a power of two of at most {max}")]
    Alignment {
        /// What was asked for.
        align: usize,
        /// Bytes in a page.
        max: usize,
    },

    /// What was to be replaced in live code does not lie in one word, or not at its beginning.
    #[error(
        "live code at {address:#x} cannot be replaced by single stores: it must begin {offset} bytes beyond a \
         multiple of {align} and be whole instructions; place it there with no-operations before it"
    )]
    Misaligned {
        /// The address.
        address: usize,
        /// What it should be a multiple of.
        align: usize,
        /// And how far beyond that it should be.
        offset: usize,
    },

    /// A branch does not reach its target.
    #[error(
        "a branch at {address:#x} does not reach {target:#x}; branch to a place in the arena (Arena::range), or to \
         a stub there that goes on to the target"
    )]
    OutOfReach {
        /// Where the branch is.
        address: usize,
        /// Where it should go.
        target: usize,
    },

    /// Bytes beyond the end of a text or draft.
    #[error("{len} bytes from offset {offset} on are not within the text, which has {text} bytes")]
    OutOfText {
        /// Offset of the first byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes of the text.
        text: usize,
    },

    /// The text belongs to another arena.
    #[error("the text belongs to another arena; poke it through that one (Arena::pokes)")]
    WrongArena,

    /// Read sections could not be had or waited for.
    #[error("read sections of code memory: {0}")]
    Readers(#[from] skep_rcu::Error),

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

    /// The operating system lets code memory be made in no way that this crate knows.
    #[error(
        "code memory cannot be made on this system. {}",
        refused.iter().map(|(backing, error)| format!("{backing}: {error}")).collect::<Vec<_>>().join(". ")
    )]
    NoBacking {
        /// The ways tried, by their names in reports, and what each was refused by.
        refused: Vec<(&'static str, Error)>,
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
    /// Giving that file its length (`ftruncate`).
    SizeFile,
    /// Giving code memory its pages, filled with traps (`madvise`, MADV_POPULATE_WRITE; `pwrite`).
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
    /// Making pages full of traps executable (`mprotect`, PROT_READ and PROT_EXEC).
    MakeExecutable,
    /// Asking for base pages (`madvise`, MADV_NOHUGEPAGE). Its failure changes nothing and is not reported.
    AdvisePages,
    /// Opening the process's own memory (`/proc/self/mem`), where no writable view is.
    OpenMemory,
    /// Writing code where no writable view is (`pwrite`).
    WriteCode,
    /// Moving code memory into a huge page (`madvise`, MADV_HUGEPAGE and MADV_COLLAPSE).
    Collapse,
    /// Finding out whether the kernel did that (`/proc/self/smaps`).
    CheckHuge,
    /// Sealing code memory that is never unmapped (`mseal`). Its failure is told apart, not as an error.
    SealMapping,
    /// Giving code memory back (`mmap`, PROT_NONE; `munmap`).
    ReturnMemory,
    /// Making other CPUs drop instructions fetched before (`membarrier`, SYNC_CORE).
    SyncCores,
    /// Installing the handler of faults in probes (`sigaction`).
    InstallHandler,
    /// Making the words by which the handler finds the probes of a pack.
    IndexProbes,
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
            Self::CreateFile | Self::ReopenFile | Self::OpenMemory if too_many_files(error) => {
                "raise the limit on open files (ulimit -n): two are needed for a moment, and one for every pack of \
                 the backings without a writable view"
            }
            Self::CreateFile => {
                "code memory is made of memfd files: allow memfd_create in the sandbox's system call filter"
            }
            Self::SizeFile => "raise the limit on the size of files (ulimit -f)",
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
            Self::MakeExecutable if out_of_memory => {
                "the process has too many mappings (sysctl vm.max_map_count)"
            }
            Self::MakeExecutable => {
                "a policy that forbids memory to become executable came into force after the arena was made \
                 (PR_SET_MDWE, systemd's MemoryDenyWriteExecute): make the arena after it"
            }
            Self::OpenMemory => {
                "code is written through /proc/self/mem: mount procfs on /proc and allow opening it"
            }
            Self::WriteCode => {
                "the kernel may forbid writing through /proc/self/mem (proc_mem.force_override=never, \
                 CONFIG_PROC_MEM_NO_FORCE; Linux 6.12 or later): boot with proc_mem.force_override=always, or let \
                 memfd_create through"
            }
            Self::Collapse => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL) => {
                    "Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE is needed, and pages of 4 KiB"
                }
                _ => "no huge page was free just now; it can be tried again",
            },
            Self::CheckHuge => "code memory stays on base pages, which work as well but use more of the TLB",
            Self::SealMapping => {
                "Linux 6.10 or later is needed, and a system call filter that lets mseal through"
            }
            Self::ReturnMemory => {
                "the process has too many mappings (sysctl vm.max_map_count), or the memory was sealed"
            }
            Self::AdvisePages | Self::HideFromChildren | Self::SealFile => {
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
            Self::SizeFile => "giving the code's memory file its length",
            Self::AllocateFile => "allocating memory for code",
            Self::ReopenFile => "opening the code's memory file read-only",
            Self::MapWritable => "mapping the writable view of code memory",
            Self::HideFromChildren => "keeping the writable view of code memory from child processes",
            Self::SealFile => "sealing the code's memory file",
            Self::MapExecutable => "mapping the executable view of code memory",
            Self::MakeExecutable => "making code memory executable",
            Self::AdvisePages => "asking for base pages for code memory",
            Self::OpenMemory => "opening the process's own memory for writing code",
            Self::WriteCode => "writing code",
            Self::Collapse => "moving code memory into a huge page",
            Self::CheckHuge => "finding out whether code memory is on a huge page",
            Self::SealMapping => "sealing the mappings of code memory",
            Self::ReturnMemory => "giving code memory back",
            Self::SyncCores => "synchronising the instruction streams of other CPUs",
            Self::InstallHandler => "installing the handler of faults in probes",
            Self::IndexProbes => "making room to find probes by their address",
            Self::OpenPerfMap => "opening the perf map",
            Self::OpenJitdump => "making the jitdump",
            Self::MarkJitdump => "mapping the jitdump executable",
        })
    }
}

impl Error {
    /// What the system answered, where it was asked.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { error, .. } => error.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        }
    }

    /// Whether the same may well succeed later: what was missing is memory or time, not permission.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::AGAIN | Errno::NOMEM | Errno::BUSY | Errno::NOSPC | Errno::MFILE | Errno::NFILE)
        )
    }
}

fn too_many_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::MFILE | Errno::NFILE))
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
