//! Variables as Rust types.

use super::shape::{self, Rules, Shape};
use crate::error::Error;
use crate::module::Module;
use crate::object::{Object, Variable};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Variables as Rust types.
impl Module {
    /// Sets a variable of loaded programs, and nothing else: other variables of the same section keep what programs
    /// write to them meanwhile.
    ///
    /// A value of 1, 2, 4 or 8 bytes whose variable is at a multiple of its size, as compilers place them, is stored
    /// at once. A larger one is stored in the largest aligned pieces of 8, 4, 2 and 1 bytes, each at once: programs
    /// that run meanwhile may see some pieces of the old value and some of the new.
    ///
    /// ```
    /// # use skep::{Object, Runtime};
    /// # fn main() -> Result<(), skep::Error> {
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/typed/typed.bpf.o");
    /// # let object = Object::open(path)?;
    /// let module = Runtime::new()?.linker(&object).set("scale", 3u32).load()?;
    /// module.set::<u32>("limit", 5)?;
    /// assert_eq!(module.get::<u32>("limit")?, 5);
    /// let error = module.set::<u32>("scale", 4).unwrap_err(); // const volatile
    /// assert!(error.to_string().contains("Linker::set"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]; [`Error::TypeMismatch`], as [the module says](crate::typed); [`Error::ConstantVariable`] for
    /// variables that programs may only read; [`Error::Map`] if the host froze the section's map.
    pub fn set<T: IntoBytes + Immutable + 'static>(&self, name: &str, value: T) -> Result<(), Error> {
        let size = self.variable_named(name)?.size;
        let ty = shape::type_of_variable(self.types(), name, size);
        compare(self.types(), ty, name, size, &Shape::of::<T>())?;
        self.set_variable(name, value.as_bytes())
    }

    /// The value of a variable; each aligned piece of 8, 4, 2 or 1 bytes is from one moment.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] and [`Error::TypeMismatch`].
    pub fn get<T: FromBytes + IntoBytes + 'static>(&self, name: &str) -> Result<T, Error> {
        let size = self.variable_named(name)?.size;
        let ty = shape::type_of_variable(self.types(), name, size);
        compare(self.types(), ty, name, size, &Shape::of::<T>())?;
        let mut value = T::new_zeroed();
        self.read_variable(name, value.as_mut_bytes())?;
        Ok(value)
    }
}

/// Compares a type with that of an object's variable.
pub(crate) fn check(object: &Object, variable: &Variable, given: &Shape) -> Result<(), Error> {
    let btf = object.types().map(|types| &**types);
    let ty = shape::type_of_variable(btf, &variable.name, variable.size);
    compare(btf, ty, &variable.name, variable.size, given)
}

fn compare(
    btf: Option<&skep_btf::Btf>,
    ty: Option<u32>,
    name: &str,
    size: usize,
    given: &Shape,
) -> Result<(), Error> {
    // Sections are shorter than 2^32 bytes.
    shape::compare(btf, ty, size as u32, &format!("variable {name}"), given, Rules::default())
}
