//! Dynptrs over packets, and slices of dynptrs.

use crate::domain::state::ARGS;
use crate::domain::state::State;
use crate::domain::value::{Kind, Opaque, Value};
use crate::program::prototype::Prototype;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{Access, Context, DynptrKind, SpecialKfunc};
use skep_isa::Reg;

impl Transfer<'_> {
    /// `int f(context, u64 flags, struct bpf_dynptr *made)`.
    pub(super) fn dynptr_from_packet(&mut self, state: &mut State, prototype: &Prototype) -> Checked<Value> {
        let packet = self.read(state, Reg::R1)?;
        let kind = match prototype.known.special {
            SpecialKfunc::DynptrFromXdp => DynptrKind::Xdp,
            _ => DynptrKind::Skb,
        };
        let of_host = self.is_socket_buffer(&packet);
        // The context of others is no packet.
        if !of_host && matches!(self.env.program_type().context, Context::Arguments { .. }) {
            return Err(self.wrong(prototype, Reg::R1, "a struct sk_buff", &packet));
        }
        if !of_host {
            self.check_context(prototype, Reg::R1, &packet)?;
        }
        self.check_number(state, prototype, 1)?;
        let made = self.read(state, Reg::R3)?;
        let read_only = !self.env.program_type().writes_packet;
        self.make_dynptr(state, prototype.name(), Reg::R3, &made, kind, read_only)?;
        Ok(Value::UNKNOWN)
    }

    /// A socket buffer of the host, as programs that trace it are given.
    fn is_socket_buffer(&self, value: &Value) -> bool {
        use crate::domain::value::Trust;
        match value.kind {
            Kind::Object { ty, trust: Trust::Trusted, maybe_null: false } => {
                value.offset == 0 && value.is_fixed() && self.type_name(ty) == "struct sk_buff"
            }
            _ => false,
        }
    }

    /// `void *f(struct bpf_dynptr *, u32 offset, void *buffer, u32 size)`: null, the memory itself, or a copy in
    /// the buffer.
    pub(super) fn dynptr_slice(
        &mut self,
        state: &mut State,
        prototype: &Prototype,
        writable: bool,
    ) -> Checked<Value> {
        let who = prototype.name();
        let given = self.read(state, Reg::R1)?;
        let dynptr = self.dynptr_at(state, who, Reg::R1, &given)?;
        if writable && dynptr.read_only {
            let text = format!("{who} expects a writable dynptr in r1");
            return Err(Violation::new(Code::ReadOnly, text).suggest("use bpf_dynptr_slice"));
        }
        self.check_number(state, prototype, 1)?;
        let (bytes, _) = self.kfunc_size(state, prototype, 3, true)?;
        let buffer = self.read(state, Reg::R3)?;
        let mut copy = None;
        if buffer.as_constant() != Some(0) {
            if buffer.reference != 0 || buffer.dies_with_packet() {
                let text = format!("{who} expects a buffer in r3 that outlives the slice, found {buffer}");
                return Err(Violation::new(Code::Argument, text).suggest("use a variable in the stack"));
            }
            // The buffer is not written if the memory itself is returned, or null.
            let filled = self.memory(state, &prototype.proto, Reg::R3, &buffer, (0, bytes), Access::Write)?;
            if let Some(filled) = filled {
                filled.apply(state);
                copy = filled.bytes();
            }
        }
        // A copy would be in writable memory, but the program cannot tell.
        Ok(self.slice(&dynptr, bytes, !writable, copy))
    }

    /// `int f(struct bpf_dynptr *, struct bpf_dynptr *made)`.
    pub(super) fn dynptr_clone(&mut self, state: &mut State, prototype: &Prototype) -> Checked<Value> {
        let who = prototype.name();
        let given = self.read(state, ARGS[0])?;
        let dynptr = self.dynptr_at(state, who, ARGS[0], &given)?;
        let made = self.read(state, ARGS[1])?;
        self.clone_dynptr(state, who, ARGS[1], &made, dynptr)?;
        Ok(Value::UNKNOWN)
    }

    /// After a move of the packet: invalidates slices of dynptrs over it.
    pub(crate) fn lose_packet_slices(&self, state: &mut State) {
        let mut ties = Vec::new();
        for frame in state.frames() {
            for cell in &frame.stack.cells {
                if let Kind::Opaque { of: Opaque::Dynptr { of: DynptrKind::Skb | DynptrKind::Xdp, .. } } =
                    cell.value.kind
                {
                    ties.push(if cell.value.reference != 0 { cell.value.reference } else { cell.value.id });
                }
            }
        }
        if !ties.is_empty() {
            self.end_values(state, |value| {
                matches!(value.kind, Kind::Memory { .. }) && ties.contains(&value.reference)
            });
        }
    }
}
