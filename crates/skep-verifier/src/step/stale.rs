//! Stale addresses: their object ended, the packet moved, or arithmetic made something else of them.
//!
//! The bits are still there, and compilers use them where the object does not matter: `return sk ? a : b` after the
//! release compares with null once more, and the distance between two places in a packet may be computed after it
//! moved. So such a value is kept as a [`Kind::Stale`]:
//!
//! ```text
//!                      copied, spilled,   compared with null,   subtracted, compared with others
//!                      moved, loaded      with other addresses  that moved with the same packet
//!   Stale::Object      yes                yes                   -
//!   Stale::Packet      yes                yes                   yes
//!   Stale::Bits        yes                -                     -
//! ```
//!
//! No other instruction reads one: [`Transfer::peek`] refuses it, and the uses above read it by [`Transfer::look`]. So
//! it never becomes a number, and reveals no more than a valid pointer would: whether it is null or equals another (it
//! can be moved no further than a valid one), and its place in its packet. Distances are known within one packet only:
//! each move gives the addresses that it invalidates a new `id`.
//!
//! In programs that may leak addresses, stale addresses are unknown numbers.

use crate::domain::state::State;
use crate::domain::value::{Kind, Stale, Value};
use crate::domain::words;
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

    /// Makes the values that `dead` selects stale.
    pub(crate) fn end_values(&self, state: &mut State, dead: impl Fn(&Value) -> bool) {
        self.make_stale(state, self.stale(Stale::Object), dead);
    }

    /// The packet may have moved: makes the pointers into it, and slices of it, stale.
    pub(crate) fn lose_packet(&mut self, state: &mut State) {
        self.forks.charge(state);
        self.lose_packet_slices(state);
        self.end_values(state, |value| value.dies_with_packet() && !value.is_of_packet());
        // Half of an address has no distance from a whole one.
        self.make_stale(state, self.stale(Stale::Bits), |value| value.kind == Kind::PacketHalf);
        let mut ended = self.stale(Stale::Packet);
        if ended.is_stale() {
            ended.id = self.new_id();
        }
        self.make_stale(state, ended, Value::is_packet);
    }

    /// The stale value that the current instruction makes of an address.
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

    /// The result of forbidden arithmetic on an address in `dst`, if the result is dead.
    pub(crate) fn unless_dead(&self, dst: Reg, violation: impl FnOnce() -> Box<Violation>) -> Checked<Value> {
        if self.env.after(self.slot, |live| live.regs, dst) {
            Err(violation())
        } else {
            Ok(self.stale(Stale::Bits))
        }
    }

    /// The same for a number that is too large. If it is not precise, it may have been forgotten where paths meet, so
    /// it may not decide a refusal either.
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
                "read data and data_end from the context again after the call, and check the bounds again",
            ),
            Kind::Stale { slot, of: Stale::Object } => (
                format!("{reg} held an object that the call in {slot} released or ended"),
                "use it before that call",
            ),
            Kind::Stale { slot, of: Stale::Bits } => {
                code = Code::PointerLeak;
                (
                    format!(
                        "{reg} holds a number that the instruction in {slot} computed from an address, which would leak"
                    ),
                    "use the address itself, plus at most a bounded number",
                )
            }
            Kind::Clobbered { slot } => (
                format!("{reg} is read, but the call in {slot} clobbered it"),
                "calls preserve r6 to r9 only",
            ),
            _ => {
                let text = format!("{reg} is read but was never written");
                return Violation::new(code, text).in_linux(format!("R{} !read_ok", reg.number()));
            }
        };
        let violation = Violation::new(code, text).suggest(suggestion);
        match value.kind {
            // What else became stale is a number there.
            Kind::Clobbered { .. } => violation.in_linux(format!("R{} !read_ok", reg.number())),
            _ => violation.in_linux(words::no_memory(reg, value)),
        }
    }
}

/// Whether a comparison with at least one stale side is allowed.
pub(crate) fn may_compare_stale(width: Width, cond: Cond, a: &Value, b: &Value) -> bool {
    // Comparing with other numbers could search for an address bit by bit.
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

/// Whether it is the result of arithmetic on an address, which may not be compared.
pub(crate) fn is_bits(value: &Value) -> bool {
    matches!(value.kind, Kind::Stale { of: Stale::Bits, .. })
}
