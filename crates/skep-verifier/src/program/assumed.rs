//! What a proof assumes about the maps that a program names.
//!
//! The verifier knows a map by its definition alone. The proof holds for a real map that agrees with the definition in
//! every respect that the verifier has read, for as long as a run may reach it. So that no respect is forgotten,
//! definitions are private to this module: rules see a [`MapView`], and every read through it is recorded.
//! [`Verified::assumptions`](crate::Verified::assumptions) lists the reads, and the loader compares the list with the
//! real maps.
//!
//! ```text
//!   rule -- view.value_size() --> 8, and VALUE_SIZE is set for that map
//!                                        |
//!   Verified::assumptions: (map 3, ValueSize(8)) ---> the loader checks the real map
//! ```
//!
//! A new fact needs an accessor here, a bit, and a row of [`FACTS`]. The loader matches [`Assumed`] without a default,
//! so it does not compile until it checks the fact.
//!
//! A map found in a map of maps is known by the template that the outer map was made with. Properties that differ
//! between the maps that may be put there are not known: see [`MapView::at_most`].

use crate::program::Verified;
use skep_abi::{Defect, Entry, MapDef, MapFlags, MapKind, ProgramType, SpecialField};
use skep_isa::{Imm64, Insn};
use std::cell::Cell;
use std::sync::Arc;

/// Set in the number of an inner map; the other bits are the number of its outer map.
pub const INNER: u32 = 1 << 31;

/// One assumption of a proof about a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumption<'a> {
    /// The map's index.
    pub map: u32,
    /// Whether it is assumed about every map that a look-up in this one may find.
    pub inner: bool,
    /// What is assumed.
    pub what: Assumed<'a>,
}

/// What a proof may assume about a map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Assumed<'a> {
    /// Its kind.
    Kind(MapKind),
    /// Bytes in a key.
    KeySize(u32),
    /// Bytes in a value, of one CPU.
    ValueSize(u32),
    /// The flags of its creation.
    Flags(MapFlags),
    /// The special fields of its values: all of them, and the types they point to.
    Fields(&'a MapDef),
    /// It never has more elements than this.
    AtMost(u32),
    /// Every index below this has an element.
    AtLeast(u32),
    /// Its only element holds these bytes for ever.
    Contents(&'a Arc<[u8]>),
    /// It holds maps that agree with the template in the respects that the list names.
    HoldsMaps,
    /// The programs in it are of this type, are given this, and may sleep or not as said here.
    Programs(&'static ProgramType, Entry, bool),
}

/// Every fact, with its bit.
const FACTS: [(u16, Row); 10] = [
    (KIND, |def, _| Some(Assumed::Kind(def.kind))),
    (KEY_SIZE, |def, _| Some(Assumed::KeySize(def.key_size))),
    (VALUE_SIZE, |def, _| Some(Assumed::ValueSize(def.value_size))),
    (FLAGS, |def, _| Some(Assumed::Flags(def.flags))),
    (FIELDS, |def, _| Some(Assumed::Fields(def))),
    (AT_MOST, |def, _| Some(Assumed::AtMost(def.max_entries))),
    (AT_LEAST, |def, _| Some(Assumed::AtLeast(def.max_entries))),
    (CONTENTS, |def, _| def.frozen.as_ref().map(Assumed::Contents)),
    (MAPS, |_, _| Some(Assumed::HoldsMaps)),
    (PROGRAMS, |_, by| Some(Assumed::Programs(by.program_type, by.entry, by.sleepable))),
];

type Row = for<'a> fn(&'a MapDef, &Verified) -> Option<Assumed<'a>>;

const KIND: u16 = 1 << 0;
const KEY_SIZE: u16 = 1 << 1;
const VALUE_SIZE: u16 = 1 << 2;
const FLAGS: u16 = 1 << 3;
const FIELDS: u16 = 1 << 4;
const AT_MOST: u16 = 1 << 5;
const AT_LEAST: u16 = 1 << 6;
const CONTENTS: u16 = 1 << 7;
const MAPS: u16 = 1 << 8;
const PROGRAMS: u16 = 1 << 9;

/// The maps of a program that is being verified, and what has been read of them.
pub(crate) struct Maps {
    defs: Arc<[MapDef]>,
    /// Those that the instructions name, ascending by index: a program pays for no others.
    named: Box<[Named]>,
}

/// What has been read about a map, and about the template of the maps in it.
#[derive(Default)]
struct Named {
    map: u32,
    own: Cell<u16>,
    inner: Cell<u16>,
}

/// What was read about a map, when all is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    map: u32,
    own: u16,
    inner: u16,
}

/// A map's definition, as rules see it. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct MapView<'a> {
    def: &'a MapDef,
    named: &'a Named,
    is_inner: bool,
}

