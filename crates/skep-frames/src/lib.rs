//! Packets as text: built, dissected field by field, compared.
//!
//! ```
//! # fn main() -> Result<(), skep_frames::Error> {
//! let bytes = skep_frames::build(r#"eth()/ip4(src=192.0.2.1)/tcp(dport=443,flags=S)/"hello""#)?;
//! assert_eq!(bytes.len(), 14 + 20 + 20 + 5);
//! assert_eq!(skep_frames::text(&bytes), r#"eth()/ip4(src=192.0.2.1)/tcp(dport=443,flags=S)/"hello""#);
//!
//! let error = skep_frames::build("eth()/ip4(scr=192.0.2.1)").unwrap_err();
//! assert_eq!(error.to_string(), "column 11: ip4 has no field scr; did you mean src?");
//!
//! let other = skep_frames::build(r#"eth()/ip4(src=192.0.2.1,ttl=63)/tcp(dport=443,flags=S)/"hello""#)?;
//! let table = skep_frames::side_by_side(&bytes, &other).to_string();
//! assert!(table.contains("!    22  ip4.ttl "), "{table}");
//! # Ok(())
//! # }
//! ```
//!
//! Lengths, checksums and the numbers of the next protocols follow from the rest, unless the text gives them. Any bytes
//! have a text, and that builds the same bytes.
#![forbid(unsafe_code)]

mod build;
mod diff;
mod dissect;
mod error;
mod fields;
mod frame;
mod layers;
mod limits;
mod options;
mod placed;
mod text;
mod value;

pub use diff::{Row, SideBySide, side_by_side};
pub use error::Error;
pub use fields::{Field, fields};
pub use frame::Frame;
pub use limits::{MAX_BYTES, MAX_LAYERS};

/// The bytes of a packet's text.
///
/// # Errors
///
/// [`Error`], with the column.
pub fn build(text: &str) -> Result<Vec<u8>, Error> {
    Frame::parse(text)?.build()
}

/// The text of an Ethernet frame's bytes, of which [`build`] makes the same bytes, if these are at most [`MAX_BYTES`].
pub fn text(bytes: &[u8]) -> String {
    Frame::dissect(bytes).to_string()
}

/// What can be written: each layer with its fields, and what options or data are called there.
pub fn vocabulary() -> Vec<(&'static str, Vec<&'static str>)> {
    let fields = |def: &layers::LayerDef| {
        let own = def.fields.iter().map(|field| field.name);
        own.chain(frame::tail_name(def.tail)).collect()
    };
    layers::all().map(|def| (def.name, fields(def))).collect()
}
