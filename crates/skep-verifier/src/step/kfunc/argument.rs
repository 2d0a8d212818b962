//! Arguments of kfuncs.

use super::Known;
use crate::domain::resources::Referent;
use crate::domain::state::ARGS;
use crate::domain::state::State;
use crate::domain::value::{Kind, MAX_OFFSET, Trust, Value, is_lent};
use crate::program::prototype::{Param, Prototype, What};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use skep_abi::{Access, Context, KfuncFlags, StructKind};
use skep_isa::Reg;

impl Transfer<'_> {
    /// Checks the arguments of a call, from number `from` on.
    pub(super) fn kfunc_arguments(
        &mut self,
        state: &mut State,
        prototype: &Prototype,
        from: usize,
    ) -> Checked<Known> {
        if prototype.params.len() > ARGS.len() {
            let text = format!("{} takes more than {} arguments", prototype.name(), ARGS.len());
            return Err(Violation::new(Code::Unsupported, text));
        }
        let mut known = Known::default();
        for at in from..prototype.params.len() {
            self.kfunc_argument(state, prototype, at, &mut known)?;
        }
        for filled in &known.filled {
            self.notes.add(filled.note());
            filled.apply(state);
        }
        if prototype.known.flags.has(KfuncFlags::RELEASE) && known.released.is_none() {
            let text = format!("{} releases an object, but takes none", prototype.name());
            return Err(Violation::new(Code::Unsupported, text));
        }
        Ok(known)
    }

    fn kfunc_argument(
        &mut self,
        state: &mut State,
        prototype: &Prototype,
        at: usize,
        known: &mut Known,
    ) -> Checked<()> {
        let Param { what, nullable } = &prototype.params[at];
        let (reg, who) = (ARGS[at], prototype.name());
        if let What::Ignored = what {
            return Ok(());
        }
        let value = self.read(state, reg)?;
        match what {
            What::Ignored | What::Size => {}
            What::Number { .. } => {
                self.check_number(state, prototype, at)?;
            }
            What::Words { .. } if value.as_constant() == Some(0) => {
                self.check_number(state, prototype, at + 1)?;
            }
            What::Fixed { .. } | What::Sized { .. } | What::String | What::Object { .. } | What::Dynptr
                if *nullable && value.as_constant() == Some(0) => {}
            What::Fixed { bytes, access } => {
                let sizes = (*bytes, *bytes);
                known.filled.extend(self.memory(state, &prototype.proto, reg, &value, sizes, *access)?);
            }
            What::Sized { access, constant } => {
                let sizes = self.kfunc_size(state, prototype, at + 1, *constant)?;
                known.filled.extend(self.memory(state, &prototype.proto, reg, &value, sizes, *access)?);
            }
            What::Words { most } => {
                let words = self.check_number(state, prototype, at + 1)?.num;
                // The function takes the lower half.
                let words = [words.umin, words.umax].map(u32::try_from);
                let words = if let [Ok(least), Ok(most)] = words { [least, most] } else { [0, u32::MAX] };
                if words[0] <= *most {
                    let sizes = (words[0] * 8, words[1].min(*most) * 8);
                    known.filled.extend(self.memory(
                        state,
                        &prototype.proto,
                        reg,
                        &value,
                        sizes,
                        Access::Read,
                    )?);
                }
            }
            What::Object { ty, name, bytes } => {
                self.kfunc_object(state, prototype, at, &value, (*ty, name, *bytes), known)?;
            }
            What::Map => {
                if let Kind::Object { ty, .. } = value.kind {
                    let words = format!(
                        "kernel function {who} args#{at} expected pointer to STRUCT bpf_map but R{} has a pointer to \
                         STRUCT {}",
                        reg.number(),
                        self.type_name(ty).trim_start_matches("struct ")
                    );
                    return Err(self.wrong(prototype, reg, "a map", &value).in_linux(words));
                }
                self.map_argument(&prototype.proto, reg, &value)?;
            }
            What::String => {
                self.constant_string(who, reg, &value)?;
            }
            What::Dynptr => {
                self.dynptr_at(state, who, reg, &value)?;
            }
            What::Iterator => {
                let text = format!("{who} looks at an iterator, which is not supported yet");
                return Err(Violation::new(Code::Unsupported, text));
            }
            What::Mask => self.mask_argument(state, prototype, reg, &value, known)?,
            What::Owned | What::Counted | What::Root(_) | What::Node | What::Less => {
                let text =
                    format!("{who} takes an object that programs allocate in {reg}, which no table says");
                return Err(Violation::new(Code::Unsupported, text));
            }
            What::Unknown(declared) => {
                let text = format!("{who} takes `{declared}` in {reg}, which is not supported yet");
                return Err(Violation::new(Code::Unsupported, text));
            }
        }
        Ok(())
    }

    /// Checks an argument that must be a number.
    pub(super) fn check_number(&self, state: &State, prototype: &Prototype, at: usize) -> Checked<Value> {
        let reg = ARGS[at.min(ARGS.len() - 1)];
        let value = self.read(state, reg)?.outside_of_arena();
        let constant =
            matches!(prototype.params.get(at), Some(Param { what: What::Number { constant: true }, .. }));
        if !value.is_scalar() || (constant && value.as_constant().is_none()) {
            let (what, words) = match constant && value.is_scalar() {
                true => ("a constant number", format!("R{} must be a known constant", reg.number())),
                false => ("a number", format!("R{} is not a scalar", reg.number())),
            };
            return Err(self.wrong(prototype, reg, what, &value).in_linux(words));
        }
        Ok(value)
    }

    /// The least and greatest size in argument `at`.
    pub(super) fn kfunc_size(
        &self,
        state: &State,
        prototype: &Prototype,
        at: usize,
        constant: bool,
    ) -> Checked<(u32, u32)> {
        let reg = ARGS[at.min(ARGS.len() - 1)];
        let value = self.read(state, reg)?;
        if !value.is_scalar() || value.num.umax >= MAX_OFFSET as u64 {
            return Err(self
                .wrong(prototype, reg, "a bounded size", &value)
                .suggest("bound the size with a comparison or a mask first")
                .in_linux(format!(
                    "arg#{} arg#{} memory, len pair leads to invalid memory access",
                    reg.number().saturating_sub(2),
                    reg.number().saturating_sub(1)
                )));
        }
        if constant && value.as_constant().is_none() {
            let words = format!("R{} must be a known constant", reg.number());
            return Err(self.wrong(prototype, reg, "a constant size", &value).in_linux(words));
        }
        Ok((value.num.umin as u32, value.num.umax as u32))
    }

    /// Checks an argument that is declared as a pointer to a structure.
    fn kfunc_object(
        &mut self,
        state: &mut State,
        prototype: &Prototype,
        at: usize,
        value: &Value,
        (ty, name, bytes): (u32, &str, Option<(u32, Access)>),
        known: &mut Known,
    ) -> Checked<()> {
        let (reg, nullable) = (ARGS[at], prototype.params[at].nullable);
        let flags = prototype.known.flags;
        if value.is_maybe_null() && !nullable {
            let mut violation = self.wrong(prototype, reg, &format!("struct {name}"), value);
            violation.code = Code::MaybeNull;
            return Err(violation.suggest(CHECK_NULL));
        }
        if self.is_context_type(name) && (value.kind == Kind::Context || bytes.is_some()) {
            return self.check_context(prototype, reg, value);
        }
        match value.kind {
            Kind::Object { ty: of, trust, .. } => {
                let exact = self.type_name(of).ends_with("___init") || name.ends_with("___init");
                let fits = if exact {
                    of == ty && value.offset == 0 && value.is_fixed()
                } else {
                    self.object_is(value, ty)? || self.stands_for(of, name)
                };
                if !fits {
                    return Err(self.wrong(prototype, reg, &format!("struct {name}"), value));
                }
                let enough: &[Trust] = if flags.has(KfuncFlags::TRUSTED_ARGS) {
                    &[Trust::Trusted]
                } else if flags.has(KfuncFlags::RCU) {
                    &[Trust::Trusted, Trust::ReadSection]
                } else {
                    &[Trust::Trusted, Trust::ReadSection, Trust::Walked]
                };
                // What the program holds a reference to is alive, however it was found.
                let held = value.reference != 0 && !is_lent(value.reference);
                if !held && !enough.contains(&trust) {
                    return Err(self.not_trusted(prototype, reg, value));
                }
            }
            Kind::Struct { of, .. } if host_name(of) == Some(name) => {}
            _ => {
                let Some((bytes, access)) = bytes.filter(|_| !flags.has(KfuncFlags::RELEASE)) else {
                    return Err(self.wrong(prototype, reg, &format!("struct {name}"), value));
                };
                let sizes = (bytes, bytes);
                known.filled.extend(self.memory(state, &prototype.proto, reg, value, sizes, access)?);
                return Ok(());
            }
        }
        if flags.has(KfuncFlags::RELEASE) && known.released.is_none() {
            known.released = Some(self.releasable(state, prototype.name(), reg, value, Referent::Object)?);
        }
        Ok(())
    }

    pub(super) fn check_context(&self, prototype: &Prototype, reg: Reg, value: &Value) -> Checked<()> {
        if *value == Value::pointer(Kind::Context, 0) {
            return Ok(());
        }
        Err(self.wrong(prototype, reg, "the context, unchanged", value))
    }

    /// Whether that structure is this program type's context, as programs or as the host name it.
    fn is_context_type(&self, name: &str) -> bool {
        let Context::Struct(layout) = self.env.program_type().context else { return false };
        layout.name == name || context_of_host(layout.name) == name
    }

    /// Whether an object of type `of` may stand for what programs see of it: a `struct sk_buff` for a
    /// `struct __sk_buff`.
    fn stands_for(&self, of: u32, name: &str) -> bool {
        let host = context_of_host(name);
        host != name && self.type_name(of) == format!("struct {host}")
    }

    #[cold]
    fn not_trusted(&self, prototype: &Prototype, reg: Reg, value: &Value) -> Box<Violation> {
        let read_section = prototype.known.flags.has(KfuncFlags::RCU);
        let text = format!(
            "{} expects an object in {reg} that is known to be alive{}, found {}",
            prototype.name(),
            if read_section { " in the read section" } else { "" },
            self.show(value)
        );
        let words = match read_section {
            true => format!("R{} must be a rcu pointer", reg.number()),
            false => format!("R{} must be referenced or trusted", reg.number()),
        };
        Violation::new(Code::Argument, text)
            .in_linux(words)
            .suggest("take it from an argument of the program, or acquire a reference to it first")
    }

    #[cold]
    pub(super) fn wrong(&self, prototype: &Prototype, reg: Reg, what: &str, value: &Value) -> Box<Violation> {
        let text = format!("{} expects {what} in {reg}, found {}", prototype.name(), self.show(value));
        let violation = Violation::new(Code::Argument, text);
        match value.is_maybe_null() {
            true => violation.in_linux(format!(
                "Possibly NULL pointer passed to trusted arg{}",
                reg.number().saturating_sub(1)
            )),
            false => violation,
        }
    }
}

/// The host's name of a context structure.
pub(super) fn context_of_host(name: &str) -> &str {
    match name {
        "xdp_md" => "xdp_buff",
        "__sk_buff" => "sk_buff",
        "sk_msg_md" => "sk_msg",
        "bpf_sock_ops" => "bpf_sock_ops_kern",
        "bpf_sock_addr" => "bpf_sock_addr_kern",
        "bpf_sockopt" => "bpf_sockopt_kern",
        "bpf_sysctl" => "bpf_sysctl_kern",
        "bpf_sk_lookup" => "bpf_sk_lookup_kern",
        "sk_reuseport_md" => "sk_reuseport_kern",
        "bpf_perf_event_data" => "bpf_perf_event_data_kern",
        "bpf_sock" => "sock",
        name => name,
    }
}

/// The host's name of a structure with a stable layout.
fn host_name(of: StructKind) -> Option<&'static str> {
    match of {
        StructKind::SockCommon => Some("sock_common"),
        StructKind::Sock => Some("sock"),
        StructKind::TcpSock => Some("tcp_sock"),
        _ => None,
    }
}
