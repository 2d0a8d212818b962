//! Proves that a BPF program is safe to run, or says why not.
//!
//! [`verify`] takes an [`Unverified`] program and returns a [`Verified`] one, which only this crate can make
//! and which alone can be compiled or interpreted; or a [`Refusal`] that names the instruction, the source
//! line, what was expected and what was found.
//!
//! # How
//!
//! Abstract interpretation: the program runs along every path on *abstract* values, which describe all values that a
//! register or a stack byte may have there. An access is allowed if it is safe for all of them.
//!
//! ```text
//!   Unverified -> cfg -> liveness -> walk: every path -> facts -> Verified
//!                                     |  ^
//!                                     v  |
//!                   step: one instruction's transfer function
//!                   explored: a path ends where an explored state subsumes its own
//! ```
//!
//! Each folder uses those before it only:
//!
//! | folder | holds |
//! |---|---|
//! | `domain` | abstract values: known bits, ranges, pointers, stacks, the state of one path |
//! | `program` | the program, its maps, and what is known about it before the walk; facts; violations |
//! | `step` | transfer functions: what an instruction demands of a state, and how it changes it |
//! | `explore` | which paths are walked, which states are subsumed, widening, limits |
//! | `explain` | refusals with their causes, and the log in Linux's format |
//!
//! Of every accepted program this holds, whatever its input:
//!
//! - it ends, after at most as many instructions as its own loops allow;
//! - it reads only registers and stack bytes that it wrote, and only memory inside of its stack, its context's
//!   fields, its packet, the values of its maps, or its buffer, and writes only the writable parts of these;
//! - it gives helpers what their prototypes ask for;
//! - no address leaves it: not as its result, not into maps, packets or the context, not as a number.
//!
//! Nothing from the loader or the compiler is trusted. What this version does not support is refused with
//! [`Code::Unsupported`].
#![forbid(unsafe_code)]

mod domain;
mod explain;
mod explore;
mod program;
/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod soundness;
mod step;

pub use domain::recorded::{Machine, MachineFrame, Mismatch, Object, Outside, Packet, Place, Recorded};
pub use explain::refusal::{Refusal, Step, Why};
pub use program::assumed::INNER as INNER_MAP;
pub use program::assumed::{Assumed, Assumption};
pub use program::config::{Abilities, Config, Spills, Unwritten};
pub use program::halves::without_extension;
pub use program::violation::Code;
pub use program::{CallFact, ElementUse, Fact, FunctionFacts, Stats, Unverified, Verified};

use explain::cause;
use explain::linux_text::Names;
use explain::log::Log;
use explain::replay::Recorder;
use explore::walk::Walker;
use program::cfg::Cfg;
use program::env::Env;
use program::facts::Record;
use program::kept::{Kept, Slots};
use program::liveness::Liveness;
use program::violation::Violation;
use program::{Subject, line_at};
use std::sync::Arc;
use std::time::Instant;
use step::arena::check_one_arena;
use step::object;

/// Proves a program safe.
///
/// # Errors
///
/// A [`Refusal`] where the program is unsafe, breaks a limit, or uses what this version does not understand.
pub fn verify(program: Unverified, config: &Config<'_>) -> Result<Verified, Box<Refusal>> {
    prove(program, config, None)
}

/// Proves a program safe and says how, instruction by instruction: `line` is given each line of a log in the
/// syntax of Linux's verifier, without its line end. Logs are long: a line and more for every instruction walked.
///
/// # Errors
///
/// As for [`verify`].
pub fn verify_with_log(
    program: Unverified,
    config: &Config<'_>,
    line: &mut dyn FnMut(&str),
) -> Result<Verified, Box<Refusal>> {
    prove(program, config, Some(line))
}

fn prove(
    program: Unverified,
    config: &Config<'_>,
    line: Option<&mut dyn FnMut(&str)>,
) -> Result<Verified, Box<Refusal>> {
    let start = Instant::now();
    let program = Subject::from(program);
    // The same, for as long as this call lasts.
    let helpers = |id| (config.helpers)(id);
    let config = &Config { helpers: &helpers, ..*config };
    let mut log = line.map(|line| Log::new(&program, config, line));
    let outcome = walk(&program, config, log.as_mut(), start);
    let stats = match &outcome {
        Ok(walked) => walked.stats,
        Err(refusal) => Stats {
            walked: refusal.walked,
            peak_states: refusal.peak_states,
            nanoseconds: refusal.nanoseconds,
            ..Stats::default()
        },
    };
    if let Some(log) = &mut log {
        let stacks = outcome.as_ref().map(|walked| walked.record.stacks().to_vec()).unwrap_or_default();
        log.finish(outcome.as_ref().err().map(|refusal| &**refusal), &stacks, stats, config.max_walked);
    }
    drop(log);
    let Walked { mut record, recorded, cfg, stats } = outcome?;
    let tag = skep_isa::tag_with_map_descriptors(&program.source.insns).map_err(|error| {
        let names = Names { maps: &program.maps, btf: config.btf, helpers: config.helpers };
        let violation = Violation::at(Code::Structure, 0, error.to_string());
        refuse(&program, &names, &violation, 0, (stats, start), Vec::new())
    })?;
    let Subject { source, maps, entry } = program;
    let (maps, read) = maps.into_read();
    let printed = record.take_printed();
    let allocated = record.take_allocated();
    let foreign_sockets = record.take_foreign_sockets();
    let element = record.element_use();
    let context_bytes = record.context_use();
    let (insns, facts, functions) = record.finish(source.insns, source.functions, &cfg);
    Ok(Verified {
        name: source.name,
        program_type: source.program_type,
        target: source.target,
        sleepable: source.sleepable,
        of: source.of,
        extension: cfg.extension.map(Box::new),
        entry,
        kept: Kept::new(Slots { insns, facts, lines: source.lines }),
        functions,
        exception_callback: cfg.exception_callback,
        printed,
        allocated,
        foreign_sockets,
        element,
        context_bytes,
        maps,
        read,
        tag: tag.0,
        recorded,
        stats: Stats { nanoseconds: start.elapsed().as_nanos() as u64, ..stats },
    })
}

