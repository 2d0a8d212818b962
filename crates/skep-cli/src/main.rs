//! The `skep` command: loads BPF object files, verifies, compiles and runs them.
//!
//! Exit status: 0 success, 1 the program or the data was refused, 2 wrong usage. With `--json`, standard output
//! holds exactly one JSON document; everything else goes to standard error.
#![forbid(unsafe_code)]

mod arch;
#[cfg(feature = "attach")]
mod attach;
mod btf;
mod capture;
mod cfg;
mod conformance;
mod contents;
mod debug;
mod docs;
mod dump;
mod exec;
mod facts;
mod failure;
mod fuzz;
mod header;
mod host;
mod kernels;
mod list;
mod load;
mod measure;
mod mutate;
mod object;
mod output;
mod pack;
mod page;
mod report;
mod run;
mod samples;
mod settings;
#[cfg(feature = "signatures")]
mod signature;
mod skeleton;
mod target;
mod test;
mod verify;
mod world;

use clap::{Parser, Subcommand};
use failure::Failure;
use std::process::ExitCode;

/// Run eBPF programs in user space: verified, compiled and packed.
#[derive(Parser)]
#[command(name = "skep", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a program and run it over a capture or on given bytes.
    Run(run::Args),
    /// Run a program over the frames of network interfaces, in user space.
    #[cfg(feature = "attach")]
    Attach(Box<attach::Args>),
    /// Run an application whose system call bpf(2) is answered by skep: no root, no BPF of the kernel.
    Exec(exec::Args),
    /// Test programs: tables of packets, maps and what is expected (*.test.toml), and checks in C.
    Test(test::Args),
    /// Look for inputs that reach new code, break a promise, or tell two versions of a program apart.
    Fuzz(fuzz::Args),
    /// Look at a run of a program, step by step, forwards and backwards.
    Debug(debug::Args),
    /// The debugger for editors: the Debug Adapter Protocol on standard input and output.
    Dap,
    /// Change a program, one instruction at a time, and say which changes no test notices.
    Mutate(mutate::Args),
    /// Verify programs without running them.
    Verify(verify::Args),
    /// Inspect types.
    #[command(subcommand)]
    Btf(btf::Command),
    /// Print the C header for plug-ins of a host with program types of its own.
    Header(header::Args),
    /// Inspect programs.
    #[command(subcommand)]
    Prog(Prog),
    /// Inspect maps.
    #[command(subcommand)]
    Map(Map),
    /// Print or draw the basic blocks of a program after verification.
    Cfg(cfg::Args),
    /// Write pages about an object, to read in a browser: programs, maps, control flow, facts, machine code.
    Report(page::Args),
    /// Generate code for hosts.
    #[command(subcommand)]
    Gen(Gen),
    /// Inspect code memory.
    #[command(subcommand)]
    Pack(pack::Pack),
    /// Print where the benchmarks are.
    #[command(hide = true, disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _arguments: Vec<String>,
    },
    /// Run one program of the public bpf_conformance suite and print r0 in hexadecimal.
    Conformance(conformance::Args),
    /// Print the script by which a shell completes skep's options.
    Completions(docs::Completions),
    /// Print the manual page, or write those of all subcommands.
    Man(docs::Man),
}

#[derive(Subcommand)]
enum Prog {
    /// List an object's programs, with their types, sizes and maps.
    List(list::Args),
    /// Print a program's instructions as verified and rewritten, or as machine code.
    Dump(dump::Args),
}

#[derive(Subcommand)]
enum Map {
    /// List an object's maps, with their kinds and types.
    List(list::Args),
}

#[derive(Subcommand)]
enum Gen {
    /// Print a module with an object's programs, and its maps and variables as types of Rust or C.
    Skeleton(skeleton::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse_from(conformance::reordered(std::env::args_os())).command {
        Command::Run(args) => run::main(&args),
        #[cfg(feature = "attach")]
        Command::Attach(args) => attach::main(&args),
        Command::Exec(args) => {
            return exec::main(&args).unwrap_or_else(Failure::report);
        }
        Command::Test(args) => test::main(&args),
        Command::Fuzz(args) => fuzz::main(&args),
        Command::Debug(args) => debug::main(&args),
        Command::Dap => debug::dap(),
        Command::Mutate(args) => mutate::main(&args),
        Command::Verify(args) => verify::main(&args),
        Command::Btf(command) => btf::main(&command),
        Command::Prog(Prog::Dump(args)) => dump::main(&args),
        Command::Prog(Prog::List(args)) => list::programs(&args),
        Command::Map(Map::List(args)) => list::maps(&args),
        Command::Cfg(args) => cfg::main(&args),
        Command::Report(args) => page::main(&args),
        Command::Gen(Gen::Skeleton(args)) => skeleton::main(&args),
        Command::Header(args) => header::main(&args),
        Command::Pack(args) => pack::main(&args),
        Command::Bench { .. } => Err(Failure::Usage(
            "the benchmarks are not part of this command; run `cargo xtask bench` in skep's repository"
                .to_owned(),
        )),
        Command::Conformance(args) => conformance::main(&args),
        Command::Completions(args) => docs::completions(&args),
        Command::Man(args) => docs::man(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
