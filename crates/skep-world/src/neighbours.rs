//! Neighbours: the Ethernet addresses of other machines, found by a hash that those who choose the addresses do not know.

use crate::mac::MacAddr;
use std::collections::HashMap;
use std::net::IpAddr;

/// Neighbours by the index of the device and the address. IPv4 has a table of its own, whose keys are one number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours {
    v4: HashMap<u64, MacAddr>,
    v6: HashMap<(u32, u128), MacAddr>,
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
