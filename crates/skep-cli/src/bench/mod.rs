//! `skep bench`: the benchmarks, as text for people or JSON for scripts. Each has a file that says its options and its
//! tables; what is measured is in the crate `skep-bench`.

mod alloc;
mod exec;
mod flow;
mod htab_mem;
mod load;
mod map;
mod pack;
mod poke;
mod tail;
mod verify;

use crate::failure::Failure;
use clap::Subcommand;
use skep_bench::load::Target;
use std::fmt::{self, Write};
use std::process::Command;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Memory for objects against mimalloc and malloc, grace periods, and read sections.
    Alloc(alloc::Alloc),
    /// Running speed, code size and load time against rbpf, solana-sbpf and native code.
    Exec(exec::Exec),
    /// Packets through a flow dissector that jumps from parser to parser by tail calls, and without.
    FlowDissector(flow::Flow),
    /// A hash table's speed and memory under each policy of reuse, in the published cases.
    HtabMem(htab_mem::HtabMem),
    /// The load test: 40,945 programs verified, compiled, compared by their tags and freed.
    Load(load::Load),
    /// Maps: what a look-up, an update, and an insertion with its deletion take, from programs and from the host.
    Map(map::Map),
    /// Many programs on a page each, in packs, and in packs on huge pages.
    Pack(pack::Pack),
    /// Changing branches in code that runs: what it costs, and whether it is ever seen half done.
    Poke(poke::Poke),
    /// Tail calls: what one takes, and what changing one takes while it is made.
    TailCall(tail::TailCall),
    /// Verification: time for each walked instruction, states and memory.
    Verify(verify::Verify),
}

/// Runs the command.
pub(crate) fn main(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Alloc(args) => alloc::main(args),
        Bench::Exec(args) => exec::main(args),
        Bench::FlowDissector(args) => flow::main(args),
        Bench::HtabMem(args) => htab_mem::main(args),
        Bench::Load(args) => load::main(args),
        Bench::Map(args) => map::main(args),
        Bench::Pack(args) => pack::main(args),
        Bench::Poke(args) => poke::main(args),
        Bench::TailCall(args) => tail::main(args),
        Bench::Verify(args) => verify::main(args),
    }
}

/// This program with `--only-linux`, to ask the kernel in a process of its own, where that is wanted.
fn asking_linux(wanted: bool, benchmark: &str) -> Result<Option<Command>, Failure> {
    if !wanted {
        return Ok(None);
    }
    let own = std::env::current_exe();
    let own = own.map_err(|error| Failure::Refused(format!("this program's own path: {error}")))?;
    let mut command = Command::new(own);
    command.args(["bench", benchmark, "--only-linux"]);
    Ok(Some(command))
}

/// Why the running kernel was not asked, where it was to be, and what was to be reached.
fn linux_and_targets(out: &mut String, unavailable: Option<&str>, targets: &[Target]) -> fmt::Result {
    if let Some(reason) = unavailable {
        writeln!(out, "Linux was not asked: {reason}")?;
    }
    writeln!(out, "\ntargets")?;
    for Target { name, unit, target, at_least, value, met } in targets {
        let (limit, met) =
            (if *at_least { "at least" } else { "at most" }, if *met { "met" } else { "missed" });
        writeln!(out, "  {name:<44}{value:>9.2} {unit:<4}{limit} {target}: {met}")?;
    }
    Ok(())
}
