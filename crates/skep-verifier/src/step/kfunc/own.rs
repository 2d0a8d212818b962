//! Calls that allocate objects, free them, and put them into lists and trees ([`crate::step::own`]).
//!
//! | call | takes | leaves |
//! |---|---|---|
//! | `bpf_obj_new`, `bpf_percpu_obj_new` | the number of a structure | an owned object, or null |
//! | `bpf_obj_drop`, `bpf_percpu_obj_drop` | an owned object | nothing |
//! | `bpf_refcount_acquire` | an object with a count, owned or borrowed | one more owner; or null, if not owned |
//! | `push`, `add` | a list or tree whose lock is held, an owned object | the object borrowed |
//! | `pop`, `remove` | the same list; a tree and a borrowed object | an owned object, or null |
//! | `first` and the like | the same | a borrowed object, or null |
//!
//! Which call is of which kind is a flag in [`skep_abi::KFUNCS`].

use crate::domain::loops::Construct;
use crate::domain::resources::{Holder, Referent};
use crate::domain::state::{ARGS, State};
use crate::domain::value::{Hold, Kind, Value};
use crate::program::prototype::{Collection, Prototype, Returned, What};
use crate::program::violation::{Checked, Code, Violation};
use crate::step::Transfer;
use crate::step::alu::CHECK_NULL;
use crate::step::frames::clobber_arguments;
use skep_abi::{CPU_MASK, Callback, KfuncFlags, SpecialField, SpecialKfunc, SpecialKind};
use skep_isa::Reg;

/// The most bytes of an object per CPU.
const MAX_PER_CPU: u32 = 512;

/// What the arguments of a call say.
#[derive(Default)]
struct Given {
    /// The type of the object to allocate.
    ty: Option<u32>,
    /// The object.
    object: Option<Value>,
    /// What the list or tree holds: the type, and where its node is.
    held: Option<(u32, u32)>,
    /// The function that compares.
    less: Option<u32>,
}

