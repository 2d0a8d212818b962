//! Proves that a BPF program is safe to run, or says why not.
//!
//! [`verify`] takes an [`Unverified`] program and returns a [`Verified`] one, which only this crate can make
//! and which alone can be compiled or interpreted; or a [`Refusal`] that names the instruction, the source
//! line, what was expected and what was found.
//!
//! # How
//!
//! The program is run on *abstract* values, each of which stands for every value that a register or a stack
//! byte may have there, along every path. An access is allowed if it is safe for all of them.
//!
//! ```text
//!   Unverified -> cfg: structure -> flow: what the future reads -> walk: every path -> facts -> Verified
//!                                                                   |  ^
//!                                                                   v  |
//!                                              alu, access, call, branch, pointer: one step each
//!                                              prune: stop where a finished state covers this one
//! ```
//!
//! What holds of every accepted program, whatever its input:
//!
//! - it ends, after at most as many instructions as its own loops allow;
//! - it reads only registers and stack bytes that it wrote, and only memory inside of its stack, its context's
//!   fields, its packet, the values of its maps, or its buffer, and writes only what of that may be written;
//! - it gives helpers what their prototypes ask for;
//! - no address leaves it: not as its result, not into maps, packets or the context, not as a number.
//!
//! Nothing is taken on trust from the loader or the compiler. A program that does what this version does not
//! understand is refused with [`Code::Unsupported`].
#![forbid(unsafe_code)]

mod access;
mod addresses;
mod alu;
mod args;
mod branch;
mod call;
mod callback;
mod cfg;
mod dynptr;
mod ends;
mod facts;
mod fault;
mod flow;
mod frames;
mod guess;
mod iterator;
mod maps;
mod memory;
mod num;
mod outline;
mod packet;
mod pointer;
mod program;
mod prune;
mod recorded;
mod refusal;
mod region;
mod resources;
mod rounds;
mod scalar;
mod snapshot;
#[cfg(test)]
mod soundness;
mod special;
mod stack;
mod state;
mod tnum;
mod value;
mod walk;
mod widen;

pub use program::{CallFact, Fact, FunctionFacts, Stats, Unverified, Verified};
pub use recorded::{Machine, MachineFrame, Mismatch, Object, Outside, Packet, Place, Recorded};
pub use refusal::{Code, Refusal, Step};

use cfg::Shape;
use fault::Fault;
use flow::Flow;
use skep_abi::HelperProto;
use std::sync::Arc;
use std::time::Instant;
use walk::{Turn, Walker};

/// What the host allows and provides.
pub struct Config<'a> {
    /// Prototypes of callable helpers by number. Types restrict the numbers of Linux's own.
    pub helpers: &'a dyn Fn(u32) -> Option<&'a HelperProto>,
    /// The most instructions that may be walked, over all paths.
    pub max_walked: u64,
    /// The most bytes that remembered states may take.
    pub max_state_bytes: usize,
    /// Whether memory accesses must be aligned to their size.
    pub strict_alignment: bool,
    /// The most states to keep for [`Verified::recorded`]; 0 for none. For tests: each takes a kilobyte or two.
    pub max_recorded: usize,
}

impl Default for Config<'static> {
    /// Linux's helpers, a million instructions, 64 MiB of states, any alignment.
    fn default() -> Self {
        Self {
            helpers: &skep_abi::linux_helper,
            max_walked: 1_000_000,
            max_state_bytes: 64 << 20,
            strict_alignment: false,
            max_recorded: 0,
        }
    }
}

/// Proves a program safe.
///
/// # Errors
///
/// A [`Refusal`] where the program is unsafe, breaks a limit, or uses what this version does not understand.
pub fn verify(program: Unverified, config: &Config<'_>) -> Result<Verified, Box<Refusal>> {
    let start = Instant::now();
    let mut stats = Stats::default();
    // The same, for as long as this call lasts.
    let helpers = |id| (config.helpers)(id);
    let config = &Config { helpers: &helpers, ..*config };
    let shape =
        Shape::of(&program, config).map_err(|fault| refuse(&program, *fault, 0, (stats, start), &[]))?;
    // What the future reads is asked where paths meet; where none do, nobody asks.
    let flow = match shape.joins() {
        0 => Flow::default(),
        _ => Flow::of(&program, &shape, config),
    };
    let mut walker = Walker::new(&program, config, &shape, &flow);
    let outcome = walker.walk();
    stats.walked = walker.walked;
    stats.peak_states = walker.peak_states;
    stats.peak_bytes = walker.peak_bytes as u64;
    if let Err(fault) = outcome {
        return Err(refuse(&program, *fault, walker.slot, (stats, start), &walker.history));
    }
    let tag = skep_isa::tag_with_map_descriptors(&program.source.insns).map_err(|error| {
        refuse(&program, *Fault::at(Code::Structure, 0, error.to_string()), 0, (stats, start), &[])
    })?;
    let (record, recorded) = (walker.record, walker.recorded.map(Arc::new));
    let Unverified { source, maps, entry } = program;
    let (insns, facts, functions) = record.finish(source.insns, source.functions, &shape);
    Ok(Verified {
        name: source.name,
        program_type: source.program_type,
        entry,
        insns,
        facts,
        functions,
        maps,
        lines: source.lines,
        tag: tag.0,
        recorded,
        stats: Stats { nanoseconds: start.elapsed().as_nanos() as u64, ..stats },
    })
}

/// The most branches that a refusal's path shows, the last ones.
const MAX_PATH: usize = 64;

#[cold]
fn refuse(
    program: &Unverified,
    fault: Fault,
    slot: usize,
    (stats, start): (Stats, Instant),
    history: &[Turn],
) -> Box<Refusal> {
    let source = &program.source;
    let slot = fault.slot.unwrap_or(slot as u32);
    let text = |slot: u32| source.insns.get(slot as usize).map(ToString::to_string).unwrap_or_default();
    let after = source.lines.partition_point(|line| line.slot <= slot);
    let line = source.lines[..after].last();
    let path = history[history.len().saturating_sub(MAX_PATH)..]
        .iter()
        .map(|turn| Step {
            slot: turn.slot,
            text: format!("{}: {}", text(turn.slot), if turn.taken { "taken" } else { "not taken" }),
        })
        .collect();
    Box::new(Refusal {
        program: source.name.clone(),
        code: fault.code,
        slot,
        insn: text(slot),
        reason: fault.reason,
        suggestion: fault.suggestion.map(str::to_owned),
        file: line.map(|line| line.file.clone()),
        line: line.map(|line| line.line),
        source: line.map(|line| line.text.clone()).filter(|text| !text.is_empty()),
        path,
        walked: stats.walked,
        peak_states: stats.peak_states,
        nanoseconds: start.elapsed().as_nanos() as u64,
    })
}
