//! Objects of one size in memory that outlives their use.
//!
//! **Problem.** Lock-free readers hold pointers to objects that writers free. **Invariant.** From its first
//! hand-out to the end of the pool an object's memory holds an object of this pool: allocated, or free with its
//! first word pointing to another free object. **Protocol.** Everything below happens under one mutex, which is
//! a leaf: nothing is waited for while it is held. An allocation takes the object freed last, else the next
//! fresh one of the newest chunk, else a new chunk.
//!
//! ```text
//!   chunk 0                              chunk 1 (newest)
//!   | obj | obj | free | obj | free |    | obj | obj |  fresh, never touched  |
//!                 ^            |                       ^next         ^left objects
//!                 '--- first word of a free object: the one freed before it
//! ```
//!
//! **What would break it:** freeing an object twice (the list becomes a cycle and two owners get one object), or
//! a user that keeps something in the first word of an object that readers still need after `free`.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Block, Error};

/// Chunks are a sixteenth of the whole pool, but within these bounds (bytes).
const CHUNK_BYTES: std::ops::RangeInclusive<usize> = (64 << 10)..=(2 << 20);

/// What a [`Pool`] is made of.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    object_size: usize,
    align: usize,
    capacity: usize,
    limit: usize,
}

impl PoolOptions {
    /// A pool of at most `capacity` objects of `object_size` bytes, 8-byte aligned, with no limit in bytes.
    pub fn new(object_size: usize, capacity: usize) -> Self {
        Self { object_size, align: 8, capacity, limit: usize::MAX }
    }

    /// Aligns every object to `align` bytes: a power of two up to 4096. Less than 8 counts as 8.
    pub fn align(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// The most bytes that the pool may take from the system.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// The bytes that a pool with these options holds once it has handed out all of its objects: the highest
    /// value that [`Pool::bytes`] can reach.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::new`], short of [`Error::Limit`].
    pub fn max_bytes(&self) -> Result<usize, Error> {
        Shape::of(self).map(|shape| shape.max_bytes)
    }
}

/// A pool of objects of one size; see the [crate's documentation](crate) for what it promises.
///
/// An object is 8-byte aligned or better. The first time it is handed out its bytes are zero; later they are
/// what its last owner left, except the first eight, which the pool uses while the object is free.
pub struct Pool {
    shape: Shape,
    state: Mutex<State>,
}

/// Sizes, computed once.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Bytes from one object to the next.
    stride: usize,
    align: usize,
    capacity: usize,
    limit: usize,
    /// Objects in every chunk but the last.
    chunk_objects: usize,
    /// Bytes for the list of chunks.
    list_bytes: usize,
    max_bytes: usize,
}

struct State {
    chunks: Vec<Block>,
    /// The object freed last, null when none is free.
    free: *mut u8,
    /// The next object of the newest chunk that was never handed out.
    fresh: *mut u8,
    /// How many of those there are.
    fresh_left: usize,
    /// Objects in all chunks.
    carved: usize,
    in_use: usize,
    bytes: usize,
}

// SAFETY: the pointers lead into chunks that the same state owns; whoever holds the state may follow them.
unsafe impl Send for State {}

impl Pool {
    /// An empty pool. Memory for objects is taken chunk by chunk when they are asked for.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`], [`Error::Align`], [`Error::TooLarge`] for options that make no sense, [`Error::Limit`]
    /// when not even one object fits, [`Error::OutOfMemory`].
    pub fn new(options: &PoolOptions) -> Result<Self, Error> {
        let shape = Shape::of(options)?;
        if shape.objects_within_limit(shape.list_bytes) == 0 {
            let wanted = shape.list_bytes.saturating_add(shape.chunk_bytes(1)?);
            return Err(Error::Limit { held: 0, wanted, limit: shape.limit });
        }
        let mut chunks = Vec::new();
        chunks
            .try_reserve_exact(shape.capacity.div_ceil(shape.chunk_objects))
            .map_err(|_| Error::OutOfMemory { bytes: shape.list_bytes })?;
        let state = State {
            chunks,
            free: ptr::null_mut(),
            fresh: ptr::null_mut(),
            fresh_left: 0,
            carved: 0,
            in_use: 0,
            bytes: shape.list_bytes,
        };
        Ok(Self { shape, state: Mutex::new(state) })
    }

