//! Maps without keys: queues, stacks and bloom filters.

use super::{Map, status};
use crate::error::MapError;
use crate::leaf_lock::Patience;
use crate::op_error::{OpError, errno};
use crate::table::Table;
use crate::update::UpdateFlags;

/// Queues, stacks and bloom filters, for the host.
impl Map {
    /// Adds an element to a queue or stack, or a value to a bloom filter. With [`UpdateFlags::Exist`] a full queue or
    /// stack drops its oldest element; a bloom filter is never full.
    ///
    /// ```
    /// use skep_abi::{MapDef, MapKind};
    /// use skep_maps::{Map, MapError, Options, UpdateFlags};
    ///
    /// # fn main() -> Result<(), MapError> {
    /// let jobs = Map::create(&MapDef::new("jobs", MapKind::Queue, 0, 4, 2), &Options { cpus: 1, limit: 1 << 20 })?;
    /// jobs.push(&[1; 4], UpdateFlags::Any)?;
    /// jobs.push(&[2; 4], UpdateFlags::Any)?;
    /// assert_eq!(jobs.push(&[3; 4], UpdateFlags::Any).unwrap_err().errno(), 7); // E2BIG
    /// jobs.push(&[3; 4], UpdateFlags::Exist)?; // in the place of 1
    /// assert_eq!(jobs.peek()?, Some(vec![2; 4]));
    /// assert_eq!([jobs.pop()?, jobs.pop()?, jobs.pop()?], [Some(vec![2; 4]), Some(vec![3; 4]), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MapError::QueueFull`]; [`MapError::PushFlags`] for flags that the kind does not accept;
    /// [`MapError::ValueLength`], [`MapError::Frozen`], [`MapError::NotAQueue`].
    pub fn push(&self, value: &[u8], flags: UpdateFlags) -> Result<(), MapError> {
        self.has_queue("push")?;
        self.check_value(value)?;
        self.change(|| {
            // SAFETY: the length was checked.
            let pushed = unsafe { self.push_at(value.as_ptr(), flags, Patience::Endless) };
            pushed.map_err(|error| self.explain(error, &[]))
        })
    }

    /// Removes the next element of a queue (the oldest) or a stack (the newest) and returns it; `None` if there is
    /// none.
    ///
    /// # Errors
    ///
    /// [`MapError::Frozen`], [`MapError::NotAQueue`].
    pub fn pop(&self) -> Result<Option<Vec<u8>>, MapError> {
        let mut value = None;
        self.change(|| {
            value = self.next_value("pop", true)?;
            Ok(())
        })?;
        Ok(value)
    }

    /// The element of a queue or stack that [`pop`](Self::pop) would return.
    ///
    /// # Errors
    ///
    /// [`MapError::NotAQueue`].
    pub fn peek(&self) -> Result<Option<Vec<u8>>, MapError> {
        self.next_value("peek", false)
    }

    /// Whether a bloom filter has a value: always `true` for pushed values, and seldom for others.
    ///
    /// # Errors
    ///
    /// [`MapError::ValueLength`], [`MapError::NotAQueue`].
    pub fn contains(&self, value: &[u8]) -> Result<bool, MapError> {
        let Table::Bloom(bloom) = &self.table else { return Err(self.not_a_queue("contains")) };
        self.check_value(value)?;
        // SAFETY: the length was checked.
        Ok(unsafe { bloom.contains(value.as_ptr()) })
    }

    fn next_value(&self, operation: &'static str, take: bool) -> Result<Option<Vec<u8>>, MapError> {
        let Table::Queue(queue) = &self.table else { return Err(self.not_a_queue(operation)) };
        let mut value = vec![0; self.host_value_size()];
        // SAFETY: `value` has the value size.
        let found = unsafe { queue.next(value.as_mut_ptr(), take, Patience::Endless) };
        let found = found.map_err(|error| self.explain(error, &[]))?;
        Ok(found.then_some(value))
    }

    fn has_queue(&self, operation: &'static str) -> Result<(), MapError> {
        match self.table {
            Table::Queue(_) | Table::Bloom(_) => Ok(()),
            _ => Err(self.not_a_queue(operation)),
        }
    }

    fn not_a_queue(&self, operation: &'static str) -> MapError {
        MapError::NotAQueue { map: self.name().to_owned(), kind: self.kind(), operation }
    }
}

