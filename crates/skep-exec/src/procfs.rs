//! What `/proc` says of descriptors: clients recognise objects by it.
//!
//! ```text
//!   readlink /proc/self/fd/5        -->  anon_inode:bpf-map
//!   open     /proc/self/fdinfo/5    -->  a file with what the kernel says of it, and with lines about the object
//!   open     /sys/fs/bpf/dump       -->  of an iterator's link: a file with what its program writes
//! ```
//!
//! The kernel would say of these files that they are memory. Of all other paths it answers itself. A path that is
//! changed by another thread during the call gives that process nothing but another answer about itself.

use crate::arch::{OPENS, READLINKS};
use crate::filter::NOT_TO_READ;
use crate::listener::Answer;
use crate::process::Process;
use crate::table::number;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use skep::sys::SysEngine;
use skep_sys::{Caller, Errno, Handle, Object, Place as At, System};

/// The beginning of a path that may be about a descriptor.
const PROC: &[u8] = b"/proc/";

/// Answers a call that reads a link or opens a file.
pub(crate) fn answer(system: &System<SysEngine>, process: &mut Process<'_>) -> Answer {
    let (call, arguments) = (process.call.number, process.call.arguments);
    let directory = |path: usize| (path == 1).then_some(arguments[0] as i32);
    if let Some((_, path)) = READLINKS.iter().find(|(number, _)| *number == call) {
        let (into, len) = (arguments[path + 1], arguments[path + 2]);
        let Some((place, handle)) = named(process, directory(*path), arguments[*path]) else {
            return Answer::Continue;
        };
        return if place.folder == "fd" { link(process, &handle, into, len) } else { Answer::Continue };
    }
    if let Some((_, path, flags)) = OPENS.iter().find(|(number, ..)| *number == call) {
        if let Some(probes) = process.probes {
            let flags = arguments[*flags] as i32;
            if let Some(answer) = probes.opened(process, (directory(*path), arguments[*path]), flags) {
                return answer;
            }
            if flags & NOT_TO_READ != 0 {
                return Answer::Continue;
            }
        }
        let Some((place, handle)) = named(process, directory(*path), arguments[*path]) else {
            let opened = Opened {
                directory: directory(*path),
                path: arguments[*path],
                flags: arguments[*flags] as i32,
            };
            return pin(system, process, &opened).unwrap_or(Answer::Continue);
        };
        return if place.folder == "fdinfo" {
            open(system, process, &place, &handle)
        } else {
            Answer::Continue
        };
    }
    Answer::Continue
}

/// What a call that opens a file asks for.
struct Opened {
    directory: Option<i32>,
    path: u64,
    flags: i32,
}

/// A path about a descriptor: `/proc/PROCESS/FOLDER/DESCRIPTOR`.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// With what is between, as in `12/task/13`.
    process: String,
    folder: &'static str,
    descriptor: u32,
}

impl Place {
    fn parse(path: &str, own: u32) -> Option<Self> {
        let mut parts = path.strip_prefix("/proc/")?.rsplit('/');
        let descriptor = parts.next()?;
        let folder = parts.next()?;
        let folder = ["fd", "fdinfo"].into_iter().find(|known| *known == folder)?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let process = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
            ("self" | "thread-self", None, ..) => own.to_string(),
            (process, None, ..) if digits(process) => process.to_owned(),
            (thread, Some("task"), Some("self"), None) if digits(thread) => thread.to_owned(),
            (thread, Some("task"), Some(process), None) if digits(thread) && digits(process) => {
                format!("{process}/task/{thread}")
            }
            _ => return None,
        };
        let descriptor = Some(descriptor).filter(|text| digits(text))?.parse().ok()?;
        Some(Self { process, folder, descriptor })
    }

    /// The path of what this process sees of it.
    fn path(&self, folder: &str) -> String {
        format!("/proc/{}/{folder}/{}", self.process, self.descriptor)
    }
}

/// The object of a descriptor that a path is about.
fn named(process: &mut Process<'_>, directory: Option<i32>, path: u64) -> Option<(Place, Handle<SysEngine>)> {
    let mut path = process.text(path).ok()?;
    if !path.is_empty() && path.iter().all(u8::is_ascii_digit) {
        // In a directory that may be one of these.
        path = process.start(directory, &path).ok()?.into_os_string().into_encoded_bytes();
    }
    if !path.starts_with(PROC) {
        return None;
    }
    let place = Place::parse(std::str::from_utf8(&path).ok()?, process.call.thread)?;
    let (file, _) = process.file_at(&place.path("fd")).ok()?;
    let handle = process.table.find(file)?;
    Some((place, handle))
}