    /// An object. Its bytes are initialised, but to what is left unsaid (see [`Pool`]).
    ///
    /// What the object's last owner did before [`free`](Self::free) happens before the return of this.
    ///
    /// # Errors
    ///
    /// [`Error::Exhausted`] when all are in use, [`Error::Limit`], [`Error::OutOfMemory`].
    pub fn alloc(&self) -> Result<NonNull<u8>, Error> {
        let mut state = self.lock();
        let object = match NonNull::new(state.free) {
            Some(object) => {
                // SAFETY: by the invariant the first word of a free object is a pointer that `free` stored,
                // 8-byte aligned since all objects are.
                let link = unsafe { AtomicPtr::from_ptr(object.as_ptr().cast::<*mut u8>()) };
                // Relaxed: `free` stored it under the mutex that we hold.
                state.free = link.load(Ordering::Relaxed);
                object
            }
            None => state.take_fresh(&self.shape)?,
        };
        state.in_use += 1;
        Ok(object)
    }

    /// An object whose bytes are all zero.
    ///
    /// A recycled object is cleared by relaxed atomic stores of 8 bytes, in any order: a reader that still looks
    /// at it may see any mixture of old words and zeroes.
    ///
    /// # Errors
    ///
    /// As [`alloc`](Self::alloc).
    pub fn alloc_zeroed(&self) -> Result<NonNull<u8>, Error> {
        let object = self.alloc()?;
        for word in 0..self.shape.stride / 8 {
            // SAFETY: the object is ours, 8-byte aligned and `stride` bytes long. Only readers with stale
            // pointers can look at it, and they promised to use atomic loads.
            let word = unsafe { AtomicU64::from_ptr(object.as_ptr().cast::<u64>().add(word)) };
            word.store(0, Ordering::Relaxed);
        }
        Ok(object)
    }

    /// Takes an object back. It may be handed out again at once.
    ///
    /// Its first eight bytes are overwritten; the rest stays as it is until the next owner writes there.
    ///
    /// # Safety
    ///
    /// `object` came from [`alloc`](Self::alloc) or [`alloc_zeroed`](Self::alloc_zeroed) of this pool and has
    /// not been freed since. Threads that may still look at it do so only by atomic loads, those of the first
    /// eight bytes being loads of one 8-byte word, and survive finding another object's contents there: in the
    /// first word, null or the address of any object of this pool.
    pub unsafe fn free(&self, object: NonNull<u8>) {
        let mut state = self.lock();
        // SAFETY: the object has at least 8 bytes, 8-byte aligned, and the caller gave it up; stale readers use
        // atomic loads of this word.
        let link = unsafe { AtomicPtr::from_ptr(object.as_ptr().cast::<*mut u8>()) };
        // Relaxed: `alloc` loads it under the mutex. Stale readers need no order: any value is as good to them.
        link.store(state.free, Ordering::Relaxed);
        state.free = object.as_ptr();
        state.in_use -= 1;
    }

    /// Bytes in an object: the size asked for, rounded up to the alignment.
    pub fn object_size(&self) -> usize {
        self.shape.stride
    }

    /// How many objects may be in use at the same time.
    pub fn capacity(&self) -> usize {
        self.shape.capacity
    }

    /// How many objects are in use. Other threads may change it at any moment.
    pub fn in_use(&self) -> usize {
        self.lock().in_use
    }

    /// Bytes that the pool has taken from the system: its chunks with their slack, and the list of them.
    ///
    /// They are committed as they are touched, so that less may be resident. It never shrinks.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held, so a poisoned state is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("object_size", &self.object_size())
            .field("capacity", &self.capacity())
            .field("in_use", &self.in_use())
            .field("bytes", &self.bytes())
            .finish()
    }
}

