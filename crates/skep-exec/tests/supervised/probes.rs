//! Probes of a world, as clients find them, open them and attach programs to them.

use super::mapped::close;
use super::{ONE, bpf, hash, lookup, supervised};
use skep::world::{Event, Function, Happening, Machine, ProbePoint, World};
use std::io;
use std::process::Command;

const TRACING: &str = "/sys/kernel/tracing";
const DEVICES: &str = "/sys/bus/event_source/devices";
const KPROBE: u64 = 2;
const TRACEPOINT: u64 = 5;
const RAW_TRACEPOINT: u64 = 17;
const PERF_EVENT: u64 = 41;
const KPROBE_MULTI: u64 = 42;
const UPROBE_MULTI: u64 = 48;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const SET_BPF: u64 = 0x4004_2408;
const LINK_CREATE: u32 = 28;
const BINARY: &str = "/proc/self/exe";

/// The world of scenarios that have probes.
pub(super) fn world(scenario: &str) -> Option<World> {
    (scenario == "watches").then(|| {
        let mut machine = Machine::new();
        let probes = &mut machine.probes;
        for name in ["first", "second.isra.0"] {
            probes.add_function(Function { name: name.to_owned(), address: 0, size: 0 }).unwrap();
        }
        probes.add_tracepoint("group", "point", ["u64 small"]).unwrap();
        // Both sides of the test are this very file.
        let own = std::env::current_exe().unwrap();
        probes.add_binary(&own);
        let call = |point| Happening::Call { point, arguments: vec![7], result: Some(0) };
        let (group, name) = ("group".to_owned(), "point".to_owned());
        let trace = Happening::Trace { group, name, record: vec![0; 16], arguments: vec![3] };
        let (first, second) = (ProbePoint::function("first"), ProbePoint::function("second.isra.0"));
        let system_call = Some("getppid".to_owned());
        for (name, what, system_call) in [
            ("call", call(first.clone()), None),
            ("inner", call(second), None),
            ("pass", trace, None),
            ("inside", call(ProbePoint::binary(own, 64)), None),
            ("parent", call(first), system_call),
        ] {
            probes.add_event(Event { name: name.to_owned(), what, system_call, after: None }).unwrap();
        }
        World::new(machine)
    })
}

fn failed<T>() -> Result<T, i32> {
    Err(io::Error::last_os_error().raw_os_error().unwrap())
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Lets an event happen. Returns how many programs ran.
fn fire(name: &str) -> u64 {
    read(&format!("{TRACING}/fire/{name}")).trim().parse().unwrap()
}

fn kind(name: &str) -> u32 {
    read(&format!("{DEVICES}/{name}/type")).trim().parse().unwrap()
}

/// perf_event_open(2) with a type, `config`, `config1`, `config2`.
fn open(kind: u32, config: u64, name: u64, place: u64, (pid, cpu): (i32, i32)) -> Result<i32, i32> {
    let mut attr = [0u64; 16];
    (attr[0], attr[1], attr[7], attr[8]) = (u64::from(kind) | 128 << 32, config, name, place);
    // SAFETY: the supervisor or the kernel reads the attributes and the name.
    let done = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), pid, cpu, -1, 8u64) };
    if done < 0 { failed() } else { Ok(done as i32) }
}

fn function(name: &std::ffi::CStr, config: u64) -> Result<i32, i32> {
    open(kind("kprobe"), config, name.as_ptr() as u64, 0, (-1, 0))
}

fn ioctl(file: i32, request: u64, argument: i32) -> Result<i32, i32> {
    // SAFETY: these requests have numbers as arguments.
    let done = unsafe { libc::ioctl(file, request, argument) };
    if done < 0 { failed() } else { Ok(done) }
}

fn load(kind: u64, expected: u64, insns: &[u64]) -> i32 {
    let (text, at) = (c"GPL".as_ptr() as u64, insns.as_ptr() as u64);
    let fields = [(0, kind, 4), (4, insns.len() as u64, 4), (8, at, 8), (16, text, 8), (68, expected, 4)];
    bpf(5, &fields).unwrap() as i32
}

fn idle(kind: u64, expected: u64) -> i32 {
    load(kind, expected, &[0xb7, 0x95])
}

