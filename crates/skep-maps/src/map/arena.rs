//! Arenas, for the host and for programs.

use skep_abi::MapFlags;

use super::Map;
use crate::arena::{self, PAGE};
use crate::error::MapError;
use crate::leaf_lock::Patience;
use crate::racy;
use crate::table::Table;

/// An arena as the host sees it; made by [`Map::arena`].
///
/// Its bytes have addresses, from [`start`](Self::start) on. Programs know the same addresses and store them in the
/// arena as pointers. They are numbers: no memory of this process is there, so the host copies bytes in and out.
///
/// Programs may write meanwhile. Each aligned word of 8 bytes is copied as a whole; different words may be from
/// different moments.
#[derive(Clone, Copy, Debug)]
pub struct Arena<'a> {
    map: &'a Map,
    table: &'a arena::Arena,
}

impl Arena<'_> {
    /// Bytes in a page, on every system.
    pub const PAGE: u64 = PAGE;

    /// The address of the first byte: `map_extra` of the definition, or a constant.
    pub fn start(&self) -> u64 {
        self.table.start()
    }

    /// Says that the host's addresses begin at `address`, where another process has mapped the arena's
    /// [file](Map::file) if the definition does not say where. Returns whether they begin there: they cannot change,
    /// the address must be a multiple of 4096, and without such a file no page may be behind the next multiple of 4
    /// GiB.
    pub fn set_start(&self, address: u64) -> bool {
        self.table.set_start(address)
    }

    /// [`start`](Self::start), if it is known: an arena for another process does not know it until
    /// [`set_start`](Self::set_start), unless the definition says it or somebody has asked for it.
    pub fn known_start(&self) -> Option<u64> {
        self.table.known_start()
    }

    /// The number of bytes that have addresses, whether their pages are there or not.
    #[expect(clippy::len_without_is_empty, reason = "an arena has at least one page")]
    pub fn len(&self) -> u64 {
        self.table.len()
    }

    /// The number of pages that are there. Other threads may change it at any moment.
    pub fn pages(&self) -> u32 {
        self.table.used()
    }

    /// Whether the page of the byte at an address is there.
    pub fn is_there(&self, address: u64) -> bool {
        self.check(address, 1).is_ok() && self.table.missing(address, 1).is_none()
    }

    /// Copies the bytes from `address` on. Pages that are not there read as zero.
    ///
    /// # Errors
    ///
    /// [`MapError::OutsideArena`]; with the flag `BPF_F_SEGV_ON_FAULT` also [`MapError::NoPage`].
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), MapError> {
        self.check(address, into.len())?;
        self.check_pages(address, into.len())?;
        // Behind a multiple of 4 GiB, the window goes on at its beginning.
        let left = usize::try_from((1 << 32) - u64::from(address as u32)).unwrap_or(usize::MAX);
        let (first, rest) = into.split_at_mut(left.min(into.len()));
        for (at, into) in [(address, first), (address.wrapping_add(left as u64), rest)] {
            // SAFETY: the bytes are in the arena, all of which can be read; `into` is borrowed exclusively.
            unsafe { racy::read_any(self.table.place(at), into.as_mut_ptr(), into.len()) };
        }
        Ok(())
    }

    /// Copies bytes to `address` on. Pages that are not there are allocated, as in Linux when user space touches them;
    /// with the flag `BPF_F_SEGV_ON_FAULT` they are not. After an error bytes of earlier pages may be written.
    ///
    /// # Errors
    ///
    /// [`MapError::OutsideArena`], [`MapError::ArenaFull`], [`MapError::Quota`], [`MapError::Frozen`]; with the flag
    /// `BPF_F_SEGV_ON_FAULT` also [`MapError::NoPage`].
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), MapError> {
        self.check(address, from.len())?;
        self.map.change(|| {
            self.check_pages(address, from.len())?;
            let (mut at, mut rest) = (address, from);
            while !rest.is_empty() {
                let left = usize::try_from(PAGE - at % PAGE).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(left.min(rest.len()));
                let there = self.table.write(at, now, !self.faults());
                if !there.map_err(|error| self.map.explain(error, &[]))? {
                    return Err(if self.faults() { self.no_page(at) } else { self.full(1) });
                }
                (at, rest) = (at + now.len() as u64, later);
            }
            Ok(())
        })
    }

    /// Allocates pages of zeroes that follow each other: from the address on, or where there is room. Returns the
    /// address of the first.
    ///
    /// # Errors
    ///
    /// [`MapError::OutsideArena`] if the address is no page's or the pages exceed the arena; [`MapError::ArenaFull`] if
    /// there are not so many free pages there, or the map's limit forbids more; [`MapError::Quota`];
    /// [`MapError::Frozen`].
    pub fn allocate(&self, address: Option<u64>, pages: u32) -> Result<u64, MapError> {
        let mut found = None;
        if let Some(address) = address {
            self.check(address, usize::try_from(u64::from(pages) * PAGE).unwrap_or(usize::MAX))?;
            if !address.is_multiple_of(PAGE) {
                return Err(self.outside(address, PAGE as usize));
            }
        }
        self.map.change(|| {
            found = self
                .table
                .allocate(address.unwrap_or(0), pages, Patience::Endless)
                .map_err(|error| self.map.explain(error, &[]))?;
            Ok(())
        })?;
        found.ok_or_else(|| self.full(pages))
    }

    /// Frees the pages from that of the address on, as far as they are there. Returns how many were. They read as zero
    /// at once, and can be allocated again at once; their memory is returned after the programs that run now.
    ///
    /// # Errors
    ///
    /// [`MapError::OutsideArena`] for the address, [`MapError::Frozen`].
    pub fn free(&self, address: u64, pages: u32) -> Result<u32, MapError> {
        self.check(address, 1)?;
        let mut freed = 0;
        self.map.change(|| {
            let result = self.table.free(address, pages, Patience::Endless);
            freed = result.map_err(|error| self.map.explain(error, &[]))?;
            Ok(())
        })?;
        Ok(freed)
    }

    fn check(&self, address: u64, len: usize) -> Result<(), MapError> {
        let offset = address.checked_sub(self.start());
        let fits = offset.is_some_and(|offset| {
            offset <= self.len() && u64::try_from(len).is_ok_and(|len| len <= self.len() - offset)
        });
        if fits { Ok(()) } else { Err(self.outside(address, len)) }
    }

    fn check_pages(&self, address: u64, len: usize) -> Result<(), MapError> {
        match self.table.missing(address, len).filter(|_| self.faults()) {
            None => Ok(()),
            Some(page) => Err(self.no_page(page)),
        }
    }

    /// Whether an access to a page that is not there is an error.
    fn faults(&self) -> bool {
        self.map.def.flags.contains(MapFlags::SEGV_ON_FAULT)
    }

    fn no_page(&self, address: u64) -> MapError {
        MapError::NoPage { map: self.map.def.name.clone(), address: address / PAGE * PAGE }
    }

    fn outside(&self, address: u64, len: usize) -> MapError {
        let (start, end) = (self.start(), self.start() + self.len());
        MapError::OutsideArena { map: self.map.def.name.clone(), address, len, start, end }
    }

    fn full(&self, pages: u32) -> MapError {
        let (map, used) = (self.map.def.name.clone(), self.pages());
        MapError::ArenaFull { map, pages, used, max_entries: self.map.def.max_entries }
    }
}

