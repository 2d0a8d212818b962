//! Addresses that are of no use any more: their object ended, the packet moved, or arithmetic made something else of
//! them.
//!
//! The bits are still there, and compilers go on with them where a program does not look at what they point to:
//! `return sk ? a : b` behind the release compares with null once more, and the distance between two places in a packet
//! is computed when both pointers have long been of no use. So such a value is kept as a [`Kind::Stale`]:
//!
//! ```text
//!                      copied, spilled,   compared with null,   subtracted, compared with others
//!                      moved, loaded      with other addresses  that moved with the same packet
//!   Stale::Object      yes                yes                   -
//!   Stale::Packet      yes                yes                   yes
//!   Stale::Bits        yes                -                     -
//! ```
//!
//! Nothing else reads one: [`Transfer::peek`] refuses it, and what may see it asks by [`Transfer::look`]. So it never
//! becomes a number, and what is asked of it tells no more than what may be asked of the pointer while it is good:
//! whether it is null or another's, since it can be moved no further than a good one, and where in its packet it lay.
//! Distances are told within one packet alone: each move gives those that it ends an `id` of its own.
//!
//! Where addresses may leave the program, all of them are numbers of which nothing is known.

use crate::domain::state::State;
use crate::domain::value::{Kind, Stale, Value};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_isa::{Cond, Reg, Width};

impl Transfer<'_> {
    /// The value in `reg`, which may be a stale address.
    #[inline]
    pub(crate) fn look<'s>(&self, state: &'s State, reg: Reg) -> Checked<&'s Value> {
        let value = state.reg(reg);
        if value.is_made() { Ok(value) } else { Err(self.unreadable(reg, value)) }
    }

    /// Ends the values that `dead` names: what they point to is no longer there.
    pub(crate) fn end_values(&self, state: &mut State, dead: impl Fn(&Value) -> bool) {
        self.make_stale(state, self.stale(Stale::Object), dead);
    }

    /// The packet may have moved: ends the pointers into it, and the memory that was found in it.
    pub(crate) fn lose_packet(&mut self, state: &mut State) {
        self.forks.charge(state);
        self.lose_packet_slices(state);
        self.end_values(state, |value| value.dies_with_packet() && !value.is_of_packet());
        // The half of an address has no distance from a whole one.
        self.make_stale(state, self.stale(Stale::Bits), |value| value.kind == Kind::PacketHalf);
        let mut ended = self.stale(Stale::Packet);
        if ended.is_stale() {
            ended.id = self.new_id();
        }
        self.make_stale(state, ended, Value::is_packet);
    }

    /// What the instruction that is walked makes of an address.
    pub(crate) fn stale(&self, of: Stale) -> Value {
        match self.may_leak() {
            true => Value::UNKNOWN,
            false => Value::pointer(Kind::Stale { slot: self.slot as u32, of }, 0),
        }
    }

    fn make_stale(&self, state: &mut State, ended: Value, dead: impl Fn(&Value) -> bool) {
        for frame in state.frames_mut() {
            for value in &mut frame.regs.0 {
                if value.is_pointer() && dead(value) {
                    *value = ended;
                }
            }
            frame.stack.end_cells(&ended, |value| value.is_pointer() && dead(value));
        }
    }

    /// What arithmetic that would be refused makes of an address in `dst`, if nothing reads that.
    pub(crate) fn unless_dead(&self, dst: Reg, violation: impl FnOnce() -> Box<Violation>) -> Checked<Value> {
        if self.env.after(self.slot, |live| live.regs, dst) {
            Err(violation())
        } else {
            Ok(self.stale(Stale::Bits))
        }
    }

    /// The same where the fault is with the number that is added. It was forgotten where paths meet if it does not
    /// matter for any address, comparison, or size, so it may not decide a refusal either.
    pub(crate) fn unless_forgotten(
        &self,
        dst: Reg,
        violation: impl FnOnce() -> Box<Violation>,
    ) -> Checked<Value> {
        if self.env.after(self.slot, |live| live.precise, dst) {
            Err(violation())
        } else {
            Ok(self.stale(Stale::Bits))
        }
    }

    #[cold]
    pub(crate) fn unreadable(&self, reg: Reg, value: &Value) -> Box<Violation> {
        let mut code = Code::Uninitialised;
        let (text, suggestion) = match value.kind {
            Kind::Stale { slot, of: Stale::Packet } => (
                format!("{reg} held a packet pointer, but the call in {slot} may have moved the packet"),
                "read data and data_end from the context again after the call, and check anew",
            ),
            Kind::Stale { slot, of: Stale::Object } => (
                format!("{reg} held an object that the call in {slot} gave back or ended"),
                "use it before that call",
            ),
            Kind::Stale { slot, of: Stale::Bits } => {
                code = Code::PointerLeak;
                (
                    format!(
                        "{reg} holds what the instruction in {slot} made of an address, which would leak"
                    ),
                    "use the address itself, moved by a bounded number at most",
                )
            }
            Kind::Clobbered { slot } => (
                format!("{reg} is read, but its value was lost at the call in {slot}"),
                "calls preserve r6 to r9 only",
            ),
            _ => return Violation::new(Code::Uninitialised, format!("{reg} is read but was never written")),
        };
        Violation::new(code, text).suggest(suggestion)
    }
}

/// Whether a comparison of which at least one side is stale may be asked.
pub(crate) fn may_compare_stale(width: Width, cond: Cond, a: &Value, b: &Value) -> bool {
    // A number can only be null; a half, and what arithmetic made, can be searched for bit by bit.
    let whole = |value: &Value| match value.kind {
        Kind::Scalar => value.as_constant() == Some(0),
        Kind::PacketHalf => false,
        _ => !is_bits(value),
    };
    let asked = match cond {
        Cond::Eq | Cond::Ne => true,
        Cond::Set => false,
        _ => same_packet(a, b),
    };
    width == Width::W64 && whole(a) && whole(b) && asked
}

/// Whether both are addresses in one packet, as it was before one move.
pub(crate) fn same_packet(a: &Value, b: &Value) -> bool {
    let packet = |value: &Value| matches!(value.kind, Kind::Stale { of: Stale::Packet, .. });
    packet(a) && packet(b) && a.id == b.id
}

/// Whether it is what arithmetic made of an address, of which nothing may be asked.
pub(crate) fn is_bits(value: &Value) -> bool {
    matches!(value.kind, Kind::Stale { of: Stale::Bits, .. })
}
