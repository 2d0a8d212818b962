//! `skep-bench`: benchmarks skep against other engines, run as `cargo xtask bench NAME`.
//!
//! A number here never stands alone. Every engine runs the same programs over the same memory in turns, and the report
//! has nanoseconds beside those of the other engines in the same run. A small loop that crosses a cache line can take
//! 1.7 times as long, so each engine gets its code at several places, and the report has both the best and the worst of
//! them.
//!
//! Exit status: 0 done, 1 a measurement failed, 2 wrong usage. With `--json`, one JSON document is all that is written
//! to standard output; progress goes to standard error.

mod alloc;
mod arch;
mod child;
mod engines;
mod exec;
mod exec_calls;
mod flow;
mod htab_mem;
mod itlb;
mod kernel;
mod load;
mod maps;
mod pack;
mod page;
mod poke;
mod process;
mod programs;
mod random;
mod report;
mod tail;
mod timing;
mod verify;
mod world;

use clap::{CommandFactory, Parser, Subcommand, error::ErrorKind};
use report::Report;
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a measurement failed. `?` turns every error into one, and text as well.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Benchmarks skep against other engines.
#[derive(Parser)]
#[command(name = "skep-bench", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
    #[command(flatten)]
    common: Common,
}

/// The options of every benchmark.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
struct Common {
    /// Run a small part, to see that it works; the figures mean little.
    #[arg(long, global = true)]
    quick: bool,
    /// Print one JSON document.
    #[arg(long, global = true)]
    json: bool,
    /// Measure the running kernel as well; needs root or CAP_BPF, and loads up to a hundred programs.
    #[arg(long, global = true)]
    linux: bool,
    /// Measure the running kernel alone and print the answers for the process that asked.
    #[arg(long, global = true, hide = true, conflicts_with_all = ["linux", "json", "quick"])]
    only_linux: bool,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Object allocation against mimalloc and malloc, grace periods, and read-side critical sections.
    Alloc(alloc::Args),
    /// Execution speed, code size and load time against rbpf, solana-sbpf and native code.
    Exec(exec::Args),
    /// The system call bpf(2) of an application under `skep exec`.
    ExecCalls(exec_calls::Args),
    /// Packets through a flow dissector whose parsers are tail calls or function calls.
    FlowDissector(flow::Args),
    /// Speed and memory of a hash table under each reuse policy, in the published cases.
    HtabMem(htab_mem::Args),
    /// The load test: verify, compile, tag and free 40,945 programs.
    Load,
    /// Map operations from programs and from the host.
    Map(maps::Args),
    /// Many programs: one page each, in packs, and in packs on huge pages.
    Pack(pack::Args),
    /// Patching branches in running code: its cost, and whether a thread ever sees a half-written branch.
    Poke(poke::Args),
    /// Tail calls, and updates of a program array while another thread calls through it.
    TailCall(tail::Args),
    /// Verification: time per walked instruction, states and memory.
    Verify(verify::Args),
    /// A packet's way through a world: what a hop costs over the programs' own time.
    World(world::Args),
}

impl Benchmark {
    fn run(&self, common: Common) -> Result<Report> {
        match self {
            Self::Alloc(args) => alloc::run(args, common),
            Self::Exec(args) => exec::run(args, common),
            Self::ExecCalls(args) => exec_calls::run(args, common),
            Self::FlowDissector(args) => flow::run(args, common),
            Self::HtabMem(args) => htab_mem::run(args, common),
            Self::Load => load::run(common),
            Self::Map(args) => maps::run(args, common),
            Self::Pack(args) => pack::run(args, common),
            Self::Poke(args) => poke::run(args, common),
            Self::TailCall(args) => tail::run(args, common),
            Self::Verify(args) => verify::run(args, common),
            Self::World(args) => world::run(args, common),
        }
    }

    /// Measures the running kernel, in a process that does nothing else; `None` for a benchmark that no kernel can run.
    fn linux(&self) -> Option<fn() -> Result<Vec<kernel::Answer>>> {
        match self {
            Self::ExecCalls(_) => Some(exec_calls::measure_linux),
            Self::FlowDissector(_) => Some(flow::measure_linux),
            // Each of its tasks has a process of its own.
            Self::HtabMem(_) => Some(|| Ok(Vec::new())),
            Self::Map(_) => Some(maps::measure_linux),
            Self::TailCall(_) => Some(tail::measure_linux),
            Self::Verify(_) => Some(verify::measure_linux),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let Cli { benchmark, common } = Cli::parse();
    if (common.linux || common.only_linux) && benchmark.linux().is_none() {
        let text = "--linux: no kernel can run this benchmark; those that a kernel can run are exec-calls, \
                    flow-dissector, htab-mem, map, tail-call and verify";
        Cli::command().error(ErrorKind::ArgumentConflict, text).exit();
    }
    match write(&benchmark, common) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("skep-bench: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn write(benchmark: &Benchmark, common: Common) -> Result<()> {
    if let Benchmark::HtabMem(htab_mem::Args { only: Some(task), .. }) = benchmark {
        return print(&task.perform()?.to_string());
    }
    if let Benchmark::ExecCalls(args @ exec_calls::Args { application: true, .. }) = benchmark {
        return print(&exec_calls::application(args)?.to_string());
    }
    if let Some(ask) = benchmark.linux().filter(|_| common.only_linux) {
        return print(&json!(ask()?).to_string());
    }
    let report = benchmark.run(common)?;
    let failure = report.failure.clone();
    print(&if common.json { format!("{:#}", report.json()) } else { report.text() })?;
    failure.map_or(Ok(()), |reason| Err(reason.into()))
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.trim_end().as_bytes()).and_then(|()| out.write_all(b"\n")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}").into())
        }
        _ => Ok(()),
    }
}

/// Says on standard error what is measured next.
fn progress(what: impl std::fmt::Display) {
    eprintln!("measuring {what}");
}
