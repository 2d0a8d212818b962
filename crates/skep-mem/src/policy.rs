//! When an object that was freed may be handed out again.

use std::fmt;
use std::str::FromStr;

/// How a [`Cache`](crate::Cache) reuses objects that were freed.
///
/// "A grace period" is one of the cache's [`Domain`](skep_rcu::Domain): all read sections that were under way when the object was
/// freed have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// No cache: each object comes from the system's allocator and goes back to it after a grace period of both flavours. For
    /// comparison.
    None,
    /// An object may be handed out again at once. A reader that still looks at it sees it become another.
    Immediate,
    /// An object may be handed out again after a normal grace period; until then it stays as it was. What is not used again goes
    /// back to the system after a sleepable one.
    #[default]
    ReuseAfterGp,
    /// An object goes back to the system's pages after a grace period of both flavours, and comes again from there, by the
    /// keeper.
    FreeAfterGp,
    /// The keeper is told of each free first, and gives the object back after a normal grace period. For comparison.
    CallRcuFirst,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no reuse policy: there are none, immediate, reuse-after-gp, free-after-gp and call-rcu-first"
)]
pub struct UnknownPolicy(String);

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Immediate, Self::ReuseAfterGp, Self::FreeAfterGp, Self::CallRcuFirst];

    /// Its name, as the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Immediate => "immediate",
            Self::ReuseAfterGp => "reuse-after-gp",
            Self::FreeAfterGp => "free-after-gp",
            Self::CallRcuFirst => "call-rcu-first",
        }
    }

    /// Whether what a reader has found in a normal section stays that object until the section ends.
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
        assert!(refused.to_string().starts_with("`soon` is no reuse policy"), "{refused}");
    }
}
