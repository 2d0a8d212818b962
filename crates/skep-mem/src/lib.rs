//! Memory for concurrent data structures whose readers take no locks.
//!
//! A reader that walks a list without a lock may stand on an object while a writer unlinks and frees it. With
//! a general-purpose allocator the next load would touch memory that belongs to somebody else, or to nobody. A
//! [`Pool`] hands out objects of one size from memory that is *type-stable*: as long as the pool lives, the
//! memory of an object is never moved, never returned to the system and never used for anything but an object
//! of that pool. A stale pointer then reads an outdated or a recycled object, never foreign memory, and the
//! data structure can notice that with a version number of its own.
//!
//! [`Block`] is the layer below: one zeroed piece of memory that the system commits as it is touched.
//!
//! # What this version does not do
//!
//! There is one reuse policy, *immediate*: a freed object may be handed out again at once, while a reader still
//! looks at it. That reader sees its object turn into another one. (Linux's preallocated hash maps behave in
//! the same way.) Policies that wait for readers to leave, and per-CPU caches in place of one lock, are to come
//! behind the same interface.
//!
//! # Example
//!
//! ```
//! use skep_mem::{Pool, PoolOptions};
//!
//! # fn main() -> Result<(), skep_mem::Error> {
//! let pool = Pool::new(&PoolOptions::new(24, 1000))?; // at most 1000 objects of 24 bytes
//! let object = pool.alloc()?;
//! assert_eq!(object.as_ptr() as usize % 8, 0);
//! assert_eq!(pool.in_use(), 1);
//!
//! // SAFETY: `object` came from this pool and is freed once.
//! unsafe { pool.free(object) };
//! assert_eq!(pool.in_use(), 0);
//! # Ok(())
//! # }
//! ```

mod block;
mod error;
mod pool;

pub use block::Block;
pub use error::Error;
pub use pool::{Pool, PoolOptions};
