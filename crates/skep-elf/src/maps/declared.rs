//! Maps that a program declares in `.maps`, which are types more than data.
//!
//! A map is a variable of a structure whose members are its attributes. Numbers hide in array types and
//! types behind pointers, so that the compiler records both and stores neither:
//!
//! ```text
//!   __uint(max_entries, 256)   ->   int (*max_entries)[256];
//!   __type(key, struct ip)     ->   struct ip *key;
//!   __array(values, struct x)  ->   struct x *values[];      initialised: { [2] = &inner }
//! ```
//!
//! The invariant: a [`MapDef`] that leaves this module has a known kind and no size that its kind cannot have. The
//! runtime may not provide the kind.

use std::collections::HashMap;
use std::ops::Range;

use skep_abi::{MapDef, MapFlags, MapKind};
use skep_btf::{Btf, Kind, Member, Type};

use crate::elf::{Elf, Place, SymbolKind};
use crate::error::Error;
use crate::functions::Functions;

use super::{EntryTarget, MapEntry, ObjectMap, set_fields};

/// The attributes that a map may have.
const ATTRIBUTES: [&str; 11] = [
    "type",
    "key",
    "value",
    "key_size",
    "value_size",
    "max_entries",
    "map_flags",
    "numa_node",
    "pinning",
    "map_extra",
    "values",
];

/// The section that maps are declared in.
pub(crate) const SECTION: &str = ".maps";

/// A map and its place in `.maps`.
pub(crate) struct Declared {
    pub(crate) map: ObjectMap,
    pub(crate) range: Range<u64>,
    /// Where its initial values start, if it has any.
    values: Option<u64>,
}

/// Reads every declaration in section number `section`, in the section's order.
pub(crate) fn declared(
    elf: &Elf,
    btf: Option<&Btf>,
    functions: &Functions,
    section: usize,
) -> Result<Vec<Declared>, Error> {
    let btf = btf.ok_or(Error::MapsWithoutBtf { missing: ".BTF" })?;
    let variables = btf.data_section(SECTION)?.ok_or(Error::MapsWithoutBtf { missing: "types for them" })?;
    let size = elf.sections[section].size;
    let starts = starts(elf, section)?;
    let mut maps = Vec::new();
    for variable in variables.variables().filter(|variable| variable.var.kind == Kind::Var) {
        let name = variable.var.name()?;
        let ty = btf.resolve(variable.var.target())?;
        let attributes = Attributes::read(btf, name, &ty)?;
        // Some compilers leave the offset to the loader.
        let start = starts.get(name).copied().unwrap_or(variable.offset.into());
        let range = start..start + u64::from(ty.size().unwrap_or(0));
        if range.end > size {
            return Err(Error::MapMalformed {
                map: name.into(),
                reason: "lies beyond the end of section .maps",
            });
        }
        let values = attributes.values.map(|_| start + u64::from(attributes.values_offset));
        maps.push(Declared { map: attributes.define(btf, name, true)?, range, values });
    }
    maps.sort_by_key(|declared| declared.range.start);
    for pair in maps.windows(2) {
        if pair[1].range.start < pair[0].range.end {
            return Err(Error::MapMalformed {
                map: pair[1].map.def.name.clone(),
                reason: "overlaps another map's",
            });
        }
    }
    initial_values(elf, functions, section, &mut maps)?;
    Ok(maps)
}

/// Where the section's symbols are, by name.
fn starts(elf: &Elf, section: usize) -> Result<HashMap<&str, u64>, Error> {
    let here = elf.symbols.iter().filter(|symbol| {
        symbol.kind == SymbolKind::Data && symbol.exported && symbol.place == Place::Section(section)
    });
    here.map(|symbol| Ok((elf.symbol_name(symbol)?, symbol.value))).collect()
}

/// The map that starts at byte `address` of `.maps`.
fn at(maps: &[Range<u64>], address: u64) -> Option<usize> {
    maps.binary_search_by_key(&address, |range| range.start).ok()
}

