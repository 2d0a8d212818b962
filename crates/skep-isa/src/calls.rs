//! Calls through registers (`callx`) whose target is known where they are.
//!
//! A `callx` calls what a register holds: the number of a helper, or the address of a function of the program. If the
//! register was set to a constant before it in the same basic block, the call is one with a constant target, and
//! becomes that. Others stay. The meaning of the program does not change, so that whoever verifies it need not know.

use crate::insn::{AluOp, CallTarget, Imm64, Insn, Operand, Width};

/// What a register was set to in the block.
#[derive(Clone, Copy)]
enum Known {
    Number(u64),
    /// The function that starts at that slot.
    Function(i64),
}

/// Replaces calls through registers by calls with constant targets, where the same basic block sets the register.
pub fn resolve_register_calls(insns: &mut [Insn]) {
    if !insns.iter().any(|insn| matches!(insn, Insn::CallReg { .. })) {
        return;
    }
    let mut begins = vec![false; insns.len()];
    for (slot, insn) in insns.iter().enumerate() {
        let jump =
            insn.jump_offset().and_then(|offset| usize::try_from(slot as i64 + 1 + i64::from(offset)).ok());
        for target in jump.into_iter().chain(insn.function_target(slot)) {
            if let Some(begins) = begins.get_mut(target) {
                *begins = true;
            }
        }
    }
    let mut known: [Option<Known>; 11] = [None; 11];
    for slot in 0..insns.len() {
        if begins[slot] || slot.checked_sub(1).is_some_and(|before| !insns[before].falls_through()) {
            known = [None; 11];
        }
        if let Insn::CallReg { reg } = insns[slot] {
            let target = match known[reg.index()] {
                Some(Known::Number(number)) => {
                    i32::try_from(number).ok().map(|id| CallTarget::Helper(id as u32))
                }
                Some(Known::Function(start)) => {
                    i32::try_from(start - slot as i64 - 1).ok().map(CallTarget::Local)
                }
                None => None,
            };
            if let Some(target) = target {
                insns[slot] = Insn::Call { target };
            }
        }
        for reg in insns[slot].writes().iter() {
            known[reg.index()] = None;
        }
        let (dst, value) = match insns[slot] {
            Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Imm(imm) } => {
                let number = match width {
                    Width::W32 => u64::from(imm as u32),
                    Width::W64 => i64::from(imm) as u64,
                };
                (dst, Known::Number(number))
            }
            Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Reg(from) } => {
                match known[from.index()] {
                    Some(value) => (dst, value),
                    None => continue,
                }
            }
            Insn::LoadImm64 { dst, value: Imm64::Value(number) } => (dst, Known::Number(number)),
            Insn::LoadImm64 { dst, value: Imm64::Function(offset) } => {
                (dst, Known::Function(slot as i64 + 1 + i64::from(offset)))
            }
            _ => continue,
        };
        if dst.index() < known.len() {
            known[dst.index()] = Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asm::assemble;

    fn resolved(text: &str) -> Vec<Insn> {
        let mut insns = assemble(text).unwrap();
        resolve_register_calls(&mut insns);
        insns
    }

    #[test]
    fn a_constant_of_the_same_block_is_the_target() {
        for (through, direct) in [
            ("r2 = 5\ncallx r2\nexit", "r2 = 5\ncall 5\nexit"),
            ("w2 = 5\nr3 = r2\ncallx r3\nexit", "w2 = 5\nr3 = r2\ncall 5\nexit"),
            ("r0 = 5 ll\ncallx r0\nexit", "r0 = 5 ll\ncall 5\nexit"),
            ("r6 = 7\ncallx r6\ncallx r6\nexit", "r6 = 7\ncall 7\ncall 7\nexit"),
            (
                "r2 = 5\nif r1 == 0 goto out\ncallx r2\nout: exit",
                "r2 = 5\nif r1 == 0 goto out\ncall 5\nout: exit",
            ),
            (
                "r2 = func[own] ll\ncallx r2\nexit\nown: r0 = 0\nexit",
                "r2 = func[own] ll\ncall own\nexit\nown: r0 = 0\nexit",
            ),
        ] {
            assert_eq!(resolved(through), assemble(direct).unwrap(), "{through}");
        }
    }

    #[test]
    fn whatever_may_be_something_else_stays() {
        for text in [
            "callx r2\nexit",
            "r2 = 5\nr2 += 1\ncallx r2\nexit",
            "r2 = 5\nr2 = *(u64 *)(r1 + 0)\ncallx r2\nexit",
            "r2 = -1\ncallx r2\nexit",
            "r2 = 0x80000000 ll\ncallx r2\nexit",
            // Calls clobber it.
            "r2 = 5\ncall 1\ncallx r2\nexit",
            "r2 = 5\ncall own\ncallx r2\nexit\nown: r0 = 0\nexit",
            // Others jump there.
            "r2 = 5\nif r1 == 0 goto to\nr2 = 6\nto: callx r2\nexit",
            "r2 = 5\ngoto to\nexit\nto: callx r2\nexit",
            "goto +1\nr2 = 5\ncallx r2\nexit",
            // A function begins there.
            "call own\nr2 = 5\nexit\nown: callx r2\nexit",
            "r2 = r10\ncallx r2\nexit",
        ] {
            let insns = resolved(text);
            assert_eq!(insns, assemble(text).unwrap(), "{text}");
        }
    }
}
