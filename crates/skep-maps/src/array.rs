//! Arrays, with one value for each index or one for each index and CPU.
//!
//! ```text
//!   shared     | value 0 | value 1 | ...                            `stride` apart: the value's size in whole words
//!   per CPU    | CPU 0: value 0 | value 1 | ... | CPU 1: value 0 | ...
//!              |<------------ cpu_stride ------>|                   whole cache lines: no false sharing between CPUs
//! ```
//!
//! Elements never move and always exist: a look-up is arithmetic, which compiled code does inline ([`InlineArray`]).

use skep_abi::InlineArray;
use skep_mem::{Block, Error};

use crate::caller::Caller;
use crate::cursor::{Batch, Cursor};
use crate::objects::Held;
use crate::op_error::OpError;
use crate::racy;
use crate::update::UpdateFlags;
use crate::values::{Source, Values};

/// Bytes in a cache line: 64 on most machines; elsewhere a wrong number is harmless.
const CACHE_LINE: usize = 64;

#[derive(Debug)]
pub(crate) struct Array {
    memory: Block,
    stride: usize,
    len: u32,
    values: Values,
}

/// The sizes of an array.
struct ArrayLayout {
    stride: usize,
    /// Bytes for the values of one CPU.
    plane: usize,
    /// Bytes for all CPUs.
    total: usize,
}

impl Array {
    /// The bytes that such an array takes.
    pub(crate) fn bytes(len: u32, value_size: u32, cpus: Option<u32>) -> Option<usize> {
        let layout = ArrayLayout::of(len, value_size, cpus)?;
        Block::reserved_for(layout.total, CACHE_LINE).ok()
    }

