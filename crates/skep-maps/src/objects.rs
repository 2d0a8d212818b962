//! Objects that programs allocate (`bpf_obj_new`), and what owns them: programs, lists, trees and kept pointers.
//!
//! ```text
//!   | layout | next |  the object's bytes: data, nodes, count of owners, kept pointers, lists, trees   |
//!                   ^ the address that programs have
//! ```
//!
//! **An object describes itself.** Its layout has its size and its special fields, so whatever owns an object can free
//! it without knowing its type: a map that is dropped, a list in another object. The verifier proves that each object
//! has one owner, or counts its owners.
//!
//! **Memory.** Each layout has a cache of its own. A program may still read an object that another one has freed
//! meanwhile: it loaded a kept pointer by a plain load, or had put the object into a list before. Such readers announce
//! no eras, so a freed object waits for whole grace periods ([`Policy::FreeAfterGp`]), whatever the policy of the
//! maps is; only with [`Policy::None`] does it return to the system's allocator, after the same time.
//!
//! **Destruction** is a loop over a list of dead objects, linked by `next`: objects may own each other to any depth. It
//! waits for no reader and takes no lock, because a dead object has no owner that could use its fields.
//!
//! **Lifetime.** Objects are in maps and running programs only. Layouts are kept by [`Objects`], which every map whose
//! values own objects keeps ([`Map::keep_objects`](crate::Map::keep_objects)).

mod list;
mod machine;
mod mask;
mod owning;
mod tree;
mod word;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use skep_abi::{MACHINE_NUMBER, SpecialField, SpecialKind};
use skep_mem::{Account, Cache, CacheOptions, Error, Policy};
use skep_rcu::{Domain, Grace};

use crate::caller::Caller;
use crate::elements::Reclamation;
pub use list::{End, List};
pub use machine::MachineObject;
pub use mask::Mask;
pub(crate) use owning::{Held, Owning};
pub use tree::Tree;
use word::{OFFSET_SHIFT, word};

/// The most bytes of an object, of one CPU.
pub const MAX_BYTES: u32 = 4096;

/// The most objects of one layout at a time, in use or waiting for readers.
const MAX_OBJECTS: usize = 1 << 20;

/// Bytes before each object: its layout, and its link in a list of dead objects.
const HEADER: usize = 16;

/// What a layout is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of an object, of one CPU.
    pub bytes: u32,
    /// Its special fields, ascending. Their types do not matter here: objects describe themselves.
    pub fields: Vec<SpecialField>,
    /// Whether each CPU has a copy.
    pub per_cpu: bool,
    /// Whose its bytes are.
    pub contents: Contents,
}

/// Whose an object's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The program's that allocated it.
    Program,
    /// Those of a [`Mask`] of that many CPUs, which are not for programs.
    Mask(u32),
    /// Those of a [`MachineObject`] of that type, of which programs read some.
    Machine(u32),
}

/// Why a [`Shape`] has no layout.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// It is empty or too large.
    #[error("it has {bytes} bytes, but objects have 1 to {MAX_BYTES}")]
    Size {
        /// Its size.
        bytes: u32,
    },
    /// A special field has another size than Linux's, or is outside.
    #[error(
        "its {field} at {offset} has {size} bytes, expected {wanted}; compile it with the types of Linux 6.4 or later"
    )]
    Field {
        /// The field's C type.
        field: &'static str,
        /// Bytes from the start.
        offset: u32,
        /// Its size.
        size: u32,
        /// The size that the runtime needs.
        wanted: u32,
    },
    /// There is no memory for an object that the runtime needs.
    #[error("no memory for the first object")]
    NoObject,
    /// Its cache cannot be made.
    #[error("no memory for its objects: {0}")]
    Memory(#[source] Error),
}

/// Why a map does not take objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// It belongs to other readers, or has objects of another runtime.
    OtherRuntime,
    /// Programs that use it already have objects of other layouts.
    OtherLayouts,
}

/// The layouts of a runtime's objects.
#[derive(Debug, Default)]
pub struct Objects {
    layouts: Mutex<Vec<Arc<Layout>>>,
    trace: Arc<Trace>,
}

