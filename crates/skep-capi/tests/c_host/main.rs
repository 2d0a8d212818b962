//! The library from the C side: compiled, linked and run as a host in C would.

mod attack;
mod examples;
mod header;
mod hosts;
mod parity;
mod toolchain;
