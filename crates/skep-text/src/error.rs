//! Errors of code memory: what failed, and what to change.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why an operation on code memory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A draft of 0 bytes was requested.
    #[error("a draft of 0 bytes was requested; request at least 1")]
    Empty,

    /// The requested draft is longer than the arena's address range.
    #[error(
        "a text of {len} bytes does not fit the arena's range of {range} bytes; \
         make the arena with a larger Config::reserve (at most {max}), or the text smaller"
    )]
    TooLong {
        /// Bytes requested.
        len: usize,
        /// Bytes in the arena's address range.
        range: usize,
        /// The largest range this architecture's direct branches allow.
        max: usize,
    },

    /// The address range has no contiguous free room of that length.
    #[error(
        "the arena's range of {range} bytes has no {len} contiguous free bytes; \
         drop unused texts, or make the arena with a larger Config::reserve (at most {max})"
    )]
    RangeFull {
        /// Bytes requested.
        len: usize,
        /// Bytes in the arena's address range.
        range: usize,
        /// The largest range this architecture's direct branches allow.
        max: usize,
    },

    /// The memory needed would exceed the arena's limit.
    #[error(
        "{wanted} more bytes of code memory are needed; {mapped} are in use and the limit is {limit}; \
         drop unused texts, or raise Config::limit"
    )]
    Limit {
        /// Additional bytes that would have been mapped.
        wanted: usize,
        /// Bytes already mapped, for packs and for texts longer than a pack.
        mapped: usize,
        /// [`Config::limit`](crate::Config::limit).
        limit: usize,
    },

    /// Too many bytes of retired texts wait for readers.
    #[error(
        "{waiting} bytes of dropped texts wait for readers in read sections, and the limit is {limit}; \
         end the sections (a thread that blocks in one delays all reuse), or raise Config::waiting"
    )]
    Waiting {
        /// Bytes that wait.
        waiting: usize,
        /// [`Config::waiting`](crate::Config::waiting).
        limit: usize,
    },

    /// The requested alignment is not a power of two, or exceeds a page.
    #[error("alignment {align} is not supported; it must be a power of two of at most {max} bytes")]
    Alignment {
        /// The alignment requested, in bytes.
        align: usize,
        /// The largest alignment: the bytes in a page.
        max: usize,
    },

    /// The live code to be replaced is not within one word, or does not start at the required offset.
    #[error(
        "live code at {address:#x} cannot be replaced by single stores: it must begin {offset} bytes beyond a \
         multiple of {align} and be whole instructions; insert NOPs before it"
    )]
    Misaligned {
        /// The address.
        address: usize,
        /// The multiple that the address is measured from.
        align: usize,
        /// The offset from that multiple at which the code must begin.
        offset: usize,
    },

    /// A branch's target is out of its reach.
    #[error(
        "a branch at {address:#x} does not reach {target:#x}; branch to a place in the arena (Arena::range), or to \
         a stub there that goes on to the target"
    )]
    OutOfReach {
        /// Address of the branch.
        address: usize,
        /// Address of the target.
        target: usize,
    },

    /// The bytes extend beyond the end of the text or draft.
    #[error("{len} bytes from offset {offset} on exceed the text, which has {text} bytes")]
    OutOfText {
        /// Offset of the first byte.
        offset: usize,
        /// Length of the bytes.
        len: usize,
        /// Length of the text.
        text: usize,
    },

    /// The text belongs to another arena.
    #[error("the text belongs to another arena; poke it through that one (Arena::pokes)")]
    WrongArena,

    /// The domain of read sections failed.
    #[error("read sections of code memory: {0}")]
    Readers(#[from] skep_rcu::Error),

    /// The configuration leaves no room for a single pack.
    #[error("{setting} is {bytes} bytes, less than one pack; set it to at least {pack}")]
    TooSmall {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        bytes: usize,
        /// Bytes in a pack.
        pack: usize,
    },

    /// The process is a forked child: the writable side of the arena stayed with the parent.
    #[error(
        "this arena belongs to the parent process: a forked child may run its texts, but not add any; \
         make a new arena in the child"
    )]
    Forked,

    /// A file for profilers exists already, and must not be written.
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

    /// A probe does not fit its text.
    #[error("the probe at offset {at} {reason}")]
    Probe {
        /// Its offset in the draft.
        at: usize,
        /// What is wrong with it.
        reason: BadProbe,
    },

    /// A probe was declared, but the host forbids the fault handler that probes need.
    #[error(
        "probes need a handler of SIGSEGV and SIGBUS, and this arena was made with Config::fault_handler(false); \
         allow the handler, or compile the code without probes"
    )]
    ProbesForbidden,

    /// The operating system refused every backing that this crate knows.
    #[error(
        "code memory cannot be made on this system. {}",
        refused.iter().map(|(backing, error)| format!("{backing}: {error}")).collect::<Vec<_>>().join(". ")
    )]
    NoBacking {
        /// The backings tried, by name, each with the error that refused it.
        refused: Vec<(&'static str, Error)>,
    },

    /// The operating system refused a call.
    #[error("{call} failed: {error}; {}", call.remedy(error))]
    System {
        /// The call, by its purpose.
        call: SystemCall,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

/// What is wrong with a [`Probe`](crate::Probe).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadProbe {
    /// The offset is beyond the end of the text.
    Outside {
        /// Bytes in the text.
        len: usize,
    },
    /// The offset to resume at is beyond the end of the text.
    ResumesOutside {
        /// Its offset.
        resume: usize,
        /// Bytes in the text.
        len: usize,
    },
    /// One of the offsets is not the start of an instruction.
    Misaligned {
        /// The offset to resume at.
        resume: usize,
    },
    /// The register does not exist or must not be zeroed.
    Register {
        /// The machine's number of the register.
        register: u8,
    },
    /// Another probe has the same offset.
    Twice,
}

impl fmt::Display for BadProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { len } => {
                write!(
                    f,
                    "is beyond the end of the text, which has {len} bytes; declare probes only in the part that is kept"
                )
            }
            Self::ResumesOutside { resume, len } => write!(
                f,
                "resumes at {resume}, beyond the end of the text, which has {len} bytes; resume at an instruction of the text"
            ),
            Self::Misaligned { resume } => write!(
                f,
                "resumes at {resume}, and one of the two offsets is not the start of an instruction; give offsets of instructions"
            ),
            Self::Register { register } => write!(
                f,
                "cannot zero register {register}; name a general register other than the stack pointer, or none"
            ),
            Self::Twice => f.write_str("was declared twice; declare each instruction once"),
        }
    }
}