/// A program that adds its cookie to the only element of a map.
fn counting(map: i32, kind: u64, expected: u64) -> i32 {
    load(
        kind,
        expected,
        &[
            0xbf | 6 << 8 | 1 << 12,
            0x18 | 1 << 8 | 1 << 12 | (map as u64) << 32,
            0,
            0x62 | 10 << 8 | 0xfffc << 16, // *(u32 *)(r10 - 4) = 0
            0xbf | 2 << 8 | 10 << 12,
            0x07 | 2 << 8 | 0xffff_fffc << 32,
            0x85 | 1 << 32,
            0x15 | 4 << 16, // if r0 == 0 goto +4
            0xbf | 7 << 8,
            0xbf | 1 << 8 | 6 << 12,
            0x85 | 174 << 32,
            0xdb | 7 << 8, // lock *(u64 *)(r7 + 0) += r0
            0xb7,
            0x95,
        ],
    )
}

fn array() -> i32 {
    bpf(0, &[(0, 2, 4), (4, 4, 4), (8, 8, 4), (12, 1, 4)]).unwrap() as i32
}

fn link(program: i32, target: i32, cookie: u64) -> Result<i32, i32> {
    let fields = [(0, program as u64, 4), (4, target as u64, 4), (8, PERF_EVENT, 4), (16, cookie, 8)];
    bpf(LINK_CREATE, &fields).map(|link| link as i32)
}

/// What the application does.
pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "watches" => {
            functions();
            many();
            tracepoints();
            definitions();
            binaries();
        }
        "unwatched" => {
            assert!(std::fs::metadata(format!("{TRACING}/fire")).is_err());
            let attach = [PERF_EVENT, KPROBE_MULTI, UPROBE_MULTI];
            for (attach, expected) in attach.into_iter().zip([0, KPROBE_MULTI, UPROBE_MULTI]) {
                let program = idle(KPROBE, expected) as u64;
                let made = bpf(LINK_CREATE, &[(0, program, 4), (8, attach, 4)]);
                assert_eq!(made, Err(libc::EINVAL), "{attach}");
            }
        }
        _ => return false,
    }
    true
}

fn functions() {
    let map = array();
    let program = counting(map, KPROBE, 0);
    // By a link, which holds the event.
    let event = function(c"first", 0).unwrap();
    let attached = link(program, event, 5).unwrap();
    assert_eq!(link(program, event, 6), Err(libc::EEXIST), "an event has one program");
    close(event);
    assert_eq!((fire("call"), lookup(map, 0)), (1, Ok(5)));
    assert_eq!(fire("inner"), 0, "another function");
    // With a system call of the application's.
    // SAFETY: it takes nothing.
    unsafe { libc::getppid() };
    assert_eq!(lookup(map, 0), Ok(10));
    let mut info = [0u64; 8];
    let name = [0u8; 16];
    (info[3], info[4]) = (name.as_ptr() as u64, 16);
    bpf(15, &[(0, attached as u64, 4), (4, 64, 4), (8, info.as_mut_ptr() as u64, 8)]).unwrap();
    // The kind of link; the kind of event; the length of the name; the cookie.
    assert_eq!((info[0] as u32, info[2], info[4] as u32, info[7]), (7, 3, 6, 5));
    assert_eq!(&name[..6], b"first\0");
    close(attached);
    assert_eq!((fire("call"), lookup(map, 0)), (0, Ok(10)), "the link is gone");
    // SAFETY: it takes nothing.
    unsafe { libc::getppid() };
    assert_eq!(lookup(map, 0), Ok(10));
    // By ioctl, at the function's return.
    let event = function(c"second.isra.0", 1).unwrap();
    assert_eq!(ioctl(event, SET_BPF, program), Ok(0));
    assert_eq!(ioctl(event, SET_BPF, program), Err(libc::EEXIST));
    assert_eq!(fire("inner"), 1);
    assert_eq!((ioctl(event, DISABLE, 0), fire("inner")), (Ok(0), 0));
    assert_eq!((ioctl(event, ENABLE, 0), fire("inner")), (Ok(0), 1));
    assert_eq!(lookup(map, 0), Ok(10), "it has no cookie");
    close(event);
    assert_eq!(fire("inner"), 0);
    // What there is not.
    assert_eq!(function(c"bogus", 0), Err(libc::ENOENT));
    let kprobe = kind("kprobe");
    let name = c"first".as_ptr() as u64;
    assert_eq!(open(kprobe, 0, name, 256, (-1, 0)), Err(libc::EINVAL), "behind its end");
    assert_eq!(open(kprobe, 1, name, 4, (-1, 0)), Err(libc::EINVAL), "it does not return from there");
    assert_eq!(open(kprobe, 0, 8, 0, (-1, 0)), Err(libc::EFAULT));
    assert_eq!(open(kprobe, 0, name, 0, (-1, -1)), Err(libc::EINVAL));
    assert_eq!(open(kprobe, 0, name, 0, (i32::MAX, -1)), Err(libc::ESRCH));
    assert_eq!(open(kprobe, 0, name, 0, (-2, 0)), Err(libc::ESRCH));
    assert_eq!(link(program, hash(), 0), Err(libc::EBADF), "no perf event");
    let event = function(c"first", 0).unwrap();
    assert_eq!(link(idle(TRACEPOINT, 0), event, 0), Err(libc::EINVAL), "another type");
    assert_eq!(ioctl(event, SET_BPF, hash()), Err(libc::EINVAL));
    // SAFETY: a new mapping.
    let mapped =
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, event, 0) };
    assert_eq!(mapped, libc::MAP_FAILED, "it has no samples");
    close(event);
}

