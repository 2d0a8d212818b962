//! Runs unmodified BPF applications on skep.
//!
//! Applications reach BPF by the system call bpf(2). Here a filter of system calls (seccomp) notifies a supervisor of
//! each such call, which answers it: maps, programs and types are those of a skep runtime. The kernel's BPF is not
//! used, and no privilege is needed. Any binary will do, static ones of musl and Go included, with its threads, forks
//! and execs.
//!
//! ```text
//!   application --bpf(2)--> kernel --notifies--> supervisor: skep_sys::System --> skep::Runtime
//!        ^                                          |
//!        +--- answer, memory, descriptors ----------+
//! ```
//!
//! ```no_run
//! use skep_exec::Supervisor;
//!
//! let runtime = skep::Runtime::builder()
//!     .cpus(skep_exec::possible_cpus()?)
//!     .share_maps(true) // so that applications can map them
//!     .privileged(true)
//!     .build()?;
//! let engine = skep::sys::SysEngine::new(runtime, None);
//! let status = Supervisor::new(engine).run(std::process::Command::new("bpftool").args(["map", "show"]))?;
//! assert!(status.success());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What a process gets
//!
//! Its descriptors are empty memory files of the supervisor's, recognised by their numbers: closing, copying and
//! sending them works as ever, and an object ends when nobody holds it. `/sys/fs/bpf` is a directory of its own, in
//! which pins are empty files; this needs mount namespaces, and for ordinary users those of users.
//!
//! # Safety of the supervisor
//!
//! Nothing that a process gives is trusted. Its memory is copied by the kernel with the process's own protections, and
//! only as long as the call waits for its answer.

mod arch;
mod directories;
mod files;
mod filter;
mod front;
mod groups;
mod launch;
mod listener;
mod mapped;
mod mappings;
mod memory;
mod netlink;
mod perf;
mod preload;
mod probed;
mod probes;
mod process;
mod procfs;
mod refused;
mod serve;
mod sockets;
mod table;
mod turn;

pub use preload::FrontChoice;
pub use refused::Refused;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serve::Server;
use skep::sys::SysEngine;
use skep_sys::System;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use table::Table;

/// Threads that answer calls: a long load does not keep other calls waiting.
const THREADS: usize = 4;

/// Why an application could not be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program does not start.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// Its name.
        program: OsString,
        /// Why.
        source: io::Error,
    },
    /// Something that the supervisor needs is missing.
    #[error(
        "cannot supervise the application: {what}: {source}; this needs Linux 5.14 with seccomp user notification, \
         which a container's own filter may forbid"
    )]
    Supervise {
        /// What it is.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The library cannot be loaded into the program, although it was asked for.
    #[error("cannot load the library into {}: {why}; without it (--front notify) all calls are served", .program.display())]
    Preload {
        /// The program's name.
        program: OsString,
        /// Why.
        why: String,
    },
    /// No event of a world can happen with that system call.
    #[error(
        "event {event}: no event happens with the system call {call} under a supervisor: choose another one"
    )]
    SystemCall {
        /// The event.
        event: String,
        /// The system call.
        call: String,
    },
    /// The types cannot be put in their place.
    #[error("cannot show {} as {}: is there such a file, and are mount namespaces allowed?", .path.display(), launch::types_path())]
    Types {
        /// The file.
        path: PathBuf,
    },
    /// The list of CPUs is not understood.
    #[error("/sys/devices/system/cpu/possible: {0}")]
    Cpus(io::Error),
}

/// A supervisor of an application's system calls.
pub struct Supervisor {
    system: System<SysEngine>,
    trace: Option<Box<serve::Trace>>,
    types: Option<PathBuf>,
    missing: Option<Box<serve::Trace>>,
    network: bool,
    refused: Option<Box<refused::Each>>,
    front: FrontChoice,
}

impl Supervisor {
    /// A supervisor with that engine, whose runtime has [`possible_cpus`] virtual CPUs.
    pub fn new(engine: SysEngine) -> Self {
        Self {
            system: System::new(engine),
            trace: None,
            types: None,
            missing: None,
            network: false,
            refused: None,
            front: FrontChoice::Notify,
        }
    }

    /// Receives a line for each call, as strace prints them: `[pid] bpf(BPF_MAP_CREATE, 72) = 3 <21 us>`.
    #[must_use]
    pub fn trace(mut self, line: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.trace = Some(Box::new(line));
        self
    }

