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
//! Only innermost loops ([`loops`]) and adjacent loads ([`loads`]) are rewritten, and in functions with a loop the
//! blocks are put in another [`order`]. A program without these costs two looks at each instruction. Where the result
//! cannot be expressed, or does not compile, the program is compiled as it was verified; so are programs of strangers
//! ([`Options::passes`]).
//!
//! It would break if an instruction were copied to where a different path leads to it, or if a round were not charged.

mod bulk;
mod loads;
mod loops;
mod order;
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
    let unchanged = merged.is_none() && plans.iter().all(unroll::Plan::changes_nothing);
    if unchanged && (loops.is_empty() || !passes.order) {
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
    code.resolve()?;
    if !(passes.order && !loops.is_empty() && code.order()) && unchanged {
        return None;
    }
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

    /// Makes a slot of each target; `None` if the program has none.
    fn resolve(&mut self) -> Option<()> {
        for (_, target) in &mut self.targets {
            if let Target::Verified(slot) = *target {
                *target = Target::New(*self.first.get(slot)? as usize);
            }
        }
        Some(())
    }

    /// Puts the blocks of each function in order; whether any has changed.
    fn order(&mut self) -> bool {
        let verified = self.verified;
        let mut heads = vec![false; verified.insns.len()];
        for (slot, insn) in verified.insns.iter().enumerate() {
            if let Some(head) = insn.jump_target(slot).filter(|head| *head <= slot) {
                heads[head] = true;
            }
        }
        let mut targets = vec![0; self.insns.len()];
        for &(at, target) in &self.targets {
            if let Target::New(slot) = target {
                targets[at as usize] = slot as u32;
            }
        }
        let Self { insns, origins, .. } = &*self;
        let (targets, facts, heads) = (&targets, verified.facts, &heads);
        let input = order::Input { insns, origins, targets, facts, heads };
        let start = |slot: u32| self.first.get(slot as usize).map_or(insns.len(), |at| *at as usize);
        let functions = verified.functions.iter().map(|function| start(function.start)..start(function.end));
        let ordered = functions.filter_map(|slots| Some((slots.clone(), order::function(&input, slots)?)));
        let ordered: Vec<_> = ordered.collect();
        if ordered.is_empty() {
            return false;
        }
        self.put_in_order(&ordered, targets);
        true
    }

    /// Moves the instructions of these functions, which are in ascending order.
    fn put_in_order(&mut self, ordered: &[(std::ops::Range<usize>, Vec<order::Placed>)], targets: &[u32]) {
        const NOWHERE: u32 = u32::MAX;
        let end = self.insns.len();
        let mut jumps = vec![false; end];
        self.targets.iter().for_each(|(at, _)| jumps[*at as usize] = true);
        let stay = |slot: usize| order::Placed {
            insn: self.insns[slot],
            origin: self.origins[slot],
            from: Some(slot as u32),
            target: jumps[slot].then_some(targets[slot]),
        };
        let mut placed: Vec<order::Placed> = Vec::with_capacity(end + end / 8);
        let mut slot = 0;
        for (slots, code) in ordered {
            placed.extend((slot..slots.start).map(stay));
            placed.extend(code.iter().map(|at| match at.from {
                // A call of a function has a target too.
                Some(from) if at.target.is_none() => {
                    order::Placed { target: stay(from as usize).target, ..*at }
                }
                _ => *at,
            }));
            slot = slots.end;
        }
        placed.extend((slot..end).map(stay));
        // What has no code begins where the next one does.
        let mut moved = vec![NOWHERE; end + 1];
        moved[end] = placed.len() as u32;
        for (at, placed) in placed.iter().enumerate() {
            if let Some(from) = placed.from {
                moved[from as usize] = at as u32;
            }
        }
        for slot in (0..end).rev() {
            if moved[slot] == NOWHERE {
                moved[slot] = moved[slot + 1];
            }
        }
        let of = |slot: u32| moved[slot as usize];
        self.first.iter_mut().for_each(|slot| *slot = of(*slot));
        self.bulk.iter_mut().for_each(|(slot, _)| *slot = of(*slot));
        self.bulk.sort_unstable_by_key(|(slot, _)| *slot);
        self.insns = placed.iter().map(|placed| placed.insn).collect();
        self.origins = placed.iter().map(|placed| placed.origin).collect();
        let targets = placed.iter().zip(0..).filter_map(|(placed, at)| Some((at, placed.target?)));
        self.targets = targets.map(|(at, target)| (at, Target::New(of(target) as usize))).collect();
    }

    /// The result with all distances; `None` if a target is out of reach.
    fn finish(mut self) -> Option<Rewritten<'a>> {
        let verified = self.verified;
        for &(at, target) in &self.targets {
            let Target::New(target) = target else { return None };
            let distance = i32::try_from(target as i64 - i64::from(at) - 1).ok()?;
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
