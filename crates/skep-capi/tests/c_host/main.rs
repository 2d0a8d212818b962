//! The library from the C side: compiled, linked and run as a host in C would.

mod header;
mod hosts;
mod toolchain;
