//! Members of the objects of a runtime's machine: tasks, cgroups, and what leads from one to the other.
//!
//! A program's structure says where a member is: the host's structure of that name, for which the object was linked, or
//! without one the program's own. The member's name is found there, and [`skep_abi::MACHINE_FIELDS`] has the native
//! place. These loads do not probe, so the object must be alive.

use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::value::{Kind, Trust, Value};
use crate::program::facts::Place;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use skep_abi::{MACHINE_FIELDS, MachineField, machine_type_name};
use skep_btf::Kind::Struct as Structure;
use skep_isa::{Reg, Size};

impl Transfer<'_> {
    /// The result of loading a member of such an object.
    pub(super) fn load_machine_field(
        &mut self,
        state: &State,
        (reg, pointer): (Reg, &Value),
        (ty, trust): (u32, Trust),
        at: i64,
        size: Size,
    ) -> Checked<Value> {
        if !matches!(trust, Trust::Trusted | Trust::ReadSection) {
            let text = format!(
                "expected an object in {reg} that is known to be alive, found {}, of which nothing can be read",
                self.show(pointer)
            );
            return Err(Violation::new(Code::Argument, text).suggest(
                "load and use it between bpf_rcu_read_lock and bpf_rcu_read_unlock, or acquire it first",
            ));
        }
        let field = self.machine_field(ty, at).filter(|field| field.bytes == size.bytes());
        let Some(field) = field else { return Err(self.no_member((reg, pointer), ty, at)) };
        let native = i64::from(field.offset) - i64::from(pointer.offset);
        let Ok(offset) = i16::try_from(native) else {
            let text = format!("the member {} is too far from the base register of the load", field.member);
            return Err(Violation::new(Code::Unsupported, text));
        };
        self.record.place(self.slot, Place::Field { size, offset })?;
        Ok(match field.to {
            None => Value::scalar(Scalar::of_size(size)),
            Some(to) => {
                let (trust, maybe_null) = self.found_trust(state, trust, Trust::ReadSection, false);
                self.named(Kind::Object { ty: to, trust, maybe_null })
            }
        })
    }

    /// The member that is there in the program's structure, if programs may load it.
    fn machine_field(&self, ty: u32, at: i64) -> Option<&'static MachineField> {
        let name = machine_type_name(ty)?;
        let at = u32::try_from(at).ok()?;
        let of_host = self.types.btf.and_then(|btf| Some((btf, btf.find(name, Structure)?)));
        let of_program = || {
            let own = self.env.program.source.btf.as_deref()?;
            // With several (`task_struct___old`), an offset does not say which one is meant.
            let mut all = own.flavours(name).filter(|ty| ty.kind == Structure);
            Some((own, all.next().filter(|_| all.next().is_none())?.id))
        };
        let (btf, id) = of_host.or_else(of_program)?;
        let mut fields = MACHINE_FIELDS.iter().filter(|field| field.of == ty);
        fields.find(|field| {
            btf.member_bytes(id, field.member)
                .ok()
                .flatten()
                .is_some_and(|bytes| (bytes.start, bytes.end) == (at, at + field.bytes))
        })
    }

    #[cold]
    fn no_member(&self, (reg, pointer): (Reg, &Value), ty: u32, at: i64) -> Box<Violation> {
        let members = MACHINE_FIELDS.iter().filter(|field| field.of == ty).map(|field| field.member);
        let text = format!(
            "of a {} of the runtime's machine programs load {} whole, by the place in the host's types or else the \
             program's own; found a load of bytes at {at} through {} in {reg}",
            self.type_name(ty),
            members.collect::<Vec<_>>().join(", "),
            self.show(pointer)
        );
        Violation::new(Code::OutOfBounds, text)
            .suggest("ask a helper or kfunc instead, as bpf_get_current_comm")
    }

    /// A call was to look into such an object.
    #[cold]
    pub(super) fn no_bytes(&self, reg: Reg, pointer: &Value) -> Box<Violation> {
        let text = format!(
            "expected memory in {reg}, found {}, an object of the runtime's machine without bytes of its own",
            self.show(pointer)
        );
        Violation::new(Code::Argument, text)
            .suggest("load the member that you need, and store it to the stack")
    }
}
