//! The layers, as tables: where each field is, how its value is written, and what it is if nobody gives it.
//!
//! Building, dissecting and comparing read the same tables, so they cannot disagree about a format. A field that is not
//! in a table is invisible to all three: every bit of a fixed header must be in some field, and a test counts them.

mod ip;
mod link;
mod transport;
mod tunnel;

/// A protocol's header.
#[derive(Debug)]
pub(crate) struct LayerDef {
    /// Its name in the text.
    pub(crate) name: &'static str,
    /// Bytes of the part that every header of this kind has.
    pub(crate) bytes: usize,
    /// In the order of the wire, those that only some headers have at the end.
    pub(crate) fields: &'static [FieldDef],
    /// What follows the fixed part.
    pub(crate) tail: Tail,
    /// The numbers by which the layer before names this one.
    pub(crate) ids: &'static [(Space, u64)],
}

/// A field of a header.
#[derive(Debug)]
pub(crate) struct FieldDef {
    pub(crate) name: &'static str,
    /// Its first bit, counted from the header's start, the highest bit of a byte first. For fields that only some
    /// headers have, counted from the start of its word.
    pub(crate) bit: usize,
    /// At most 128.
    pub(crate) bits: usize,
    pub(crate) kind: Kind,
    pub(crate) auto: Auto,
    /// The bit of the header that says whether the field's word of 32 bits is there.
    pub(crate) present: Option<usize>,
}

/// How a value is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Decimal,
    Hexadecimal,
    Mac,
    Ip4,
    Ip6,
    /// A letter for each bit, the lowest first.
    Letters(&'static str),
    /// Names for some numbers.
    Names(&'static [(&'static str, u64)]),
}

/// The value of a field that is not given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Auto {
    /// Always this.
    Const(u128),
    /// The next layer's number; the other number if there is no such layer.
    Next(Space, u64),
    /// Bytes from the header's start to the packet's end, without so many.
    Length(usize),
    /// The header's length in units of bytes, less so many units.
    Header {
        unit: usize,
        less: usize,
    },
    /// 1 if the next layer is of another kind.
    Bottom,
    /// 1 if one of the fields is there that depend on this bit.
    Presence,
    Checksum(Sum),
}

/// What a checksum is computed over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sum {
    /// The header.
    Header,
    /// The header and all after it.
    Rest,
    /// The same, and the addresses of the IP header before it.
    Transport { protocol: u8, zero_is_none: bool },
}

/// What numbers name a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Space {
    EtherType,
    IpProtocol,
    UdpPort,
    Icmp6Type,
    NdOption,
}

/// What follows the fixed part of a header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tail {
    Nothing,
    /// Words that bits of the header announce.
    Words,
    Ip4Options,
    TcpOptions,
    /// Bytes of any meaning. The whole header is a multiple of `unit` bytes, and has at least `least`.
    Data {
        unit: usize,
        least: usize,
    },
}

impl Tail {
    /// The header's length is a multiple of so many bytes.
    pub(crate) fn unit(self) -> usize {
        match self {
            Self::Nothing => 1,
            Self::Words | Self::Ip4Options | Self::TcpOptions => 4,
            Self::Data { unit, .. } => unit,
        }
    }
}

impl FieldDef {
    const fn new(name: &'static str, bit: usize, bits: usize, kind: Kind, auto: Auto) -> Self {
        Self { name, bit, bits, kind, auto, present: None }
    }

    const fn dec(name: &'static str, bit: usize, bits: usize, value: u128) -> Self {
        Self::new(name, bit, bits, Kind::Decimal, Auto::Const(value))
    }

    const fn hex(name: &'static str, bit: usize, bits: usize, value: u128) -> Self {
        Self::new(name, bit, bits, Kind::Hexadecimal, Auto::Const(value))
    }

    const fn when(self, present: usize) -> Self {
        Self { present: Some(present), ..self }
    }

    /// The largest value.
    pub(crate) fn most(&self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }
}

impl LayerDef {
    /// The field with this name.
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// Where a field is in this header, in bits; `None` if the header has no such field.
    pub(crate) fn place(&self, field: &FieldDef, header: &[u8]) -> Option<usize> {
        let Some(flag) = field.present else { return Some(field.bit) };
        if bits(header, flag, 1) == 0 {
            return None;
        }
        Some(self.bytes * 8 + 32 * self.words_before(flag, header) + field.bit)
    }

