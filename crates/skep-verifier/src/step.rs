//! One instruction at a time: what it demands of a state, and what it makes of it.

pub(crate) mod access;
pub(crate) mod alu;
pub(crate) mod args;
pub(crate) mod call;
pub(crate) mod callback;
pub(crate) mod dynptr;
pub(crate) mod ends;
pub(crate) mod exception;
pub(crate) mod frames;
pub(crate) mod global;
pub(crate) mod iterator;
pub(crate) mod kfunc;
pub(crate) mod maps;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod packet;
pub(crate) mod pointer;
pub(crate) mod printed;
pub(crate) mod region;
pub(crate) mod resources;
pub(crate) mod special;
pub(crate) mod stale;
pub(crate) mod tail;
