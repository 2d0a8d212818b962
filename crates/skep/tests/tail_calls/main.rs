//! Tail calls: what they do, in every engine and every way to compile them.

mod frozen;
mod hooks;
mod keyed;
mod kit;
mod lifetime;
mod outer;
mod shape;
mod soak;
mod table;
