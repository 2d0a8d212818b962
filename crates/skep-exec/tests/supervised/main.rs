//! Processes under the supervisor: what they get, and what they cannot break.
//!
//! Each test runs this very program again as the supervised application: the test [`application`], which does what the
//! variable `SCENARIO` says.

mod arenas;
mod groups;
mod interrupted;
mod iterators;
mod loaders;
mod mapped;
mod netlink;
mod perf;
mod preloaded;
mod probes;
mod sockets;
mod tables;

use skep::Runtime;
use skep::sys::SysEngine;
use skep_exec::{Error, FrontChoice, Supervisor, possible_cpus};
use skep_testkit::skip;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};

const HASH: u32 = 1;

/// bpf(2), with numbers at offsets of the attributes.
fn bpf(command: u32, fields: &[(usize, u64, usize)]) -> Result<i64, i32> {
    let mut attributes = [0u8; 152];
    for (at, number, width) in fields {
        attributes[*at..at + width].copy_from_slice(&number.to_ne_bytes()[..*width]);
    }
    raw(command, attributes.as_ptr() as u64, 152)
}

fn raw(command: u32, attributes: u64, size: u32) -> Result<i64, i32> {
    // SAFETY: the supervisor answers the call; it writes only where the attributes say, which are memory of this test.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    if answer < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap()) } else { Ok(answer) }
}

fn hash() -> i32 {
    bpf(0, &[(0, HASH.into(), 4), (4, 4, 4), (8, 8, 4), (12, 8, 4)]).unwrap() as i32
}