/// Arenas.
impl Map {
    /// The map's bytes and pages, if it is an arena.
    ///
    /// ```
    /// use skep_abi::{MapDef, MapFlags, MapKind};
    /// use skep_maps::{Map, MapError, Options};
    ///
    /// # fn main() -> Result<(), MapError> {
    /// let mut def = MapDef::new("heap", MapKind::Arena, 0, 0, 100);
    /// def.flags = MapFlags::MMAPABLE;
    /// let map = Map::create(&def, &Options { cpus: 4, limit: 1 << 20 })?;
    /// let heap = map.arena().expect("an arena");
    /// let page = heap.allocate(None, 1)?;
    /// heap.write(page + 8, b"bytes")?;
    /// let mut bytes = [0; 5];
    /// heap.read(page + 8, &mut bytes)?;
    /// assert_eq!(&bytes, b"bytes");
    /// assert_eq!((heap.free(page, 1)?, heap.pages()), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn arena(&self) -> Option<Arena<'_>> {
        match &self.table {
            Table::Arena(table) => Some(Arena { map: self, table }),
            _ => None,
        }
    }

    /// Before a run of a program with this arena: pages that another process has touched through its mapping of the
    /// [file](Self::file) are there from now on.
    pub fn meet_touched_pages(&self) {
        if let Table::Arena(table) = &self.table {
            table.meet();
        }
    }

    /// `bpf_arena_alloc_pages`: the host's address of pages of zeroes, from `address` on or, if that is 0, where there
    /// is room. 0 if there is no room there, for unknown flags, memory nodes other than the first, and other kinds.
    pub fn arena_alloc_ptr(&self, address: u64, pages: u32, node: i32, flags: u64) -> u64 {
        /// `NUMA_NO_NODE`
        const ANY: i32 = -1;
        let Table::Arena(table) = &self.table else { return 0 };
        if flags != 0 || !matches!(node, ANY | 0) {
            return 0;
        }
        table.allocate(address, pages, Patience::Bounded).ok().flatten().unwrap_or(0)
    }

    /// `bpf_arena_free_pages`: frees the pages from that of `address` on, as far as they are there.
    pub fn arena_free_ptr(&self, address: u64, pages: u32) {
        if let Table::Arena(table) = &self.table {
            // Linux has no result either.
            let _ = table.free(address, pages, Patience::Bounded);
        }
    }
}
