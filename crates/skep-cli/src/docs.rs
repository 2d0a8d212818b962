//! `skep completions` and `skep man`: what packages install beside the command, made from its own options.

use crate::failure::Failure;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell that reads the script.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct Man {
    /// Write a page for the command and for each of its subcommands into this folder, instead of printing the
    /// command's.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the script that completes the command's options in a shell.
pub(crate) fn completions(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "skep", &mut script);
    output::text(&String::from_utf8_lossy(&script))
}

/// Prints or writes manual pages.
pub(crate) fn man(args: &Man) -> Result<(), Failure> {
    let command = crate::Cli::command();
    match &args.out {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            output::text(&String::from_utf8_lossy(&page))
        }
        Some(folder) => {
            let place = |error| Failure::Refused(format!("cannot write to {}: {error}", folder.display()));
            std::fs::create_dir_all(folder).map_err(place)?;
            clap_mangen::generate_to(command, folder).map_err(place)
        }
    }
}