/// A link to a tracepoint, and its program.
fn raw_tracepoint() -> i32 {
    let insns: [u64; 2] = [0xb7, 0x95];
    let (at, text) = (insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
    let program = bpf(5, &[(0, 17, 4), (4, 2, 4), (8, at, 8), (16, text, 8)]).unwrap();
    bpf(17, &[(0, c"sys_enter".as_ptr() as u64, 8), (8, program as u64, 4)]).unwrap() as i32
}

fn update(map: i32, key: u32, value: u64) -> Result<i64, i32> {
    let (key, value) = (&raw const key as u64, &raw const value as u64);
    bpf(2, &[(0, map as u64, 4), (8, key, 8), (16, value, 8)])
}

fn lookup(map: i32, key: u32) -> Result<u64, i32> {
    let mut value = 0u64;
    let (key, room) = (&raw const key as u64, &raw mut value as u64);
    bpf(1, &[(0, map as u64, 4), (8, key, 8), (16, room, 8)]).map(|_| value)
}

/// The first eight bytes of a longer value.
fn lookup_wide(map: i32, key: u32) -> u64 {
    let mut value = [0u64; 32];
    let (key, room) = (&raw const key as u64, value.as_mut_ptr() as u64);
    bpf(1, &[(0, map as u64, 4), (8, key, 8), (16, room, 8)]).unwrap();
    value[0]
}

/// The first map's identifier.
fn first_map() -> Result<u32, i32> {
    let mut attributes = [0u32; 2];
    raw(12, attributes.as_mut_ptr() as u64, 8).map(|_| attributes[1])
}

/// A child that does something and ends.
fn forked(work: impl FnOnce()) -> i32 {
    // SAFETY: the child makes system calls only, and ends without returning.
    match unsafe { libc::fork() } {
        0 => {
            work();
            // SAFETY: it ends.
            unsafe { libc::_exit(0) }
        }
        child => child,
    }
}

fn wait(child: i32) {
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

/// Whether something becomes so within seconds.
fn soon(is_so: impl Fn() -> bool) -> bool {
    (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        is_so()
    })
}

/// The supervised application; without a scenario it has nothing to do.
#[test]
fn application() {
    let Ok(scenario) = std::env::var("SCENARIO") else { return };
    match &*scenario {
        "shares" => {
            let map = hash();
            update(map, 1, 10).unwrap();
            wait(forked(|| update(map, 1, lookup(map, 1).unwrap() + 1).map(drop).unwrap()));
            assert_eq!(lookup(map, 1), Ok(11), "a fork has the same map");
            // SAFETY: a descriptor of this test.
            let copy = unsafe { libc::dup(map) };
            // SAFETY: as above.
            unsafe { libc::close(map) };
            assert_eq!(lookup(map, 1), Err(libc::EBADF));
            assert_eq!(lookup(copy, 1), Ok(11));
            let id = first_map().unwrap();
            let other = bpf(14, &[(0, id.into(), 4)]).unwrap() as i32;
            // SAFETY: as above.
            unsafe { libc::close(copy) };
            assert_eq!(lookup(other, 1), Ok(11), "found by its identifier");
            // SAFETY: as above.
            unsafe { libc::close(other) };
            assert_eq!(first_map(), Err(libc::ENOENT), "nobody holds it");
        }
        "names" => {
            let map = hash();
            let link = std::fs::read_link(format!("/proc/self/fd/{map}")).unwrap();
            assert_eq!(link.to_str(), Some("anon_inode:bpf-map"));
            let own = std::process::id();
            assert_eq!(std::fs::read_link(format!("/proc/{own}/fd/{map}")).unwrap(), link);
            let said = |name: &str| {
                let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{map}")).unwrap();
                let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:\t")));
                line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
            };
            assert_eq!(["pos", "map_type", "max_entries", "frozen"].map(said), ["0", "1", "8", "0"]);
            assert_ne!(said("memlock"), "0");
            bpf(22, &[(0, map as u64, 4)]).unwrap();
            assert_eq!(said("frozen"), "1");
            let link = raw_tracepoint();
            let name = std::fs::read_link(format!("/proc/self/fd/{link}")).unwrap();
            assert_eq!(name.to_str(), Some("anon_inode:bpf-link"));
            // Other files are the kernel's to describe, and errors too.
            let file = std::fs::File::open("/dev/null").unwrap();
            let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            assert_eq!(link.to_str(), Some("/dev/null"));
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap();
            assert!(text.starts_with("pos:") && !text.contains("map_type"), "{text}");
            assert!(std::fs::read_link("/proc/self/fd/1000").is_err());
            assert!(std::fs::read_to_string("/proc/self/fdinfo/1000").is_err());
        }
        "attacks" => {
            let map = hash();
            assert_eq!(raw(0, 1, 72), Err(libc::EFAULT));
            assert_eq!(raw(0, u64::MAX - 3, 72), Err(libc::EFAULT));
            assert_eq!(raw(99, &raw const map as u64, 4), Err(libc::EINVAL));
            for address in [0, 1, u64::MAX, 1 << 47, u64::MAX - 4096] {
                assert_eq!(
                    bpf(1, &[(0, map as u64, 4), (8, address, 8), (16, address, 8)]),
                    Err(libc::EFAULT)
                );
            }
            // Memory that the application itself cannot write.
            update(map, 5, 5).unwrap();
            let (key, constant) = (5u32, c"constant".as_ptr() as u64);
            let key = &raw const key as u64;
            assert_eq!(bpf(1, &[(0, map as u64, 4), (8, key, 8), (16, constant, 8)]), Err(libc::EFAULT));
            assert_eq!(lookup(1, 5), Err(libc::EINVAL), "another file");
            assert_eq!(lookup(-1, 5), Err(libc::EBADF));
            assert_eq!(lookup(4000, 5), Err(libc::EBADF));
            // A program that names what is no map, with a log.
            let insns = [0x18u64 | 1 << 12 | 77 << 32, 0, 0xb7, 0x95];
            let (text, mut log) = (c"GPL".as_ptr() as u64, [0u8; 256]);
            let load = [
                (0, 1, 4),
                (4, 4, 4),
                (8, insns.as_ptr() as u64, 8),
                (16, text, 8),
                (24, 1, 4),
                (28, 256, 4),
            ];
            let log_at = (32, log.as_mut_ptr() as u64, 8);
            assert_eq!(bpf(5, &[&load[..], &[log_at]].concat()), Err(libc::EBADF));
            assert!(log.starts_with(b"fd 77 is not pointing"), "{}", String::from_utf8_lossy(&log));
            // It cannot be made larger, and so not be used as memory.
            // SAFETY: a descriptor of this test.
            assert_eq!(unsafe { libc::ftruncate(map, 4096) }, -1);
            assert_eq!(lookup(map, 5), Ok(5), "all the same");
        }
        "dies" => {
            // Children that are killed while they call.
            for _ in 0..20 {
                let child = forked(|| {
                    loop {
                        let map = hash();
                        let _ = update(map, 1, 1);
                    }
                });
                std::thread::sleep(std::time::Duration::from_millis(3));
                // SAFETY: a child of this process.
                unsafe { libc::kill(child, libc::SIGKILL) };
                wait(child);
            }
            assert!(soon(|| first_map() == Err(libc::ENOENT)), "what they held is gone");
            // SAFETY: this process ends by a signal.
            unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
            std::thread::sleep(std::time::Duration::from_secs(10));
        }
        "pins" => {
            let (map, path) = (hash(), c"/sys/fs/bpf/pinned".as_ptr() as u64);
            update(map, 1, 77).unwrap();
            bpf(6, &[(0, path, 8), (8, map as u64, 4)]).unwrap();
            assert_eq!(bpf(6, &[(0, path, 8), (8, map as u64, 4)]), Err(libc::EEXIST));
            assert_eq!(bpf(6, &[(0, c"/tmp/no".as_ptr() as u64, 8), (8, map as u64, 4)]), Err(libc::EPERM));
            // SAFETY: a descriptor of this test.
            unsafe { libc::close(map) };
            let again = bpf(7, &[(0, path, 8)]).unwrap() as i32;
            assert_eq!(lookup(again, 1), Ok(77));
            // SAFETY: as above.
            unsafe { libc::close(again) };
            assert!(first_map().is_ok(), "the file holds it");
            std::fs::rename("/sys/fs/bpf/pinned", "/sys/fs/bpf/moved").unwrap();
            assert!(bpf(7, &[(0, c"/sys/fs/bpf/moved".as_ptr() as u64, 8)]).is_ok());
            std::fs::remove_file("/sys/fs/bpf/moved").unwrap();
            // SAFETY: zero is valid for a structure of numbers, which the call fills.
            let mut status: libc::statfs = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            assert_eq!(unsafe { libc::statfs(c"/sys/fs/bpf".as_ptr(), &raw mut status) }, 0);
            assert_eq!(status.f_type as u64, 0xcafe_4a11);
            let directory = std::fs::File::open("/sys/fs/bpf").unwrap();
            status.f_type = 0;
            // SAFETY: as above.
            assert_eq!(unsafe { libc::fstatfs(directory.as_raw_fd(), &raw mut status) }, 0);
            assert_eq!(status.f_type as u64, 0xcafe_4a11);
        }
        "threads" => {
            let map = hash();
            std::thread::scope(|scope| {
                for thread in 0..8u32 {
                    scope.spawn(move || {
                        for round in 0..50 {
                            update(map, thread, round).unwrap();
                            assert_eq!(lookup(map, thread), Ok(round));
                        }
                    });
                }
            });
        }
        "closes" => {
            // The kernel may report two ends at once as one.
            for _ in 0..50 {
                wait(forked(|| {
                    let _first = hash();
                    let id = first_map().unwrap();
                    let _second = bpf(14, &[(0, id.into(), 4)]).unwrap();
                }));
            }
            assert!(soon(|| first_map() == Err(libc::ENOENT)), "an object is left");
            let map = hash();
            update(map, 1, 9).unwrap();
            let id = first_map().unwrap();
            for round in 0..300 {
                let start = Barrier::new(2);
                let open = || {
                    start.wait();
                    bpf(14, &[(0, id.into(), 4)]).unwrap() as i32
                };
                let (one, other) = std::thread::scope(|scope| {
                    let one = scope.spawn(open);
                    (open(), one.join().unwrap())
                });
                // SAFETY: a descriptor of this test.
                unsafe { libc::close(one) };
                assert_eq!(lookup(other, 1), Ok(9), "round {round}");
                // SAFETY: as above.
                unsafe { libc::close(other) };
                assert_eq!(lookup(map, 1), Ok(9), "round {round}");
            }
        }
        "nests" => {
            let runtime = Runtime::builder().build().unwrap();
            let supervisor = Supervisor::new(SysEngine::new(runtime, None));
            let error = supervisor.run(&mut Command::new("/bin/true")).unwrap_err();
            assert!(matches!(error, Error::Supervise { .. }), "{error}");
        }
        "many" => {
            for _ in 0..20 {
                let children: Vec<_> = (0..50)
                    .map(|_| {
                        forked(|| {
                            let map = hash();
                            update(map, 1, 1).unwrap();
                            assert_eq!(lookup(map, 1), Ok(1));
                        })
                    })
                    .collect();
                children.into_iter().for_each(wait);
            }
            assert!(soon(|| first_map() == Err(libc::ENOENT)), "an object is left");
        }
        "holds many" => {
            // SAFETY: numbers, and memory of this test.
            let most = unsafe {
                let mut limit = std::mem::zeroed::<libc::rlimit>();
                assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
                assert_eq!(limit.rlim_cur, 64, "the application has its own limit");
                limit.rlim_cur = limit.rlim_max;
                assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
                limit.rlim_max
            };
            let maps: Vec<_> = (0..most.min(2000) - 100).map(|_| hash()).collect();
            assert!(maps.iter().all(|map| *map > 0));
        }
        "leaves a child" => {
            let child = forked(|| {
                std::thread::sleep(std::time::Duration::from_millis(300));
                let map = hash();
                update(map, 1, 1).unwrap();
            });
            assert!(child > 0);
            std::process::exit(7);
        }
        "may" => {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
            let held = u64::from_str_radix(line.trim(), 16).unwrap();
            assert_eq!(held >> 21 & 1, 1, "CAP_SYS_ADMIN in {line}");
        }
        "probes" => {
            let read = |path: &str| std::fs::read_to_string(path).unwrap();
            assert_eq!(read("/proc/sys/net/core/bpf_jit_enable"), "1\n");
            assert_eq!(read("/proc/sys/net/core/bpf_jit_harden"), "0\n");
            assert_eq!(read("/proc/sys/kernel/unprivileged_bpf_disabled"), "0\n");
            // The largest there is: no machine has that.
            assert_eq!(read("/proc/sys/net/core/bpf_jit_limit"), "9223372036854775807\n");
            assert_eq!(read("/proc/kallsyms"), "");
            // A namespace with a /proc of its own can still be made.
            let new = Command::new("unshare").args(["-Urfp", "--mount-proc", "true"]).status().unwrap();
            assert!(new.success(), "{new}");
            if std::fs::exists("/proc/config.gz").unwrap() {
                let unpacked = Command::new("gzip").args(["-dc", "/proc/config.gz"]).output().unwrap();
                assert!(unpacked.status.success(), "{unpacked:?}");
                let text = String::from_utf8(unpacked.stdout).unwrap();
                assert!(
                    text.contains("\nCONFIG_BPF_JIT=y\n") && text.contains("# CONFIG_KPROBE_EVENTS is"),
                    "{text}"
                );
            }
        }
        "replaces" => {
            // Descriptors are closed and replaced by a thread while others use them.
            let done = AtomicBool::new(false);
            let map = hash();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let file = std::fs::File::open("/dev/null").unwrap();
                        // SAFETY: numbers; nothing else of this process uses 200.
                        unsafe {
                            libc::dup2(map, 200);
                            libc::dup2(file.as_raw_fd(), 200);
                            libc::close(200);
                        }
                    }
                    // Pairs with the loads of the others.
                    done.store(true, Ordering::Release);
                });
                for _ in 0..3 {
                    scope.spawn(|| {
                        // Pairs with the store above.
                        while !done.load(Ordering::Acquire) {
                            let answer = update(200, 1, 1);
                            assert!(matches!(answer, Ok(0) | Err(libc::EBADF | libc::EINVAL)), "{answer:?}");
                        }
                    });
                }
            });
            assert!(matches!(lookup(map, 1), Ok(1) | Err(libc::ENOENT)));
        }
        "execs" => {
            // Another thread calls while one replaces the whole process.
            wait(forked(|| {
                let map = hash();
                std::thread::spawn(move || {
                    loop {
                        let _ = update(map, 1, 1);
                    }
                });
                std::thread::sleep(std::time::Duration::from_millis(5));
                let arguments = [c"true".as_ptr(), std::ptr::null()];
                // SAFETY: texts that end with zero, and a list that ends with null.
                unsafe { libc::execv(c"/bin/true".as_ptr(), arguments.as_ptr()) };
            }));
            assert!(soon(|| first_map() == Err(libc::ENOENT)), "descriptors are closed on exec");
        }
        "asks for what lacks" => {
            assert_eq!(bpf(99, &[]), Err(libc::EINVAL), "a command of the future");
            assert_eq!(bpf(99, &[]), Err(libc::EINVAL));
            assert_eq!(bpf(36, &[(4, 0, 4)]), Err(libc::EPERM), "a token");
            let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let sockets = mapped::map(15, 4, 8, 4, 0);
            let put = |descriptor: u64| {
                let (key, value) = (0u32, descriptor);
                let (key, value) = (&raw const key as u64, &raw const value as u64);
                bpf(2, &[(0, sockets as u64, 4), (8, key, 8), (16, value, 8)])
            };
            // A program for what the sockets of a map send: it is attached, and sees nothing.
            let insns: [u64; 2] = [0x1_0000_00b7, 0x95];
            let (at, licence) = (insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
            let program = bpf(5, &[(0, 16, 4), (4, 2, 4), (8, at, 8), (16, licence, 8)]).unwrap();
            bpf(8, &[(0, sockets as u64, 4), (4, program as u64, 4), (8, 7, 4)]).unwrap();
            assert_eq!(put(socket.as_raw_fd() as u64), Ok(0));
            // An ordinary error.
            assert_eq!(bpf(0, &[(0, HASH.into(), 4)]), Err(libc::EINVAL));
        }
        other => {
            let known = arenas::application(other)
                || mapped::application(other)
                || groups::application(other)
                || iterators::application(other)
                || interrupted::application(other)
                || loaders::application(other)
                || perf::application(other)
                || netlink::application(other)
                || probes::application(other)
                || preloaded::application(other)
                || sockets::application(other)
                || tables::application(other);
            assert!(known, "no scenario {other}");
        }
    }
}

