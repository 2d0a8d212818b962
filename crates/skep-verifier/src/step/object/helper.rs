//! Objects as arguments and results of helpers, and the host's per-CPU variables.

use crate::domain::value::{Hold, Kind, Trust, Value};
use crate::domain::words;
use crate::program::violation::{Checked, Code, Violation, damaged};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use skep_abi::{HelperFlags, HelperProto, OWN_TYPE, StructKind, machine_type_name};
use skep_isa::Reg;

/// The section of per-CPU variables.
const PER_CPU_SECTION: &str = ".data..percpu";

impl Transfer<'_> {
    /// Checks an argument that must be an object of one of these C types, or null if that is allowed. `outlives`: a
    /// read section is not enough to keep it alive.
    pub(crate) fn object_argument(
        &self,
        proto: &HelperProto,
        reg: Reg,
        value: &Value,
        types: &[&str],
        nullable: bool,
        outlives: bool,
    ) -> Checked<()> {
        if nullable && value.as_constant() == Some(0) {
            return Ok(());
        }
        let wanted = || types.iter().map(|name| format!("struct {name}")).collect::<Vec<_>>().join(" or ");
        let expected = |code, found: &str| {
            let or_null = if nullable { " or null" } else { "" };
            let text = format!("{} expects {}{or_null} in {reg}, found {found}", proto.name, wanted());
            Violation::new(code, text)
        };
        match value.kind {
            Kind::Struct { of, maybe_null } if is_socket(of) && types.contains(&"sock_common") => {
                if maybe_null && !nullable {
                    return Err(expected(Code::MaybeNull, &self.show(value)).suggest(CHECK_NULL));
                }
                Ok(())
            }
            Kind::Object { maybe_null: true, .. } if !nullable => {
                Err(expected(Code::MaybeNull, &self.show(value)).suggest(CHECK_NULL))
            }
            Kind::Object { trust: Trust::ReadSection, .. } if outlives => {
                let found = format!("{}, which is valid only in the read section", self.show(value));
                Err(expected(Code::Argument, &found).suggest("look the socket up or acquire it first"))
            }
            Kind::Object { trust: Trust::Untrusted | Trust::PerCpu, .. } => {
                let found = format!("{}, which is untrusted", self.show(value));
                Err(expected(Code::Argument, &found))
            }
            Kind::Object { .. } => {
                for name in types {
                    let ty = self.object_type(proto, name)?;
                    if self.object_is(value, ty)? {
                        return Ok(());
                    }
                }
                Err(expected(Code::Argument, &self.show(value)))
            }
            _ => Err(expected(Code::Argument, &self.show(value))),
        }
    }

    /// Whether a pointer to an object points to one of type `wanted`: the object itself, or a member of it.
    pub(crate) fn object_is(&self, value: &Value, wanted: u32) -> Checked<bool> {
        let Kind::Object { ty, .. } = value.kind else { return Ok(false) };
        let Ok(at) = u32::try_from(value.offset) else { return Ok(false) };
        if !value.is_fixed() {
            return Ok(false);
        }
        // The types of a runtime's machine have no members that are objects.
        if [ty, wanted].iter().any(|ty| machine_type_name(*ty).is_some()) {
            return Ok((ty, at) == (wanted, 0));
        }
        self.btf("the type of an object")?.contains(ty, at, wanted).map_err(damaged)
    }

    /// The result of a helper that returns an object.
    pub(crate) fn object_result(
        &mut self,
        proto: &HelperProto,
        of: &str,
        maybe_null: bool,
    ) -> Checked<Value> {
        let trusted = proto.acquires || proto.flags.has(HelperFlags::TRUSTED_RESULT);
        let trust = if trusted { Trust::Trusted } else { Trust::Walked };
        let ty = self.object_type(proto, of)?;
        Ok(self.named(Kind::Object { ty, trust, maybe_null }))
    }

    /// The structure of that name, of which a helper takes or returns an object: one of a runtime's machine, or the
    /// host's.
    fn object_type(&self, proto: &HelperProto, name: &str) -> Checked<u32> {
        let machine = self.env.config.machine_type(name).filter(|_| proto.flags.has(HelperFlags::MACHINE));
        machine.map_or_else(|| self.host_struct(name, &proto.name), Ok)
    }

    /// Checks an argument that must be the address of a per-CPU variable or object; returns its type, with
    /// [`OWN_TYPE`] for one of the program's own.
    pub(crate) fn per_cpu_argument(&self, proto: &HelperProto, reg: Reg, value: &Value) -> Checked<u32> {
        match value.kind {
            Kind::Object { ty, trust: Trust::PerCpu, maybe_null: false }
                if value.offset == 0 && value.is_fixed() =>
            {
                Ok(ty)
            }
            Kind::Own { ty, held: Hold::Found, per_cpu: true, maybe_null: false }
                if value.offset == 0 && value.is_fixed() =>
            {
                Ok(ty | OWN_TYPE)
            }
            _ => {
                let text = format!(
                    "{} expects the address of a per-CPU variable in {reg}, found {}",
                    proto.name,
                    self.show(value)
                );
                let kinds = ["percpu_ptr_", "percpu_rcu_ptr_", "percpu_trusted_ptr_"];
                Err(Violation::new(Code::Argument, text).in_linux(words::argument(reg, value, &kinds)))
            }
        }
    }

    /// One CPU's copy of a variable of that type.
    pub(crate) fn per_cpu_result(&mut self, ty: u32, maybe_null: bool) -> Checked<Value> {
        let kind = match ty & OWN_TYPE {
            0 => self.variable_kind(ty, maybe_null)?,
            _ => Kind::Own { ty: ty & !OWN_TYPE, held: Hold::Found, per_cpu: false, maybe_null },
        };
        Ok(self.named(kind))
    }

    /// The address of a variable or function of the host, by its number in the host's BTF.
    pub(crate) fn variable(&mut self, id: u32) -> Checked<Value> {
        let btf = self.btf(&format!("the host's variable of number {id}"))?;
        let missing = || {
            let text = format!("the given types have no variable or function of number {id}");
            Violation::new(Code::Types, text).suggest("link and verify the program with the same types")
        };
        let ty = btf.ty(id).map_err(|_| missing())?;
        match ty.kind {
            skep_btf::Kind::Func => {
                // Its address can only be compared with null.
                Ok(Value::pointer(Kind::Memory { bytes: 0, read_only: true, maybe_null: false }, 0))
            }
            skep_btf::Kind::Var => {
                let of = btf.resolve(ty.target()).map_err(damaged)?;
                let section = btf.data_section(PER_CPU_SECTION).map_err(damaged)?;
                let kind = if section.is_some_and(|section| section.variables().any(|one| one.var.id == id)) {
                    Kind::Object { ty: of.id, trust: Trust::PerCpu, maybe_null: false }
                } else {
                    self.variable_kind(of.id, false)?
                };
                Ok(Value::pointer(kind, 0))
            }
            _ => Err(missing()),
        }
    }

    /// The value of the address of a variable of that type.
    fn variable_kind(&self, ty: u32, maybe_null: bool) -> Checked<Kind> {
        let btf = self.btf("the type of a variable")?;
        if btf.resolve(ty).map_err(damaged)?.kind.is_composite() {
            return Ok(Kind::Object { ty, trust: Trust::Walked, maybe_null });
        }
        let bytes = btf.size(ty).map_err(damaged)?;
        Ok(Kind::Memory { bytes, read_only: true, maybe_null })
    }
}

fn is_socket(of: StructKind) -> bool {
    matches!(of, StructKind::SockCommon | StructKind::Sock | StructKind::TcpSock | StructKind::XdpSock)
}
