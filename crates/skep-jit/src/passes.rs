//! Passes over a verified program before it becomes code: what pays across instructions.
//!
//! A pass makes another list of instructions, and for each of them the slot that it is a copy of. A fact of the
//! verifier is about an instruction on every path, so it holds for each copy. Lowering knows of the passes only where
//! slots of the verified program count: charges ([`skep_abi::round_weights`]), what calls print, errors, offsets. An
//! instruction that was added, such as a jump to where control went anyway, is marked and never charged.
//!
//! ```text
//!   verified                  rewritten                    origin
//!   4  head: r1 += r2         4  head: r1 += r2            4
//!   5        r3 += -1         5        r3 += -1            5
//!   6  if r3 != 0 goto head   6  if r3 == 0 goto 10        6
//!   7  ...                    7  r1 += r2                  4
//!                             8  r3 += -1                  5
//!                             9  if r3 != 0 goto head      6
//!                             10 ...                       7
//! ```
//!
//! Only innermost loops ([`loops`]) and adjacent loads ([`loads`]) are rewritten. A program without them costs two
//! looks at each instruction. Where the result cannot be expressed, or does not compile, the program is compiled as it
//! was verified; so are programs of strangers ([`Options::passes`]).
//!
//! It would break if an instruction were copied to where a different path leads to it, or if a round were not charged.

mod bulk;
mod loads;
mod loops;
mod unroll;

use skep_isa::{CallTarget, Imm64, Insn};
use skep_verifier::{Fact, FunctionFacts};

use crate::options::Options;
use crate::parts::{Origin, Parts, Rewriting};
use crate::port::bulk::Bulk;

/// A program that passes have rewritten.
#[derive(Debug)]
pub(crate) struct Rewritten<'a> {
    insns: Vec<Insn>,
    facts: Vec<Fact>,
    functions: Vec<FunctionFacts>,
    origins: Vec<Origin>,
    bulk: Vec<(u32, Bulk)>,
    /// By slot of the verified program: the first slot of its code.
    first: Vec<u32>,
    verified: Parts<'a>,
}

/// Where control goes.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// To the first copy of the instruction in this slot of the verified program.
    Verified(usize),
    /// To this slot.
    New(usize),
}

/// A list of instructions under construction.
#[derive(Debug)]
struct Code<'a, 's> {
    verified: Parts<'a>,
    /// What is copied: the verified program with merged loads.
    source: &'s [Insn],
    insns: Vec<Insn>,
    origins: Vec<Origin>,
    /// Slots with a target, in ascending order.
    targets: Vec<(u32, Target)>,
    bulk: Vec<(u32, Bulk)>,
    first: Vec<u32>,
}

/// Rewrites a program as the options say; `None` if nothing pays.
pub(crate) fn rewrite<'a>(parts: Parts<'a>, options: Options) -> Option<Rewritten<'a>> {
    let passes = options.passes;
    let Options { blind_constants, mask_speculation, order_reloads, .. } = options;
    // Each instruction that is counted has one place.
    let is_counted = parts.linkage.counts.is_some();
    if is_counted
        || blind_constants
        || mask_speculation
        || order_reloads
        || passes == crate::options::Passes::NONE
    {
        return None;
    }
    let merged = if passes.loads { loads::merge(&parts) } else { None };
    let source = Parts { insns: merged.as_deref().unwrap_or(parts.insns), ..parts };
    let loops = loops::innermost(&source);
    let charged = parts.linkage.ends.as_ref().is_some_and(|ends| ends.charge.is_some());
    let plans = unroll::plan(&source, &loops, passes, !charged);
    if merged.is_none() && plans.iter().all(unroll::Plan::changes_nothing) {
        return None;
    }
    let mut code = Code::new(parts, source.insns, &plans);
    let mut slot = 0;
    for plan in &plans {
        code.keep(slot..plan.head());
        plan.write(&mut code);
        slot = plan.end();
    }
    code.keep(slot..parts.insns.len());
    code.finish()
}

impl<'a, 's> Code<'a, 's> {
    fn new(verified: Parts<'a>, source: &'s [Insn], plans: &[unroll::Plan]) -> Self {
        let slots = verified.insns.len() + plans.iter().map(unroll::Plan::most_added).sum::<usize>();
        Self {
            verified,
            source,
            insns: Vec::with_capacity(slots),
            origins: Vec::with_capacity(slots),
            targets: Vec::with_capacity(slots / 4),
            bulk: Vec::new(),
            first: Vec::with_capacity(verified.insns.len()),
        }
    }

    /// The slot of the next instruction.
    fn here(&self) -> usize {
        self.insns.len()
    }

    /// Appends an instruction without a target.
    fn put(&mut self, origin: Origin, insn: Insn) {
        self.insns.push(insn);
        self.origins.push(origin);
    }

    /// Appends one with a target.
    fn put_to(&mut self, origin: Origin, insn: Insn, target: Target) {
        self.targets.push((self.here() as u32, target));
        self.put(origin, insn);
    }