/// Signals are handled for a whole process, so one application runs at a time.
static ONE: Mutex<()> = Mutex::new(());

type Status = Result<ExitStatus, Error>;
type Ran = (ExitStatus, Vec<String>, Vec<String>);

/// Runs a scenario under a supervisor; the status of the application, what was traced, and what was missing. `None`
/// where filters of system calls are not allowed, as in some containers.
fn supervised(scenario: &str) -> Option<Ran> {
    supervise(scenario, FrontChoice::Notify, |run| run())
}

/// The same, where `within` runs it while no other application runs.
fn supervise(
    scenario: &str,
    front: FrontChoice,
    within: impl FnOnce(&mut dyn FnMut() -> Status) -> Status,
) -> Option<Ran> {
    let world = netlink::world(scenario).or_else(|| probes::world(scenario));
    let mut builder = Runtime::builder().cpus(possible_cpus().unwrap()).share_maps(true).privileged(true);
    if let Some(world) = &world {
        builder = builder.world(world);
    }
    let (runtime, network) = (builder.build().unwrap(), netlink::is_seen(scenario));
    let (traced, missing) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (trace, miss, refuse) = (Arc::clone(&traced), Arc::clone(&missing), Arc::clone(&traced));
    let engine = SysEngine::new(runtime, world);
    let engine = match iterators::types(scenario).or_else(|| arenas::types(scenario)) {
        Some(types) => engine.host_types(types),
        None => engine,
    };
    let supervisor = Supervisor::new(engine)
        .front(front)
        .network(network)
        .trace(move |line| trace.lock().unwrap().push(line.to_owned()))
        .warn(move |line| miss.lock().unwrap().push(line.to_owned()))
        .refused(move |refused| refuse.lock().unwrap().push(format!("refused: {refused}")));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["application", "--exact", "--nocapture", "--test-threads=1"]).env("SCENARIO", scenario);
    let one = ONE.lock();
    let (before, mut supervisor) = (descriptors(), Some(supervisor));
    let ran = within(&mut || supervisor.take().unwrap().run(&mut command));
    assert_eq!(descriptors(), before, "descriptors of the supervisor that are left");
    drop(one);
    let status = match ran {
        Err(error @ Error::Supervise { .. }) => {
            skip("an application under the supervisor", &error.to_string());
            return None;
        }
        ran => ran.unwrap(),
    };
    let (traced, missing) = (traced.lock().unwrap().clone(), missing.lock().unwrap().clone());
    Some((status, traced, missing))
}

