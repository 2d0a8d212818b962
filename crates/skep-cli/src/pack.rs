//! `skep pack show`: the layout of the code memory of a running example.
//!
//! The arena knows the state of every byte of its packs, but not the owner. Names come from the live programs and
//! from a record of the freed ones. There are three steps, one file each, and one for each output:
//!
//! ```text
//!   host: loads, runs, frees ──> snapshot: figures, and packs as spans ──> text, svg, JSON
//! ```
//!
//! The snapshot is taken while nothing changes: the keeper is idle, and a reader holds back what was freed last. So
//! figures and spans, which are read one after the other, describe the same moment.

mod host;
mod palette;
mod snapshot;
mod svg;
mod text;

use crate::failure::Failure;
use crate::output;
use clap::{Subcommand, ValueEnum};
use skep::text::Backing;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
pub(crate) enum Pack {
    /// Draw the packs of a running example: programs, holes, code that waits for readers.
    Show(Show),
}

#[derive(clap::Args)]
pub(crate) struct Show {
    /// BPF object files whose programs are loaded; skep's own examples by default.
    #[arg(value_name = "OBJ")]
    objects: Vec<PathBuf>,
    /// How often each object is loaded.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    copies: u32,
    /// How often a quarter of the objects is freed, at random, and replaced by others; 0 frees nothing.
    #[arg(long, value_name = "ROUNDS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=1000))]
    churn: u32,
    /// Length of the buffer, in bytes, for programs of type `raw`.
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    data_len: u32,
    /// Write a heat map to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Require this kind of memory.
    #[arg(long, value_name = "KIND")]
    backing: Option<Kind>,
    /// Keep all packs on small pages.
    #[arg(long)]
    no_huge: bool,
    /// Make all packs huge pages, however little they hold.
    #[arg(long, conflicts_with = "no_huge")]
    promote: bool,
    /// Place programs at random.
    #[arg(long)]
    random: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// [`Backing`], as an option's value.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Memory files mapped twice.
    Memfd,
    /// Memory files without a writable mapping.
    Hardened,
    /// Anonymous memory, written through /proc/self/mem.
    Procmem,
}

impl Kind {
    fn backing(self) -> Backing {
        match self {
            Self::Memfd => Backing::Memfd,
            Self::Hardened => Backing::Hardened,
            Self::Procmem => Backing::Procmem,
        }
    }
}

/// The drawing of the packs after one load of an object.
pub(crate) fn drawing(object: &Path, data_len: u32) -> Result<String, Failure> {
    let one = Show {
        objects: vec![object.to_owned()],
        copies: 1,
        churn: 0,
        data_len,
        svg: None,
        backing: None,
        no_huge: false,
        promote: false,
        random: false,
        json: false,
    };
    svg::draw(&host::run(&one)?).map_err(|error| Failure::Refused(error.to_string()))
}

/// Runs the command.
pub(crate) fn main(pack: &Pack) -> Result<(), Failure> {
    let Pack::Show(args) = pack;
    let on_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if on_stdout && args.json {
        return Err(Failure::Usage(
            "--json and --svg - both write to standard output; give --svg a file".into(),
        ));
    }
    let snapshot = host::run(args)?;
    let refused = |error: std::fmt::Error| Failure::Refused(error.to_string());
    match &args.svg {
        Some(_) if on_stdout => output::text(&svg::draw(&snapshot).map_err(refused)?)?,
        Some(path) => {
            output::file(path, svg::draw(&snapshot).map_err(refused)?)?;
        }
        None => {}
    }
    if args.json {
        output::complaint(&text::story(&snapshot).map_err(refused)?);
        return output::json(&snapshot);
    }
    let text = text::render(&snapshot).map_err(refused)?;
    if on_stdout {
        output::complaint(&text);
        return Ok(());
    }
    output::text(&text)
}