    /// The first code of the next slot of the verified program begins here.
    fn begin(&mut self) {
        self.first.push(self.here() as u32);
    }

    /// Copies these slots, which follow those before.
    fn keep(&mut self, slots: std::ops::Range<usize>) {
        for slot in slots {
            self.begin();
            let insn = self.source[slot];
            match insn.jump_target(slot).or_else(|| insn.function_target(slot)) {
                Some(target) => self.put_to(Origin::copy(slot), insn, Target::Verified(target)),
                None => self.put(Origin::copy(slot), insn),
            }
        }
    }

    /// Resolves all targets; `None` if one is out of reach.
    fn finish(mut self) -> Option<Rewritten<'a>> {
        let verified = self.verified;
        for &(at, target) in &self.targets {
            let target = match target {
                Target::New(slot) => slot as i64,
                Target::Verified(slot) => i64::from(*self.first.get(slot)?),
            };
            let distance = i32::try_from(target - i64::from(at) - 1).ok()?;
            set_distance(&mut self.insns[at as usize], distance)?;
        }
        let facts = self.origins.iter().map(|origin| {
            let fact = &verified.facts[origin.slot()];
            if origin.is_added() || self.source[origin.slot()] != verified.insns[origin.slot()] {
                Fact { reached: fact.reached, ..Fact::default() }
            } else {
                *fact
            }
        });
        let facts = facts.collect();
        let end = self.insns.len() as u32;
        let first = |slot: u32| self.first.get(slot as usize).copied().unwrap_or(end);
        let functions = verified.functions.iter().map(|function| FunctionFacts {
            start: first(function.start),
            end: first(function.end),
            stack_bytes: function.stack_bytes,
            zeroed: function.zeroed,
            may_throw: function.may_throw,
            // Nothing else concerns code.
            ..FunctionFacts::default()
        });
        let functions = functions.collect();
        let Self { insns, origins, bulk, first, .. } = self;
        Some(Rewritten { insns, facts, functions, origins, bulk, first, verified })
    }
}

/// Sets the distance of a jump, a call or a load of a function's address; `None` if it does not fit.
fn set_distance(insn: &mut Insn, distance: i32) -> Option<()> {
    match insn {
        Insn::Jump { offset, long } => {
            *offset = distance;
            *long |= i16::try_from(distance).is_err();
        }
        Insn::JumpIf { offset, .. } | Insn::MayGoto { offset } => *offset = i16::try_from(distance).ok()?,
        Insn::Call { target: CallTarget::Local(offset) }
        | Insn::LoadImm64 { value: Imm64::Function(offset), .. } => *offset = distance,
        _ => return None,
    }
    Some(())
}

impl Rewritten<'_> {
    /// What is compiled.
    pub(crate) fn parts(&self) -> Parts<'_> {
        let Parts { insns, facts, functions, .. } = self.verified;
        let rewriting = Rewriting { origins: &self.origins, bulk: &self.bulk, insns, facts, functions };
        Parts {
            insns: &self.insns,
            facts: &self.facts,
            functions: &self.functions,
            rewriting: Some(rewriting),
            ..self.verified
        }
    }

    /// How many loops are done in bulk, and the slots of the code with what each is a copy of.
    #[cfg(test)]
    pub(crate) fn shape(&self) -> (usize, Vec<usize>) {
        let copies = self.origins.iter().filter(|origin| !origin.is_added());
        (self.bulk.len(), copies.map(|origin| origin.slot()).collect())
    }

    /// Where the slots of the verified program are.
    pub(crate) fn places(self) -> Places {
        Places { first: self.first, origins: self.origins }
    }
}

/// Where the slots of a verified program are in what was compiled.
#[derive(Debug)]
pub(crate) struct Places {
    /// By slot of the verified program: the first slot of its code.
    first: Vec<u32>,
    /// By slot of the code: where it comes from.
    origins: Vec<Origin>,
}

impl Places {
    /// Each in its place.
    pub(crate) fn unchanged(slots: usize) -> Self {
        Self { first: (0..slots as u32).collect(), origins: Vec::new() }
    }

    /// By slot of the verified program: the first slot of its code.
    pub(crate) fn first(&self) -> &[u32] {
        &self.first
    }

    /// The slot of the verified program that this slot of the code comes from.
    pub(crate) fn origin(&self, slot: usize) -> usize {
        self.origins.get(slot).map_or(slot, |origin| origin.slot())
    }

    /// Where the code of each instruction begins, slots of the code, each with the slot of the verified program;
    /// nothing if all are where they were.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (u32, u32)> {
        let in_place = self.origins.iter().enumerate().all(|(at, origin)| origin.slot() == at);
        let origins = self.origins.iter().enumerate().filter(move |_| !in_place);
        origins.map(|(at, origin)| (at as u32, origin.slot() as u32))
    }
}
