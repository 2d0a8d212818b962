//! Ctrl-C while programs run.
//!
//! Python's handlers of signals run on the main thread, when that is attached. So repeated runs attach now and then
//! and ask ([`Pulse`]). One run that takes long cannot ask; if its runtime has budgets it can be ended from another
//! thread: then a second thread runs it, and the main thread waits and asks ([`watched`]).

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a signal waits at most.
const PATIENCE: Duration = Duration::from_millis(50);

/// Asks for signals at most once in [`PATIENCE`], between runs.
pub(crate) struct Pulse {
    due: Instant,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self { due: Instant::now() + PATIENCE }
    }

    /// Runs the handlers of signals that are due. An error is the exception of a handler.
    pub(crate) fn check(&mut self) -> PyResult<()> {
        if Instant::now() < self.due {
            return Ok(());
        }
        Python::attach(|py| py.check_signals())?;
        self.due = Instant::now() + PATIENCE;
        Ok(())
    }
}

/// Does `work` on another thread, and runs the handlers of signals on this one meanwhile. If one of them raises an
/// exception, `end` is called until the work has ended, and that exception is the error. `work` gets a flag that says
/// that it should end.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send,
    end: impl Fn() + Send + Sync,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    py.detach(|| {
        thread::scope(|scope| {
            let (done, result) = channel();
            let (stop, end) = (&stop, &end);
            scope.spawn(move || done.send(work(stop)));
            let mut raised = None;
            loop {
                match result.recv_timeout(PATIENCE) {
                    Ok(made) => return raised.map_or(Ok(made), Err),
                    // The work panicked: the scope passes that on.
                    Err(RecvTimeoutError::Disconnected) => return Err(raised.unwrap_or_else(died)),
                    Err(RecvTimeoutError::Timeout) if raised.is_some() => end(),
                    Err(RecvTimeoutError::Timeout) => {
                        raised = Python::attach(|py| py.check_signals()).err();
                        if raised.is_some() {
                            // Relaxed: read by the work between runs; a run in progress is ended by `end`.
                            stop.store(true, Ordering::Relaxed);
                            end();
                        }
                    }
                }
            }
        })
    })
}

fn died() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("the thread of the run has ended")
}

/// Whether this is the main thread, on which handlers of signals run.
pub(crate) fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let current = threading.call_method0("current_thread")?;
    Ok(current.is(&threading.call_method0("main_thread")?))
}
