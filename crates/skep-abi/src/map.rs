//! Map kinds and definitions, with the numbers that Linux's `enum bpf_map_type` gives them.

use skep_btf::{Btf, SpecialField, SpecialKind};
use std::fmt;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// A kind of map.
        ///
        /// Object files may name every kind that is listed; the runtime need not provide it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum MapKind {
            $($(#[$doc])* $variant,)*
        }

        impl MapKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The kind with that UAPI number.
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
    /// Perf event buffers.
    PerfEventArray = 4, "perf_event_array";
    /// Hash table with a value per CPU.
    PercpuHash = 5, "percpu_hash";
    /// Array with a value per CPU.
    PercpuArray = 6, "percpu_array";
    /// Stack traces.
    StackTrace = 7, "stack_trace";
    /// Array of control groups.
    CgroupArray = 8, "cgroup_array";
    /// Hash table that evicts the least recently used element.
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
        matches!(self, Self::PercpuHash | Self::PercpuArray | Self::LruPercpuHash | Self::PercpuCgroupStorage)
    }

    /// Whether it has one element for each CPU, so that objects leave `max_entries` at 0 for the loader to set.
    pub const fn counts_cpus(self) -> bool {
        matches!(self, Self::PerfEventArray | Self::Cpumap)
    }

    /// Whether `bpf_map_sum_elem_count` knows how many elements it has.
    pub const fn counts_elements(self) -> bool {
        matches!(self, Self::Hash | Self::PercpuHash | Self::LruHash | Self::LruPercpuHash | Self::HashOfMaps)
    }

    /// Whether its values are maps.
    pub const fn holds_maps(self) -> bool {
        matches!(self, Self::ArrayOfMaps | Self::HashOfMaps)
    }

    /// Whether its elements belong to something else, by whose number they are found. `max_entries` is 0.
    pub const fn is_storage(self) -> bool {
        matches!(
            self,
            Self::SkStorage
                | Self::InodeStorage
                | Self::TaskStorage
                | Self::CgrpStorage
                | Self::CgroupStorage
                | Self::PercpuCgroupStorage
        )
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
    /// `BPF_F_NO_PREALLOC`: elements are allocated on demand.
    pub const NO_PREALLOC: Self = Self(1);
    /// `BPF_F_NO_COMMON_LRU`: each CPU has its own LRU list.
    pub const NO_COMMON_LRU: Self = Self(1 << 1);
    /// `BPF_F_ZERO_SEED`: the same elements, added in the same order, are walked in the same order in every such map.
    /// For tests: who chooses keys can choose their buckets.
    pub const ZERO_SEED: Self = Self(1 << 6);
    /// `BPF_F_RDONLY_PROG`: programs may only read.
    pub const RDONLY_PROG: Self = Self(1 << 7);
    /// `BPF_F_WRONLY_PROG`: programs may only write.
    pub const WRONLY_PROG: Self = Self(1 << 8);
    /// `BPF_F_CLONE`: a socket that is accepted gets a copy of the value of the one that listens.
    pub const CLONE: Self = Self(1 << 9);
    /// `BPF_F_MMAPABLE`.
    pub const MMAPABLE: Self = Self(1 << 10);
    /// `BPF_F_INNER_MAP`: an array may have any capacity as an inner map. Programs are then verified without
    /// knowing it.
    pub const INNER_MAP: Self = Self(1 << 12);
    /// `BPF_F_SEGV_ON_FAULT`: the host allocates no page of an arena by writing to it.
    pub const SEGV_ON_FAULT: Self = Self(1 << 17);
    /// `BPF_F_NO_USER_CONV`: a cast to the host's address space leaves an offset in the arena.
    pub const NO_USER_CONV: Self = Self(1 << 18);

    /// Whether all bits of `other` are set.
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
    /// Maximum number of elements.
    pub max_entries: u32,
    /// Creation flags.
    pub flags: MapFlags,
    /// The attribute `map_extra`. Its meaning depends on the kind: for a bloom filter, the number of hash
    /// functions.
    pub extra: u64,
    /// For maps of maps, the template of the inner maps.
    pub inner: Option<Box<MapDef>>,
    /// The type of its keys, if it was declared by type: its number in the object's BTF.
    pub key_btf: Option<u32>,
    /// The type of its values in the same way; for maps of global variables, the type of their section.
    pub value_btf: Option<u32>,
    /// Special fields of its values (locks, timers, kept pointers), in ascending order of offsets.
    pub fields: Vec<SpecialField>,
    /// For each of `fields`, the name of the type that it points to or holds, if the definition came with BTF. Type
    /// numbers in the fields belong to one object's BTF; names are the same in all. Empty if there are none.
    pub field_types: Vec<Option<Arc<str>>>,
    /// The constant content of its first value: a program's read-only data. A map created from this definition is
    /// filled with these bytes and frozen.
    pub frozen: Option<Arc<[u8]>>,
}

/// Why a definition describes no valid map, whatever a runtime provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Defect {
    /// The inner maps of a map of maps hold maps themselves.
    NestedMaps,
    /// A special field is misplaced. Fields ascend, begin and end at multiples of 4, and lie inside the value; a
    /// lock has 4 bytes, and a pointer has 8 at a multiple of 8.
    Field(SpecialFieldAt),
    /// A value has two fields of a kind that it may have only once.
    Repeated(SpecialFieldAt),
}

/// The place of the special field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecialFieldAt {
    /// Its C type.
    pub name: &'static str,
    /// Its offset in the value, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

impl MapDef {
    /// The first of its special fields that a map of its kind may not hold ([`holders`](crate::holders)).
    pub fn misplaced(&self) -> Option<&SpecialField> {
        self.fields.iter().find(|field| !crate::holders(field.kind).contains(&self.kind))
    }

