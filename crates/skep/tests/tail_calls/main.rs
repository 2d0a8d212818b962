//! Tail calls, in every engine and with every way to compile them.

mod frozen;
mod hooks;
mod keyed;
mod kit;
mod lifetime;
mod outer;
mod shape;
mod soak;
mod table;
