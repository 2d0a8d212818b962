//! The settings of a cache.

use std::sync::Arc;

use crate::account::Account;
use crate::policy::Policy;

/// Settings of a [`Cache`](crate::Cache).
#[derive(Clone, Debug)]
pub struct CacheOptions {
    pub(crate) size: usize,
    pub(crate) align: usize,
    pub(crate) offset: usize,
    pub(crate) capacity: usize,
    pub(crate) spare: usize,
    pub(crate) limit: usize,
    pub(crate) expected: usize,
    pub(crate) policy: Policy,
    pub(crate) file: Option<&'static str>,
    pub(crate) account: Option<Arc<Account>>,
}

impl CacheOptions {
    /// A cache of at most `capacity` objects of `size` bytes at a time, 8-byte aligned, without a limit in bytes,
    /// that reuses objects after a grace period.
    pub fn new(size: usize, capacity: usize) -> Self {
        Self {
            size,
            align: 8,
            offset: 0,
            capacity,
            spare: 0,
            limit: usize::MAX,
            expected: 0,
            policy: Policy::default(),
            file: None,
            account: None,
        }
    }

    /// Aligns every object to `align` bytes: a power of two up to 4096. Less than 8 counts as 8.
    #[must_use]
    pub fn align(self, align: usize) -> Self {
        self.align_at(align, 0)
    }

    /// Aligns the byte at `offset`, a multiple of 8, of every object to `align` bytes. The 8 bytes before an object are
    /// the cache's: an offset of `align - 8` wastes none.
    #[must_use]
    pub fn align_at(mut self, align: usize, offset: usize) -> Self {
        (self.align, self.offset) = (align, offset);
        self
    }

    /// How many objects there may be at a time, in use or waiting for readers.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }

    /// Room for this many bytes of objects beyond the capacity that wait for readers.
    #[must_use]
    pub fn spare_bytes(mut self, bytes: usize) -> Self {
        self.spare = bytes;
        self
    }

    /// The most bytes that the cache may hold, bookkeeping included.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// How many objects are likely to be in use. If these take 4 MiB or more, the cache asks the system for large
    /// pages. Memory is used from the front, so at most one large page is committed too early.
    #[must_use]
    pub fn expect(mut self, objects: usize) -> Self {
        self.expected = objects;
        self
    }

    /// Charges the memory that the cache takes, [`CacheStats::bytes`](crate::CacheStats::bytes), to an account. An
    /// allocation that would exceed it fails. What is returned to the system is credited then, and all of it when the
    /// cache's memory is returned after it was dropped.
    #[must_use]
    pub fn account(mut self, account: Option<Arc<Account>>) -> Self {
        self.account = account;
        self
    }

    /// The reuse policy.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Puts the objects into a file, which other processes can map: see [`Cache::shared`](crate::Cache::shared). `name`
    /// is for people: `/proc` shows it. Under [`Policy::None`] it has no effect.
    #[must_use]
    pub fn in_file(mut self, name: &'static str) -> Self {
        self.file = Some(name);
        self
    }
}
