//! The memory outside of its stack that a program may access in checking mode.
//!
//! ```text
//!   context   each field by itself, with its own rights      from the program type's layout
//!   packet    [data, data_end) and [data_meta, data)         read from the context at every access, because
//!                                                            helpers move it
//!   buffer    [r1, r1 + length)                              as the program was verified
//!   values    of arrays, directly addressed                  from the linkage
//!             returned by look-ups                           learned during the run
//!   records   returned by helpers that allocate              learned during the run
//!   keys      of the elements passed to callbacks            as long as the callback runs
//!   elements  returned by iterators                          until the iterator is destroyed
//!   objects   that programs allocated                        asked of the host, Regions::with_objects
//!   others    allowed by the host                            Regions::allow
//! ```

use std::fmt;
use std::sync::atomic::Ordering;

use skep_abi::{ContextField, ContextLayout, Entry, FieldKind, HelperProto, MapDef, MapFlags};
use skep_isa::{Insn, Size};
use skep_verifier::{Object, Packet};

use crate::code::Code;
use crate::memory;

/// What a program may do with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Whether it may be read.
    pub read: bool,
    /// Whether it may be written.
    pub write: bool,
}

impl Rights {
    /// Read and write.
    pub const ALL: Self = Self { read: true, write: true };
    /// Read only.
    pub const READ: Self = Self { read: true, write: false };
}

/// Parameters of a run in checking mode: the helpers' prototypes, the budget of instructions, and the host's memory
/// that the program may access in addition to its own.
pub struct Regions<'a> {
    pub(crate) helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>,
    pub(crate) fuel: u64,
    pub(crate) source: Option<&'a [Insn]>,
    pub(crate) objects: Option<&'a FindObject<'a>>,
    allowed: Vec<Region>,
    /// Start and length of memory to which fields of the context lead.
    records: Vec<(u64, u64)>,
    /// Number, first byte and end of the slices that the host lends.
    slices: Vec<(u8, u64, u64)>,
}

/// Says what a program may do with that many bytes at an address, if they are inside an object that a program
/// allocated.
pub type FindObject<'a> = dyn Fn(u64, u64) -> Option<Rights> + 'a;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) rights: Rights,
}

impl<'a> Regions<'a> {
    /// Default of [`Regions::with_fuel`]: instructions that a run may execute.
    pub const DEFAULT_FUEL: u64 = 10_000_000;

    /// No memory except the program's own; helpers by the prototypes that the program was verified with.
    pub fn new(helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>) -> Self {
        let (source, objects) = (None, None);
        let (allowed, records, slices) = (Vec::new(), Vec::new(), Vec::new());
        Self { helpers, fuel: Self::DEFAULT_FUEL, source, objects, allowed, records, slices }
    }

    /// Limits the number of instructions of a run.
    #[must_use]
    pub fn with_fuel(mut self, instructions: u64) -> Self {
        self.fuel = instructions;
        self
    }

    /// Sets the program's instructions before verification. If the verifier replaced a conditional jump by an
    /// unconditional one, the condition is then checked at run time.
    #[must_use]
    pub fn with_source(mut self, insns: &'a [Insn]) -> Self {
        self.source = Some(insns);
        self
    }

    /// Allows accesses to the objects that the function finds.
    #[must_use]
    pub fn with_objects(mut self, objects: &'a FindObject<'a>) -> Self {
        self.objects = Some(objects);
        self
    }

    /// Allows accesses to `bytes` bytes at `start`, in addition to the program's own memory.
    pub fn allow(&mut self, start: u64, bytes: u64, rights: Rights) {
        self.allowed.push(Region { start, bytes, rights });
    }

    /// Allows accesses to the `bytes` bytes at `start`, which are the slice of that number ([`FieldKind::SliceData`]).
    pub fn allow_slice(&mut self, slice: u8, start: u64, bytes: u64, rights: Rights) {
        self.allow(start, bytes, rights);
        self.slices.push((slice, start, start + bytes));
    }

