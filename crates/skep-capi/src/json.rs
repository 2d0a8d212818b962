//! Maps and variables as JSON, by the object's types.

use crate::argument::{name, place, shared};
use crate::status::{Failure, guard};
use crate::text::give_text;
use serde_json::Value;
use skep::Module;
use std::ffi::{c_char, c_int};

fn parse(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::text(format!("this is not JSON: {error}")))
}

/// The elements of a map as a list.
///
/// # Safety
///
/// `module` is null or not freed; `map` is null or ends in a zero byte; `text` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_map_json(
    module: *const Module,
    map: *const c_char,
    text: *mut *mut c_char,
) -> c_int {
    guard(|| {
        let to = place(text, "skep_module_map_json: text")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let module = shared(module, "skep_module_map_json: module")?;
            let map = module.map_json(name(map, "skep_module_map_json: map")?)?;
            give_text(to, &map.to_json().to_string());
        }
        Ok(())
    })
}

/// Sets an element, or the elements of a list.
///
/// # Safety
///
/// `module` is null or not freed; `map` and `text` are null or end in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_map_insert_json(
    module: *const Module,
    map: *const c_char,
    text: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        let (map, value) = unsafe {
            let module = shared(module, "skep_module_map_insert_json: module")?;
            let map = module.map_json(name(map, "skep_module_map_insert_json: map")?)?;
            (map, parse(name(text, "skep_module_map_insert_json: text")?)?)
        };
        let insert = |at: &str, element: &Value| map.insert(at, element).map(|_| ());
        let done = match &value {
            Value::Array(elements) => elements
                .iter()
                .enumerate()
                .try_for_each(|(index, element)| insert(&format!("element {index}"), element)),
            element => insert("element", element),
        };
        done.map_err(|mismatch| Failure::text(format!("map `{}`: {mismatch}", map.map().name())))
    })
}

/// A variable's value.
///
/// # Safety
///
/// `module` is null or not freed; `variable` is null or ends in a zero byte; `text` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_variable_json(
    module: *const Module,
    variable: *const c_char,
    text: *mut *mut c_char,
) -> c_int {
    guard(|| {
        let to = place(text, "skep_module_variable_json: text")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let module = shared(module, "skep_module_variable_json: module")?;
            let name = name(variable, "skep_module_variable_json: variable")?;
            let value = module.variable_json(name)?.to_json(&module.variable(name)?);
            give_text(to, &value.to_string());
        }
        Ok(())
    })
}

/// Sets a variable.
///
/// # Safety
///
/// `module` is null or not freed; `variable` and `text` are null or end in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_module_set_variable_json(
    module: *const Module,
    variable: *const c_char,
    text: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to all.
        let (module, name, value) = unsafe {
            let module = shared(module, "skep_module_set_variable_json: module")?;
            let name = name(variable, "skep_module_set_variable_json: variable")?;
            (module, name, parse(crate::argument::name(text, "skep_module_set_variable_json: text")?)?)
        };
        let bytes = module.variable_json(name)?.from_json(name, &value);
        let bytes = bytes.map_err(|mismatch| Failure::text(format!("variable {mismatch}")))?;
        Ok(module.set_variable(name, &bytes)?)
    })
}