    /// Shows the application the devices of the engine's world instead of the kernel's, by routing sockets (netlink(7))
    /// and requests of ioctl(2), so that it can attach programs to them by these. Its other sockets are the kernel's.
    #[must_use]
    pub fn network(mut self, shown: bool) -> Self {
        self.network = shown;
        self
    }

    /// Receives a line about what the application has to do without.
    #[must_use]
    pub fn warn(mut self, line: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.missing = Some(Box::new(line));
        self
    }

    /// Receives, when no process is left, what the application was refused because skep lacks it, one thing at a time.
    /// Ordinary errors are not among it. Clients try features out, so they may have managed without.
    #[must_use]
    pub fn refused(mut self, each: impl Fn(&Refused) + Send + Sync + 'static) -> Self {
        self.refused = Some(Box::new(each));
        self
    }

    /// Shows the application a file as `/sys/kernel/btf/vmlinux`.
    #[must_use]
    pub fn types(mut self, path: impl Into<PathBuf>) -> Self {
        self.types = Some(path.into());
        self
    }

    /// Chooses how calls come here. The default is [`FrontChoice::Notify`].
    #[must_use]
    pub fn front(mut self, front: FrontChoice) -> Self {
        self.front = front;
        self
    }

    /// Runs an application, and returns the status of its first process when none of its processes is left.
    ///
    /// Meanwhile this process ignores SIGINT and SIGQUIT, which a terminal sends to the application as well, and passes
    /// SIGTERM and SIGHUP on, and its limit of descriptors is as high as it may be. One application at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Start`], [`Error::Supervise`], [`Error::Types`].
    pub fn run(self, command: &mut Command) -> Result<ExitStatus, Error> {
        let supervise = |what| move |source| Error::Supervise { what, source };
        let table = Table::new().map_err(supervise("notices of closed files"))?;
        let sockets = sockets::Sockets::new().map_err(supervise("a set of sockets"))?;
        let runtime = self.system.engine().runtime().clone();
        let world = self.system.engine().world().filter(|_| self.network).cloned();
        let network = world.map(netlink::Network::new).transpose().map_err(supervise("a netlink socket"))?;
        let files = files::Files::new();
        let front = preload::prepare(self.front, command, files.as_ref())?;
        let types = self.types.is_some();
        let engine = self.system.engine();
        let machine = engine.world().filter(|_| engine.has_probes()).map(|world| world.machine());
        let machine = machine.as_deref().map(|machine| &machine.probes);
        let calls = machine.map(system_calls).transpose()?;
        let prepared = files.as_ref().ok().zip(machine);
        let prepared = prepared.map(|(files, probes)| probes::prepare(files, probes)).transpose();
        let prepared = prepared.map_err(supervise("files of probes"))?;
        let mut probed =
            files.as_ref().map(|files| probed::prepare(files, types, machine)).unwrap_or_default();
        probed.extend(prepared.iter().flat_map(|prepared| prepared.mounts.clone()));
        let probes = prepared.and_then(|prepared| probes::Probes::new(engine, prepared));
        // Each object is a descriptor here; the application has its own limit.
        let limit = Limit::raise();
        let before = limit.as_ref().map(|limit| limit.0);
        let (mut child, listener, prepared) = launch::launch(
            command,
            self.types.as_deref(),
            probed,
            before,
            (network.is_some(), calls.as_deref().filter(|_| probes.is_some())),
        )?;
        if let (Some(path), false) = (&self.types, prepared.types) {
            // It has not done anything yet, or would find other types than it asked for.
            let _ended = child.kill().and_then(|()| child.wait());
            return Err(Error::Types { path: path.clone() });
        }
        if let (Some(missing), 0) = (&self.missing, prepared.bpffs) {
            missing(&format!(
                "no mount namespace: nothing can be pinned in {}, since user namespaces are not allowed here",
                launch::BPF_FS
            ));
        }
        let signals = Signals::begin(child.id());
        let bpffs = Some(prepared.bpffs).filter(|device| *device != 0);
        let server = Server {
            system: self.system,
            listener,
            table,
            directories: directories::Directories::default(),
            bpffs,
            trace: self.trace,
            groups: groups::Watched::default(),
            sockets,
            network,
            probes,
            front,
        };
        let (served, status) = thread::scope(|scope| {
            // Linux before 6.11 counts a process as the filter's until somebody has waited for it.
            let first = scope.spawn(|| {
                let id = rustix::process::Pid::from_child(&child);
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                while matches!(waitid(WaitId::Pid(id), ended), Err(rustix::io::Errno::INTR)) {}
                // Its number may be another's once it has been waited for.
                signals.forget();
                child.wait()
            });
            let served = server.serve(THREADS).map_err(supervise("the calls"));
            let lacking = server.system.engine().lacking();
            // Closes the listener: whoever still calls is not served, and must not wait for that.
            drop(server);
            let status = first.join().unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")));
            (served.map(|()| lacking), status.map_err(supervise("the application's end")))
        });
        drop((signals, limit, files));
        // What programs used until just now is closed too. It fails only where this thread runs one, which it does not.
        let _passed = runtime.memory().domain.barrier();
        let served = served.map(|lacking| {
            if let Some(each) = &self.refused {
                lacking.into_iter().for_each(|lack| each(&lack.into()));
            }
        });
        served.and(status)
    }
}

