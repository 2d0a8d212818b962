//! Neighbours: the Ethernet addresses of other machines, found by a hash that those who choose the addresses do not
//! know.

use crate::mac::MacAddr;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

/// Neighbours by the index of the device and the address. IPv4 has a table of its own, whose keys are one number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours {
    v4: HashMap<u64, MacAddr, Keyed>,
    v6: HashMap<(u32, u128), MacAddr, Keyed>,
}

/// Hashes numbers by multiplication with one that is not known: a packet's time is too short for SipHash. Nobody sees a
/// hash, or the order of a table, so the number cannot be found out.
#[derive(Clone, Copy, Debug)]
struct Keyed {
    state: u64,
    factor: u64,
}

impl Default for Keyed {
    fn default() -> Self {
        let random = RandomState::new();
        Self { state: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for Keyed {
    type Hasher = Self;

    #[inline]
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Keyed {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.state ^ number) * u128::from(self.factor);
        self.state = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }
}

/// The key of a neighbour.
enum Key {
    V4(u64),
    V6((u32, u128)),
}

impl Key {
    #[inline]
    fn new(device: u32, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::V4(u64::from(device) << 32 | u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self::V6((device, v6.to_bits())),
        }
    }
}

impl Neighbours {
    /// Replaces what was said before.
    pub(crate) fn insert(&mut self, device: u32, address: IpAddr, mac: MacAddr) {
        match Key::new(device, address) {
            Key::V4(key) => self.v4.insert(key, mac),
            Key::V6(key) => self.v6.insert(key, mac),
        };
    }

    #[inline]
    pub(crate) fn find(&self, device: u32, address: IpAddr) -> Option<MacAddr> {
        match Key::new(device, address) {
            Key::V4(key) => self.v4.get(&key).copied(),
            Key::V6(key) => self.v6.get(&key).copied(),
        }
    }

    /// Says whether it was known.
    pub(crate) fn remove(&mut self, device: u32, address: IpAddr) -> bool {
        match Key::new(device, address) {
            Key::V4(key) => self.v4.remove(&key).is_some(),
            Key::V6(key) => self.v6.remove(&key).is_some(),
        }
    }

    /// Forgets those of a device.
    pub(crate) fn remove_device(&mut self, device: u32) {
        self.v4.retain(|key, _| (key >> 32) as u32 != device);
        self.v6.retain(|(of, _), _| *of != device);
    }
}
