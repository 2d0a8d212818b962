//! Maps of stacks (`stack_trace`): each has a number, which is a hash of its addresses.
//!
//! The number is the same in every run, since programs put it into keys of other maps. As in Linux there are as many
//! numbers as the map may have stacks, rounded up to a power of two, so two stacks may have the same.

use super::{Map, status};
use crate::caller::Caller;
use crate::create::MAX_STACK;
use crate::op_error::OpError;
use crate::racy;
use crate::seed::Seed;
use crate::table::Table;
use crate::update::UpdateFlags;
use crate::values::Source;

/// What [`Map::stack_id`] does with a number that another stack has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackMode {
    /// Two stacks are the same if their hashes are (`BPF_F_FAST_STACK_CMP`).
    pub by_hash: bool,
    /// The new stack takes the number (`BPF_F_REUSE_STACKID`). Otherwise that is an error.
    pub replace: bool,
}

impl Map {
    /// The number of a stack, which is added if the map does not have it: addresses, the innermost first. What exceeds
    /// the map's value size is left out.
    ///
    /// Returns a negative error number as Linux does: `-EEXIST` (17) if another stack has the number, `-ENOMEM` (12),
    /// `-EBUSY` (16), `-EINVAL` (22) in maps of other kinds.
    ///
    /// # Safety
    ///
    /// `cpu` is the calling thread's slot in the map's [domain](Self::reuse), and the thread is inside a section.
    pub unsafe fn stack_id(&self, stack: &[u64], mode: StackMode, cpu: u32) -> i64 {
        let Table::Hash(stacks) = &self.table else { return status(Err(OpError::HoldsReferences)) };
        if self.kind() != skep_abi::MapKind::StackTrace {
            return status(Err(OpError::HoldsReferences));
        }
        let mut wanted = [0; MAX_STACK as usize];
        let bytes = self.def.value_size as usize;
        let wanted = &mut wanted[..bytes / 8];
        for (to, from) in wanted.iter_mut().zip(stack) {
            *to = *from;
        }
        let hash = hash(wanted);
        let id = hash & (self.def.max_entries.checked_next_power_of_two().unwrap_or(0)).wrapping_sub(1);
        let key = (&raw const id).cast();
        let same = || {
            // SAFETY: keys have 4 bytes; the rest by the caller's contract.
            let found = unsafe { self.lookup_ptr(key, cpu) };
            let mut there = [0; MAX_STACK as usize];
            let there = &mut there[..wanted.len()];
            if found.is_null() {
                return None;
            }
            // SAFETY: values have that many bytes, and stay as long as the section.
            unsafe { racy::load_words(found, bytes, there) };
            Some(if mode.by_hash { self::hash(there) == hash } else { there == wanted })
        };
        let flags = match (same(), mode.replace) {
            (Some(true), _) => return id.into(),
            (Some(false), false) => return status(Err(OpError::Exists)),
            (_, true) => UpdateFlags::Any,
            (None, false) => UpdateFlags::NoExist,
        };
        let source = Source::Cpu(wanted.as_ptr().cast(), cpu);
        // SAFETY: the key has 4 bytes, the value those of the map; `cpu` is this thread's.
        let added = unsafe { stacks.update(key, source, flags, Caller::Cpu(cpu)) };
        match added {
            Ok(()) => id.into(),
            // Another thread was faster, perhaps with the same stack.
            Err(OpError::Exists) if same() == Some(true) => id.into(),
            Err(error) => status(Err(error)),
        }
    }
}

/// The hash of a stack.
fn hash(stack: &[u64]) -> u32 {
    (Seed::FIXED.hash(stack) >> 32) as u32
}
