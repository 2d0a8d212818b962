//! What the verifier proved of the values that a call prints, for the helper that prints them.
//!
//! A helper is given numbers. Whether one is an address, and how much may be read there, it cannot see; so the verifier
//! takes it down for each call, and the engine puts the address of the note into the environment before the call:
//!
//! ```text
//!   verifier --Printed of the call--> engine --RunEnv::printed--> helper, which takes the note away
//! ```
//!
//! A helper that finds no note follows nothing and shows no value as it is. So an engine that forgets notes prints
//! less, and never an address.

use crate::format::MAX_PRINTED;

/// What holds of one value in every run that gets to the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Printable {
    /// It may be an address, and nothing is known of what is there: it is neither followed nor shown.
    #[default]
    Hidden,
    /// A number of the program's own.
    Number,
    /// Null, or the address of so many bytes that may be read and hold no part of an address.
    Memory {
        /// How many, at least 1.
        bytes: u32,
    },
    /// The address of a string that never changes. So many bytes may be read, and a zero byte is among them.
    String {
        /// How many, in the run that has the fewest.
        bytes: u32,
    },
}

impl Printable {
    /// What holds where one of both does.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
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
    /// By their order. Those that the call has not are hidden.
    pub values: [Printable; MAX_PRINTED],
}

impl Printed {
    /// What holds where one of both does.
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
    fn of_two_only_what_both_promise_is_left() {
        let (short, long) = (Printable::Memory { bytes: 4 }, Printable::Memory { bytes: 16 });
        let text = Printable::String { bytes: 9 };
        assert_eq!(short.or(long), short);
        assert_eq!(text.or(long), Printable::Memory { bytes: 9 });
        assert_eq!(long.or(text), Printable::Memory { bytes: 9 });
        assert_eq!(text.or(Printable::String { bytes: 3 }), Printable::String { bytes: 3 });
        assert_eq!(Printable::Number.or(long), Printable::Hidden);
        assert_eq!(Printable::Number.or(Printable::Number), Printable::Number);
        assert_eq!(Printable::Hidden.or(text), Printable::Hidden);
    }
}
