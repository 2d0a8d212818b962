//! The files in which clients look for probes: a tracing file system, and the types of perf events.
//!
//! Both are directories of ordinary files that are mounted over the kernel's. What a process reads there is what the
//! world has; what it writes is seen by its descriptor's number (`netlink::HIGH`).

use super::folder::Folder;
use crate::files::Files;
use crate::probed::Mount;
use crate::table::FileId;
use rustix::fs::stat;
use skep::world::Probes;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where clients look.
pub(super) const TRACING: &str = "/sys/kernel/tracing";
const DEVICES: &str = "/sys/bus/event_source/devices";
/// The types of perf events, far from the kernel's own, and the number of their bit for returns.
pub(super) const KPROBE: u32 = 1_000_001;
pub(super) const UPROBE: u32 = 1_000_002;

/// What was prepared.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) mounts: Vec<Mount>,
    /// The directory of tracepoints.
    pub(super) events: Folder,
    pub(super) root: FileId,
    pub(super) definitions: [FileId; 2],
    /// Files whose opening lets an event happen, by its name.
    pub(super) fires: Vec<(FileId, String)>,
}

/// Writes the files.
pub(crate) fn prepare(files: &Files, probes: &Probes) -> io::Result<Prepared> {
    let directory = files.directory("tracing")?;
    let put = |path: &str, text: &str| -> io::Result<PathBuf> {
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text)?;
        Ok(path)
    };
    let mut functions = String::new();
    probes.functions().for_each(|function| functions.push_str(&format!("{}\n", function.name)));
    put("available_filter_functions", &functions)?;
    let mut names = String::new();
    for tracepoint in probes.tracepoints() {
        let (group, name) = (tracepoint.group(), tracepoint.name());
        names.push_str(&format!("{group}:{name}\n"));
        put(&format!("events/{group}/{name}/id"), &format!("{}\n", tracepoint.id()))?;
        put(&format!("events/{group}/{name}/format"), &tracepoint.format())?;
    }
    fs::create_dir_all(directory.join("events"))?;
    put("available_events", &names)?;
    let definitions = [put("kprobe_events", "")?, put("uprobe_events", "")?];
    let fires = probes.events().map(|event| {
        let path = put(&format!("fire/{}", event.name), "")?;
        Ok((id(&path)?, event.name.clone()))
    });
    let fires = fires.collect::<io::Result<Vec<_>>>()?;
    let [kprobes, uprobes] = definitions;
    let (definitions, root) = ([id(&kprobes)?, id(&uprobes)?], id(&directory)?);
    let devices = devices(files)?;
    let mounts = [(&directory, TRACING), (&devices, DEVICES)];
    let mounts = mounts.into_iter().filter(|(_, to)| Path::new(to).exists());
    let mounts = mounts.filter_map(|(from, to)| {
        let from = CString::new(from.as_os_str().as_bytes()).ok()?;
        Some((from, CString::new(to).ok()?, libc::MS_BIND))
    });
    let events = Folder::open(&directory.join("events"))?;
    Ok(Prepared { mounts: mounts.collect(), events, root, definitions, fires })
}

/// The types of perf events: the kernel's, and those of probes, which are the world's.
fn devices(files: &Files) -> io::Result<PathBuf> {
    let directory = files.directory("event_source")?;
    for (name, kind, formats) in [
        ("kprobe", KPROBE, &[("retprobe", "config:0\n")][..]),
        ("uprobe", UPROBE, &[("retprobe", "config:0\n"), ("ref_ctr_offset", "config:32-63\n")][..]),
    ] {
        let own = directory.join(name);
        fs::create_dir_all(own.join("format"))?;
        fs::write(own.join("type"), format!("{kind}\n"))?;
        formats.iter().try_for_each(|(format, text)| fs::write(own.join("format").join(format), text))?;
    }
    for entry in fs::read_dir(DEVICES).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name == "kprobe" || name == "uprobe" {
            continue;
        }
        // The links lead out of the directory; the kernel's files are where they are.
        if let Ok(target) = fs::canonicalize(entry.path()) {
            symlink(target, directory.join(name))?;
        }
    }
    Ok(directory)
}

pub(super) fn id(path: &Path) -> io::Result<FileId> {
    let status = stat(path)?;
    Ok((status.st_dev, status.st_ino))
}