fn many() {
    let map = array();
    let program = counting(map, KPROBE, KPROBE_MULTI);
    let names = [c"first".as_ptr() as u64, c"second.isra.0".as_ptr() as u64];
    let cookies = [1u64, 100];
    let create = |count: u64, names: u64, cookies: u64| {
        let fields = [(0, program as u64, 4), (8, KPROBE_MULTI, 4), (20, count, 4), (24, names, 8)];
        bpf(LINK_CREATE, &[&fields[..], &[(40, cookies, 8)]].concat()).map(|link| link as i32)
    };
    let attached = create(2, names.as_ptr() as u64, cookies.as_ptr() as u64).unwrap();
    assert_eq!((fire("call"), fire("inner"), lookup(map, 0)), (1, 1, Ok(101)));
    close(attached);
    assert_eq!((fire("call"), lookup(map, 0)), (0, Ok(101)));
    let bogus = [c"bogus".as_ptr() as u64];
    assert_eq!(create(1, bogus.as_ptr() as u64, 0), Err(libc::ESRCH));
    assert_eq!(create(0, names.as_ptr() as u64, 0), Err(libc::EINVAL));
    assert_eq!(create(u64::from(u32::MAX), names.as_ptr() as u64, 0), Err(libc::E2BIG));
    assert_eq!(create(2, 8, 0), Err(libc::EFAULT));
    assert_eq!(create(2, 0, 0), Err(libc::EINVAL));
    assert_eq!(link(program, 0, 0), Err(libc::EINVAL), "it expects many");
}

fn tracepoints() {
    let id: u64 = read(&format!("{TRACING}/events/group/point/id")).trim().parse().unwrap();
    assert!(read(&format!("{TRACING}/events/group/point/format")).contains("u64 small;\toffset:8;\tsize:8"));
    let opened = |id| open(2, id, 0, 0, (-1, 0));
    let event = opened(id).unwrap();
    let map = array();
    let attached = link(counting(map, TRACEPOINT, 0), event, 9).unwrap();
    assert_eq!((fire("pass"), lookup(map, 0)), (1, Ok(9)));
    close(attached);
    // r0 = *(u64 *)(r1 + 16), which is behind the record.
    let wide = load(TRACEPOINT, 0, &[0x79 | 1 << 12 | 16 << 16, 0x95]);
    assert_eq!(link(wide, event, 0), Err(libc::EACCES));
    assert_eq!(ioctl(event, SET_BPF, wide), Err(libc::EACCES));
    assert_eq!(opened(id + 1), Err(libc::EINVAL));
    let raw = counting(map, RAW_TRACEPOINT, 0) as u64;
    let name = c"point".as_ptr() as u64;
    let attached = bpf(17, &[(0, name, 8), (8, raw, 4), (16, 1, 8)]).unwrap();
    assert_eq!((fire("pass"), lookup(map, 0)), (1, Ok(10)));
    close(attached as i32);
    assert_eq!(fire("pass"), 0);
}

/// Writes a line to a file of definitions, as clients do.
fn define(file: &str, line: &str) -> Result<(), i32> {
    use std::io::Write;
    let opened = std::fs::OpenOptions::new().append(true).open(format!("{TRACING}/{file}"));
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| error.raw_os_error().unwrap())
}