/// The text that the link has in Linux.
fn link(process: &mut Process<'_>, handle: &Handle<SysEngine>, into: u64, len: u64) -> Answer {
    let name = match handle.object() {
        // As Linux names what was found by an identifier or a path. One that was just created has another name, which
        // clients do not look for.
        Object::Link(_) => "bpf-link",
        object => object.file_name(),
    };
    let text = format!("anon_inode:{name}");
    // An int, and at least 1, or the kernel says what is wrong.
    let Some(room) = i32::try_from(len as u32).ok().filter(|len| *len > 0) else { return Answer::Continue };
    let now = text.len().min(room as usize);
    match process.write(into, &text.as_bytes()[..now]) {
        Ok(()) => Answer::Value(now as i64),
        Err(error) => Answer::Error(error),
    }
}

/// A file with the lines that Linux has.
fn open(
    system: &System<SysEngine>,
    process: &Process<'_>,
    place: &Place,
    handle: &Handle<SysEngine>,
) -> Answer {
    // Flags and the like are those of the file. Its position is for the library alone (`front.rs`).
    let Ok(text) = std::fs::read_to_string(place.path("fdinfo")) else { return Answer::Continue };
    let ours = ["flags:", "mnt_id:", "ino:"];
    let lines = text.lines().filter(|line| ours.iter().any(|name| line.starts_with(name)));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let text = "pos:\t0\n".to_owned() + &text + &system.description(handle.object());
    give(process, written("fdinfo", text.as_bytes()), true)
}

/// Reads from a pin of an iterator's link are from what its program writes.
fn pin(system: &System<SysEngine>, process: &mut Process<'_>, opened: &Opened) -> Option<Answer> {
    // Every file that is opened for reading comes by here.
    if !process.table.has_pinned_iterators() {
        return None;
    }
    let path = process.text(opened.path).ok()?;
    let handle = process.pinned(opened.directory, &path).ok()?;
    let Object::Link(link) = handle.object() else { return None };
    if !matches!(link.place(), At::Iterator { .. }) {
        return None;
    }
    let file = system.iterate(link).and_then(|bytes| written("bpf_iter", &bytes));
    Some(give(process, file, opened.flags & libc::O_CLOEXEC != 0))
}

/// Gives a process a file.
pub(crate) fn give(process: &Process<'_>, file: Result<OwnedFd, Errno>, closed_on_exec: bool) -> Answer {
    let flags = if closed_on_exec { libc::O_CLOEXEC } else { 0 };
    let added = file.and_then(|file| process.listener.add_with(process.call, file.as_fd(), flags));
    added.map_or_else(Answer::Error, |descriptor| Answer::Value(descriptor.into()))
}

/// A file of memory with these bytes, at its beginning, that nobody writes to.
pub(crate) fn written(name: &str, bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(number)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let done = rustix::io::write(&file, rest).map_err(number)?;
        rest = &rest[done..];
    }
    seek(&file, SeekFrom::Start(0)).map_err(number)?;
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, all).map_err(number)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_about_descriptors_are_recognised_and_no_others() {
        let parsed = |path| Place::parse(path, 77).map(|place| (place.path("fd"), place.folder));
        assert_eq!(parsed("/proc/self/fd/5"), Some(("/proc/77/fd/5".to_owned(), "fd")));
        assert_eq!(parsed("/proc/thread-self/fdinfo/0"), Some(("/proc/77/fd/0".to_owned(), "fdinfo")));
        assert_eq!(parsed("/proc/12/fd/34"), Some(("/proc/12/fd/34".to_owned(), "fd")));
        assert_eq!(parsed("/proc/12/task/13/fd/3"), Some(("/proc/12/task/13/fd/3".to_owned(), "fd")));
        for other in [
            "/proc/self/fd/",
            "/proc/self/fd/+5",
            "/proc/self/fd/x",
            "/proc/self/maps/5",
            "/proc/1/2/fd/5",
            "/proc/../fd/5",
            "/proc//fd/5",
            "/proc/fd/5",
            "/tmp/proc/self/fd/5",
            "/proc/self/fd/99999999999",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }
}
