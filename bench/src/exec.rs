//! `skep-bench exec`: execution speed, code size and load time against other engines and native code.

use crate::engines::{self, DEFENCES, ENGINES, Engine, PLACEMENTS, Run};
use crate::programs::{PROGRAMS, Program, SECOND};
use crate::report::{Report, number};
use crate::timing::{Batched, median};
use crate::{Common, Result, progress};
use serde_json::{Map, Value, json};
use skep::isa::Insn;
use skep::jit::Target;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A batch lasts at least this long, so that reading the clock does not count.
const BATCH: Duration = Duration::from_micros(20);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which each engine takes its turn at each placement.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Which programs: the first set, by whose results the compiler was tuned, or the second, which was kept apart.
    #[arg(long, value_enum, default_value_t = Set::First)]
    set: Set,
    /// Leave the interpreter out, which takes most of the time.
    #[arg(long)]
    no_interpreter: bool,
}

/// A set of benchmark programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Set {
    First,
    Second,
}

impl Set {
    fn programs(self) -> &'static [Program] {
        match self {
            Self::First => PROGRAMS,
            Self::Second => SECOND,
        }
    }
}

/// Runs the benchmark.
///
/// # Errors
///
/// A text that names the program where skep itself cannot run one or returns a wrong result.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let rounds = if common.quick { args.rounds.min(2) } else { args.rounds };
    let engines = &ENGINES[..ENGINES.len() - usize::from(args.no_interpreter)];
    let programs = args.set.programs();
    let mut rows = Vec::with_capacity(programs.len());
    for program in programs {
        progress(program.name);
        rows.push(measure(program, engines, rounds)?);
    }
    progress("load");
    let loads = [54, 518, 4210].into_iter().map(load).collect::<Result<Vec<_>>>()?;
    let architectures =
        Target::ALL.into_iter().map(|target| architecture(programs, target)).collect::<Result<Vec<_>>>()?;
    let compiler = env!("SKEP_BENCH_COMPILER");
    let sum = |key| rows.iter().map(|row| number(row, key)).sum::<f64>();
    let mut report = Report::new("exec", format!("ns per run, best of {PLACEMENTS} placements"));
    report.note(format!("native: {compiler} -O2"));
    report.fields(json!({
        "compiler": compiler,
        "placements": PLACEMENTS,
        "bytes_per_insn": sum("code_bytes") / sum("insns"),
        "native_insns_per_bpf_insn": sum("native_insns") / sum("insns"),
    }));
    report.table(
        "rows",
        "programs",
        &rows,
        "program; native = ns.native.best:1; skep = ns.skep.best:1; no passes = ns.skep-plain.best:1; skep-budget = ns.skep-budget.best:1; rbpf = ns.rbpf.best:1; \
         sbpf-unchecked = ns.sbpf-unchecked.best:1; sbpf = ns.sbpf.best:1; \
         skep-interpreter = ns.skep-interpreter.best:1; untrusted = ns.skep-untrusted.best:1; bytes/insn = bytes_per_insn:2",
    );
    let columns = "= @; best placement = best:3; worst placement = worst:3; programs";
    let names = || engines.iter().map(|(name, _)| *name);
    let everywhere: Vec<&Value> =
        rows.iter().filter(|row| names().all(|name| !row["ns"][name].is_null())).collect();
    let title = "time relative to native code, geometric mean over the programs that all run";
    report.table("geomean", title, ratios(names(), |name| ratio(&everywhere, name, "native")), columns);
    let all: Vec<&Value> = rows.iter().collect();
    let title =
        "time without passes, or with a defence, relative to skep's, geometric mean over all programs";
    report.table("defences", title, ratios(DEFENCES.into_iter(), |name| ratio(&all, name, "skep")), columns);
    let title = "skep's time relative to another's, geometric mean over the programs that both run";
    report.table("skep_against", title, ratios(names(), |name| ratio(&all, "skep", name)), columns);
    let columns = "= arch; bytes = bytes_per_insn:2; instructions = native_insns_per_bpf_insn:3";
    let title = "machine code per BPF instruction, for each architecture's newest processors";
    report.table("architectures", title, architectures, columns);
    let columns = "instructions = insns; skep = skep_us:1; of that, verify = skep_verify_us:1; \
                   compile and install = skep_jit_us:1; rbpf, no verifier = rbpf_us:1";
    report.table("load", "from bytes to runnable, us", loads, columns);
    let failed = rows.iter().flat_map(|row| {
        let failed = row["failed"].as_object().into_iter().flatten();
        failed.map(move |(engine, reason)| {
            let (program, reason) = (&row["program"], reason.as_str().unwrap_or_default());
            format!("  {}: {engine}: {reason}", program.as_str().unwrap_or_default())
        })
    });
    let failed: Vec<_> =
        failed.filter(|line| !line.contains("no maps") && !line.contains("no native")).collect();
    if !failed.is_empty() {
        report.note(format!("other engines cannot run\n{}", failed.join("\n")));
    }
    Ok(report)
}

