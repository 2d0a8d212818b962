//! Serving: each notified call gets its answer.

use crate::directories::Directories;
use crate::front::{self, Front};
use crate::groups::Watched;
use crate::listener::{Answer, Call, Listener};
use crate::mapped;
use crate::netlink::{self, Network};
use crate::perf;
use crate::probes::Probes;
use crate::process::Process;
use crate::procfs;
use crate::refused;
use crate::sockets::Sockets;
use crate::table::Table;
use crate::turn::Turn;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use skep::sys::SysEngine;
use skep_sys::{Caller, Command, Errno, System};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::Instant;

/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS: u64 = 0xcafe_4a11;
/// `TRACEFS_MAGIC`.
const TRACE_FS: u64 = 0x7472_6163;
/// How long closed files, and threads for a turn that another has kept, may wait, in milliseconds.
const CLOSING: i64 = 200;
/// How long a process may leave records unread before it is woken again, in milliseconds.
const REMINDING: i64 = 20;

/// The most threads: when so many calls take long at the same time, others wait.
const MOST_THREADS: usize = 64;

/// Commands that may take long: other calls do not wait for them.
const SLOW: [Command; 10] = [
    Command::MapCreate,
    Command::ProgLoad,
    Command::BtfLoad,
    Command::ProgTestRun,
    Command::LinkCreate,
    Command::IterCreate,
    Command::MapLookupBatch,
    Command::MapLookupAndDeleteBatch,
    Command::MapUpdateBatch,
    Command::MapDeleteBatch,
];

/// What receives a line for each call.
pub(crate) type Trace = dyn Fn(&str) + Send + Sync;

/// The supervisor of a tree of processes.
pub(crate) struct Server {
    pub(crate) system: System<SysEngine>,
    pub(crate) listener: Listener,
    pub(crate) table: Table,
    pub(crate) directories: Directories,
    /// The device of the processes' BPF file system.
    pub(crate) bpffs: Option<u64>,
    pub(crate) trace: Option<Box<Trace>>,
    /// Control groups that programs may be attached to.
    pub(crate) groups: Watched,
    /// Sockets that maps may hold.
    pub(crate) sockets: Sockets,
    /// The world's devices, if processes shall see them.
    pub(crate) network: Option<Network>,
    /// The world's probes, if it has any.
    pub(crate) probes: Option<Probes>,
    /// What the library in the processes asks for, if it is there.
    pub(crate) front: Option<Front>,
}

/// The threads that serve.
#[derive(Default)]
struct Crew {
    turn: Turn,
    threads: AtomicUsize,
    /// Why one of them ended early.
    failed: Mutex<Option<io::Error>>,
}

