//! Tries that find the longest prefix of an address.
//!
//! A binary trie without single-child chains (Patricia). Each node is a prefix; its children are longer prefixes that
//! begin with it and differ in the bit after its end. A node has a value, or it is a *fork*: no value and two
//! children.
//!
//! ```text
//!                 10.0.0.0/8 = a
//!                  0 /      \ 1
//!        10.1.0.0/16 = b    10.192.0.0/10  (fork)
//!                             0 /      \ 1
//!                10.200.0.0/16 = c    10.240.0.0/16 = d
//! ```
//!
//! **Look-ups** take no lock: they walk down and then check whether a node was unlinked meanwhile (see
//! [`crate::version`]). **Changes** hold the trie's only lock and become visible by one store of one link, or of the
//! bit that says whether a node has a value:
//!
//! - a new prefix: link a leaf; or a node above an existing one; or a fork above both
//! - a new value for a prefix: link a copy of its node with the same children, free the old one
//! - a deleted prefix: with two children its node becomes a fork; with one, that child replaces it; a leaf disappears
//!   together with a fork above it, whose other child replaces the fork
//!
//! Freed nodes go back to the cache ([`crate::elements`]), which reuses them after a grace period. A program that
//! looks a value up checks whether it [holds](Elements::hold) it.

#[cfg(test)]
mod tests;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use skep_mem::{CacheOptions, CacheStats, Error};

use crate::caller::Caller;
use crate::cursor::{Batch, Cursor};
use crate::elements::{Elements, Lookup, Reclamation};
use crate::op_error::OpError;
use crate::prefix::{LENGTH_BYTES, Prefix, bit_of};
use crate::update::UpdateFlags;
use crate::values::{Source, Values};
use crate::version::{Outcome, Version, before_fill};

#[derive(Debug)]
pub(crate) struct Trie {
    root: AtomicPtr<u8>,
    version: Version,
    /// Written under the lock.
    len: AtomicU32,
    elements: Elements,
    values: Values,
    data_size: usize,
    data_words: usize,
    max_entries: u32,
}

/// The first words of a node.
///
/// ```text
///   | child 0 | child 1 | length, has a value | data, in whole words | value |
/// ```
#[repr(C)]
struct Head {
    children: [AtomicPtr<u8>; 2],
    /// The prefix's length; [`VALUED`] if the node is not a fork.
    meta: AtomicU64,
}

const VALUED: u64 = 1 << 32;

/// A node: an element of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node(NonNull<u8>);

/// The contents of a node besides its children.
struct Contents<'a> {
    len: u32,
    /// At least as many words as the trie's data.
    words: &'a [u64],
    value: Option<Source>,
}

/// The parameters of a trie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
}

/// Bytes that may wait for readers, even in the smallest trie.
const WAITING: usize = 1 << 20;

impl Plan {
    fn data_words(&self) -> usize {
        ((self.key_size - LENGTH_BYTES) as usize).div_ceil(8)
    }

    fn nodes(&self) -> Option<CacheOptions> {
        let value = (self.value_size as usize).checked_next_multiple_of(8)?;
        let size = value.checked_add(size_of::<Head>() + self.data_words() * 8)?;
        // With n values there are at most n - 1 forks; as many may wait for readers.
        let capacity = (self.max_entries as usize).saturating_mul(4);
        Some(CacheOptions::new(size, capacity).spare_bytes(WAITING))
    }
}

impl Trie {
    /// `limit`: the most bytes that the trie may take.
    pub(crate) fn new(plan: &Plan, limit: usize, memory: &Reclamation) -> Result<Self, Error> {
        let too_large = Error::TooLarge { count: plan.max_entries as usize, size: plan.value_size as usize };
        Ok(Self {
            root: AtomicPtr::new(ptr::null_mut()),
            version: Version::default(),
            len: AtomicU32::new(0),
            elements: Elements::new(memory, plan.nodes().ok_or(too_large)?.limit(limit))?,
            values: Values::shared(plan.value_size),
            data_size: (plan.key_size - LENGTH_BYTES) as usize,
            data_words: plan.data_words(),
            max_entries: plan.max_entries,
        })
    }

    /// The value of the longest prefix of that key, itself included.
    ///
    /// # Safety
    ///
    /// `key` is readable for the key size; `cpu` is the slot of the calling thread, inside a section.
    #[inline]
    pub(crate) unsafe fn lookup(&self, key: *const u8, cpu: u32) -> *mut u8 {
        // SAFETY: by the caller's contract. Two buffer sizes, because most keys are short.
        let found = unsafe {
            match self.data_words {
                1 => self.hold(&Prefix::<1>::load(key, self.data_size), cpu),
                2 => self.hold(&Prefix::<2>::load(key, self.data_size), cpu),
                _ => self.hold(&self.load(key), cpu),
            }
        };
        found.map_or(ptr::null_mut(), |node| self.value_of(node))
    }

