//! Runs tests of BPF programs in user space, without root: the library behind `skep test`.
//!
//! ```text
//!   paths --Suite::find--> tests --Suite::run--> Report --show, json, junit--> text
//!                                                      \--bless--> table files
//! ```
//!
//! Tests are tables in TOML and programs in C; the book's chapter "Testing programs with `skep test`" describes both.
//! Each has maps, a machine and a clock of its own.
#![forbid(unsafe_code)]

mod bless;
mod captures;
mod check;
mod compare;
mod error;
mod fixture;
mod node;
mod options;
mod outcome;
mod proto;
mod ran;
mod report;
mod run;
mod sections;
mod show;
mod suite;
mod table;

pub use bless::{Blessed, bless};
pub use captures::Captures;
pub use error::{Error, TableError};
pub use options::Options;
pub use outcome::{Counts, Difference, Outcome, Report, TestResult, What};
pub use report::{json, junit};
pub use show::{Style, details, summary};
pub use suite::Suite;
pub use table::check_text;