/// A call to the operating system, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemCall {
    /// Reserving a range of addresses (`mmap`, PROT_NONE).
    ReserveRange,
    /// Creating the memory file of a pack (`memfd_create`).
    CreateFile,
    /// Setting the length of that file (`ftruncate`).
    SizeFile,
    /// Populating code memory with pages full of traps (`madvise`, MADV_POPULATE_WRITE; `pwrite`).
    AllocateFile,
    /// Opening the file a second time, read-only, through `/proc/self/fd`.
    ReopenFile,
    /// Mapping the writable view (`mmap`, `mprotect`).
    MapWritable,
    /// Hiding the writable view from forked children (`madvise`, MADV_DONTFORK).
    HideFromChildren,
    /// Sealing the file against other writers (`fcntl`, F_ADD_SEALS).
    SealFile,
    /// Mapping the executable view (`mmap`, PROT_READ and PROT_EXEC).
    MapExecutable,
    /// Making pages full of traps executable (`mprotect`, PROT_READ and PROT_EXEC).
    MakeExecutable,
    /// Requesting base pages (`madvise`, MADV_NOHUGEPAGE). A failure changes nothing and is not reported.
    AdvisePages,
    /// Opening the process's own memory (`/proc/self/mem`), for backings without a writable view.
    OpenMemory,
    /// Writing code without a writable view (`pwrite`).
    WriteCode,
    /// Moving code memory into a huge page (`madvise`, MADV_HUGEPAGE and MADV_COLLAPSE).
    Collapse,
    /// Checking whether the kernel made a huge page (`/proc/self/smaps`).
    CheckHuge,
    /// Sealing code memory that is never unmapped (`mseal`). A failure shows in the occupancy and is not an error.
    SealMapping,
    /// Returning code memory to the system (`mmap`, PROT_NONE; `munmap`).
    ReturnMemory,
    /// Making other CPUs discard instructions they fetched earlier (`membarrier`, SYNC_CORE).
    SyncCores,
    /// Installing the fault handler for probes (`sigaction`).
    InstallHandler,
    /// Allocating the index by which the handler finds the probes of a pack.
    IndexProbes,
    /// Opening or creating the perf map, `/tmp/perf-PID.map`.
    OpenPerfMap,
    /// Creating the jitdump, `jit-PID.dump`, in the directory that the host chose.
    OpenJitdump,
    /// Mapping the jitdump executable, by which `perf` recognises it.
    MarkJitdump,
}

