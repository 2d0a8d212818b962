//! Errors: of the files of tests.

use std::path::PathBuf;

/// A file of tests is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {text}", path.display())]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub text: String,
}

/// Why tests could not be found or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder could not be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of tests is wrong.
    #[error(transparent)]
    Table(#[from] TableError),
    /// An object with tests is none.
    #[error("{}: {source}", path.display())]
    Object {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<skep_elf::Error>,
    },
    /// A path has no tests.
    #[error("{} has no tests: expected *.test.toml, or objects with sections like xdp/test/NAME/check", path.display())]
    NoTests {
        /// The path.
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn file(verb: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { verb, path: path.to_owned(), source }
    }
}
