//! The changes that an instruction can have: one edit each, of the kinds of mistakes that people make.
//!
//! A change keeps the number of slots, so that no jump moves. What is left out becomes a jump to the next instruction.

use skep_isa::{AluOp, CallTarget, Cond, Imm64, Insn, Operand, Reg, Width};
use std::fmt;

/// One change of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// A condition became its opposite.
    Negated {
        /// As it was.
        from: Cond,
        /// As it is.
        to: Cond,
    },
    /// A comparison includes its boundary, or no longer does: `<` became `<=`.
    Boundary {
        /// As it was.
        from: Cond,
        /// As it is.
        to: Cond,
    },
    /// A conditional jump is always taken.
    AlwaysTaken,
    /// A conditional jump is never taken.
    NeverTaken,
    /// A constant became another one.
    Constant {
        /// As it was.
        from: i64,
        /// As it is.
        to: i64,
    },
    /// A store or an atomic operation is left out.
    NoStore,
    /// An arithmetic operator became another one.
    Operator {
        /// As it was.
        from: AluOp,
        /// As it is.
        to: AluOp,
    },
    /// The call of a helper is left out, and has this result.
    NoCall {
        /// The helper's name or number.
        helper: String,
        /// The result.
        result: i32,
    },
}

/// The changes of an instruction, in a fixed order.
pub(crate) fn changes(insn: Insn) -> Vec<(Change, Insn)> {
    match insn {
        // It leads to the same place whether the condition holds or not.
        Insn::JumpIf { offset: 0, .. } => Vec::new(),
        Insn::JumpIf { cond, offset, width, dst, src } => {
            let with = |to| Insn::JumpIf { cond: to, width, dst, src, offset };
            let negated = negated(cond).map(|to| (Change::Negated { from: cond, to }, with(to)));
            let boundary = boundary(cond).map(|to| (Change::Boundary { from: cond, to }, with(to)));
            let always = Insn::Jump { offset: offset.into(), long: false };
            let jumps = [(Change::AlwaysTaken, always), (Change::NeverTaken, NOTHING)];
            negated.into_iter().chain(boundary).chain(jumps).collect()
        }
        Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Imm(from) } => {
            let with = |to| Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Imm(to) };
            constants(from, &[from.wrapping_add(1), from.wrapping_sub(1), 0], with)
        }
        Insn::Alu { width, op, dst, src } if op != AluOp::Mov => {
            let with = |op, src| Insn::Alu { width, op, dst, src };
            let mut found = Vec::new();
            if let Some(to) = exchanged(op) {
                found.push((Change::Operator { from: op, to }, with(to, src)));
            }
            if let Operand::Imm(from) = src {
                let near = [from.wrapping_add(1), from.wrapping_sub(1)];
                found.extend(constants(from, &near, |to| with(op, Operand::Imm(to))));
            }
            // A shift by too many bits and a division by zero are refused as instructions: nothing to learn.
            found.retain(|(_, insn)| !is_undefined(insn));
            found
        }
        Insn::LoadImm64 { dst, value: Imm64::Value(from) } => {
            let change = |to: u64| {
                let change = Change::Constant { from: from.cast_signed(), to: to.cast_signed() };
                (change, Insn::LoadImm64 { dst, value: Imm64::Value(to) })
            };
            [from.wrapping_add(1), 0].into_iter().filter(|to| *to != from).map(change).collect()
        }
        Insn::Store { size, base, offset, src } => {
            let mut found = vec![(Change::NoStore, NOTHING)];
            if let Operand::Imm(from) = src {
                let with = |to| Insn::Store { size, base, offset, src: Operand::Imm(to) };
                found.extend(constants(from, &[from.wrapping_add(1), 0], with));
            }
            found
        }
        Insn::Atomic { .. } | Insn::StoreRelease { .. } => vec![(Change::NoStore, NOTHING)],
        Insn::Call { target: CallTarget::Helper(number) } => {
            let name = match skep_abi::linux_helper(number) {
                Some(known) => format!("bpf_{}", known.name),
                None => number.to_string(),
            };
            let with = |result| {
                let (op, src) = (AluOp::Mov, Operand::Imm(result));
                let insn = Insn::Alu { width: Width::W64, op, dst: Reg::R0, src };
                (Change::NoCall { helper: name.clone(), result }, insn)
            };
            [0, -1].map(with).into()
        }
        _ => Vec::new(),
    }
}