/// Descriptors of this process that are a supervisor's.
fn descriptors() -> usize {
    let ours = |link: &str| {
        ["bpf", "btf", "perf_event", "seccomp", "inotify", "eventfd", "eventpoll", "pidfd"]
            .iter()
            .any(|part| link.contains(part))
    };
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .filter(|link| ours(&link.to_string_lossy()))
        .count()
}

#[test]
fn what_was_refused_because_it_lacks_is_told_by_name_at_the_end() {
    let Some((status, traced, _)) = supervised("asks for what lacks") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    let refused: Vec<_> = traced.iter().filter(|line| line.starts_with("refused: ")).collect();
    let expected = [
        "refused: command BPF_TOKEN_CREATE",
        "refused: command bpf(99) (2 times)",
        "refused: program for what a socket of the machine sends or receives",
    ];
    assert_eq!(refused, expected);
}

#[test]
fn forks_and_copies_share_a_map_and_it_ends_with_the_last_descriptor() {
    let Some((status, traced, _)) = supervised("shares") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    // Lines of threads that answer at the same time come in any order.
    assert!(traced.iter().any(|line| line.contains("bpf(BPF_MAP_CREATE, 152) = ")), "{traced:?}");
    assert!(traced.iter().any(|line| line.contains("BPF_MAP_GET_NEXT_ID") && line.contains("-1 ENOENT")));
}

