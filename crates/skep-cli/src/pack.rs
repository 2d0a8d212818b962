//! `skep pack show`: what lies where in the code memory of a running example.
//!
//! The arena says what every byte of its packs is, but not whose: names come from the programs that are alive and from
//! what is remembered of those that were freed. Three steps, a file each and the pictures one each:
//!
//! ```text
//!   host: loads, runs, frees ──> snapshot: figures, and packs as spans ──> text, svg, JSON
//! ```
//!
//! The snapshot is taken while nothing moves: the keeper has done what it was asked to, and a reader holds back what
//! was freed last. So the figures and the spans, which are read one after the other, speak of the same moment.

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
    /// Draws the packs of a running example: programs, holes, what waits for readers.
    Show(Show),
}

#[derive(clap::Args)]
pub(crate) struct Show {
    /// BPF object files whose programs are loaded; skep's own examples where none is given.
    #[arg(value_name = "OBJ")]
    objects: Vec<PathBuf>,
    /// How often each object is loaded.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    copies: u32,
    /// How often a quarter of them is freed, at random, and others are loaded in their stead. 0 frees nothing at all.
    #[arg(long, value_name = "ROUNDS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=1000))]
    churn: u32,
    /// For programs of type `raw`: the length of the buffer that they are run on.
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(..=1 << 20))]
    data_len: u32,
    /// Writes a heat map to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Insists on this kind of memory.
    #[arg(long, value_name = "KIND")]
    backing: Option<Kind>,
    /// Leaves all packs on small pages.
    #[arg(long)]
    no_huge: bool,
    /// Makes huge pages of all packs, however little they hold.
    #[arg(long, conflicts_with = "no_huge")]
    promote: bool,
    /// Places programs at random.
    #[arg(long)]
    random: bool,
    /// Prints one JSON document.
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

/// Runs the command.
pub(crate) fn main(pack: &Pack) -> Result<(), Failure> {
    let Pack::Show(args) = pack;
    let on_stdout = args.svg.as_deref() == Some(Path::new("-"));
    if on_stdout && args.json {
        return Err(Failure::Usage(
            "--json and --svg - both want standard output; name a file for one of them".into(),
        ));
    }
    let snapshot = host::run(args)?;
    let told = |error: std::fmt::Error| Failure::Refused(error.to_string());
    match &args.svg {
        Some(_) if on_stdout => output::text(&svg::draw(&snapshot).map_err(told)?)?,
        Some(path) => {
            std::fs::write(path, svg::draw(&snapshot).map_err(told)?)
                .map_err(|source| Failure::Refused(format!("cannot write {}: {source}", path.display())))?;
        }
        None => {}
    }
    if args.json {
        output::complaint(&text::story(&snapshot).map_err(told)?);
        return output::json(&snapshot);
    }
    let text = text::tell(&snapshot).map_err(told)?;
    if on_stdout {
        output::complaint(&text);
        return Ok(());
    }
    output::text(&text)
}
