//! Time in models: every timeout is over at once.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant;

impl Instant {
    pub(crate) fn now() -> Self {
        Self
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::MAX
    }
}

impl std::ops::Sub for Instant {
    type Output = Duration;

    fn sub(self, _: Self) -> Duration {
        Duration::MAX
    }
}
