//! A process as its call sees it: memory, descriptors, files.

use crate::directories::Directories;
use crate::groups::{self, Watched};
use crate::listener::{Call, Listener};
use crate::mappings::{self, Mapping};
use crate::memory;
use crate::netlink;
use crate::probes::{self, Opened, Probes};
use crate::procfs::written;
use crate::sockets::{Closed, Sockets};
use crate::table::{FileId, Table, number};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fstat, open, openat2, readlink, statat};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use skep::PerfEvent;
use skep::sys::{ProbeEvent, SysEngine};
use skep_sys::{Access, Caller, ClientSocket, ControlGroup, Errno, Handle};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A process that has made a call.
pub(crate) struct Process<'a> {
    pub(crate) listener: &'a Listener,
    pub(crate) table: &'a Table,
    pub(crate) call: &'a Call,
    pub(crate) directories: &'a Directories,
    /// The device of its BPF file system, if there is one.
    pub(crate) bpffs: Option<u64>,
    pub(crate) groups: &'a Watched,
    /// Whether the library that answers look-ups may be in the process.
    pub(crate) has_library: bool,
    pub(crate) sockets: &'a Sockets,
    /// The cookies of sockets that the call has named.
    pub(crate) named: Vec<u64>,
    /// Closed sockets whose elements the call has removed.
    pub(crate) ended: Vec<Closed>,
    /// The world's probes, if it has any.
    pub(crate) probes: Option<&'a Probes>,
    /// Where it is noted what lacks.
    pub(crate) engine: &'a SysEngine,
    /// Signals of the whole process that waited when it was last asked.
    pub(crate) shared_signals: u64,
}

/// Signals that wait for a thread, by what the kernel says of it: its own, and those of its process.
fn signals(status: &str) -> (u64, u64) {
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
    };
    let taken = !set("SigBlk:");
    (set("SigPnd:") & taken, set("ShdPnd:") & taken)
}

