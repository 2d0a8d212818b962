//! Loads through an object: what is there, and how far a loaded pointer can be trusted.
//!
//! | loaded from an object that is | tagged `__rcu`, or known to be so protected | known to live as long | other |
//! |---|---|---|---|
//! | trusted | alive in the read section | trusted | walked |
//! | alive in the read section | alive in the read section | walked | walked |
//! | trusted or alive, outside of a read section | untrusted | trusted, if that is | untrusted |
//! | walked | walked | walked | walked |
//! | untrusted | untrusted | untrusted | untrusted |
//!
//! Numbers, and pointers to anything but structures, are numbers.

use crate::domain::resources::Section;
use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::value::{Hold, Kind, Trust, Value, is_lent};
use crate::program::facts::Place;
use crate::program::violation::{Checked, Code, Violation, damaged};
use crate::step::Transfer;
use crate::step::region::{Intent, Region};
use skep_abi::{AttachTo, Context, WRITABLE_MEMBERS, machine_type_name};
use skep_btf::{Found, What};
use skep_isa::{Reg, Size, Width};
use std::ops::Range;

/// A field that keeps its object alive.
struct Keeper {
    /// The structure.
    of: &'static str,
    /// The member.
    member: &'static str,
    /// How far the pointer can be trusted.
    trust: Trust,
    /// Whether it may be null.
    maybe_null: bool,
}

/// Fields whose objects are documented or observed to live as long as the structure, or to be protected by RCU although
/// BTF does not say so: not every compiler records `__rcu`.
const KEEPERS: &[Keeper] = &[
    keeper("bpf_iter_meta", "seq", Trust::Trusted, false),
    keeper("cgroup", "kn", Trust::ReadSection, false),
    keeper("css_set", "dfl_cgrp", Trust::ReadSection, false),
    keeper("dentry", "d_inode", Trust::Trusted, false),
    keeper("file", "f_inode", Trust::Trusted, false),
    keeper("linux_binprm", "file", Trust::Trusted, false),
    keeper("mm_struct", "exe_file", Trust::ReadSection, true),
    keeper("request_sock", "sk", Trust::ReadSection, true),
    keeper("sk_buff", "sk", Trust::ReadSection, true),
    keeper("socket", "sk", Trust::Trusted, true),
    keeper("task_struct", "cgroups", Trust::ReadSection, false),
    keeper("task_struct", "cpus_ptr", Trust::ReadSection, false),
    keeper("task_struct", "group_leader", Trust::ReadSection, false),
    keeper("task_struct", "real_parent", Trust::ReadSection, false),
];

const fn keeper(of: &'static str, member: &'static str, trust: Trust, maybe_null: bool) -> Keeper {
    Keeper { of, member, trust, maybe_null }
}

/// The field at a place of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field {
    /// A number.
    Number,
    /// A pointer to an object, with the most trust that it may have.
    Pointer { ty: u32, trust: Trust, maybe_null: bool },
}

