//! `skep-bench exec`: execution speed, code size and load time against other engines and native code.

use crate::arch;
use crate::engines::{Engine, Interpreter, Jit, Native, PLACEMENTS, Prepared, Rbpf, Sbpf};
use crate::programs::{PROGRAMS, Program};
use crate::progress;
use crate::report::{self, Report};
use serde::Serialize;
use skep::isa::Insn;
use skep::jit::Target;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A batch lasts at least this long, so that reading the clock does not count.
const BATCH: Duration = Duration::from_micros(20);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which each engine takes its turn at each placement.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Leave the interpreter out, which takes most of the time.
    #[arg(long)]
    no_interpreter: bool,
}

/// One program.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    /// What it measures.
    measures: &'static str,
    /// Its instructions, in one slot or two.
    insns: usize,
    /// Bytes of skep's machine code.
    code_bytes: usize,
    /// Machine instructions in it, without padding.
    native_insns: u32,
    bytes_per_insn: f64,
    /// Nanoseconds a run by engine.
    ns: BTreeMap<&'static str, Placed>,
    /// Engines that cannot run it, and why.
    failed: BTreeMap<&'static str, String>,
}

/// What skep's code for an architecture looks like, over all programs.
#[derive(Debug, Serialize)]
struct Architecture {
    arch: &'static str,
    bytes_per_insn: f64,
    native_insns_per_bpf_insn: f64,
    /// Machine instructions by program, in the order of the rows.
    native_insns: Vec<u32>,
}

/// Nanoseconds at the best and at the worst placement.
#[derive(Clone, Copy, Debug, Serialize)]
struct Placed {
    best: f64,
    worst: f64,
}

/// A geometric mean of ratios of times, best placements and worst placements compared with each other.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratio {
    best: f64,
    worst: f64,
    /// How many programs are compared.
    programs: usize,
}

/// From bytes to runnable, microseconds, median.
#[derive(Debug, Serialize)]
struct Load {
    insns: usize,
    /// skep: decode, verify, compile, install.
    skep_us: f64,
    skep_verify_us: f64,
    /// Compilation and installation.
    skep_jit_us: f64,
    /// rbpf, which checks opcodes and compiles; `None` where it has no compiler for this architecture or its code does
    /// not fit its buffer, which it panics at.
    rbpf_us: Option<f64>,
}

/// Runs the benchmark.
///
/// # Errors
///
/// A text that names the program where skep itself cannot run one or returns a wrong result.
pub(crate) fn run(args: &Args, quick: bool) -> Result<Report, String> {
    let rounds = if quick { args.rounds.min(2) } else { args.rounds };
    let mut engines: Vec<Box<dyn Engine>> = vec![
        Box::new(Native),
        Box::new(Jit),
        Box::new(Rbpf),
        Box::new(Sbpf { checked: true }),
        Box::new(Sbpf { checked: false }),
    ];
    if !args.no_interpreter {
        engines.push(Box::new(Interpreter));
    }
    let mut rows = Vec::with_capacity(PROGRAMS.len());
    for program in PROGRAMS {
        progress(program.name);
        rows.push(measure(program, &engines, rounds)?);
    }
    progress("load");
    let loads = [54, 518, 4210].into_iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<&'static str> = engines.iter().map(|engine| engine.name()).collect();
    let compiler = env!("SKEP_BENCH_COMPILER");
    let mut report = Report::new("exec", format!("ns per run, best of {PLACEMENTS} placements"));
    report
        .field("compiler", compiler)
        .field("placements", PLACEMENTS)
        .note(format!("native: {compiler} -O2"));
    let columns = [
        ("program", "program", 0),
        ("native", "ns.native.best", 1),
        ("skep", "ns.skep.best", 1),
        ("rbpf", "ns.rbpf.best", 1),
        ("sbpf-unchecked", "ns.sbpf-unchecked.best", 1),
        ("sbpf", "ns.sbpf.best", 1),
        ("skep-interpreter", "ns.skep-interpreter.best", 1),
        ("bytes/insn", "bytes_per_insn", 2),
    ];
    report.table("rows", "programs", &rows, &columns);
    let columns = [
        ("", report::KEY, 0),
        ("best placement", "best", 3),
        ("worst placement", "worst", 3),
        ("programs", "programs", 0),
    ];
    report.field("geomean", against_native(&rows, &names));
    report.view(
        "geomean",
        "time relative to native code, geometric mean over the programs that all run",
        &columns,
    );
    let others = names.iter().filter(|name| **name != "skep");
    let against: BTreeMap<_, _> =
        others.filter_map(|name| Some((*name, ratio(&rows, "skep", name, |_| true)?))).collect();
    report.field("skep_against", against);
    let title = "skep's time relative to another's, geometric mean over the programs that both run";
    report.view("skep_against", title, &columns);
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>() as f64;
    let insns = sum(|row| row.insns);
    report.field("bytes_per_insn", sum(|row| row.code_bytes) / insns);
    report.field("native_insns_per_bpf_insn", sum(|row| row.native_insns as usize) / insns);
    let columns =
        [("", "arch", 0), ("bytes", "bytes_per_insn", 2), ("instructions", "native_insns_per_bpf_insn", 3)];
    let title = "machine code per BPF instruction, for each architecture's newest processors";
    let architectures = Target::ALL.into_iter().map(architecture).collect::<Result<Vec<_>, _>>()?;
    report.table("architectures", title, &architectures, &columns);
    let columns = [
        ("instructions", "insns", 0),
        ("skep", "skep_us", 1),
        ("of that, verify", "skep_verify_us", 1),
        ("compile and install", "skep_jit_us", 1),
        ("rbpf, no verifier", "rbpf_us", 1),
    ];
    report.table("load", "from bytes to runnable, us", &loads, &columns);
    let failed = rows.iter().flat_map(|row| {
        row.failed.iter().map(move |(engine, reason)| format!("  {}: {engine}: {reason}", row.program))
    });
    let failed: Vec<_> =
        failed.filter(|line| !line.contains("no maps") && !line.contains("no native")).collect();
    if !failed.is_empty() {
        report.note(format!("other engines cannot run\n{}", failed.join("\n")));
    }
    Ok(report)
}