/// What a walk that found nothing wrong leaves behind.
struct Walked {
    record: Record,
    recorded: Option<Arc<Recorded>>,
    cfg: Cfg,
    stats: Stats,
}

/// Walks every path.
fn walk(
    program: &Subject,
    config: &Config<'_>,
    log: Option<&mut Log<'_>>,
    start: Instant,
) -> Result<Walked, Box<Refusal>> {
    let helpers = |id| (config.helpers)(id);
    let config = &Config { helpers: &helpers, ..*config };
    let names = Names { maps: &program.maps, btf: config.btf, helpers: config.helpers };
    let mut stats = Stats::default();
    let cfg = check_one_arena(program)
        .and_then(|()| Cfg::of(program, config))
        .map_err(|violation| refuse(program, &names, &violation, 0, (stats, start), Vec::new()))?;
    // What the future reads is asked where paths meet; where none do, nobody asks.
    let liveness = match cfg.joins() {
        0 => Liveness::default(),
        _ => Liveness::of(program, &cfg, config),
    };
    let mut walker = Walker::new(Env::new(program, config, &cfg, &liveness));
    if let Some(log) = log {
        log.functions();
        walker.observer = Some(log);
    }
    let mut outcome = walker.walk();
    stats.walked = walker.usage.walked;
    let mut exactly = false;
    if outcome.is_err() && walker.speculations.made_general {
        // A general state takes ways that no run takes. Only if exact ones are too many, what it found is the reason.
        let mut again = Walker::new(Env::new(program, config, &cfg, &liveness));
        again.speculations.exact_only = true;
        again.observer = walker.observer.take();
        let exact = again.walk();
        stats.walked += again.usage.walked;
        exactly = !matches!(&exact, Err(violation) if violation.code == Code::Limit);
        if exactly {
            (walker, outcome) = (again, exact);
        }
    }
    stats.peak_states = walker.usage.peak_states;
    stats.peak_bytes = walker.usage.peak_bytes as u64;
    // The time that the search for a cause takes is not the verification's.
    stats.nanoseconds = start.elapsed().as_nanos() as u64;
    let mut violation = match outcome {
        Ok(()) => {
            let (record, recorded) = (walker.transfer.record, walker.recorded.map(Arc::new));
            return Ok(Walked { record, recorded, cfg, stats });
        }
        Err(violation) => violation,
    };
    let history = walker.history;
    let slot = violation.slot.map_or(walker.transfer.slot, |slot| slot as usize);
    let path = match violation.code {
        Code::Loop | Code::Limit => cause::turns(program, &names, &history),
        _ => {
            let mut recorder = Recorder::new(&program.source.insns, &history, &violation.reason);
            record(program, config, &cfg, &liveness, exactly, &mut recorder);
            cause::path(program, &names, &violation, slot, &recorder)
        }
    };
    if let Some(btf) = config.btf {
        violation.reason = object::with_names(btf, object::HOST, &violation.reason).into_owned();
    }
    if let Some(btf) = program.source.btf.as_deref() {
        violation.reason = object::with_names(btf, object::OWN, &violation.reason).into_owned();
    }
    violation.reason = names.with_calls(&program.source.insns, &violation.reason);
    Err(refuse(program, &names, &violation, slot, (stats, start), path))
}

/// Walks once more, recording the path.
fn record(
    program: &Subject,
    config: &Config<'_>,
    cfg: &Cfg,
    liveness: &Liveness,
    exactly: bool,
    recorder: &mut Recorder<'_>,
) {
    let helpers = |id| (config.helpers)(id);
    let config = &Config { helpers: &helpers, max_recorded: 0, ..*config };
    let mut walker = Walker::new(Env::new(program, config, cfg, liveness));
    walker.speculations.exact_only = exactly;
    walker.observer = Some(recorder);
    // It ends as it did before.
    let _ = walker.walk();
}

#[cold]
fn refuse(
    program: &Subject,
    names: &Names<'_>,
    violation: &Violation,
    slot: usize,
    (stats, start): (Stats, Instant),
    path: Vec<Step>,
) -> Box<Refusal> {
    let source = &program.source;
    let slot = violation.slot.unwrap_or(slot as u32);
    let line = line_at(source, slot);
    let nanoseconds = match stats.nanoseconds {
        0 => start.elapsed().as_nanos() as u64,
        known => known,
    };
    Box::new(Refusal {
        program: source.name.clone(),
        code: violation.code,
        slot,
        insn: source.insns.get(slot as usize).map(|insn| names.assembler(insn)).unwrap_or_default(),
        reason: violation.reason.clone(),
        suggestion: violation.suggestion.map(str::to_owned),
        words: violation.words.clone(),
        file: line.map(|line| line.file.clone()),
        line: line.map(|line| line.line),
        source: line.map(|line| line.text.clone()).filter(|text| !text.is_empty()),
        path,
        walked: stats.walked,
        peak_states: stats.peak_states,
        nanoseconds,
    })
}
