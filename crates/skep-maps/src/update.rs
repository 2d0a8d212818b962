//! The flags of an update.

/// What an update may do, with the meanings and numbers of Linux's `BPF_ANY`, `BPF_NOEXIST`, `BPF_EXIST` and
/// `BPF_F_LOCK`.
///
/// With the lock ([`locked`](Self::locked)) an existing element is written in place while its `struct bpf_spin_lock`
/// is held: programs that take the lock see the old value or the new one as a whole.
///
/// ```
/// use skep_maps::UpdateFlags;
///
/// assert_eq!(UpdateFlags::Exist.locked().number(), 2 | 4);
/// assert_eq!(UpdateFlags::from_number(4), Some(UpdateFlags::AnyLocked));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UpdateFlags {
    /// Create the element or change it.
    #[default]
    Any = 0,
    /// Create the element; fail if it exists.
    NoExist = 1,
    /// Change the element; fail if it does not exist.
    Exist = 2,
    /// [`Any`](Self::Any), under the element's lock.
    AnyLocked = LOCK,
    /// [`NoExist`](Self::NoExist): no thread can hold the lock of a new element, so it is not taken.
    NoExistLocked = LOCK | 1,
    /// [`Exist`](Self::Exist), under the element's lock.
    ExistLocked = LOCK | 2,
}

/// `BPF_F_LOCK`.
const LOCK: isize = 4;

impl UpdateFlags {
    const ALL: [Self; 6] =
        [Self::Any, Self::NoExist, Self::Exist, Self::AnyLocked, Self::NoExistLocked, Self::ExistLocked];

    /// The flags with that number; `None` if there are none.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|flags| flags.number() == number)
    }

    /// The flags with that number, if there are any and they are without the lock.
    #[inline(always)]
    pub(crate) fn without_lock(number: u64) -> Option<Self> {
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

    /// The same flags with the element's lock.
    #[must_use]
    pub const fn locked(self) -> Self {
        match self {
            Self::Any | Self::AnyLocked => Self::AnyLocked,
            Self::NoExist | Self::NoExistLocked => Self::NoExistLocked,
            Self::Exist | Self::ExistLocked => Self::ExistLocked,
        }
    }

    /// Whether the element's lock is taken.
    pub const fn is_locked(self) -> bool {
        matches!(self, Self::AnyLocked | Self::NoExistLocked | Self::ExistLocked)
    }

    /// The same flags without the lock.
    pub(crate) const fn condition(self) -> Self {
        match self {
            Self::Any | Self::AnyLocked => Self::Any,
            Self::NoExist | Self::NoExistLocked => Self::NoExist,
            Self::Exist | Self::ExistLocked => Self::Exist,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UpdateFlags;

    #[test]
    fn flags_have_linux_s_numbers() {
        for number in [0, 1, 2, 4, 5, 6] {
            let flags = UpdateFlags::from_number(number).expect("a number of flags");
            assert_eq!(flags.number(), number);
            assert_eq!(flags.is_locked(), number & 4 != 0);
            assert_eq!(flags.condition().number(), number & 3);
            assert_eq!(flags.locked().number(), number | 4);
        }
        for number in [3, 7, 8, u64::MAX] {
            assert_eq!(UpdateFlags::from_number(number), None);
        }
    }
}
