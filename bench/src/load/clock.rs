//! Clocks: time that passes, and time that processors spend on this thread and on all of this process.
//!
//! The difference of the last two is what other threads did meanwhile: work that was put off to the background is not
//! gone, and must show somewhere.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The three clocks at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    wall: Instant,
    thread: Duration,
    process: Duration,
}

/// What passed between two moments, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) wall: f64,
    /// Processor time of the calling thread.
    pub(crate) thread: f64,
    /// Processor time of other threads of this process.
    pub(crate) background: f64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        let (thread, process) = (read(ClockId::ThreadCPUTime), read(ClockId::ProcessCPUTime));
        Self { wall: Instant::now(), thread, process }
    }

    pub(crate) fn passed(self) -> Passed {
        // First the time: reading processor time takes two system calls.
        let wall = self.wall.elapsed();
        let now = Self::now();
        let thread = now.thread - self.thread;
        Passed {
            wall: wall.as_secs_f64(),
            thread: thread.as_secs_f64(),
            background: (now.process - self.process).saturating_sub(thread).as_secs_f64(),
        }
    }
}
