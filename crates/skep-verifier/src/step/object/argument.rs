//! Loads from a context that is an array of arguments, or plain bytes.

use super::attach::Argument;
use crate::domain::scalar::Scalar;
use crate::domain::value::{Kind, Value};
use crate::program::facts::Place;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_isa::{Reg, Size};

/// The bytes of a map's key or value that an iterator's program may use. Their real size is known only after
/// attachment: what the program uses is recorded ([`crate::Verified::element_use`]).
pub(crate) const MAX_ELEMENT: u32 = 1 << 16;

impl Transfer<'_> {
    /// The result of a load from the attachment's arguments.
    pub(crate) fn load_argument(&mut self, reg: Reg, at: i64, size: Size, signed: bool) -> Checked<Value> {
        self.record.place(self.slot, Place::Memory)?;
        let bytes = i64::from(size.bytes());
        if at < 0 || at % bytes != 0 || (bytes < 8 && at % 8 != 0) {
            let text = format!(
                "expected an argument, at a multiple of 8 in the context, found bytes {at}..{} in {reg}",
                at + bytes
            );
            return Err(Violation::new(Code::Context, text));
        }
        let attached = &self.types.attached;
        let index = usize::try_from(at / 8).unwrap_or(usize::MAX);
        let Some(argument) = attached.args.get(index).copied() else {
            let text = format!(
                "{} has {} for a program, numbered from 0, but no value {}",
                attached.what,
                match attached.args.len() {
                    1 => "1 value".to_owned(),
                    count => format!("{count} values"),
                },
                at / 8
            );
            return Err(Violation::new(Code::Context, text));
        };
        let whole = size == Size::B8 && !signed;
        match argument {
            Argument::Number => Ok(Value::scalar(Scalar::of_size(size))),
            Argument::Range { min, max } if whole => {
                Ok(Value::scalar(Scalar::signed_range(min.into(), max.into())))
            }
            Argument::Range { .. } => Ok(Value::scalar(Scalar::of_size(size))),
            Argument::Object { .. } | Argument::Memory { .. } | Argument::Other(_) if !whole => {
                let text = format!(
                    "argument {} of {} is a pointer, which must be read with 8 bytes, found {bytes}",
                    at / 8,
                    self.types.attached.what
                );
                Err(Violation::new(Code::Context, text))
            }
            Argument::Object { ty, trust, maybe_null } => {
                Ok(self.named(Kind::Object { ty, trust, maybe_null }))
            }
            Argument::Memory { read_only } => {
                Ok(self.named(Kind::Memory { bytes: MAX_ELEMENT, read_only, maybe_null: true }))
            }
            Argument::Other(ty) => {
                let text = format!(
                    "argument {} of {} points to {}: expected a number or a pointer to a structure",
                    at / 8,
                    self.types.attached.what,
                    self.type_name(ty)
                );
                Err(Violation::new(Code::Context, text))
            }
        }
    }
}