    /// Finds locks, timers and the like in the type of its values, and the names of the types that they lead to.
    ///
    /// # Errors
    ///
    /// [`skep_btf::Error::Special`] if a value may not have such fields; others if the types are damaged. Then nothing
    /// has changed.
    pub fn set_fields(&mut self, btf: &Btf, value: u32) -> Result<(), skep_btf::Error> {
        let fields = btf.special_fields(value)?;
        let leads_to = |field: &SpecialField| match field.kind {
            SpecialKind::ListHead { holds: to, .. }
            | SpecialKind::RbRoot { holds: to, .. }
            | SpecialKind::KptrUntrusted { to }
            | SpecialKind::Kptr { to }
            | SpecialKind::KptrPercpu { to }
            | SpecialKind::Uptr { to } => Some(to),
            _ => None,
        };
        let name = |field| leads_to(field).map(|to| Ok(btf.type_name(to)?.into())).transpose();
        self.field_types = fields.iter().map(name).collect::<Result<_, skep_btf::Error>>()?;
        self.fields = fields;
        Ok(())
    }

    /// A map without flags and without BTF types.
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
            field_types: Vec::new(),
            frozen: None,
        }
    }

    /// What is wrong with the definition, if anything: it checks what the verifier assumes of every definition, and
    /// map creation requires it.
    pub fn defect(&self) -> Option<Defect> {
        let nested = |inner: &Self| inner.inner.is_some() || inner.kind.holds_maps();
        if self.inner.as_deref().is_some_and(nested) {
            return Some(Defect::NestedMaps);
        }
        let mut free = 0;
        for (number, field) in self.fields.iter().enumerate() {
            let at = SpecialFieldAt { name: field.kind.name(), offset: field.offset, size: field.size };
            let end = field.offset.checked_add(field.size).filter(|end| *end <= self.value_size);
            // A lock is one word; a kept pointer is read and written atomically as a whole.
            let (align, wanted) = match field.kind {
                SpecialKind::SpinLock => (4, Some(4)),
                kind if is_pointer(kind) => (8, Some(8)),
                _ => (4, None),
            };
            let aligned = field.offset.is_multiple_of(align) && field.size.is_multiple_of(4);
            let sized = wanted.map_or(field.size > 0, |wanted| field.size == wanted);
            match end.filter(|_| field.offset >= free && aligned && sized) {
                Some(end) => free = end,
                None => return Some(Defect::Field(at)),
            }
            let alike =
                |other: &SpecialField| once(other.kind).is_some_and(|one| once(field.kind) == Some(one));
            if self.fields[..number].iter().any(alike) {
                return Some(Defect::Repeated(at));
            }
        }
        self.inner.as_deref().and_then(Self::defect)
    }
}

const fn is_pointer(kind: SpecialKind) -> bool {
    use SpecialKind as K;
    matches!(kind, K::KptrUntrusted { .. } | K::Kptr { .. } | K::KptrPercpu { .. } | K::Uptr { .. })
}

/// The same number for fields that exclude each other: a value may have only one of them. The two kinds of locks
/// exclude each other.
const fn once(kind: SpecialKind) -> Option<u8> {
    match kind {
        SpecialKind::SpinLock | SpecialKind::ResSpinLock => Some(0),
        SpecialKind::Timer => Some(1),
        SpecialKind::Workqueue => Some(2),
        SpecialKind::TaskWork => Some(3),
        SpecialKind::Refcount => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[(SpecialKind, u32, u32)]) -> Option<Defect> {
        let field = |&(kind, offset, size)| SpecialField { kind, offset, size };
        let fields = fields.iter().map(field).collect();
        MapDef { fields, ..MapDef::new("m", MapKind::Hash, 4, 32, 1) }.defect()
    }

    #[test]
    fn a_value_has_one_lock() {
        use SpecialKind as K;
        assert_eq!(with(&[(K::SpinLock, 0, 4), (K::Timer, 8, 16)]), None);
        for kind in [K::SpinLock, K::ResSpinLock] {
            let at = SpecialFieldAt { name: kind.name(), offset: 4, size: 4 };
            assert_eq!(with(&[(K::SpinLock, 0, 4), (kind, 4, 4)]), Some(Defect::Repeated(at)));
        }
        assert_eq!(with(&[(K::Kptr { to: 1 }, 0, 8), (K::Kptr { to: 1 }, 8, 8)]), None);
    }

    #[test]
    fn fields_lie_inside_of_the_value_in_order() {
        use SpecialKind as K;
        for fields in [
            &[(K::SpinLock, 32, 4)][..],
            &[(K::SpinLock, u32::MAX - 3, 4)],
            &[(K::SpinLock, 2, 4)],
            &[(K::Timer, 0, 0)],
            &[(K::Timer, 8, 16), (K::SpinLock, 0, 4)],
            &[(K::SpinLock, 0, 4), (K::Timer, 0, 16)],
            &[(K::KptrUntrusted { to: 1 }, 0, 4)],
        ] {
            assert!(matches!(with(fields), Some(Defect::Field(_))), "{fields:?}");
        }
    }

    #[test]
    fn maps_of_maps_of_maps_are_none() {
        let of = |inner| MapDef {
            inner: Some(Box::new(inner)),
            ..MapDef::new("m", MapKind::ArrayOfMaps, 4, 4, 1)
        };
        let array = MapDef::new("m", MapKind::Array, 4, 8, 1);
        assert_eq!(of(array.clone()).defect(), None);
        assert_eq!(of(of(array)).defect(), Some(Defect::NestedMaps));
        assert_eq!(of(MapDef::new("m", MapKind::HashOfMaps, 4, 4, 1)).defect(), Some(Defect::NestedMaps));
    }
}
