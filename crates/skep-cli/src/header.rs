//! `skep header`: the C header for plug-ins of a host, from the host's types.

use crate::failure::Failure;
use crate::output;
use crate::target;
use skep::HostType;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The host's types: a file in BTF, as the host writes it (HostType::btf), or an object file that was compiled with
    /// such a header.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Prints the header.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let host = HostType::from_btf(&target::types(&args.file)?)
        .map_err(|error| Failure::Refused(format!("{}: {error}", args.file.display())))?;
    output::text(&host.header())
}
