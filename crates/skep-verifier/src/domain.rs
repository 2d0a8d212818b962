//! Abstract values: numbers, pointers, stacks, and the state of one path.

pub(crate) mod bytes;
pub(crate) mod comparison;
pub(crate) mod loops;
pub(crate) mod needs;
pub(crate) mod num;
pub(crate) mod ordered_set;
pub(crate) mod recorded;
pub(crate) mod resources;
pub(crate) mod scalar;
pub(crate) mod stack;
pub(crate) mod state;
pub(crate) mod tnum;
pub(crate) mod value;
pub(crate) mod words;
