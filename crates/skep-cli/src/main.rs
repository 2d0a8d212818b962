//! The `skep` command: loads BPF object files, verifies, compiles and runs them.
//!
//! Exit status: 0 done, 1 the program or the data was refused, 2 wrong usage. With `--json`, one JSON document
//! is all that stands on standard output; everything told to people goes to standard error.
#![forbid(unsafe_code)]

mod arch;
#[cfg(feature = "bench")]
mod bench;
mod capture;
mod conformance;
mod dump;
mod facts;
mod failure;
mod measure;
mod object;
mod output;
mod pack;
mod report;
mod run;
mod target;
mod verify;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs eBPF programs in user space: verified, compiled and packed.
#[derive(Parser)]
#[command(name = "skep", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Loads a program and runs it over a capture or on given bytes.
    Run(run::Args),
    /// Verifies programs without running them.
    Verify(verify::Args),
    /// Looks into programs.
    #[command(subcommand)]
    Prog(Prog),
    /// Looks into code memory.
    #[command(subcommand)]
    Pack(pack::Pack),
    /// Measures skep beside its opponents.
    #[cfg(feature = "bench")]
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Runs one program of the public bpf_conformance suite and prints r0 in hexadecimal.
    Conformance(conformance::Args),
}

#[derive(Subcommand)]
enum Prog {
    /// Prints a program's instructions as verified and rewritten, or as machine code.
    Dump(dump::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(&args),
        Command::Verify(args) => verify::main(&args),
        Command::Prog(Prog::Dump(args)) => dump::main(&args),
        Command::Pack(args) => pack::main(&args),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::main(&args),
        Command::Conformance(args) => conformance::main(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}