    /// # Safety
    ///
    /// `key` is readable for the key size, `out` writable for the value size.
    pub(crate) unsafe fn read(&self, key: *const u8, out: *mut u8, caller: Caller) -> Result<bool, OpError> {
        // SAFETY: by the caller's contract.
        let key = unsafe { self.checked(key) }?;
        self.version.read_consistent(caller, self.elements.must_lock(caller), |walk| {
            self.walk(&key, || walk.is_astray()).map(|found| {
                // SAFETY: memory of a node of this trie, even if it was reused; `out` by the caller's contract.
                found.map(|node| unsafe { self.values.read(self.value_of(node), out) }).is_some()
            })
        })
    }

    /// # Safety
    ///
    /// `key` is readable for the key size, `source` as [`Values::write`] demands; `caller` is the calling thread.
    pub(crate) unsafe fn update(
        &self,
        key: *const u8,
        source: Source,
        mode: UpdateFlags,
        caller: Caller,
    ) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        let key = unsafe { self.checked(key) }?;
        let leaf = Contents { len: key.len, words: key.words(), value: Some(source) };
        let lock = self.version.lock(caller)?;

        let (link, found, common) = self.descend(&key);
        let exact = found.filter(|node| node.len() == key.len && common == key.len);
        let exists = exact.is_some_and(Node::is_valued);
        match mode {
            UpdateFlags::NoExist if exists => return Err(OpError::Exists),
            UpdateFlags::Exist if !exists => return Err(OpError::Missing),
            _ if !exists && self.len() >= self.max_entries => return Err(OpError::TrieFull),
            _ => {}
        }

