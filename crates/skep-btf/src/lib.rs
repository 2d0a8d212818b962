//! Types in the BPF Type Format (BTF): of object files, of a running system, of a file beside a kernel.
//!
//! ```text
//!  +--------+-------------------------------+-------------------------------+
//!  | header | types: 1, 2, 3, ... (12 bytes | strings: each ends with NUL,  |
//!  |        | and a tail by kind)           | the first is empty            |
//!  +--------+-------------------------------+-------------------------------+
//! ```
//!
//! Types refer to types by number and to strings by offset, in any order. Parsing stores only where each type starts,
//! four bytes for at least twelve in the file; names are indexed at the first look-up. Everything else is read on
//! demand and checked then: a missing number is an error, and no walk along types is longer than [`MAX_CHAIN`]. So a
//! system's hundred thousand types cost a few milliseconds, and bytes need not be trusted: nothing here panics, and
//! memory is bounded by a multiple of the file's size.
//!
//! The format is specified in the Linux documentation, "BPF Type Format (BTF)".
//!
//! # Example
//!
//! ```no_run
//! use skep_btf::{Btf, Kind, What};
//!
//! let system = Btf::parse(std::fs::read("/sys/kernel/btf/vmlinux")?)?;
//! let task = system.find("task_struct", Kind::Struct).expect("every Linux has tasks");
//! let (pid, offset) = (system.members(task)?)
//!     .find_map(|member| (member.name() == Ok("pid")).then_some((member.ty, member.bit_offset / 8)))
//!     .expect("every task has a number");
//! assert_eq!(system.size(pid)?, 4);
//! assert!(matches!(system.walk(task, offset, 4)?.what, What::Scalar { size: 4, .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod btf;
mod c;
mod check;
mod error;
mod ext;
mod header;
mod index;
mod join;
mod layout;
mod names;
mod special;
mod strings;
mod tags;
mod types;
mod walk;

pub use btf::{Btf, MAX_CHAIN};
pub use check::{CheckFault, Malformed, check_sections};
pub use error::{Error, Fault};
pub use ext::{Block, Ext};
pub use index::essential_name;
pub use layout::ObjectLayouts;
pub use special::{
    CGROUP, CPU_MASK, CSS_SET, KERNFS_NODE, MAX_SPECIAL, OWN_TYPE, SpecialField, SpecialKind, TASK,
    machine_type, machine_type_name,
};
pub use strings::{MAX_NAME, string_at};
pub use tags::{DeclTag, Pointer};
pub use types::{Array, Enumerator, Int, Kind, Linkage, Member, Param, Type, Variable};
pub use walk::{Found, Step, What};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
