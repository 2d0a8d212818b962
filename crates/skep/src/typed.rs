//! Typed data: views of maps, and variables, as Rust types.
//!
//! **Problem.** A map's keys and values are bytes, which programs write. A host wants structures.
//!
//! **Invariant.** Any bytes that a program may write are a value of the Rust type. So the types are those of
//! `zerocopy` that any bytes make valid (`FromBytes`) and that have no padding (`IntoBytes`). A `bool`, an `enum` or a
//! reference in such a structure does not compile: a program could write 2 into a `bool`.
//!
//! **Checks**, once, when a view is made or a variable is named:
//!
//! | known of the Rust type | compared with | always |
//! |---|---|---|
//! | its size | the map's key or value size, the variable's size | yes |
//! | that it is an integer or float, its sign | the type in the object (BTF) | where the object has types |
//! | names, offsets, sizes, signs of fields: [`fields!`](crate::fields) | the structure in the object | where listed |
//!
//! Not compared: fields that are not listed, and what is inside of a field that is a structure itself. The signs of
//! keys of arrays are not compared either, since `int` is often used for them.
//!
//! Values are copied, never borrowed: programs change them meanwhile. Which parts of a value are from one moment is
//! said in the documentation of [`Map`].
//!
//! ```
//! use skep::{Object, Packet, Runtime};
//! use zerocopy::{FromBytes, Immutable, IntoBytes};
//!
//! #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
//! #[repr(C)]
//! struct Counter {
//!     packets: u64,
//!     bytes: u64,
//! }
//!
//! # fn main() -> Result<(), skep::Error> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/firewall.bpf.o");
//! let module = Runtime::new()?.load(&Object::open(path)?)?;
//! let verdicts = module.per_cpu_map::<u32, Counter>("verdicts")?;
//! module.program("firewall").unwrap().run(&mut Packet::new(&[0; 60]))?;
//! let all: u64 = verdicts.values().flat_map(|of_cpus| of_cpus.to_vec()).map(|counter| counter.packets).sum();
//! assert_eq!(all, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Types that not all bytes make valid do not compile:
//!
//! ```compile_fail
//! # use zerocopy::{FromBytes, Immutable, IntoBytes};
//! #[derive(FromBytes, IntoBytes, Immutable)]
//! #[repr(C)]
//! struct Rule {
//!     allowed: bool, // use u8
//! }
//! ```
//!
//! ```compile_fail
//! # fn view(module: &skep::Module) {
//! let flags = module.typed_map::<u32, bool>("flags");
//! # }
//! ```

mod map;
mod per_cpu;
mod prefix;
mod queue;
mod shape;
mod variables;

pub use map::TypedMap;
pub use per_cpu::{PerCpu, PerCpuMap};
pub use prefix::Prefix;
pub use queue::TypedQueue;
pub(crate) use shape::Shape;
pub use shape::{Field, FieldsOf};
pub(crate) use variables::check;

use crate::error::Error;
use crate::module::Module;
use skep_maps::Map;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Typed views of maps.
impl Module {
    /// The map with this name as a map from `K` to `V`: an array, a hash table, LRU or not, a trie ([`Prefix`] keys).
    /// Per-CPU kinds have [`per_cpu_map`](Self::per_cpu_map).
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]; [`Error::WrongView`] for other kinds; [`Error::TypeMismatch`], as [the module
    /// says](crate::typed).
    pub fn typed_map<K, V>(&self, name: &str) -> Result<TypedMap<K, V>, Error>
    where
        K: FromBytes + IntoBytes + Immutable + 'static,
        V: FromBytes + IntoBytes + Immutable + 'static,
    {
        let view = TypedMap::new(self.map_named(name)?)?;
        self.check_map(name, Some(&Shape::of::<K>()), &Shape::of::<V>())?;
        Ok(view)
    }

    /// The per-CPU map with this name as a map from `K` to a `V` for each virtual CPU.
    ///
    /// # Errors
    ///
    /// As [`typed_map`](Self::typed_map).
    pub fn per_cpu_map<K, V>(&self, name: &str) -> Result<PerCpuMap<K, V>, Error>
    where
        K: FromBytes + IntoBytes + Immutable + 'static,
        V: FromBytes + IntoBytes + Immutable + 'static,
    {
        let view = PerCpuMap::new(self.map_named(name)?)?;
        self.check_map(name, Some(&Shape::of::<K>()), &Shape::of::<V>())?;
        Ok(view)
    }

    /// The queue or stack with this name, with elements of type `V`.
    ///
    /// # Errors
    ///
    /// As [`typed_map`](Self::typed_map).
    pub fn queue<V>(&self, name: &str) -> Result<TypedQueue<V>, Error>
    where
        V: FromBytes + IntoBytes + Immutable + 'static,
    {
        let view = TypedQueue::new(self.map_named(name)?)?;
        self.check_map(name, None, &Shape::of::<V>())?;
        Ok(view)
    }

    /// Compares fields of a Rust structure with the structure that the object has for the keys of a map.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]; [`Error::TypeMismatch`] for the first field that differs, and if the object has no types
    /// for it.
    pub fn check_key<T>(&self, map: &str, fields: &FieldsOf<T>) -> Result<(), Error> {
        let (key, _) = self.map_types(map)?;
        shape::fields(self.types(), key, &format!("key of map {map}"), &fields.0)
    }

    /// Compares fields of a Rust structure with the structure that the object has for the values of a map.
    ///
    /// # Errors
    ///
    /// As [`check_key`](Self::check_key).
    pub fn check_value<T>(&self, map: &str, fields: &FieldsOf<T>) -> Result<(), Error> {
        let (_, value) = self.map_types(map)?;
        shape::fields(self.types(), value, &format!("value of map {map}"), &fields.0)
    }

    /// Compares fields of a Rust structure with the structure of a variable.
    ///
    /// # Errors
    ///
    /// As [`check_key`](Self::check_key).
    pub fn check_variable<T>(&self, name: &str, fields: &FieldsOf<T>) -> Result<(), Error> {
        let size = self.variable_named(name)?.size;
        let ty = shape::type_of_variable(self.types(), name, size);
        shape::fields(self.types(), ty, &format!("variable {name}"), &fields.0)
    }

    fn check_map(&self, name: &str, key: Option<&Shape>, value: &Shape) -> Result<(), Error> {
        let map = self.map_named(name)?;
        let (key_type, value_type) = self.map_types(name)?;
        let def = map.def();
        if let Some(key) = key {
            let rules = shape::Rules { any_sign: def.kind.is_array() };
            shape::compare(self.types(), key_type, def.key_size, &format!("key of map {name}"), key, rules)?;
        }
        let rules = shape::Rules::default();
        shape::compare(
            self.types(),
            value_type,
            def.value_size,
            &format!("value of map {name}"),
            value,
            rules,
        )
    }
}

fn same_size<T>(map: &Map, what: &'static str, bytes: u32) -> Result<(), Error> {
    if size_of::<T>() == bytes as usize {
        return Ok(());
    }
    Err(Error::TypeMismatch {
        place: format!("{what} of map {}", map.name()),
        expected: format!("{bytes} bytes"),
        given: format!("{}, which has {} bytes", std::any::type_name::<T>(), size_of::<T>()),
    })
}

fn wrong_view(map: &Arc<Map>, wanted: &'static str) -> Error {
    Error::WrongView { map: map.name().to_owned(), kind: map.kind(), wanted }
}
