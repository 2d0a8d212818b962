//! One binary for all tests that need no process of their own, so that it is linked once.

#[path = "../common/mod.rs"]
mod common;
#[path = "../oracle/hostile.rs"]
mod oracle;

mod assumptions;
mod attacks;
mod callbacks;
mod control;
mod dynptrs;
mod facts;
mod general;
mod helpers;
mod hostile;
mod kfuncs;
mod kinds_of_maps;
mod leaks;
mod limits;
mod log;
mod memory;
mod objects;
mod packets;
mod paths;
mod precision;
mod pruning;
mod refusals;
mod resources;
mod structure;
mod values;
mod widening;
