//! Standard output: documents and tables, each written as a whole.

use crate::failure::Failure;
use serde::Serialize;
use skep::escaped;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

/// Writes text. A closed pipe (`| head`) is not a failure.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    write(&escaped(text))
}

/// Whether standard output shows colours.
pub(crate) fn is_colourful() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Writes text whose control characters are escaped already, but for those that colour it. Returns whether somebody
/// still reads standard output.
pub(crate) fn coloured(text: &str) -> Result<bool, Failure> {
    write_or_closed(text)
}

/// Writes what asks for a line, without ending its own.
pub(crate) fn prompt(text: &str) -> Result<(), Failure> {
    write(text)
}

/// A piece of text and its terminal colour, as an SGR code.
pub(crate) type Piece = (Option<u8>, String);

/// Writes text, in colours if standard output is a terminal and `NO_COLOR` is not set.
pub(crate) fn pieces(pieces: &[Piece]) -> Result<(), Failure> {
    let colourful = is_colourful();
    let piece = |(colour, text): &Piece| match colour.filter(|_| colourful) {
        Some(colour) => format!("\u{1b}[{colour}m{}\u{1b}[0m", escaped(text)),
        None => escaped(text),
    };
    write(&pieces.iter().map(piece).collect::<String>())
}

/// Writes text to standard error; write errors are ignored.
pub(crate) fn complaint(text: &str) {
    let _ = io::stderr().lock().write_all(escaped(text).as_bytes());
}

/// Writes a file.
pub(crate) fn file(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, bytes)
        .map_err(|error| Failure::Refused(format!("cannot write {}: {error}", path.display())))
}

fn write(text: &str) -> Result<(), Failure> {
    write_or_closed(text).map(drop)
}

/// Writes text. Returns `false` if the pipe is closed.
fn write_or_closed(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Refused(format!("cannot write to standard output: {error}"))),
    }
}

/// Text in XML 1.0: markup characters as entities, characters that XML does not allow replaced.
pub(crate) fn xml(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for c in words.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Writes one JSON document as a line. Returns whether somebody still reads standard output.
#[cfg(feature = "attach")]
pub(crate) fn line(document: &impl Serialize) -> Result<bool, Failure> {
    let mut line = serde_json::to_string(document).map_err(|error| Failure::Refused(error.to_string()))?;
    line.push('\n');
    write_or_closed(&line)
}

/// Writes one JSON document.
pub(crate) fn json(document: &impl Serialize) -> Result<(), Failure> {
    let mut document =
        serde_json::to_string_pretty(document).map_err(|error| Failure::Refused(error.to_string()))?;
    document.push('\n');
    write(&document)
}
