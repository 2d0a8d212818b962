//! Which chunks are free: a two-level segregated-fit allocator (TLSF) over numbers.
//!
//! The problem: thousands of small programs come and go in a few packs. Finding a free run must cost tens of
//! nanoseconds at any fill level, and no bookkeeping may be written into the packs, because everything in them can
//! be executed. So this file knows no addresses. It allocates runs of chunk numbers and keeps its state in a table
//! of its own:
//! ```text
//!   region (a pack)   | text 3 | free 5    | draft 1 | free 2 | beyond ... |    nodes, linked in order: before/after
//!                                  │                     │
//!   bins by size            [.. 2, .., 5 ..]  each a list of free nodes: previous/next
//!   two bitmaps             rows (powers of two) and columns (16 steps in each): first set bit = first fit
//! ```
//!
//! Sizes below 32 chunks (1 KiB) have a bin each; a larger bin spans a sixteenth of a power of two. A search takes
//! the first bin in which every run is long enough, and only if there is none searches the bin of the size itself.
//! So a request fails exactly if no free run is long enough.
//!
//! A region may be larger than the memory behind it: its last node is then *beyond*, and [`Chunks::extend`] turns
//! its first chunks into free ones as memory is populated.
//!
//! Invariants: nodes of a region tile it without gaps; two free nodes are never neighbours (they are merged); a free
//! node is in the bin of its size and no other; a region's first node stays its first node; `used + free` is the sum
//! of all regions without their chunks beyond.
//!
//! What would break it: a block freed twice. [`Block`] is not `Copy` and [`Chunks::free`] consumes it.

/// No node: the end of a list or region.
const NONE: u32 = u32::MAX;

/// Columns: size classes within a power of two.
const COLUMNS: usize = 16;

/// Row 0 holds sizes 1 to 15; row r the sizes from 2^(r+3) to below 2^(r+4).
const ROWS: usize = 14;

/// The longest region, and so the longest run: only such a run is in the last row.
pub(crate) const MAX_REGION: u32 = 1 << 16;

/// A run of chunks in use. Freeing it consumes it.
#[derive(Debug)]
pub(crate) struct Block(u32);

/// The result of [`Chunks::alloc`].
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) block: Block,
    /// Number of the first chunk.
    pub(crate) start: u32,
    /// Whether some chunk of the run was part of a text before, so that other CPUs may have fetched from it.
    pub(crate) reused: bool,
}

/// The state of a run of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    Free,
    Draft,
    Text,
    /// Not populated yet.
    Beyond,
    /// An unused entry of the table, no run.
    Vacant,
}

/// Constraints on the place of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Its first chunk's number is a multiple of this power of two.
    pub(crate) align: u32,
    /// A random number that selects a place in the free run, instead of its beginning.
    pub(crate) random: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(32))] // never across two cache lines: most of an allocation's time is fetching them
struct Node {
    start: u32,
    count: u32,
    before: u32,
    after: u32,
    previous: u32,
    next: u32,
    state: RunState,
    /// Chunks from this number on have never been part of a text. It may be too high, and may be outside the run.
    fresh_from: u32,
}

