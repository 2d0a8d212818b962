//! Where the layers of a packet are, and what the fields are that nobody gave.
//!
//! A value that is not given is a function of the packet's bytes and of where its layers are. The builder computes it
//! from what it has written, the dissector from what it has read: a field is left out of the text exactly if both
//! agree. So no value may depend on anything else, as for example on what was given in the text.

use crate::layers::{Auto, FieldDef, LayerDef, Sum, bits};

/// A layer in a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) def: &'static LayerDef,
    pub(crate) start: usize,
    /// Bytes of the header.
    pub(crate) len: usize,
    /// Whether another layer follows, and not bytes.
    pub(crate) next: Option<&'static LayerDef>,
}

/// The layers of a packet, and where what they count ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placed {
    pub(crate) places: Vec<Place>,
    pub(crate) end: usize,
}

impl Placed {
    /// The value of a field of a layer that is not given.
    pub(crate) fn auto(&self, at: usize, field: &FieldDef, bytes: &[u8]) -> u128 {
        let Place { def, start, len, next } = self.places[at];
        let value = match field.auto {
            Auto::Const(value) => value,
            Auto::Next(space, otherwise) => {
                let numbers = next.map_or(&[][..], |next| next.ids);
                numbers.iter().find(|(of, _)| *of == space).map_or(otherwise, |(_, number)| *number).into()
            }
            Auto::Length(without) => self.end.saturating_sub(start + without) as u128,
            Auto::Header { unit, less } => (len / unit).saturating_sub(less) as u128,
            Auto::Bottom => u128::from(next.is_none_or(|next| next.name != def.name)),
            Auto::Presence => bits(&bytes[start..], field.bit, 1),
            Auto::Checksum(sum) => {
                let place = def.place(field, &bytes[start..start + len]).unwrap_or(field.bit);
                u128::from(self.checksum(at, sum, start + place / 8, bytes))
            }
        };
        value & field.most()
    }

    /// A checksum, whose own two bytes at `own` count as zero.
    fn checksum(&self, at: usize, sum: Sum, own: usize, bytes: &[u8]) -> u16 {
        let Place { start, len, .. } = self.places[at];
        let end = if sum == Sum::Header { start + len } else { self.end.max(start + len) };
        let covered = &bytes[start..end];
        let mut total = ones_sum(covered);
        // The field begins at an even byte of its header.
        let own = u64::from(u16::from_be_bytes([bytes[own], bytes[own + 1]]));
        total = total.wrapping_sub(own);
        let Sum::Transport { protocol, zero_is_none } = sum else { return folded(total) };
        let before = self.places[..at].iter().rev().find(|place| matches!(place.def.name, "ip4" | "ip6"));
        let Some(ip) = before else { return 0 };
        let addresses = if ip.def.name == "ip4" { 12..20 } else { 8..40 };
        total += ones_sum(&bytes[ip.start..][addresses]) + u64::from(protocol) + covered.len() as u64;
        match folded(total) {
            0 if zero_is_none => 0xffff,
            sum => sum,
        }
    }
}

/// The sum of 16-bit words in network order; a last odd byte counts as the upper half of one.
fn ones_sum(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    sum + rest.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// The complement of a sum in 16 bits.
fn folded(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