impl Server {
    /// Serves with so many threads, until no process is left. There are more while as many calls take long.
    pub(crate) fn serve(&self, threads: usize) -> io::Result<()> {
        let crew = Crew::default();
        thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                self.hire(scope, &crew);
            }
            scope.spawn(|| self.close(scope, &crew));
            if let Some(probes) = self.probes.as_ref().filter(|probes| probes.has_timed()) {
                scope.spawn(|| {
                    probes.keep_time(self.system.engine(), &crew.turn);
                });
            }
        });
        self.table.settle(true);
        crew.failed.into_inner().map_or(Ok(()), Err)
    }

    /// Adds a thread, unless there are many.
    fn hire<'a>(&'a self, scope: &'a Scope<'a, '_>, crew: &'a Crew) {
        // A number alone: what threads share has a lock.
        if crew.threads.fetch_add(1, Ordering::Relaxed) >= MOST_THREADS {
            crew.threads.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        scope.spawn(|| {
            if let Err(error) = self.work(scope, crew) {
                *crew.failed.lock() = Some(error);
            }
        });
    }

    fn work<'a>(&'a self, scope: &'a Scope<'a, '_>, crew: &'a Crew) -> io::Result<()> {
        while let Some(number) = crew.turn.take() {
            loop {
                let call = match self.listener.receive() {
                    Ok(Some(call)) => call,
                    ended => {
                        crew.turn.end();
                        return ended.map(drop);
                    }
                };
                let started = Instant::now();
                if !crew.turn.received(started, is_slow(&call)) {
                    self.hire(scope, crew);
                }
                // A caller waits for its answer, whatever happens here; locks are free again after a panic.
                let answer = catch_unwind(AssertUnwindSafe(|| self.answer(&call)));
                let answer = answer.unwrap_or(Answer::Error(Errno::EIO));
                self.listener.answer(&call, answer);
                if let Some(trace) = &self.trace {
                    self.say(&**trace, &call, answer, started);
                }
                if !crew.turn.is_still(number) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Lets go of closed objects while nobody calls.
    fn close<'a>(&'a self, scope: &'a Scope<'a, '_>, crew: &'a Crew) {
        while !crew.turn.is_over() {
            let mut fds = [PollFd::new(self.table.changes(), PollFlags::IN)];
            let waiting = self.table.remind();
            let interval = if waiting { REMINDING } else { CLOSING };
            let timeout = Timespec { tv_sec: 0, tv_nsec: interval * 1_000_000 };
            // After an interval without news it looks at what was doubtful.
            let ready = poll(&mut fds, Some(&timeout));
            self.table.settle(!ready.is_ok_and(|ready| ready > 0));
            let gone = self.groups.gone(&self.system.control_groups());
            gone.into_iter().for_each(|id| self.system.end_control_group(id));
            let closed = self.sockets.closed();
            closed.iter().for_each(|closed| self.system.end_socket(closed.cookie));
            self.sockets.forget(&closed);
            if !crew.turn.watch() {
                self.hire(scope, crew);
            }
        }
    }

    fn answer(&self, call: &Call) -> Answer {
        let mut process = Process {
            listener: &self.listener,
            table: &self.table,
            directories: &self.directories,
            call,
            bpffs: self.bpffs,
            groups: &self.groups,
            has_library: self.front.is_some(),
            sockets: &self.sockets,
            named: Vec::new(),
            ended: Vec::new(),
            probes: self.probes.as_ref(),
            engine: self.system.engine(),
            shared_signals: 0,
        };
        let [first, second, third, ..] = call.arguments;
        if let Some(probes) = &self.probes {
            probes.entered(&process);
            if call.number == libc::SYS_write {
                return probes.written(&mut process, call.arguments);
            }
        }
        if let Some(network) = &self.network {
            let (arguments, process) = (call.arguments, &mut process);
            match call.number {
                libc::SYS_socket => return network.open(process, arguments),
                libc::SYS_sendto => return network.send(&self.system, process, arguments, false),
                libc::SYS_sendmsg => return network.send(&self.system, process, arguments, true),
                libc::SYS_recvfrom => return network.receive(process, arguments, false),
                libc::SYS_recvmsg => return network.receive(process, arguments, true),
                libc::SYS_ioctl if netlink::is_about_device(second as u32) => {
                    return network.ioctl(process, arguments);
                }
                _ => {}
            }
        }
        let answer = match call.number {
            libc::SYS_bpf => {
                self.table.settle(false);
                let library = self.front.as_ref().and_then(|front| front.answer(&mut process));
                library.unwrap_or_else(|| {
                    let answer = self.system.call(&mut process, first as u32, second, third as u32);
                    match (&self.front, answer) {
                        (Some(front), Ok(_)) => front.follow(first as u32),
                        (_, Err(error)) => refused::command(self.system.engine(), first as u32, error),
                        _ => {}
                    }
                    answer
                })
            }
            libc::SYS_mmap => return mapped::mmap(&process, call.arguments),
            libc::SYS_perf_event_open => {
                return perf::open(self.probes.as_ref(), &mut process, call.arguments);
            }
            libc::SYS_ioctl => return perf::ioctl(&self.system, &mut process, call.arguments),
            libc::SYS_epoll_ctl => return mapped::epoll_ctl(&mut process, call.arguments),
            libc::SYS_statfs => return statfs(&mut process, Some(first), 0, second),
            libc::SYS_fstatfs => return statfs(&mut process, None, first as i32, second),
            _ => return procfs::answer(&self.system, &mut process),
        };
        answer.map_or_else(Answer::Error, Answer::Value)
    }

    fn say(&self, trace: &Trace, call: &Call, answer: Answer, started: Instant) {
        let number = call.arguments[0] as u32;
        if call.number != libc::SYS_bpf || front::is_of_the_library(number) {
            return;
        }
        let name =
            Command::from_number(number).map_or_else(|| number.to_string(), |known| known.name().to_owned());
        let result = match answer {
            Answer::Value(value) => value.to_string(),
            Answer::Error(error) => format!("-1 {error}"),
            Answer::Continue => "passed on".to_owned(),
        };
        let microseconds = started.elapsed().as_micros();
        trace(&format!(
            "[{}] bpf({name}, {}) = {result} <{microseconds} us>",
            call.thread, call.arguments[2]
        ));
    }
}

fn is_slow(call: &Call) -> bool {
    let command = (call.number == libc::SYS_bpf).then(|| Command::from_number(call.arguments[0] as u32));
    command.flatten().is_some_and(|command| SLOW.contains(&command))
}

/// A file system's description: that of BPF has its own number, so that clients pin there.
fn statfs(process: &mut Process<'_>, path: Option<u64>, descriptor: i32, into: u64) -> Answer {
    let file = match path {
        Some(address) => process.text(address).and_then(|path| process.look_at(&path)),
        None => process.look_at_descriptor(descriptor),
    };
    // What cannot be looked at is the kernel's to refuse.
    let Ok(file) = file else { return Answer::Continue };
    let traces = |probes: &Probes| crate::table::id_of(&file).is_ok_and(|id| probes.is_root(id));
    let kind = match process.probes {
        _ if process.is_bpffs(&file) => BPF_FS,
        Some(probes) if traces(probes) => TRACE_FS,
        _ => return Answer::Continue,
    };
    let Ok(status) = rustix::fs::fstatfs(&file) else { return Answer::Continue };
    // The numbers of the structure, in its order; the kind of file system is the first.
    let mut words = [0u64; 15];
    words[0] = kind;
    words[1] = status.f_bsize as u64;
    words[8] = status.f_namelen as u64;
    words[9] = status.f_frsize as u64;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    match process.write(into, &bytes) {
        Ok(()) => Answer::Value(0),
        Err(error) => Answer::Error(if error == Errno::EINTR { error } else { Errno::EFAULT }),
    }
}
