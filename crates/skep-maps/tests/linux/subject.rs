//! The subjects of the comparison: Linux's map and skep's.

use skep_abi::MapKind;
use skep_maps::{BatchCursor, Map, MapError, UpdateFlags};
use skep_testkit::LinuxMap;

use crate::cases::Case;
use crate::ops::{Answer, Op};
use crate::outer::{LinuxOuter, Outer};

pub(crate) const ENOENT: i32 = 2;
const EINVAL: i32 = 22;

/// Keys and values.
pub(crate) type Elements = Vec<(Vec<u8>, Vec<u8>)>;

/// The number of elements that a batch processed, and the error that ended it.
pub(crate) type Ended = (usize, i32);

/// An implementation of a map.
pub(crate) trait Subject {
    fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, i32>;
    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), i32>;
    fn delete(&self, key: &[u8]) -> Result<(), i32>;
    fn next_key(&self, after: Option<&[u8]>) -> Result<Vec<u8>, i32>;

    fn take(&self, _key: &[u8]) -> Result<Vec<u8>, i32> {
        Err(EINVAL)
    }

    /// Reads all elements in batches of that size; with `take` it removes them.
    fn all_by_batches(&self, _count: usize, _take: bool) -> Result<Elements, i32> {
        Err(EINVAL)
    }

    fn update_batch(&self, _keys: &[Vec<u8>], _values: &[Vec<u8>], _flags: u64) -> Result<(), Ended> {
        Err((0, EINVAL))
    }

    fn delete_batch(&self, _keys: &[Vec<u8>]) -> Result<(), Ended> {
        Err((0, EINVAL))
    }

    fn push(&self, _value: &[u8], _flags: u64) -> Result<(), i32> {
        Err(EINVAL)
    }

    fn pop(&self) -> Result<Vec<u8>, i32> {
        Err(EINVAL)
    }

    fn peek(&self) -> Result<Vec<u8>, i32> {
        Err(EINVAL)
    }

    fn contains(&self, _value: &[u8]) -> Result<(), i32> {
        Err(EINVAL)
    }

    /// The map's answer. Elements of kinds without an order are sorted.
    fn answer(&self, case: &Case, op: &Op) -> Answer {
        match op {
            Op::Lookup(key) => Answer::bytes(self.lookup(key)),
            Op::Update(key, value, flags) => Answer::of(self.update(key, value, *flags)),
            Op::Delete(key) => Answer::of(self.delete(key)),
            Op::Next(after) => Answer::bytes(self.next_key(after.as_deref())),
            Op::Take(key) => Answer::bytes(self.take(key)),
            Op::LookupBatch(count) => sorted(case, self.all_by_batches(*count, false)),
            Op::TakeBatch(count) => sorted(case, self.all_by_batches(*count, true)),
            Op::UpdateBatch(keys, values, flags) => ended(self.update_batch(keys, values, *flags)),
            Op::DeleteBatch(keys) => ended(self.delete_batch(keys)),
            Op::Push(value, flags) => Answer::of(self.push(value, *flags)),
            Op::Pop => Answer::bytes(self.pop()),
            Op::Peek => Answer::bytes(self.peek()),
            Op::Contains(value) => Answer::of(self.contains(value)),
            Op::Walk => {
                let (mut elements, mut after) = (Vec::new(), None);
                loop {
                    match self.next_key(after.as_deref()) {
                        Ok(key) => {
                            let Ok(value) = self.lookup(&key) else { return Answer::Error(0) };
                            elements.push((key.clone(), value));
                            after = Some(key);
                        }
                        Err(ENOENT) => break,
                        Err(number) => return Answer::Error(number),
                    }
                    assert!(
                        elements.len() <= case.max_entries as usize,
                        "a walk that does not end: {elements:x?}"
                    );
                }
                sorted(case, Ok(elements))
            }
        }
    }
}