/// A jump to the next instruction.
const NOTHING: Insn = Insn::Jump { offset: 0, long: false };

fn constants(from: i32, to: &[i32], with: impl Fn(i32) -> Insn) -> Vec<(Change, Insn)> {
    let mut found: Vec<(Change, Insn)> = Vec::new();
    for &to in to {
        let change = Change::Constant { from: from.into(), to: to.into() };
        if to != from && found.iter().all(|(known, _)| *known != change) {
            found.push((change, with(to)));
        }
    }
    found
}

fn is_undefined(insn: &Insn) -> bool {
    let Insn::Alu { width, op, src: Operand::Imm(imm), .. } = *insn else { return false };
    match op {
        AluOp::Lsh | AluOp::Rsh | AluOp::Arsh => imm < 0 || imm.cast_unsigned() >= width.bits(),
        AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod => imm == 0,
        _ => false,
    }
}

fn negated(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Eq => Cond::Ne,
        Cond::Ne => Cond::Eq,
        Cond::Gt => Cond::Le,
        Cond::Ge => Cond::Lt,
        Cond::Lt => Cond::Ge,
        Cond::Le => Cond::Gt,
        Cond::Sgt => Cond::Sle,
        Cond::Sge => Cond::Slt,
        Cond::Slt => Cond::Sge,
        Cond::Sle => Cond::Sgt,
        // No condition says that no bit is set.
        Cond::Set => return None,
    })
}

fn boundary(cond: Cond) -> Option<Cond> {
    Some(match cond {
        Cond::Gt => Cond::Ge,
        Cond::Ge => Cond::Gt,
        Cond::Lt => Cond::Le,
        Cond::Le => Cond::Lt,
        Cond::Sgt => Cond::Sge,
        Cond::Sge => Cond::Sgt,
        Cond::Slt => Cond::Sle,
        Cond::Sle => Cond::Slt,
        Cond::Eq | Cond::Ne | Cond::Set => return None,
    })
}

fn exchanged(op: AluOp) -> Option<AluOp> {
    Some(match op {
        AluOp::Add => AluOp::Sub,
        AluOp::Sub => AluOp::Add,
        AluOp::Mul => AluOp::Div,
        AluOp::Div => AluOp::Mul,
        AluOp::Or => AluOp::And,
        AluOp::And => AluOp::Or,
        AluOp::Lsh => AluOp::Rsh,
        AluOp::Rsh | AluOp::Arsh => AluOp::Lsh,
        AluOp::Mod => AluOp::Mul,
        AluOp::Xor => AluOp::Or,
        AluOp::Sdiv | AluOp::Smod | AluOp::Mov => return None,
    })
}

fn condition(cond: Cond) -> &'static str {
    match cond {
        Cond::Eq => "==",
        Cond::Ne => "!=",
        Cond::Gt => ">",
        Cond::Ge => ">=",
        Cond::Lt => "<",
        Cond::Le => "<=",
        Cond::Sgt => "s>",
        Cond::Sge => "s>=",
        Cond::Slt => "s<",
        Cond::Sle => "s<=",
        Cond::Set => "&",
    }
}

