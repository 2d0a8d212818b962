//! A loop over adjacent elements, of which most rounds are done at once.
//!
//! ```text
//!   bulk:   n = rounds that are left - 1, rounded down to sixteen bytes; none if that is 0, or for a copy
//!           if the destination is less than sixteen bytes behind the source
//!           copy, fill or sum up n elements; i += n; p += n
//!   loop:   r3 = *(u8 *)(r1 + i)              the rest, one by one
//!           *(u8 *)(r2 + i) = r3
//!           i += 1; if i != limit goto loop
//! ```
//!
//! Behind it everything is as after `n` rounds but for registers that each round sets before it reads them. So at
//! least one round must be left. What a round accesses is accessed and nothing else.

use skep_isa::{Operand, Reg, RegSet, Size, Width};

use super::operand::Address;

/// How many bytes are done at once.
pub(crate) const CHUNK: u32 = 16;

/// What a loop does, and when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Bulk {
    pub(crate) work: Work,
    /// Bytes of an element; each round does one.
    pub(crate) size: Size,
    pub(crate) count: Count,
    /// What each round adds to registers.
    pub(crate) steps: Vec<Step>,
}

/// What each round does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// `*to = *from`
    Copy { from: Address, to: Address },
    /// `*to = value`; the register is not one of those that change.
    Fill { to: Address, value: Operand },
    /// `into += *from`, zero-extended.
    Sum { from: Address, into: Reg, width: Width },
}

/// How many rounds are left: the distance from the counter to the limit, or back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) counter: Reg,
    pub(crate) limit: Operand,
    /// The counter goes down to the limit.
    pub(crate) down: bool,
    /// The distance in bytes of elements is the counter's, shifted left by this.
    pub(crate) shift: u8,
    /// The loop ends where the counter is the limit; otherwise, where it is not before the limit.
    pub(crate) exact: bool,
}

/// What rounds add to a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) reg: Reg,
    /// It is subtracted.
    pub(crate) down: bool,
    /// How much: the bytes of elements, shifted right by this.
    pub(crate) shift: u8,
}

impl Bulk {
    /// The registers that it reads.
    pub(crate) fn reads(&self) -> RegSet {
        let of = |address: Address| {
            let base = RegSet::from(address.base);
            address.index.map_or(base, |index| base.with(index.reg))
        };
        let work = match self.work {
            Work::Copy { from, to } => of(from).union(of(to)),
            Work::Fill { to, value } => of(to).union(value.into()),
            Work::Sum { from, into, .. } => of(from).with(into),
        };
        work.union(self.count.limit.into()).with(self.count.counter).union(self.writes())
    }

    /// The registers that it changes.
    pub(crate) fn writes(&self) -> RegSet {
        let steps = self.steps.iter().fold(RegSet::EMPTY, |all, step| all.with(step.reg));
        match self.work {
            Work::Sum { into, .. } => steps.with(into),
            Work::Copy { .. } | Work::Fill { .. } => steps,
        }
    }
}
