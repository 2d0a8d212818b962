//! Descriptors: which files of processes are which objects, and when the last one is closed.
//!
//! ```text
//!   object <-- File: a sealed memory file of ours --open again--> a client's open file, closed, copied, sent,
//! mapped at will
//!                |                                                          |
//!                +------ inotify: one was closed; lease: was it the last? <-+
//! ```
//!
//! A client's descriptor is recognised by the file's number (`stat`), so copies of descriptors in any process are the
//! object too. The kernel tells when an open file is closed for the last time (inotify), but two such events at once
//! may come as one: they are no count, only a reason to ask. The answer is exact: the kernel grants a write lease
//! (fcntl(2), `F_SETLEASE`) only to the one who alone has a file open. Descriptors in messages and mappings keep a file
//! open too. The event comes a moment before the file is no longer counted as open, so a file that is still open is
//! asked again: at each call for a while, and then from time to time as long as it is open.
//!
//! A pinned object has an empty file in the BPF file system, which holds it until the file is removed.
//!
//! What would break it: a second open file of ours that lives longer than an installation. The file that
//! memfd_create(2) gives is not counted, so `memory_of` opens it again and keeps that one alone. Maps that have files
//! of their own keep, and map, the file that is not counted.

use crate::front;
use crate::probes::Opened;
use parking_lot::Mutex;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, memfd_create, open};
use skep::PerfEvent;
use skep::sys::SysEngine;
use skep_sys::{Access, Errno, Handle, MapObject, Object, Place};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// `F_SETSIG` of fcntl(2).
const F_SETSIG: libc::c_int = 10;

/// How long each call looks at a file that was closed and may be open elsewhere.
const DOUBT: Duration = Duration::from_millis(20);

/// The kind of maps in [`key_of`], and one for perf events, which have numbers of their own.
const MAP: u8 = 0;
const EVENT: u8 = 4;

/// What identifies a file: the device and the number.
pub(crate) type FileId = (u64, u64);

/// All files that are objects.
#[derive(Debug)]
pub(crate) struct Table {
    inotify: OwnedFd,
    files: Mutex<Files>,
    /// The number of the next perf event. Relaxed: numbers alone.
    events: AtomicU32,
}

#[derive(Default)]
struct Files {
    by_id: HashMap<FileId, File>,
    by_object: HashMap<(u8, u32), FileId>,
    by_watch: HashMap<i32, FileId>,
    /// Pins of links of iterators.
    iterators: HashSet<FileId>,
    /// Maps that somebody waits for.
    waited_for: HashSet<FileId>,
    /// Files of which an open file was closed, and when. Others of them may be open.
    doubtful: BTreeMap<FileId, Instant>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("files", &self.by_id.len()).finish()
    }
}

/// What a file is.
enum Held {
    Object(Handle<SysEngine>),
    Event(Arc<PerfEvent>),
    Probe(Arc<Opened>),
}

/// A file that is an object.
struct File {
    held: Held,
    /// Our own descriptor; `None` for a pin, whose file is the client's.
    memory: Option<OwnedFd>,
    watch: i32,
    key: (u8, u32),
}