fn operator(op: AluOp) -> &'static str {
    match op {
        AluOp::Add => "+",
        AluOp::Sub => "-",
        AluOp::Mul => "*",
        AluOp::Div => "/",
        AluOp::Sdiv => "s/",
        AluOp::Or => "|",
        AluOp::And => "&",
        AluOp::Lsh => "<<",
        AluOp::Rsh => ">>",
        AluOp::Arsh => "s>>",
        AluOp::Mod => "%",
        AluOp::Smod => "s%",
        AluOp::Xor => "^",
        AluOp::Mov => "=",
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negated { from, to } => write!(f, "{} negated to {}", condition(*from), condition(*to)),
            Self::Boundary { from, to } => write!(f, "{} replaced by {}", condition(*from), condition(*to)),
            Self::AlwaysTaken => f.write_str("branch always taken"),
            Self::NeverTaken => f.write_str("branch never taken"),
            Self::Constant { from, to } => write!(f, "{from} replaced by {to}"),
            Self::NoStore => f.write_str("store removed"),
            Self::Operator { from, to } => write!(f, "{} replaced by {}", operator(*from), operator(*to)),
            Self::NoCall { helper, result } => write!(f, "{helper} not called, result {result}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_isa::semantics::{alu, holds};

    const CONDITIONS: [Cond; 11] = [
        Cond::Eq,
        Cond::Ne,
        Cond::Gt,
        Cond::Ge,
        Cond::Lt,
        Cond::Le,
        Cond::Sgt,
        Cond::Sge,
        Cond::Slt,
        Cond::Sle,
        Cond::Set,
    ];
    const NUMBERS: [u64; 8] = [0, 1, 2, 7, 0x7fff_ffff, 0x8000_0000, u64::MAX, 1 << 63];
    const WIDTHS: [Width; 2] = [Width::W32, Width::W64];

    /// Whether a statement holds for all pairs of numbers in both widths.
    fn always(of: impl Fn(Width, u64, u64) -> bool) -> bool {
        WIDTHS.iter().all(|&width| NUMBERS.iter().all(|&a| NUMBERS.iter().all(|&b| of(width, a, b))))
    }

    #[test]
    fn a_negated_condition_holds_exactly_where_the_condition_does_not() {
        for cond in CONDITIONS {
            let Some(opposite) = negated(cond) else { continue };
            assert!(
                always(|width, a, b| holds(width, cond, a, b) != holds(width, opposite, a, b)),
                "{cond:?}"
            );
        }
    }

    #[test]
    fn a_moved_boundary_differs_exactly_where_both_operands_are_equal() {
        for cond in CONDITIONS {
            let Some(moved) = boundary(cond) else { continue };
            let equal = |width, a, b| holds(width, Cond::Eq, a, b);
            let differs = |width, a, b| holds(width, cond, a, b) != holds(width, moved, a, b);
            assert!(always(|width, a, b| differs(width, a, b) == equal(width, a, b)), "{cond:?}");
        }
    }

    #[test]
    fn an_exchanged_operator_computes_something_else() {
        for op in AluOp::ALL {
            let Some(other) = exchanged(op) else { continue };
            assert!(!always(|width, a, b| alu(width, op, a, b) == alu(width, other, a, b)), "{op:?}");
        }
    }

    #[test]
    fn every_change_differs_from_the_instruction_has_its_size_and_comes_once() {
        let text = "if r1 > 7 goto +1\n if w1 & 7 goto +1\n if r1 == 3 goto +0\n r1 = 0\n r1 = 1\n r1 = -1\n r1 += 1\n r1 <<= 63\n w1 /= 1\n \
                    r1 = 5 ll\n *(u32 *)(r10 - 4) = 1\n *(u64 *)(r10 - 8) = r1\n call 1\n r0 = 0\n exit";
        let insns = skep_isa::assemble(text).unwrap();
        let mut count = 0;
        for &insn in &insns {
            let found = changes(insn);
            count += found.len();
            for (at, (change, changed)) in found.iter().enumerate() {
                assert_ne!(*changed, insn, "{change}");
                assert!(found[..at].iter().all(|(_, other)| other != changed), "{change} of {insn:?} twice");
                let is_long = |insn: &Insn| matches!(insn, Insn::LoadImm64 { .. });
                assert_eq!(is_long(changed), is_long(&insn), "{change}");
                assert!(!is_undefined(changed), "{change}");
            }
        }
        assert!(count > insns.len(), "{count}");
    }
}
