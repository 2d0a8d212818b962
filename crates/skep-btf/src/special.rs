//! Fields of values that no program may read or write as bytes: locks, timers, work queues, lists and trees and
//! their nodes, reference counts, and pointers that are kept in values.
//!
//! They are known by the names of their structures, pointers by their tags (`__kptr` and its kin). How many of
//! each a value may have, and where, is what Linux demands.

use crate::btf::Btf;
use crate::error::Error;
use crate::tags::Pointer;
use crate::types::{Kind, Type};

/// The most such fields of one value.
pub const MAX_SPECIAL: usize = 11;

/// Set in the type number of a kept pointer whose target is a type of the program's own, not of the host: an object
/// that the program allocated.
pub const OWN_TYPE: u32 = 1 << 31;

/// The type number of a runtime's CPU masks, whatever `struct bpf_cpumask` is in a program's types. No file has that
/// many types. Kept pointers to masks have it with [`OWN_TYPE`].
pub const CPU_MASK: u32 = OWN_TYPE - 1;
/// The same for the tasks of a runtime's machine (`struct task_struct`). Programs do not make them, so kept pointers to
/// tasks have the number alone; likewise for the next three.
pub const TASK: u32 = OWN_TYPE - 2;
/// The same for cgroups (`struct cgroup`).
pub const CGROUP: u32 = OWN_TYPE - 3;
/// The same for what leads from a task to its cgroup (`struct css_set`).
pub const CSS_SET: u32 = OWN_TYPE - 4;

/// The same for what has a cgroup's number (`struct kernfs_node`).
pub const KERNFS_NODE: u32 = OWN_TYPE - 5;

/// The objects of a runtime's machine: the names of their structures, the numbers, and what texts call many of them.
const MACHINE: [(&str, u32, &str); 4] = [
    ("task_struct", TASK, "tasks"),
    ("cgroup", CGROUP, "cgroups"),
    ("css_set", CSS_SET, "sets of cgroups"),
    ("kernfs_node", KERNFS_NODE, "nodes of cgroups"),
];

/// The number of the structure of that name, if a runtime's machine has such objects.
pub fn machine_type(name: &str) -> Option<u32> {
    MACHINE.iter().find(|(known, ..)| *known == name).map(|(_, ty, _)| *ty)
}

/// The name of the structure of that number, if a runtime's machine has such objects.
pub fn machine_type_name(ty: u32) -> Option<&'static str> {
    MACHINE.iter().find(|(_, known, _)| *known == ty).map(|(name, ..)| *name)
}

/// The most structures and arrays inside each other that are searched.
const MAX_DEPTH: u32 = 8;
/// The most members that a search looks at.
const BUDGET: u32 = 1 << 17;

/// A field that is more than its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialField {
    /// What it is.
    pub kind: SpecialKind,
    /// Bytes from the value's start.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

/// What a special field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpecialKind {
    /// `struct bpf_spin_lock`
    SpinLock,
    /// `struct bpf_res_spin_lock`
    ResSpinLock,
    /// `struct bpf_timer`
    Timer,
    /// `struct bpf_wq`
    Workqueue,
    /// `struct bpf_task_work`
    TaskWork,
    /// `struct bpf_refcount`
    Refcount,
    /// `struct bpf_list_head`
    ListHead {
        /// The structure that is listed, if the declaration says so (`__contains`).
        holds: u32,
        /// Bytes from its start to the node that lists it.
        node: u32,
    },
    /// `struct bpf_list_node`
    ListNode,
    /// `struct bpf_rb_root`
    RbRoot {
        /// The structure that is in the tree.
        holds: u32,
        /// Bytes from its start to its node.
        node: u32,
    },
    /// `struct bpf_rb_node`
    RbNode,
    /// `__kptr_untrusted`: a pointer whose target may have been freed.
    KptrUntrusted {
        /// What it points to.
        to: u32,
    },
    /// `__kptr`: a pointer that holds a reference.
    Kptr {
        /// What it points to.
        to: u32,
    },
    /// `__percpu_kptr`: the same to an object per CPU.
    KptrPercpu {
        /// What it points to.
        to: u32,
    },
    /// `__uptr`: a pointer to memory of user space that is pinned.
    Uptr {
        /// What it points to.
        to: u32,
    },
}