/// The objects that were ever allocated, for checking mode.
#[derive(Debug, Default)]
struct Trace {
    on: AtomicBool,
    /// Its layout's address, by an object's.
    objects: Mutex<BTreeMap<u64, Arc<Shape>>>,
}

/// What a program may do with bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whether it may read them.
    pub read: bool,
    /// Whether it may write them.
    pub write: bool,
}

/// A kind of objects, with their memory.
#[derive(Debug)]
pub struct Layout {
    shape: Arc<Shape>,
    trace: Arc<Trace>,
    /// Bytes from one CPU's copy to the next; 0 if there is one.
    stride: usize,
    /// Bytes of all copies.
    total: usize,
    owning: Option<Owning>,
    /// Where the count of owners is.
    count: Option<usize>,
    cache: Cache,
    account: Option<Arc<Account>>,
}

/// The words before an object.
#[repr(C)]
struct Header {
    layout: *const Layout,
    /// In a list of dead objects: the next one, or 0.
    next: u64,
}

impl Objects {
    /// The layout of that shape: a known one, or a new one. `limit`: the most bytes that its objects may take.
    ///
    /// # Errors
    ///
    /// [`ShapeError`].
    pub fn layout(&self, memory: &Reclamation, limit: u64, shape: &Shape) -> Result<Arc<Layout>, ShapeError> {
        let mut shape = shape.clone();
        shape.fields.retain(|field| field_size(field.kind).is_some());
        shape.fields.iter_mut().for_each(|field| field.kind = unnumbered(field.kind));
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        forget(&mut layouts, &memory.domain);
        // Objects are charged to the account of the load, so those of two accounts are in two caches.
        let same = |layout: &&Arc<Layout>| {
            let account = |account: &Option<Arc<Account>>| account.as_ref().map(Arc::as_ptr);
            *layout.shape == shape && account(&layout.account) == account(&memory.account)
        };
        if let Some(known) = layouts.iter().find(same) {
            return Ok(Arc::clone(known));
        }
        let trace = Arc::clone(&self.trace);
        let made = Arc::new(Layout::new(memory, limit, shape, trace)?);
        layouts.push(Arc::clone(&made));
        Ok(made)
    }

    /// Gives up the layouts that no program and no object has, after a grace period. Otherwise the next call of
    /// [`layout`](Self::layout) does.
    pub fn forget_unused(&self, domain: &Domain) {
        forget(&mut self.layouts.lock().unwrap_or_else(PoisonError::into_inner), domain);
    }

    /// From now on, remembers where objects are. For checking mode: allocation takes a lock, and addresses are never
    /// forgotten.
    pub fn trace(&self) {
        self.trace.on.store(true, Ordering::Relaxed);
    }

    /// What a program may do with these bytes, if an object that was allocated since [`trace`](Self::trace) has them.
    /// Special fields are not a program's, except that kept pointers may be read as a whole.
    pub fn allows(&self, at: u64, bytes: u64) -> Option<Allowed> {
        let objects = self.trace.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let (&start, shape) = objects.range(..=at).next_back()?;
        let (low, high) = (at - start, at.checked_add(bytes)? - start);
        if high > shape.bytes.into() {
            return None;
        }
        if shape.contents != Contents::Program {
            let members = matches!(shape.contents, Contents::Machine(_)) && low >= MACHINE_NUMBER.into();
            // A program may have its address.
            let allowed = bytes == 0 && low == 0 || bytes > 0 && members;
            return allowed.then_some(Allowed { read: bytes > 0, write: false });
        }
        let overlaps = |field: &&SpecialField| {
            u64::from(field.offset) < high && low < u64::from(field.offset) + u64::from(field.size)
        };
        match shape.fields.iter().find(overlaps) {
            None => Some(Allowed { read: true, write: true }),
            Some(field) => {
                let pointer = matches!(
                    field.kind,
                    SpecialKind::Kptr { .. }
                        | SpecialKind::KptrPercpu { .. }
                        | SpecialKind::KptrUntrusted { .. }
                );
                let whole = (low, bytes) == (field.offset.into(), field.size.into());
                (pointer && whole).then_some(Allowed { read: true, write: false })
            }
        }
    }

