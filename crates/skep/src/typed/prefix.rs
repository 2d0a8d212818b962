//! The key of a trie.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A key of a trie (`BPF_MAP_TYPE_LPM_TRIE`): the first bits of some bytes. Has the layout of Linux's
/// `struct bpf_lpm_trie_key_u8`.
///
/// ```
/// use skep::abi::{MapDef, MapFlags, MapKind};
/// use skep::{Map, MapOptions, Prefix, TypedMap, UpdateFlags};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), skep::Error> {
/// let mut def = MapDef::new("routes", MapKind::LpmTrie, 8, 4, 100);
/// def.flags = MapFlags::NO_PREALLOC;
/// let map = Arc::new(Map::create(&def, &MapOptions { cpus: 1, limit: 1 << 20 })?);
/// let routes = TypedMap::<Prefix<4>, u32>::new(map)?;
/// routes.insert(&Prefix::new(8, [10, 0, 0, 0]), &1, UpdateFlags::Any)?;
/// assert_eq!(routes.get(&Prefix::host([10, 1, 2, 3]))?, Some(1)); // the longest prefix
/// assert_eq!(routes.get(&Prefix::host([11, 1, 2, 3]))?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Prefix<const BYTES: usize> {
    /// How many bits count.
    pub bits: [u8; 4],
    /// The bytes, the first ones first, as in an address on the wire.
    pub data: [u8; BYTES],
}

impl<const BYTES: usize> Prefix<BYTES> {
    /// The first `bits` bits of these bytes. More bits than there are make operations fail with
    /// [`MapError::PrefixTooLong`](crate::MapError::PrefixTooLong).
    pub fn new(bits: u32, data: [u8; BYTES]) -> Self {
        Self { bits: bits.to_ne_bytes(), data }
    }

    /// All bits: what a look-up is made with.
    pub fn host(data: [u8; BYTES]) -> Self {
        // A key is far shorter than 2^29 bytes.
        Self::new((BYTES * 8) as u32, data)
    }

    /// How many bits count.
    pub fn len(&self) -> u32 {
        u32::from_ne_bytes(self.bits)
    }

    /// Whether no bit counts: the prefix of everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
