//! The flags of an update.

/// What an update may do, with the meanings and numbers of Linux's `BPF_ANY`, `BPF_NOEXIST` and `BPF_EXIST`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpdateFlags {
    /// Create the element or change it.
    #[default]
    Any,
    /// Create the element; fail if it exists.
    NoExist,
    /// Change the element; fail if it does not exist.
    Exist,
}

impl UpdateFlags {
    /// The flags of that number; `None` for numbers that are not provided, `BPF_F_LOCK` among them.
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Any),
            1 => Some(Self::NoExist),
            2 => Some(Self::Exist),
            _ => None,
        }
    }

    /// The number of these flags.
    pub const fn number(self) -> u64 {
        self as u64
    }
}