    /// The number of objects that something owns. Exact while no program runs.
    pub fn live(&self) -> usize {
        self.layouts.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|layout| layout.live()).sum()
    }
}

/// Removes layouts that no program and no object has. No program can make objects of a layout that only this list has.
fn forget(layouts: &mut Vec<Arc<Layout>>, domain: &Domain) {
    let mut at = 0;
    while let Some(layout) = layouts.get_mut(at) {
        let unused = layout.live() == 0 && {
            // Pairs with the fence in `Dead::free`: whoever freed the last object without a slot has the layout still.
            fence(Ordering::Acquire);
            Arc::get_mut(layout).is_some()
        };
        if unused {
            // Whoever freed it with a slot may be in the middle of that.
            let layout = layouts.swap_remove(at);
            domain.call(Grace::Both, move || drop(layout));
        } else {
            at += 1;
        }
    }
}

impl Layout {
    fn new(
        Reclamation { domain, policy, account, .. }: &Reclamation,
        limit: u64,
        shape: Shape,
        trace: Arc<Trace>,
    ) -> Result<Self, ShapeError> {
        check(&shape)?;
        let bytes = (shape.bytes as usize).next_multiple_of(8);
        let stride = if shape.per_cpu { bytes.next_multiple_of(64) } else { 0 };
        let total = if shape.per_cpu { stride * domain.limit() as usize } else { bytes };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let capacity = (limit / (HEADER + total)).clamp(1, MAX_OBJECTS);
        let policy = if *policy == Policy::None { *policy } else { Policy::FreeAfterGp };
        let align = if shape.per_cpu { 64 } else { 16 };
        let options = CacheOptions::new(HEADER + total, capacity)
            .align_at(align, HEADER)
            .limit(limit)
            .policy(policy)
            .account(account.clone());
        let cache = Cache::new(domain, &options).map_err(ShapeError::Memory)?;
        let count = shape.fields.iter().find(|field| field.kind == SpecialKind::Refcount);
        let count = count.map(|field| field.offset as usize);
        Ok(Self {
            stride,
            total,
            owning: Owning::of(&shape.fields),
            count,
            cache,
            account: account.clone(),
            shape: Arc::new(shape),
            trace,
        })
    }

