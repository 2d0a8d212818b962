//! Fields of map values that programs may touch by calls alone.

/// A field that is more than its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialField {
    /// What it is.
    pub kind: SpecialKind,
    /// Bytes from the value's start.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

/// What a special field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // as C names them
pub enum SpecialKind {
    SpinLock,
    ResSpinLock,
    Timer,
    Workqueue,
    TaskWork,
    Refcount,
    ListHead { holds: u32, node: u32 },
    ListNode,
    RbRoot { holds: u32, node: u32 },
    RbNode,
    KptrUntrusted { to: u32 },
    Kptr { to: u32 },
    KptrPercpu { to: u32 },
    Uptr { to: u32 },
}
