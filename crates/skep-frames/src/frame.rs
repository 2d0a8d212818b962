//! A packet as a list of layers and bytes, between text and wire.

use crate::layers::{LayerDef, Tail};
use crate::options;
use crate::value;
use std::fmt;

/// A packet: layers with the fields that are given, and bytes.
///
/// `Display` writes the text, of which [`Frame::parse`] makes the same packet.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(crate) items: Vec<Item>,
}

/// A part of a packet.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Layer(Layer),
    Bytes(Vec<u8>),
    /// Bytes behind the end of what the headers count.
    Pad(Vec<u8>),
    /// The packet ends after so many bytes.
    Cut(usize),
}

/// A layer with the fields that are given.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) def: &'static LayerDef,
    /// By index in the table.
    pub(crate) given: Vec<(usize, u128)>,
    /// Options or data, without the zeroes that fill up the header.
    pub(crate) tail: Vec<u8>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            match item {
                Item::Layer(layer) => layer.fmt(f)?,
                Item::Bytes(bytes) => f.write_str(&shown_bytes(bytes))?,
                Item::Pad(bytes) => write!(f, "pad({})", value::hex(bytes))?,
                Item::Cut(bytes) => write!(f, "cut({bytes})")?,
            }
        }
        Ok(())
    }
}

/// Bytes as text in quotes, as a number of zeroes, or in hexadecimal.
pub(crate) fn shown_bytes(bytes: &[u8]) -> String {
    if value::is_text(bytes) {
        value::quoted(bytes)
    } else if bytes.len() > 8 && bytes.iter().all(|byte| *byte == 0) {
        format!("zeros({})", bytes.len())
    } else {
        format!("hex({})", value::hex(bytes))
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.def.name)?;
        let mut comma = "";
        for (index, given) in &self.given {
            let field = &self.def.fields[*index];
            write!(f, "{comma}{}={}", field.name, value::show(field, *given))?;
            comma = ",";
        }
        if !self.tail.is_empty() {
            let name = tail_name(self.def.tail).unwrap_or_default();
            write!(f, "{comma}{name}={}", shown_tail(self.def.tail, &self.tail))?;
        }
        f.write_str(")")
    }
}

/// What the text calls the options or data of a layer.
pub(crate) fn tail_name(tail: Tail) -> Option<&'static str> {
    match tail {
        Tail::Nothing | Tail::Words => None,
        Tail::Ip4Options | Tail::TcpOptions => Some("options"),
        Tail::Data { .. } => Some("data"),
    }
}

/// Options or data as text.
pub(crate) fn shown_tail(tail: Tail, bytes: &[u8]) -> String {
    match tail {
        Tail::Ip4Options | Tail::TcpOptions => {
            format!("[{}]", options::show(tail == Tail::TcpOptions, bytes))
        }
        _ => format!("hex({})", value::hex(bytes)),
    }
}
