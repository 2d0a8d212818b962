//! Python values as bytes and back, by the object's types, through the crate's JSON form ([`skep::json`]).
//!
//! JSON has no bytes, and Python has: `bytes` takes the place of `["0x50", "0x00"]` in the JSON form, in both
//! directions. On the way to the map so does an address of `ipaddress`; its bytes are in network order, as programs
//! read them.

use crate::errors;
use pyo3::exceptions::{PyOverflowError, PyRecursionError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyMemoryView, PyString, PyTuple,
};
use serde_json::{Map, Number, Value};
use skep::json::Shape;

/// The most values inside each other; types of objects have 32 at most.
const MAX_DEPTH: u32 = 64;

/// The bytes of a value. `name` is what errors call it.
pub(crate) fn to_bytes(shape: &Shape<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = value.cast::<PyBytes>()
        && bytes.as_bytes().len() == shape.size()
    {
        return Ok(bytes.as_bytes().to_vec());
    }
    let json = to_json(value, 0)?;
    shape.from_json(name, &json).map_err(|error| errors::mismatched(value.py(), &error))
}

/// The value of bytes. `frozen`: lists become tuples, as in keys.
pub(crate) fn from_bytes(
    py: Python<'_>,
    shape: &Shape<'_>,
    bytes: &[u8],
    frozen: bool,
) -> PyResult<Py<PyAny>> {
    Ok(from_json(py, &shape.to_exact_json(bytes), frozen)?.unbind())
}

fn to_json(value: &Bound<'_, PyAny>, depth: u32) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        return Err(PyRecursionError::new_err("the value has too many values inside each other"));
    }
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(truth.is_true().into());
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if value.is_instance_of::<PyFloat>() {
        let number: f64 = value.extract()?;
        let number = Number::from_f64(number);
        return number.map(Value::Number).ok_or_else(|| PyTypeError::new_err("expected a finite number"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_cow()?.into());
    }
    if let Some(bytes) = plain_bytes(value)? {
        return Ok(raw(&bytes));
    }
    if let Ok(mapping) = value.cast::<PyMapping>() {
        let mut fields = Map::new();
        for item in mapping.items()?.iter() {
            let (name, member): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            let Ok(name) = name.extract::<String>() else {
                let text = format!("the members of a structure have names, found {}", name.repr()?);
                return Err(PyTypeError::new_err(text));
            };
            fields.insert(name, to_json(&member, depth + 1)?);
        }
        return Ok(fields.into());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values = value.try_iter()?.map(|value| to_json(&value?, depth + 1));
        return Ok(Value::Array(values.collect::<PyResult<_>>()?));
    }
    // Numbers of other libraries.
    if value.hasattr(intern!(value.py(), "__index__"))? {
        return integer(&value.call_method0(intern!(value.py(), "__index__"))?);
    }
    // Addresses of `ipaddress`.
    if let Ok(packed) = value.getattr(intern!(value.py(), "packed"))
        && let Ok(bytes) = packed.cast::<PyBytes>()
    {
        return Ok(raw(bytes.as_bytes()));
    }
    let wanted = "expected None, bool, int, float, str, bytes, a mapping, a list or a tuple";
    Err(PyTypeError::new_err(format!("{wanted}; found {}", value.get_type().name()?)))
}

fn integer(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(number) = value.extract::<u64>() {
        return Ok(number.into());
    }
    value.extract::<i64>().map(Value::from).map_err(|_| {
        // The digits of a huge number may be refused by Python itself.
        let text = value.repr().map_or_else(|_| "the number".to_owned(), |text| text.to_string());
        PyOverflowError::new_err(format!("{text} does not fit 64 bits"))
    })
}

/// The bytes of something that is nothing but bytes.
fn plain_bytes(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Some(bytes.to_vec()));
    }
    if let Ok(view) = value.cast::<PyMemoryView>() {
        let bytes = view.call_method0(intern!(value.py(), "tobytes"))?;
        return Ok(Some(bytes.extract()?));
    }
    Ok(None)
}

fn raw(bytes: &[u8]) -> Value {
    bytes.iter().map(|byte| Value::from(format!("0x{byte:02x}"))).collect()
}

fn from_json<'py>(py: Python<'py>, value: &Value, frozen: bool) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (None, Some(number)) => number.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into_pyobject(py)?.into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => match bytes_of(values) {
            Some(bytes) => PyBytes::new(py, &bytes).into_any(),
            None => {
                let values = values.iter().map(|value| from_json(py, value, frozen));
                let values = values.collect::<PyResult<Vec<_>>>()?;
                if frozen {
                    PyTuple::new(py, values)?.into_any()
                } else {
                    PyList::new(py, values)?.into_any()
                }
            }
        },
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, from_json(py, value, frozen)?)?;
            }
            dict.into_any()
        }
    })
}

/// Bytes as the JSON form writes them. Only an array of texts that all look so is mistaken for them.
fn bytes_of(values: &[Value]) -> Option<Vec<u8>> {
    if values.is_empty() {
        return None;
    }
    let byte = |value: &Value| {
        let digits = value.as_str()?.strip_prefix("0x").filter(|digits| digits.len() == 2)?;
        u8::from_str_radix(digits, 16).ok()
    };
    values.iter().map(byte).collect()
}
