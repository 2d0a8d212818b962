//! The native half of the Python package `skep`: what its classes in Python are made of.
//!
//! ```text
//!   skep (Python: mappings, dataclasses, docstrings)  -->  skep._skep (these classes)  -->  the crate `skep`
//! ```
//!
//! Three rules keep it free of deadlocks, on builds with a global interpreter lock and on free-threaded ones:
//!
//! 1. Whatever may wait (loads, runs, changes of maps, drops of modules) happens detached from the interpreter
//!    (`released`). A program that prints calls back into Python, so a thread that waits for that program must not
//!    keep the interpreter from it.
//! 2. No lock of this crate is held while Python code runs or is waited for.
//! 3. Nothing is checked and then done: a lock covers both, or one operation of the runtime does both.
//!
//! Python's allocator aligns objects to 16 bytes. What needs more is behind an `Arc` or a `Box`: `fits` checks each
//! class.
#![forbid(unsafe_code)]

mod convert;
mod errors;
mod events;
mod interrupt;
mod map;
mod module;
mod packet;
mod program;
mod released;
mod runtime;
mod tenant;
mod verify;
mod world;

use pyo3::prelude::*;

/// Refuses, at compile time, a class that Python's allocator would misalign.
macro_rules! fits {
    ($($class:ty),* $(,)?) => {
        $(const _: () = assert!(align_of::<$class>() <= 16, "put it in a Box or an Arc");)*
    };
}

fits!(
    events::Events,
    map::Map,
    module::Module,
    program::Program,
    runtime::Runtime,
    tenant::Tenant,
    world::Link,
    world::World,
);

/// The native half of the package `skep`. Use that package; names here may change.
#[pymodule]
mod _skep {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::events::Events;
    #[pymodule_export]
    use super::map::Map;
    #[pymodule_export]
    use super::module::Module;
    #[pymodule_export]
    use super::program::Program;
    #[pymodule_export]
    use super::runtime::Runtime;
    #[pymodule_export]
    use super::tenant::Tenant;
    #[pymodule_export]
    use super::verify::verify;
    #[pymodule_export]
    use super::world::{Link, World};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