fn sorted(case: &Case, elements: Result<Elements, i32>) -> Answer {
    match elements {
        Ok(mut elements) => {
            if !case.has_order() {
                elements.sort();
            }
            Answer::Elements(elements)
        }
        Err(number) => Answer::Error(number),
    }
}

fn ended(result: Result<(), Ended>) -> Answer {
    result.map_or_else(|(count, number)| Answer::Batch(count, number), |()| Answer::Done)
}

impl Subject for LinuxMap {
    fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, i32> {
        self.lookup(key, 0)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), i32> {
        self.update(key, value, flags)
    }

    fn delete(&self, key: &[u8]) -> Result<(), i32> {
        self.delete(key)
    }

    fn next_key(&self, after: Option<&[u8]>) -> Result<Vec<u8>, i32> {
        self.next_key(after)
    }

    fn take(&self, key: &[u8]) -> Result<Vec<u8>, i32> {
        self.lookup_and_delete(key, 0)
    }

    fn all_by_batches(&self, count: usize, take: bool) -> Result<Elements, i32> {
        let (mut elements, mut position) = (Vec::new(), None);
        loop {
            let batch = self.lookup_batch(position.as_deref(), count, take);
            if !matches!(batch.errno, 0 | ENOENT) {
                return Err(batch.errno);
            }
            let values = batch.values.chunks(self.value_size());
            let keys =
                batch.keys.chunks(batch.keys.len() / batch.count.max(1) + usize::from(batch.count == 0));
            elements.extend(keys.zip(values).map(|(key, value)| (key.to_vec(), value.to_vec())));
            if batch.errno == ENOENT {
                return Ok(elements);
            }
            position = Some(batch.position);
        }
    }

    fn update_batch(&self, keys: &[Vec<u8>], values: &[Vec<u8>], flags: u64) -> Result<(), Ended> {
        let batch = self.update_batch(&keys.concat(), &values.concat(), flags);
        if batch.errno == 0 { Ok(()) } else { Err((batch.count, batch.errno)) }
    }

    fn delete_batch(&self, keys: &[Vec<u8>]) -> Result<(), Ended> {
        let batch = self.delete_batch(&keys.concat());
        if batch.errno == 0 { Ok(()) } else { Err((batch.count, batch.errno)) }
    }

    fn push(&self, value: &[u8], flags: u64) -> Result<(), i32> {
        self.update(&[], value, flags)
    }

    fn pop(&self) -> Result<Vec<u8>, i32> {
        self.lookup_and_delete(&[], 0)
    }

    fn peek(&self) -> Result<Vec<u8>, i32> {
        self.lookup(&[], 0)
    }

    fn contains(&self, value: &[u8]) -> Result<(), i32> {
        self.contains(value)
    }
}

/// The host's interface of other maps.
struct Host<'a>(&'a Map);

impl Subject for Host<'_> {
    fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, i32> {
        number(self.0.lookup(key))?.ok_or(ENOENT)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), i32> {
        // The host's interface can express valid flags only.
        let flags = UpdateFlags::from_number(flags).ok_or(EINVAL)?;
        number(self.0.update(key, value, flags))
    }

    fn delete(&self, key: &[u8]) -> Result<(), i32> {
        number(self.0.delete(key))
    }

    fn next_key(&self, after: Option<&[u8]>) -> Result<Vec<u8>, i32> {
        number(self.0.next_key(after))?.ok_or(ENOENT)
    }

    fn take(&self, key: &[u8]) -> Result<Vec<u8>, i32> {
        number(self.0.lookup_and_delete(key))?.ok_or(ENOENT)
    }

    fn all_by_batches(&self, count: usize, take: bool) -> Result<Elements, i32> {
        let (mut elements, mut cursor) = (Vec::new(), BatchCursor::default());
        while !cursor.is_at_end() {
            let batch = match take {
                true => self.0.lookup_and_delete_batch(&mut cursor, count),
                false => self.0.lookup_batch(&mut cursor, count),
            };
            elements.extend(number(batch)?);
        }
        Ok(elements)
    }

    fn update_batch(&self, keys: &[Vec<u8>], values: &[Vec<u8>], flags: u64) -> Result<(), Ended> {
        let flags = UpdateFlags::from_number(flags).ok_or((0, EINVAL))?;
        self.0.update_batch(keys.iter().zip(values), flags).map(drop).map_err(|end| (end.done, end.errno()))
    }

    fn delete_batch(&self, keys: &[Vec<u8>]) -> Result<(), Ended> {
        self.0.delete_batch(keys).map(drop).map_err(|end| (end.done, end.errno()))
    }

    fn push(&self, value: &[u8], flags: u64) -> Result<(), i32> {
        let flags = UpdateFlags::from_number(flags).ok_or(EINVAL)?;
        number(self.0.push(value, flags))
    }

    fn pop(&self) -> Result<Vec<u8>, i32> {
        number(self.0.pop())?.ok_or(ENOENT)
    }

    fn peek(&self) -> Result<Vec<u8>, i32> {
        number(self.0.peek())?.ok_or(ENOENT)
    }

    fn contains(&self, value: &[u8]) -> Result<(), i32> {
        if number(self.0.contains(value))? { Ok(()) } else { Err(ENOENT) }
    }
}