impl SpecialKind {
    /// What it is in C: the structure's name, or the pointer's tag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpinLock => "struct bpf_spin_lock",
            Self::ResSpinLock => "struct bpf_res_spin_lock",
            Self::Timer => "struct bpf_timer",
            Self::Workqueue => "struct bpf_wq",
            Self::TaskWork => "struct bpf_task_work",
            Self::Refcount => "struct bpf_refcount",
            Self::ListHead { .. } => "struct bpf_list_head",
            Self::ListNode => "struct bpf_list_node",
            Self::RbRoot { .. } => "struct bpf_rb_root",
            Self::RbNode => "struct bpf_rb_node",
            Self::KptrUntrusted { .. } => "__kptr_untrusted pointer",
            Self::Kptr { .. } => "__kptr pointer",
            Self::KptrPercpu { .. } => "__percpu_kptr pointer",
            Self::Uptr { .. } => "__uptr pointer",
        }
    }
}

/// A structure that is known by its name.
struct Known {
    name: &'static str,
    kind: SpecialKind,
    align: u32,
    /// Whether a value has at most one.
    single: bool,
}

const KNOWN: [Known; 10] = {
    use SpecialKind as K;
    const fn known(name: &'static str, kind: SpecialKind, align: u32, single: bool) -> Known {
        Known { name, kind, align, single }
    }
    let (holds, node) = (0, 0);
    [
        known("bpf_spin_lock", K::SpinLock, 4, true),
        known("bpf_res_spin_lock", K::ResSpinLock, 4, true),
        known("bpf_timer", K::Timer, 8, true),
        known("bpf_wq", K::Workqueue, 8, true),
        known("bpf_task_work", K::TaskWork, 8, true),
        known("bpf_refcount", K::Refcount, 4, true),
        known("bpf_list_head", K::ListHead { holds, node }, 8, false),
        known("bpf_list_node", K::ListNode, 8, false),
        known("bpf_rb_root", K::RbRoot { holds, node }, 8, false),
        known("bpf_rb_node", K::RbNode, 8, false),
    ]
};

/// The structure of CPU masks, in the types of programs and of kernels.
const CPU_MASK_NAME: &str = "bpf_cpumask";

/// What texts call the structures that a runtime has itself, by [`Btf::of_runtime`].
pub(crate) fn many(ty: u32) -> Option<&'static str> {
    match ty & !OWN_TYPE {
        CPU_MASK => Some("CPU masks"),
        ty => MACHINE.iter().find(|(_, known, _)| *known == ty).map(|(.., many)| *many),
    }
}

impl Btf {
    /// What a kept pointer to that type leads to in a runtime, if it is a structure that a runtime has itself: CPU
    /// masks, which programs make ([`CPU_MASK`] with [`OWN_TYPE`]), and the objects of its machine ([`TASK`] and its
    /// kin).
    pub fn of_runtime(&self, id: u32) -> Option<u32> {
        let ty = self.resolve(id).ok().filter(|ty| ty.kind == Kind::Struct)?;
        match ty.name().ok()? {
            CPU_MASK_NAME => Some(CPU_MASK | OWN_TYPE),
            name => machine_type(name),
        }
    }