impl Process<'_> {
    fn path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.call.thread)
    }

    /// The thread has this number as long as its call waits: what was found under it was its own.
    fn still<T>(&self, found: T) -> Result<T, Errno> {
        if self.listener.is_valid(self.call) { Ok(found) } else { Err(Errno::EINTR) }
    }

    /// The file of a descriptor, and how it is open.
    pub(crate) fn file(&self, descriptor: i32) -> Result<(FileId, Access), Errno> {
        if descriptor < 0 {
            return Err(Errno::EBADF);
        }
        let found = self.directories.look(self.call.thread, descriptor);
        let (file, link) = found.map_err(|_| Errno::EBADF)?;
        let access = Access { read: link.st_mode & 0o400 != 0, write: link.st_mode & 0o200 != 0 };
        self.still(((file.st_dev, file.st_ino), access))
    }

    /// The file that a link in `/proc` leads to, and how it is open.
    pub(crate) fn file_at(&self, path: &str) -> Result<(FileId, Access), Errno> {
        let at = |flags| statat(rustix::fs::CWD, path, flags).map_err(|_| Errno::EBADF);
        let (file, link) = (at(AtFlags::empty())?, at(AtFlags::SYMLINK_NOFOLLOW)?);
        let access = Access { read: link.st_mode & 0o400 != 0, write: link.st_mode & 0o200 != 0 };
        self.still(((file.st_dev, file.st_ino), access))
    }

    /// The file of an object, to be given to the process.
    fn file_for(&self, handle: &Handle<SysEngine>) -> Result<OwnedFd, Errno> {
        self.table.open(handle)
    }

    /// Where it has mapped a file from its beginning on: the lowest such address.
    pub(crate) fn mapping_of(&self, (device, inode): FileId) -> Option<u64> {
        let maps = std::fs::read_to_string(self.path("maps")).ok()?;
        let at = maps.lines().filter_map(Mapping::parse).find_map(|mapping| {
            (mapping.file == (device, inode) && mapping.offset == 0).then_some(mapping.start)
        });
        self.still(at).ok().flatten()
    }

    /// Whether a descriptor is open.
    pub(crate) fn has_descriptor(&self, descriptor: i32) -> bool {
        readlink(&*self.path(&format!("fd/{descriptor}")), Vec::new()).is_ok()
    }

    /// The perf event of a descriptor, if it is one of ours.
    pub(crate) fn event(&self, descriptor: i32) -> Option<Arc<PerfEvent>> {
        let (file, _) = self.file(descriptor).ok()?;
        self.table.find_event(file)
    }

    /// The perf event of a descriptor, if it is one of a probe.
    pub(crate) fn opened_probe(&self, descriptor: i32) -> Option<Arc<Opened>> {
        self.probes?;
        let (file, _) = self.file(descriptor).ok()?;
        self.table.find_probe(file)
    }

    /// The number of its process; `None` if it is gone.
    pub(crate) fn group(&self) -> Option<u32> {
        self.status("Tgid:")
    }

    /// The process of a thread of that number.
    pub(crate) fn group_of(&self, thread: u32) -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
    }

    /// The file that a path of its leads to.
    pub(crate) fn file_of(&self, directory: Option<i32>, path: &[u8]) -> Result<FileId, Errno> {
        let path = self.start(directory, path)?;
        let status = fstat(self.open(&path, OFlags::PATH, Mode::empty())?).map_err(number)?;
        Ok((status.st_dev, status.st_ino))
    }

    /// The same for an ordinary file.
    ///
    /// # Errors
    ///
    /// [`Errno::EBADF`] for others.
    pub(crate) fn ordinary_file(&self, path: &[u8]) -> Result<FileId, Errno> {
        let status = fstat(self.look_at(path)?).map_err(number)?;
        if !rustix::fs::FileType::from_raw_mode(status.st_mode).is_file() {
            return Err(Errno::EBADF);
        }
        Ok((status.st_dev, status.st_ino))
    }

    /// Whether a descriptor is a perf event of the kernel's.
    pub(crate) fn is_perf_event_of_kernel(&self, descriptor: i32) -> bool {
        let link = readlink(&*self.path(&format!("fd/{descriptor}")), Vec::new());
        link.is_ok_and(|link| link.to_bytes() == b"anon_inode:[perf_event]")
    }

    /// The first number of a line in what the kernel says of the thread.
    fn status<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let status = std::fs::read_to_string(self.path("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// A descriptor of the same open file as one of its own.
    pub(crate) fn take_descriptor(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        let group = self.status("Tgid:").and_then(Pid::from_raw).ok_or(Errno::EINTR)?;
        let process = self.still(pidfd_open(group, PidfdFlags::empty()).map_err(number)?)?;
        pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()).map_err(number)
    }

    /// The directory that a path begins in, in its own view: the root for absolute paths.
    pub(crate) fn start(&self, directory: Option<i32>, path: &[u8]) -> Result<PathBuf, Errno> {
        if path.starts_with(b"/") {
            return Ok(PathBuf::from(OsStr::from_bytes(path)));
        }
        let link = match directory {
            Some(descriptor) if descriptor != libc::AT_FDCWD => self.path(&format!("fd/{descriptor}")),
            _ => self.path("cwd"),
        };
        let directory = readlink(&*link, Vec::new()).map_err(|_| Errno::EBADF)?;
        let directory = OsStr::from_bytes(directory.as_bytes()).to_owned();
        Ok(PathBuf::from(directory).join(OsStr::from_bytes(path)))
    }

    /// Opens a path as the process would.
    fn open(&self, path: &std::path::Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let root = open(self.path("root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(number)?;
        let root = self.still(root)?;
        openat2(root, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::IN_ROOT).map_err(number)
    }

    /// Whether a file is in its BPF file system.
    fn is_inside(&self, file: &impl AsFd) -> bool {
        self.bpffs.is_some() && fstat(file).ok().map(|status| status.st_dev) == self.bpffs
    }

    /// A path of its memory, at most 4095 bytes.
    pub(crate) fn text(&mut self, address: u64) -> Result<Vec<u8>, Errno> {
        let (mut text, mut at) = (Vec::new(), address);
        while text.len() < 4096 {
            // Memory may end at any page.
            let now = (4096 - at % 4096).min(256) as usize;
            let mut chunk = [0; 256];
            self.read(at, &mut chunk[..now])?;
            if let Some(end) = chunk[..now].iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&chunk[..end]);
                return Ok(text);
            }
            text.extend_from_slice(&chunk[..now]);
            at = at.wrapping_add(now as u64);
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// Opens a path without a right to anything.
    pub(crate) fn look_at(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = self.start(None, path)?;
        self.open(&path, OFlags::PATH, Mode::empty())
    }

    /// The same for what one of its descriptors refers to.
    pub(crate) fn look_at_descriptor(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        let path = self.path(&format!("fd/{descriptor}"));
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(number)?;
        self.still(file)
    }

    /// Whether it is in the BPF file system.
    pub(crate) fn is_bpffs(&self, file: &OwnedFd) -> bool {
        self.is_inside(file)
    }
}

impl Drop for Process<'_> {
    /// The call is over, however it has ended.
    fn drop(&mut self) {
        self.sockets.forget(&self.ended);
        self.sockets.know(&self.named);
    }
}

impl Caller<SysEngine> for Process<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        if into.is_empty() {
            return Ok(());
        }
        memory::read(self.call.thread, address, into)?;
        self.still(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if from.is_empty() {
            return Ok(());
        }
        // A thread that waits keeps its number. For this to reach another process, the thread would have to be killed
        // and reaped, and all numbers be used once, between this check and the copy behind it.
        self.still(())?;
        memory::write(self.call.thread, address, from)
    }

    fn handle(&mut self, descriptor: i32) -> Result<Handle<SysEngine>, Errno> {
        let (file, access) = self.file(descriptor)?;
        let handle = self.table.find(file).ok_or(Errno::EINVAL)?;
        Ok(if access == handle.access() { handle } else { handle.with_access(access) })
    }

    fn install(&mut self, handle: Handle<SysEngine>) -> Result<i32, Errno> {
        let file = self.file_for(&handle)?;
        self.listener.add(self.call, file.as_fd())
    }

    fn mapped_at(&mut self, descriptor: i32) -> Option<u64> {
        let (file, _) = self.file(descriptor).ok()?;
        self.mapping_of(file)
    }

    fn is_mapped_for_writing(&mut self, descriptor: i32) -> bool {
        // The library maps arrays to write to them for the process, and nobody could tell which mapping is whose.
        !self.has_library && self.file(descriptor).is_ok_and(|(file, _)| mappings::is_written(file))
    }

    fn output(&mut self, bytes: &[u8]) -> Result<i32, Errno> {
        let file = written("bpf_iter", bytes)?;
        self.listener.add(self.call, file.as_fd())
    }

    fn reserve(&mut self, taken: &[i32]) -> Result<i32, Errno> {
        let limits = std::fs::read_to_string(self.path("limits")).map_err(|_| Errno::EINTR)?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let limit = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
        // The kernel gives the lowest number that is free: the highest ones stay so.
        let mut numbers = (3..(netlink::HIGH.start as i32).min(limit)).rev();
        let free = |number: &i32| !taken.contains(number) && !self.has_descriptor(*number);
        self.still(numbers.find(free))?.ok_or(Errno::EMFILE)
    }

    fn install_at(&mut self, number: i32, handle: Handle<SysEngine>) -> Result<(), Errno> {
        let file = self.file_for(&handle)?;
        if self.has_descriptor(number) {
            return Err(Errno::EMFILE);
        }
        self.listener.add_at(self.call, file.as_fd(), libc::O_CLOEXEC, number as u32).map(drop)
    }

    fn pin(&mut self, directory: Option<i32>, path: &[u8], handle: Handle<SysEngine>) -> Result<(), Errno> {
        let path = self.start(directory, path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::EINVAL) };
        let parent = self.open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        if !self.is_inside(&parent) {
            return Err(Errno::EPERM);
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&parent, name, flags, mode).map_err(number)?;
        self.table.pin(file, &handle).inspect_err(|_| {
            // Half of a pin is none.
            let _removed = rustix::fs::unlinkat(&parent, name, AtFlags::empty());
        })
    }

    fn pinned(&mut self, directory: Option<i32>, path: &[u8]) -> Result<Handle<SysEngine>, Errno> {
        let path = self.start(directory, path)?;
        let file = self.open(&path, OFlags::PATH, Mode::empty())?;
        let status = fstat(&file).map_err(number)?;
        self.table.find((status.st_dev, status.st_ino)).ok_or(Errno::EACCES)
    }

    fn user(&mut self) -> u32 {
        // It waits for its answer: if it has gone meanwhile, nobody will ask.
        self.status("Uid:").unwrap_or_default()
    }

    fn task(&mut self) -> Option<(u32, u32)> {
        let process = self.status("Tgid:")?;
        Some((process, self.call.thread))
    }

    fn interrupted(&mut self) -> bool {
        // Only its end takes a thread out of a notified call, so the thread that answers looks for signals.
        if !self.listener.is_valid(self.call) {
            return true;
        }
        let Ok(status) = std::fs::read_to_string(self.path("status")) else { return true };
        let (own, shared) = signals(&status);
        // A signal for the whole process may be another thread's, which will have taken it when this is asked again.
        let still_there = self.shared_signals & shared != 0;
        self.shared_signals = shared;
        own != 0 || still_there
    }

    fn sees_addresses(&mut self) -> bool {
        // Calls are answered as to a process with all capabilities, from which the kernel hides its addresses only if
        // it hides them from everyone (2). The supervisor is of the same user, so what it tells is no secret.
        std::fs::read("/proc/sys/kernel/kptr_restrict").is_ok_and(|value| !value.starts_with(b"2"))
    }

    fn socket(&mut self, descriptor: i32) -> Result<ClientSocket, Errno> {
        if descriptor < 0 {
            return Err(Errno::EBADF);
        }
        let (file, _) = self.directories.look(self.call.thread, descriptor).or(Err(Errno::EBADF))?;
        let group = self.status("Tgid:").and_then(Pid::from_raw);
        let group = self.still(group)?.ok_or(Errno::EINTR)?;
        // No other file is taken: to close some would wait for others.
        if !rustix::fs::FileType::from_raw_mode(file.st_mode).is_socket() {
            return Err(Errno::ENOTSOCK);
        }
        let socket = self.sockets.look(group, descriptor, file.st_ino);
        // The process had that number all the while if its thread still waits.
        let socket = self.still(socket)??;
        self.named.push(socket.cookie);
        Ok(socket)
    }

    fn closed_sockets(&mut self) -> Vec<u64> {
        let closed = self.sockets.closed();
        let cookies = closed.iter().map(|closed| closed.cookie).collect();
        self.ended.extend(closed);
        cookies
    }

    fn control_group(&mut self, descriptor: i32) -> Result<ControlGroup, Errno> {
        let directory = self.look_at_descriptor(descriptor).or(Err(Errno::EBADF))?;
        let group = self.still(groups::group(&directory)?)?;
        self.groups.add(group.id(), directory);
        Ok(group)
    }

    fn process(&mut self, descriptor: i32) -> Result<u32, Errno> {
        self.file(descriptor)?;
        let link = readlink(self.path(&format!("fd/{descriptor}")), Vec::new()).or(Err(Errno::EBADF))?;
        // Since Linux 6.9 they are in a file system of their own.
        let link = self.still(link)?;
        if link.as_bytes() != b"anon_inode:[pidfd]" && !link.as_bytes().starts_with(b"pidfd:[") {
            return Err(Errno::EBADF);
        }
        let about =
            std::fs::read_to_string(self.path(&format!("fdinfo/{descriptor}"))).or(Err(Errno::EBADF))?;
        let number =
            self.still(about)?.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
        // -1 once it has ended, 0 if it is in no namespace of the supervisor.
        number
            .and_then(|number: i64| u32::try_from(number).ok().filter(|number| *number > 0))
            .ok_or(Errno::ENOENT)
    }

    fn network(&mut self, descriptor: Option<i32>) -> Result<u64, Errno> {
        let Some(descriptor) = descriptor else {
            let own = rustix::fs::stat(self.path("ns/net")).map_err(number)?;
            return self.still(own.st_ino);
        };
        let ((_, id), _) = self.file(descriptor)?;
        let link = readlink(self.path(&format!("fd/{descriptor}")), Vec::new()).or(Err(Errno::EBADF))?;
        if self.still(link)?.as_bytes().starts_with(b"net:[") { Ok(id) } else { Err(Errno::EINVAL) }
    }

    fn handle_of(&mut self, process: u32, descriptor: i32) -> Result<Handle<SysEngine>, Errno> {
        // Numbers of processes mean what they mean to the supervisor: its processes are in no other namespace.
        if rustix::fs::stat(format!("/proc/{process}/fd")).is_err() {
            return Err(Errno::ENOENT);
        }
        let file = rustix::fs::stat(format!("/proc/{process}/fd/{descriptor}")).or(Err(Errno::EBADF))?;
        self.table.find((file.st_dev, file.st_ino)).ok_or(Errno::ENOTSUPP)
    }

    fn probe(&mut self, descriptor: i32) -> Result<Arc<ProbeEvent>, Errno> {
        let opened = self.opened_probe(descriptor).ok_or(Errno::EBADF)?;
        Ok(Arc::clone(&opened.event))
    }

    fn probe_of(&mut self, process: u32, descriptor: i32) -> Result<Arc<ProbeEvent>, Errno> {
        let file = rustix::fs::stat(format!("/proc/{process}/fd/{descriptor}")).or(Err(Errno::EBADF))?;
        let opened = self.table.find_probe((file.st_dev, file.st_ino)).ok_or(Errno::ENOTSUPP)?;
        Ok(Arc::clone(&opened.event))
    }

    fn binary(&mut self, path: &[u8]) -> Result<String, Errno> {
        let probes = self.probes.ok_or(Errno::ENOENT)?;
        let path = probes::named(self, probes, path)?;
        path.into_os_string().into_string().or(Err(Errno::ENOENT))
    }

    fn has_process(&mut self, process: u32) -> bool {
        self.group_of(process).is_some()
    }

    fn perf_event(&mut self, descriptor: i32) -> Result<Arc<PerfEvent>, Errno> {
        let (file, _) = self.file(descriptor)?;
        self.table.find_event(file).ok_or(Errno::EBADF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_do_not_wait_for_a_thread() {
        let status =
            "Name:\tx\nSigPnd:\t0000000000000600\nShdPnd:\t0000000000004002\nSigBlk:\t0000000000004200\n";
        assert_eq!(signals(status), (0x400, 2));
        assert_eq!(signals("SigPnd:\tx\n"), (0, 0));
    }
}