fn definitions() {
    assert_eq!(define("kprobe_events", "p:own/start first"), Ok(()));
    assert_eq!(read(&format!("{TRACING}/kprobe_events")), "p:own/start first\n");
    assert_eq!(define("kprobe_events", "p:own/start first"), Err(libc::EEXIST));
    assert_eq!(define("kprobe_events", "r4:own/end bogus"), Err(libc::ENOENT));
    for bad in ["q:own/x first", "p:own/../x first", "p:own/x", "p:/x first", "p:own/x first+0x1000", "r4"] {
        assert_eq!(define("kprobe_events", bad), Err(libc::EINVAL), "{bad}");
    }
    assert_eq!(define("kprobe_events", &"#".repeat(5000)), Err(libc::E2BIG));
    let id: u64 = read(&format!("{TRACING}/events/own/start/id")).trim().parse().unwrap();
    let event = open(2, id, 0, 0, (-1, 0)).unwrap();
    assert_eq!(ioctl(event, SET_BPF, idle(KPROBE, 0)), Ok(0));
    assert_eq!(fire("call"), 1);
    close(event);
    let event = open(2, id, 0, 0, (-1, 0)).unwrap();
    assert_eq!(define("kprobe_events", "-:own/start"), Err(libc::EBUSY));
    close(event);
    assert_eq!(define("kprobe_events", "-:own/start"), Ok(()));
    assert_eq!(define("kprobe_events", "-:own/start"), Err(libc::ENOENT));
    assert!(std::fs::metadata(format!("{TRACING}/events/own")).is_err());
    assert_eq!(read(&format!("{TRACING}/kprobe_events")), "");
}

fn binaries() {
    let map = array();
    let program = counting(map, KPROBE, UPROBE_MULTI);
    let offsets = [64u64, 128];
    let create = |path: &std::ffi::CStr, process: u64| {
        let cookie = [11u64, 0];
        let fields = [(0, program as u64, 4), (8, UPROBE_MULTI, 4), (16, path.as_ptr() as u64, 8)];
        let more = [(24, offsets.as_ptr() as u64, 8), (40, cookie.as_ptr() as u64, 8), (48, 2, 4)];
        bpf(LINK_CREATE, &[&fields[..], &more, &[(56, process, 4)]].concat()).map(|link| link as i32)
    };
    let own = std::ffi::CString::new(std::fs::read_link(BINARY).unwrap().to_str().unwrap()).unwrap();
    for process in [0, u64::from(std::process::id())] {
        let attached = create(&own, process).unwrap();
        assert_eq!(fire("inside"), 1);
        close(attached);
    }
    assert_eq!((fire("inside"), lookup(map, 0)), (0, Ok(22)));
    assert_eq!(create(c"/", 0), Err(libc::EBADF));
    assert_eq!(create(c"/no/such/file", 0), Err(libc::ENOENT));
    assert_eq!(create(c"/proc/version", 0), Err(libc::EOPNOTSUPP), "the world does not name it");
    assert_eq!(create(&own, i32::MAX as u64), Err(libc::ESRCH));
    assert_eq!(create(&own, u64::from(u32::MAX)), Err(libc::EINVAL));
    let opened = |offset| open(kind("uprobe"), 0, own.as_ptr() as u64, offset, (-1, 0)).unwrap();
    let (event, elsewhere) = (opened(64), opened(65));
    for event in [event, elsewhere] {
        link(counting(map, KPROBE, 0), event, 1).unwrap();
    }
    assert_eq!(fire("inside"), 1);
}

#[test]
fn programs_at_probes_of_a_world_run_when_its_events_happen() {
    let Some((status, log, missing)) = supervised("watches") else { return };
    if missing.is_empty() {
        assert!(status.success());
        let named = log.iter().any(|line| line.contains("/proc/version"));
        assert!(named, "what the world does not name is said");
    }
}

#[test]
fn without_probes_in_the_world_they_are_refused_as_ever() {
    let Some((status, ..)) = supervised("unwatched") else { return };
    assert!(status.success());
}

#[test]
fn an_event_with_a_system_call_that_the_start_needs_is_refused() {
    let mut machine = Machine::new();
    machine.probes.add_function(Function { name: "f".to_owned(), address: 0, size: 0 }).unwrap();
    let what = Happening::Call { point: ProbePoint::function("f"), arguments: Vec::new(), result: None };
    let (name, system_call) = ("x".to_owned(), Some("execve".to_owned()));
    machine.probes.add_event(Event { name, what, system_call, after: None }).unwrap();
    let world = World::new(machine);
    let runtime = skep::Runtime::builder().world(&world).build().unwrap();
    let supervisor = skep_exec::Supervisor::new(skep::sys::SysEngine::new(runtime, Some(world)));
    let one = ONE.lock();
    let error = supervisor.run(&mut Command::new("/bin/true")).unwrap_err();
    drop(one);
    assert!(matches!(error, skep_exec::Error::SystemCall { .. }), "{error}");
}
