//! Benchmarks of skep: measured in one run with their opponents, interleaved, over several code placements.
//!
//! A number here never stands alone. Every engine runs the same programs over the same memory in turns, and
//! what is reported is nanoseconds beside those of the opponents in the same run. A small loop that straddles
//! a cache line can take 1.7 times as long, so each engine gets its code at several places, and both the best
//! and the worst of them are reported.

pub mod alloc;
mod arch;
mod child;
mod engines;
pub mod exec;
pub mod flow;
pub mod htab_mem;
pub mod itlb;
mod kernel;
pub mod load;
pub mod maps;
pub mod pack;
pub mod poke;
mod programs;
mod random;
pub mod tail;
mod together;
pub mod verify;
