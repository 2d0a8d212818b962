//! Results of kfuncs.

use super::argument::context_of_host;
use crate::domain::resources::Referent;
use crate::domain::state::State;
use crate::domain::value::{Kind, Trust, Value};
use crate::program::prototype::{Prototype, Returned};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{Context, KfuncFlags};
use skep_isa::Reg;

impl Transfer<'_> {
    /// The result of a call without special rules.
    pub(super) fn kfunc_result(&mut self, state: &mut State, prototype: &Prototype) -> Checked<Value> {
        let flags = prototype.known.flags;
        let maybe_null = flags.has(KfuncFlags::RET_NULL);
        let acquires = flags.has(KfuncFlags::ACQUIRE);
        let kind = match &prototype.returned {
            Returned::Nothing => return Ok(super::nothing(self.slot as u32)),
            // The upper bits of a narrow number are unspecified.
            Returned::Number => return Ok(Value::UNKNOWN),
            Returned::Object(ty) => {
                let trust = if acquires { Trust::Trusted } else { Trust::Walked };
                Kind::Object { ty: *ty, trust, maybe_null }
            }
            Returned::Mask => return self.mask_result(state, prototype),
            Returned::Memory(bytes) => Kind::Memory { bytes: *bytes, read_only: false, maybe_null },
            Returned::Unknown(declared) => {
                let text = format!("{} returns `{declared}`, which is not supported yet", prototype.name());
                return Err(Violation::new(Code::Unsupported, text));
            }
        };
        let mut value = self.named(kind);
        if acquires {
            value.reference = self.acquire(state, Referent::Object)?;
            if maybe_null {
                value.id = value.reference;
            }
        }
        Ok(value)
    }

    /// `int bpf_xdp_metadata_rx_hash(const struct xdp_md *context, ...)` and its siblings.
    pub(super) fn device_metadata(&mut self, state: &mut State, prototype: &Prototype) -> Checked<Value> {
        let context = self.read(state, Reg::R1)?;
        self.check_context(prototype, Reg::R1, &context)?;
        self.kfunc_arguments(state, prototype, 1)?;
        self.kfunc_result(state, prototype)
    }

    /// `void *bpf_cast_to_kern_ctx(void *context)`.
    pub(super) fn cast_to_context(&mut self, state: &State, prototype: &Prototype) -> Checked<Value> {
        let context = self.read(state, Reg::R1)?;
        self.check_context(prototype, Reg::R1, &context)?;
        let name = match self.env.program_type().context {
            Context::Struct(layout) => context_of_host(layout.name),
            Context::Bytes { name, .. } => name,
            Context::Buffer | Context::Arguments { .. } => {
                let text = format!(
                    "the host has no structure behind the context that {} is given",
                    prototype.name()
                );
                return Err(Violation::new(Code::Argument, text));
            }
        };
        self.host_object(name, Trust::Trusted, false, prototype.name())
    }

    /// `void *bpf_rdonly_cast(const void *, u32 type)`.
    pub(super) fn read_only_cast(&mut self, state: &State, prototype: &Prototype) -> Checked<Value> {
        self.read(state, Reg::R1)?;
        let number = self.check_number(state, prototype, 1)?;
        let ty = number.as_constant().and_then(|ty| u32::try_from(ty).ok());
        let btf = self.btf(prototype.name())?;
        match ty.and_then(|ty| btf.ty(ty).ok()) {
            Some(ty) if ty.kind == skep_btf::Kind::Struct => {
                let kind = Kind::Object { ty: ty.id, trust: Trust::Untrusted, maybe_null: false };
                Ok(Value::pointer(kind, 0))
            }
            _ => {
                Err(self.wrong(prototype, Reg::R2, "the number of a structure of the host's types", &number))
            }
        }
    }
}
