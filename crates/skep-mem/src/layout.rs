//! Sizes and offsets in a cache's region.

use crate::batch::{Batch, Slab};
use crate::cpu::Cpu;
use crate::error::Error;
use crate::object::HEADER;
use crate::options::CacheOptions;
use crate::region::page;

/// Sizes and offsets, computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLayout {
    /// Bytes from one object to the next.
    pub(crate) stride: usize,
    /// The offset of the first object in its slab.
    pub(crate) first: usize,
    pub(crate) align: usize,
    /// Objects in a slab, and so in a batch.
    pub(crate) per_slab: usize,
    pub(crate) slab_bytes: usize,
    pub(crate) slabs: usize,
    pub(crate) batches: usize,
    /// Records of virtual CPUs, and one for threads that have none.
    pub(crate) cpus: usize,
    pub(crate) batches_at: usize,
    pub(crate) slabs_at: usize,
    pub(crate) objects_at: usize,
    pub(crate) total: usize,
    pub(crate) capacity: usize,
    pub(crate) limit: usize,
}

/// Bytes of a slab of small objects: whole pages, and enough objects to make the cost per batch small.
const SLAB: usize = if cfg!(loom) { 32 } else { 4096 };

/// How many batches each virtual CPU may keep from the others.
pub(crate) const HELD_BACK: usize = 4;

impl CacheLayout {
    pub(crate) fn of(options: &CacheOptions, cpus: u32) -> Result<Self, Error> {
        let &CacheOptions { size, align, offset, capacity, spare, limit, .. } = options;
        if size == 0 || capacity == 0 {
            return Err(Error::Empty { capacity, size });
        }
        if !align.is_power_of_two() || align > 4096 {
            return Err(Error::Align { align });
        }
        let too_large = Error::TooLarge { count: capacity, size };
        let align = align.max(HEADER);
        if !offset.is_multiple_of(HEADER) {
            return Err(Error::Offset { offset });
        }
        // Each object has its header before it, and the object's byte at `offset` is aligned.
        let first = match (align - offset % align) % align {
            0 => align,
            first => first,
        };
        let end = size.checked_next_multiple_of(HEADER).and_then(|size| size.checked_add(first));
        let stride = match end.ok_or(too_large)? {
            // Each object follows the last one and its own header; padding only for alignment.
            end if first == HEADER => end.checked_next_multiple_of(align).ok_or(too_large)?,
            end => (end - (first - HEADER)).checked_next_multiple_of(align).ok_or(too_large)?,
        };
        let least = match stride {
            0..=512 => SLAB,
            513..=8192 => stride * 8 + first,
            8193..=65536 => stride * 2 + first,
            _ => stride.checked_add(first).ok_or(too_large)?,
        };
        let slab_bytes = least.checked_next_multiple_of(page()).ok_or(too_large)?;
        let per_slab = (slab_bytes - (first - HEADER)) / stride;
        let cpus = cpus as usize + 1;
        let own = capacity.div_ceil(per_slab).saturating_add(spare.div_ceil(slab_bytes));
        let wanted = own.checked_add(cpus * HELD_BACK).ok_or(too_large)?;
        let per = slab_bytes.checked_add(size_of::<Batch>() + size_of::<Slab>()).ok_or(too_large)?;
        let fixed = Self::fixed(cpus);
        let within = limit.saturating_sub(fixed) / per;
        let slabs = wanted.min(within);
        if slabs == 0 {
            return Err(Error::Limit { held: 0, wanted: fixed.saturating_add(per), limit });
        }
        if slabs >= u32::MAX as usize / 2 {
            return Err(too_large);
        }
        let batches = slabs + cpus * 2 + 8;
        let batches_at = (cpus * size_of::<Cpu>()).next_multiple_of(64);
        let slabs_at = (batches_at + batches * size_of::<Batch>()).next_multiple_of(64);
        let objects_at = (slabs_at + slabs * size_of::<Slab>()).next_multiple_of(page());
        let total =
            slabs.checked_mul(slab_bytes).and_then(|bytes| bytes.checked_add(objects_at)).ok_or(too_large)?;
        Ok(Self {
            stride,
            first,
            align,
            per_slab,
            slab_bytes,
            slabs,
            batches,
            cpus,
            batches_at,
            slabs_at,
            objects_at,
            total,
            capacity,
            limit,
        })
    }

    /// Bytes that a cache holds for one more slab.
    pub(crate) fn per_slab_bytes(&self) -> u64 {
        (self.bytes(1) - self.bytes(0)) as u64
    }

    /// Bytes that are counted from the start.
    fn fixed(cpus: usize) -> usize {
        (cpus * size_of::<Cpu>()).next_multiple_of(64) + (cpus * 2 + 8) * size_of::<Batch>()
    }

    /// Bytes that a cache with `slabs` slabs in use holds.
    pub(crate) fn bytes(&self, slabs: usize) -> usize {
        Self::fixed(self.cpus) + slabs * (self.slab_bytes + size_of::<Batch>() + size_of::<Slab>())
    }
}

impl CacheOptions {
    /// The most bytes that a cache with these options holds in a domain with `slots` slots.
    ///
    /// # Errors
    ///
    /// As [`Cache::new`](crate::Cache::new), except [`Error::OutOfMemory`].
    pub fn max_bytes(&self, slots: u32) -> Result<usize, Error> {
        CacheLayout::of(self, slots).map(|layout| layout.bytes(layout.slabs))
    }
}
