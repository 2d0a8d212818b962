//! The runtime's errors as Python exceptions. The classes are in `skep/_errors.py`; what they hold is set here.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use skep::json::{Mismatch, MismatchKind};
use skep::{Error, MapError, Refusal};
use std::path::Path;

/// An exception of `skep/_errors.py`, with attributes.
fn made(py: Python<'_>, class: &str, text: &str, data: &[(&str, PyResult<Py<PyAny>>)]) -> PyErr {
    let make = || {
        let made = py.import("skep._errors")?.getattr(class)?.call1((text,))?;
        for (name, value) in data {
            let value = value.as_ref().map_err(|error| error.clone_ref(py))?;
            made.setattr(*name, value)?;
        }
        Ok(made)
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

/// The exception for an error of the runtime.
pub(crate) fn raise(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    let class = match error {
        Error::Refused(refusal) => return refused(py, &text, &refusal),
        Error::Map(error) => return of_map(py, &error),
        Error::Unknown { what, name, known } => return unknown(py, what, name, known, &text),
        Error::NoField { name, known, .. } => return unknown(py, "field", name, known, &text),
        Error::Quota { tenant, what, used, wanted, limit } => {
            let data = [
                ("tenant", tenant.into_py_any(py)),
                ("resource", what.into_py_any(py)),
                ("used", used.into_py_any(py)),
                ("wanted", wanted.into_py_any(py)),
                ("limit", limit.into_py_any(py)),
            ];
            return made(py, "QuotaError", &text, &data);
        }
        Error::Object(_) | Error::Decode(_) | Error::Types { .. } => "ObjectError",
        Error::BudgetExhausted { .. } => "BudgetError",
        Error::Interrupted { .. } => "InterruptedRunError",
        Error::WrongInput { .. } | Error::FieldValue { .. } | Error::ContextBytes { .. } => "InputError",
        Error::FieldMissing { .. } | Error::NoContext { .. } => "InputError",
        Error::ConstantVariable { .. } | Error::VariableSize { .. } => "DataValueError",
        Error::Slots(_) | Error::LockHeld | Error::HostPanicked { .. } | Error::NoBudgets { .. } => {
            "RunError"
        }
        Error::World(_) | Error::WrongAttachment { .. } | Error::ForeignProgram { .. } => "WorldError",
        Error::OtherWorld { .. } => "WorldError",
        _ => "LoadError",
    };
    made(py, class, &text, &[])
}

/// The exception for a name that is not there.
pub(crate) fn unknown(py: Python<'_>, what: &str, name: String, known: Vec<String>, text: &str) -> PyErr {
    let data =
        [("what", what.into_py_any(py)), ("name", name.into_py_any(py)), ("known", known.into_py_any(py))];
    made(py, "UnknownNameError", text, &data)
}

/// What is wrong with a member of a dictionary of settings: the exception of its conversion, with the member's name.
pub(crate) fn of_member(py: Python<'_>, error: PyErr) -> PyErr {
    let text = error.value(py).to_string();
    let (Some(cause), Some((_, name))) = (error.cause(py), text.split_once('.')) else { return error };
    let inner = of_member(py, cause);
    let name = name.split_whitespace().next().unwrap_or_default();
    let made = inner.get_type(py).call1((format!("{name}: {}", inner.value(py)),));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The exception for an error of a map.
pub(crate) fn of_map(py: Python<'_>, error: &MapError) -> PyErr {
    let class = match error {
        MapError::Missing { .. } | MapError::OutOfRange { .. } => "MapKeyError",
        MapError::Full { .. } | MapError::QueueFull { .. } => "MapFullError",
        MapError::CannotDelete { .. } => return PyTypeError::new_err(error.to_string()),
        _ => "MapError",
    };
    made(py, class, &error.to_string(), &[("errno", error.errno().into_py_any(py))])
}

/// The exception for a value that cannot be the bytes.
pub(crate) fn mismatched(py: Python<'_>, error: &Mismatch) -> PyErr {
    let class = match error.kind {
        MismatchKind::Type => "DataTypeError",
        MismatchKind::Range => "DataRangeError",
        _ => "DataValueError",
    };
    made(py, class, &error.to_string(), &[("path", error.path.clone().into_py_any(py))])
}

/// The exception for a world's file, or for parts of a world.
pub(crate) fn of_world(py: Python<'_>, text: &str) -> PyErr {
    made(py, "WorldError", text, &[])
}

fn refused(py: Python<'_>, text: &str, refusal: &Refusal) -> PyErr {
    let steps = || {
        let class = py.import("skep._errors")?.getattr("Step")?;
        let steps = refusal.path.iter().map(|step| {
            let (file, source) = (step.file.as_deref(), step.source.as_deref());
            let place = (step.slot, step.text.as_str(), file, step.line, source);
            class.call1((place.0, place.1, place.2, place.3, place.4, step.state.as_str(), step.why.name()))
        });
        steps.collect::<PyResult<Vec<_>>>()?.into_py_any(py)
    };
    let file = refusal.file.as_deref().map(|file| Path::new(file).to_owned());
    let data = [
        ("program", refusal.program.as_str().into_py_any(py)),
        ("code", refusal.code.name().into_py_any(py)),
        ("slot", refusal.slot.into_py_any(py)),
        ("instruction", refusal.insn.as_str().into_py_any(py)),
        ("reason", refusal.reason.as_str().into_py_any(py)),
        ("remedy", refusal.suggestion.as_deref().into_py_any(py)),
        ("linux", refusal.words.as_deref().into_py_any(py)),
        ("file", file.into_py_any(py)),
        ("line", refusal.line.into_py_any(py)),
        ("source", refusal.source.as_deref().into_py_any(py)),
        ("path", steps()),
    ];
    made(py, "VerifierError", text, &data)
}