impl Table {
    pub(crate) fn new() -> std::io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { inotify, files: Mutex::new(Files::default()), events: AtomicU32::new(1) })
    }

    /// The descriptor that is readable when files were closed.
    pub(crate) fn changes(&self) -> &OwnedFd {
        &self.inotify
    }

    /// The object of a file.
    pub(crate) fn find(&self, id: FileId) -> Option<Handle<SysEngine>> {
        match &self.files.lock().by_id.get(&id)?.held {
            Held::Object(handle) => Some(handle.clone()),
            Held::Event(_) | Held::Probe(_) => None,
        }
    }

    /// The perf event of a file.
    pub(crate) fn find_event(&self, id: FileId) -> Option<Arc<PerfEvent>> {
        match &self.files.lock().by_id.get(&id)?.held {
            Held::Event(event) => Some(Arc::clone(event)),
            Held::Object(_) | Held::Probe(_) => None,
        }
    }

    /// The perf event of a file that is one of a probe.
    pub(crate) fn find_probe(&self, id: FileId) -> Option<Arc<Opened>> {
        match &self.files.lock().by_id.get(&id)?.held {
            Held::Probe(probe) => Some(Arc::clone(probe)),
            Held::Object(_) | Held::Event(_) => None,
        }
    }

    /// Opens a file for a perf event of a probe.
    pub(crate) fn open_probe(&self, number: u32, probe: Opened) -> Result<OwnedFd, Errno> {
        self.open_perf(number, counted(&empty("perf_event")?)?, Held::Probe(Arc::new(probe)))
    }

    /// A number for a perf event.
    pub(crate) fn next_event(&self) -> u32 {
        self.events.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the file of a new perf event for a client.
    pub(crate) fn open_event(&self, number: u32, event: Arc<PerfEvent>) -> Result<OwnedFd, Errno> {
        self.open_perf(number, counted(&event.file())?, Held::Event(event))
    }

    fn open_perf(&self, number: u32, memory: OwnedFd, held: Held) -> Result<OwnedFd, Errno> {
        let opened = open(own_path(&memory), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let opened = opened.map_err(self::number)?;
        // Open here until the client has it, as in `open`.
        self.add(&mut self.files.lock(), held, memory, (EVENT, number))?;
        Ok(opened)
    }

    /// Opens the object's file for a client.
    pub(crate) fn open(&self, handle: &Handle<SysEngine>) -> Result<OwnedFd, Errno> {
        let key = key_of(handle.object());
        let mut files = self.files.lock();
        let id = match files.by_object.get(&key) {
            Some(id) => *id,
            None => {
                let memory = memory_of(handle.object())?;
                self.add(&mut files, Held::Object(handle.with_access(Access::ALL)), memory, key)?
            }
        };
        let memory = files.by_id.get(&id).and_then(|file| file.memory.as_ref()).ok_or(Errno::EIO)?;
        let access = match handle.access() {
            Access { write: false, .. } => OFlags::RDONLY,
            Access { read: false, .. } => OFlags::WRONLY,
            _ => OFlags::RDWR,
        };
        // Open here until the client has it, so no lease is granted in between.
        let file = open(own_path(memory), access | OFlags::CLOEXEC, Mode::empty()).map_err(number)?;
        front::mark(&file, handle);
        Ok(file)
    }

    /// Lets a file of the BPF file system hold an object.
    pub(crate) fn pin(&self, file: OwnedFd, handle: &Handle<SysEngine>) -> Result<(), Errno> {
        let mut files = self.files.lock();
        let id = id_of(&file)?;
        let watch =
            inotify::add_watch(&self.inotify, own_path(&file), WatchFlags::DELETE_SELF).map_err(number)?;
        let held = Held::Object(handle.clone());
        let pinned = File { held, memory: None, watch, key: key_of(handle.object()) };
        files.by_watch.insert(watch, id);
        files.by_id.insert(id, pinned);
        if let Object::Link(link) = handle.object()
            && matches!(link.place(), Place::Iterator { .. })
        {
            files.iterators.insert(id);
        }
        Ok(())
    }

    fn add(&self, files: &mut Files, held: Held, memory: OwnedFd, key: (u8, u32)) -> Result<FileId, Errno> {
        let id = id_of(&memory)?;
        let watch =
            inotify::add_watch(&self.inotify, own_path(&memory), WatchFlags::CLOSE).map_err(number)?;
        files.by_watch.insert(watch, id);
        files.by_object.insert(key, id);
        files.by_id.insert(id, File { held, memory: Some(memory), watch, key });
        Ok(id)
    }

    /// Whether a link of an iterator is pinned.
    pub(crate) fn has_pinned_iterators(&self) -> bool {
        !self.files.lock().iterators.is_empty()
    }

    /// Somebody waits for records of that map.
    pub(crate) fn waited_for(&self, map: &MapObject<SysEngine>) {
        let mut files = self.files.lock();
        if let Some(id) = files.by_object.get(&(MAP, map.id())).copied() {
            files.waited_for.insert(id);
        }
    }

    /// Wakes again who waits for a map and has left records. Whether anybody waits at all.
    pub(crate) fn remind(&self) -> bool {
        let files = self.files.lock();
        for file in files.waited_for.iter().filter_map(|id| files.by_id.get(id)) {
            if let Some(map) = file.map() {
                map.map().map().remind();
            }
        }
        !files.waited_for.is_empty()
    }

    /// Takes notice of what was closed, and lets go of objects that nobody holds. `all`: also looks again at files that
    /// were closed longer ago.
    pub(crate) fn settle(&self, all: bool) {
        // Dropped after the lock: the end of an object may take a while.
        let mut ended = Vec::new();
        let mut files = self.files.lock();
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.as_fd(), &mut room);
        let mut deleted = Vec::new();
        let now = Instant::now();
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                // Some events are lost: any of the files may be closed.
                let every: Vec<_> = files.by_object.values().map(|id| (*id, now)).collect();
                files.doubtful.extend(every);
            }
            let Some(id) = files.by_watch.get(&event.wd()).copied() else { continue };
            if event.events().contains(ReadFlags::DELETE_SELF) {
                deleted.push(id);
            } else {
                files.doubtful.insert(id, now);
            }
        }
        let Files { by_id, doubtful, .. } = &*files;
        let asked = doubtful.iter().filter(|(_, since)| all || now.duration_since(**since) < DOUBT);
        let closed = asked.map(|(id, _)| *id).filter(|id| {
            let memory = by_id.get(id).and_then(|file| file.memory.as_ref());
            memory.is_none_or(is_open_here_alone)
        });
        for id in closed.chain(deleted).collect::<Vec<_>>() {
            files.doubtful.remove(&id);
            files.waited_for.remove(&id);
            files.iterators.remove(&id);
            if let Some(file) = files.by_id.remove(&id) {
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
        ended.iter().for_each(File::closed);
        drop(ended);
    }
}

