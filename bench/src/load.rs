//! `skep-bench load`: the kernel's load test, forty thousand programs verified, compiled, compared and freed.
//!
//! The test is `test_tag` of Linux's BPF selftests, in the form its figures were published for: five rounds, in each
//! of them programs of 2 to 4,096 instructions that load immediates, and of 3 to 4,096 that also name a map, each
//! loaded, its tag compared and freed: 40,945 programs. Everything runs on one thread, through the library's public
//! interface, from bytes to bytes, as in an embedding host.
//!
//! Generating the programs is not counted. The tag that each program must have is computed here, and counted, since the
//! published test does the same.

mod generate;
mod install;

use crate::process::{Passed, clocked};
use crate::report::{Report, Target, number};
use crate::{Common, Result, progress};
use generate::Generator;
use serde_json::{Value, json};
use skep::abi::{MapDef, MapKind, XDP};
use skep::{Object, Runtime};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds of the published test.
const ROUNDS: u32 = 5;
/// Instructions of the longest program.
const LONGEST: usize = 4096;

/// Seconds of the test elsewhere: as published for arm64 with one page for each program and packed, and in Linux 6.18
/// on a virtual machine with the processor that this book's other figures are from.
const PUBLISHED: [(&str, f64); 3] =
    [("one page per program", 21.487), ("packed", 19.695), ("Linux 6.18 on x86-64", 16.0)];

/// Runs the benchmark.
///
/// # Errors
///
/// A program cannot be loaded or has a wrong tag.
pub(crate) fn run(common: Common) -> Result<Report> {
    let quick = common.quick;
    // The cost of allocation must not depend on what the load test left behind, so it comes first.
    let (turns, live) = if quick { (20, 500) } else { (1000, 8000) };
    progress("installation");
    let default = install::install(skep_text::Config::new(), turns)?;
    let hardened = install::install(skep_text::Config::new().backing(skep_text::Backing::Hardened), turns)?;
    progress("allocation among many programs");
    let crowded = install::crowded(live, turns)?;
    let mut test = Test::new()?;
    let step = if quick { 409 } else { 1 };
    for round in 0..if quick { 1 } else { ROUNDS } {
        progress(format!("the load test, round {}", round + 1));
        test.round(step)?;
    }
    let Test { programs, instructions, code_bytes, times, passed, .. } = test;
    let Passed { wall: seconds, thread, background } = passed;
    let mut targets = vec![
        Target::at_most("install of 400 bytes, hardened", "ns", 1200.0, number(&hardened, "ns")),
        Target::at_most("install of 400 bytes", "ns", 200.0, number(&default, "ns")),
        Target::at_most("allocation among live programs", "ns", 50.0, number(&crowded, "allocate_ns")),
        Target::at_most("free among live programs", "ns", 80.0, number(&crowded, "free_ns")),
        Target::at_least("utilisation", "%", 75.0, number(&crowded, "utilisation_percent")),
    ];
    if !quick {
        targets.insert(0, Target::at_most("load test", "s", 4.0, seconds));
    }

    let mut report =
        Report::new("load", format!("{programs} programs of {instructions} instructions in all"));
    let (per_program, per_insn) = (seconds * 1e9 / programs as f64, seconds * 1e9 / instructions as f64);
    report.fields(json!({
        "quick": quick, "programs": programs, "instructions": instructions, "code_bytes": code_bytes,
        "seconds": seconds, "cpu_seconds": thread, "background_cpu_seconds": background,
        "ns_per_program": per_program, "ns_per_instruction": per_insn,
        "generate_seconds": times.generate.as_secs_f64(),
    }));
    report.note(format!(
        "{seconds:.3} s ({thread:.3} s of this thread, {background:.3} s in the background): {:.1} us a program, \
         {per_insn:.1} ns an instruction",
        per_program / 1e3
    ));
    report.table(
        "shares",
        "shares of the time",
        times.shares(seconds),
        "= what; s = seconds:3; % = percent:1",
    );
    let published = PUBLISHED
        .map(|(what, published)| json!({"what": what, "seconds": published, "times": published / seconds}));
    let times = if quick { "" } else { "; times as long as here = times:1" };
    report.table("published", "published", published, &format!("= what; s = seconds:3{times}"));
    let columns =
        "backing; bytes; install = ns; free = free_ns; own page: install = page_ns; free = page_free_ns";
    report.table("install", "installing a program, ns", [default, hardened], columns);
    let columns = "programs; bytes = average_bytes; allocate = allocate_ns; free = free_ns; \
                   in the background = free_background_ns; % of the memory is code = utilisation_percent:1; \
                   % of the chunks = chunk_utilisation_percent:1";
    report.table("crowded", "allocation among live programs, ns", crowded, columns);
    Ok(report.targets(targets))
}

/// Where the time of the test went.
#[derive(Default)]
struct Times {
    generate: Duration,
    tag: Duration,
    verify: Duration,
    /// Installation included.
    jit: Duration,
    install: Duration,
    free: Duration,
}

