//! Linux's own maps, through bpf(2), for comparison.
//!
//! Tests use them in a process of their own with a time limit: see [`ask_linux`].

mod program;

pub use program::{LinuxProgram, MOST_PROGRAMS, SharedMemory, Waiter};

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::again::this_test;
use crate::bpf::commands::*;
use crate::bpf::{self, BatchAttr, ElementAttr, InfoAttr, MapAttr};
use crate::skip::{Hidden, hidden, is_emulated, skip};

/// The maximum number of maps that one process creates, because each burdens the whole machine.
pub const MOST_MAPS: u32 = 40;
/// The time limit of the process that asks.
const PATIENCE: Duration = Duration::from_secs(60);
/// Set in that process.
const CHILD: &str = "SKEP_LINUX_CHILD";
/// Its message if bpf(2) is refused.
const REFUSED: i32 = 77;

/// The definition of a map, with Linux's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinuxDef {
    /// `BPF_MAP_TYPE_..`
    pub kind: u32,
    /// Bytes in a key.
    pub key_size: u32,
    /// Bytes in a value, of one CPU.
    pub value_size: u32,
    /// The most elements.
    pub max_entries: u32,
    /// `BPF_F_..`
    pub flags: u32,
    /// A parameter of some kinds: for a bloom filter, the number of hash functions.
    pub extra: u64,
}

/// A map of the running kernel, which exists until this is dropped.
#[derive(Debug)]
pub struct LinuxMap {
    fd: OwnedFd,
    key_size: usize,
    /// Bytes in a value as the system call passes it.
    value_size: usize,
}

/// The elements of a batch, one after another, and the result of the system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// 0 or an error number.
    pub errno: i32,
    /// How many elements were processed.
    pub count: usize,
    /// Their keys, if requested.
    pub keys: Vec<u8>,
    /// Their values, if requested.
    pub values: Vec<u8>,
    /// The position at which the next batch continues.
    pub position: Vec<u8>,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct MapInfo {
    kind: u32,
    id: u32,
}

impl LinuxMap {
    /// Creates a map in the kernel. `inner`: the template of a map of maps.
    ///
    /// # Errors
    ///
    /// The kernel's.
    ///
    /// # Panics
    ///
    /// If this process has already created [`MOST_MAPS`].
    pub fn create(def: &LinuxDef, inner: Option<&Self>) -> io::Result<Self> {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        assert!(
            ASKED.fetch_add(1, Ordering::Relaxed) < MOST_MAPS,
            "more than {MOST_MAPS} maps in one process"
        );
        let attr = MapAttr {
            map_type: def.kind,
            key_size: def.key_size,
            value_size: def.value_size,
            max_entries: def.max_entries,
            map_flags: def.flags,
            inner_map_fd: inner.map_or(0, |inner| inner.fd() as u32),
            map_extra: def.extra,
            ..MapAttr::default()
        };
        let fd = bpf::create_map(attr)?;
        // The per-CPU kinds: percpu_hash, percpu_array, lru_percpu_hash.
        let value_size = match def.kind {
            5 | 6 | 10 => (def.value_size as usize).next_multiple_of(8) * possible_cpus() as usize,
            _ => def.value_size as usize,
        };
        Ok(Self { fd, key_size: def.key_size as usize, value_size })
    }

    /// Its descriptor, which is the value to store in a map of maps.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Its id in the kernel, which a map of maps returns for it.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number.
    pub fn id(&self) -> Result<u32, i32> {
        let mut info = MapInfo::default();
        let at = std::ptr::from_mut(&mut info) as u64;
        let mut attr = InfoAttr { fd: self.fd() as u32, len: size_of::<MapInfo>() as u32, info: at };
        number(command(OBJECT_INFO, &mut attr))?;
        Ok(info.id)
    }

    /// Bytes in a value as the system call passes it: for per-CPU kinds, the values of all possible CPUs.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number.
    pub fn lookup(&self, key: &[u8], flags: u64) -> Result<Vec<u8>, i32> {
        self.take(MAP_LOOKUP, key, flags)
    }

