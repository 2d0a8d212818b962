//! The choice of how calls come to the supervisor, and the library that spares some of them.

use crate::Error;
use crate::files::Files;
use crate::front::Front;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "LD_PRELOAD";

/// How an application's calls of bpf(2) are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontChoice {
    /// [`Preload`](Self::Preload) where it is possible, otherwise [`Notify`](Self::Notify).
    Auto,
    /// The kernel notifies the supervisor of each call.
    #[default]
    Notify,
    /// A library in the application answers look-ups and updates in arrays, from memory that it shares with the
    /// supervisor; other calls are notified. It is loaded by the dynamic linker (`LD_PRELOAD`), so calls that a program
    /// does not make through `syscall()` of its libc are notified as well. The engine's runtime must share its maps.
    Preload,
}

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Linking {
    /// For this processor, by a dynamic linker.
    Dynamic,
    Static,
    /// For another processor, or another size of addresses.
    Foreign,
    /// A script, or not to be found or read.
    Unknown,
}

/// Has the library loaded into the program, if that is the choice.
pub(crate) fn prepare(
    choice: FrontChoice,
    command: &mut Command,
    files: Result<&Files, &io::Error>,
) -> Result<Option<Front>, Error> {
    if choice == FrontChoice::Notify {
        return Ok(None);
    }
    match load(command, files) {
        Ok(front) => Ok(Some(front)),
        Err(_) if choice == FrontChoice::Auto => Ok(None),
        Err(why) => Err(Error::Preload { program: command.get_program().to_owned(), why }),
    }
}

fn load(command: &mut Command, files: Result<&Files, &io::Error>) -> Result<Front, String> {
    let library = skep_preload::LIBRARY.ok_or("there is none for this target")?;
    match linking(command) {
        Linking::Dynamic | Linking::Unknown => {}
        Linking::Static => return Err("it is linked statically, and loads no libraries".to_owned()),
        Linking::Foreign => return Err("it is a program for another processor".to_owned()),
    }
    let files = files.map_err(|error| format!("no temporary directory: {error}"))?;
    let path = files.add("libskep_preload.so", library).map_err(|error| error.to_string())?;
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ' | b'$')) {
        return Err(format!("{VARIABLE} cannot name {}", path.display()));
    }
    let front = Front::new().map_err(|error| error.to_string())?;
    let given =
        command.get_envs().find(|(name, _)| *name == VARIABLE).map(|(_, value)| value.map(OsStr::to_owned));
    let before = given.unwrap_or_else(|| std::env::var_os(VARIABLE)).unwrap_or_default();
    let mut value = path.into_os_string();
    if !before.is_empty() {
        value.push(":");
        value.push(before);
    }
    command.env(VARIABLE, value);
    Ok(front)
}

fn linking(command: &Command) -> Linking {
    let path =
        command.get_envs().find(|(name, _)| *name == "PATH").map(|(_, value)| value.map(OsStr::to_owned));
    let path = path.unwrap_or_else(|| std::env::var_os("PATH"));
    let found = find(command.get_program(), path);
    found.and_then(|program| File::open(program).ok()).map_or(Linking::Unknown, |file| read(&file))
}

/// The file of a program, as execvp(3) finds it.
fn find(program: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = path?;
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(program));
    candidates.find(|candidate| Path::is_file(candidate))
}

/// Looks for the name of a dynamic linker in the headers of an ELF file.
fn read(mut file: &File) -> Linking {
    /// `EM_X86_64` and `EM_AARCH64` of `elf.h`, and the kind of header that names the linker.
    const MACHINES: [(&str, u16); 2] = [("x86_64", 62), ("aarch64", 183)];
    const INTERPRETER: u32 = 3;
    const HEADER: usize = 56;
    let mut start = [0; 64];
    if file.read_exact(&mut start).is_err() || !start.starts_with(b"\x7fELF") {
        return Linking::Unknown;
    }
    let half = |at: usize| u16::from_le_bytes([start[at], start[at + 1]]);
    let ours = MACHINES.iter().find(|(name, _)| *name == std::env::consts::ARCH);
    // 64 bits, little-endian.
    if start[4] != 2 || start[5] != 1 || ours.is_none_or(|(_, machine)| *machine != half(18)) {
        return Linking::Foreign;
    }
    let mut offset = [0; 8];
    offset.copy_from_slice(&start[32..40]);
    let offset = u64::from_le_bytes(offset);
    for number in 0..u64::from(half(56)) {
        let mut header = [0; HEADER];
        let at = offset.saturating_add(number * HEADER as u64);
        if file.read_exact_at(&mut header, at).is_err() {
            return Linking::Unknown;
        }
        if u32::from_le_bytes([header[0], header[1], header[2], header[3]]) == INTERPRETER {
            return Linking::Dynamic;
        }
    }
    Linking::Static
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_headers() {
        let files = Files::new().unwrap();
        let ours = File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(read(&ours), Linking::Dynamic);
        let mut bytes = vec![0; 64];
        ours.read_exact_at(&mut bytes, 0).unwrap();
        let case = |name: &str, bytes: &[u8]| read(&File::open(files.add(name, bytes).unwrap()).unwrap());
        assert_eq!(case("script", b"#!/bin/sh\n"), Linking::Unknown);
        assert_eq!(case("cut", &bytes), Linking::Unknown);
        let mut small = bytes.clone();
        small[4] = 1;
        assert_eq!(case("32 bits", &small), Linking::Foreign);
        let mut bare = bytes.clone();
        bare[56..58].fill(0);
        assert_eq!(case("static", &bare), Linking::Static);
        assert_eq!(find(OsStr::new("sh"), Some("/no/such:/bin".into())), Some("/bin/sh".into()));
        assert_eq!(find(OsStr::new("./x"), None), Some("./x".into()));
    }
}