#[derive(Debug)]
pub(crate) struct Chunks {
    nodes: Vec<Node>,
    /// First of the table's unused nodes, linked by `next`.
    vacant: u32,
    /// The first node of each region.
    regions: Vec<u32>,
    rows: u32,
    columns: [u32; ROWS],
    bins: [[u32; COLUMNS]; ROWS],
    used: u32,
    free: u32,
    /// The number of regions that are entirely free.
    empty_regions: u32,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            vacant: NONE,
            regions: Vec::new(),
            rows: 0,
            columns: [0; ROWS],
            bins: [[NONE; COLUMNS]; ROWS],
            used: 0,
            free: 0,
            empty_regions: 0,
        }
    }

    /// Adds a region: the `count` chunks from number `start` on. The first `free` of them are free, the others
    /// beyond; the returned block stands for those. Runs never cross from one region into another. `reused` says
    /// whether an earlier region had the same chunks, so that they may have been parts of texts.
    pub(crate) fn add_region(&mut self, start: u32, free: u32, count: u32, reused: bool) -> Option<Block> {
        debug_assert!(0 < free && free <= count && count <= MAX_REGION);
        let node = Node {
            start,
            count: free,
            before: NONE,
            after: NONE,
            previous: NONE,
            next: NONE,
            state: RunState::Free,
            fresh_from: if reused { start + count } else { start },
        };
        let first = self.new_node(node);
        self.regions.push(first);
        self.free += free;
        self.empty_regions += 1;
        self.list(first);
        (free < count).then(|| {
            let rest = Node { start: start + free, count: count - free, before: first, ..node };
            let beyond = self.new_node(Node { state: RunState::Beyond, ..rest });
            self.nodes[first as usize].after = beyond;
            Block(beyond)
        })
    }

    /// Frees the first `count` chunks of those beyond; returns the block of those that remain beyond.
    pub(crate) fn extend(&mut self, beyond: Block, count: u32) -> Option<Block> {
        let Block(index) = beyond;
        let node = self.nodes[index as usize];
        debug_assert!(node.state == RunState::Beyond && 0 < count && count <= node.count);
        // The region's last node moves up; the populated chunks join the neighbour, or become one.
        let rest = (count < node.count).then(|| {
            let rest = Node { start: node.start + count, count: node.count - count, before: index, ..node };
            let rest = self.new_node(rest);
            self.nodes[index as usize].after = rest;
            rest
        });
        self.nodes[index as usize].count = count;
        self.nodes[index as usize].state = RunState::Free;
        self.free += count;
        // This changes no region between empty and not empty, so `empty_regions` stays.
        let index = self.merge(index);
        self.list(index);
        rest.map(Block)
    }

    /// Removes one region that is entirely free and whose first chunk satisfies `may_go`; returns that chunk.
    pub(crate) fn remove_empty_region(&mut self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let goes = |&first: &u32| self.is_empty_region(first) && may_go(self.nodes[first as usize].start);
        let at = self.regions.iter().position(goes)?;
        let first = self.regions.swap_remove(at);
        let node = self.nodes[first as usize];
        self.unlist(first);
        self.retire_node(first);
        if node.after != NONE {
            self.retire_node(node.after);
        }
        self.free -= node.count;
        self.empty_regions -= 1;
        Some(node.start)
    }

    /// Takes `count` consecutive chunks for a draft, out of the smallest bin that has them. `None` if no run is long
    /// enough.
    pub(crate) fn alloc(&mut self, count: u32, fit: Fit) -> Option<Found> {
        debug_assert!(count > 0 && fit.align.is_power_of_two());
        if count > MAX_REGION {
            return None;
        }
        let index = self.search_aligned(count, fit.align)?;
        self.unlist(index);
        self.empty_regions -= u32::from(self.is_empty_region(index));
        let index = self.skip(index, count, fit);
        let node = &mut self.nodes[index as usize];
        node.state = RunState::Draft;
        let Node { start, fresh_from, .. } = *node;
        self.used += node.count;
        self.free -= node.count;
        self.cut(index, count);
        Some(Found { block: Block(index), start, reused: start < fresh_from })
    }

    /// The length of the free run that ends where the chunks beyond begin.
    pub(crate) fn free_before(&self, beyond: &Block) -> u32 {
        let before = &self.nodes[self.nodes[beyond.0 as usize].before as usize];
        if before.state == RunState::Free { before.count } else { 0 }
    }

    /// Marks a draft as a text.
    pub(crate) fn publish(&mut self, block: &Block) {
        let node = &mut self.nodes[block.0 as usize];
        debug_assert!(node.state == RunState::Draft);
        node.state = RunState::Text;
    }

    /// Frees the chunks of `block` and merges them with free neighbours. A draft's chunks stay as fresh as they
    /// were: no other thread ever had their addresses.
    pub(crate) fn free(&mut self, block: Block) {
        let Block(index) = block;
        let node = &mut self.nodes[index as usize];
        match node.state {
            RunState::Text => node.fresh_from = node.fresh_from.max(node.start + node.count),
            state => debug_assert_eq!(state, RunState::Draft),
        }
        node.state = RunState::Free;
        self.used -= node.count;
        self.free += node.count;
        let index = self.merge(index);
        self.empty_regions += u32::from(self.is_empty_region(index));
        self.list(index);
    }

    /// Frees the chunks of `block` from its `count`th on; the block keeps its start. No thread has run code in them.
    pub(crate) fn shrink(&mut self, block: &Block, count: u32) {
        debug_assert!(0 < count && count <= self.nodes[block.0 as usize].count);
        self.cut(block.0, count);
    }

    /// Chunks of drafts and texts, retired ones included.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free
    }

    pub(crate) fn empty_regions(&self) -> u32 {
        self.empty_regions
    }

    /// All runs, region by region, in order of chunk number: first chunk, count, state.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, u32, RunState)> + '_ {
        let node = move |index: u32| (index != NONE).then(|| self.nodes[index as usize]);
        let run = |node: Node| (node.start, node.count, node.state);
        let region = move |&first: &u32| std::iter::successors(node(first), move |last| node(last.after));
        self.regions.iter().flat_map(region).map(run)
    }

    /// Length of the longest free run.
    pub(crate) fn longest_free_run(&self) -> u32 {
        let Some(largest) = self.free_nodes_from_the_largest_bin().next() else { return 0 };
        let largest_bin = bin(self.nodes[largest as usize].count);
        self.free_nodes_from_the_largest_bin()
            .map(|index| self.nodes[index as usize].count)
            .take_while(|&count| bin(count) == largest_bin)
            .max()
            .unwrap_or(0)
    }

    fn search_aligned(&self, count: u32, align: u32) -> Option<u32> {
        let fits = |&index: &u32| {
            let node = &self.nodes[index as usize];
            padding(node.start, align) + count <= node.count
        };
        self.search(count).filter(fits).or_else(|| {
            let (least, most) = (count, count.saturating_add(align - 1));
            // A run of that length fits wherever it begins; a shorter one may fit by its alignment.
            (align > 1).then(|| self.search(most).or_else(|| self.between(least, most).find(fits))).flatten()
        })
    }

    fn search(&self, count: u32) -> Option<u32> {
        if count > MAX_REGION {
            return None;
        }
        let (row, column) = bin(round_up(count));
        let here = self.columns[row] & (u32::MAX << column);
        let (row, columns) = if here != 0 {
            (row, here)
        } else {
            let above = self.rows & (u32::MAX << row << 1);
            if above == 0 {
                return self.search_own_bin(count);
            }
            let row = above.trailing_zeros() as usize;
            (row, self.columns[row])
        };
        Some(self.bins[row][columns.trailing_zeros() as usize])
    }

    /// The bin of `count` itself also holds runs that are too short.
    fn search_own_bin(&self, count: u32) -> Option<u32> {
        let (row, column) = bin(count);
        self.listed(self.bins[row][column]).find(|&index| self.nodes[index as usize].count >= count)
    }

    /// The free nodes in the bins of `least` to `most` chunks.
    fn between(&self, least: u32, most: u32) -> impl Iterator<Item = u32> + '_ {
        let place = |count: u32| {
            let (row, column) = bin(count.min(MAX_REGION));
            row * COLUMNS + column
        };
        self.bins.as_flattened()[place(least)..=place(most)].iter().flat_map(|&head| self.listed(head))
    }

    /// Splits off the beginning of the unlisted free node `index` if `fit` requires the run to begin later; returns
    /// the node of the rest, unlisted.
    fn skip(&mut self, index: u32, count: u32, fit: Fit) -> u32 {
        let node = self.nodes[index as usize];
        let padding = padding(node.start, fit.align);
        let choices = (node.count - count - padding) / fit.align + 1;
        // Fixed-point multiplication maps a number below 2^32 to one below `choices`, nearly uniformly.
        let chosen = fit.random.map_or(0, |random| ((u64::from(random) * u64::from(choices)) >> 32) as u32);
        let skipped = padding + chosen * fit.align;
        if skipped == 0 {
            return index;
        }
        let rest = Node { start: node.start + skipped, count: node.count - skipped, before: index, ..node };
        let rest = self.new_node(rest);
        if node.after != NONE {
            self.nodes[node.after as usize].before = rest;
        }
        self.nodes[index as usize].after = rest;
        self.nodes[index as usize].count = skipped;
        self.list(index);
        rest
    }

    /// Shortens the used node `index` to `count`; the rest becomes a free node, merged with its free successor.
    fn cut(&mut self, index: u32, count: u32) {
        let node = self.nodes[index as usize];
        let rest = node.count - count;
        if rest == 0 {
            return;
        }
        let tail = self.new_node(Node {
            start: node.start + count,
            count: rest,
            before: index,
            previous: NONE,
            next: NONE,
            state: RunState::Free,
            ..node
        });
        if node.after != NONE {
            self.nodes[node.after as usize].before = tail;
        }
        self.nodes[index as usize].after = tail;
        self.nodes[index as usize].count = count;
        self.used -= rest;
        self.free += rest;
        let tail = self.merge(tail);
        self.list(tail);
    }

    /// Merges the free, unlisted node `index` with its free neighbours; returns the resulting node.
    fn merge(&mut self, index: u32) -> u32 {
        let mut index = index;
        let before = self.nodes[index as usize].before;
        if before != NONE && self.is_free(before) {
            self.unlist(before);
            self.absorb_after(before);
            index = before;
        }
        let after = self.nodes[index as usize].after;
        if after != NONE && self.is_free(after) {
            self.unlist(after);
            self.absorb_after(index);
        }
        index
    }

    fn absorb_after(&mut self, index: u32) {
        let gone = self.nodes[index as usize].after;
        let Node { count, after, fresh_from, .. } = self.nodes[gone as usize];
        let node = &mut self.nodes[index as usize];
        node.count += count;
        node.after = after;
        node.fresh_from = node.fresh_from.max(fresh_from);
        if after != NONE {
            self.nodes[after as usize].before = index;
        }
        self.retire_node(gone);
    }

    fn list(&mut self, index: u32) {
        let (row, column) = bin(self.nodes[index as usize].count);
        let head = self.bins[row][column];
        let node = &mut self.nodes[index as usize];
        node.previous = NONE;
        node.next = head;
        if head != NONE {
            self.nodes[head as usize].previous = index;
        }
        self.bins[row][column] = index;
        self.columns[row] |= 1 << column;
        self.rows |= 1 << row;
    }

    fn unlist(&mut self, index: u32) {
        let Node { count, previous, next, .. } = self.nodes[index as usize];
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
            return;
        }
        let (row, column) = bin(count);
        self.bins[row][column] = next;
        if next == NONE {
            self.columns[row] &= !(1 << column);
            if self.columns[row] == 0 {
                self.rows &= !(1 << row);
            }
        }
    }

    fn new_node(&mut self, node: Node) -> u32 {
        if self.vacant == NONE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.vacant;
        self.vacant = self.nodes[index as usize].next;
        self.nodes[index as usize] = node;
        index
    }

    fn retire_node(&mut self, index: u32) {
        self.nodes[index as usize].state = RunState::Vacant;
        self.nodes[index as usize].next = self.vacant;
        self.vacant = index;
    }

    fn is_free(&self, index: u32) -> bool {
        self.nodes[index as usize].state == RunState::Free
    }

    /// Whether the node is free and contains all populated chunks of its region.
    fn is_empty_region(&self, index: u32) -> bool {
        let node = &self.nodes[index as usize];
        let ends = node.after == NONE || self.nodes[node.after as usize].state == RunState::Beyond;
        node.state == RunState::Free && node.before == NONE && ends
    }

    /// The nodes of one bin, given the first.
    fn listed(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(some(head), move |&index| some(self.nodes[index as usize].next))
    }

    fn free_nodes_from_the_largest_bin(&self) -> impl Iterator<Item = u32> + '_ {
        self.bins.as_flattened().iter().rev().flat_map(|&head| self.listed(head))
    }
}

/// The number of chunks between `start` and the next multiple of `align`, a power of two.
fn padding(start: u32, align: u32) -> u32 {
    start.wrapping_neg() & (align - 1)
}

/// The bin for free runs of `count` chunks.
fn bin(count: u32) -> (usize, usize) {
    let count = count as usize;
    if count < COLUMNS {
        return (0, count);
    }
    let log = count.ilog2() as usize;
    (log - 3, count >> (log - 4) & (COLUMNS - 1))
}

/// The smallest size, at least `count`, at which a bin begins.
fn round_up(count: u32) -> u32 {
    if count < COLUMNS as u32 {
        return count;
    }
    let step = 1 << (count.ilog2() - 4);
    count.next_multiple_of(step)
}

#[cfg(test)]
mod tests;