    /// Asks a bloom filter whether it may contain a value.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number.
    pub fn contains(&self, value: &[u8]) -> Result<(), i32> {
        let mut value = value.to_vec();
        self.element(MAP_LOOKUP, &[], &mut value, 0)
    }

    /// Removes a key and returns its value.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number.
    pub fn lookup_and_delete(&self, key: &[u8], flags: u64) -> Result<Vec<u8>, i32> {
        self.take(MAP_LOOKUP_AND_DELETE, key, flags)
    }

    /// Sets the value of a key; for kinds without keys, pushes a value.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), i32> {
        self.element(MAP_UPDATE, key, &mut value.to_vec(), flags)
    }

    /// Removes a key.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number.
    pub fn delete(&self, key: &[u8]) -> Result<(), i32> {
        self.element(MAP_DELETE, key, &mut vec![0; self.value_size], 0)
    }

    /// The key after that one, or the first.
    ///
    /// # Errors
    ///
    /// The kernel's, as a number: `ENOENT` at the end.
    pub fn next_key(&self, after: Option<&[u8]>) -> Result<Vec<u8>, i32> {
        let mut next = vec![0; self.key_size];
        let after = after.inspect(|after| assert_eq!(after.len(), self.key_size));
        let mut attr = ElementAttr {
            map_fd: self.fd() as u32,
            key: after.map_or(0, |after| after.as_ptr() as u64),
            value: next.as_mut_ptr() as u64,
            ..ElementAttr::default()
        };
        number(command(MAP_NEXT_KEY, &mut attr))?;
        Ok(next)
    }

    /// Up to `count` elements from the end of an earlier batch or from the start; with `delete` it removes them.
    pub fn lookup_batch(&self, from: Option<&[u8]>, count: usize, delete: bool) -> Batch {
        // The position is a key, or a number of 4 bytes.
        let mut from = from.map(<[u8]>::to_vec);
        if let Some(from) = &mut from {
            from.resize(self.key_size.max(4), 0);
        }
        let mut batch = Batch {
            errno: 0,
            count,
            keys: vec![0; count * self.key_size],
            values: vec![0; count * self.value_size],
            position: vec![0; self.key_size.max(4)],
        };
        let mut attr = BatchAttr {
            in_batch: from.as_ref().map_or(0, |from| from.as_ptr() as u64),
            out_batch: batch.position.as_mut_ptr() as u64,
            keys: batch.keys.as_mut_ptr() as u64,
            values: batch.values.as_mut_ptr() as u64,
            count: count as u32,
            map_fd: self.fd() as u32,
            ..BatchAttr::default()
        };
        let number = if delete { MAP_LOOKUP_AND_DELETE_BATCH } else { MAP_LOOKUP_BATCH };
        batch.finish(command(number, &mut attr), attr.count, self);
        batch
    }

    /// Sets the values of several keys; returns how many were set before one failed.
    ///
    /// # Panics
    ///
    /// If the numbers of keys and values differ.
    pub fn update_batch(&self, keys: &[u8], values: &[u8], flags: u64) -> Batch {
        let count = keys.len() / self.key_size;
        assert_eq!(values.len(), count * self.value_size);
        self.change_batch(MAP_UPDATE_BATCH, keys.to_vec(), values.to_vec(), flags)
    }

    /// Removes several keys; returns how many were removed before one failed.
    pub fn delete_batch(&self, keys: &[u8]) -> Batch {
        self.change_batch(MAP_DELETE_BATCH, keys.to_vec(), Vec::new(), 0)
    }

    fn change_batch(&self, number: libc::c_long, keys: Vec<u8>, values: Vec<u8>, flags: u64) -> Batch {
        let count = keys.len() / self.key_size;
        let mut batch = Batch { errno: 0, count, keys, values, position: Vec::new() };
        let mut attr = BatchAttr {
            keys: batch.keys.as_ptr() as u64,
            values: if batch.values.is_empty() { 0 } else { batch.values.as_ptr() as u64 },
            count: count as u32,
            map_fd: self.fd() as u32,
            elem_flags: flags,
            ..BatchAttr::default()
        };
        batch.finish(command(number, &mut attr), attr.count, self);
        // A batch that is refused as a whole does not set the count.
        if batch.errno != 0 && batch.count == count {
            batch.count = 0;
        }
        (batch.keys, batch.values) = (Vec::new(), Vec::new());
        batch
    }

    fn take(&self, number: libc::c_long, key: &[u8], flags: u64) -> Result<Vec<u8>, i32> {
        let mut value = vec![0; self.value_size];
        self.element(number, key, &mut value, flags)?;
        Ok(value)
    }

    fn element(
        &self,
        command_number: libc::c_long,
        key: &[u8],
        value: &mut [u8],
        flags: u64,
    ) -> Result<(), i32> {
        assert_eq!((key.len(), value.len()), (self.key_size, self.value_size), "bytes in a key and a value");
        let mut attr = ElementAttr {
            map_fd: self.fd() as u32,
            key: if key.is_empty() { 0 } else { key.as_ptr() as u64 },
            // The command that deletes takes no values and no flags.
            value: if command_number == MAP_DELETE { 0 } else { value.as_mut_ptr() as u64 },
            flags,
            ..ElementAttr::default()
        };
        number(command(command_number, &mut attr)).map(drop)
    }
}