/// Queues, stacks and bloom filters, for programs.
impl Map {
    /// Adds an element to a queue or stack, or a value to a bloom filter. `flags`: 0, or for queues and stacks
    /// `BPF_EXIST` (2), with which a full one drops its oldest element.
    ///
    /// Returns 0, or a negative error number as Linux does: `-E2BIG` (7) if it is full, `-EINVAL` (22) for other
    /// flags, `-EBUSY` (16) if this thread was interrupted in an operation on the same map, `-EOPNOTSUPP` (95) for
    /// other kinds.
    ///
    /// # Safety
    ///
    /// `value` is readable for the map's value size, at any alignment; others may write there.
    pub unsafe fn push_ptr(&self, value: *const u8, flags: u64) -> i64 {
        let Some(flags) = UpdateFlags::from_number(flags) else { return -i64::from(errno::EINVAL) };
        // SAFETY: by the caller's contract.
        status(unsafe { self.push_at(value, flags, Patience::Bounded) })
    }

    /// Copies the next element of a queue or stack to `out`, and removes it. On failure `out` is zeroed.
    ///
    /// Returns 0, `-ENOENT` (2) if there is none, `-EBUSY` (16) as [`push_ptr`](Self::push_ptr), `-EOPNOTSUPP` (95)
    /// for other kinds.
    ///
    /// # Safety
    ///
    /// `out` is writable for the map's value size, at any alignment; others may access it.
    pub unsafe fn pop_ptr(&self, out: *mut u8) -> i64 {
        // SAFETY: by the caller's contract.
        status(unsafe { self.next_at(out, true) })
    }

    /// As [`pop_ptr`](Self::pop_ptr), but leaves the element in a queue or stack. For a bloom filter: returns 0 if it
    /// has the value at `value`, else `-ENOENT` (2).
    ///
    /// # Safety
    ///
    /// As for [`pop_ptr`](Self::pop_ptr); for bloom filters `value` is only read.
    pub unsafe fn peek_ptr(&self, value: *mut u8) -> i64 {
        // SAFETY: by the caller's contract.
        status(unsafe {
            match &self.table {
                Table::Bloom(bloom) => bloom.contains(value).then_some(()).ok_or(OpError::Missing),
                _ => self.next_at(value, false),
            }
        })
    }

    /// # Safety
    ///
    /// As [`push_ptr`](Self::push_ptr).
    unsafe fn push_at(
        &self,
        value: *const u8,
        flags: UpdateFlags,
        patience: Patience,
    ) -> Result<(), OpError> {
        match &self.table {
            Table::Queue(_) if flags.is_locked() => Err(OpError::PushFlags),
            // SAFETY: by the caller's contract.
            Table::Queue(queue) => unsafe { queue.push(value, flags, patience) },
            Table::Bloom(_) if flags != UpdateFlags::Any => Err(OpError::PushFlags),
            Table::Bloom(bloom) => {
                // SAFETY: by the caller's contract.
                unsafe { bloom.push(value) };
                Ok(())
            }
            _ => Err(OpError::NoQueue),
        }
    }

    /// # Safety
    ///
    /// As [`pop_ptr`](Self::pop_ptr).
    unsafe fn next_at(&self, out: *mut u8, take: bool) -> Result<(), OpError> {
        let Table::Queue(queue) = &self.table else { return Err(OpError::NoQueue) };
        // SAFETY: by the caller's contract.
        let found = unsafe { queue.next(out, take, Patience::Bounded)? };
        found.then_some(()).ok_or(OpError::Missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use skep_abi::{MapDef, MapKind};

    #[test]
    fn a_program_that_interrupts_an_operation_on_the_same_map_gives_up() {
        for kind in [MapKind::Queue, MapKind::Stack] {
            let def = MapDef::new("m", kind, 0, 8, 2);
            let map = Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).unwrap();
            map.push(&[7; 8], UpdateFlags::Any).unwrap();
            let Table::Queue(queue) = &map.table else { panic!("no queue") };
            let held = queue.lock().lock(Patience::Bounded).ok().unwrap();
            let mut value = [0xee_u8; 8];
            // SAFETY: the value has the map's size.
            let statuses = unsafe {
                let at = value.as_mut_ptr();
                [map.push_ptr(at, 0), map.push_ptr(at, 2), map.peek_ptr(at), map.pop_ptr(at)]
            };
            assert_eq!((statuses, value), ([-16; 4], [0; 8]));
            drop(held);
            assert_eq!((map.pop(), map.pop()), (Ok(Some(vec![7; 8])), Ok(None)), "as it was");
        }
    }
}
