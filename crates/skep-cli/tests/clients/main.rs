//! Applications of others, run by an ordinary user under `skep exec`: those of `examples/clients`.
//!
//! Each is built as its README says, in a directory that every user may read. Where the tests run as root, the
//! application runs as nobody.

mod libraries;

use skep_testkit::skip;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group of nobody.
const NOBODY: u32 = 65534;

/// A directory of a test's own.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("skep-clients-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        open_to_all(&place);
        let place = Self(place);
        place.copy(Path::new(env!("CARGO_BIN_EXE_skep")));
        place
    }

    /// Copies a file, for everyone to read and run.
    fn copy(&self, file: &Path) {
        let copy = self.0.join(file.file_name().unwrap());
        std::fs::copy(file, &copy).unwrap();
        open_to_all(&copy);
    }

    /// Runs a tool here; `None` if it is not there, and its output otherwise.
    fn tool(&self, name: &str, arguments: &[&str]) -> Option<Vec<u8>> {
        let output = Command::new(name).args(arguments).current_dir(&self.0).output();
        let output = match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Some(output.stdout)
    }

    /// What an application prints under `skep exec` with these arguments; `None` where nothing can be supervised.
    fn exec(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(self.0.join("skep"));
        command.arg("exec").args(arguments).current_dir(&self.0);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if err.contains("cannot supervise the application") {
            skip("an application under the supervisor", &err);
            return None;
        }
        assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
        Some(out.into_owned())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A directory that remains does no harm.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clients").join(name)
}

#[test]
fn a_program_without_a_library_counts_packets() {
    let place = Place::new("python");
    place.copy(&source("python/client.py"));
    if place.tool("python3", &["--version"]).is_none() {
        return skip("a client in Python", "python3 not found");
    }
    // The first one of the user's path may be in a directory of root's.
    let python = ["/usr/bin/python3", "python3"].into_iter().find(|name| place.tool(name, &["-V"]).is_some());
    let Some(out) = place.exec(&["--", python.unwrap(), "client.py"]) else { return };
    assert_eq!(out, "verdict 2, counted 42\nanon_inode:bpf-prog\nerror 13: R0 !read_ok\n");
}

#[test]
fn a_skeleton_of_libbpf_reads_records_samples_and_variables() {
    let place = Place::new("c");
    for file in ["events_bpf.c", "client.c"] {
        place.copy(&source("c").join(file));
    }
    let include = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let compile = ["-O2", "-g", "--target=bpf", &include, "-c", "events_bpf.c", "-o", "events.bpf.o"];
    if !Path::new("/usr/include/bpf/libbpf.h").exists() || place.tool("clang-19", &compile).is_none() {
        return skip("a client with libbpf", "clang-19 or libbpf's headers not found");
    }
    let skeleton = ["gen", "skeleton", "events.bpf.o", "name", "events"];
    let made = ["bpftool", "/usr/sbin/bpftool"].into_iter().find_map(|name| place.tool(name, &skeleton));
    let Some(made) = made else { return skip("a client with libbpf", "bpftool not found") };
    std::fs::write(place.0.join("events.skel.h"), made).unwrap();
    place.tool("cc", &["-O2", "-I.", "client.c", "-lbpf", "-o", "client"]).expect("a C compiler");
    let Some(out) = place.exec(&["--", "./client"]) else { return };
    let expected = "60 bytes: passed\n100 bytes: dropped\n64 bytes: dropped\n1500 bytes: dropped\n\
                    packet 2: 100 bytes\npacket 3: 64 bytes\npacket 4: 1500 bytes\n\
                    packet 1: 60 bytes, \"who and whence\"...\n4 seen, 0 lost\n";
    assert_eq!(out, expected);
}

/// The supervisor answers by itself: none of its threads makes the call, and each thread that makes it has an answer.
#[test]
fn the_supervisor_answers_without_the_bpf_of_the_kernel() {
    let place = Place::new("strace");
    place.copy(&source("python/client.py"));
    let traced = ["-f", "-e", "trace=bpf", "-o", "trace", "true"];
    if place.tool("strace", &traced).is_none() {
        return skip("the supervisor under strace", "strace not found");
    }
    let skep = place.0.join("skep");
    let python = if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
    if place.tool(python, &["-V"]).is_none() {
        return skip("the supervisor under strace", "python3 not found");
    }
    let arguments = ["-f", "-e", "trace=bpf", "-o", "trace"];
    let exec = ["exec", "--log", "--", python, "client.py"];
    let mut strace = Command::new("strace");
    let output = strace.args(arguments).arg(&skep).args(exec).current_dir(&place.0).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    if err.contains("cannot supervise the application") || err.contains("ptrace") {
        return skip("the supervisor under strace", &err);
    }
    // Threads that the supervisor answered, and those that made the call at all: its own threads make none.
    let answered: BTreeSet<&str> = err
        .lines()
        .filter(|line| line.contains("] bpf("))
        .filter_map(|line| line.strip_prefix('[')?.split(']').next())
        .collect();
    let trace = std::fs::read_to_string(place.0.join("trace")).unwrap();
    let called: BTreeSet<&str> = trace
        .lines()
        .filter(|line| line.contains(" bpf("))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(!answered.is_empty(), "{err}");
    assert_eq!(called, answered, "{trace}");
    assert!(trace.contains("+++ exited with 0 +++"), "{trace}");
}

#[test]
fn programs_are_loaded_by_the_signatures_that_linux_takes() {
    let place = Place::new("signed");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    place.copy(&here.join("tests/clients/signed.py"));
    for name in ["instructions", "instructions-as-bpftool", "rsa-as-bpftool", "rsa.cert", "p256.cert"] {
        place.copy(&here.join("../skep/tests/signatures").join(name));
    }
    let python = if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" };
    if place.tool(python, &["-V"]).is_none() {
        return skip("a client in Python", "python3 not found");
    }
    let (right, wrong) = ("instructions-as-bpftool", "rsa-as-bpftool");
    let trusted: &[&str] = &["--trusted", "p256.cert", "--trusted", "rsa.cert"];
    let required: &[&str] = &["--trusted", "rsa.cert", "--require-signatures"];
    for (options, signature, answer) in [
        (trusted, Some(right), "loaded"),
        (required, Some(right), "loaded"),
        (trusted, Some(wrong), "EKEYREJECTED"),
        (required, Some(wrong), "EKEYREJECTED"),
        (&["--trusted", "p256.cert"], Some(right), "ENOKEY"),
        (&[], Some(right), "ENOKEY"),
        (&[], None, "loaded"),
        (trusted, None, "loaded"),
        (required, None, "EPERM"),
    ] {
        let client = ["--", python, "signed.py", "instructions"];
        let arguments: Vec<&str> = options.iter().copied().chain(client).chain(signature).collect();
        let Some(said) = place.exec(&arguments) else { return };
        assert_eq!(said.trim(), answer, "{arguments:?}");
    }
}
