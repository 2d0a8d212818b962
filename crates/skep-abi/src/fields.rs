//! Fields of map values that programs may touch by calls alone.

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpecialKind {
    /// `struct bpf_spin_lock`.
    SpinLock,
    /// `struct bpf_timer`.
    Timer,
    /// `struct bpf_wq`.
    Workqueue,
    /// A pointer to a host's object, by the number of its type in the host's BTF, tagged `__kptr`: the value
    /// owns a reference.
    Kptr {
        /// The type of the object; 0 where it is not known.
        ty: u32,
    },
    /// The same tagged `__kptr_untrusted`: owned by nobody.
    KptrUntrusted {
        /// The type of the object; 0 where it is not known.
        ty: u32,
    },
    /// The same tagged `__percpu_kptr`.
    KptrPerCpu {
        /// The type of the object; 0 where it is not known.
        ty: u32,
    },
    /// `struct bpf_list_head`.
    ListHead,
    /// `struct bpf_list_node`.
    ListNode,
    /// `struct bpf_rb_root`.
    RbRoot,
    /// `struct bpf_rb_node`.
    RbNode,
    /// `struct bpf_refcount`.
    Refcount,
}

impl SpecialKind {
    /// Its C type, as programs name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SpinLock => "bpf_spin_lock",
            Self::Timer => "bpf_timer",
            Self::Workqueue => "bpf_wq",
            Self::Kptr { .. } | Self::KptrUntrusted { .. } | Self::KptrPerCpu { .. } => "kptr",
            Self::ListHead => "bpf_list_head",
            Self::ListNode => "bpf_list_node",
            Self::RbRoot => "bpf_rb_root",
            Self::RbNode => "bpf_rb_node",
            Self::Refcount => "bpf_refcount",
        }
    }

    /// Its bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::SpinLock | Self::Refcount => 4,
            Self::Kptr { .. } | Self::KptrUntrusted { .. } | Self::KptrPerCpu { .. } => 8,
            Self::Timer | Self::Workqueue | Self::ListHead | Self::RbRoot => 16,
            Self::ListNode => 24,
            Self::RbNode => 32,
        }
    }

    /// Whether it is a pointer to a host's object.
    pub const fn is_kptr(self) -> bool {
        matches!(self, Self::Kptr { .. } | Self::KptrUntrusted { .. } | Self::KptrPerCpu { .. })
    }
}

/// A special field of a map's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpecialField {
    /// What it is.
    pub kind: SpecialKind,
    /// Where it starts in the value, in bytes.
    pub offset: u32,
}

impl SpecialField {
    /// One past its last byte.
    pub const fn end(&self) -> u32 {
        self.offset.saturating_add(self.kind.bytes())
    }
}