    /// Allows accesses to the memory of a field of the context ([`FieldKind::Memory`]): `bytes` bytes at `start`.
    pub fn allow_record(&mut self, start: u64, bytes: u64) {
        self.records.push((start, bytes));
    }
}

impl fmt::Debug for Regions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Regions")
            .field("fuel", &self.fuel)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

/// The memory of one run.
#[derive(Debug)]
pub(crate) struct Memory {
    context: Option<(u64, &'static ContextLayout)>,
    /// Rights to the packet, if there is one.
    packet: Option<Rights>,
    /// Buffer, values, and memory that the host allows.
    regions: Vec<Region>,
    /// Start addresses of objects.
    objects: Vec<(Object, u64)>,
    /// Number, first byte and end of the slices that the host lends.
    pub(crate) slices: Vec<(u8, u64, u64)>,
}

/// What an access belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The first page: a null pointer, perhaps with an offset.
    Null,
    /// A region with these rights that contains the whole access.
    Region(Rights),
    /// The context, but no field that contains the whole access.
    NoField,
    /// Memory that does not belong to the program.
    Unknown,
}

impl Memory {
    /// The memory that the program may access when it starts.
    pub(crate) fn new(code: &Code, r1: u64, context: u64, regions: &Regions<'_>) -> Self {
        let mut memory = Self {
            context: code.context().map(|layout| (context, layout)),
            packet: code
                .parts
                .program_type
                .reads_packet
                .then_some(Rights { read: true, write: code.parts.program_type.writes_packet }),
            regions: regions.allowed.clone(),
            objects: Vec::new(),
            slices: regions.slices.clone(),
        };
        for &(start, bytes) in &regions.records {
            memory.learn_memory(start, bytes);
        }
        if let Entry::Buffer { len } = code.parts.entry {
            memory.regions.push(Region { start: r1, bytes: len.into(), rights: Rights::ALL });
        }
        for (map, (def, link)) in code.parts.maps.iter().zip(&code.linkage.maps).enumerate() {
            // An arena's values are no memory of this process.
            if let Some(base) = link.value_base.filter(|_| link.arena.is_none()) {
                memory.learn_value(map as u32, def, base);
            }
        }
        memory
    }

    /// Adds a value of the map of that number at `start`.
    pub(crate) fn learn_value(&mut self, map: u32, def: &MapDef, start: u64) {
        let rights = Rights {
            read: !def.flags.contains(MapFlags::WRONLY_PROG),
            write: !def.flags.contains(MapFlags::RDONLY_PROG),
        };
        self.learn(Object::Value(map), Region { start, bytes: def.value_size.into(), rights });
    }

    /// Adds memory of that many bytes that a helper returned.
    pub(crate) fn learn_memory(&mut self, start: u64, bytes: u64) {
        self.learn(Object::Memory, Region { start, bytes, rights: Rights::ALL });
    }

    fn learn(&mut self, object: Object, region: Region) {
        if !self.regions.contains(&region) {
            self.regions.push(region);
        }
        if !self.objects.contains(&(object, region.start)) {
            self.objects.push((object, region.start));
        }
    }

    /// Adds objects that the program may use until they are withdrawn.
    pub(crate) fn lend(&mut self, objects: &[(Object, Region)]) {
        for &(object, region) in objects {
            self.regions.push(region);
            self.objects.push((object, region.start));
        }
    }

    /// Undoes [`Memory::lend`].
    pub(crate) fn take_back(&mut self, objects: &[(Object, Region)]) {
        for &(object, region) in objects {
            if let Some(at) = self.regions.iter().rposition(|known| *known == region) {
                self.regions.remove(at);
            }
            let object = (object, region.start);
            if let Some(at) = self.objects.iter().rposition(|known| *known == object) {
                self.objects.remove(at);
            }
        }
    }

    /// Start addresses of objects that the run has met.
    pub(crate) fn objects(&self) -> &[(Object, u64)] {
        &self.objects
    }

