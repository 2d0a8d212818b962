//! Bytes to layers.
//!
//! Whatever the bytes are, the layers that come out of them build the same bytes. A header is taken as one only if it
//! is there as a whole; the rest is bytes. Each field is given explicitly unless its usual value is the one that is
//! there, computed by the same function that the builder uses. That the result builds the same bytes is checked at the
//! end, and what does not would become one run of bytes; tests show that this does not happen.

use crate::frame::{Frame, Item, Layer};
use crate::layers::{self, Auto, LayerDef, Space, Tail, bits};
use crate::limits::MAX_LAYERS;
use crate::options;
use crate::placed::{Place, Placed};

impl Frame {
    /// The packet of an Ethernet frame's bytes. Any bytes are one.
    pub fn dissect(bytes: &[u8]) -> Self {
        let frame = Self { items: items(bytes, &placed(bytes)) };
        match frame.build() {
            Ok(again) if again == bytes => frame,
            _ => Self { items: vec![Item::Bytes(bytes.to_vec())] },
        }
    }
}

/// Where the layers of an Ethernet frame are.
pub(crate) fn placed(bytes: &[u8]) -> Placed {
    let mut placed = Placed { places: Vec::new(), end: bytes.len() };
    let mut next = layers::named("eth");
    let mut start = 0;
    let mut outer = true;
    while let Some(def) = next {
        // The last place is for bytes behind the layers, and one for the padding.
        let Some(len) =
            def.header_len(&bytes[start..placed.end]).filter(|_| placed.places.len() + 2 < MAX_LAYERS)
        else {
            break;
        };
        let header = &bytes[start..start + len];
        if let (Some(total), true) = (total_length(def, header), outer) {
            outer = false;
            if (len..=placed.end - start).contains(&total) {
                placed.end = start + total;
            }
        }
        if let Some(last) = placed.places.last_mut() {
            last.next = Some(def);
        }
        placed.places.push(Place { def, start, len, next: None });
        start += len;
        next = following(&placed, header, &bytes[start..placed.end]);
    }
    placed
}

/// The bytes that an IP header says there are, with itself.
fn total_length(def: &LayerDef, header: &[u8]) -> Option<usize> {
    match def.name {
        "ip4" => Some(bits(header, 16, 16) as usize),
        "ip6" => Some(40 + bits(header, 32, 16) as usize),
        _ => None,
    }
}

/// What comes after a header.
fn following(placed: &Placed, header: &[u8], rest: &[u8]) -> Option<&'static LayerDef> {
    let def = placed.places.last()?.def;
    let by_version = || match rest.first()? >> 4 {
        4 => layers::named("ip4"),
        6 => layers::named("ip6"),
        _ => None,
    };
    match def.name {
        // Only a packet's first fragment has the next header.
        "ip4" if bits(header, 51, 13) != 0 => return None,
        "fragment" if bits(header, 16, 13) != 0 => return None,
        "mpls" if bits(header, 23, 1) == 0 => return layers::named("mpls"),
        "mpls" => return by_version(),
        "vxlan" => return layers::named("eth"),
        "icmp" if matches!(header[0], 3 | 4 | 5 | 11 | 12) => return layers::named("ip4"),
        "icmp6" if (1..=4).contains(&header[0]) => return layers::named("ip6"),
        "rs" | "ra" | "ns" | "na" | "sll" | "tll" | "ndprefix" | "ndmtu" | "ndoption" => {
            return option(rest);
        }
        _ => {}
    }
    let numbered = def.fields.iter().find_map(|field| match field.auto {
        Auto::Next(space, _) => layers::numbered(space, bits(header, field.bit, field.bits) as u64),
        _ => None,
    })?;
    if numbered.name != "icmp6" {
        return Some(numbered);
    }
    let discovery = layers::numbered(Space::Icmp6Type, rest.first().copied().unwrap_or(0).into());
    discovery.filter(|def| def.header_len(rest).is_some()).or(Some(numbered))
}

/// The option of neighbour discovery that these bytes begin with.
fn option(rest: &[u8]) -> Option<&'static LayerDef> {
    let [kind, len, ..] = *rest else { return None };
    let named = layers::numbered(Space::NdOption, kind.into());
    named.filter(|def| def.bytes == 8 * usize::from(len)).or_else(|| layers::named("ndoption"))
}

/// The layers with the fields that are not as usual, and the bytes around them.
fn items(bytes: &[u8], placed: &Placed) -> Vec<Item> {
    let mut items = Vec::new();
    let mut at = 0;
    for (index, place) in placed.places.iter().enumerate() {
        let (def, header) = (place.def, &bytes[place.start..place.start + place.len]);
        let mut given = Vec::new();
        for (number, field) in def.fields.iter().enumerate() {
            let Some(bit) = def.place(field, header) else { continue };
            let value = bits(header, bit, field.bits);
            // A word that is there is given, since only that says that it is.
            if field.present.is_some() || value != placed.auto(index, field, bytes) {
                given.push((number, value));
            }
        }
        items.push(Item::Layer(Layer { def, given, tail: tail(def, header) }));
        at = place.start + place.len;
    }
    if at < placed.end {
        items.push(Item::Bytes(bytes[at..placed.end].to_vec()));
    }
    if placed.end < bytes.len() || items.is_empty() {
        items.push(match items.is_empty() {
            true => Item::Bytes(bytes.to_vec()),
            false => Item::Pad(bytes[placed.end..].to_vec()),
        });
    }
    items
}

/// Options or data, without the zeroes that fill up the header after the last option.
pub(crate) fn tail(def: &LayerDef, header: &[u8]) -> Vec<u8> {
    let tail = &header[def.bytes..];
    match def.tail {
        Tail::Nothing | Tail::Words => Vec::new(),
        Tail::Data { .. } => tail.to_vec(),
        Tail::Ip4Options | Tail::TcpOptions => {
            let used = options::used(tail);
            // What is left must be filled up to the same length again.
            let least = tail.len().saturating_sub(def.tail.unit() - 1);
            tail[..used.max(least)].to_vec()
        }
    }
}
