//! skep for Python: the extension module `skep._skep`.
//!
//! ```text
//!   skep (python/skep)    what people import: maps as mappings, structures as dictionaries, pytest's fixtures
//!   skep._skep (here)     bytes, numbers and JSON values in, the same out; errors
//!   skep (the library)
//! ```
//!
//! Nothing here holds a Python object while a program runs, but the one that receives messages of `bpf_printk`. Long
//! calls (loads, waits for records) let other threads of Python run.
// The interpreter's interface is unsafe by nature; every unsafe block here is made by PyO3's macros.
#![allow(missing_docs)]

mod context;
mod errors;
mod events;
mod map;
mod module;
mod program;
mod values;
mod world;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
fn _skep(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SkepError", module.py().get_type::<errors::SkepError>())?;
    module.add("Refused", module.py().get_type::<errors::Refused>())?;
    module.add_class::<module::Runtime>()?;
    module.add_class::<module::Module>()?;
    module.add_class::<program::Program>()?;
    module.add_class::<program::Outcome>()?;
    module.add_class::<map::RawMap>()?;
    module.add_class::<events::RingBuffer>()?;
    module.add_class::<world::World>()?;
    module.add_class::<world::Trace>()?;
    module.add_class::<world::Link>()?;
    Ok(())
}
