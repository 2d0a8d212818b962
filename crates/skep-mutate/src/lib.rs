//! Mutation testing of BPF programs: the library behind `skep mutate`.
//!
//! ```text
//!   object's bytes --Mutants::of--> numbered changes --Mutants::judge(tests)--> Score --text, json
//! ```
//!
//! A *mutant* is the object with one instruction changed in the file's bytes. The changes of an object follow from its
//! bytes alone, so their numbers are the same each time. A mutant that the verifier refuses could never run, so it says
//! nothing about tests. The others should make a test fail.
#![forbid(unsafe_code)]

mod change;
mod error;
mod judge;
mod mutants;
mod score;
mod show;

pub use change::Change;
pub use error::Error;
pub use mutants::{Mutant, Mutants, Place};
pub use score::{Fate, Judged, Score};
pub use show::{json, listed, listed_json, text};
