//! The state that the caller of a run lends to functions of the host, without its type.
//!
//! Invariant: while a run has it, the caller's `&mut T` is borrowed, and `lent` is set while a function has it.
//!
//! What would break it: a run on another thread with the same environment; a type number that does not belong to the
//! value. Only [`RunState::new`] makes one.

use skep_abi::RunEnv;
use std::any::{Any, TypeId, type_name};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A type of state.
#[derive(Clone, Copy, Debug)]
pub struct StateType {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
}

/// What a run knows of its state. Its address is [`RunEnv::state`].
pub(crate) struct RunState<'a> {
    of: StateType,
    value: NonNull<()>,
    /// Whether a function has it.
    lent: Cell<bool>,
    borrow: PhantomData<&'a mut ()>,
}

impl StateType {
    pub(crate) const fn of<T: Any>() -> Self {
        Self { id: TypeId::of::<T>, name: type_name::<T> }
    }

    pub(crate) fn id(self) -> TypeId {
        (self.id)()
    }

    pub(crate) fn name(self) -> &'static str {
        (self.name)()
    }
}

impl<'a> RunState<'a> {
    pub(crate) fn new<T: Any>(state: &'a mut T) -> Self {
        let value = NonNull::from(state).cast();
        Self { of: StateType::of::<T>(), value, lent: Cell::new(false), borrow: PhantomData }
    }

    /// The state of a run.
    ///
    /// # Safety
    ///
    /// `env` is the environment of the run in progress.
    pub(crate) unsafe fn of_run<'r>(env: *mut RunEnv) -> Option<&'r Self> {
        // SAFETY: the caller's promise. `Program::call_now` stores null or an address that outlives the run.
        unsafe { std::ptr::with_exposed_provenance::<Self>((*env).state as usize).as_ref() }
    }

    pub(crate) fn of(&self) -> StateType {
        self.of
    }

    /// The value and whether a function has it, if it is a `T`.
    pub(crate) fn place<T: Any>(&self) -> Option<(NonNull<T>, &Cell<bool>)> {
        (self.of.id() == TypeId::of::<T>()).then(|| (self.value.cast(), &self.lent))
    }
}