    /// The number of its objects that something owns. Exact while no program runs.
    pub fn live(&self) -> usize {
        self.cache.stats().in_use
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    #[cold]
    fn remember(&self, at: u64) {
        let copies = self.total.checked_div(self.stride).unwrap_or(1);
        let mut objects = self.trace.objects.lock().unwrap_or_else(PoisonError::into_inner);
        for copy in 0..copies {
            objects.insert(at + (copy * self.stride) as u64, Arc::clone(&self.shape));
        }
    }

    /// A new object, all zero but for its nodes and its count, which is 1; 0 if there is no memory.
    ///
    /// # Safety
    ///
    /// `cpu` is the calling thread's slot in the layout's domain, inside a section. The layout lives as long as its
    /// objects.
    pub unsafe fn alloc(self: &Arc<Self>, cpu: u32) -> u64 {
        // SAFETY: by the caller's contract.
        let Ok(memory) = (unsafe { self.cache.alloc(cpu) }) else { return 0 };
        // SAFETY: it is new.
        unsafe { self.begin(memory) }
    }

    /// The same on a thread without a slot. The layout lives as long as its objects.
    pub fn alloc_from_host(self: &Arc<Self>) -> u64 {
        // SAFETY: it is new.
        self.cache.alloc_without_slot().map_or(0, |memory| unsafe { self.begin(memory) })
    }

    /// # Safety
    ///
    /// It is a new object of this layout's cache.
    unsafe fn begin(self: &Arc<Self>, memory: NonNull<u8>) -> u64 {
        // SAFETY: the cache's objects have room for the header and all copies; this thread has it alone.
        unsafe {
            memory.cast::<Header>().write(Header { layout: Arc::as_ptr(self), next: 0 });
            let at = memory.as_ptr().add(HEADER);
            at.write_bytes(0, self.total);
            let at = at.expose_provenance() as u64;
            // Relaxed: set before programs run.
            if self.trace.on.load(Ordering::Relaxed) {
                self.remember(at);
            }
            for field in &self.shape.fields {
                let field_at = at + u64::from(field.offset);
                if let Some(owner) = node_owner(field.kind) {
                    word(field_at + owner).store(u64::from(field.offset) << OFFSET_SHIFT, Ordering::Relaxed);
                }
            }
            if let Some(count) = self.count {
                counter(at + count as u64).store(1, Ordering::Relaxed);
            }
            at
        }
    }
}

/// One more owner of an object that counts them; `false` if it has none left.
///
/// # Safety
///
/// `object` is one that counts its owners, in use or freed in the current section.
pub unsafe fn acquire(object: u64) -> bool {
    // SAFETY: by the caller's contract.
    let Some(count) = (unsafe { count_of(object) }) else { return false };
    let more = |count: u32| match count {
        0 => None,
        // Nothing can own it that often without a mistake elsewhere. It is never freed then.
        u32::MAX => Some(count),
        _ => Some(count + 1),
    };
    // Relaxed: whoever has the address has synchronised with the object's making.
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Gives up one owner of an object, and frees the object with all that it owns if that was the last one.
///
/// # Safety
///
/// The caller owns the object, and `cpu` is the calling thread's slot in the domain of the object's runtime, inside a
/// section.
pub unsafe fn release(object: u64, cpu: u32) {
    // SAFETY: by the caller's contract.
    unsafe {
        let mut dead = Dead::default();
        dead.give_up(object);
        dead.free(Caller::Cpu(cpu));
    }
}

/// Replaces a kept pointer; returns the old one.
///
/// # Safety
///
/// `slot` is a kept pointer in a map's value or an object; `object` is 0 or an object that the caller owns.
pub unsafe fn exchange(slot: u64, object: u64) -> u64 {
    // AcqRel: the object was filled before; pairs with the same of other threads and with plain loads, which are
    // address-dependent.
    // SAFETY: by the caller's contract.
    unsafe { word(slot) }.swap(object, Ordering::AcqRel)
}

/// The address of one CPU's copy of an object per CPU; 0 for a CPU that does not exist.
///
/// # Safety
///
/// `object` is an object per CPU.
pub unsafe fn of_cpu(object: u64, cpu: u32) -> u64 {
    // SAFETY: by the caller's contract.
    let layout = unsafe { layout_of(object) };
    let offset = u64::from(cpu) * layout.stride as u64;
    if offset < layout.total as u64 && (layout.stride > 0 || cpu == 0) { object + offset } else { 0 }
}

/// Objects without owners that are not freed yet.
#[derive(Default)]
pub(crate) struct Dead {
    first: u64,
}

impl Dead {
    /// Gives up one owner of an object.
    ///
    /// # Safety
    ///
    /// The caller owns the object.
    unsafe fn give_up(&mut self, object: u64) {
        // SAFETY: by the caller's contract; without a count it was the only owner.
        unsafe {
            if let Some(count) = count_of(object) {
                let less = |count: u32| (count != u32::MAX).then(|| count.saturating_sub(1));
                // AcqRel: the last owner finds what the others wrote.
                if count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) != Ok(1) {
                    return;
                }
            }
            (*header(object)).next = self.first;
        }
        self.first = object;
    }

    /// Frees all of them, and what they own.
    ///
    /// # Safety
    ///
    /// `caller` is the calling thread.
    unsafe fn free(mut self, caller: Caller) {
        while self.first != 0 {
            let object = self.first;
            // SAFETY: it has no owner: its fields are this thread's.
            unsafe {
                self.first = (*header(object)).next;
                let layout = layout_of(object);
                if let Some(owning) = &layout.owning {
                    owning.take_all(object, &mut self);
                }
                let memory = NonNull::new_unchecked(header(object)).cast();
                match caller {
                    Caller::Cpu(cpu) => layout.cache.free(cpu, memory),
                    Caller::Host => {
                        // Keeps the layout during the call: an object is left until then.
                        Arc::increment_strong_count(layout);
                        let kept = Arc::from_raw(std::ptr::from_ref(layout));
                        // Release: pairs with the fence in `forget`.
                        fence(Ordering::Release);
                        kept.cache.free_without_slot(memory);
                    }
                }
            }
        }
    }
}

/// # Safety
///
/// `object` is the address of an object.
unsafe fn header(object: u64) -> *mut Header {
    std::ptr::with_exposed_provenance_mut::<Header>(object as usize - HEADER)
}

/// # Safety
///
/// `object` is the address of an object, in use or freed in the current section.
unsafe fn layout_of<'a>(object: u64) -> &'a Layout {
    // SAFETY: by the caller's contract; `alloc` wrote the header, and nothing changes this word. Layouts outlive their
    // objects.
    unsafe { &*(*header(object)).layout }
}

/// The number of an object's owners, if it counts them.
///
/// # Safety
///
/// As for [`layout_of`].
unsafe fn count_of<'a>(object: u64) -> Option<&'a AtomicU32> {
    // SAFETY: by the caller's contract; the field is inside the object.
    unsafe { layout_of(object).count.map(|offset| counter(object + offset as u64)) }
}

/// # Safety
///
/// A count of owners is at that address.
unsafe fn counter<'a>(at: u64) -> &'a AtomicU32 {
    // SAFETY: by the caller's contract; it is aligned to 4, and only accessed atomically.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(at as usize) }
}

/// Bytes from a node's start to the word that says what it is in.
fn node_owner(kind: SpecialKind) -> Option<u64> {
    match kind {
        SpecialKind::ListNode => Some(list::OWNER),
        SpecialKind::RbNode => Some(tree::OWNER),
        _ => None,
    }
}

/// Checks the sizes that the code here relies on; BTF comes from strangers.
fn check(shape: &Shape) -> Result<(), ShapeError> {
    if !(1..=MAX_BYTES).contains(&shape.bytes) {
        return Err(ShapeError::Size { bytes: shape.bytes });
    }
    for &SpecialField { kind, offset, size } in &shape.fields {
        let Some((wanted, align)) = field_size(kind) else { continue };
        let inside = offset.checked_add(size).is_some_and(|end| end <= shape.bytes);
        if size != wanted || !offset.is_multiple_of(align) || !inside {
            return Err(ShapeError::Field { field: kind.name(), offset, size, wanted });
        }
    }
    Ok(())
}

/// The size and the alignment of a field that code here uses.
pub(crate) fn field_size(kind: SpecialKind) -> Option<(u32, u32)> {
    Some(match kind {
        SpecialKind::SpinLock | SpecialKind::Refcount => (4, 4),
        SpecialKind::ListHead { .. } => (list::HEAD_BYTES, 8),
        SpecialKind::RbRoot { .. } => (tree::ROOT_BYTES, 8),
        SpecialKind::ListNode => (list::NODE_BYTES, 8),
        SpecialKind::RbNode => (tree::NODE_BYTES, 8),
        SpecialKind::Kptr { .. } | SpecialKind::KptrPercpu { .. } | SpecialKind::KptrUntrusted { .. } => {
            (8, 8)
        }
        _ => return None,
    })
}

/// Whether values or objects with these fields own objects.
pub(crate) fn owns(fields: &[SpecialField]) -> bool {
    Owning::of(fields).is_some()
}

/// A field's kind without the numbers of types, which belong to one BTF.
fn unnumbered(kind: SpecialKind) -> SpecialKind {
    use SpecialKind as K;
    match kind {
        K::ListHead { .. } => K::ListHead { holds: 0, node: 0 },
        K::RbRoot { .. } => K::RbRoot { holds: 0, node: 0 },
        K::KptrUntrusted { .. } => K::KptrUntrusted { to: 0 },
        K::Kptr { .. } => K::Kptr { to: 0 },
        K::KptrPercpu { .. } => K::KptrPercpu { to: 0 },
        other => other,
    }
}
