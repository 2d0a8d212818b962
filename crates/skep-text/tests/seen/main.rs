//! What profilers and debuggers show of the code: with the real perf and GDB, and with readers of our own.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod gdb;
mod perf;
mod readers;
mod tool;