        // SAFETY (all calls of `make`): `source` by the caller's contract; children are null or nodes of this trie.
        let Some(node) = found else {
            // SAFETY: see above.
            let new = unsafe { self.make(&leaf, [None, None], caller) }?;
            self.publish(link, new);
            self.count(1);
            return Ok(());
        };
        if exact.is_some() {
            // SAFETY: see above.
            let new = unsafe { self.make(&leaf, [node.child(0), node.child(1)], caller) }?;
            self.publish(link, new);
            if !exists {
                self.count(1);
            }
            lock.unlock_changed();
            // SAFETY: unlinked under the lock, and the version shows it.
            unsafe { self.elements.free(caller, node.0) };
            return Ok(());
        }
        if common == key.len {
            // The key is a prefix of the node: insert between the node and the link to it.
            let mut children = [None, None];
            children[self.bit(node, common)] = Some(node);
            // SAFETY: see above.
            let new = unsafe { self.make(&leaf, children, caller) }?;
            self.publish(link, new);
        } else {
            // They differ after `common` bits: insert a fork there.
            // SAFETY: see above.
            let new = unsafe { self.make(&leaf, [None, None], caller) }?;
            let mut children = [Some(node), Some(node)];
            children[key.bit(common)] = Some(new);
            let fork = Contents { len: common, words: key.words(), value: None };
            // SAFETY: see above.
            match unsafe { self.make(&fork, children, caller) } {
                Ok(fork) => self.publish(link, fork),
                Err(error) => {
                    // SAFETY: made above and never linked.
                    unsafe { self.elements.free_unpublished(caller, new.0) };
                    return Err(error);
                }
            }
        }
        self.count(1);
        Ok(())
    }

    /// # Safety
    ///
    /// `key` is readable for the key size; `caller` is the calling thread.
    pub(crate) unsafe fn delete(&self, key: *const u8, caller: Caller) -> Result<(), OpError> {
        // SAFETY: by the caller's contract.
        let key = unsafe { self.checked(key) }?;
        let lock = self.version.lock(caller)?;

        let (mut above, mut parent) = (&self.root, None::<Node>);
        let (mut link, mut from) = (&self.root, 0);
        let node = loop {
            let Some(node) = load_locked(link) else { return Err(OpError::Missing) };
            let len = node.len();
            from = self.common(&key, node, from, len.min(key.len));
            if from < len {
                return Err(OpError::Missing);
            }
            if len == key.len {
                break node;
            }
            (above, parent) = (link, Some(node));
            link = &node.head().children[key.bit(len)];
        };
        if !node.is_valued() {
            return Err(OpError::Missing);
        }

        self.len.fetch_sub(1, Ordering::Relaxed);
        let mut freed = [Some(node), None];
        match (node.child(0), node.child(1)) {
            (Some(_), Some(_)) => {
                // Relaxed: a reader that sees the bit late has found the value before it was deleted.
                node.head().meta.store(u64::from(node.len()), Ordering::Relaxed);
                return Ok(());
            }
            (Some(child), None) | (None, Some(child)) => self.publish(link, child),
            (None, None) => match parent.filter(|parent| !parent.is_valued()) {
                Some(fork) => {
                    let other = 1 - key.bit(fork.len());
                    self.link(above, fork.child(other));
                    freed[1] = Some(fork);
                }
                None => self.link(link, None),
            },
        }
        lock.unlock_changed();
        for node in freed.into_iter().flatten() {
            // SAFETY: unlinked under the lock, and the version shows it.
            unsafe { self.elements.free(caller, node.0) };
        }
        Ok(())
    }

    /// The key after `after` in the order of [`successor`](Self::successor); the first one if `after` is not in the
    /// trie.
    ///
    /// # Safety
    ///
    /// `after` is readable, and `out` writable, for the key size; `caller` is the calling thread.
    pub(crate) unsafe fn next_key(&self, after: Option<*const u8>, out: *mut u8, caller: Caller) -> bool {
        // SAFETY: by the caller's contract.
        let after = after.map(|after| unsafe { self.load(after) });
        let _lock = self.version.lock_or_own(caller);
        let after = after.filter(|key| key.len <= self.max_len() && self.is_here(key));
        let Some(next) = self.successor(after.as_ref()) else { return false };
        // SAFETY: `out` by contract.
        unsafe { self.copy_key(next, out) };
        true
    }

    /// Copies some elements, in the order of [`successor`](Self::successor): an element that stays is copied once.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    pub(crate) unsafe fn batch(&self, cursor: &mut Cursor, count: usize, out: &mut Batch, caller: Caller) {
        let _lock = self.version.lock_or_own(caller);
        let own = |key: &&[u8]| key.len() == self.data_size + LENGTH_BYTES as usize;
        // SAFETY: the key has the trie's key size. A key from another trie may still have a prefix that is too long.
        let mut last = cursor.after.as_deref().filter(own).map(|key| unsafe { self.load(key.as_ptr()) });
        last = last.filter(|key| key.len <= self.max_len());
        while out.len() < count
            && let Some(node) = self.successor(last.as_ref())
        {
            let mut key = vec![0; self.data_size + LENGTH_BYTES as usize];
            let mut value = vec![0; self.values.host_size()];
            // SAFETY: a node of this trie; both buffers have the size that is written, and then the key is readable
            // for as many bytes.
            unsafe {
                self.copy_key(node, key.as_mut_ptr());
                self.values.read(self.value_of(node), value.as_mut_ptr());
                last = Some(self.load(key.as_ptr()));
            }
            cursor.after = Some(key.clone());
            out.push_back((key, value));
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) fn memory(&self) -> usize {
        self.elements.stats().bytes
    }

    /// Bytes besides those of the nodes, and the nodes' statistics.
    pub(crate) fn stats(&self) -> (usize, CacheStats) {
        (0, self.elements.stats())
    }

    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// The longest prefix of a key, in bits.
    pub(crate) fn max_len(&self) -> u32 {
        self.data_size as u32 * 8
    }
}

/// Look-up.
impl Trie {
    #[inline(always)]
    fn find<const WORDS: usize>(&self, key: &Prefix<WORDS>, caller: Caller) -> Option<Node> {
        if key.len > self.max_len() {
            return None;
        }
        self.version.read(caller, |walk| self.walk(key, || walk.is_astray()))
    }

    /// Finds a node for a reader that uses it beyond the look-up.
    ///
    /// # Safety
    ///
    /// `cpu` is the slot of the calling thread, inside a section.
    #[inline(always)]
    unsafe fn hold<const WORDS: usize>(&self, key: &Prefix<WORDS>, cpu: u32) -> Option<Node> {
        let find = |locked| {
            match locked {
                Lookup::Lockless => self.find(key, Caller::Cpu(cpu)),
                Lookup::Locked => self.find_locked(key),
            }
            .map(|node| node.0)
        };
        // SAFETY: by the caller's contract; nodes are elements of this trie.
        unsafe { self.elements.hold(cpu, &self.version, find) }.map(Node)
    }