    /// The special fields of a structure, a union or a section of variables, ascending by offset; none for other
    /// types. All lie inside a structure or union; a section's size is for its owner to compare with.
    ///
    /// # Errors
    ///
    /// [`Error::Special`] where one stands as it must not, and where types are damaged.
    pub fn special_fields(&self, id: u32) -> Result<Vec<SpecialField>, Error> {
        let mut search = Search { btf: self, root: id, fields: Vec::new(), budget: BUDGET };
        let ty = self.resolve(id)?;
        match ty.kind {
            Kind::Datasec => {
                for variable in ty.variables().filter(|variable| variable.var.kind == Kind::Var) {
                    search.thing(variable.var.target(), variable.offset, Some(variable.var.id), None, 0)?;
                }
            }
            _ if ty.kind.is_composite() => {
                search.composite(&ty, 0, 0)?;
                search.check_end(ty.size().unwrap_or(0))?;
            }
            _ => {}
        }
        search.fields.sort_by_key(|field| field.offset);
        search.check()?;
        Ok(search.fields)
    }
}

struct Search<'a> {
    btf: &'a Btf,
    root: u32,
    fields: Vec<SpecialField>,
    budget: u32,
}

impl<'a> Search<'a> {
    fn composite(&mut self, ty: &Type<'a>, start: u32, depth: u32) -> Result<(), Error> {
        for (index, member) in (0u32..).zip(ty.members()) {
            self.budget = self.budget.checked_sub(1).ok_or_else(|| self.bad("is too large to search"))?;
            if member.bits > 0 || !member.bit_offset.is_multiple_of(8) {
                continue;
            }
            let offset = start.saturating_add(member.bit_offset / 8);
            self.thing(member.ty, offset, Some(ty.id), Some(index), depth)?;
        }
        Ok(())
    }

    /// Looks at a member or variable. Remarks on it are found with `owner` and `component`.
    fn thing(
        &mut self,
        id: u32,
        offset: u32,
        owner: Option<u32>,
        component: Option<u32>,
        depth: u32,
    ) -> Result<(), Error> {
        let ty = self.btf.resolve(id)?;
        match ty.kind {
            Kind::Ptr => match self.btf.pointer(ty.id)?.and_then(|pointer| kept(&pointer)) {
                Some(kind) => self.push(kind, offset, 8, 8),
                None => Ok(()),
            },
            Kind::Struct => {
                let name = ty.name()?;
                if let Some(known) = KNOWN.iter().find(|known| known.name == name) {
                    let kind = self.with_contents(known.kind, owner, component)?;
                    if known.single && self.fields.iter().any(|field| field.kind == kind) {
                        return Err(self.bad(second(kind)));
                    }
                    return self.push(kind, offset, ty.size().unwrap_or(0), known.align);
                }
                if depth < MAX_DEPTH { self.composite(&ty, offset, depth + 1) } else { Ok(()) }
            }
            // What the members of a union hold is unknown: nothing special may be kept in one, and nothing is found.
            Kind::Array if depth < MAX_DEPTH => self.array(&ty, offset, owner, component, depth),
            _ => Ok(()),
        }
    }

