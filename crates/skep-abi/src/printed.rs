//! What the verifier proved of the values that a call prints, for the helper that prints them.
//!
//! A helper receives plain numbers. It cannot see whether one is an address and how much may be read there. So the
//! verifier records that for each call, and the engine stores the record's address in the environment before the
//! call:
//!
//! ```text
//!   verifier --Printed of the call--> engine --RunEnv::printed--> helper, which takes the record
//! ```
//!
//! A helper without a record follows no value and prints none as it is. So an engine that forgets records prints
//! less, and never an address.

use crate::format::MAX_PRINTED;

/// What holds of one value in every run that reaches the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Printable {
    /// It may be an address, and its target is unknown: it is neither followed nor printed.
    #[default]
    Hidden,
    /// The call has fewer values.
    Absent,
    /// A number that the program computed.
    Number,
    /// Null, or the address of at least `bytes` bytes that may be read and contain no part of an address.
    Memory {
        /// Number of bytes, at least 1.
        bytes: u32,
    },
    /// The address of a string that never changes. `bytes` bytes may be read, and a zero byte is among them.
    String {
        /// Number of bytes, the smallest over all runs.
        bytes: u32,
    },
}

impl Printable {
    /// What holds if either does.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Absent, there) | (there, Self::Absent) => there,
            (Self::Number, Self::Number) => Self::Number,
            (Self::String { bytes: a }, Self::String { bytes: b }) => Self::String { bytes: a.min(b) },
            (Self::Memory { bytes: a } | Self::String { bytes: a }, Self::Memory { bytes: b })
            | (Self::Memory { bytes: a }, Self::String { bytes: b }) => Self::Memory { bytes: a.min(b) },
            _ => Self::Hidden,
        }
    }
}

/// What holds of all values of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Printed {
    /// In the order of the values. Entries beyond the call's values are absent, or hidden.
    pub values: [Printable; MAX_PRINTED],
}

impl Printed {
    /// What holds if either does.
    pub fn or(mut self, other: &Self) -> Self {
        for (value, other) in self.values.iter_mut().zip(other.values) {
            *value = value.or(other);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_keeps_only_what_both_promise() {
        let (short, long) = (Printable::Memory { bytes: 4 }, Printable::Memory { bytes: 16 });
        let text = Printable::String { bytes: 9 };
        assert_eq!(short.or(long), short);
        assert_eq!(text.or(long), Printable::Memory { bytes: 9 });
        assert_eq!(long.or(text), Printable::Memory { bytes: 9 });
        assert_eq!(text.or(Printable::String { bytes: 3 }), Printable::String { bytes: 3 });
        assert_eq!(Printable::Number.or(long), Printable::Hidden);
        assert_eq!(Printable::Number.or(Printable::Number), Printable::Number);
        assert_eq!(Printable::Hidden.or(text), Printable::Hidden);
        assert_eq!(Printable::Absent.or(text), text, "only the other call has the value");
        assert_eq!(long.or(Printable::Absent), long);
    }
}
