//! `skep bench`: the benchmarks, as text for people or JSON for scripts. Each has a file that says its options and its
//! tables; what is measured is in the crate `skep-bench`.

mod exec;
mod load;
mod pack;
mod poke;
mod verify;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Running speed, code size and load time against rbpf, solana-sbpf and native code.
    Exec(exec::Exec),
    /// The load test: 40,945 programs verified, compiled, compared by their tags and freed.
    Load(load::Load),
    /// Many programs on a page each, in packs, and in packs on huge pages.
    Pack(pack::Pack),
    /// Changing branches in code that runs: what it costs, and whether it is ever seen half done.
    Poke(poke::Poke),
    /// Verification: time for each walked instruction, states and memory.
    Verify(verify::Verify),
}

/// Runs the command.
pub(crate) fn main(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::Exec(args) => exec::main(args),
        Bench::Load(args) => load::main(args),
        Bench::Pack(args) => pack::main(args),
        Bench::Poke(args) => poke::main(args),
        Bench::Verify(args) => verify::main(args),
    }
}
