//! Arenas: memory that a program shares with the host, and the casts between its two addresses.
//!
//! A place in an arena has an address in each of two address spaces. The host's code uses the one in space 1, which to
//! the verifier is a number; the program's loads, stores and atomics take the one in space 0, [`Kind::Arena`].
//! `addr_space_cast` makes one of the other:
//!
//! ```text
//!   number ---- addr_space_cast(src, 0, 1) ---> Kind::Arena:  loads, stores, atomics
//!   any number <--- addr_space_cast(src, 1, 0) ---'   '--- arithmetic: another of Kind::Arena
//! ```
//!
//! Only the lower half of an address in space 0 counts: it says which byte of the arena's 4 GiB is meant. Every number
//! is such an offset, and pages that are not there read as 0 and ignore stores. So a program can forge such an address
//! but cannot leave the arena by it, and the bits say nothing about the host: everywhere else they are an unknown
//! number. Three rules keep it so:
//!
//! - No instruction but the cast makes a [`Kind::Arena`] of anything else, and an instruction that accesses the arena
//!   on one path accesses nothing else on any ([`Place::Arena`]).
//! - The address of anything else is not cast, stored into the arena or added to: its bits would be there to read.
//! - A program has one arena, which all its casts are about.

use crate::domain::state::State;
use crate::domain::value::{Kind, Value};
use crate::domain::words;
use crate::program::Subject;
use crate::program::facts::Place;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_isa::{AluOp, Imm64, Insn, Operand, Reg};

/// The address space of pointers that loads and stores take.
const OF_PROGRAM: u16 = 0;
/// The address space of pointers as the host's code uses them.
const OF_HOST: u16 = 1;

/// Checks that the program names at most one arena.
pub(crate) fn check_one_arena(program: &Subject) -> Checked<()> {
    let mut first: Option<u32> = None;
    for (slot, insn) in program.source.insns.iter().enumerate() {
        let Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } = *insn else {
            continue;
        };
        if !program.maps.is_arena(map) {
            continue;
        }
        match first {
            Some(first) if first != map => {
                let name = |map| program.maps.get(map).map_or("?", |map| map.name());
                let text = format!("the program uses the arenas {} and {}", name(first), name(map));
                return Err(Violation::at(Code::Structure, slot, text)
                    .suggest("a program may use one arena: put everything into that"));
            }
            _ => first = Some(map),
        }
    }
    Ok(())
}

impl Transfer<'_> {
    /// `dst = addr_space_cast(src, to, from)`.
    pub(crate) fn cast(&mut self, state: &mut State, dst: Reg, src: Reg, to: u16, from: u16) -> Checked<()> {
        let result = match (to, from) {
            (OF_PROGRAM, OF_HOST) => Value::pointer(Kind::Arena, 0),
            (OF_HOST, OF_PROGRAM) => Value::UNKNOWN,
            _ => {
                let text = format!(
                    "addr_space_cast converts between the address spaces 0 and 1, found {from} to {to}"
                );
                return Err(Violation::new(Code::Structure, text)
                    .in_linux("addr_space_cast insn can only convert between address space 1 and 0"));
            }
        };
        if !self.env.program.maps.has_arena() {
            let text = "addr_space_cast is about the program's arena, but the program names no arena";
            return Err(Violation::new(Code::Structure, text)
                .suggest("declare a map of type BPF_MAP_TYPE_ARENA and use it in the program"));
        }
        let value = self.peek(state, src)?;
        if !value.is_scalar() && value.kind != Kind::Arena && !self.may_leak() {
            let text =
                format!("expected a number or a pointer into an arena in {src} for a cast, found {value}");
            return Err(Violation::new(Code::PointerLeak, text));
        }
        self.write(state, dst, result)
    }

    /// The result of arithmetic with a pointer into an arena: another one, whatever number is the second operand.
    /// `None` if this is no such arithmetic, and other rules apply to the operands.
    pub(crate) fn arena_arithmetic(
        &self,
        op: AluOp,
        dst: Reg,
        src: Operand,
        a: &Value,
        b: &Value,
    ) -> Checked<Option<Value>> {
        match (a.kind, b.kind, src) {
            (Kind::Arena, Kind::Arena | Kind::Scalar, _) => {}
            (Kind::Arena, _, _) if self.may_leak() => {}
            (Kind::Scalar, Kind::Arena, Operand::Reg(src)) => {
                // To Linux the result is no pointer into the arena, which a program would not expect.
                let words = words::arithmetic(op, dst, a, b, false);
                return Err(self.forbidden(op.symbol(), src, b).in_linux(words).suggest(
                    if op == AluOp::Add {
                        "add the number to the pointer: the first operand must be the pointer"
                    } else {
                        "cast it to address space 1 first, where it is a number"
                    },
                ));
            }
            (Kind::Arena, _, Operand::Reg(src)) => {
                let text = format!("the address in {src}, {b}, would become part of {dst}, which is {a}");
                return Err(Violation::new(Code::PointerLeak, text));
            }
            _ => return Ok(None),
        }
        Ok(Some(Value::pointer(Kind::Arena, 0)))
    }

    /// Some path accesses the arena here.
    pub(crate) fn access_arena(&mut self) -> Checked<()> {
        self.record.place(self.slot, Place::Arena)
    }
}