    /// Looks at one element; if it has something, all the others have it too.
    fn array(
        &mut self,
        ty: &Type<'a>,
        start: u32,
        owner: Option<u32>,
        component: Option<u32>,
        depth: u32,
    ) -> Result<(), Error> {
        let Some(array) = ty.array() else { return Ok(()) };
        for index in 0..array.count {
            let before = self.fields.len();
            let step = self.btf.size(array.element)?;
            let offset = u64::from(start) + u64::from(index) * u64::from(step);
            let offset = u32::try_from(offset).map_err(|_| self.bad("is larger than 4 GiB"))?;
            self.thing(array.element, offset, owner, component, depth + 1)?;
            if self.fields.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Completes what a list or tree holds by the remark `contains:STRUCT:MEMBER`.
    fn with_contents(
        &self,
        kind: SpecialKind,
        owner: Option<u32>,
        component: Option<u32>,
    ) -> Result<SpecialKind, Error> {
        if !matches!(kind, SpecialKind::ListHead { .. } | SpecialKind::RbRoot { .. }) {
            return Ok(kind);
        }
        let tags = owner.into_iter().flat_map(|owner| self.btf.decl_tags(owner));
        let contents = tags
            .filter(|tag| tag.component == component)
            .find_map(|tag| tag.name.strip_prefix("contains:")?.split_once(':'));
        let Some((name, member)) = contents else {
            return Err(self.bad("has a list or tree that does not say what it holds; add __contains(...)"));
        };
        let missing = || self.bad("has a list or tree of a structure or member that does not exist");
        let holds = self.btf.find(name, Kind::Struct).ok_or_else(missing)?;
        let found =
            self.btf.ty(holds)?.members().find(|found| found.name() == Ok(member)).ok_or_else(missing)?;
        let node = found.bit_offset / 8;
        Ok(match kind {
            SpecialKind::ListHead { .. } => SpecialKind::ListHead { holds, node },
            _ => SpecialKind::RbRoot { holds, node },
        })
    }

    fn push(&mut self, kind: SpecialKind, offset: u32, size: u32, align: u32) -> Result<(), Error> {
        if !offset.is_multiple_of(align) {
            return Err(self.bad("has a lock, timer or kept pointer that is not aligned"));
        }
        if self.fields.len() == MAX_SPECIAL {
            return Err(self.bad("has more than 11 locks, timers, kept pointers and the like"));
        }
        self.fields.push(SpecialField { kind, offset, size });
        Ok(())
    }

    /// Members must be inside their structure, which types do not promise.
    fn check_end(&self, size: u32) -> Result<(), Error> {
        let end = |field: &SpecialField| u64::from(field.offset) + u64::from(field.size);
        match self.fields.iter().all(|field| end(field) <= size.into()) {
            true => Ok(()),
            false => Err(self.bad("has a lock, timer or kept pointer beyond its end")),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let has = |kind| self.fields.iter().any(|field| field.kind == kind);
        if has(SpecialKind::SpinLock) && has(SpecialKind::ResSpinLock) {
            return Err(self.bad("has locks of both kinds"));
        }
        let needs_lock = |field: &SpecialField| {
            matches!(field.kind, SpecialKind::ListHead { .. } | SpecialKind::RbRoot { .. })
        };
        let locked = has(SpecialKind::SpinLock) || has(SpecialKind::ResSpinLock);
        if self.fields.iter().any(needs_lock) && !locked {
            return Err(self.bad("has a list or tree, but no lock for it; add struct bpf_spin_lock"));
        }
        let overlap = self
            .fields
            .windows(2)
            .any(|pair| u64::from(pair[0].offset) + u64::from(pair[0].size) > pair[1].offset.into());
        if overlap { Err(self.bad("has special fields that overlap")) } else { Ok(()) }
    }

    fn bad(&self, reason: &'static str) -> Error {
        let ty = self.btf.type_name(self.root).unwrap_or_default();
        Error::Special { ty, reason }
    }
}

/// Whether a pointer with these tags is kept for a program.
fn kept(pointer: &Pointer<'_>) -> Option<SpecialKind> {
    let to = pointer.to;
    pointer.tags.iter().find_map(|&tag| match tag {
        "kptr_untrusted" => Some(SpecialKind::KptrUntrusted { to }),
        "kptr" => Some(SpecialKind::Kptr { to }),
        "percpu_kptr" => Some(SpecialKind::KptrPercpu { to }),
        "uptr" => Some(SpecialKind::Uptr { to }),
        _ => None,
    })
}

fn second(kind: SpecialKind) -> &'static str {
    match kind {
        SpecialKind::SpinLock | SpecialKind::ResSpinLock => "has two spin locks, but a value has one at most",
        SpecialKind::Timer => "has two timers, but a value has one at most",
        SpecialKind::Workqueue => "has two work queues, but a value has one at most",
        SpecialKind::Refcount => "has two reference counts, but a value has one at most",
        _ => "has two fields of a kind of which a value has one at most",
    }
}
