//! Runs that may take long: a caller's signals end them, and other callers get virtual CPUs meanwhile.
//!
//! A thread keeps its virtual CPU from run to run. So runs are made in slices: after each it is asked whether a signal
//! has come, and the CPU is released if somebody waits for one.

use crate::runtime::Runtime;
use skep_btf::Btf;
use skep_sys::{Client, Errno};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a slice is.
const SLICE: Duration = Duration::from_millis(5);
/// How long a thread waits for a virtual CPU before it tries again. Half of the time for which one is free.
const PAUSE: Duration = Duration::from_micros(250);

/// The threads that wait for a virtual CPU.
#[derive(Debug, Default)]
pub(in crate::sys) struct Waiting(AtomicU32);

/// What runs need of their caller and of the others.
pub(in crate::sys) struct Runs<'a> {
    pub(in crate::sys) runtime: &'a Runtime,
    pub(in crate::sys) waiting: &'a Waiting,
    /// The kernel's types as the client knows them.
    pub(in crate::sys) types: Option<&'a Btf>,
    pub(in crate::sys) client: &'a mut dyn Client,
}

impl Runs<'_> {
    /// Runs once, when a virtual CPU is free. A run that has no CPU has done nothing.
    pub(super) fn once<T>(
        &mut self,
        mut run: impl FnMut(&mut dyn Client) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let first = run(self.client);
        if !matches!(first, Err(Errno::EAGAIN)) {
            return first;
        }
        // A hint, here and below: it orders nothing.
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        let mut asked = Instant::now();
        let done = loop {
            std::thread::sleep(PAUSE);
            match run(self.client) {
                Err(Errno::EAGAIN) if asked.elapsed() < SLICE => {}
                Err(Errno::EAGAIN) => {
                    if self.client.interrupted() {
                        break Err(Errno::EINTR);
                    }
                    asked = Instant::now();
                }
                done => break done,
            }
        };
        self.waiting.0.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Runs on a copy of the input each time, as the kernel does; the last run's result, and the average duration.
    ///
    /// # Errors
    ///
    /// [`Errno::EINTR`] if a signal comes between two runs; then nothing is known of those that were made.
    pub(super) fn repeated(
        &mut self,
        repeat: u32,
        mut prepare: impl FnMut(),
        mut once: impl FnMut() -> Result<u64, Errno>,
    ) -> Result<(u32, u32), Errno> {
        let runs = repeat.max(1);
        let (mut result, mut nanoseconds) = (0, 0);
        let mut slice = Instant::now();
        for left in (0..runs).rev() {
            prepare();
            let mut started = Instant::now();
            result = match once() {
                Err(Errno::EAGAIN) => self.once(|_| {
                    started = Instant::now();
                    once()
                })?,
                done => done?,
            };
            let now = Instant::now();
            nanoseconds += now.duration_since(started).as_nanos();
            if left > 0 && now.duration_since(slice) >= SLICE {
                if self.client.interrupted() {
                    return Err(Errno::EINTR);
                }
                if self.waiting.0.load(Ordering::Relaxed) > 0 {
                    self.runtime.release_cpu();
                    std::thread::sleep(2 * PAUSE);
                }
                slice = Instant::now();
            }
        }
        let average = nanoseconds / u128::from(runs);
        Ok((result as u32, u32::try_from(average).unwrap_or(u32::MAX)))
    }
}