impl Times {
    fn shares(&self, seconds: f64) -> Vec<Value> {
        let compile = self.jit.saturating_sub(self.install);
        let named = [
            ("tag", self.tag),
            ("verify", self.verify),
            ("compile", compile),
            ("install", self.install),
            ("free", self.free),
        ]
        .map(|(what, time)| (what, time.as_secs_f64()));
        let rest = named.iter().fold(seconds, |rest, (_, time)| rest - time);
        let all = named.into_iter().chain([("other", rest.max(0.0))]);
        all.map(|(what, time)| json!({"what": what, "seconds": time, "percent": 100.0 * time / seconds}))
            .collect()
    }
}

/// The test as far as it has come.
struct Test {
    runtime: Runtime,
    /// The map that programs name, made once.
    map: Arc<skep::Map>,
    maps: Arc<[MapDef]>,
    generator: Generator,
    programs: u64,
    instructions: u64,
    code_bytes: u64,
    times: Times,
    /// Without the generation of programs.
    passed: Passed,
}

const MAP: &str = "named";

impl Test {
    fn new() -> Result<Self> {
        let maps: Arc<[MapDef]> = Arc::new([MapDef::new(MAP, MapKind::Hash, 4, 4, 1)]);
        let runtime = Runtime::new()?;
        let mut generator = Generator::new(5);
        generator.next(3, true);
        let object = Object::from_bytecode_and_maps("load", &XDP, generator.bytes(), Arc::clone(&maps))?;
        let map = Arc::clone(&runtime.load(&object)?.maps()[0]);
        let (programs, instructions, code_bytes) = (0, 0, 0);
        let (times, passed) = (Times::default(), Passed::default());
        Ok(Self { runtime, map, maps, generator, programs, instructions, code_bytes, times, passed })
    }

    /// Programs of every size, every `step`th of them, without a map and with one.
    fn round(&mut self, step: usize) -> Result<()> {
        for with_map in [false, true] {
            // Generating runs on this thread alone; its processor time is less than its time where others interrupt it.
            let (mut generating, mut generating_cpu) = (0.0, 0.0);
            let (loaded, passed) = clocked(|| {
                (if with_map { 3 } else { 2 }..=LONGEST).step_by(step).try_for_each(|instructions| {
                    let ((), passed) = clocked(|| self.generator.next(instructions, with_map));
                    generating += passed.wall;
                    generating_cpu += passed.thread;
                    self.load(with_map)
                })
            });
            loaded?;
            self.times.generate += Duration::from_secs_f64(generating);
            self.passed.wall += passed.wall - generating;
            self.passed.thread += passed.thread - generating_cpu;
            self.passed.background += passed.background;
        }
        Ok(())
    }

    fn load(&mut self, with_map: bool) -> Result<()> {
        let started = Instant::now();
        let expected = self.generator.tag();
        self.times.tag += started.elapsed();
        let bytes = self.generator.bytes();
        let object = match with_map {
            true => Object::from_bytecode_and_maps("load", &XDP, bytes, Arc::clone(&self.maps)),
            false => Object::from_bytecode("load", &XDP, bytes),
        }?;
        let mut linker = self.runtime.linker(&object);
        if with_map {
            linker = linker.map(MAP, Arc::clone(&self.map));
        }
        let module = linker.load()?;
        let program = &module.programs()[0];
        if program.verified().tag() != expected {
            let (slots, tag) = (bytes.len() / 8, program.verified().tag());
            return Err(format!("a program of {slots} slots has the tag {tag:x?}, not {expected:x?}").into());
        }
        let times = program.load_times();
        self.programs += 1;
        self.instructions += self.generator.instructions() as u64;
        self.code_bytes += program.compiled().code_bytes() as u64;
        self.times.verify += times.verify;
        self.times.jit += times.jit;
        self.times.install += times.install;
        let started = Instant::now();
        drop(module);
        drop(object);
        self.times.free += started.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::find;

    #[test]
    fn the_test_has_the_programs_of_the_published_one() {
        let plain = (2..=LONGEST).count();
        let with_map = (3..=LONGEST).count();
        assert_eq!((plain, with_map), (4095, 4094));
        assert_eq!(ROUNDS as usize * (plain + with_map), 40_945);
    }

    #[test]
    fn shares_add_up_to_the_whole() {
        let times = Times {
            tag: Duration::from_millis(100),
            verify: Duration::from_millis(500),
            jit: Duration::from_millis(250),
            install: Duration::from_millis(50),
            ..Times::default()
        };
        let shares = times.shares(1.0);
        assert!((shares.iter().map(|share| number(share, "seconds")).sum::<f64>() - 1.0).abs() < 1e-9);
        let of = |what: &str| number(find(&shares, &json!({"what": what})).unwrap(), "percent").round();
        assert_eq!((of("compile"), of("install"), of("other")), (20.0, 5.0, 15.0));
    }
}
