//! Ends a wait for frames from another thread, or from a handler of signals.

use crate::error::Error;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Ends waits of a [`Live`](crate::Live). Clones are for the same one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> Result<Self, Error> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self(Arc::new(made.map_err(|error| Error::Wait(error.into()))?)))
    }

    /// Ends the current wait, and all later ones at once.
    pub fn wake(&self) {
        // It fails only when the counter is full, and then the waiter is woken anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Waits until one of these has something to read or a failure to tell, this is woken, or the time is over. Returns
    /// whether it was woken.
    pub(crate) fn wait<'a>(
        &self,
        fds: impl Iterator<Item = BorrowedFd<'a>>,
        most: Option<Duration>,
    ) -> Result<bool, Error> {
        let mut polled: Vec<PollFd<'_>> = vec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        polled.extend(fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        match poll(&mut polled, most.as_ref()) {
            // A signal: the caller sees that nothing has come.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!polled[0].revents().is_empty()),
            Err(error) => Err(Error::Wait(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_over_before_it_begins_returns_at_once() {
        let waker = Waker::new().unwrap();
        assert!(!waker.wait(std::iter::empty(), Some(Duration::ZERO)).unwrap());
        waker.clone().wake();
        for _ in 0..2 {
            assert!(waker.wait(std::iter::empty(), None).unwrap());
        }
    }
}