/// Linux's map of a case.
pub(crate) fn linux(case: &Case) -> Box<dyn Subject> {
    let created = match case.kind {
        MapKind::HashOfMaps => LinuxOuter::new(case).map(|map| Box::new(map) as Box<dyn Subject>),
        _ => LinuxMap::create(&case.linux(), None).map(|map| Box::new(map) as _),
    };
    created.unwrap_or_else(|error| panic!("{case}: Linux: {error}"))
}

/// The host's interface of skep's map.
pub(crate) fn host(map: &Map) -> Box<dyn Subject + '_> {
    if map.kind() == MapKind::HashOfMaps { Box::new(Outer(map)) } else { Box::new(Host(map)) }
}

/// The programs' interface of the same map; it has no walks.
pub(crate) struct Program<'a>(pub(crate) &'a Map);

impl Program<'_> {
    /// The answer, if a program has the operation.
    pub(crate) fn answer(&self, op: &Op) -> Option<Answer> {
        if self.0.kind().is_per_cpu() || self.0.kind() == MapKind::HashOfMaps {
            return None;
        }
        let map = self.0;
        let status = |status: i64| if status == 0 { Ok(()) } else { Err(-status as i32) };
        let next = |take: &dyn Fn(*mut u8) -> i64| {
            let mut value = vec![0; map.def().value_size as usize];
            Answer::bytes(status(take(value.as_mut_ptr())).map(|()| value))
        };
        let section = map.reuse().domain.enter().unwrap();
        let cpu = section.number();
        // SAFETY: keys and values have the map's sizes, the CPU is the section's, and no thread writes while a value is
        // copied.
        unsafe {
            Some(match op {
                Op::Lookup(key) => {
                    let at = map.lookup_ptr(key.as_ptr(), cpu);
                    let copy = || std::slice::from_raw_parts(at, map.def().value_size as usize).to_vec();
                    Answer::bytes(if at.is_null() { Err(ENOENT) } else { Ok(copy()) })
                }
                Op::Update(key, value, flags) => {
                    Answer::of(status(map.update_ptr(key.as_ptr(), value.as_ptr(), *flags, cpu)))
                }
                Op::Delete(key) => Answer::of(status(map.delete_ptr(key.as_ptr(), cpu))),
                Op::Push(value, flags) => Answer::of(status(map.push_ptr(value.as_ptr(), *flags))),
                Op::Pop => next(&|out| map.pop_ptr(out)),
                Op::Peek => next(&|out| map.peek_ptr(out)),
                Op::Contains(value) => Answer::of(status(map.peek_ptr(value.clone().as_mut_ptr()))),
                _ => return None,
            })
        }
    }
}

pub(crate) fn number<T>(result: Result<T, MapError>) -> Result<T, i32> {
    result.map_err(|error| error.errno())
}
