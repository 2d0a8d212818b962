//! Options that sockets keep.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The options of a socket: values by level and name, as `setsockopt` names them. What nobody has set is not in it.
///
/// Programs set options while they run, so they change behind a shared reference. A clone has its own copy.
#[derive(Default)]
pub struct SocketOptions(Mutex<Values>);

type Values = BTreeMap<(i32, i32), Vec<u8>>;

impl SocketOptions {
    /// No option is set.
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The value of an option, if somebody has set it.
    pub fn get(&self, level: i32, name: i32) -> Option<Vec<u8>> {
        self.values().get(&(level, name)).cloned()
    }

    /// The value of an option that is a number of four bytes.
    pub fn number(&self, level: i32, name: i32) -> Option<i32> {
        let bytes = *self.values().get(&(level, name))?.first_chunk()?;
        Some(i32::from_ne_bytes(bytes))
    }

    /// Sets an option. Programs get these bytes.
    pub fn set(&self, level: i32, name: i32, value: &[u8]) {
        self.values().insert((level, name), value.to_vec());
    }

    /// Sets an option that is a number.
    pub fn set_number(&self, level: i32, name: i32, value: i32) {
        self.set(level, name, &value.to_ne_bytes());
    }

    /// All options that are set: level, name, value.
    pub fn all(&self) -> Vec<(i32, i32, Vec<u8>)> {
        self.values().iter().map(|((level, name), value)| (*level, *name, value.clone())).collect()
    }

    /// The lock is a leaf.
    fn values(&self) -> MutexGuard<'_, Values> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for SocketOptions {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.values().clone()))
    }
}

impl PartialEq for SocketOptions {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.all() == other.all()
    }
}

impl Eq for SocketOptions {}

impl fmt::Debug for SocketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.values().iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::SocketOptions;

    #[test]
    fn a_clone_has_its_own_values() {
        let options = SocketOptions::new();
        options.set_number(1, 9, 1);
        let other = options.clone();
        assert_eq!(options, other);
        other.set(6, 13, b"cubic");
        assert_eq!((options.get(6, 13), options.number(1, 9)), (None, Some(1)));
        assert_eq!(other.all().len(), 2);
        assert_ne!(options, other);
    }
}
