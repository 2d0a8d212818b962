//! Objects of a machine that programs hold: tasks and cgroups. [`skep_abi::MACHINE_FIELDS`] has a picture of their
//! bytes.
//!
//! Programs have their addresses, load a few members, and count owners by calls. The machine's own share is the
//! runtime's. When the machine loses one, the object is marked as gone and lives as long as it has other owners. A task
//! owns the cgroup that it is in, as a kept pointer, so what a program reads there stays alive for its read section.

use std::sync::atomic::{AtomicU32, Ordering};

use skep_abi::{
    CGROUP, CGROUP_BYTES, CGROUP_KN, MACHINE_GONE, MACHINE_MEMBERS, MACHINE_NUMBER, MACHINE_OWNERS,
    SpecialField, SpecialKind, TASK, TASK_BYTES, TASK_CGROUPS, TASK_CSS_SET, TASK_TGID,
};

use super::word::word;
use super::{Contents, Dead, Shape, exchange, layout_of};
use crate::caller::Caller;

/// A task or a cgroup at an address.
#[derive(Clone, Copy, Debug)]
pub struct MachineObject(u64);

impl MachineObject {
    /// What tasks are made of.
    pub fn task_shape() -> Shape {
        let fields = vec![
            field(SpecialKind::Refcount, MACHINE_OWNERS, 4),
            field(SpecialKind::Kptr { to: CGROUP }, TASK_CSS_SET, 8),
        ];
        Shape { bytes: TASK_BYTES, fields, per_cpu: false, contents: Contents::Machine(TASK) }
    }

    /// What cgroups are made of.
    pub fn cgroup_shape() -> Shape {
        let fields = vec![field(SpecialKind::Refcount, MACHINE_OWNERS, 4)];
        Shape { bytes: CGROUP_BYTES, fields, per_cpu: false, contents: Contents::Machine(CGROUP) }
    }

    /// The object at that address.
    ///
    /// # Safety
    ///
    /// `address` is that of an object of one of these shapes, in use or freed in the current section, as long as this
    /// value is used.
    pub unsafe fn at(address: u64) -> Self {
        Self(address)
    }

    /// Its address.
    pub fn address(self) -> u64 {
        self.0
    }

    /// Gives a new object its number, and the addresses of what is inside it.
    pub fn begin(self, number: u64) {
        // SAFETY: the object has these words, by the contract of `at`.
        unsafe {
            // Relaxed, as for all words here: a thread that has the address has synchronised with the object's
            // making, and later changes stand alone.
            word(self.0 + u64::from(MACHINE_NUMBER)).store(number, Ordering::Relaxed);
            if !self.is_task() {
                let number = self.0 + u64::from(MACHINE_NUMBER);
                word(self.0 + u64::from(CGROUP_KN)).store(number, Ordering::Relaxed);
            } else {
                let set = self.0 + u64::from(TASK_CSS_SET);
                word(self.0 + u64::from(TASK_CGROUPS)).store(set, Ordering::Relaxed);
                self.half(MACHINE_MEMBERS).store(number as u32, Ordering::Relaxed);
            }
        }
    }

    /// Its number: of a task's thread, or of a cgroup.
    pub fn number(self) -> u64 {
        // SAFETY: as above.
        unsafe { word(self.0 + u64::from(MACHINE_NUMBER)).load(Ordering::Relaxed) }
    }

    /// Whether the machine no longer has it.
    pub fn is_gone(self) -> bool {
        // Acquire: pairs with `end`.
        self.half(MACHINE_GONE).load(Ordering::Acquire) != 0
    }

    /// The machine no longer has it.
    pub fn end(self) {
        // Release: pairs with `is_gone`.
        self.half(MACHINE_GONE).store(1, Ordering::Release);
    }

    /// Sets the number of a task's process.
    pub fn set_tgid(self, tgid: u32) {
        self.half(TASK_TGID).store(tgid, Ordering::Relaxed);
    }

    /// Sets a cgroup's level below the root.
    pub fn set_level(self, level: u32) {
        self.half(MACHINE_MEMBERS).store(level, Ordering::Relaxed);
    }

    /// A task's cgroup; `None` for a new task, and for a cgroup.
    pub fn cgroup(self) -> Option<Self> {
        if !self.is_task() {
            return None;
        }
        // SAFETY: as above. Acquire: pairs with the exchange in `set_cgroup`.
        let at = unsafe { word(self.0 + u64::from(TASK_CSS_SET)).load(Ordering::Acquire) };
        (at != 0).then_some(Self(at))
    }

    /// Puts a task into a cgroup; returns the one before.
    ///
    /// # Safety
    ///
    /// The caller owns a share of `cgroup`, which the task has then. It has one of the result.
    pub unsafe fn set_cgroup(self, cgroup: Self) -> Option<Self> {
        // SAFETY: a task's word is a kept pointer; the rest by the caller's contract.
        let before = unsafe { exchange(self.0 + u64::from(TASK_CSS_SET), cgroup.0) };
        (before != 0).then_some(Self(before))
    }

    /// Gives up one owner, from a thread without a slot.
    ///
    /// # Safety
    ///
    /// The caller owns a share.
    pub unsafe fn release_from_host(self) {
        // SAFETY: by the caller's contract.
        unsafe {
            let mut dead = Dead::default();
            dead.give_up(self.0);
            dead.free(Caller::Host);
        }
    }

    fn is_task(self) -> bool {
        // SAFETY: by the contract of `at`.
        unsafe { layout_of(self.0) }.shape().contents == Contents::Machine(TASK)
    }

    fn half<'a>(self, offset: u32) -> &'a AtomicU32 {
        let at = std::ptr::with_exposed_provenance::<AtomicU32>(self.0 as usize + offset as usize);
        // SAFETY: the object has this half word, aligned to 4, by the contract of `at`; programs and threads access
        // it as a whole only.
        unsafe { &*at }
    }
}

fn field(kind: SpecialKind, offset: u32, size: u32) -> SpecialField {
    SpecialField { kind, offset, size }
}