fn measure(program: &'static Program, engines: &[Engine], rounds: u32) -> Result<Value> {
    // Engines that cannot run it, and why.
    let mut failed = Map::new();
    let mut runners = Vec::new();
    for (name, prepare) in engines {
        for placement in 0..PLACEMENTS {
            match prepare(program, placement).and_then(|run| check(program, run)) {
                Ok(mut run) => {
                    let work = move || {
                        black_box(run());
                    };
                    runners.push((*name, Batched::new(BATCH, work)));
                }
                Err(reason) if *name == "skep" && placement == 0 => {
                    return Err(format!("skep cannot run {}: {reason}", program.name).into());
                }
                Err(reason) => {
                    if placement == 0 {
                        failed.insert((*name).to_owned(), reason.to_string().into());
                    }
                    break;
                }
            }
        }
    }
    for _ in 0..rounds {
        runners.iter_mut().for_each(|(_, runner)| runner.turn());
    }
    // Nanoseconds of a run by engine, at the best and at the worst placement.
    let mut ns = Map::new();
    for (name, _) in engines {
        let of = runners.iter().filter(|(engine, _)| engine == name);
        let placements = of.map(|(_, runner)| runner.times.iter().copied().fold(f64::INFINITY, f64::min));
        let (best, worst) =
            placements.fold((f64::INFINITY, 0.0_f64), |(best, worst), ns| (best.min(ns), worst.max(ns)));
        if best.is_finite() {
            ns.insert((*name).to_owned(), json!({"best": best, "worst": worst}));
        }
    }
    let (insns, loaded) = (insns(program)?, engines::loaded(program)?);
    let code = loaded.compiled();
    Ok(json!({
        "program": program.name, "measures": program.measures, "ns": ns, "failed": failed,
        // Instructions in one slot or two.
        "insns": insns,
        "code_bytes": code.code_bytes(), "bytes_per_insn": code.code_bytes() as f64 / insns as f64,
        // Machine instructions, without padding.
        "native_insns": code.instructions(),
    }))
}

/// Runs it twice and compares the results with what every engine must return.
fn check(program: &Program, mut run: Run) -> Result<Run> {
    for time in 0..2 {
        let result = run();
        if result != program.result {
            return Err(format!("wrong result in run {time}: {result:#x}, not {:#x}", program.result).into());
        }
    }
    Ok(run)
}

/// Compiles all programs for an architecture.
fn architecture(programs: &'static [Program], target: Target) -> Result<Value> {
    let (mut bytes, mut insns, mut native_insns) = (0, 0, Vec::with_capacity(programs.len()));
    for program in programs {
        let code = engines::loaded(program)?.emit(target)?;
        bytes += code.bytes.len();
        native_insns.push(code.instructions);
        insns += self::insns(program)?;
    }
    let native: u32 = native_insns.iter().sum();
    Ok(json!({
        "arch": target.name(),
        "bytes_per_insn": bytes as f64 / insns as f64,
        "native_insns_per_bpf_insn": f64::from(native) / insns as f64,
        // By program, in the order of the rows.
        "native_insns": native_insns,
    }))
}