impl Transfer<'_> {
    /// The result of a load through an object of the host, or from the arguments of the attachment.
    pub(crate) fn load_of_host(
        &mut self,
        state: &State,
        reg: Reg,
        pointer: &Value,
        offset: i16,
        size: Size,
        signed: bool,
    ) -> Checked<Option<Value>> {
        let at = i64::from(pointer.offset) + i64::from(offset);
        let value = match pointer.kind {
            Kind::Object { ty, trust, maybe_null: false } if machine_type_name(ty).is_some() => {
                self.check_object_place(reg, pointer, at, Intent::Read)?;
                self.load_machine_field(state, (reg, pointer), (ty, trust), at, size)?
            }
            Kind::Object { ty, trust, maybe_null: false } => {
                self.check_object_place(reg, pointer, at, Intent::Read)?;
                if !self.env.config.any_table {
                    self.check_licence("reading the host's objects")?;
                }
                self.record.place(self.slot, Place::Probe)?;
                match self.field(ty, at, size.bytes(), reg, pointer)? {
                    Field::Pointer { ty, trust: most, maybe_null } if !signed => {
                        let (trust, maybe_null) = self.found_trust(state, trust, most, maybe_null);
                        let found = self.named(Kind::Object { ty, trust, maybe_null });
                        let lent = if is_lent(pointer.reference) { pointer.reference } else { 0 };
                        Value { reference: lent, ..found }
                    }
                    Field::Number | Field::Pointer { .. } => Value::scalar(Scalar::of_size(size)),
                }
            }
            Kind::Own { held: Hold::Untrusted, .. } => {
                self.own_region(reg, pointer, at, size.bytes(), Intent::Read)?;
                self.record.place(self.slot, Place::Probe)?;
                Value::scalar(Scalar::of_size(size))
            }
            Kind::Context if matches!(self.env.program_type().context, Context::Arguments { .. }) => {
                if !pointer.is_fixed() {
                    let text = format!("expected a constant offset into the context, found {pointer}");
                    return Err(Violation::new(Code::PointerArithmetic, text));
                }
                self.load_argument(reg, at, size, signed)?
            }
            _ => return Ok(None),
        };
        if signed && value.is_scalar() {
            return Ok(Some(Value::scalar(value.num.sign_extended(size, Width::W64))));
        }
        Ok(Some(value))
    }

    /// Whether the path is in a read section. A program that may not sleep always is.
    pub(crate) fn in_read_section(&self, state: &State) -> bool {
        !self.sleeps() || state.resources.depth(Section::Read) > 0
    }

    /// How far a pointer loaded from an object can be trusted.
    pub(super) fn found_trust(
        &self,
        state: &State,
        of: Trust,
        most: Trust,
        maybe_null: bool,
    ) -> (Trust, bool) {
        match (of, most) {
            (Trust::Untrusted, _) => (Trust::Untrusted, false),
            (Trust::Trusted, Trust::Trusted) => (Trust::Trusted, maybe_null),
            // Outside of a read section, the object may be gone before its use.
            (Trust::Trusted | Trust::ReadSection, _) if !self.in_read_section(state) => {
                (Trust::Untrusted, false)
            }
            (_, Trust::PerCpu) => (Trust::PerCpu, maybe_null),
            (Trust::Trusted | Trust::ReadSection, Trust::ReadSection) => (Trust::ReadSection, maybe_null),
            // A probe load of null gives 0, as of any invalid address.
            _ => (Trust::Walked, false),
        }
    }

    /// Checks an access of a call to an object, or refuses a store.
    pub(crate) fn object_region(
        &mut self,
        reg: Reg,
        pointer: &Value,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Checked<Region> {
        self.check_object_place(reg, pointer, at, intent)?;
        let Kind::Object { ty, trust, .. } = pointer.kind else { return Ok(Region::Memory) };
        if machine_type_name(ty).is_some() {
            return Err(self.no_bytes(reg, pointer));
        }
        // Calls do not probe.
        if !matches!(trust, Trust::Trusted | Trust::ReadSection) {
            let text = format!(
                "expected valid memory in {reg}, found {}, which was read by following pointers",
                self.show(pointer)
            );
            return Err(Violation::new(Code::Argument, text).suggest(
                "copy the data to the stack first, with bpf_probe_read_kernel or one field at a time",
            ));
        }
        self.field(ty, at, size, reg, pointer)?;
        Ok(Region::Memory)
    }

    /// Whether a store goes to a member of an object that the program may write.
    pub(crate) fn stores_to_object(&mut self, pointer: &Value, offset: i16, size: Size) -> Checked<bool> {
        let Kind::Object { ty, trust: Trust::Trusted | Trust::ReadSection, maybe_null: false } = pointer.kind
        else {
            return Ok(false);
        };
        let Ok(at) = u32::try_from(i64::from(pointer.offset) + i64::from(offset)) else { return Ok(false) };
        if !pointer.is_fixed() || machine_type_name(ty).is_some() {
            return Ok(false);
        }
        if !self.types.writable.contains_key(&ty) {
            let members = self.writable_members(ty)?;
            self.types.writable.insert(ty, members);
        }
        let end = at.saturating_add(size.bytes());
        let inside = |(bytes, anywhere): &(Range<u32>, bool)| {
            end <= bytes.end && if *anywhere { bytes.start <= at } else { bytes.start == at }
        };
        Ok(self.types.writable[&ty].iter().any(inside))
    }

    /// The bytes of objects of that type that the program may write.
    fn writable_members(&self, ty: u32) -> Checked<Vec<(Range<u32>, bool)>> {
        let operations =
            matches!(self.env.program_type().context, Context::Arguments { of: AttachTo::StructOps });
        let Some((ops, _)) =
            self.env.target().filter(|_| operations).and_then(|to| to.split_once(['.', '/']))
        else {
            return Ok(Vec::new());
        };
        let btf = self.btf("writing the host's objects")?;
        let of = btf.resolve(ty).and_then(|ty| ty.name()).map_err(damaged)?;
        let listed = WRITABLE_MEMBERS.iter().filter(|listed| listed.ops == ops && listed.of == of);
        let found = listed.map(|listed| {
            btf.member_bytes(ty, listed.member).map(|bytes| bytes.map(|bytes| (bytes, listed.anywhere)))
        });
        found.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(damaged)
    }

    fn check_object_place(&self, reg: Reg, pointer: &Value, at: i64, intent: Intent) -> Checked<()> {
        if intent.writes() {
            let text = format!("objects of the host may only be read, found {} in {reg}", self.show(pointer));
            return Err(Violation::new(Code::ReadOnly, text).in_linux("only read is supported"));
        }
        if let Kind::Object { trust: Trust::PerCpu, .. } = pointer.kind {
            let text = format!(
                "{reg} is {}, a per-CPU variable: expected the address of one CPU's copy",
                self.show(pointer)
            );
            return Err(Violation::new(Code::Argument, text).suggest(
                "get the address of one copy from bpf_per_cpu_ptr or bpf_this_cpu_ptr, and check it for NULL",
            ));
        }
        if !pointer.is_fixed() {
            let text =
                format!("expected a constant offset into an object, found {} in {reg}", self.show(pointer));
            return Err(Violation::new(Code::PointerArithmetic, text)
                .suggest("copy the data to the stack first, with bpf_probe_read_kernel"));
        }
        if at < 0 {
            let text = format!(
                "expected an access inside of the object, found one {} bytes before it: {} in {reg}",
                -at,
                self.show(pointer)
            );
            return Err(Violation::new(Code::OutOfBounds, text));
        }
        Ok(())
    }

    /// The field at an offset of a type.
    fn field(&mut self, ty: u32, at: i64, size: u32, reg: Reg, pointer: &Value) -> Checked<Field> {
        // Offsets of pointers and instructions together stay below 2^31.
        let key = (ty, at as i32, size);
        if let Some(found) = self.types.fields.get(&key) {
            return Ok(*found);
        }
        let btf = self.btf("following pointers of the host")?;
        let found = u32::try_from(at).ok().map(|at| btf.walk(ty, at, size));
        let field = match found {
            Some(Ok(found)) => {
                self.check_shown(ty, &found)?;
                self.classify(ty, &found)?
            }
            Some(Err(error @ skep_btf::Error::Walk { .. })) => {
                let text = format!("{error}, found an access through {} in {reg}", self.show(pointer));
                let words =
                    format!("access beyond struct {} at off {at} size {size}", btf.name(ty).unwrap_or(""));
                return Err(Violation::new(Code::OutOfBounds, text)
                    .suggest("read one whole member of the structure")
                    .in_linux(words));
            }
            Some(Err(skep_btf::Error::WrongKind { .. })) | None => {
                let text = format!("{} in {reg} is not a structure that can be read", self.show(pointer));
                return Err(Violation::new(Code::OutOfBounds, text));
            }
            Some(Err(error)) => return Err(damaged(error)),
        };
        self.types.fields.insert(key, field);
        Ok(field)
    }

    /// Checks that the host has the member, if it says which there are.
    fn check_shown(&self, root: u32, found: &Found<'_>) -> Checked<()> {
        let Some(shown) = self.env.config.shown else { return Ok(()) };
        let btf = self.btf("following pointers of the host")?;
        let name = btf.resolve(root).and_then(|root| root.name()).map_err(damaged)?;
        let place = found.place();
        let of = shown.iter().find(|of| of.name == name);
        if of.is_some_and(|of| of.has(&place)) {
            return Ok(());
        }
        let there = of.map_or(&[][..], |of| of.members).join(", ");
        let there = if there.is_empty() { "no member".to_owned() } else { there };
        let text = format!("struct {name} has no member {place} here: expected one that there is, {there}");
        Err(Violation::new(Code::Unsupported, text).suggest(
            "leave it out where bpf_core_field_exists says that the \
             kernel has it, or run the program on a kernel",
        ))
    }

    fn classify(&self, root: u32, found: &Found<'_>) -> Checked<Field> {
        let pointer = match &found.what {
            What::Pointer(pointer) => pointer,
            What::Struct { id } => {
                let text = format!(
                    "expected a number or a pointer at {} of {}, found {}, which cannot be read in one access",
                    found.place(),
                    self.type_name(root),
                    self.type_name(*id)
                );
                return Err(Violation::new(Code::OutOfBounds, text));
            }
            _ => return Ok(Field::Number),
        };
        let btf = self.btf("following pointers of the host")?;
        let to = btf.ty(pointer.to).map_err(damaged)?;
        // An address in user space is a number.
        if !to.kind.is_composite() || pointer.is("user") {
            return Ok(Field::Number);
        }
        let root = btf.resolve(root).and_then(|root| root.name()).map_err(damaged)?;
        let place = found.place();
        let (trust, maybe_null) = match KEEPERS.iter().find(|kept| kept.of == root && kept.member == place) {
            Some(kept) => (kept.trust, kept.maybe_null),
            None if pointer.is("percpu") => (Trust::PerCpu, false),
            None if pointer.is("rcu") => (Trust::ReadSection, true),
            None => (Trust::Walked, false),
        };
        Ok(Field::Pointer { ty: to.id, trust, maybe_null })
    }
}