    /// Finds a node under the lock.
    fn find_locked<const WORDS: usize>(&self, key: &Prefix<WORDS>) -> Option<Node> {
        match self.walk(key, || false) {
            Outcome::Answer(found) => found,
            Outcome::Astray => unreachable!("this walk never checks"),
        }
    }

    /// Walks down without a lock.
    #[inline(always)]
    fn walk<const WORDS: usize>(
        &self,
        key: &Prefix<WORDS>,
        mut is_astray: impl FnMut() -> bool,
    ) -> Outcome<Option<Node>> {
        let (mut longest, mut from) = (None, 0);
        // Acquire: pairs with the Release in `link`: the node's contents are seen.
        let mut next = self.root.load(Ordering::Acquire);
        while let Some(node) = NonNull::new(next).map(Node) {
            let meta = node.head().meta.load(Ordering::Relaxed);
            let len = meta as u32;
            from = self.common(key, node, from, len.min(key.len));
            if from < len {
                break;
            }
            if meta & VALUED != 0 {
                longest = Some(node);
            }
            if len == key.len {
                break;
            }
            if is_astray() {
                return Outcome::Astray;
            }
            next = node.head().children[key.bit(len)].load(Ordering::Acquire); // as above
        }
        Outcome::Answer(longest)
    }

    /// Walks down while nodes are prefixes of the key and shorter. Returns the link below the last of them, the node
    /// that it leads to, and how many bits that node has in common with the key. The caller holds the lock.
    fn descend(&self, key: &Prefix) -> (&AtomicPtr<u8>, Option<Node>, u32) {
        let (mut link, mut from) = (&self.root, 0);
        while let Some(node) = load_locked(link) {
            let len = node.len();
            from = self.common(key, node, from, len.min(key.len));
            if from < len || len == key.len {
                return (link, Some(node), from);
            }
            link = &node.head().children[key.bit(len)];
        }
        (link, None, from)
    }

    fn is_here(&self, key: &Prefix) -> bool {
        let (_, found, common) = self.descend(key);
        found.is_some_and(|node| node.len() == key.len && common == key.len && node.is_valued())
    }

    /// The first prefix after a key, or the very first. The order: longer prefixes before the prefix that contains
    /// them, and otherwise the one with a 0 in the first bit that differs. So the most specific entries come first,
    /// as in Linux.
    ///
    /// The key need not be in the trie. The caller holds the lock.
    fn successor(&self, after: Option<&Prefix>) -> Option<Node> {
        let Some(key) = after else { return load_locked(&self.root).map(first_below) };
        // The first node after the subtrees on the key's side of the last node passed.
        let mut candidate = None;
        let (mut next, mut from) = (load_locked(&self.root), 0);
        while let Some(node) = next {
            let len = node.len();
            let limit = len.min(key.len);
            from = self.common(key, node, from, limit);
            if from < limit {
                // They differ: all nodes below come after the key, or all before.
                return if self.bit(node, from) > key.bit(from) {
                    Some(first_below(node))
                } else {
                    candidate
                };
            }
            if key.len <= len {
                // The key itself, or all nodes below begin with the key and come before it.
                break;
            }
            let own = node.is_valued().then_some(node);
            candidate = match (key.bit(len), node.child(1)) {
                (0, Some(right)) => Some(first_below(right)),
                _ => own.or(candidate),
            };
            next = node.child(key.bit(len));
        }
        candidate
    }

    /// # Safety
    ///
    /// `key` is readable for the key size.
    unsafe fn load(&self, key: *const u8) -> Prefix {
        // SAFETY: by the caller's contract.
        unsafe { Prefix::load(key, self.data_size) }
    }

    /// # Safety
    ///
    /// `key` is readable for the key size.
    unsafe fn checked(&self, key: *const u8) -> Result<Prefix, OpError> {
        // SAFETY: by the caller's contract.
        let key = unsafe { self.load(key) };
        if key.len > self.max_len() { Err(OpError::PrefixTooLong) } else { Ok(key) }
    }

    #[inline(always)]
    fn common<const WORDS: usize>(&self, key: &Prefix<WORDS>, node: Node, from: u32, limit: u32) -> u32 {
        key.common(|word| self.word(node, word), from, limit)
    }

    #[inline(always)]
    fn word(&self, node: Node, index: usize) -> u64 {
        self.data_word(node, index).load(Ordering::Relaxed)
    }

    fn bit(&self, node: Node, index: u32) -> usize {
        bit_of(self.word(node, index as usize / 64), index)
    }