/// A load of a 64-bit immediate is one instruction in two slots.
fn insns(program: &Program) -> Result<usize> {
    Ok(engines::linked(program)?.iter().filter(|insn| **insn != Insn::LoadImm64Tail).count())
}

fn ratios(
    names: impl Iterator<Item = &'static str>,
    ratio: impl Fn(&str) -> Option<Value>,
) -> Map<String, Value> {
    names.filter_map(|name| Some((name.to_owned(), ratio(name)?))).collect()
}

/// The geometric mean of one engine's times over another's, best placements and worst placements compared with each
/// other; `None` for an engine and itself.
fn ratio(rows: &[&Value], of: &str, to: &str) -> Option<Value> {
    let both = || rows.iter().filter(|row| row["ns"][of].is_object() && row["ns"][to].is_object());
    let mean = |place: &str| {
        let ns = |row: &Value, engine| number(row, &format!("ns.{engine}.{place}"));
        let logs: f64 = both().map(|row| (ns(row, of) / ns(row, to)).ln()).sum();
        (logs / both().count() as f64).exp()
    };
    (of != to && both().next().is_some())
        .then(|| json!({"best": mean("best"), "worst": mean("worst"), "programs": both().count()}))
}

/// Times loading a program of about that many instructions: arithmetic, stack traffic and branches. Microseconds from
/// bytes to runnable, median.
fn load(insns: usize) -> Result<Value> {
    let code = skep::isa::encode_bytes(&skep::isa::assemble(&synthetic(insns))?)?;
    let runtime = skep::Runtime::new()?;
    let (mut skep, mut verify, mut jit, mut rbpf) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..200 {
        let started = Instant::now();
        let object = skep::Object::from_bytecode("load", &skep::abi::RAW, &code)?;
        let module = runtime.linker(&object).buffer_len(64).load()?;
        skep.push(started.elapsed());
        let times = module.programs()[0].load_times();
        verify.push(times.verify);
        jit.push(times.jit);
        rbpf.extend(engines::rbpf_load(&code)?);
    }
    let us = |times: Vec<Duration>| median(times.iter().map(|time| time.as_nanos() as f64 / 1e3));
    Ok(json!({
        "insns": code.len() / 8,
        // Decode, verify, compile, install.
        "skep_us": us(skep), "skep_verify_us": us(verify),
        // Compilation and installation.
        "skep_jit_us": us(jit),
        // A check of opcodes, and compilation; null where that is not possible.
        "rbpf_us": us(rbpf),
    }))
}

/// A program of about `insns` instructions in blocks of eight, each with a branch over two of them.
fn synthetic(insns: usize) -> String {
    let mut text = String::from("r6 = *(u64 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 8)\nr0 = 0\n");
    for block in 0..insns.saturating_sub(6) / 8 {
        let depth = 8 * (block % 8 + 1);
        text.push_str(&format!(
            "r6 += {block}\n*(u64 *)(r10 - {depth}) = r6\nr7 ^= r6\nif r7 > {} goto over{block}\nr0 += r7\n\
             w0 *= 31\nover{block}:\nr8 = *(u64 *)(r10 - {depth})\nr0 ^= r8\n",
            block * 1000
        ));
    }
    text.push_str("r0 += r6\nr0 ^= r7\nexit\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_ratios_is_geometric() {
        let row = |a: f64, b: f64| json!({"ns": {"a": {"best": a, "worst": 2.0 * a}, "b": {"best": b, "worst": b}}});
        let (one, two) = (row(8.0, 2.0), row(1.0, 1.0));
        let ratio = ratio(&[&one, &two], "a", "b").unwrap();
        assert!((number(&ratio, "best") - 2.0).abs() < 1e-9 && (number(&ratio, "worst") - 4.0).abs() < 1e-9);
        assert_eq!(ratio["programs"], 2);
    }

    #[test]
    fn synthetic_programs_have_the_size_they_are_named_by() {
        for size in [54, 518, 4210] {
            let insns = skep::isa::assemble(&synthetic(size)).unwrap();
            assert!(insns.len().abs_diff(size) <= 8, "{} for {size}", insns.len());
        }
    }
}