/// Sets the first contents of the elements: the maps and programs that relocations in `.maps` name.
fn initial_values(
    elf: &Elf,
    functions: &Functions,
    section: usize,
    maps: &mut [Declared],
) -> Result<(), Error> {
    let ranges: Vec<_> = maps.iter().map(|declared| declared.range.clone()).collect();
    for relocation in &elf.sections[section].relocations {
        let symbol = elf.target(relocation);
        let offset = relocation.offset;
        // The structure's size does not count the elements of `values`: they fill what follows it.
        let after = ranges.partition_point(|range| range.start <= offset);
        let owner = maps[..after].last_mut().and_then(|declared| Some((&mut declared.map, declared.values?)));
        let Some((map, values)) = owner.filter(|(_, values)| offset >= *values) else {
            return Err(Error::PointerInData {
                section: SECTION.into(),
                offset,
                symbol: elf.symbol_name(symbol)?.into(),
            });
        };
        let addend = elf.data(section).get(offset as usize..offset as usize + 8);
        let addend = addend.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        let address = symbol.value.wrapping_add(addend);
        let holds_maps = map.def.inner.is_some();
        let target = match symbol.place {
            Place::Section(home) if holds_maps && home == section => {
                // Fits: there are fewer maps than bytes in the section.
                at(&ranges, address).map(|index| EntryTarget::Map(index as u32))
            }
            Place::Section(home) if !holds_maps => match functions.program_at(home, address) {
                Some(program) => Some(EntryTarget::Program(elf.symbol_name(&elf.symbols[program])?.into())),
                None => None,
            },
            _ => None,
        };
        let Some(target) = target else {
            return Err(Error::MapEntryUnresolved {
                map: map.def.name.clone(),
                offset,
                symbol: elf.symbol_name(symbol)?.into(),
                expected: if holds_maps { "map" } else { "program" },
            });
        };
        let distance = offset - values;
        // In a hash table it is the key.
        let fits = |index: &u32| !map.def.kind.is_array() || *index < map.def.max_entries;
        let index = u32::try_from(distance / 8).ok().filter(fits);
        let Some(index) = index.filter(|_| distance.is_multiple_of(8)) else {
            return Err(Error::MapMalformed {
                map: map.def.name.clone(),
                reason: "has initial values beyond max_entries",
            });
        };
        map.entries.push(MapEntry { index, target });
    }
    Ok(())
}

/// The attributes of one map as they are declared.
#[derive(Default)]
struct Attributes {
    kind: Option<u32>,
    key: Option<u32>,
    value: Option<u32>,
    key_size: Option<u32>,
    value_size: Option<u32>,
    max_entries: u32,
    flags: u32,
    pinning: u32,
    extra: u64,
    /// The type that elements of `values` point to.
    values: Option<u32>,
    /// Bytes from the structure's start.
    values_offset: u32,
}

impl Attributes {
    fn read(btf: &Btf, map: &str, ty: &Type<'_>) -> Result<Self, Error> {
        if ty.kind != Kind::Struct {
            return Err(Error::MapMalformed { map: map.into(), reason: "is not a structure" });
        }
        let mut all = Self::default();
        let mut seen = [false; ATTRIBUTES.len()];
        for member in ty.members() {
            let name = member.name()?;
            match ATTRIBUTES.iter().position(|&known| known == name) {
                Some(index) if !seen[index] => seen[index] = true,
                Some(_) => {
                    return Err(Error::MapMalformed { map: map.into(), reason: "says an attribute twice" });
                }
                None => {
                    return Err(Error::MapAttributeUnknown {
                        map: map.into(),
                        attribute: name.into(),
                        known: &ATTRIBUTES,
                    });
                }
            }
            let here = Attribute { btf, map, name, member };
            match name {
                "type" => all.kind = Some(here.number()?),
                "key" => all.key = Some(here.pointee()?),
                "value" => all.value = Some(here.pointee()?),
                "key_size" => all.key_size = Some(here.number()?),
                "value_size" => all.value_size = Some(here.number()?),
                "max_entries" => all.max_entries = here.number()?,
                "map_flags" => all.flags = here.number()?,
                "pinning" => all.pinning = here.number()?,
                "map_extra" => all.extra = here.long_number()?,
                "values" => {
                    all.values = Some(here.element()?);
                    all.values_offset = member.bit_offset / 8;
                }
                _ => {
                    here.number()?; // numa_node: one process's memory is where its kernel puts it
                }
            }
        }
        Ok(all)
    }

