//! Whose turn it is to wait for the next call.
//!
//! Waking another thread costs more than most calls take. So the thread that receives a quick call answers it and stays
//! the one that waits; for a slow call it first lets another thread wait. A call may turn out slow without being so by
//! its nature: memory of a client may be slow to come. [`Turn::watch`] takes the turn away from such a thread.
//!
//! Invariant: at most one thread has the turn and waits. A thread that answers may have lost it meanwhile; it finds out
//! when it asks for the next call, since each turn has a number of its own.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How long a thread that answers keeps the turn.
const PATIENCE: Duration = Duration::from_millis(20);

/// Who waits for calls.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A thread has the turn.
    taken: bool,
    /// Which turn it is.
    number: u64,
    /// Since when the thread that has it answers; `None` while it waits.
    busy: Option<Instant>,
    /// Nobody waits any more.
    over: bool,
    /// Threads that wait for a turn.
    idle: u32,
}

impl Turn {
    /// Waits for a turn; `None` when there will be no other call.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut state = self.state.lock();
        while state.taken && !state.over {
            state.idle += 1;
            self.changed.wait(&mut state);
            state.idle -= 1;
        }
        if state.over {
            return None;
        }
        (state.taken, state.number, state.busy) = (true, state.number + 1, None);
        Some(state.number)
    }

    /// The thread has received a call. `hand_over`: another one waits meanwhile. Returns `false` if that should be, and
    /// all others answer.
    #[must_use]
    pub(crate) fn received(&self, at: Instant, hand_over: bool) -> bool {
        let mut state = self.state.lock();
        if !hand_over {
            state.busy = Some(at);
            return true;
        }
        state.taken = false;
        self.changed.notify_one();
        state.idle > 0
    }

    /// The thread has answered. Whether the turn is still its own.
    pub(crate) fn is_still(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        let ours = state.taken && state.number == number;
        if ours {
            state.busy = None;
        }
        ours
    }

    /// Lets another thread wait if the one that should has been answering for long. Returns `false` if all others
    /// answer too.
    #[must_use]
    pub(crate) fn watch(&self) -> bool {
        let mut state = self.state.lock();
        if state.taken && state.busy.is_some_and(|since| since.elapsed() > PATIENCE) {
            state.taken = false;
            state.busy = None;
            self.changed.notify_one();
        }
        state.taken || state.over || state.idle > 0
    }

    /// Whether there will be no other call.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().over
    }

    /// There will be no other call.
    pub(crate) fn end(&self) {
        self.state.lock().over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_answer_keeps_the_turn_and_a_slow_one_gives_it_away() {
        let turn = Turn::default();
        let first = turn.take().unwrap();
        assert!(turn.received(Instant::now(), false));
        assert!(turn.watch());
        assert!(turn.is_still(first), "it was not long");
        assert!(!turn.received(Instant::now(), true), "nobody waits");
        assert!(!turn.watch());
        assert!(!turn.is_still(first));
        let second = turn.take().unwrap();
        assert!(!turn.is_still(first), "it is another's");
        assert!(turn.is_still(second));
    }

    #[test]
    fn a_thread_that_hangs_in_an_answer_loses_its_turn() {
        let turn = Turn::default();
        let first = turn.take().unwrap();
        assert!(turn.watch());
        assert!(turn.is_still(first), "waiting is not answering");
        assert!(turn.received(Instant::now() - 2 * PATIENCE, false));
        assert!(!turn.watch());
        assert!(!turn.is_still(first));
        assert!(turn.take().is_some());
    }

    #[test]
    fn the_end_reaches_those_who_wait_for_a_turn() {
        let turn = Turn::default();
        let _first = turn.take();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| turn.take());
            // When it waits, somebody is there for the next call.
            while turn.state.lock().idle == 0 {
                std::thread::yield_now();
            }
            turn.end();
            assert_eq!(other.join().unwrap(), None);
        });
    }
}
