//! Memory of a host that its threads cannot touch, except within a closure.
//!
//! A verifier or a compiler with a defect lets a program read and write wherever it likes. Protection keys (pkeys(7))
//! bound that: pages have a key, each thread has rights for each key in a register, and the processor compares the
//! two in every access.
//!
//! ```text
//!   Guarded::new(secret)   pages of its own, with the key        no thread has rights for the key
//!   guarded.open(|secret| ...)                                   this thread has them, until the closure ends
//!   a run of a program                                           has none, also within the closure: Closed
//! ```
//!
//! ```
//! # fn main() -> Result<(), skep_guard::Error> {
//! use skep_guard::{Error, Guarded};
//!
//! let key = match Guarded::new([7u8; 32]) {
//!     Ok(key) => key,
//!     Err(Error::NotSupported) => return Ok(()), // the host decides what to do without protection
//!     Err(error) => return Err(error),
//! };
//! assert_eq!(key.open(|key| key[0]), 7);
//! # Ok(())
//! # }
//! ```
//!
//! # What it costs
//!
//! Opening and closing are two writes of the register. Nothing else costs anything: the memory is closed by default, so
//! no run of a program has to close it, unless a runtime is told to make sure.
//!
//! # What would break it
//!
//! - Rights that stay: a panic in the closure, a second closure in the first one. [`Guarded::open`] gives back what was
//!   there before, by a value that is dropped.
//! - A freed key whose number somebody else gets while pages still have it. There is one key for the whole process, and
//!   it is never freed.
//! - Rights that a thread inherits: one that is started within the closure has them for its life. A runtime that closes
//!   the key for its runs asks the register, not a note of its own.
//! - Code that gives itself rights: any code that the processor reaches may write the register. See [`opens`].

mod arch;
mod error;
mod guarded;
mod key;
mod pages;

pub use arch::opens;
pub use error::Error;
pub use guarded::Guarded;
pub use key::Closed;

/// Whether memory can be guarded here. The first call takes a protection key of the process.
///
/// # Errors
///
/// [`Error::NotSupported`] and [`Error::NoKeyLeft`] say why not.
pub fn check() -> Result<(), Error> {
    key::of_process().map(drop)
}
