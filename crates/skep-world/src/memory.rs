//! Memory that programs may read by address: the machine's kernel and its processes, as far as somebody wrote it down.
//!
//! Nothing here is memory of the host. An address that no part covers faults.

use crate::error::Error;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parts of an address space, which do not overlap. Clones share the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// By their first addresses. None is empty, and none goes beyond the end of the address space.
    parts: BTreeMap<u64, Arc<[u8]>>,
}

impl Memory {
    /// Adds bytes at an address. As on x86-64 and aarch64, addresses of the kernel have their highest bit set, those of
    /// processes have not.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if there are bytes already, if they go beyond the end of the address space, or if the address
    /// is 0. Nothing is added then.
    pub fn add(&mut self, address: u64, bytes: impl Into<Arc<[u8]>>) -> Result<(), Error> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Ok(());
        }
        let refuse = |why| Err(Error::Memory { address, len: bytes.len(), why });
        if address == 0 {
            return refuse("programs take it for null");
        }
        let Some(last) = address.checked_add(bytes.len() as u64 - 1) else {
            return refuse("the address space ends before them");
        };
        let before = self.parts.range(..=last).next_back();
        if before.is_some_and(|(at, part)| at + (part.len() as u64 - 1) >= address) {
            return refuse("there are bytes already");
        }
        self.parts.insert(address, bytes);
        Ok(())
    }

    /// Removes the part that was added at this address, and returns it.
    pub fn remove(&mut self, address: u64) -> Option<Arc<[u8]>> {
        self.parts.remove(&address)
    }

    /// The parts with their addresses, ascending.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.parts.iter().map(|(at, part)| (*at, &**part))
    }

    /// The bytes from an address to the end of its part.
    pub fn at(&self, address: u64) -> Option<&[u8]> {
        let (start, part) = self.parts.range(..=address).next_back()?;
        part.get(usize::try_from(address - start).ok()?..).filter(|bytes| !bytes.is_empty())
    }

    /// Passes the bytes from an address on, part by part, until `take` wants no more. Returns whether it had enough:
    /// false if memory ended before.
    pub fn walk(&self, mut address: u64, mut take: impl FnMut(&[u8]) -> bool) -> bool {
        while let Some(bytes) = self.at(address) {
            if !take(bytes) {
                return true;
            }
            let Some(next) = address.checked_add(bytes.len() as u64) else { return false };
            address = next;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_end_where_the_address_space_does() {
        let mut memory = Memory::default();
        memory.add(100, [1u8; 10]).unwrap();
        for (address, len) in [(100, 1), (91, 10), (109, 1), (50, 100), (105, 2), (0, 1), (u64::MAX, 2)] {
            assert!(memory.add(address, vec![2; len]).is_err(), "{len} bytes at {address}");
        }
        memory.add(110, [3u8; 2]).unwrap();
        memory.add(90, [4u8; 10]).unwrap();
        memory.add(u64::MAX, [5u8]).unwrap();
        memory.add(7, []).unwrap();
        let parts: Vec<_> = memory.parts().map(|(at, part)| (at, part.len())).collect();
        assert_eq!(parts, [(90, 10), (100, 10), (110, 2), (u64::MAX, 1)]);
    }

    #[test]
    fn a_walk_goes_on_into_the_next_part_and_ends_in_a_gap() {
        let mut memory = Memory::default();
        memory.add(10, *b"abc").unwrap();
        memory.add(13, *b"de").unwrap();
        memory.add(20, *b"f").unwrap();
        let read = |address, want: usize| {
            let mut out = Vec::new();
            let enough = memory.walk(address, |bytes| {
                out.extend(bytes.iter().take(want - out.len()));
                out.len() < want
            });
            (enough, out)
        };
        assert_eq!(read(11, 4), (true, b"bcde".to_vec()));
        assert_eq!(read(11, 5), (false, b"bcde".to_vec()));
        assert_eq!(read(20, 1), (true, b"f".to_vec()));
        assert_eq!(read(9, 1), (false, Vec::new()));
        assert_eq!(read(15, 1), (false, Vec::new()));
    }
}
