//! Records of ring buffers.

use crate::errors::failed;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The consumer of a ring buffer.
#[pyclass(frozen, module = "skep._skep")]
pub(crate) struct RingBuffer {
    /// Threads of Python take turns.
    inner: Mutex<skep::RingBuffer>,
    name: String,
}

impl RingBuffer {
    pub(crate) fn new(_py: Python<'_>, module: Arc<skep::Module>, name: &str) -> PyResult<Self> {
        let map =
            module.map(name).ok_or_else(|| PyKeyError::new_err(format!("the object has no map {name}")))?;
        let inner = Mutex::new(skep::RingBuffer::new(map).map_err(failed)?);
        Ok(Self { inner, name: name.to_owned() })
    }
}

#[pymethods]
impl RingBuffer {
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Takes all records. Waits up to `timeout` seconds for the first; `None` waits without a limit.
    #[pyo3(signature = (timeout=0.0))]
    fn poll<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let limit = match timeout {
            None => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(failed)?),
        };
        let records = py.detach(|| {
            let mut ring = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            let mut records = Vec::new();
            if limit == Some(Duration::ZERO) || ring.poll(limit) {
                ring.for_each(|record| records.push(record.to_vec()));
            }
            records
        });
        Ok(records.iter().map(|record| PyBytes::new(py, record)).collect())
    }

    /// A descriptor that becomes readable when there is a record: for `select`, `selectors` and `asyncio`.
    fn fileno(&self) -> i32 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).as_fd().as_raw_fd()
    }
}
