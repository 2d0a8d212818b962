//! A virtual machine that answers questions: a kernel, and as its only program the guest of this crate.
//!
//! ```text
//!   initrd: /init = guest, /requests        kernel --> guest: reads, asks, prints --> second serial line --> answers
//! ```
//!
//! The machine needs neither disks nor modules. It may hang on a question, and is killed then.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The guest's source.
const GUEST: &str = include_str!("../guest/guest.c");

/// The source of the guest that makes the calls of a script.
const CALLS: &str = include_str!("../guest/calls.c");

/// The source of the guest that runs programs.
const PROGRAMS: &str = include_str!("../guest/programs.c");

/// The time limit after which the machine is killed.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The last line of the guest.
const DONE: &str = "DONE";

/// Asks the kernel in that file (a `vmlinuz`); the returned text contains the answers, among other lines.
///
/// # Errors
///
/// A program could not be started, or the machine did not end in time.
pub fn ask(kernel: &Path, requests: &str) -> Result<String, String> {
    ask_with(GUEST, kernel, requests, &[])
}

/// Lets the kernel in that file answer the calls of a [script](crate::calls::script).
///
/// # Errors
///
/// As for [`ask`].
pub fn call(kernel: &Path, script: &str) -> Result<String, String> {
    ask_with(CALLS, kernel, script, &[])
}

/// Runs programs of this machine, with the libraries that they are linked to, on that kernel and a processor that has
/// all that QEMU knows. The returned text contains their output, and a line `PROGRAM n ended with STATUS` for each.
///
/// # Errors
///
/// As for [`ask`].
pub fn programs(kernel: &Path, programs: &[PathBuf], arguments: &[String]) -> Result<String, String> {
    let mut files = Vec::new();
    for (index, program) in programs.iter().enumerate() {
        files.push((index.to_string(), stripped(program)?));
        for library in libraries(program)? {
            let name = library.display().to_string().trim_start_matches('/').to_owned();
            if !files.iter().any(|(known, _)| *known == name) {
                files.push((name, read(&library)?));
            }
        }
    }
    ask_with(PROGRAMS, kernel, &arguments.join("\n"), &files)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A program without what only debuggers read.
fn stripped(program: &Path) -> Result<Vec<u8>, String> {
    let copy = std::env::temp_dir().join(format!("skep-stripped-{}", std::process::id()));
    let status = Command::new("strip").arg("-o").arg(&copy).arg(program).status();
    let bytes = match status {
        Ok(status) if status.success() => read(&copy),
        Ok(status) => Err(format!("strip ended with {status}")),
        Err(error) => Err(format!("strip: {error}")),
    };
    // A file that remains does no harm.
    let _ = fs::remove_file(&copy);
    bytes
}

/// The files that a program is linked to, with the dynamic linker.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

fn ask_with(
    guest: &str,
    kernel: &Path,
    requests: &str,
    files: &[(String, Vec<u8>)],
) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("skep-verdicts-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let answer = ask_in(guest, &folder, kernel, (requests, files));
    // A directory that remains does no harm.
    let _ = fs::remove_dir_all(&folder);
    answer
}

fn ask_in(
    guest: &str,
    folder: &Path,
    kernel: &Path,
    (requests, files): (&str, &[(String, Vec<u8>)]),
) -> Result<String, String> {
    let initrd = folder.join("initrd");
    let guest = fs::read(compiled(guest, folder)?).map_err(|error| format!("the guest: {error}"))?;
    let mut contents: Vec<(&str, u32, &[u8])> = vec![
        ("sys", 0o40755, &[]),
        ("dev", 0o40755, &[]),
        ("proc", 0o40755, &[]),
        ("tmp", 0o40755, &[]),
        ("init", 0o100755, &guest),
        ("requests", 0o100644, requests.as_bytes()),
    ];
    let mut folders = BTreeSet::new();
    for (name, bytes) in files {
        // The nearest comes first, and the kernel makes no folder in one that is not there.
        let above: Vec<&Path> = Path::new(name).ancestors().skip(1).collect();
        for folder in above.iter().rev().filter_map(|folder| folder.to_str()) {
            if !folder.is_empty() && folders.insert(folder) {
                contents.push((folder, 0o40755, &[]));
            }
        }
        contents.push((name, 0o100755, bytes));
    }
    fs::write(&initrd, archive(&contents)).map_err(|error| format!("{}: {error}", initrd.display()))?;
    let machine = Command::new("qemu-system-x86_64")
        .args([
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-m",
            "1024",
            "-display",
            "none",
            "-no-reboot",
            "-net",
            "none",
        ])
        .args(["-serial", "null", "-serial", "stdio"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(&initrd)
        .args(["-append", "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
    finished(machine)
}

/// The guest as a static program.
fn compiled(guest: &str, folder: &Path) -> Result<PathBuf, String> {
    let (source, program) = (folder.join("guest.c"), folder.join("guest"));
    fs::write(&source, guest).map_err(|error| format!("{}: {error}", source.display()))?;
    let status = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(&source).status();
    match status {
        Ok(status) if status.success() => Ok(program),
        Ok(status) => Err(format!("cc ended with {status}")),
        Err(error) => Err(format!("cc: {error}")),
    }
}

/// The machine's output.
fn finished(mut machine: Child) -> Result<String, String> {
    let Some(mut output) = machine.stdout.take() else { return Err("the machine has no output".to_owned()) };
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output read before an error counts.
        let _ = output.read_to_end(&mut bytes);
        bytes
    });
    let start = Instant::now();
    while start.elapsed() < PATIENCE && matches!(machine.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(50));
    }
    // It may have ended already.
    let _ = machine.kill();
    let _ = machine.wait();
    let text = reader.join().map_err(|_| "the machine's output was lost".to_owned())?;
    let text = String::from_utf8_lossy(&text).into_owned();
    match text.lines().any(|line| line.trim() == DONE) {
        true => Ok(text),
        false => Err(format!("the machine did not end in time; it printed\n{text}")),
    }
}

/// Files as a cpio archive: each has a header of hexadecimal numbers, its name and its bytes, all aligned to 4.
fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (index, (name, mode, bytes)) in files.iter().chain(&[("TRAILER!!!", 0, &[][..])]).enumerate() {
        let numbers =
            [index as u32 + 1, *mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        archive.extend(b"070701");
        archive.extend(numbers.iter().flat_map(|number| format!("{number:08x}").into_bytes()));
        archive.extend(name.as_bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(*bytes);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_align_names_and_bytes_to_four() {
        let archive = archive(&[("ab", 0o100644, b"xyz")]);
        assert_eq!(&archive[..14], b"07070100000001");
        assert_eq!(&archive[54..62], b"00000003");
        assert_eq!(&archive[110..126], b"ab\0\0\0\0xyz\x00070701");
        assert_eq!(archive.len() % 4, 0);
    }
}
