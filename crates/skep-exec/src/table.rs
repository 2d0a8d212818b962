//! Descriptors: which files of processes are which objects, and when the last one is closed.
//!
//! ```text
//!   object <-- File: a sealed memory file of ours --open again--> a client's open file, closed, copied, sent, mapped at will
//!                |                                                          |
//!                +-------------- inotify: opened, closed <------------------+
//! ```
//!
//! A client's descriptor is recognised by the file's number (`stat`), so copies of descriptors in any process are the
//! object too. The kernel tells when a file was opened, and when an open file is closed for the last time: a file that
//! is open nowhere holds no object any more. A pinned object has an empty file in the BPF file system, which holds it
//! until the file is removed.

use parking_lot::Mutex;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, memfd_create, open};
use skep::sys::SysEngine;
use skep_sys::{Access, Errno, Handle, Object};
use std::collections::HashMap;
use std::mem::MaybeUninit;

/// What identifies a file: the device and the number.
pub(crate) type FileId = (u64, u64);

/// All files that are objects.
#[derive(Debug)]
pub(crate) struct Table {
    inotify: OwnedFd,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    by_id: HashMap<FileId, File>,
    by_object: HashMap<(u8, u32), FileId>,
    by_watch: HashMap<i32, FileId>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("files", &self.by_id.len()).finish()
    }
}

/// A file that is an object.
struct File {
    handle: Handle<SysEngine>,
    /// Our own descriptor; `None` for a pin, whose file is the client's.
    memory: Option<OwnedFd>,
    /// How often it is open at clients.
    open: i64,
    watch: i32,
    key: (u8, u32),
}

impl Table {
    pub(crate) fn new() -> std::io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { inotify, files: Mutex::new(Files::default()) })
    }

    /// The descriptor that is readable when files were closed.
    pub(crate) fn changes(&self) -> &OwnedFd {
        &self.inotify
    }

    /// The object of a file.
    pub(crate) fn find(&self, id: FileId) -> Option<Handle<SysEngine>> {
        self.files.lock().by_id.get(&id).map(|file| file.handle.clone())
    }

    /// Opens the object's file for a client.
    pub(crate) fn open(&self, handle: &Handle<SysEngine>) -> Result<OwnedFd, Errno> {
        let key = key_of(handle.object());
        let mut files = self.files.lock();
        let id = match files.by_object.get(&key) {
            Some(id) => *id,
            None => {
                let memory = memory_of(handle.object())?;
                self.add(&mut files, handle, Some(memory), key)?
            }
        };
        let memory = files.by_id.get(&id).and_then(|file| file.memory.as_ref()).ok_or(Errno::EIO)?;
        let access = match handle.access() {
            Access { write: false, .. } => OFlags::RDONLY,
            Access { read: false, .. } => OFlags::WRONLY,
            _ => OFlags::RDWR,
        };
        // The kernel counts this opening, and its end when the client has closed the last copy.
        open(own_path(memory), access | OFlags::CLOEXEC, Mode::empty()).map_err(number)
    }

    /// Lets a file of the BPF file system hold an object.
    pub(crate) fn pin(&self, file: OwnedFd, handle: &Handle<SysEngine>) -> Result<(), Errno> {
        let mut files = self.files.lock();
        let id = id_of(&file)?;
        let watch =
            inotify::add_watch(&self.inotify, own_path(&file), WatchFlags::DELETE_SELF).map_err(number)?;
        let pinned =
            File { handle: handle.clone(), memory: None, open: 0, watch, key: key_of(handle.object()) };
        files.by_watch.insert(watch, id);
        files.by_id.insert(id, pinned);
        Ok(())
    }

    fn add(
        &self,
        files: &mut Files,
        handle: &Handle<SysEngine>,
        memory: Option<OwnedFd>,
        key: (u8, u32),
    ) -> Result<FileId, Errno> {
        let file = memory.as_ref().ok_or(Errno::EIO)?;
        let id = id_of(file)?;
        let events = WatchFlags::OPEN | WatchFlags::CLOSE;
        let watch = inotify::add_watch(&self.inotify, own_path(file), events).map_err(number)?;
        files.by_watch.insert(watch, id);
        files.by_object.insert(key, id);
        files.by_id.insert(id, File { handle: handle.with_access(Access::ALL), memory, open: 0, watch, key });
        Ok(id)
    }

    /// Takes notice of what was opened and closed, and lets go of objects that nobody holds.
    pub(crate) fn settle(&self) {
        // Dropped after the lock: the end of an object may take a while.
        let mut ended = Vec::new();
        let mut files = self.files.lock();
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut room);
        let mut changed = Vec::new();
        while let Ok(event) = reader.next() {
            let Some(id) = files.by_watch.get(&event.wd()).copied() else { continue };
            let Some(file) = files.by_id.get_mut(&id) else { continue };
            if event.events().contains(ReadFlags::OPEN) {
                file.open += 1;
            }
            if event.events().intersects(ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE) {
                file.open -= 1;
            }
            changed.push((id, event.events().contains(ReadFlags::DELETE_SELF)));
        }
        for (id, deleted) in changed {
            let unused = files.by_id.get(&id).is_some_and(|file| file.memory.is_some() && file.open <= 0);
            if (unused || deleted)
                && let Some(file) = files.by_id.remove(&id)
            {
                files.by_watch.remove(&file.watch);
                if file.memory.is_some() {
                    files.by_object.remove(&file.key);
                    // The watch of a removed file ends by itself; this one's file ends now.
                    let _removed = inotify::remove_watch(&self.inotify, file.watch);
                }
                ended.push(file);
            }
        }
        drop(files);
        drop(ended);
    }
}

/// A file for an object: empty, unless it is memory that clients map.
fn memory_of(object: &Object<SysEngine>) -> Result<OwnedFd, Errno> {
    let name = object.file_name();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know that flag.
        Err(rustix::io::Errno::INVAL) => memfd_create(name, flags),
        made => made,
    };
    let memory = memory.map_err(number)?;
    // Its size is for ever 0: a client that maps it finds nothing, and cannot use up memory.
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(number)?;
    Ok(memory)
}

fn key_of(object: &Object<SysEngine>) -> (u8, u32) {
    let kind = match object {
        Object::Map(_) => 0,
        Object::Program(_) => 1,
        Object::Btf(_) => 2,
        Object::Link(_) => 3,
    };
    (kind, object.id())
}

pub(crate) fn id_of(file: &OwnedFd) -> Result<FileId, Errno> {
    let status = fstat(file).map_err(number)?;
    Ok((status.st_dev, status.st_ino))
}

/// The path by which this process opens a file of its own again.
fn own_path(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

pub(crate) fn number(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}
