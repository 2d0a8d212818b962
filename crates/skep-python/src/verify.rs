//! Verification without a load.

use crate::errors;
use crate::packet::type_named;
use pyo3::prelude::*;
use skep::{Object, ProgramOptions, VerifyOptions};

/// What verified: the program's name, its type, the instructions that were walked, and the log if it was asked for.
type Proof = (String, &'static str, u64, Vec<String>);

/// Verifies the programs of an object file without loading them, or one of them.
#[pyfunction]
#[pyo3(signature = (data, *, program=None, program_type=None, buffer_len=0, strict_alignment=false, log=false))]
pub(crate) fn verify(
    py: Python<'_>,
    data: &[u8],
    program: Option<&str>,
    program_type: Option<&str>,
    buffer_len: u32,
    strict_alignment: bool,
    log: bool,
) -> PyResult<Vec<Proof>> {
    let program_type = program_type.map(type_named).transpose()?;
    let options = ProgramOptions { program_type, buffer_len, ..ProgramOptions::default() };
    let proofs = py.detach(|| {
        let object = Object::parse(data)?;
        let names = program.map_or_else(|| object.programs(), |name| vec![name]);
        let mut proofs = Vec::new();
        for name in names {
            let mut lines = Vec::new();
            let mut add = |line: &str| lines.push(line.to_owned());
            let how = VerifyOptions {
                strict_alignment,
                log: log.then_some(&mut add as &mut dyn FnMut(&str)),
                ..VerifyOptions::default()
            };
            let verified = object.verify_with(name, options, how)?;
            let (kind, walked) = (verified.program_type().name, verified.stats().walked);
            proofs.push((verified.name().to_owned(), kind, walked, lines));
        }
        Ok(proofs)
    });
    proofs.map_err(|error| errors::raise(py, error))
}