    fn define(self, btf: &Btf, map: &str, outermost: bool) -> Result<ObjectMap, Error> {
        let number = self.kind.ok_or_else(|| Error::MapKindMissing { map: map.into() })?;
        let kind =
            MapKind::from_number(number).ok_or_else(|| Error::MapKindUnknown { map: map.into(), number })?;
        let key_size = one_size(btf, map, "key_size", self.key_size, self.key)?;
        // The type of a ring's values says what its records are, which have sizes of their own.
        let is_ring = matches!(kind, MapKind::Ringbuf | MapKind::UserRingbuf | MapKind::PerfEventArray);
        let value = self.value.filter(|_| !is_ring);
        let value_size = one_size(btf, map, "value_size", self.value_size, value)?;
        let mut def = MapDef {
            flags: MapFlags(self.flags),
            extra: self.extra,
            key_btf: self.key,
            value_btf: self.value,
            ..MapDef::new(map, kind, key_size, value_size, self.max_entries)
        };
        complete(&mut def)?;
        if let Some(value) = self.value {
            set_fields(&mut def, btf, value)?;
        }
        def.inner = self.inner(btf, &def, outermost)?.map(Box::new);
        let name = |ty: Option<u32>| ty.map(|ty| btf.type_name(ty)).transpose();
        Ok(ObjectMap {
            key_type: name(self.key)?,
            value_type: name(self.value)?,
            pinned: self.pinning != 0,
            ..ObjectMap::new(def)
        })
    }

    /// What the maps inside a map of maps look like.
    fn inner(&self, btf: &Btf, def: &MapDef, outermost: bool) -> Result<Option<MapDef>, Error> {
        let bad = |reason| Err(Error::MapInner { map: def.name.clone(), kind: def.kind, reason });
        let holds_maps = matches!(def.kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps);
        match self.values {
            Some(ty) if holds_maps => {
                if !outermost {
                    return bad("a map inside a map cannot hold maps itself");
                }
                let ty = btf.resolve(ty)?;
                let name = format!("{}.inner", def.name);
                let attributes = Self::read(btf, &name, &ty)?;
                Ok(Some(attributes.define(btf, &name, false)?.def))
            }
            None if holds_maps => {
                bad("it does not say what its maps look like; add __array(values, struct ...)")
            }
            Some(_) if def.kind != MapKind::ProgArray => {
                bad("only maps of maps and of programs have values; remove __array(values, ...)")
            }
            _ => Ok(None),
        }
    }
}

/// An attribute that is being read.
struct Attribute<'a> {
    btf: &'a Btf,
    map: &'a str,
    name: &'a str,
    member: Member<'a>,
}