/// The numbers of the system calls with which events of a world happen.
fn system_calls(probes: &skep::world::Probes) -> Result<Vec<libc::c_long>, Error> {
    let calls = probes.events().filter_map(|event| Some((event, event.system_call.as_deref()?)));
    let numbers = calls.map(|(event, call)| {
        let unknown = || Error::SystemCall { event: event.name.clone(), call: call.to_owned() };
        probes::call_number(call).ok_or_else(unknown)
    });
    let numbers: Result<std::collections::BTreeSet<_>, _> = numbers.collect();
    Ok(numbers?.into_iter().collect())
}

/// How many CPUs clients of the system call assume: per-CPU values have so many parts.
///
/// # Errors
///
/// [`Error::Cpus`] if `/sys/devices/system/cpu/possible` cannot be read or understood.
pub fn possible_cpus() -> Result<u32, Error> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(Error::Cpus)?;
    last_cpu(text.trim())
        .and_then(|last| last.checked_add(1))
        .ok_or_else(|| Error::Cpus(io::Error::other(format!("no list of CPUs: {text}"))))
}

/// The last number of a list like `0-3,8`.
fn last_cpu(list: &str) -> Option<u32> {
    list.rsplit([',', '-']).next()?.parse().ok()
}

/// The process that signals are passed on to; 0 for none.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// The handling of signals while an application runs.
struct Signals([(i32, libc::sigaction); 4]);

extern "C" fn pass_on(signal: i32) {
    // Relaxed: a number that is set before the handler is.
    let process = FIRST.load(Ordering::Relaxed);
    if process > 0 {
        // SAFETY: a system call with numbers, allowed in handlers. The process is our child, not yet waited for.
        unsafe { libc::kill(process, signal) };
    }
}

impl Signals {
    fn begin(process: u32) -> Self {
        FIRST.store(process as i32, Ordering::Relaxed);
        let set = |signal: i32, handler: usize| {
            // SAFETY: plain numbers and an address; zero is valid for all of them.
            let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
            new.sa_sigaction = handler;
            new.sa_flags = libc::SA_RESTART;
            // SAFETY: the handler makes only calls that handlers may make.
            unsafe { libc::sigaction(signal, &raw const new, &raw mut old) };
            (signal, old)
        };
        let handler = pass_on as extern "C" fn(i32) as usize;
        Self([
            set(libc::SIGINT, libc::SIG_IGN),
            set(libc::SIGQUIT, libc::SIG_IGN),
            set(libc::SIGTERM, handler),
            set(libc::SIGHUP, handler),
        ])
    }
}

impl Signals {
    /// Passes nothing on from now on.
    fn forget(&self) {
        // Relaxed: as in `begin`; a handler that has read the number sends it at once.
        FIRST.store(0, Ordering::Relaxed);
    }
}

/// The limit of descriptors as it was before this process raised its own as far as it may.
struct Limit(libc::rlimit);

impl Limit {
    /// `None` if it stays as it is.
    fn raise() -> Option<Self> {
        // SAFETY: numbers, and a structure of this frame for which zero is valid.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) != 0 {
                return None;
            }
            let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
            (libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) == 0).then_some(Self(limit))
        }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // SAFETY: a structure that lives. Lowering a limit is always allowed.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.0) };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: what was in force before.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
        FIRST.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_list_is_found() {
        for (list, last) in [("0", Some(0)), ("0-3", Some(3)), ("0-1,4-7", Some(7)), ("", None), ("x", None)]
        {
            assert_eq!(last_cpu(list), last, "{list}");
        }
    }
}