    /// The start of the packet's metadata, the packet's start and its end, if there is a packet.
    ///
    /// # Safety
    ///
    /// The context from which the memory was made must be valid.
    pub(crate) unsafe fn packet(&self) -> Option<Packet> {
        let (context, layout) = self.context?;
        self.packet?;
        // SAFETY: this function's contract.
        let field = |kind| unsafe { pointer(context, layout, kind) };
        let (data, end) = (field(FieldKind::PacketData)?, field(FieldKind::PacketEnd)?);
        Some(Packet { meta: field(FieldKind::PacketMeta).unwrap_or(data), data, end })
    }

    /// Finds what the `bytes` bytes at `at` belong to. `bytes` is at least 1.
    ///
    /// # Safety
    ///
    /// The context from which the memory was made must be valid.
    pub(crate) unsafe fn find(&self, at: u64, bytes: u64) -> Found {
        if at < 4096 {
            return Found::Null;
        }
        if let Some(region) = self.regions.iter().find(|region| region.contains(at, bytes)) {
            return Found::Region(region.rights);
        }
        let Some((context, layout)) = self.context else { return Found::Unknown };
        let offset = at.wrapping_sub(context);
        if offset < native_size(layout) {
            return match native_field(layout, offset, bytes) {
                Some(writable) => Found::Region(Rights { read: true, write: writable }),
                None => Found::NoField,
            };
        }
        // SAFETY: this function's contract.
        let (Some(rights), Some(Packet { meta, data, end })) = (self.packet, unsafe { self.packet() }) else {
            return Found::Unknown;
        };
        let contains = |start: u64, end: u64| {
            Region { start, bytes: end.saturating_sub(start), rights }.contains(at, bytes)
        };
        if contains(data, end) {
            Found::Region(rights)
        } else if contains(meta, data) {
            Found::Region(Rights::ALL)
        } else {
            Found::Unknown
        }
    }
}

impl Region {
    fn contains(&self, at: u64, bytes: u64) -> bool {
        let offset = at.wrapping_sub(self.start);
        offset < self.bytes && bytes <= self.bytes - offset
    }
}

/// The size of the native structure, up to the end of the last field visible to programs.
fn native_size(layout: &ContextLayout) -> u64 {
    let end = |field: &ContextField| Some(u64::from(field.native_offset? + field.native_size.bytes()));
    layout.fields.iter().filter_map(end).max().unwrap_or(0)
}

/// Whether the access may write; `None` if no field allows it. Addresses must be accessed whole.
fn native_field(layout: &ContextLayout, offset: u64, bytes: u64) -> Option<bool> {
    let (offset, bytes) = (u32::try_from(offset).ok()?, u32::try_from(bytes).ok()?);
    let starts_in = |field: &&ContextField| {
        let bytes = field.native_size.bytes().max(field.size.bytes());
        field.native_offset.is_some_and(|start| (start..start + bytes).contains(&offset))
    };
    let field = layout.fields.iter().find(starts_in)?;
    let inside = offset - field.native_offset?;
    if field.kind != FieldKind::Scalar {
        return (inside == 0 && bytes == field.native_size.bytes()).then_some(false);
    }
    // The whole field may be smaller natively.
    let whole = inside == 0 && bytes == field.native_size.bytes();
    let bytes = if whole { field.size.bytes() } else { bytes };
    let writable = field.allows(inside, bytes, true);
    (writable || field.allows(inside, bytes, false)).then_some(writable)
}

/// The value of a field that holds an address.
///
/// # Safety
///
/// The native context of that layout must be at `context`.
unsafe fn pointer(context: u64, layout: &ContextLayout, kind: FieldKind) -> Option<u64> {
    let field = layout.fields.iter().find(|field| field.kind == kind)?;
    let at = context + u64::from(field.native_offset?);
    // SAFETY: the caller's promise; pointer fields are 8 bytes natively.
    Some(unsafe { memory::load(at, Size::B8, Ordering::Relaxed) })
}