impl State {
    /// The next object that was never handed out, from a new chunk if need be.
    fn take_fresh(&mut self, shape: &Shape) -> Result<NonNull<u8>, Error> {
        if self.fresh_left == 0 {
            self.grow(shape)?;
        }
        let object = NonNull::new(self.fresh).ok_or(Error::Exhausted { capacity: shape.capacity })?;
        self.fresh_left -= 1;
        // SAFETY: `grow` made room for `fresh_left` objects from here on; after the last of them the pointer is
        // one past the chunk's objects and `fresh_left` is 0, so that it is not used again.
        self.fresh = unsafe { self.fresh.add(shape.stride) };
        Ok(object)
    }

    /// Adds a chunk, smaller than usual if the limit is near. (After a smaller one not even one object fits, so
    /// that there are never more chunks than planned.)
    fn grow(&mut self, shape: &Shape) -> Result<(), Error> {
        let objects = shape.chunk_objects.min(shape.capacity - self.carved);
        if objects == 0 {
            return Err(Error::Exhausted { capacity: shape.capacity });
        }
        let objects = objects.min(shape.objects_within_limit(self.bytes));
        if objects == 0 {
            return Err(Error::Limit { held: self.bytes, wanted: shape.chunk_bytes(1)?, limit: shape.limit });
        }
        let chunk = Block::zeroed(objects * shape.stride, shape.align)?;
        self.fresh = chunk.base().as_ptr();
        self.fresh_left = objects;
        self.carved += objects;
        self.bytes += chunk.reserved();
        self.chunks.push(chunk); // within the capacity reserved by `Pool::new`
        Ok(())
    }
}

impl Shape {
    fn of(options: &PoolOptions) -> Result<Self, Error> {
        let &PoolOptions { object_size, align, capacity, limit } = options;
        if object_size == 0 || capacity == 0 {
            return Err(Error::Empty { capacity, size: object_size });
        }
        let align = align.max(8);
        if !align.is_power_of_two() || align > 4096 {
            return Err(Error::Align { align: options.align });
        }
        let too_large = Error::TooLarge { count: capacity, size: object_size };
        let stride = object_size.checked_next_multiple_of(align).ok_or(too_large)?;
        let total = stride.checked_mul(capacity).ok_or(too_large)?;
        let chunk_bytes = (total / 16).clamp(*CHUNK_BYTES.start(), *CHUNK_BYTES.end());
        let chunk_objects = (chunk_bytes / stride).clamp(1, capacity);

        let mut shape = Self { stride, align, capacity, limit, chunk_objects, list_bytes: 0, max_bytes: 0 };
        let full_chunks = capacity / chunk_objects;
        let rest = capacity % chunk_objects;
        let mut bytes = shape.chunk_bytes(chunk_objects)?.checked_mul(full_chunks).ok_or(too_large)?;
        if rest != 0 {
            bytes = bytes.checked_add(shape.chunk_bytes(rest)?).ok_or(too_large)?;
        }
        let chunks = capacity.div_ceil(chunk_objects);
        shape.list_bytes = chunks.checked_mul(size_of::<Block>()).ok_or(too_large)?;
        shape.max_bytes = bytes.checked_add(shape.list_bytes).ok_or(too_large)?;
        Ok(shape)
    }

    /// How many objects a chunk could have at most if the pool already holds so many bytes.
    fn objects_within_limit(&self, held: usize) -> usize {
        let slack = self.chunk_bytes(1).map_or(usize::MAX, |bytes| bytes - self.stride);
        self.limit.saturating_sub(held).saturating_sub(slack) / self.stride
    }

    /// Bytes that a chunk of so many objects takes.
    fn chunk_bytes(&self, objects: usize) -> Result<usize, Error> {
        Block::reserved_for(objects * self.stride, self.align)
    }
}
