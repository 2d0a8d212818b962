//! The guarantees of this crate, one file for each subject.

mod guarded;