impl SystemCall {
    fn remedy(self, error: &io::Error) -> &'static str {
        let out_of_memory = error.kind() == io::ErrorKind::OutOfMemory;
        match self {
            Self::ReserveRange => {
                "the address space is limited (ulimit -v, a seccomp filter): raise the limit, or set a smaller \
                 Config::reserve"
            }
            Self::CreateFile | Self::ReopenFile | Self::OpenMemory if too_many_files(error) => {
                "raise the limit on open files (ulimit -n): each pack needs two for a moment, and one for good if \
                 its backing has no writable view"
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
                "a policy that forbids making memory executable took effect after the arena was made \
                 (PR_SET_MDWE, systemd's MemoryDenyWriteExecute): make the arena after it"
            }
            Self::OpenMemory => {
                "code is written through /proc/self/mem: mount procfs on /proc and allow opening it"
            }
            Self::WriteCode => {
                "the kernel may forbid writing through /proc/self/mem (proc_mem.force_override=never, \
                 CONFIG_PROC_MEM_NO_FORCE; Linux 6.12 or later): boot with proc_mem.force_override=always, or allow \
                 memfd_create"
            }
            Self::Collapse => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::INVAL) => {
                    "Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE is needed, and pages of 4 KiB"
                }
                _ => "no huge page was free; try again later",
            },
            Self::CheckHuge => "code memory stays on base pages, which work but use more TLB entries",
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

impl fmt::Display for SystemCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReserveRange => "reserving an address range for code",
            Self::CreateFile => "creating a memory file for code",
            Self::SizeFile => "setting the length of the code's memory file",
            Self::AllocateFile => "allocating memory for code",
            Self::ReopenFile => "opening the code's memory file read-only",
            Self::MapWritable => "mapping the writable view of code memory",
            Self::HideFromChildren => "hiding the writable view of code memory from child processes",
            Self::SealFile => "sealing the code's memory file",
            Self::MapExecutable => "mapping the executable view of code memory",
            Self::MakeExecutable => "making code memory executable",
            Self::AdvisePages => "requesting base pages for code memory",
            Self::OpenMemory => "opening the process's own memory to write code",
            Self::WriteCode => "writing code",
            Self::Collapse => "moving code memory into a huge page",
            Self::CheckHuge => "checking whether code memory is on a huge page",
            Self::SealMapping => "sealing the mappings of code memory",
            Self::ReturnMemory => "returning code memory to the system",
            Self::SyncCores => "synchronising the instruction streams of other CPUs",
            Self::InstallHandler => "installing the fault handler for probes",
            Self::IndexProbes => "allocating the index of probes",
            Self::OpenPerfMap => "opening the perf map",
            Self::OpenJitdump => "creating the jitdump",
            Self::MarkJitdump => "mapping the jitdump executable",
        })
    }
}

impl Error {
    /// The error number of a system call that failed.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { error, .. } => error.raw_os_error().map(Errno::from_raw_os_error),
            _ => None,
        }
    }

    /// Whether a retry may succeed: memory or time was missing, not permission.
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

/// Adds the call's purpose to the error of a system call.
pub(crate) trait During<T> {
    fn during(self, call: SystemCall) -> Result<T, Error>;
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, call: SystemCall) -> Result<T, Error> {
        self.map_err(|errno| Error::System { call, error: errno.into() })
    }
}
