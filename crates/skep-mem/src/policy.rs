//! When a freed object may be reused.

use std::fmt;
use std::str::FromStr;

/// How a [`Cache`](crate::Cache) reuses freed objects.
///
/// A "grace period" is one of the cache's [`Domain`](skep_rcu::Domain): all sections that existed when the object was
/// freed have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// No cache, for comparison: each object comes from the system's allocator and returns to it after a grace period
    /// of both flavours.
    None,
    /// An object may be reused at once. A reader that still has it sees it become another object.
    Immediate,
    /// An object may be reused after a normal grace period, and is unchanged until then. Memory that is not reused
    /// returns to the system after a sleepable one.
    #[default]
    ReuseAfterGp,
    /// The keeper returns an object to the system's pages after a grace period of both flavours, and it is reused
    /// from there.
    FreeAfterGp,
    /// For comparison: each free goes to the keeper first, which makes the object reusable after a normal grace
    /// period.
    CallRcuFirst,
}

/// A string that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown reuse policy `{0}`: use none, immediate, reuse-after-gp, free-after-gp or call-rcu-first")]
pub struct UnknownPolicy(String);

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Immediate, Self::ReuseAfterGp, Self::FreeAfterGp, Self::CallRcuFirst];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Immediate => "immediate",
            Self::ReuseAfterGp => "reuse-after-gp",
            Self::FreeAfterGp => "free-after-gp",
            Self::CallRcuFirst => "call-rcu-first",
        }
    }

    /// Whether an object that a reader found in a normal section stays the same object until the section ends.
    pub const fn waits_for_readers(self) -> bool {
        !matches!(self, Self::Immediate)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let refused = "soon".parse::<Policy>().unwrap_err();
        assert!(refused.to_string().starts_with("unknown reuse policy `soon`"), "{refused}");
    }
}
