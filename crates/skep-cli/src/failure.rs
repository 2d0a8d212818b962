//! Why a command ends early, and its exit status.

use crate::{capture, output};
use std::io;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The program or the data was refused: status 1.
    #[error("{0}")]
    Refused(String),
    /// The command was called wrongly: status 2.
    #[error("{0}")]
    Usage(String),
    /// The reason was already reported: status 1 and no further text.
    #[error("")]
    AlreadyReported,
}

impl Failure {
    /// Prints the failure on standard error and returns the exit status.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Refused(text) => {
                output::complaint(&format!("skep: {text}\n"));
                ExitCode::from(1)
            }
            Self::Usage(text) => {
                let help = "For more information, try 'skep --help'.";
                output::complaint(&format!("skep: {text}\n\n{help}\n"));
                ExitCode::from(2)
            }
            Self::AlreadyReported => ExitCode::from(1),
        }
    }
}

impl From<skep::Error> for Failure {
    fn from(error: skep::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

#[cfg(feature = "attach")]
impl From<skep_attach::Error> for Failure {
    fn from(error: skep_attach::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<capture::Error> for Failure {
    fn from(error: capture::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.to_string())
    }
}
