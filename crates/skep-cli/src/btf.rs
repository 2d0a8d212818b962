//! `skep btf dump`: the types of an object, of a kernel or of a module.

mod raw;

use crate::failure::Failure;
use crate::{object, output};
use clap::{Subcommand, ValueEnum};
use skep::{Btf, Error};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print types: one by one as bpftool does, or as a C header.
    Dump(Args),
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Raw BTF, or an ELF file that has it: a BPF object, a kernel, a module; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The types of the kernel that those of a module continue.
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// What to print: one line for each type and member, or a header for programs in C (`vmlinux.h`).
    #[arg(long, value_enum, default_value_t = Format::Raw)]
    format: Format,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Raw,
    C,
}

/// Runs the command.
pub(crate) fn main(command: &Command) -> Result<(), Failure> {
    let Command::Dump(args) = command;
    let named = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Types { path, source }
    };
    let types = match &args.base {
        None => Btf::parse(object::bytes(&args.file)?),
        Some(base) => {
            let base = Btf::parse(object::bytes(base)?).map_err(named(base))?;
            Btf::parse_split(object::bytes(&args.file)?, Arc::new(base))
        }
    };
    let types = types.map_err(named(&args.file))?;
    if args.json {
        return output::json(&raw::document(&types).map_err(named(&args.file))?);
    }
    match args.format {
        Format::Raw => output::text(&raw::text(&types).map_err(named(&args.file))?),
        Format::C => output::text(&types.c_header().map_err(named(&args.file))?),
    }
}
