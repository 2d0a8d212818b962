//! A packet field by field, with the place of each.

use crate::dissect;
use crate::frame::{shown_bytes, shown_tail, tail_name};
use crate::layers::{Auto, bits};
use crate::value;

/// Bytes of a row of payload.
const ROW: usize = 16;

/// A field of a packet, or some of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// The layer: `ip4`. Bytes of no layer are in `payload`, and those behind the end of the packet in `pad`.
    pub layer: &'static str,
    /// How many layers are before it.
    pub depth: usize,
    /// The field's name; for bytes their number in the layer, in decimal.
    pub name: String,
    /// Its first bit, from the start of the packet.
    pub bit: usize,
    /// Its length in bits.
    pub bits: usize,
    /// Its value as the text of packets writes it.
    pub value: String,
    /// What the value should be, if it is a length, checksum or number of a protocol and differs from that.
    pub usual: Option<String>,
}

/// The fields of an Ethernet frame, in the order of the wire.
pub fn fields(bytes: &[u8]) -> Vec<Field> {
    let placed = dissect::placed(bytes);
    let mut fields = Vec::new();
    let mut at = 0;
    for (depth, place) in placed.places.iter().enumerate() {
        let (def, header) = (place.def, &bytes[place.start..place.start + place.len]);
        for field in def.fields {
            let Some(bit) = def.place(field, header) else { continue };
            let found = bits(header, bit, field.bits);
            let usual = placed.auto(depth, field, bytes);
            let fixed = matches!(field.auto, Auto::Const(_));
            fields.push(Field {
                layer: def.name,
                depth,
                name: field.name.to_owned(),
                bit: 8 * place.start + bit,
                bits: field.bits,
                value: value::show(field, found),
                usual: (!fixed && usual != found).then(|| value::show(field, usual)),
            });
        }
        let tail = dissect::tail(def, header);
        if let Some(name) = tail_name(def.tail).filter(|_| !tail.is_empty()) {
            fields.push(Field {
                layer: def.name,
                depth,
                name: name.to_owned(),
                bit: 8 * (place.start + def.bytes),
                bits: 8 * (place.len - def.bytes),
                value: shown_tail(def.tail, &tail),
                usual: None,
            });
        }
        at = place.start + place.len;
    }
    let depth = placed.places.len();
    rows(&mut fields, "payload", depth, at, &bytes[at..placed.end]);
    rows(&mut fields, "pad", depth + 1, placed.end, &bytes[placed.end..]);
    fields
}

/// Rows of bytes.
fn rows(fields: &mut Vec<Field>, layer: &'static str, depth: usize, start: usize, bytes: &[u8]) {
    for (row, bytes) in bytes.chunks(ROW).enumerate() {
        fields.push(Field {
            layer,
            depth,
            name: (ROW * row).to_string(),
            bit: 8 * (start + ROW * row),
            bits: 8 * bytes.len(),
            value: match value::is_text(bytes) {
                true => shown_bytes(bytes),
                false => value::hex(bytes),
            },
            usual: None,
        });
    }
}
