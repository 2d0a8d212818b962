//! Map kinds and definitions, with the numbers that Linux's `enum bpf_map_type` gives them.

use skep_btf::SpecialField;
use std::fmt;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// A kind of map.
        ///
        /// That a kind is listed says that object files may name it, not that the runtime provides it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum MapKind {
            $($(#[$doc])* $variant,)*
        }

        impl MapKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The kind of that UAPI number.
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its UAPI number.
            pub const fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)*
                }
            }

            /// Its name, as bpftool writes it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// Hash table.
    Hash = 1, "hash";
    /// Array.
    Array = 2, "array";
    /// Array of programs, the target of tail calls.
    ProgArray = 3, "prog_array";
    /// Perf event rings.
    PerfEventArray = 4, "perf_event_array";
    /// Hash table with a value per CPU.
    PercpuHash = 5, "percpu_hash";
    /// Array with a value per CPU.
    PercpuArray = 6, "percpu_array";
    /// Stack traces.
    StackTrace = 7, "stack_trace";
    /// Array of control groups.
    CgroupArray = 8, "cgroup_array";
    /// Hash table that drops the least recently used.
    LruHash = 9, "lru_hash";
    /// The same with a value per CPU.
    LruPercpuHash = 10, "lru_percpu_hash";
    /// Longest-prefix-match trie.
    LpmTrie = 11, "lpm_trie";
    /// Array of maps.
    ArrayOfMaps = 12, "array_of_maps";
    /// Hash table of maps.
    HashOfMaps = 13, "hash_of_maps";
    /// Devices to redirect to.
    Devmap = 14, "devmap";
    /// Sockets to redirect to.
    Sockmap = 15, "sockmap";
    /// CPUs to redirect to.
    Cpumap = 16, "cpumap";
    /// AF_XDP sockets.
    Xskmap = 17, "xskmap";
    /// Sockets by hash.
    Sockhash = 18, "sockhash";
    /// Storage of a control group.
    CgroupStorage = 19, "cgroup_storage";
    /// Sockets of a reuse-port group.
    ReuseportSockarray = 20, "reuseport_sockarray";
    /// Per-CPU storage of a control group.
    PercpuCgroupStorage = 21, "percpu_cgroup_storage";
    /// First in, first out.
    Queue = 22, "queue";
    /// Last in, first out.
    Stack = 23, "stack";
    /// Storage of a socket.
    SkStorage = 24, "sk_storage";
    /// Devices by hash.
    DevmapHash = 25, "devmap_hash";
    /// Implementations of kernel interfaces.
    StructOps = 26, "struct_ops";
    /// Ring buffer.
    Ringbuf = 27, "ringbuf";
    /// Storage of an inode.
    InodeStorage = 28, "inode_storage";
    /// Storage of a task.
    TaskStorage = 29, "task_storage";
    /// Bloom filter.
    BloomFilter = 30, "bloom_filter";
    /// Ring buffer from user space to programs.
    UserRingbuf = 31, "user_ringbuf";
    /// Storage of a control group, new form.
    CgrpStorage = 32, "cgrp_storage";
    /// Memory shared with programs.
    Arena = 33, "arena";
}

impl MapKind {
    /// Whether values are kept once per CPU.
    pub const fn is_per_cpu(self) -> bool {
        matches!(self, Self::PercpuHash | Self::PercpuArray | Self::LruPercpuHash)
    }

    /// Whether keys are `u32` indexes below `max_entries`.
    pub const fn is_array(self) -> bool {
        matches!(self, Self::Array | Self::PercpuArray | Self::ProgArray | Self::ArrayOfMaps)
    }
}

impl fmt::Display for MapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Flags of map creation, with Linux's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MapFlags(pub u32);

impl MapFlags {
    /// `BPF_F_NO_PREALLOC`: elements are allocated as they come.
    pub const NO_PREALLOC: Self = Self(1);
    /// `BPF_F_NO_COMMON_LRU`: each CPU has a list of its own of what was used least recently.
    pub const NO_COMMON_LRU: Self = Self(1 << 1);
    /// `BPF_F_RDONLY_PROG`: programs may only read.
    pub const RDONLY_PROG: Self = Self(1 << 7);
    /// `BPF_F_WRONLY_PROG`: programs may only write.
    pub const WRONLY_PROG: Self = Self(1 << 8);
    /// `BPF_F_MMAPABLE`.
    pub const MMAPABLE: Self = Self(1 << 10);

    /// Whether all of `other`'s bits are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The definition of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: MapKind,
    /// Bytes in a key.
    pub key_size: u32,
    /// Bytes in a value (of one CPU).
    pub value_size: u32,
    /// The most elements it may hold.
    pub max_entries: u32,
    /// Flags of its creation.
    pub flags: MapFlags,
    /// The attribute `map_extra`, whose meaning depends on the kind: of a bloom filter, the number of hash functions.
    pub extra: u64,
    /// For maps of maps, what the inner ones look like.
    pub inner: Option<Box<MapDef>>,
    /// The type of its keys, by its number in the object's types, where it was declared by type.
    pub key_btf: Option<u32>,
    /// The type of its values in the same way; for maps of global variables, that of their section.
    pub value_btf: Option<u32>,
    /// Locks, timers, kept pointers and the like in its values, ascending by offset.
    pub fields: Vec<SpecialField>,
    /// What its only value holds, if nobody can change that: the constants of a program.
    pub frozen: Option<Arc<[u8]>>,
}

impl MapDef {
    /// The first of its special fields that a map of its kind may not hold ([`holders`](crate::holders)).
    pub fn misplaced(&self) -> Option<&SpecialField> {
        self.fields.iter().find(|field| !crate::holders(field.kind).contains(&self.kind))
    }

    /// A map without flags, of which no types are known.
    pub fn new(
        name: impl Into<String>,
        kind: MapKind,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            key_size,
            value_size,
            max_entries,
            flags: MapFlags::default(),
            extra: 0,
            inner: None,
            key_btf: None,
            value_btf: None,
            fields: Vec::new(),
            frozen: None,
        }
    }
}
