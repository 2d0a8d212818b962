//! Program types of a host's own: a Rust structure is the context.
//!
//! A host describes what its plug-ins see of a request, a row or a packet of its own as a structure with
//! `#[derive(Context)]` (feature `derive`), or by hand, or as data. It gets a program type: a section, a C header,
//! rules for the verifier, types for CO-RE, and a typed result.
//!
//! ```text
//!   struct Request ──describe──> StructType ──lay out──> HostType: verifier's table, slots, BTF, C header
//!         │                                                 │
//!         '── &mut, for a run ──> Lending ── each field compared with its slot ──> C structure on the stack ──> r1
//!                                 TakingBack <── numbers that programs may write ──────────────┘
//! ```
//!
//! Invariants: the structure that a program gets is always laid out as the verifier assumed, whatever a host's
//! implementation of the traits does; slices are lent for the run only; a program writes no address, and nothing but
//! plain numbers and bytes. The C structure is a copy, so Rust's own layout, padding and enums are never seen.
//!
//! ```
//! use skep::host::{FieldType, HostContext, HostStruct, Lending, StructType, TakingBack};
//! use skep::{Object, Runtime, host::HostType, isa::Size};
//!
//! /// What `#[derive(Context)]` writes for `struct Row { age: u32, #[context(write)] rank: u32 }`.
//! struct Row {
//!     age: u32,
//!     rank: u32,
//! }
//!
//! impl HostStruct for Row {
//!     const NAME: &'static str = "row";
//!     fn describe(empty: StructType) -> StructType {
//!         let number = FieldType::Number { size: Size::B4, signed: false, writable: false };
//!         empty.field("age", number.clone()).field("rank", number.writable())
//!     }
//!     fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
//!         to.number(self.age);
//!         to.number(self.rank);
//!     }
//!     fn lend_shared<'r>(&'r self, to: &mut Lending<'r>) {
//!         to.number(self.age);
//!         to.number(self.rank);
//!     }
//!     fn take_back(&mut self, from: &mut TakingBack<'_>) {
//!         from.number(&mut self.age);
//!         from.number(&mut self.rank);
//!     }
//! }
//!
//! impl HostContext for Row {
//!     const SECTION: &'static str = "row_filter";
//!     type Kind = Self;
//!     type Verdict = bool;
//!     type Host = ();
//!     fn lend_with_host<'r>(&'r mut self, to: &mut Lending<'r>) -> &'r mut () {
//!         self.lend(to);
//!         skep::host::nothing()
//!     }
//! }
//!
//! let insns = skep::isa::assemble(
//!     "r2 = *(u32 *)(r1 + 0)      // age
//!      *(u32 *)(r1 + 4) = r2      // rank
//!      r0 = 0
//!      if r2 < 18 goto +1
//!      r0 = 1
//!      exit",
//! )
//! .expect("the text is right");
//! let kind = HostType::of::<Row>()?.program_type();
//! let runtime = Runtime::builder().context::<Row>().build()?;
//! let module = runtime.load(&Object::from_insns("adults", kind, insns))?;
//! let adults = module.typed::<Row>("adults")?;
//! let mut row = Row { age: 33, rank: 0 };
//! assert!(adults.run(&mut row)?);
//! assert_eq!(row.rank, 33);
//! # Ok::<(), skep::Error>(())
//! ```

mod btf;
mod data;
mod describe;
mod fields;
mod header;
mod layout;
mod lend;

#[cfg(all(test, feature = "derive"))]
mod tests;

pub use data::HostData;
pub use describe::{FieldType, HostContext, HostStruct, StructType, Verdict};
pub use fields::{Field, Number, Pointee, WritableField, assert_writable};
pub use layout::{HostType, VerdictType};
pub use lend::{Lending, TakingBack};

pub(crate) use layout::of;
pub(crate) use lend::{RunPart, Space};

use std::collections::BTreeMap;

/// What a runtime was given for programs of its host's types.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    pub(crate) types: Vec<&'static HostType>,
    /// Numbers of the functions that programs call by name.
    pub(crate) methods: BTreeMap<String, u32>,
}

/// The number of the first function that programs call by name: far from Linux's helpers, from the numbers that
/// hosts give, and from those of types.
const FIRST_METHOD: u32 = 0x2000_0000;

impl Registered {
    /// The type of programs in that section.
    pub(crate) fn of_section(&self, section: &str) -> Option<&'static HostType> {
        self.types.iter().copied().find(|host| host.has_section(section))
    }

    /// The number of the next function that programs call by name. These numbers follow one another.
    pub(crate) fn next_method(&self) -> u32 {
        FIRST_METHOD + self.methods.len() as u32
    }

    /// Whether that is the number of such a function.
    pub(crate) fn is_method(&self, id: u32) -> bool {
        (FIRST_METHOD..self.next_method()).contains(&id)
    }
}

/// What functions work on where a context has no part for them.
pub fn nothing<'r>() -> &'r mut () {
    // Takes no memory.
    Box::leak(Box::new(()))
}