    /// `cpus`: the number of CPUs with values of their own; `None` if all share them. `file`: the name of the file to
    /// put the values into, if other processes are to map them.
    pub(crate) fn new(
        len: u32,
        value_size: u32,
        cpus: Option<u32>,
        file: Option<&str>,
    ) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: len as usize, size: value_size as usize };
        let layout = ArrayLayout::of(len, value_size, cpus).ok_or(too_large)?;
        let values = match cpus {
            Some(cpus) => Values::per_cpu(value_size, cpus, layout.plane),
            None => Values::shared(value_size),
        };
        let memory = match file {
            Some(name) => Block::in_file(name, layout.total)?,
            None => Block::zeroed(layout.total, CACHE_LINE)?,
        };
        Ok(Self { memory, stride: layout.stride, len, values })
    }

    /// # Safety
    ///
    /// `key` is readable for 4 bytes; `cpu` is below the number of CPUs.
    #[inline(always)]
    pub(crate) unsafe fn lookup(&self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        match self.element(index) {
            // SAFETY: an element of this array; the CPU is in range by the caller's contract.
            Some(at) => unsafe { self.values.of_cpu(at, cpu) },
            None => std::ptr::null_mut(),
        }
    }

    /// # Safety
    ///
    /// `key` is readable for 4 bytes, `out` writable for the host's value size.
    pub(crate) unsafe fn read(&self, key: *const u8, out: *mut u8) -> bool {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        let Some(at) = self.element(index) else { return false };
        // SAFETY: an element of this array; `out` by the caller's contract.
        unsafe { self.values.read(at, out) };
        true
    }

    /// As [`read`](Self::read), under the value's lock.
    ///
    /// # Safety
    ///
    /// As for [`read`](Self::read).
    pub(crate) unsafe fn read_locked(&self, key: *const u8, out: *mut u8) -> bool {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        let Some(at) = self.element(index) else { return false };
        // SAFETY: an element of this array; `out` by the caller's contract.
        unsafe { self.values.read_locked(at, out) };
        true
    }

    /// The element that an update with that mode may change.
    ///
    /// # Safety
    ///
    /// `key` is readable for four bytes.
    pub(crate) unsafe fn admits(&self, key: *const u8, mode: UpdateFlags) -> Result<*mut u8, OpError> {
        // SAFETY: by the caller's contract.
        let index = unsafe { racy::load4(key) };
        let at = self.element(index).ok_or(OpError::OutOfRange)?;
        match mode.condition() {
            UpdateFlags::NoExist => Err(OpError::Exists),
            _ => Ok(at),
        }
    }

    /// # Safety
    ///
    /// `key` is readable for 4 bytes, `source` as [`Values::write`] demands; `caller` is the calling thread.
    pub(crate) unsafe fn update(
        &self,
        key: *const u8,
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        let at = unsafe { self.admits(key, mode)? };
        // SAFETY: an element of this array; `source` by the caller's contract.
        unsafe {
            if mode.is_locked() {
                self.values.write_locked(at, source)
            } else {
                self.values.write(at, source)
            }
            self.values.clear(at, Some(source), Held::Wait, caller);
        };
        Ok(())
    }

    /// Calls `visit` with the address of each index and of its value on that CPU, until it returns false.
    ///
    /// # Safety
    ///
    /// `cpu` is below the number of CPUs.
    pub(crate) unsafe fn for_each(&self, cpu: u32, visit: &mut dyn FnMut(*const u8, *mut u8) -> bool) {
        for index in 0..self.len {
            let Some(at) = self.element(index) else { return };
            // SAFETY: an element of this array; the CPU is in range by the caller's contract.
            let value = unsafe { self.values.of_cpu(at, cpu) };
            if !visit((&raw const index).cast(), value) {
                return;
            }
        }
    }

    pub(crate) fn next_index(&self, after: Option<u32>) -> Option<u32> {
        match after {
            Some(index) if index < self.len => Some(index + 1).filter(|&next| next < self.len),
            _ => Some(0),
        }
    }

    pub(crate) fn batch(&self, cursor: &mut Cursor, count: usize, out: &mut Batch) {
        while out.len() < count && cursor.position < u64::from(self.len) {
            let index = cursor.position as u32;
            let mut value = vec![0; self.values.host_size()];
            if let Some(at) = self.element(index) {
                // SAFETY: an element of this array; `value` has the host's size.
                unsafe { self.values.read(at, value.as_mut_ptr()) };
            }
            out.push_back((index.to_ne_bytes().to_vec(), value));
            cursor.position += 1;
        }
    }

    /// The index of the element whose value is at that address.
    pub(crate) fn index_at(&self, value: *const u8) -> Option<u32> {
        let distance = value.addr().checked_sub(self.memory.base().as_ptr().addr())?;
        let index = u32::try_from(distance.checked_div(self.stride)?).ok()?;
        (distance.is_multiple_of(self.stride) && index < self.len).then_some(index)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn memory(&self) -> usize {
        self.memory.reserved()
    }

    pub(crate) fn block(&self) -> &Block {
        &self.memory
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    /// The address of the first value.
    pub(crate) fn base(&self) -> u64 {
        self.memory.base().as_ptr().expose_provenance() as u64
    }

    /// How compiled code computes addresses of values; `None` if the strides do not fit its encoding.
    pub(crate) fn inline(&self) -> Option<InlineArray> {
        Some(InlineArray {
            base: self.base(),
            stride: u32::try_from(self.stride).ok()?,
            cpu_stride: u32::try_from(self.values.cpu_stride()).ok()?,
            max_entries: self.len,
        })
    }

    #[inline(always)]
    pub(crate) fn element(&self, index: u32) -> Option<*mut u8> {
        if index >= self.len {
            return None;
        }
        // SAFETY: `new` made room for `len` elements, `stride` apart.
        Some(unsafe { self.memory.base().as_ptr().add(index as usize * self.stride) })
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.values.own() {
            for at in (0..self.len).filter_map(|index| self.element(index)) {
                // SAFETY: no other thread has the array any more.
                unsafe { self.values.clear(at, None, Held::Keep, Caller::Host) };
            }
        }
    }
}

impl ArrayLayout {
    fn of(len: u32, value_size: u32, cpus: Option<u32>) -> Option<Self> {
        let stride = (value_size as usize).checked_next_multiple_of(8)?;
        let plane = stride.checked_mul(len as usize)?.checked_next_multiple_of(CACHE_LINE)?;
        let total = plane.checked_mul(cpus.unwrap_or(1) as usize)?;
        Some(Self { stride, plane, total })
    }
}
