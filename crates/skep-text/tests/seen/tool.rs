//! Children that run named code, and the tools that watch them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use skep_testkit::say;
use skep_text::{Arena, Text};

use crate::common::{Hidden, hidden, skip};

/// What `common::is_child` looks for.
const CHILD: &str = "SKEP_TEXT_CHILD";

/// The directory of a child's files.
const DIRECTORY: &str = "SKEP_TEXT_SEEN_DIRECTORY";

pub(crate) const SPIN: &str = "skep_prog_0011223344556677_spin";
pub(crate) const IDLE: &str = "skep_prog_8899aabbccddeeff_idle";

/// A directory for one test, deleted at the end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("skep-text-{}-{test}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A failure leaves a directory in /tmp, and may hide the reason of a failed test if it panicked.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The directory that the parent made for this child.
pub(crate) fn directory() -> PathBuf {
    std::env::var_os(DIRECTORY).unwrap().into()
}

/// The command line with which this binary runs the calling test and no other.
pub(crate) fn child_arguments() -> Vec<String> {
    let this = skep_testkit::this_test();
    let words = std::iter::once(this.get_program()).chain(this.get_args());
    words.map(|word| word.to_str().unwrap().to_owned()).collect()
}

/// `program` with the variables that make the test binary, if it runs it, a child; and nothing of the user's settings.
pub(crate) fn command(program: impl AsRef<OsStr>, directory: &Directory) -> Command {
    let mut command = Command::new(program);
    command.env(CHILD, "1").env(DIRECTORY, directory.path());
    command.env("HOME", directory.path()).env("LC_ALL", "C").env_remove("DEBUGINFOD_URLS");
    command.env_remove("RUST_TEST_THREADS").stdin(Stdio::null());
    command
}

/// Runs a tool over the child and returns what it printed. Panics when it fails.
pub(crate) fn run(directory: &Directory, program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = command(program, directory).args(arguments).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{program} {arguments:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// A started child that has reported that it is ready.
pub(crate) struct Ready {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Ready {
    pub(crate) fn start(directory: &Directory) -> Self {
        let arguments = child_arguments();
        let mut child = command(&arguments[0], directory)
            .args(&arguments[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended before it was ready");
        }
        Self { child, output }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets the child continue, and waits for its end.
    pub(crate) fn finish(mut self) {
        drop(self.child.stdin.take());
        std::io::copy(&mut self.output, &mut std::io::sink()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

/// Tells the parent that this child is ready.
pub(crate) fn say_ready() {
    println!("\nready {}", std::process::id());
    std::io::stdout().flush().unwrap();
}

/// Runs `work` until the parent lets go, or for a minute.
pub(crate) fn until_parent_lets_go(mut work: impl FnMut()) {
    let parent = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    let start = Instant::now();
    while !parent.is_finished() && start.elapsed() < Duration::from_secs(60) {
        work();
    }
}

/// Runs `work` for about as long.
pub(crate) fn for_a_while(duration: Duration, mut work: impl FnMut()) {
    let start = Instant::now();
    while start.elapsed() < duration {
        work();
    }
}

/// Places `code` and names it.
pub(crate) fn place_named(arena: &Arena, code: &[u8], name: &str) -> Text {
    let mut draft = arena.draft(code.len()).unwrap();
    draft.bytes_mut().copy_from_slice(code);
    draft.set_name(name);
    draft.finalize().unwrap()
}

/// Waits until the address of a dropped text is reused for the next draft of `len` bytes.
pub(crate) fn wait_until_free(arena: &Arena, address: usize, len: usize) {
    let start = Instant::now();
    while arena.draft(len).unwrap().address() != address {
        assert!(start.elapsed() < Duration::from_secs(60), "the place is never used again");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the memory of all dropped texts is reclaimed.
pub(crate) fn wait_until_reclaimed(arena: &Arena) {
    let start = Instant::now();
    while arena.occupancy().chunks_waiting > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is ever reclaimed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a text made of [`counts_down`] for about a millisecond.
pub(crate) fn spin(text: &Text) {
    // SAFETY: the tests call this with such texts only.
    let function = unsafe { std::mem::transmute::<*const u8, extern "C" fn(u64)>(text.as_ptr()) };
    function(1 << 21);
}

/// Whether the tool is installed and can see this program. Otherwise the test is skipped, which is a failure with
/// `SKEP_REQUIRE_ALL=1`.
pub(crate) fn is_installed(tool: &str, package: &str, what: &str) -> bool {
    if Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        skip(what, &format!("{tool} not found (Debian: {package})"));
        return false;
    }
    if !tools_see_this_program() {
        hidden(Hidden::DebuggersAndProfilers, what);
        return false;
    }
    true
}

/// Whether another process that inspects this one sees this program in it.
fn tools_see_this_program() -> bool {
    let process = format!("/proc/{}/exe", std::process::id());
    let seen = Command::new("readlink").arg(process).output().unwrap().stdout;
    String::from_utf8_lossy(&seen).trim() == std::env::current_exe().unwrap().to_string_lossy()
}

/// Reports that the system does not let the tool work here. That is no failure even with `SKEP_REQUIRE_ALL=1`,
/// because the user cannot change it, and our own readers have checked the files.
pub(crate) fn is_refused(what: &str, why: &str) {
    let required = std::env::var_os("SKEP_REQUIRE_ALL").is_some_and(|value| value == "1");
    let word = if required { "REFUSED BY THE SYSTEM" } else { "SKIPPED" };
    say(&format!("{word}: {what}: {}", why.trim().lines().next().unwrap_or("no reason given")));
}
