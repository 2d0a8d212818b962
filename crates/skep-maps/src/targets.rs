//! Maps of targets to which packets are redirected: devices, CPUs, AF_XDP sockets.
//!
//! An element is one word, so look-ups and changes are single loads and stores. An empty element is 0.
//!
//! ```text
//!   devices    | index of the device u32 | number of a program u32 |     as `struct bpf_devmap_val`
//!   CPUs       | length of the queue u32 | number of a program u32 |     as `struct bpf_cpumap_val`
//!   sockets    | index of the element u32 | number of the socket u32 |   programs see it as the queue
//! ```
//!
//! Values of 4 bytes are the first half; of sockets, the host's value is the second.

use std::sync::atomic::{AtomicU64, Ordering};

use skep_abi::MapKind;

use crate::cursor::{Batch, Cursor};
use crate::op_error::{OpError, errno};
use crate::racy;
use crate::update::UpdateFlags;
use crate::values::{Source, Values};

/// The longest queue of a CPU, in packets.
const MAX_QUEUE: u32 = 16384;

#[derive(Debug)]
pub(crate) struct Targets {
    kind: MapKind,
    /// Relaxed everywhere: an element is complete in itself.
    slots: Box<[AtomicU64]>,
    values: Values,
}

impl Targets {
    /// The bytes that such a map takes.
    pub(crate) fn bytes(len: u32) -> Option<usize> {
        (len as usize).checked_mul(size_of::<AtomicU64>())
    }

    pub(crate) fn new(kind: MapKind, len: u32, value_size: u32) -> Result<Self, skep_mem::Error> {
        let mut slots = Vec::new();
        let bytes = (len as usize).saturating_mul(size_of::<AtomicU64>());
        slots.try_reserve_exact(len as usize).map_err(|_| skep_mem::Error::OutOfMemory { bytes })?;
        slots.resize_with(len as usize, AtomicU64::default);
        Ok(Self { kind, slots: slots.into(), values: Values::shared(value_size) })
    }

    /// The address of an element, where programs read it; null if it is empty.
    ///
    /// # Safety
    ///
    /// `key` is readable for 4 bytes.
    pub(crate) unsafe fn lookup(&self, key: *const u8) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        match self.slots.get(index as usize) {
            Some(slot) if slot.load(Ordering::Relaxed) != 0 => slot.as_ptr().cast(),
            _ => std::ptr::null_mut(),
        }
    }

    /// The value of an element for the host; `false` if it is empty.
    ///
    /// # Safety
    ///
    /// `key` is readable for 4 bytes, `out` writable for the value size.
    pub(crate) unsafe fn read(&self, key: *const u8, out: *mut u8) -> bool {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        let Some(value) = self.value(index) else { return false };
        // SAFETY: by the caller's contract.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), out, self.values.host_size()) };
        true
    }

    /// # Safety
    ///
    /// `key` is readable for 4 bytes, `source` for the value size.
    pub(crate) unsafe fn update(
        &self,
        key: *const u8,
        source: Source,
        flags: UpdateFlags,
    ) -> Result<(), OpError> {
        let (Source::All(from) | Source::Cpu(from, _)) = source;
        let mut value = 0u64;
        // SAFETY: by the caller's contract.
        let index = unsafe {
            racy::write(from, (&raw mut value).cast(), self.values.host_size());
            racy::load4(key)
        };
        if index as usize >= self.slots.len() {
            return Err(OpError::OutOfRange);
        }
        if flags.condition() == UpdateFlags::NoExist {
            return Err(OpError::Exists);
        }
        let (first, second) = halves(value);
        let wrong = match self.kind {
            MapKind::Cpumap => first > MAX_QUEUE || second != 0,
            MapKind::Xskmap => false,
            // A program comes by another way: it is more than a number.
            _ => second != 0,
        };
        if wrong {
            return Err(OpError::BadTarget);
        }
        let word = match self.kind {
            MapKind::Xskmap if first != 0 => joined(index, first),
            _ => value,
        };
        self.store(index, word)
    }

    /// As [`update`](Self::update), with a program.
    ///
    /// # Safety
    ///
    /// As for [`update`](Self::update); values have 8 bytes.
    pub(crate) unsafe fn put(&self, key: *const u8, source: Source) -> Result<(), OpError> {
        let (Source::All(from) | Source::Cpu(from, _)) = source;
        // SAFETY: by the caller's contract.
        let (index, word) = unsafe { (racy::load4(key), std::ptr::read_unaligned(from.cast::<u64>())) };
        self.store(index, word)
    }

    fn store(&self, index: u32, word: u64) -> Result<(), OpError> {
        self.slots.get(index as usize).ok_or(OpError::OutOfRange)?.store(word, Ordering::Relaxed);
        Ok(())
    }

    /// # Safety
    ///
    /// `key` is readable for 4 bytes.
    pub(crate) unsafe fn delete(&self, key: *const u8) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        // Linux reports an update beyond the end as E2BIG, a deletion as EINVAL.
        let beyond = OpError::BadObject { why: "it is beyond the end", errno: errno::EINVAL };
        let slot = self.slots.get(index as usize).ok_or(beyond)?;
        slot.store(0, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn next_index(&self, after: Option<u32>) -> Option<u32> {
        let len = self.slots.len() as u32;
        match after {
            Some(index) if index < len => Some(index + 1).filter(|&next| next < len),
            _ => Some(0),
        }
    }

    /// Only elements that are not empty.
    pub(crate) fn batch(&self, cursor: &mut Cursor, count: usize, out: &mut Batch) {
        while out.len() < count && cursor.position < self.slots.len() as u64 {
            let index = cursor.position as u32;
            if let Some(value) = self.value(index) {
                out.push_back((index.to_ne_bytes().to_vec(), value[..self.values.host_size()].to_vec()));
            }
            cursor.position += 1;
        }
    }

    /// The number of elements that are not empty.
    pub(crate) fn len(&self) -> u32 {
        self.slots.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0).count() as u32
    }

    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// What the host sees of an element, as many bytes of it as a value has.
    fn value(&self, index: u32) -> Option<[u8; 8]> {
        let word = self.slots.get(index as usize)?.load(Ordering::Relaxed);
        let shown = match self.kind {
            MapKind::Xskmap => joined(halves(word).1, 0),
            _ => word,
        };
        (word != 0).then(|| shown.to_ne_bytes())
    }
}

/// The words at offset 0 and 4.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

fn joined(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}
