//! Maps of maps. A value in the tests is one byte that selects one of two inner maps, and three zero bytes.

use skep_maps::Map;
use skep_testkit::{LinuxDef, LinuxMap};

use crate::cases::Case;
use crate::subject::{ENOENT, Subject, number};

/// Linux's map, with the two inner maps.
pub(crate) struct LinuxOuter {
    map: LinuxMap,
    inner: [LinuxMap; 2],
}

/// skep's map. Its references are never followed here, so an inner map's address may be any number.
pub(crate) struct Outer<'a>(pub(crate) &'a Map);

impl LinuxOuter {
    pub(crate) fn new(case: &Case) -> std::io::Result<Self> {
        let array = LinuxDef { kind: 2, key_size: 4, value_size: 8, max_entries: 1, ..LinuxDef::default() };
        let inner = [LinuxMap::create(&array, None)?, LinuxMap::create(&array, None)?];
        Ok(Self { map: LinuxMap::create(&case.linux(), Some(&inner[0]))?, inner })
    }
}

impl Subject for LinuxOuter {
    fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, i32> {
        let id = self.map.lookup(key, 0)?;
        let is_this = |inner: &LinuxMap| inner.id().is_ok_and(|number| number.to_ne_bytes()[..] == id);
        let which = self.inner.iter().position(is_this).expect("an inner map");
        Ok(vec![which as u8, 0, 0, 0])
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), i32> {
        let fd = self.inner[usize::from(value[0])].fd();
        self.map.update(key, &fd.to_ne_bytes(), flags)
    }

    fn delete(&self, key: &[u8]) -> Result<(), i32> {
        self.map.delete(key)
    }

    fn next_key(&self, after: Option<&[u8]>) -> Result<Vec<u8>, i32> {
        self.map.next_key(after)
    }
}

impl Subject for Outer<'_> {
    fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, i32> {
        let section = self.0.reuse().domain.enter().unwrap();
        // SAFETY: the key has the map's size, and the CPU is the section's.
        let address = unsafe { self.0.lookup_ptr(key.as_ptr(), section.number()) }.addr();
        let which = address.checked_sub(1).ok_or(ENOENT)?;
        Ok(vec![which as u8, 0, 0, 0])
    }

    fn update(&self, key: &[u8], value: &[u8], _flags: u64) -> Result<(), i32> {
        // SAFETY: this map's references are never followed.
        number(unsafe { self.0.set_reference(key, 1 + u64::from(value[0])) })
    }

    fn delete(&self, key: &[u8]) -> Result<(), i32> {
        let was_there = self.lookup(key);
        // SAFETY: no reference is stored.
        number(unsafe { self.0.set_reference(key, 0) })?;
        was_there.map(drop)
    }

    fn next_key(&self, after: Option<&[u8]>) -> Result<Vec<u8>, i32> {
        let keys = self.0.reference_keys();
        let place = after.map_or(0, |after| keys.iter().position(|key| key == after).map_or(0, |at| at + 1));
        keys.get(place).cloned().ok_or(ENOENT)
    }
}
