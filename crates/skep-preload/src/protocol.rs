//! What the library and the supervisor tell each other.
//!
//! A descriptor of a map says which map it is by its file's position, which the supervisor sets before it gives the
//! descriptor away, and which lseek(2) tells in a few nanoseconds: a [`Token`]. All copies of the descriptor have the
//! same position, and no other file has such a one.
//!
//! Two commands of bpf(2), which no kernel knows, are answered for the library alone:
//!
//! | command | answer |
//! |---|---|
//! | [`JOIN`] | a descriptor of the states of maps: a word for each place, which the supervisor writes |
//! | [`OPEN`] | the values of a map: an [`Opened`] with descriptors |

/// Joins: the library asks for the states of maps.
pub const JOIN: u32 = 0x736b_6570;
/// Opens: the library asks for the values of the map whose descriptor is in [`Opened::map`].
pub const OPEN: u32 = JOIN + 1;
/// How many maps have a state at the same time.
pub const STATES: usize = 4096;
/// In a [state]: nothing may be written through descriptors.
pub const FROZEN: u64 = 1;

/// The state of that map.
pub const fn state(map: u32, frozen: bool) -> u64 {
    (map as u64) << 32 | if frozen { FROZEN } else { 0 }
}

/// The map of a state.
pub const fn map_of(state: u64) -> u32 {
    (state >> 32) as u32
}

/// A map, and how a descriptor of it is open, as the position of the descriptor's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(u64);

impl Token {
    /// Positions of other files are far below; the kernel takes them up to 2^63 - 1.
    const MARK: u64 = 0x5be7_0000_0000_0000;
    const MARKED: u64 = 0xffff_0000_0000_0000;
    const READ: u64 = 1 << 32;
    const WRITE: u64 = 1 << 33;
    const MAP: u64 = 0xffff_ffff;

    /// The token of a map's descriptor.
    pub const fn new(map: u32, read: bool, write: bool) -> Self {
        let read = if read { Self::READ } else { 0 };
        let write = if write { Self::WRITE } else { 0 };
        Self(Self::MARK | read | write | map as u64)
    }

    /// The token that is the position of a file, if it is one.
    pub const fn from_position(position: i64) -> Option<Self> {
        let bits = position as u64;
        let known = Self::MARKED | Self::READ | Self::WRITE | Self::MAP;
        if bits & Self::MARKED == Self::MARK && bits & !known == 0 { Some(Self(bits)) } else { None }
    }

    /// The position; never 0.
    pub const fn position(self) -> u64 {
        self.0
    }

    /// The map's identifier.
    pub const fn map(self) -> u32 {
        (self.0 & Self::MAP) as u32
    }

    /// Whether values may be read through the descriptor.
    pub const fn reads(self) -> bool {
        self.0 & Self::READ != 0
    }

    /// Whether values may be written through the descriptor, unless the map is frozen.
    pub const fn writes(self) -> bool {
        self.0 & Self::WRITE != 0
    }
}

/// A part of a file that the library maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Part {
    /// A descriptor of the file.
    pub file: u64,
    /// The file's device and number, by which the library knows that it has mapped what it was given.
    pub device: u64,
    /// See `device`.
    pub number: u64,
    /// Where the part begins in the file: at a page boundary.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// The answer to [`OPEN`], in the attributes of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Opened {
    /// Before the call the map's descriptor.
    pub map: u64,
    /// The values of an array, or the elements of a hash table.
    pub values: Part,
    /// The place of the map's state.
    pub place: u64,
    /// How many values an array has, or how many buckets a hash table has: a power of two.
    pub entries: u64,
    /// Bytes from one value of an array to the next.
    pub stride: u64,
    /// Bytes of a value, without padding.
    pub value_size: u64,
    /// How many CPUs have values of their own; 1 if all share them.
    pub cpus: u64,
    /// Bytes from the values of one CPU to those of the next; 0 if all share them.
    pub cpu_stride: u64,
    /// Whether the values may be written: 0 or 1.
    pub writable: u64,
    /// Bytes of a key; 0 for arrays, and then the rest is 0 too.
    pub key_size: u64,
    /// The buckets of a hash table.
    pub buckets: Part,
    /// The address in links that means the first byte of `values`.
    pub address: u64,
    /// Where the values begin in an element.
    pub values_at: u64,
    /// The seed of hashes.
    pub seed: [u64; 3],
}

impl Opened {
    /// As the call takes it.
    pub const BYTES: usize = size_of::<Self>();

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let part = |part: &Part| [part.file, part.device, part.number, part.offset, part.len];
        let mut bytes = [0; Self::BYTES];
        let fields = [self.place, self.entries, self.stride, self.value_size, self.cpus, self.cpu_stride];
        let words = [self.map]
            .into_iter()
            .chain(part(&self.values))
            .chain(fields)
            .chain([self.writable, self.key_size])
            .chain(part(&self.buckets))
            .chain([self.address, self.values_at])
            .chain(self.seed);
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_says_which_map_it_is_and_how_it_is_open() {
        for (read, write) in [(true, true), (true, false), (false, true)] {
            let token = Token::new(0xffff_fffe, read, write);
            let position = i64::try_from(token.position()).unwrap();
            let found = Token::from_position(position).unwrap();
            assert_eq!((found.map(), found.reads(), found.writes()), (0xffff_fffe, read, write));
        }
        for position in [-1, -29, 0, 4096, i64::MAX, i64::MIN, Token::MARK as i64 | 1 << 34] {
            assert_eq!(Token::from_position(position), None, "{position:#x}");
        }
    }

    #[test]
    fn answers_have_the_layout_that_the_library_reads() {
        let part = |first: u64| Part {
            file: first,
            device: first + 1,
            number: first + 2,
            offset: first + 3,
            len: first + 4,
        };
        let opened = Opened {
            map: 1,
            values: part(2),
            place: 7,
            entries: 8,
            stride: 9,
            value_size: 10,
            cpus: 11,
            cpu_stride: 12,
            writable: 13,
            key_size: 14,
            buckets: part(15),
            address: 20,
            values_at: 21,
            seed: [22, 23, 24],
        };
        let bytes = opened.to_bytes();
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        assert!(words.eq(1..=24), "in the order of the fields");
        // SAFETY: the structure has no padding, and any bytes make one.
        assert_eq!(unsafe { core::mem::transmute::<[u8; Opened::BYTES], Opened>(bytes) }, opened);
    }
}