impl Attribute<'_> {
    /// `int (*name)[number]`
    fn number(&self) -> Result<u32, Error> {
        let pointer = self.btf.resolve(self.member.ty)?;
        if pointer.kind == Kind::Ptr
            && let Some(array) = self.btf.resolve(pointer.target())?.array()
        {
            return Ok(array.count);
        }
        Err(self.malformed("__uint(name, number)"))
    }

    /// The same, or an enumeration of one value, for numbers that no array has elements.
    fn long_number(&self) -> Result<u64, Error> {
        let mut values = self.btf.resolve(self.member.ty)?.enumerators();
        match (values.next(), values.next()) {
            (Some(only), None) => Ok(only.value),
            _ => self.number().map(u64::from),
        }
    }

    /// `type *name`
    fn pointee(&self) -> Result<u32, Error> {
        let pointer = self.btf.resolve(self.member.ty)?;
        match pointer.kind {
            Kind::Ptr => Ok(pointer.target()),
            _ => Err(self.malformed("__type(name, type)")),
        }
    }

    /// `type *name[]`
    fn element(&self) -> Result<u32, Error> {
        let array = self.btf.resolve(self.member.ty)?.array();
        if let Some(array) = array.filter(|_| self.member.bit_offset.is_multiple_of(64)) {
            let pointer = self.btf.resolve(array.element)?;
            if pointer.kind == Kind::Ptr {
                return Ok(pointer.target());
            }
        }
        Err(self.malformed("__array(values, type)"))
    }

    fn malformed(&self, expected: &'static str) -> Error {
        Error::MapAttributeMalformed { map: self.map.into(), attribute: self.name.into(), expected }
    }
}

/// A size that may be given as a number, as a type, as both where they agree, or not at all (0).
fn one_size(
    btf: &Btf,
    map: &str,
    attribute: &'static str,
    explicit: Option<u32>,
    ty: Option<u32>,
) -> Result<u32, Error> {
    let from_type = ty.map(|ty| btf.size(ty)).transpose()?;
    match (explicit, from_type) {
        (Some(explicit), Some(from_type)) if explicit != from_type => {
            Err(Error::MapSizeConflict { map: map.into(), attribute, explicit, from_type })
        }
        (explicit, from_type) => Ok(explicit.or(from_type).unwrap_or(0)),
    }
}

/// The sizes that a kind allows.
enum Demand {
    /// Only this one.
    Exactly(u32),
    /// Only this one, which is also the default for 0.
    Usually(u32),
    /// Any but zero.
    Some,
    /// Any.
    Any,
}

/// Checks a definition against its kind, and sets the sizes that depend on the kind alone. The number of elements is
/// checked when the map is created, since it often depends on the number of CPUs.
pub(super) fn complete(def: &mut MapDef) -> Result<(), Error> {
    use MapKind as K;
    let key = match def.kind {
        K::Queue | K::Stack | K::BloomFilter | K::Ringbuf | K::UserRingbuf | K::Arena => Demand::Exactly(0),
        K::Array | K::PercpuArray | K::ProgArray | K::CgroupArray => Demand::Exactly(4),
        K::PerfEventArray => Demand::Usually(4),
        K::ArrayOfMaps | K::Devmap | K::Cpumap | K::Xskmap | K::ReuseportSockarray => Demand::Exactly(4),
        _ => Demand::Some,
    };
    let value = match def.kind {
        K::Ringbuf | K::UserRingbuf | K::Arena => Demand::Exactly(0),
        K::ProgArray | K::ArrayOfMaps | K::HashOfMaps | K::PerfEventArray | K::CgroupArray => {
            Demand::Usually(4)
        }
        // The host decides how deep stacks are.
        K::StackTrace => Demand::Any,
        _ => Demand::Some,
    };
    let name = def.name.clone();
    let check = |attribute, size: &mut u32, demand, remedy| match demand {
        Demand::Some | Demand::Exactly(1..) if *size == 0 => {
            Err(Error::MapSizeZero { map: name.clone(), kind: def.kind, attribute, remedy })
        }
        Demand::Usually(usual) if *size == 0 => {
            *size = usual;
            Ok(())
        }
        Demand::Exactly(expected) | Demand::Usually(expected) if *size != expected => {
            Err(Error::MapSizeWrong { map: name.clone(), kind: def.kind, attribute, size: *size, expected })
        }
        _ => Ok(()),
    };
    check("key_size", &mut def.key_size, key, "__type(key, ...)")?;
    check("value_size", &mut def.value_size, value, "__type(value, ...)")
}