impl Batch {
    fn finish(&mut self, result: io::Result<i32>, count: u32, map: &LinuxMap) {
        self.errno = result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1));
        self.count = self.count.min(count as usize);
        self.keys.truncate(self.count * map.key_size);
        self.values.truncate(self.count * map.value_size);
    }
}

/// The number of possible CPUs, which is the number of values of a per-CPU element.
///
/// # Panics
///
/// If the system does not report it.
pub fn possible_cpus() -> u32 {
    let text =
        std::fs::read_to_string("/sys/devices/system/cpu/possible").expect("the list of possible CPUs");
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    last.expect("a number ends the list of possible CPUs") + 1
}

/// Waits until no other test program of this checkout asks the kernel: several run at once, and their questions
/// burden the whole machine. Dropping the file ends the turn.
///
/// # Panics
///
/// If the sources of this crate are missing.
pub fn turn_to_ask() -> File {
    let turn = File::open(env!("CARGO_MANIFEST_DIR")).expect("the directory of this crate");
    // SAFETY: locks a descriptor that is open; the lock ends with it.
    while unsafe { libc::flock(turn.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
    }
    turn
}

/// Runs `ask` in a process of its own, which runs the calling test again. If bpf(2) is refused, it reports that
/// nothing was asked.
///
/// # Panics
///
/// If that process fails or does not end within a minute, or on another thread than the test's own.
pub fn ask_linux(what: &str, ask: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        let def = LinuxDef { kind: 2, key_size: 4, value_size: 4, max_entries: 1, ..LinuxDef::default() };
        match LinuxMap::create(&def, None) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                std::process::exit(REFUSED);
            }
            _ => return ask(),
        }
    }
    let _turn = turn_to_ask();
    let mut child = this_test().env(CHILD, "1").stdin(Stdio::null()).spawn().expect("the test runs itself");
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if started.elapsed() > PATIENCE {
            // A process that hangs in the kernel cannot be ended, so it is not waited for.
            let _ = child.kill();
            panic!("the kernel did not answer within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    match status.code() {
        Some(REFUSED) if is_emulated() => hidden(Hidden::KernelPrograms, what),
        Some(REFUSED) => skip(what, "bpf(2) is refused here; run as root to compare"),
        _ => assert!(status.success(), "the process that asks the kernel failed: {status}"),
    }
}

fn number<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn command<T>(number: libc::c_long, attr: &mut T) -> io::Result<i32> {
    // SAFETY: each caller here passes the structure of its command, and buffers as large as the map's sizes say.
    unsafe { bpf::command(number, attr) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_asks_at_a_time() {
        let turn = turn_to_ask();
        let other = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        // SAFETY: tries to lock a descriptor that is open.
        let lock = || unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        assert_eq!((lock(), io::Error::last_os_error().kind()), (-1, io::ErrorKind::WouldBlock));
        drop(turn);
        assert_eq!(lock(), 0);
    }
}
