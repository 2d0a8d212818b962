//! Layers to bytes.

use crate::error::Error;
use crate::frame::{Frame, Item, Layer};
use crate::layers::{Auto, put};
use crate::limits::MAX_BYTES;
use crate::placed::{Place, Placed};

impl Frame {
    /// The packet's bytes. Fields that are not given get their usual values: lengths, checksums, the numbers of the
    /// next protocols.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`].
    pub fn build(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut placed = Placed::default();
        let mut layers: Vec<&Layer> = Vec::new();
        let mut cut = usize::MAX;
        let mut end = None;
        for (index, item) in self.items.iter().enumerate() {
            match item {
                Item::Layer(layer) => {
                    let start = bytes.len();
                    write_header(layer, &mut bytes);
                    let next = match self.items.get(index + 1) {
                        Some(Item::Layer(next)) => Some(next.def),
                        _ => None,
                    };
                    placed.places.push(Place { def: layer.def, start, len: bytes.len() - start, next });
                    layers.push(layer);
                }
                Item::Bytes(more) => bytes.extend(more),
                Item::Pad(more) => {
                    end = Some(bytes.len());
                    bytes.extend(more);
                }
                Item::Cut(len) => cut = *len,
            }
            if bytes.len() > MAX_BYTES {
                return Err(Error::TooLong { column: 1, bytes: bytes.len() });
            }
        }
        placed.end = end.unwrap_or(bytes.len());
        // Checksums cover the lengths, and those of outer layers the ones of inner layers.
        complete(&placed, &layers, &mut bytes, |auto| {
            !matches!(auto, Auto::Const(_) | Auto::Checksum(_) | Auto::Presence)
        });
        complete(&placed, &layers, &mut bytes, |auto| matches!(auto, Auto::Checksum(_)));
        bytes.truncate(cut);
        Ok(bytes)
    }
}

/// Writes the fields that are not given and of one sort, from the innermost layer outwards.
fn complete(placed: &Placed, layers: &[&Layer], bytes: &mut [u8], sort: impl Fn(Auto) -> bool) {
    for (at, layer) in layers.iter().enumerate().rev() {
        let Place { start, len, .. } = placed.places[at];
        for (index, field) in layer.def.fields.iter().enumerate() {
            if !sort(field.auto) || layer.given.iter().any(|(given, _)| *given == index) {
                continue;
            }
            if let Some(bit) = layer.def.place(field, &bytes[start..start + len]) {
                let value = placed.auto(at, field, bytes);
                put(&mut bytes[start..start + len], bit, field.bits, value);
            }
        }
    }
}

/// Appends a header with what is given and what is always the same.
fn write_header(layer: &Layer, bytes: &mut Vec<u8>) {
    let def = layer.def;
    let start = bytes.len();
    bytes.resize(start + def.bytes, 0);
    let given = |index: usize| layer.given.iter().find(|(given, _)| *given == index).map(|(_, value)| *value);
    // Bits first that announce words.
    for (index, field) in def.fields.iter().enumerate().filter(|(_, field)| field.present.is_none()) {
        let value = match (given(index), field.auto) {
            (Some(value), _) => value,
            (None, Auto::Const(value)) => value,
            (None, Auto::Presence) => {
                let announced = |(other, _): &(usize, u128)| def.fields[*other].present == Some(field.bit);
                layer.given.iter().any(announced).into()
            }
            _ => 0,
        };
        put(&mut bytes[start..], field.bit, field.bits, value);
    }
    let words = def.words_len(&bytes[start..]);
    bytes.resize(start + def.bytes + words, 0);
    for (index, field) in def.fields.iter().enumerate().filter(|(_, field)| field.present.is_some()) {
        if let (Some(value), Some(bit)) = (given(index), def.place(field, &bytes[start..])) {
            put(&mut bytes[start..], bit, field.bits, value);
        }
    }
    bytes.extend(&layer.tail);
    let len = (bytes.len() - start).next_multiple_of(def.tail.unit());
    bytes.resize(start + len, 0);
}
