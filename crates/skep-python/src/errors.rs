//! Errors as Python's exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(skep, SkepError, PyException, "What skep could not do, and the remedy.");
create_exception!(
    skep,
    Refused,
    SkepError,
    "The verifier refused a program. `program`, `code`, `insn`, `file`, `line`, `source`, `reason` and `suggestion` say which, \
     where and why."
);

/// The exception for an error of the library.
pub(crate) fn raised(py: Python<'_>, error: &skep::Error) -> PyErr {
    let skep::Error::Refused(refusal) = error else { return SkepError::new_err(error.to_string()) };
    let mut text = refusal.to_string();
    if let Some(source) = refusal.source.as_deref().filter(|text| !text.is_empty()) {
        text = format!("{text}\n    {}", source.trim());
    }
    for step in &refusal.path {
        text = format!("{text}\n{:>6}: {}  {} {}", step.slot, step.text, step.why.name(), step.state);
    }
    let raised = Refused::new_err(text);
    let value = raised.value(py);
    let told = [
        value.setattr("program", &refusal.program),
        value.setattr("code", refusal.code.name()),
        value.setattr("insn", refusal.slot),
        value.setattr("file", refusal.file.as_deref()),
        value.setattr("line", refusal.line),
        value.setattr("source", refusal.source.as_deref().map(str::trim)),
        value.setattr("reason", &refusal.reason),
        value.setattr("suggestion", refusal.suggestion.as_deref()),
    ];
    match told.into_iter().find_map(Result::err) {
        Some(error) => error,
        None => raised,
    }
}

/// The exception for any other error.
pub(crate) fn failed(error: impl std::fmt::Display) -> PyErr {
    SkepError::new_err(error.to_string())
}
