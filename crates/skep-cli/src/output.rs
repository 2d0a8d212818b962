//! Standard output: documents and tables, written whole.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Writes text. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Refused(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON document.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let mut document =
        serde_json::to_string_pretty(document).map_err(|error| Failure::Refused(error.to_string()))?;
    document.push('\n');
    text(&document)
}
