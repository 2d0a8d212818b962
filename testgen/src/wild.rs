//! Programs that attack a verifier.
//!
//! Most should be refused. Accepted ones must do no harm: they run in the interpreter's checking mode, with many
//! inputs. Nine kinds, the last three
//! by generators of their own ([`decided`], [`iterated`], [`washed`]):
//!
//! * *probes of numbers*: a number of unknown value goes through arithmetic and comparisons, and is then used as an
//!   offset into memory. Whether that is safe depends on every transfer function of the verifier;
//! * *probes of objects*: packets that move, look-ups that may return null, sizes passed to helpers, copies and
//!   spills of pointers with only one of them checked;
//! * *probes of paths*: two paths meet, and the rest is safe after one of them, both, or none. A verifier that
//!   remembers states must not confuse them;
//! * *probes of stale addresses*: pointers into a packet that has moved, which may be compared and subtracted but
//!   must not reveal addresses;
//! * *mutants*: structured programs with a few instructions changed;
//! * *noise*: instructions drawn one by one;
//! * *probes of numbers that decide*, and must be compared where paths meet;
//! * *probes of loops* of all kinds, nested or not, in which numbers change that decide something later;
//! * *probes of addresses as numbers*, which programs may make under Linux's rules for root.

mod decided;
mod iterated;
mod mutants;
mod numbers;
mod objects;
mod paths;
mod stale;
mod washed;

pub use decided::decided;
pub use iterated::iterated;
pub use mutants::mutated;
pub use numbers::Question;
pub use stale::stale;
pub use washed::{Washed, washed};

use crate::program::TestProgram;
use crate::source::Source;
use crate::structured::Options;

/// A program of a random kind, of the first six.
pub fn wild(source: &mut Source, options: &Options) -> TestProgram {
    match source.below(17) {
        0..=4 => numbers::probe(source),
        5..=8 => objects::probe(source),
        9..=12 => paths::probe(source),
        13 | 14 => mutants::mutant(source, options),
        15 => stale(source),
        _ => mutants::noise(source, options),
    }
}