impl Maps {
    pub(crate) fn new(defs: Arc<[MapDef]>, insns: &[Insn]) -> Self {
        let mut named: Vec<u32> = insns
            .iter()
            .filter_map(|insn| match insn {
                Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } => Some(*map),
                _ => None,
            })
            .filter(|map| (*map as usize) < defs.len())
            .collect();
        named.sort_unstable();
        named.dedup();
        let named = named.into_iter().map(|map| Named { map, ..Named::default() }).collect();
        Self { defs, named }
    }

    /// The map of that number, if the program names it.
    pub(crate) fn get(&self, number: u32) -> Option<MapView<'_>> {
        let index = number & !INNER;
        let at = self.named.binary_search_by_key(&index, |named| named.map).ok()?;
        let named = &self.named[at];
        let outer = MapView { def: self.defs.get(index as usize)?, named, is_inner: false };
        if number & INNER == 0 { Some(outer) } else { outer.inner() }
    }

    /// Whether it is an arena. That another map is none is not read: whatever depends on it reads its kind.
    pub(crate) fn is_arena(&self, number: u32) -> bool {
        let is_arena = self.defs.get(number as usize).is_some_and(|def| def.kind == MapKind::Arena);
        is_arena && self.get(number).is_some_and(|map| map.kind() == MapKind::Arena)
    }

    /// Whether the program names an arena.
    pub(crate) fn has_arena(&self) -> bool {
        self.named.iter().any(|named| self.is_arena(named.map))
    }

    /// The definitions, and what was read of them.
    pub(crate) fn into_read(self) -> (Arc<[MapDef]>, Box<[Read]>) {
        let read = |named: &Named| Read { map: named.map, own: named.own.get(), inner: named.inner.get() };
        let read = self.named.iter().map(read).collect();
        (self.defs, read)
    }
}

impl<'a> MapView<'a> {
    fn read(&self, fact: u16) -> &'a MapDef {
        let read = if self.is_inner { &self.named.inner } else { &self.named.own };
        read.set(read.get() | fact);
        self.def
    }

    /// Its name, for texts only.
    pub(crate) fn name(&self) -> &'a str {
        &self.def.name
    }

    /// Its name and sizes, as logs show them.
    pub(crate) fn shown(&self) -> String {
        let MapDef { name, key_size, value_size, .. } = self.def;
        format!("map={name},ks={key_size},vs={value_size}")
    }

    /// What is wrong with the definition, if anything: no map can be created from it.
    pub(crate) fn defect(&self) -> Option<Defect> {
        self.def.defect()
    }

    pub(crate) fn kind(&self) -> MapKind {
        self.read(KIND).kind
    }

    pub(crate) fn key_size(&self) -> u32 {
        self.read(KEY_SIZE).key_size
    }

    pub(crate) fn value_size(&self) -> u32 {
        self.read(VALUE_SIZE).value_size
    }

    pub(crate) fn flags(&self) -> MapFlags {
        self.read(FLAGS).flags
    }

    pub(crate) fn fields(&self) -> &'a [SpecialField] {
        &self.read(FIELDS).fields
    }

    /// The first of its special fields that a map of its kind may not hold.
    pub(crate) fn misplaced(&self) -> Option<&'a SpecialField> {
        self.read(KIND | FIELDS).misplaced()
    }

    /// The most elements that an array has, if known. Maps of one template may have different capacities. Plain arrays
    /// are the exception: they are compared with the template when they are put into a map of maps.
    pub(crate) fn at_most(&self) -> Option<u32> {
        let known = if self.is_inner {
            self.kind() == MapKind::Array && !self.flags().contains(MapFlags::INNER_MAP)
        } else {
            self.kind().is_array()
        };
        known.then(|| self.read(AT_MOST).max_entries)
    }

    /// How many elements an array has at least: indices below have one.
    pub(crate) fn at_least(&self) -> u32 {
        let known = !self.is_inner && self.kind().is_array();
        if known { self.read(AT_LEAST).max_entries } else { 0 }
    }

    /// The constant bytes of its values.
    pub(crate) fn contents(&self) -> Option<&'a [u8]> {
        let def = self.def;
        let fits = |contents: &&Arc<[u8]>| {
            // The size of the value needs no assumption: creation demands it.
            contents.len() == def.value_size as usize
                && self.kind() == MapKind::Array
                && self.flags().contains(MapFlags::RDONLY_PROG)
                && self.at_most() == Some(1)
                && self.fields().is_empty()
        };
        let known = def.frozen.as_ref().filter(|_| !self.is_inner).filter(fits).is_some();
        if known { self.read(CONTENTS).frozen.as_deref() } else { None }
    }

    /// The template of the maps in it.
    pub(crate) fn inner(&self) -> Option<Self> {
        // There are no more levels: `MapDef::defect`.
        let inner = self.def.inner.as_deref().filter(|_| !self.is_inner)?;
        self.read(MAPS);
        Some(Self { def: inner, named: self.named, is_inner: true })
    }

    /// Records that the program tail-calls programs found here, or in a map found here.
    pub(crate) fn leads_to_programs(&self) {
        self.read(PROGRAMS);
    }
}

/// What a program's proof has read, as assumptions.
pub(crate) fn assumptions<'a>(
    program: &'a Verified,
    read: &'a [Read],
) -> impl Iterator<Item = Assumption<'a>> {
    read.iter().flat_map(move |read| {
        let outer = program.maps.get(read.map as usize);
        let inner = outer.and_then(|outer| outer.inner.as_deref());
        let levels = [(false, read.own, outer), (true, read.inner, inner)];
        levels.into_iter().filter_map(move |(inner, bits, def)| Some((read.map, inner, bits, def?))).flat_map(
            move |(map, inner, bits, def)| {
                let facts = FACTS.iter().filter(move |(bit, _)| bits & bit != 0);
                facts.filter_map(move |(_, row)| Some(Assumption { map, inner, what: row(def, program)? }))
            },
        )
    })
}
