//! Objects that programs allocate (`bpf_obj_new`), of structures of the program's own BTF.
//!
//! ```text
//!   bpf_obj_new -> owned --push, add--> borrowed --bpf_spin_unlock--> stale
//!                    ^                     |
//!                    '---- pop, remove ----'
//!                    '---- bpf_refcount_acquire: one more owner
//! ```
//!
//! An owned object holds a reference that a drop, an insertion into a list or tree, or an exchange with a map's value
//! takes back. What a list or tree owns is borrowed while its lock is held: it may be read and written, but not freed.
//!
//! A type's special fields are for calls only, as in a map's value. Of the fields of [`SpecialKind`], objects have
//! locks, nodes, heads of lists and trees, counts of owners and kept pointers; others are bytes.

use crate::domain::state::State;
use crate::domain::value::{Hold, Kind, Value};
use crate::domain::words;
use crate::program::prototype::holds_numbers;
use crate::program::violation::{Checked, Code, Violation, damaged};
use crate::step::Transfer;
use crate::step::region::{Intent, Region};
use crate::step::special::{end, name_of};
use skep_abi::{CPU_MASK, Callback, OWN_TYPE, SpecialField, SpecialKind};
use skep_btf::Btf;
use skep_isa::Reg;
use std::rc::Rc;

/// A structure of the program's own.
pub(crate) struct OwnType {
    /// Its name.
    pub(crate) name: String,
    /// Its size.
    pub(crate) bytes: u32,
    /// The special fields of its objects. Kept pointers have the types of the host, or [`OWN_TYPE`].
    pub(crate) fields: Vec<SpecialField>,
    /// Whether all its members are numbers.
    pub(crate) numbers: bool,
}

impl OwnType {
    /// CPU masks: only calls know their bytes.
    fn mask() -> Self {
        Self { name: "bpf_cpumask".to_owned(), bytes: 0, fields: Vec::new(), numbers: false }
    }

    pub(crate) fn has(&self, wanted: impl Fn(SpecialKind) -> bool) -> bool {
        self.fields.iter().any(|field| wanted(field.kind))
    }

    pub(crate) fn has_lock(&self) -> bool {
        self.has(|kind| kind == SpecialKind::SpinLock)
    }

    /// Whether its objects can be in lists or trees.
    pub(crate) fn is_node(&self) -> bool {
        self.has(is_node)
    }

    /// Whether its objects have lists or trees.
    fn is_root(&self) -> bool {
        self.has(|kind| held_by(kind).is_some())
    }
}

