//! Values of the runtime in Python objects: dropped without the interpreter.
//!
//! The drop of a module or a link takes locks and may wait for readers, and a reader may wait for the interpreter (a
//! program that prints to a Python function). Python destroys objects while it is attached; so the value is dropped
//! detached.

use pyo3::Python;
use std::ops::Deref;

/// A value that is dropped detached from the interpreter.
pub(crate) struct Released<T: Send>(Option<T>);

impl<T: Send> Released<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send> Deref for Released<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only the drop takes it")
    }
}

impl<T: Send> Drop for Released<T> {
    fn drop(&mut self) {
        let mut value = self.0.take();
        // An interpreter that is going away cannot be attached to; then nobody waits for it either.
        let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}
