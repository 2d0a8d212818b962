//! Fields of map values that only calls may touch: locks, timers, work queues, pointers to host objects.
//!
//! ```text
//!   value of a map:  | counter | bpf_spin_lock |      data      | bpf_timer        | kptr |
//!   load, store          yes          no               yes             no            see below
//! ```
//!
//! A pointer to a host's object in a map may be loaded whole, but does not keep the object alive. Only a call changes a
//! pointer that owns its object: it exchanges it for another. Null or an unowned pointer may be stored into a pointer
//! that does not own its object.

use crate::domain::resources::{Guard, Holder, Lock};
use crate::domain::state::State;
use crate::domain::value::{Hold, Kind, Trust, Value};
use crate::program::assumed::MapView;
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::region::Intent;
use crate::step::resources::CALL_UNDER_LOCK;
use skep_abi::{OWN_TYPE, SpecialField, SpecialKind};
use skep_isa::Reg;

/// The program types, by Linux's numbers, that may not take locks: they could interrupt a holder.
const NO_LOCKS: [u32; 6] = [1, 2, 5, 7, 17, 24];
/// Those of them that may not use timers either.
const NO_TIMERS: [u32; 5] = [2, 5, 7, 17, 24];

impl Transfer<'_> {
    /// Whether bytes `low..high` of a map's value may be accessed directly. Returns the pointer to a host's
    /// object that they are, if so.
    pub(crate) fn check_special(
        &self,
        def: MapView<'_>,
        reg: Reg,
        pointer: &Value,
        (low, high): (i64, i64),
        intent: Option<Intent>,
    ) -> Checked<Option<SpecialField>> {
        let overlaps = |field: &&SpecialField| i64::from(field.offset) < high && low < end(field);
        let Some(field) = def.fields().iter().find(overlaps) else { return Ok(None) };
        let name = name_of(field.kind);
        if !is_kptr(field.kind) || intent.is_none() {
            let text = format!(
                "bytes {}..{} of the map {}'s values are a {name}, which only calls may touch; found an access to bytes \
                 {low}..{high} by {reg}",
                field.offset,
                end(field),
                def.name()
            );
            let words = match is_kptr(field.kind) {
                true => "kptr cannot be accessed indirectly by helper".to_owned(),
                false => format!("{name} cannot be accessed directly by load/store"),
            };
            return Err(Violation::new(Code::OutOfBounds, text).in_linux(words));
        }
        let whole = low == i64::from(field.offset) && high == end(field);
        if !whole || !pointer.is_fixed() || intent == Some(Intent::Atomic) {
            let text = format!(
                "the pointer to a host's object at {} of the map {}'s values must be loaded or stored whole, at a \
                 constant offset; found an access to bytes {low}..{high} by {reg}",
                field.offset,
                def.name()
            );
            let words = match (pointer.is_fixed(), high - low) {
                (false, _) => "kptr access cannot have variable offset".to_owned(),
                (true, 8) => format!("kptr access misaligned expected={} off={low}", field.offset),
                (true, _) => "kptr access size must be BPF_DW".to_owned(),
            };
            return Err(Violation::new(Code::OutOfBounds, text).in_linux(words));
        }
        Ok(Some(field.clone()))
    }

    /// The result of loading a pointer to a host's object.
    pub(crate) fn load_kptr(&mut self, state: &State, kind: SpecialKind) -> Checked<Value> {
        let Some(ty) = pointed_to(kind) else { return Ok(Value::UNKNOWN) };
        if ty & OWN_TYPE != 0 {
            let owned = matches!(kind, SpecialKind::Kptr { .. } | SpecialKind::KptrPercpu { .. });
            let ty = ty & !OWN_TYPE;
            let held = match owned && self.in_read_section(state) {
                true if self.own_type(ty)?.is_node() => Hold::FoundNode,
                true => Hold::Found,
                false => Hold::Untrusted,
            };
            let per_cpu = matches!(kind, SpecialKind::KptrPercpu { .. });
            return Ok(self.named(Kind::Own { ty, held, per_cpu, maybe_null: true }));
        }
        // Another CPU may release the object at any time; a read section keeps it alive to its end.
        let owned = matches!(kind, SpecialKind::Kptr { .. }) && self.in_read_section(state);
        let trust = if owned { Trust::ReadSection } else { Trust::Untrusted };
        Ok(self.named(Kind::Object { ty, trust, maybe_null: true }))
    }

    /// The object that an exchange with such a field takes or gives, once it is not null.
    pub(crate) fn kept(&self, kind: SpecialKind) -> Option<Kind> {
        let ty = pointed_to(kind)?;
        let per_cpu = matches!(kind, SpecialKind::KptrPercpu { .. });
        Some(match ty & OWN_TYPE {
            0 => Kind::Object { ty, trust: Trust::Trusted, maybe_null: false },
            _ => Kind::Own { ty: ty & !OWN_TYPE, held: Hold::Owned, per_cpu, maybe_null: false },
        })
    }

    /// Checks a store there: null, or a pointer to an object into a field that does not own it.
    pub(crate) fn check_kptr_store(
        &self,
        def: MapView<'_>,
        field: &SpecialField,
        value: &Value,
    ) -> Checked<()> {
        let fits = match (field.kind, value.kind) {
            (SpecialKind::KptrUntrusted { .. }, _) if value.as_constant() == Some(0) => true,
            (SpecialKind::KptrUntrusted { to }, Kind::Object { ty: found, .. }) => {
                to == found && value.offset == 0 && value.is_fixed()
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let text = format!(
            "the pointer to a host's object at {} of the map {}'s values may not be overwritten, found a store of {value}",
            field.offset,
            def.name()
        );
        let words = match field.kind {
            SpecialKind::Kptr { .. } => "store to referenced kptr disallowed".to_owned(),
            _ if value.is_scalar() => {
                format!("BPF_ST imm must be 0 when storing to kptr at off={}", field.offset)
            }
            _ => "invalid kptr access".to_owned(),
        };
        Err(Violation::new(Code::Argument, text)
            .suggest("exchange references with bpf_kptr_xchg")
            .in_linux(words))
    }

    /// The special field of that kind that an argument points to, and what it lies in: a map's value, or an object that
    /// the program allocated and owns.
    pub(crate) fn special_argument(
        &self,
        who: &str,
        reg: Reg,
        value: &Value,
        name: &str,
        wanted: impl Fn(SpecialKind) -> bool,
    ) -> Checked<(Holder, SpecialKind)> {
        let own;
        let (holder, fields, of) = match value.kind {
            Kind::MapValue { map, maybe_null: false } => {
                let def = self.map(map)?;
                (Holder::Map(map), def.fields(), format!("the values of the map {}", def.name()))
            }
            Kind::Own { ty, held: Hold::Owned, per_cpu: false, maybe_null: false } => {
                own = self.own_type(ty)?;
                (Holder::Own(ty), &own.fields[..], format!("objects of type struct {}", own.name))
            }
            _ => return Err(no_holder(who, reg, value, name)),
        };
        let mut fields = fields.iter().filter(|field| wanted(field.kind));
        if let Some(field) =
            fields.clone().find(|field| value.is_fixed() && i64::from(field.offset) == value.offset.into())
        {
            return Ok((holder, field.kind));
        }
        let text = match fields.next() {
            None => format!("{who} expects a {name} in {reg}, but {of} have none in their type"),
            Some(field) if !value.is_fixed() => format!(
                "{who} expects the {name} at {} of {of} in {reg}, at a constant offset; found {value}",
                field.offset,
            ),
            Some(field) => format!(
                "{who} expects the {name} at {} of {of} in {reg}, found offset {}",
                field.offset, value.offset
            ),
        };
        let number = reg.number();
        let words = match (name, value.is_fixed()) {
            (_, false) => {
                format!("R{number} doesn't have constant offset. {name} has to be at the constant offset")
            }
            ("kptr", true) => format!("off={} kptr isn't referenced kptr", value.offset),
            ("bpf_list_head" | "bpf_rb_root", true) => format!("{name} not found at offset={}", value.offset),
            (_, true) => format!("off {} doesn't point to 'struct {name}'", value.offset),
        };
        Err(Violation::new(Code::Argument, text).in_linux(words))
    }

    /// `bpf_spin_lock`.
    pub(crate) fn take_lock(&self, state: &mut State, who: &str, reg: Reg, value: &Value) -> Checked<()> {
        let (of, _) = self.lock_argument(who, reg, value)?;
        self.check_not_comparing(state, who)?;
        if let Some(lock) = state.resources.lock {
            let text =
                format!("a second lock is taken while the lock taken by the call in {} is held", lock.slot);
            return Err(Violation::new(Code::Resource, text)
                .suggest("call bpf_spin_unlock first")
                .in_linux(CALL_UNDER_LOCK));
        }
        state.resources.lock = Some(Lock { of, id: value.id, slot: self.slot as u32 });
        Ok(())
    }

    /// `bpf_spin_unlock`.
    pub(crate) fn give_lock(&mut self, state: &mut State, who: &str, reg: Reg, value: &Value) -> Checked<()> {
        let (of, _) = self.lock_argument(who, reg, value)?;
        self.check_not_comparing(state, who)?;
        let Some(lock) = state.resources.lock else {
            let text = format!("{who} is called, but this path holds no lock");
            return Err(Violation::new(Code::Resource, text)
                .outside_of(Guard::Lock)
                .in_linux("bpf_spin_unlock without taking a lock"));
        };
        if (lock.of, lock.id) != (of, value.id) {
            let text = format!(
                "{who} expects the lock of the value that was locked by the call in {} in {reg}, found {value}: another \
                 value, or one that was looked up again",
                lock.slot
            );
            return Err(Violation::new(Code::Resource, text).in_linux("bpf_spin_unlock of different lock"));
        }
        state.resources.lock = None;
        // Another CPU may take the nodes out of their lists and trees now.
        self.forks.charge(state);
        self.end_values(state, |value| matches!(value.kind, Kind::Own { held, .. } if held.is_borrowed()));
        Ok(())
    }

    fn lock_argument(&self, who: &str, reg: Reg, value: &Value) -> Checked<(Holder, SpecialKind)> {
        self.special_argument(who, reg, value, "bpf_spin_lock", |kind| kind == SpecialKind::SpinLock)
    }

    /// Whether values of the map keep their id after a null check: a lock must be released through the same value, and
    /// a timer belongs to its map.
    pub(crate) fn keeps_identity(&self, kind: Kind) -> bool {
        match kind {
            Kind::MapValue { map, .. } => self.map(map).is_ok_and(|def| {
                def.fields().iter().any(|field| {
                    matches!(
                        field.kind,
                        SpecialKind::SpinLock | SpecialKind::ListHead { .. } | SpecialKind::RbRoot { .. }
                    )
                })
            }),
            Kind::InnerMap { .. } => true,
            Kind::Own { ty, .. } => self.own_type(ty).is_ok_and(|own| own.has_lock()),
            _ => false,
        }
    }

    /// Whether programs of this type may use a map with such fields at all.
    pub(crate) fn check_special_map(&self, def: MapView<'_>) -> Checked<()> {
        if let Some(inner) = def.inner() {
            self.check_special_map(inner)?;
        }
        if def.fields().is_empty() {
            return Ok(());
        }
        if let Some(field) = def.misplaced() {
            let text = format!(
                "the map {} cannot be created: values of kind {} hold no {}",
                def.name(),
                def.kind(),
                field.kind.name()
            );
            return Err(Violation::new(Code::Argument, text));
        }
        let kind = self.env.program_type();
        let refused = def.fields().iter().find(|field| {
            let types: &[u32] = match field.kind {
                SpecialKind::SpinLock | SpecialKind::ListHead { .. } | SpecialKind::RbRoot { .. } => {
                    &NO_LOCKS
                }
                SpecialKind::Timer | SpecialKind::Workqueue => &NO_TIMERS,
                _ => &[],
            };
            kind.number.is_some_and(|number| types.contains(&number))
        });
        match refused {
            None => Ok(()),
            Some(field) => {
                let text = format!(
                    "programs of type {} may not use the map {}, whose values hold a {}",
                    kind.name,
                    def.name(),
                    name_of(field.kind)
                );
                let name = match field.kind {
                    SpecialKind::ListHead { .. } | SpecialKind::RbRoot { .. } => "bpf_{list_head,rb_root}",
                    other => name_of(other),
                };
                let words = format!("tracing progs cannot use {name} yet");
                Err(Violation::new(Code::Argument, text).in_linux(words))
            }
        }
    }
}

#[cold]
fn no_holder(who: &str, reg: Reg, value: &Value, name: &str) -> Box<Violation> {
    let text = format!(
        "{who} expects a {name} in a map's value, or in an allocated object that this path owns, in {reg}, found {value}"
    );
    match value.is_maybe_null() {
        true => Violation::new(Code::MaybeNull, text).suggest(crate::step::alu::CHECK_NULL),
        false => Violation::new(Code::Argument, text),
    }
}

/// One past a field's last byte.
pub(crate) fn end(field: &SpecialField) -> i64 {
    i64::from(field.offset) + i64::from(field.size)
}

/// The number of the type of the objects that a field points to.
pub(crate) fn pointed_to(kind: SpecialKind) -> Option<u32> {
    match kind {
        SpecialKind::Kptr { to }
        | SpecialKind::KptrPercpu { to }
        | SpecialKind::KptrUntrusted { to }
        | SpecialKind::Uptr { to } => Some(to),
        _ => None,
    }
}

fn is_kptr(kind: SpecialKind) -> bool {
    pointed_to(kind).is_some()
}

/// A field's C type, as programs name it.
pub(crate) fn name_of(kind: SpecialKind) -> &'static str {
    match kind {
        SpecialKind::SpinLock => "bpf_spin_lock",
        SpecialKind::ResSpinLock => "bpf_res_spin_lock",
        SpecialKind::Timer => "bpf_timer",
        SpecialKind::Workqueue => "bpf_wq",
        SpecialKind::TaskWork => "bpf_task_work",
        SpecialKind::Refcount => "bpf_refcount",
        SpecialKind::ListHead { .. } => "bpf_list_head",
        SpecialKind::ListNode => "bpf_list_node",
        SpecialKind::RbRoot { .. } => "bpf_rb_root",
        SpecialKind::RbNode => "bpf_rb_node",
        SpecialKind::Uptr { .. } => "uptr",
        _ => "kptr",
    }
}