impl Transfer<'_> {
    /// The structure of that number in the program's own BTF.
    pub(crate) fn own_type(&self, ty: u32) -> Checked<Rc<OwnType>> {
        if let Some(known) = self.types.own.borrow().get(&ty) {
            return Ok(Rc::clone(known));
        }
        let own = Rc::new(if ty == CPU_MASK { OwnType::mask() } else { self.read_own_type(ty)? });
        // Objects that own each other would never be freed.
        if own.is_node() && own.is_root() {
            for held in own.fields.iter().filter_map(|field| held_by(field.kind)) {
                if held == ty || self.read_own_type(held)?.is_root() {
                    let text = format!(
                        "struct {} can be in a list or tree, and has one of objects that have lists or trees \
                         themselves",
                        own.name
                    );
                    return Err(Violation::new(Code::Types, text));
                }
            }
        }
        self.types.own.borrow_mut().insert(ty, Rc::clone(&own));
        Ok(own)
    }

    fn read_own_type(&self, ty: u32) -> Checked<OwnType> {
        let btf = self.env.program.source.btf.as_deref().ok_or_else(|| {
            let text = "the program allocates objects, but its object file has no BTF";
            Violation::new(Code::Types, text).suggest("compile it with -g")
        })?;
        let of = btf.ty(ty).ok().filter(|of| of.kind == skep_btf::Kind::Struct).ok_or_else(|| {
            let text = format!("type {ty} of the program's own BTF is not a structure");
            Violation::new(Code::Argument, text)
        })?;
        let name = of.name().map_err(damaged)?.to_owned();
        let refused = |why: &str| Violation::new(Code::Types, format!("struct {name} {why}"));
        let mut fields = match btf.special_fields(ty) {
            Ok(fields) => fields,
            Err(skep_btf::Error::Special { reason, .. }) => return Err(refused(reason)),
            Err(error) => return Err(damaged(error)),
        };
        fields.retain(|field| is_of_objects(field.kind));
        for field in &mut fields {
            self.of_host(btf, &mut field.kind);
        }
        let own = OwnType {
            bytes: of.size().unwrap_or(0),
            numbers: holds_numbers(btf, ty, 0).map_err(damaged)?,
            name: name.clone(),
            fields,
        };
        let counted = own.has(|kind| kind == SpecialKind::Refcount);
        let in_list = own.has(|kind| kind == SpecialKind::ListNode);
        if in_list && own.has(|kind| kind == SpecialKind::RbNode) && !counted {
            return Err(refused("has nodes of lists and of trees, but no struct bpf_refcount"));
        }
        Ok(own)
    }

    /// Gives a kept pointer the number of the host's type of that name, if there is one.
    fn of_host(&self, own: &Btf, kind: &mut SpecialKind) {
        let (SpecialKind::Kptr { to } | SpecialKind::KptrUntrusted { to } | SpecialKind::KptrPercpu { to }) =
            kind
        else {
            return;
        };
        let config = self.env.config;
        if let Some(of_runtime) = own.of_runtime(*to).filter(|_| config.has_own_objects()) {
            *to = of_runtime;
            return;
        }
        let named = own.resolve(*to).ok().filter(|ty| !ty.is_anonymous());
        let found = named.and_then(|ty| config.btf?.find(ty.name().ok()?, ty.kind));
        *to = found.unwrap_or(*to | OWN_TYPE);
    }

    /// Checks that a list's or tree's objects have such a node there, and returns their type.
    pub(crate) fn held_type(&self, kind: SpecialKind) -> Checked<Option<(u32, u32)>> {
        let (holds, node, wanted) = match kind {
            SpecialKind::ListHead { holds, node } => (holds, node, SpecialKind::ListNode),
            SpecialKind::RbRoot { holds, node } => (holds, node, SpecialKind::RbNode),
            _ => return Ok(None),
        };
        let own = self.own_type(holds)?;
        if own.fields.iter().any(|field| field.kind == wanted && field.offset == node) {
            return Ok(Some((holds, node)));
        }
        let text = format!(
            "a {} is declared to hold objects of struct {} by their bytes at {node}, which are no {}",
            name_of(kind),
            own.name,
            name_of(wanted)
        );
        Err(Violation::new(Code::Types, text).suggest("name the node's member in __contains(...)"))
    }

    /// A list, a tree or a map takes the object of that reference: what this path knows of it is held otherwise.
    pub(crate) fn change_hold(
        &mut self,
        state: &mut State,
        who: &str,
        reference: u32,
        held: Hold,
    ) -> Checked<()> {
        self.give_up(state, who, reference)?;
        state.change_values(
            |value| value.reference == reference,
            |value| {
                value.reference = 0;
                if let Kind::Own { held: before, .. } = &mut value.kind {
                    *before = held;
                }
            },
        );
        Ok(())
    }

    /// Checks that this is not a function that compares nodes: the tree is being changed.
    pub(crate) fn check_not_comparing(&self, state: &State, who: &str) -> Checked<()> {
        if state.frames().iter().any(|frame| frame.callback == Some(Callback::Less)) {
            let text = format!("{who} is called in a function that compares the nodes of a tree");
            let words = match who {
                "spin_lock" | "spin_unlock" => "can't spin_{lock,unlock} in rbtree cb".to_owned(),
                _ => format!("{} not allowed in rbtree cb", who.trim_start_matches("bpf_")),
            };
            return Err(Violation::new(Code::Resource, text)
                .suggest("compare the nodes there, and do everything else before or after")
                .in_linux(words));
        }
        Ok(())
    }

    /// An access to `size` bytes of an allocated object, from byte `at` on.
    pub(crate) fn own_region(
        &self,
        reg: Reg,
        pointer: &Value,
        at: i64,
        size: u32,
        intent: Intent,
    ) -> Checked<Region> {
        let Kind::Own { ty, held, per_cpu, .. } = pointer.kind else { return Ok(Region::Memory) };
        let own = self.own_type(ty)?;
        if per_cpu {
            let text = format!("{reg} is {pointer}, one object per CPU: expected the address of one of them");
            return Err(Violation::new(Code::Argument, text)
                .suggest("keep it in a map, and get an address from bpf_per_cpu_ptr or bpf_this_cpu_ptr"));
        }
        if held == Hold::Untrusted && intent.writes() {
            let text =
                format!("an object that may have been freed may only be read, found {pointer} in {reg}");
            return Err(Violation::new(Code::ReadOnly, text));
        }
        if !pointer.is_fixed() {
            let text = format!("expected a constant offset into an object, found {pointer} in {reg}");
            let words = format!("variable ptr_ access var_off={} disallowed", words::bits(pointer.num.bits));
            return Err(Violation::new(Code::PointerArithmetic, text).in_linux(words));
        }
        let (low, high) = (at, at + i64::from(size));
        if ty == CPU_MASK {
            let text = format!(
                "only calls may touch the bytes of a CPU mask, found an access through {pointer} in {reg}"
            );
            return Err(Violation::new(Code::OutOfBounds, text)
                .suggest("ask bpf_cpumask_test_cpu, bpf_cpumask_first and the like"));
        }
        if low < 0 || high > own.bytes.into() {
            let text = format!(
                "expected an access inside of the {} bytes of struct {}, found bytes {low}..{high} in {reg}",
                own.bytes, own.name
            );
            return Err(Violation::new(Code::OutOfBounds, text));
        }
        let special = |field: &&SpecialField| i64::from(field.offset) < high && low < end(field);
        if let Some(field) = own.fields.iter().find(special) {
            let text = format!(
                "bytes {}..{} of struct {} are a {}, which only calls may touch; found an access to bytes \
                 {low}..{high} by {reg}",
                field.offset,
                end(field),
                own.name,
                name_of(field.kind)
            );
            let words = format!("direct access to {} is disallowed", name_of(field.kind));
            return Err(Violation::new(Code::OutOfBounds, text).in_linux(words));
        }
        if !self.env.config.abilities.lenient && !self.is_in_one_member(ty, (low, high)) {
            let text =
                format!("expected an access to one member of struct {}, found bytes {low}..{high}", own.name);
            return Err(Violation::new(Code::OutOfBounds, text));
        }
        Ok(Region::Memory)
    }

    /// Whether one member of a structure of the program's own has these bytes, and a pointer has no others.
    fn is_in_one_member(&self, ty: u32, (low, high): (i64, i64)) -> bool {
        let Some(btf) = self.env.program.source.btf.as_deref() else { return true };
        let Ok(mut members) = btf.members(ty) else { return true };
        members.any(|member| {
            let start = i64::from(member.bit_offset / 8);
            let end = start + btf.size(member.ty).map_or(0, i64::from);
            let pointer = btf.resolve(member.ty).is_ok_and(|ty| ty.kind == skep_btf::Kind::Ptr);
            start <= low && high <= end && (!pointer || (start, end) == (low, high))
        })
    }
}

/// The type of the objects that a list or tree holds.
fn held_by(kind: SpecialKind) -> Option<u32> {
    match kind {
        SpecialKind::ListHead { holds, .. } | SpecialKind::RbRoot { holds, .. } => Some(holds),
        _ => None,
    }
}

fn is_node(kind: SpecialKind) -> bool {
    matches!(kind, SpecialKind::ListNode | SpecialKind::RbNode)
}

/// Whether such fields of allocated objects are more than their bytes.
fn is_of_objects(kind: SpecialKind) -> bool {
    is_node(kind)
        || held_by(kind).is_some()
        || matches!(
            kind,
            SpecialKind::SpinLock
                | SpecialKind::Refcount
                | SpecialKind::Kptr { .. }
                | SpecialKind::KptrUntrusted { .. }
                | SpecialKind::KptrPercpu { .. }
        )
}
