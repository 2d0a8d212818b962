//! `skep header`: the C header for plug-ins of a host, from the host's types.

use crate::failure::Failure;
use crate::output;
use skep::{Btf, HostType, Object};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The host's types: a file in BTF, as the host writes it (HostType::btf), or an object file that was compiled with
    /// such a header.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Prints the header.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let host = read(&args.file)?;
    output::text(&host.header())
}

/// The program type that a file describes.
fn read(path: &Path) -> Result<&'static HostType, Failure> {
    let bytes = std::fs::read(path)?;
    let refused = |error: String| Failure::Refused(format!("{}: {error}", path.display()));
    if !bytes.starts_with(b"\x7fELF") {
        let types = Btf::parse(bytes).map_err(|error| refused(error.to_string()))?;
        return HostType::from_btf(&types).map_err(|error| refused(error.to_string()));
    }
    let object = Object::parse(&bytes)?;
    let types = object.types().ok_or_else(|| refused("it has no types; compile it with -g".to_owned()))?;
    HostType::from_btf(types).map_err(|error| refused(error.to_string()))
}