    #[inline(always)]
    fn data_word(&self, node: Node, index: usize) -> &AtomicU64 {
        debug_assert!(index < self.data_words);
        // SAFETY: the words of the data follow the head, and callers stay below their number: the lengths of nodes
        // and of checked keys are at most the bits in that many words.
        unsafe { node.0.byte_add(size_of::<Head>()).cast::<AtomicU64>().add(index).as_ref() }
    }

    #[inline(always)]
    fn value_of(&self, node: Node) -> *mut u8 {
        // SAFETY: the cache's objects have the size that `Plan::pool` computed with this offset.
        unsafe { node.0.as_ptr().add(size_of::<Head>() + self.data_words * 8) }
    }

    /// # Safety
    ///
    /// `out` is writable for the key size.
    unsafe fn copy_key(&self, node: Node, out: *mut u8) {
        let bytes = (0..self.data_words).flat_map(|index| self.word(node, index).to_be_bytes());
        let key = node.len().to_ne_bytes().into_iter().chain(bytes.take(self.data_size));
        for (i, byte) in key.enumerate() {
            // SAFETY: the key size is the length's 4 bytes and `data_size`.
            unsafe { out.add(i).write(byte) };
        }
    }
}

/// Changes. The caller holds the lock.
impl Trie {
    /// A new node, not linked yet.
    ///
    /// # Safety
    ///
    /// The value's source is as [`Values::write`] demands; `caller` is the calling thread.
    unsafe fn make(
        &self,
        contents: &Contents<'_>,
        children: [Option<Node>; 2],
        caller: Caller,
    ) -> Result<Node, OpError> {
        // SAFETY: `caller` by contract.
        let node = unsafe { self.elements.alloc(caller) }.map(Node).map_err(OpError::NoMemory)?;
        before_fill();
        // Relaxed, all: the link that publishes the node has the Release.
        for (to, child) in node.head().children.iter().zip(children) {
            to.store(child.map_or(ptr::null_mut(), |child| child.0.as_ptr()), Ordering::Relaxed);
        }
        let valued = if contents.value.is_some() { VALUED } else { 0 };
        node.head().meta.store(u64::from(contents.len) | valued, Ordering::Relaxed);
        for (index, &word) in contents.words[..self.data_words].iter().enumerate() {
            self.data_word(node, index).store(word, Ordering::Relaxed);
        }
        if let Some(source) = contents.value {
            // SAFETY: the node has room for a value; the source by the caller's contract.
            unsafe { self.values.fill(self.value_of(node), source) };
        }
        Ok(node)
    }

    fn publish(&self, link: &AtomicPtr<u8>, node: Node) {
        self.link(link, Some(node));
    }

    fn link(&self, link: &AtomicPtr<u8>, node: Option<Node>) {
        // Release: pairs with the Acquire in `walk`.
        link.store(node.map_or(ptr::null_mut(), |node| node.0.as_ptr()), Ordering::Release);
    }

    fn count(&self, more: u32) {
        // Relaxed: a count, which orders nothing.
        self.len.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        if !self.elements.are_separate() {
            return;
        }
        let mut rest: Vec<Node> = load_locked(&self.root).into_iter().collect();
        while let Some(node) = rest.pop() {
            rest.extend([node.child(0), node.child(1)].into_iter().flatten());
            // SAFETY: no other thread has the trie any more.
            unsafe { self.elements.free(Caller::Host, node.0) };
        }
    }
}

impl Node {
    #[inline(always)]
    fn head<'a>(self) -> &'a Head {
        // SAFETY: nodes begin with a head, for which every bit pattern is valid; the cache's memory lives as long as
        // the trie, and its methods do not leak these references.
        unsafe { self.0.cast().as_ref() }
    }

    fn len(self) -> u32 {
        self.head().meta.load(Ordering::Relaxed) as u32
    }

    fn is_valued(self) -> bool {
        self.head().meta.load(Ordering::Relaxed) & VALUED != 0
    }

    /// The caller holds the lock.
    fn child(self, side: usize) -> Option<Node> {
        load_locked(&self.head().children[side])
    }
}

/// Follows a link. Relaxed: all links are stored under the lock, which the caller holds.
fn load_locked(link: &AtomicPtr<u8>) -> Option<Node> {
    NonNull::new(link.load(Ordering::Relaxed)).map(Node)
}

/// The first node in the order of a node and those below it: a leaf, which always has a value. The caller holds the
/// lock.
fn first_below(mut node: Node) -> Node {
    while let Some(child) = node.child(0).or_else(|| node.child(1)) {
        node = child;
    }
    node
}