impl File {
    fn map(&self) -> Option<&Arc<MapObject<SysEngine>>> {
        match &self.held {
            Held::Object(handle) => match handle.object() {
                Object::Map(map) => Some(map),
                _ => None,
            },
            Held::Event(_) | Held::Probe(_) => None,
        }
    }

    /// What ends with the last descriptor, even if something else holds the object: an array's perf events are those of
    /// who opened it, unless they are to be preserved; and an event that nobody reads takes no samples.
    fn closed(&self) {
        match (&self.held, self.map()) {
            (Held::Event(event), _) => event.detach(),
            (_, Some(map)) if self.memory.is_some() && !map.keeps_perf_events() => {
                map.map().map().clear_perf_events();
            }
            _ => {}
        }
    }
}

/// A file for an object: empty, unless it is memory that clients map.
fn memory_of(object: &Object<SysEngine>) -> Result<OwnedFd, Errno> {
    if let Object::Map(map) = object
        && let Some(file) = map.map().map().file()
    {
        return counted(&file);
    }
    counted(&empty(object.file_name())?)
}

/// Opens a memory file again, so that it counts as open.
fn counted(file: &impl AsFd) -> Result<OwnedFd, Errno> {
    let memory = open(own_path(file), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(number)?;
    // Should anybody open the file during the lease's moment, the kernel's signal about it is one that is ignored.
    // SAFETY: numbers, and a descriptor that is open.
    unsafe { libc::fcntl(memory.as_raw_fd(), F_SETSIG, libc::SIGURG) };
    Ok(memory)
}

/// An empty file of that name.
fn empty(name: &str) -> Result<OwnedFd, Errno> {
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

/// Whether this is the only open file of its file.
fn is_open_here_alone(memory: &OwnedFd) -> bool {
    let lease = |kind: libc::c_int| {
        // SAFETY: numbers, and a descriptor that is open.
        unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    // It is given back at once: it was only a question.
    lease(libc::F_WRLCK) && lease(libc::F_UNLCK)
}

fn key_of(object: &Object<SysEngine>) -> (u8, u32) {
    let kind = match object {
        Object::Map(_) => MAP,
        Object::Program(_) => 1,
        Object::Btf(_) => 2,
        Object::Link(_) => 3,
        Object::Stats(_) => 4,
    };
    (kind, object.id())
}

pub(crate) fn id_of(file: &OwnedFd) -> Result<FileId, Errno> {
    let status = fstat(file).map_err(number)?;
    Ok((status.st_dev, status.st_ino))
}

/// The path by which this process opens a file of its own again.
fn own_path(file: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

pub(crate) fn number(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}