impl Transfer<'_> {
    /// Such a call. Returns where control goes on.
    pub(super) fn call_on_own(&mut self, state: &mut State, prototype: &Prototype) -> Checked<usize> {
        let mut given = Given::default();
        for at in 0..prototype.params.len().min(ARGS.len()) {
            self.own_argument(state, prototype, at, &mut given)?;
        }
        let Some(less) = given.less else {
            self.finish_own(state, prototype, &given)?;
            return Ok(self.slot + 1);
        };
        // A tree is as deep as it is: the function is called any number of times.
        let of = Construct::Callback { frame: state.top_index() };
        let node = self.node(prototype, &given, Hold::Borrowed, false)?;
        let mut other = self.forks.copy(state);
        other.loops.leave(of);
        self.finish_own(&mut other, prototype, &given)?;
        self.forks.put_aside(other, self.slot + 1);
        self.forks.stay(false);
        let no = Value::UNINIT;
        self.enter_callback(state, less, Callback::Less, [node, node, no, no, no])
    }

    fn own_argument(
        &self,
        state: &State,
        prototype: &Prototype,
        at: usize,
        given: &mut Given,
    ) -> Checked<()> {
        let (reg, who) = (ARGS[at], prototype.name());
        let what = &prototype.params[at].what;
        if matches!(what, What::Ignored) {
            return Ok(());
        }
        let value = self.read(state, reg)?;
        match what {
            What::Number { constant } => {
                let number = self.check_number(state, prototype, at)?.as_constant();
                given.ty = number.filter(|_| *constant).and_then(|number| u32::try_from(number).ok());
            }
            What::Owned => {
                self.check_object(prototype, reg, &value, |held| held == Hold::Owned)?;
                self.releasable(state, who, reg, &value, Referent::Allocated)?;
                given.object = Some(value);
            }
            What::Counted => {
                let own = self.check_object(prototype, reg, &value, |held| held != Hold::Untrusted)?;
                if !self.own_type(own)?.has(|kind| kind == SpecialKind::Refcount) {
                    return Err(self.wrong(prototype, reg, "an object with a struct bpf_refcount", &value));
                }
                if value.offset != 0 || !value.is_fixed() {
                    return Err(self.wrong(prototype, reg, "the start of an object", &value));
                }
                given.object = Some(value);
            }
            What::Root(of) => {
                let flags = prototype.known.flags;
                let changes = flags.has(KfuncFlags::INSERTS) || flags.has(KfuncFlags::ACQUIRE);
                if *of == Collection::Tree && changes {
                    self.check_not_comparing(state, who)?;
                }
                given.held = Some(self.root(state, who, reg, &value, *of)?);
            }
            What::Node => {
                let inserts = prototype.known.flags.has(KfuncFlags::INSERTS);
                let wanted = |held: Hold| if inserts { held == Hold::Owned } else { held.is_borrowed() };
                let ty = self.check_object(prototype, reg, &value, wanted)?;
                let place = given.held.filter(|_| value.is_fixed());
                if place != u32::try_from(value.offset).ok().map(|node| (ty, node)) {
                    let what = match given.held {
                        Some((ty, node)) => format!(
                            "the node at {node} of struct {}, which the list or tree holds",
                            self.own_type(ty)?.name
                        ),
                        None => "a node of the list or tree before it".to_owned(),
                    };
                    return Err(self.wrong(prototype, reg, &what, &value));
                }
                given.object = Some(value);
            }
            What::Less => match value.kind {
                // The program itself takes other arguments.
                Kind::Function { function } if function != 0 => given.less = Some(function),
                _ => return Err(self.wrong(prototype, reg, "a function of the program", &value)),
            },
            _ => return Err(self.wrong(prototype, reg, "an argument that this version knows", &value)),
        }
        Ok(())
    }

    /// Checks that an argument is an object that is held as the call wants it; returns its type.
    fn check_object(
        &self,
        prototype: &Prototype,
        reg: Reg,
        value: &Value,
        wanted: impl Fn(Hold) -> bool,
    ) -> Checked<u32> {
        let flags = prototype.known.flags;
        match value.kind {
            Kind::Own { ty, held, per_cpu, maybe_null: false }
                if ty != CPU_MASK && wanted(held) && per_cpu == flags.has(KfuncFlags::PER_CPU) =>
            {
                Ok(ty)
            }
            _ => {
                let what = match (flags.has(KfuncFlags::PER_CPU), wanted(Hold::Owned), wanted(Hold::Borrowed))
                {
                    (true, _, _) => "an object per CPU that this path owns",
                    (_, true, false) => "an allocated object that this path owns",
                    (_, false, _) => "an object that a list or tree owns, found under its lock",
                    (_, true, true) => "an allocated object",
                };
                let argument = reg.number() - 1;
                let words = match (wanted(Hold::Borrowed), value.is_maybe_null()) {
                    (true, true) => format!("Possibly NULL pointer passed to trusted arg{argument}"),
                    (true, false) if !wanted(Hold::Owned) => {
                        "rbtree_remove node input must be non-owning ref".to_owned()
                    }
                    _ => format!("arg#{argument} expected pointer to allocated object"),
                };
                let mut violation = self.wrong(prototype, reg, what, value).in_linux(words);
                if value.is_maybe_null() {
                    violation.code = Code::MaybeNull;
                    violation = violation.suggest(CHECK_NULL);
                }
                Err(violation)
            }
        }
    }

    /// Checks that an argument is a list or tree whose lock is held; returns what it holds.
    fn root(&self, state: &State, who: &str, reg: Reg, value: &Value, of: Collection) -> Checked<(u32, u32)> {
        let (name, wanted): (_, fn(SpecialKind) -> bool) = match of {
            Collection::List => ("bpf_list_head", |kind| matches!(kind, SpecialKind::ListHead { .. })),
            Collection::Tree => ("bpf_rb_root", |kind| matches!(kind, SpecialKind::RbRoot { .. })),
        };
        let (holder, kind) = self.special_argument(who, reg, value, name, wanted)?;
        let held = state.resources.lock.filter(|lock| (lock.of, lock.id) == (holder, value.id));
        if held.is_none() {
            let found = match state.resources.lock {
                None => "no lock is held".to_owned(),
                Some(lock) => {
                    format!("the lock that is held was taken for another by the call in {}", lock.slot)
                }
            };
            let of = match holder {
                Holder::Map(_) => "the same value",
                Holder::Own(_) => "the same object",
            };
            let text =
                format!("{who} expects the lock of {of} as the {name} in {reg} to be held, but {found}");
            let violation =
                Violation::new(Code::Resource, text).suggest("call bpf_spin_lock on its lock first");
            let lock = |fields: &[SpecialField]| {
                let lock = fields.iter().find(|field| field.kind == SpecialKind::SpinLock);
                lock.map_or(0, |lock| lock.offset)
            };
            let at = match holder {
                Holder::Map(map) => lock(self.map(map)?.fields()),
                Holder::Own(ty) => lock(&self.own_type(ty)?.fields),
            };
            let violation = match state.resources.lock {
                Some(_) => violation.in_linux("held lock and object are not in the same allocation"),
                None => violation,
            };
            return Err(
                violation.also_in_linux(&format!("bpf_spin_lock at off={at} must be held for {name}"))
            );
        }
        match self.held_type(kind)? {
            Some(held) => Ok(held),
            None => Err(Violation::new(Code::Types, format!("the {name} in {reg} holds nothing"))),
        }
    }

    /// A node of the list or tree.
    fn node(&mut self, prototype: &Prototype, given: &Given, held: Hold, maybe_null: bool) -> Checked<Value> {
        let Some((ty, node)) = given.held else {
            let text = format!("{} returns a node, but takes no list or tree", prototype.name());
            return Err(Violation::new(Code::Unsupported, text));
        };
        let mut value = self.named(Kind::Own { ty, held, per_cpu: false, maybe_null });
        value.offset = node as i32;
        Ok(value)
    }

    /// The effect of the call, after its arguments were checked.
    fn finish_own(&mut self, state: &mut State, prototype: &Prototype, given: &Given) -> Checked<()> {
        let (known, who) = (prototype.known, prototype.name());
        let flags = known.flags;
        let missing = || Violation::new(Code::Unsupported, format!("{who} takes no object"));
        let result = match known.special {
            SpecialKfunc::Allocate => self.allocated(prototype, given)?,
            SpecialKfunc::Drop => {
                let object = given.object.ok_or_else(missing)?;
                self.release(state, who, object.reference)?;
                super::nothing(self.slot as u32)
            }
            SpecialKfunc::Share => {
                let object = given.object.ok_or_else(missing)?;
                let Kind::Own { ty, held, .. } = object.kind else { return Err(missing()) };
                // The last owner of another's object may be giving it up.
                let maybe_null = held != Hold::Owned;
                self.named(Kind::Own { ty, held: Hold::Owned, per_cpu: false, maybe_null })
            }
            _ => {
                if flags.has(KfuncFlags::INSERTS) {
                    let object = given.object.ok_or_else(missing)?;
                    self.change_hold(state, who, object.reference, Hold::Borrowed)?;
                }
                let acquires = flags.has(KfuncFlags::ACQUIRE);
                let held = if acquires { Hold::Owned } else { Hold::Borrowed };
                match prototype.returned {
                    Returned::Object(_) => {
                        self.node(prototype, given, held, flags.has(KfuncFlags::RET_NULL))?
                    }
                    Returned::Nothing => super::nothing(self.slot as u32),
                    _ => Value::UNKNOWN,
                }
            }
        };
        clobber_arguments(state, self.slot as u32);
        *state.reg_mut(Reg::R0) = match flags.has(KfuncFlags::ACQUIRE) {
            true => {
                let reference = self.acquire(state, Referent::Allocated)?;
                // It keeps its identity where that tells locks apart.
                let id =
                    if result.is_maybe_null() || self.keeps_identity(result.kind) { reference } else { 0 };
                Value { reference, id, ..result }
            }
            false => result,
        };
        Ok(())
    }

    /// A new object.
    fn allocated(&mut self, prototype: &Prototype, given: &Given) -> Checked<Value> {
        let who = prototype.name();
        let Some(ty) = given.ty.filter(|ty| *ty < CPU_MASK) else {
            let text = format!("{who} expects the number of a structure in r1, found a larger one");
            return Err(Violation::new(Code::Argument, text));
        };
        let own = self.own_type(ty)?;
        let per_cpu = prototype.known.flags.has(KfuncFlags::PER_CPU);
        if per_cpu && !(own.numbers && own.fields.is_empty()) {
            let text = format!("{who} allocates structures of numbers, which struct {} is not", own.name);
            return Err(Violation::new(Code::Argument, text));
        }
        if per_cpu && own.bytes > MAX_PER_CPU {
            let text = format!(
                "{who} allocates at most {MAX_PER_CPU} bytes for each CPU, but struct {} has {}",
                own.name, own.bytes
            );
            return Err(Violation::new(Code::Argument, text));
        }
        self.record.allocated(ty, per_cpu);
        Ok(self.named(Kind::Own { ty, held: Hold::Owned, per_cpu, maybe_null: true }))
    }
}
