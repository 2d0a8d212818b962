//! The jumps of a program: loops that releases walk for different numbers of iterations, loops that are entered in
//! their middle, and instructions to which none leads.

use crate::Version;
use skep_abi::ProgramSource;
use skep_isa::{AluOp, Cond, Insn, Operand, Reg};
use skep_verifier::Verified;

/// Loops whose state differs in the stack alone are not taken for endless since then.
const EXACT_LOOPS: Version = Version::new(6, 8);

/// Loops whose bound is a number in a register end for the verifier since then, at the latest.
const BOUNDED_LOOPS: Version = Version::new(6, 1);

/// How far back a constant is looked for.
const NEAR: usize = 16;

/// A loop whose iterations releases count otherwise: the slot of its jump, and why.
pub(crate) fn walked_otherwise(
    source: &ProgramSource,
    verified: &Verified,
    version: Version,
) -> Option<(u32, &'static str)> {
    let insns = &source.insns;
    let jumps = insns.iter().zip(verified.facts()).zip(0u32..).filter(|((_, fact), _)| fact.reached);
    for ((insn, _), slot) in jumps {
        let Some(offset) = insn.jump_offset() else { continue };
        let Some(target) = (slot as usize + 1).checked_add_signed(offset as isize) else { continue };
        if target > slot as usize {
            continue;
        }
        if matches!(insn, Insn::JumpIf { cond: Cond::Set, .. }) {
            return Some((
                slot,
                "a loop goes on while bits are set, which releases walk for more or fewer rounds",
            ));
        }
        if version < EXACT_LOOPS && returns_to(insns, target, slot as usize) {
            if version < BOUNDED_LOOPS && counts_to_register(insns, target, slot as usize) {
                let text =
                    "a loop counts up to a number in a register, which older verifiers may do without end";
                return Some((slot, text));
            }
            if counts_in_stack(insns, target, slot as usize) {
                let text = "a loop may change nothing but the stack, which older verifiers take for endless";
                return Some((slot, text));
            }
        }
    }
    None
}

/// Whether control may come from `start` to the jump at `end` that leads back, by instructions between them.
fn returns_to(insns: &[Insn], start: usize, end: usize) -> bool {
    let mut seen = vec![false; end + 1 - start];
    let mut left = vec![start];
    while let Some(slot) = left.pop() {
        if !(start..=end).contains(&slot) || std::mem::replace(&mut seen[slot - start], true) {
            continue;
        }
        if slot == end {
            return true;
        }
        let insn = &insns[slot];
        left.extend(insn.jump_offset().and_then(|offset| (slot + 1).checked_add_signed(offset as isize)));
        if insn.falls_through() {
            left.push(slot + if matches!(insn, Insn::LoadImm64 { .. }) { 2 } else { 1 });
        }
    }
    false
}

/// Whether the jump at `end` compares a register that the loop counts with another one.
fn counts_to_register(insns: &[Insn], start: usize, end: usize) -> bool {
    let Some(Insn::JumpIf { cond, dst, src: Operand::Reg(src), .. }) = insns.get(end) else { return false };
    let counts = |insn: &Insn| {
        matches!(insn, Insn::Alu { op: AluOp::Add, dst: counted, src: Operand::Imm(_), .. }
            if counted == dst || counted == src)
    };
    !matches!(cond, Cond::Eq | Cond::Ne | Cond::Set) && insns[start..end].iter().any(counts)
}

/// Whether the condition of the loop from `start` to the jump at `end` is about a number that the loop keeps in the
/// stack, and that does not start as a constant.
fn counts_in_stack(insns: &[Insn], start: usize, end: usize) -> bool {
    let body = insns.get(start..=end).unwrap_or_default();
    let is_constant = |at: usize, src: &Operand| match src {
        Operand::Imm(_) => true,
        Operand::Reg(reg) => {
            insns[..at].iter().rev().take(NEAR).find_map(|insn| match insn {
                Insn::Alu { op, dst, src, .. } if dst == reg => {
                    Some(*op == AluOp::Mov && matches!(src, Operand::Imm(_)))
                }
                Insn::Load { dst, .. } if dst == reg => Some(false),
                Insn::Call { .. } => Some(false),
                _ => None,
            }) == Some(true)
        }
    };
    let kept = |slot: i16| {
        let mut stores = insns.iter().enumerate().filter_map(|(at, insn)| match insn {
            Insn::Store { base: Reg::R10, offset, src, .. } if *offset == slot => Some((at, src)),
            _ => None,
        });
        let (mut inside, mut varies) = (false, false);
        stores.by_ref().for_each(|(at, src)| match (start..=end).contains(&at) {
            true => inside = true,
            false => varies |= !is_constant(at, src),
        });
        inside && varies
    };
    let mut loaded = [None; 16];
    body.iter().any(|insn| match insn {
        Insn::Load { dst, base: Reg::R10, offset, .. } => {
            loaded[dst.number() as usize] = Some(*offset);
            false
        }
        Insn::JumpIf { dst, .. } => loaded[dst.number() as usize].is_some_and(kept),
        Insn::Load { dst, .. } | Insn::Alu { op: AluOp::Mov, dst, .. } => {
            loaded[dst.number() as usize] = None;
            false
        }
        Insn::Call { .. } => {
            loaded[..6].fill(None);
            false
        }
        _ => false,
    })
}

/// Whether an instruction that is no jump falls through to one that leads to it: the loop's head is inside of it.
pub(crate) fn enters_loops_inside(source: &ProgramSource) -> bool {
    let insns = &source.insns;
    let mut entered = vec![false; insns.len()];
    let mut left = vec![false; insns.len()];
    let mut stack: Vec<(usize, u8)> =
        source.functions.iter().map(|function| (function.start as usize, 0)).collect();
    while let Some((slot, step)) = stack.pop() {
        let Some(insn) = insns.get(slot) else { continue };
        if step == 0 && std::mem::replace(&mut entered[slot], true) {
            continue;
        }
        // A 64-bit load has two slots.
        let next = slot + if matches!(insn, Insn::LoadImm64 { .. }) { 2 } else { 1 };
        match step {
            0 => {
                stack.push((slot, 1));
                if insn.falls_through() && next < insns.len() {
                    if insn.jump_offset().is_none() && entered[next] && !left[next] {
                        return true;
                    }
                    stack.push((next, 0));
                }
            }
            1 => {
                stack.push((slot, 2));
                let to = insn.jump_offset().and_then(|offset| (slot + 1).checked_add_signed(offset as isize));
                stack.extend(to.map(|to| (to, 0)));
            }
            _ => left[slot] = true,
        }
    }
    false
}

/// Whether the jumps of a program lead to all of its instructions. Releases refuse others, whatever the code.
pub(crate) fn all_are_reachable(source: &ProgramSource) -> bool {
    let mut seen = vec![false; source.insns.len()];
    let mut left: Vec<usize> = source.functions.iter().map(|function| function.start as usize).collect();
    left.push(0);
    while let Some(slot) = left.pop() {
        let Some(insn) = source.insns.get(slot) else { continue };
        if std::mem::replace(&mut seen[slot], true) {
            continue;
        }
        left.extend(insn.jump_offset().and_then(|offset| (slot + 1).checked_add_signed(offset as isize)));
        if insn.falls_through() {
            left.push(slot + 1);
        }
    }
    seen.iter().all(|seen| *seen)
}
