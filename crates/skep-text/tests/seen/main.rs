//! Profilers and debuggers show the code: tested with the real perf and GDB, and with our own readers.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod gdb;
mod perf;
mod readers;
mod tool;