#[test]
fn wild_pointers_and_descriptors_are_errors_of_the_one_who_passes_them() {
    let Some((status, traced, _)) = supervised("attacks") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn proc_says_of_descriptors_what_they_are() {
    let Some((status, traced, _)) = supervised("names") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn processes_that_are_killed_while_they_call_leave_nothing() {
    let Some((status, ..)) = supervised("dies") else { return };
    assert_eq!(status.signal(), Some(libc::SIGTERM), "{status}");
}

#[test]
fn files_of_the_bpf_file_system_hold_objects_until_they_are_removed() {
    let Some((status, traced, missing)) = supervised("pins") else { return };
    if missing.is_empty() {
        assert!(status.success(), "{status}\n{}", traced.join("\n"));
    } else {
        // Without namespaces there is no such file system: the warning says so, and pins are refused.
        assert!(missing[0].contains("no mount namespace"), "{missing:?}");
        assert!(!status.success());
    }
}

#[test]
fn threads_call_at_the_same_time() {
    let Some((status, traced, _)) = supervised("threads") else { return };
    assert!(status.success(), "{status}");
    assert!(traced.len() > 800, "{}", traced.len());
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let runtime = Runtime::builder().build().unwrap();
    let one = ONE.lock();
    let error = Supervisor::new(SysEngine::new(runtime, None)).run(&mut Command::new("/no/such/program"));
    drop(one);
    assert!(error.unwrap_err().to_string().starts_with("cannot start /no/such/program: "));
}

#[test]
fn objects_end_with_the_last_descriptor_however_many_are_closed_at_once() {
    let Some((status, traced, _)) = supervised("closes") else { return };
    assert!(status.success(), "{status}\n{}", traced[traced.len().saturating_sub(8)..].join("\n"));
}

#[test]
fn a_supervisor_under_another_says_that_it_cannot_supervise() {
    let Some((status, ..)) = supervised("nests") else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn a_thousand_processes_start_and_stop() {
    let Some((status, traced, _)) = supervised("many") else { return };
    assert!(status.success(), "{status}");
    assert!(traced.len() >= 3000, "{}", traced.len());
}

#[test]
fn the_supervisor_holds_as_many_objects_as_its_limit_may_be_raised_to() {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let set = |current| {
        let new = rustix::process::Rlimit { current: Some(current), maximum: limits.maximum };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, new).unwrap();
    };
    let limited = supervise("holds many", FrontChoice::Notify, |run| {
        set(64);
        let status = run();
        let now = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        set(limits.current.unwrap_or(1024));
        assert_eq!(now, Some(64), "it is as before");
        status
    });
    let Some((status, traced, _)) = limited else { return };
    assert!(status.success(), "{status}\n{}", traced[traced.len().saturating_sub(3)..].join("\n"));
}

#[test]
fn processes_that_outlive_the_first_are_served() {
    let Some((status, traced, _)) = supervised("leaves a child") else { return };
    assert_eq!(status.code(), Some(7), "the first one's status");
    assert!(traced.iter().any(|line| line.contains("BPF_MAP_UPDATE_ELEM")), "{traced:?}");
}

#[test]
fn clients_that_ask_for_capabilities_have_them() {
    let Some((status, _, missing)) = supervised("may") else { return };
    // Without namespaces nothing can be given, and the warning says so.
    assert!(status.success() || !missing.is_empty(), "{status}");
}

#[test]
fn what_clients_probe_says_what_skep_offers() {
    let Some((status, traced, missing)) = supervised("probes") else { return };
    // Without namespaces the machine's files stay in sight, and the warning says so.
    assert!(status.success() || !missing.is_empty(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn descriptors_that_are_replaced_during_calls_are_errors_at_most() {
    let Some((status, ..)) = supervised("replaces") else { return };
    assert!(status.success(), "{status}");
}

#[test]
fn a_process_that_is_replaced_by_exec_during_calls_leaves_nothing() {
    let Some((status, ..)) = supervised("execs") else { return };
    assert!(status.success(), "{status}");
}