/// One engine at one placement.
struct Runner {
    engine: usize,
    prepared: Box<dyn Prepared>,
    batch: u32,
    best: f64,
}

fn measure(program: &'static Program, engines: &[Box<dyn Engine>], rounds: u32) -> Result<Row, String> {
    let mut failed = BTreeMap::new();
    let mut runners = Vec::new();
    let (mut code_bytes, mut native_insns) = (0, 0);
    for (index, engine) in engines.iter().enumerate() {
        for placement in 0..PLACEMENTS {
            match engine.prepare(program, placement).and_then(|prepared| check(program, prepared)) {
                Ok(prepared) => {
                    if engine.name() == "skep" && placement == 0 {
                        (code_bytes, native_insns) = prepared.code().unwrap_or_default();
                    }
                    runners.push(Runner { engine: index, prepared, batch: 1, best: f64::INFINITY });
                }
                Err(reason) if engine.name() == "skep" && placement == 0 => {
                    return Err(format!("skep cannot run {}: {reason}", program.name));
                }
                Err(reason) if placement == 0 => {
                    failed.insert(engine.name(), reason);
                    break;
                }
                Err(_) => break,
            }
        }
    }
    for runner in &mut runners {
        while runner.time() < BATCH && runner.batch < 1 << 20 {
            runner.batch *= 2;
        }
    }
    for _ in 0..rounds {
        for runner in &mut runners {
            let ns = runner.time().as_nanos() as f64 / f64::from(runner.batch);
            runner.best = runner.best.min(ns);
        }
    }
    let mut ns: BTreeMap<&'static str, Placed> = BTreeMap::new();
    for runner in &runners {
        let placed =
            ns.entry(engines[runner.engine].name()).or_insert(Placed { best: f64::INFINITY, worst: 0.0 });
        placed.best = placed.best.min(runner.best);
        placed.worst = placed.worst.max(runner.best);
    }
    let insns = insns(program)?;
    Ok(Row {
        program: program.name,
        measures: program.measures,
        insns,
        code_bytes,
        native_insns,
        bytes_per_insn: code_bytes as f64 / insns as f64,
        ns,
        failed,
    })
}

/// Runs it twice and compares the results with what every engine must return.
fn check(program: &Program, mut prepared: Box<dyn Prepared>) -> Result<Box<dyn Prepared>, String> {
    for run in 0..2 {
        let result = prepared.run();
        if result != program.result {
            return Err(format!("wrong result in run {run}: {result:#x}, not {:#x}", program.result));
        }
    }
    Ok(prepared)
}

impl Runner {
    fn time(&mut self) -> Duration {
        let started = Instant::now();
        for _ in 0..self.batch {
            std::hint::black_box(self.prepared.run());
        }
        started.elapsed()
    }
}

/// Compiles all programs for an architecture.
fn architecture(target: Target) -> Result<Architecture, String> {
    let (mut bytes, mut insns, mut native_insns) = (0, 0, Vec::with_capacity(PROGRAMS.len()));
    for program in PROGRAMS {
        let code = crate::engines::emit(program, target)?;
        bytes += code.bytes.len();
        native_insns.push(code.instructions);
        insns += self::insns(program)?;
    }
    let native: u32 = native_insns.iter().sum();
    Ok(Architecture {
        arch: target.name(),
        bytes_per_insn: bytes as f64 / insns as f64,
        native_insns_per_bpf_insn: f64::from(native) / insns as f64,
        native_insns,
    })
}

