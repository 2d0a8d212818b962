//! Programs on control groups of the machine, which end with their group.

use super::{bpf, raw, soon, supervised};
use skep_testkit::skip;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const SCENARIO: &str = "attaches to the group ";
/// `BPF_F_ALLOW_MULTI`.
const MULTI: u64 = 2;

/// The part of the application that is about groups; whether it knows the scenario.
pub(super) fn application(scenario: &str) -> bool {
    let Some(path) = scenario.strip_prefix(SCENARIO) else { return false };
    let inner = Path::new(path).join("inner");
    fs::create_dir(&inner).unwrap();
    let (outside, inside) = (File::open(path).unwrap(), File::open(&inner).unwrap());
    let program = load();
    let attach = |group: &File| {
        let target = group.as_raw_fd() as u64;
        bpf(8, &[(0, target, 4), (4, program as u64, 4), (8, 0, 4), (12, MULTI, 4)])
    };
    attach(&outside).unwrap();
    attach(&inside).unwrap();
    assert_eq!((count(&inside, 0), count(&inside, 1)), (Ok(1), Ok(2)), "its own, and those around it");
    assert_eq!(count(&outside, 1), Ok(1));
    assert_eq!(attach(&File::open("/").unwrap()), Err(libc::EBADF));
    // SAFETY: a descriptor of this test.
    unsafe { libc::close(program) };
    assert!(first_program().is_ok(), "the groups hold the program");
    fs::remove_dir(&inner).unwrap();
    assert!(soon(|| count(&inside, 0) == Ok(0)), "programs end with their group");
    fs::remove_dir(path).unwrap();
    assert!(soon(|| first_program() == Err(libc::ENOENT)), "nothing holds the program");
    true
}

/// A program of incoming packets that lets all pass.
fn load() -> i32 {
    let insns: [u64; 2] = [0x1_0000_00b7, 0x95];
    let (at, licence) = (insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
    bpf(5, &[(0, 8, 4), (4, 2, 4), (8, at, 8), (16, licence, 8)]).unwrap() as i32
}

/// How many programs a group has, or how many run for it.
fn count(group: &File, effective: u32) -> Result<u32, i32> {
    let mut attributes = [0u32; 16];
    (attributes[0], attributes[2]) = (group.as_raw_fd() as u32, effective);
    raw(16, attributes.as_mut_ptr() as u64, 64).map(|_| attributes[6])
}

fn first_program() -> Result<u32, i32> {
    let mut attributes = [0u32; 2];
    raw(11, attributes.as_mut_ptr() as u64, 8).map(|_| attributes[1])
}

/// A new control group, if this process may make one.
fn new_group() -> Result<PathBuf, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount =
        mount.filter(|words| words.get(2) == Some(&"cgroup2")).map(|words| words[1].to_owned()).next();
    let mount = mount.ok_or("no version 2 of control groups is mounted")?;
    let path = Path::new(&mount).join(format!("skep-test-{}", std::process::id()));
    fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

#[test]
fn programs_of_control_groups_end_with_their_group() {
    let path = match new_group() {
        Ok(path) => path,
        Err(why) => return skip("programs of control groups", &why),
    };
    let ran = supervised(&format!("{SCENARIO}{}", path.display()));
    // The application has removed it, unless it failed.
    let _inner = fs::remove_dir(path.join("inner"));
    let _outer = fs::remove_dir(&path);
    let Some((status, traced, _)) = ran else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}