    /// The number of words that bits before this one announce.
    fn words_before(&self, flag: usize, header: &[u8]) -> usize {
        let mut before: Vec<usize> = self.fields.iter().filter_map(|field| field.present).collect();
        before.dedup();
        before.into_iter().filter(|other| *other < flag && bits(header, *other, 1) == 1).count()
    }

    /// Bytes of the words that the fixed part announces.
    pub(crate) fn words_len(&self, header: &[u8]) -> usize {
        4 * self.words_before(usize::MAX, header)
    }

    /// The length of the header that these bytes begin with; `None` if they are too few for it.
    ///
    /// A length field that contradicts itself counts for the least length: the field is then given explicitly.
    pub(crate) fn header_len(&self, from: &[u8]) -> Option<usize> {
        if from.len() < self.bytes {
            return None;
        }
        let len = match self.tail {
            Tail::Nothing => self.bytes,
            Tail::Words => self.bytes + self.words_len(from),
            Tail::Ip4Options | Tail::TcpOptions => {
                let at = if self.tail == Tail::Ip4Options { 4 } else { 96 };
                let len = 4 * bits(from, at, 4) as usize;
                if len < self.bytes || len > from.len() { self.bytes } else { len }
            }
            Tail::Data { least, .. } => {
                let counted = self.fields.iter().find_map(|field| match field.auto {
                    Auto::Header { unit, less } => {
                        Some(unit * (bits(from, field.bit, field.bits) as usize + less))
                    }
                    _ => None,
                });
                counted.filter(|len| *len >= least)?
            }
        };
        (len <= from.len()).then_some(len)
    }
}

/// All layers.
pub(crate) fn all() -> impl Iterator<Item = &'static LayerDef> {
    [link::LAYERS, ip::LAYERS, transport::LAYERS, tunnel::LAYERS].into_iter().flatten()
}

/// The layer with this name.
pub(crate) fn named(name: &str) -> Option<&'static LayerDef> {
    all().find(|def| def.name == name)
}

/// The layer that a number names.
pub(crate) fn numbered(space: Space, number: u64) -> Option<&'static LayerDef> {
    all().find(|def| def.ids.contains(&(space, number)))
}

/// The number of `count` bits, of which the first is at `at`. Bits behind the end are 0.
pub(crate) fn bits(bytes: &[u8], at: usize, count: usize) -> u128 {
    (at..at + count).fold(0, |value, bit| {
        let byte = bytes.get(bit / 8).copied().unwrap_or(0);
        value << 1 | u128::from(byte >> (7 - bit % 8) & 1)
    })
}

/// Writes the lowest `count` bits of a value. Bits behind the end are left out.
pub(crate) fn put(bytes: &mut [u8], at: usize, count: usize, value: u128) {
    for (index, bit) in (at..at + count).enumerate() {
        let Some(byte) = bytes.get_mut(bit / 8) else { return };
        let mask = 0x80 >> (bit % 8);
        let one = value >> (count - 1 - index) & 1 == 1;
        *byte = if one { *byte | mask } else { *byte & !mask };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_bit_of_a_fixed_header_is_in_exactly_one_field() {
        for def in all() {
            let mut free: BTreeSet<usize> = (0..8 * def.bytes).collect();
            for field in def.fields.iter().filter(|field| field.present.is_none()) {
                for bit in field.bit..field.bit + field.bits {
                    assert!(free.remove(&bit), "{}.{}: bit {bit}", def.name, field.name);
                }
            }
            assert!(free.is_empty(), "{}: no field has the bits {free:?}", def.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = all().map(|def| def.name).collect();
        assert_eq!(names.len(), all().count());
        for def in all() {
            let fields: BTreeSet<_> = def.fields.iter().map(|field| field.name).collect();
            assert_eq!(fields.len(), def.fields.len(), "{}", def.name);
        }
    }

    #[test]
    fn bits_are_written_where_they_are_read() {
        let mut bytes = [0xff; 4];
        put(&mut bytes, 3, 13, 0);
        assert_eq!(bytes, [0xe0, 0, 0xff, 0xff]);
        put(&mut bytes, 12, 8, 0xa5);
        assert_eq!((bits(&bytes, 12, 8), bits(&bytes, 28, 8)), (0xa5, 0xf0));
    }
}