fn insns(program: &Program) -> Result<usize, String> {
    let object = skep::Object::parse(program.object).map_err(|error| error.to_string())?;
    let options = skep::ProgramOptions { buffer_len: program.bytes as u32, ..Default::default() };
    let linked = object.linked(program.name, options).map_err(|error| error.to_string())?;
    // A load of a 64-bit immediate is one instruction in two slots.
    Ok(linked.insns.iter().filter(|insn| **insn != Insn::LoadImm64Tail).count())
}

fn against_native(rows: &[Row], names: &[&'static str]) -> BTreeMap<&'static str, Ratio> {
    let everywhere = |row: &Row| names.iter().all(|name| row.ns.contains_key(name));
    names
        .iter()
        .filter(|name| **name != "native")
        .filter_map(|name| Some((*name, ratio(rows, name, "native", everywhere)?)))
        .collect()
}

/// The geometric mean of one engine's times over another's.
fn ratio(rows: &[Row], of: &str, to: &str, which: impl Fn(&Row) -> bool) -> Option<Ratio> {
    let pairs: Vec<(Placed, Placed)> = rows
        .iter()
        .filter(|row| which(row))
        .filter_map(|row| Some((*row.ns.get(of)?, *row.ns.get(to)?)))
        .collect();
    let mean = |pick: fn(&Placed) -> f64| {
        let logs: f64 = pairs.iter().map(|(of, to)| (pick(of) / pick(to)).ln()).sum();
        (logs / pairs.len() as f64).exp()
    };
    (!pairs.is_empty()).then(|| Ratio {
        best: mean(|placed| placed.best),
        worst: mean(|placed| placed.worst),
        programs: pairs.len(),
    })
}

/// Times loading a program of about that many instructions: arithmetic, stack traffic and branches.
fn load(insns: usize) -> Result<Load, String> {
    let text = synthetic(insns);
    let slots = skep::isa::encode(&skep::isa::assemble(&text).map_err(|error| error.to_string())?)
        .map_err(|error| error.to_string())?;
    let code: Vec<u8> = slots.into_iter().flat_map(|slot| slot.to_bytes()).collect();
    let runtime = skep::Runtime::new().map_err(|error| error.to_string())?;
    let (mut skep, mut verify, mut jit, mut rbpf) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..200 {
        let started = Instant::now();
        let object =
            skep::Object::from_bytecode("load", &skep::abi::RAW, &code).map_err(|e| e.to_string())?;
        let module = runtime.linker(&object).buffer_len(64).load().map_err(|error| error.to_string())?;
        skep.push(started.elapsed());
        let times = module.programs()[0].load_times();
        verify.push(times.verify);
        jit.push(times.jit);
        if let Some(time) = rbpf_load(&code)? {
            rbpf.push(time);
        }
    }
    Ok(Load {
        insns: code.len() / 8,
        skep_us: median(skep),
        skep_verify_us: median(verify),
        skep_jit_us: median(jit),
        rbpf_us: (!rbpf.is_empty()).then(|| median(rbpf)),
    })
}

/// Times rbpf's check and compilation; `None` where it compiles for another architecture, or panics because its buffer
/// is too small for the code.
fn rbpf_load(code: &[u8]) -> Result<Option<Duration>, String> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let started = Instant::now();
    let compiled = std::panic::catch_unwind(|| {
        let mut vm = rbpf::EbpfVmRaw::new(Some(code)).map_err(|error| error.to_string())?;
        Ok::<_, String>(arch::compile_by_rbpf(&mut vm))
    });
    let elapsed = started.elapsed();
    std::panic::set_hook(hook);
    match compiled {
        Ok(Ok(Ok(()))) => Ok(Some(elapsed)),
        Ok(Ok(Err(_))) | Err(_) => Ok(None),
        Ok(Err(error)) => Err(error),
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as f64 / 1e3
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
        let row = |a: f64, b: f64| Row {
            program: "",
            measures: "",
            insns: 0,
            code_bytes: 0,
            native_insns: 0,
            bytes_per_insn: 0.0,
            ns: [("a", Placed { best: a, worst: 2.0 * a }), ("b", Placed { best: b, worst: b })].into(),
            failed: BTreeMap::new(),
        };
        let ratio = ratio(&[row(8.0, 2.0), row(1.0, 1.0)], "a", "b", |_| true).unwrap();
        assert!((ratio.best - 2.0).abs() < 1e-9 && (ratio.worst - 4.0).abs() < 1e-9 && ratio.programs == 2);
    }

    #[test]
    fn synthetic_programs_have_the_size_they_are_named_by() {
        for size in [54, 518, 4210] {
            let insns = skep::isa::assemble(&synthetic(size)).unwrap();
            assert!(insns.len().abs_diff(size) <= 8, "{} for {size}", insns.len());
        }
    }
}
