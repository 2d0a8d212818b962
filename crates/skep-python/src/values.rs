//! Values of maps and variables: Python's numbers, text, lists and dictionaries by the object's types, or bytes.

use crate::errors::failed;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use skep::json::Shape;

/// The bytes of a value. Bytes are taken as they are, if they have the right size.
pub(crate) fn bytes(shape: &Shape<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(given) = value.cast::<PyBytes>() {
        return sized(given.as_bytes().to_vec(), shape, name);
    }
    if let Ok(given) = value.cast::<PyByteArray>() {
        return sized(given.to_vec(), shape, name);
    }
    let json: serde_json::Value =
        pythonize::depythonize(value).map_err(|error| PyTypeError::new_err(format!("{name}: {error}")))?;
    shape.from_json(name, &json).map_err(|mismatch| PyValueError::new_err(mismatch.to_string()))
}

fn sized(bytes: Vec<u8>, shape: &Shape<'_>, name: &str) -> PyResult<Vec<u8>> {
    if bytes.len() == shape.size() {
        return Ok(bytes);
    }
    let text = format!("{name}: expected {} bytes, found {}", shape.size(), bytes.len());
    Err(PyValueError::new_err(text))
}

/// The value of bytes.
pub(crate) fn value<'py>(py: Python<'py>, shape: &Shape<'_>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    pythonize::pythonize(py, &shape.to_exact_json(bytes)).map_err(failed)
}

/// The bytes of an input: `bytes`, `bytearray`, or what `bytes(...)` makes of it (packets of scapy).
pub(crate) fn input(data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(given) = data.cast::<PyBytes>() {
        return Ok(given.as_bytes().to_vec());
    }
    // `bytes(5)` would be five zeroes.
    if data.hasattr("__bytes__")? || data.is_instance_of::<PyByteArray>() || data.hasattr("tobytes")? {
        let made = data.py().get_type::<PyBytes>().call1((data,))?;
        return Ok(made.cast::<PyBytes>()?.as_bytes().to_vec());
    }
    Err(PyTypeError::new_err(format!(
        "expected bytes, or an object that has them (__bytes__), found {}",
        data.get_type().name()?
    )))
}
