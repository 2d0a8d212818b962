//! The maps of an object as its users see them. They come from these places:
//!
//! ```text
//!   section .maps             types with attributes      --declared-->  one map for each variable
//!   sections maps, maps/NAME  numbers               --legacy---->  one map for each symbol
//!   .data, .rodata, .bss      bytes and symbols          --data------>  one map for each section
//!   .addr_space.1             bytes             --arena----->  the start of the declared arena
//!   .kconfig                  types of configuration     --externs--->  one map for all values
//! ```

mod arena;
mod data;
mod declared;
mod legacy;

pub(crate) use arena::{is_arena_data, place_in_arena};
pub(crate) use data::{is_data, of_section, set_variables};
pub(crate) use declared::{SECTION, declared};
pub(crate) use legacy::{is_legacy, legacy};

use std::ops::Range;
use std::sync::Arc;

use skep_abi::MapDef;
use skep_btf::Btf;

use crate::error::Error;

/// A map of an object: declared in `.maps`, or made from a section of global variables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectMap {
    /// Its definition. Maps of global variables are named after their sections (`.rodata`).
    pub def: MapDef,
    /// The first contents of its only element, or of an arena's start: `variable_bytes` bytes. `None` if there are no
    /// variables, or all are zero.
    pub initial: Option<Arc<[u8]>>,
    /// The variables in it, ascending by offset; empty for declared maps other than arenas.
    pub variables: Vec<Variable>,
    /// Bytes that its variables take: the value's size for maps of global variables; in an arena, bytes from its start.
    pub variable_bytes: u32,
    /// The first contents of its elements, for maps of maps and of programs.
    pub entries: Vec<MapEntry>,
    /// The key's type as C writes it, if declared by type.
    pub key_type: Option<String>,
    /// The value's type as C writes it, if declared by type.
    pub value_type: Option<String>,
    /// Whether the declaration asks for it to be shared by name (`LIBBPF_PIN_BY_NAME`).
    pub pinned: bool,
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name; `function.variable` for a static variable of a function.
    pub name: String,
    /// Bytes from the start of the map's value.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
    /// Whether programs may only read it.
    pub read_only: bool,
    /// Its type as C writes it, without qualifiers; `None` without type information.
    pub type_name: Option<String>,
}

/// The first contents of an element of a map of maps or of programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Its index; in a hash table, its key.
    pub index: u32,
    /// The map or program in it.
    pub target: EntryTarget,
}

/// What an element of a map holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryTarget {
    /// The map of this index in the object's list.
    Map(u32),
    /// The program of this name.
    Program(String),
}

impl ObjectMap {
    /// A map with nothing but its definition.
    pub(crate) fn new(def: MapDef) -> Self {
        Self {
            def,
            initial: None,
            variables: Vec::new(),
            variable_bytes: 0,
            entries: Vec::new(),
            key_type: None,
            value_type: None,
            pinned: false,
        }
    }

    /// Changes the first contents of its only element, and with them the constants that programs see.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut [u8])) {
        let constant = self.variables.first().is_some_and(|variable| variable.read_only);
        self.def.frozen = None; // so that there is one owner
        let size = self.variable_bytes as usize;
        let bytes = self.initial.get_or_insert_with(|| vec![0; size].into());
        change(Arc::make_mut(bytes));
        self.def.frozen = constant.then(|| bytes.clone());
    }
}

impl Variable {
    /// The bytes of the map's value that it takes.
    pub fn range(&self) -> Range<usize> {
        let start = self.offset as usize;
        start..start + self.size as usize
    }
}

/// Finds locks, timers and the like in a map's value, and the names of the types that they lead to.
fn set_fields(def: &mut MapDef, btf: &Btf, value: u32) -> Result<(), Error> {
    def.set_fields(btf, value).map_err(|error| match error {
        skep_btf::Error::Special { ty, reason } => Error::MapFields { map: def.name.clone(), ty, reason },
        other => other.into(),
    })
}
