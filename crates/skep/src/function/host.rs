//! The part of a context that programs do not see, for the type's own functions.
//!
//! A program passes its context; the function gets what the host's structure has in its field with `#[context(host)]`,
//! apart from all that programs hold. The verifier has proved that the argument is the run's context, and that the
//! program's type is the function's. The run has put the part's address and its Rust type in front of the context
//! ([`host`](crate::host)), so a mistake here would be found, not believed.

use super::argument::{Argument, Caller, Out, Registers};
use super::memory::Plain;
use crate::host::RunPart;
use crate::image::{Image, Input};
use skep_abi::{ArgKind, RunEnv};
use std::any::TypeId;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The host's part of the context on which the calling program runs, in a function for
/// [`RuntimeBuilder::method`](crate::RuntimeBuilder::method). `T` is
/// [`HostContext::Host`](crate::host::HostContext::Host). The program passes its context.
#[derive(Debug)]
pub struct Host<'a, T>(&'a mut T);

impl<T> Deref for Host<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> DerefMut for Host<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

/// The signatures of functions for programs over contexts whose part for functions is `T`: those that take [`Host<T>`]
/// first, and not again. Implemented for all of these.
///
/// # Safety
///
/// The signature has one [`Host`] and no [`Callback`](super::Callback) beside it: a call gets one mutable reference to
/// the part.
pub unsafe trait Method<T> {}

// SAFETY: one `Host`, and what else there is, is `Shared`.
unsafe impl<'a, T, R> Method<T> for fn(Host<'a, T>) -> R {}
// SAFETY: one `Host`, and what else there is, is `Shared`.
unsafe impl<'a, T, R, A: Shared> Method<T> for fn(Host<'a, T>, A) -> R {}
// SAFETY: one `Host`, and what else there is, is `Shared`.
unsafe impl<'a, T, R, A: Shared, B: Shared> Method<T> for fn(Host<'a, T>, A, B) -> R {}
// SAFETY: one `Host`, and what else there is, is `Shared`.
unsafe impl<'a, T, R, A: Shared, B: Shared, C: Shared> Method<T> for fn(Host<'a, T>, A, B, C) -> R {}
// SAFETY: one `Host`, and what else there is, is `Shared`.
unsafe impl<'a, T, R, A: Shared, B: Shared, C: Shared, D: Shared> Method<T>
    for fn(Host<'a, T>, A, B, C, D) -> R
{
}

/// An argument that a method may have beside [`Host`]: numbers, memory, maps, [`Caller`]. No callback is, because a
/// call of it could reach the part again.
///
/// # Safety
///
/// It leads neither to the part nor to a call of the program.
pub unsafe trait Shared {}

macro_rules! shared {
    ($($argument:ty)*) => {
        $(
            // SAFETY: a value, or memory that is no context's.
            unsafe impl Shared for $argument {}
        )*
    };
}

shared! {
    u8 u16 u32 u64 i8 i16 i32 i64 bool
    &[u8] &mut [u8] Option<&[u8]> Option<&mut [u8]>
    &skep_maps::Map Caller<'_>
}
// SAFETY: a copy of the program's memory.
unsafe impl<T: Plain> Shared for &T {}
// SAFETY: a copy of the program's memory.
unsafe impl<T: Plain> Shared for &mut T {}
// SAFETY: a copy of the program's memory.
unsafe impl<T: Plain> Shared for Out<'_, T> {}

/// The address of the part.
#[derive(Debug)]
pub struct Found<T>(NonNull<T>);

// SAFETY: the address is that of the run's part, which is borrowed mutably until the run ends. Only one argument of a
// call is a part (`Method`), and a call inside of this one is of another run with a context of its own: a program gets
// no pointer to this one while its caller waits.
unsafe impl<T: 'static> Argument for Host<'_, T> {
    type Lent<'a> = Host<'a, T>;
    type Held = Found<T>;
    const KINDS: &'static [ArgKind] = &[ArgKind::HostContext];
    unsafe fn hold(registers: &mut Registers) -> Found<T> {
        let (context, env) = (registers.take(), registers.env());
        // SAFETY: `env` is the environment of the run in progress.
        match unsafe { part(context, env, TypeId::of::<T>()) } {
            Some(host) => Found(host.cast()),
            // The verifier lets only programs of the function's type pass their context here.
            None => std::process::abort(),
        }
    }
    fn lend(held: &mut Found<T>) -> Host<'_, T> {
        // SAFETY: as above.
        Host(unsafe { held.0.as_mut() })
    }
}

/// What a run lends to functions of its type, whatever its type ([`Parameter::Host`](super::Parameter::Host)).
#[derive(Debug)]
pub struct HostPart<'a> {
    place: NonNull<()>,
    of: TypeId,
    lent: PhantomData<&'a mut ()>,
}

impl HostPart<'_> {
    /// The part, if it is a `T`.
    pub fn get<T: 'static>(&mut self) -> Option<&mut T> {
        // SAFETY: the address is that of the run's part, which is borrowed mutably until the run ends, and of this
        // type. Only one argument of a call is a part.
        (self.of == TypeId::of::<T>()).then(|| unsafe { self.place.cast().as_mut() })
    }

    pub(super) fn lend(&mut self) -> HostPart<'_> {
        HostPart { place: self.place, of: self.of, lent: PhantomData }
    }
}

/// The part of the run whose context the next register holds.
///
/// # Safety
///
/// As for [`Argument::hold`], for [`ArgKind::HostContext`]. The result is not used after the call.
pub(super) unsafe fn host_part(registers: &mut Registers) -> HostPart<'static> {
    let (context, env) = (registers.take(), registers.env());
    // SAFETY: `env` is the environment of the run in progress.
    match unsafe { any_part(context, env) } {
        Some((place, of)) => HostPart { place, of, lent: PhantomData },
        // The verifier lets only programs of the function's type pass their context here.
        None => std::process::abort(),
    }
}

/// The part of that type in front of the run's context.
///
/// # Safety
///
/// `env` is the environment of the run in progress.
unsafe fn part(context: u64, env: *mut RunEnv, of: TypeId) -> Option<NonNull<()>> {
    // SAFETY: the caller's promise.
    let (place, found) = unsafe { any_part(context, env) }?;
    (found == of).then_some(place)
}

/// The part in front of the run's context, and its type.
///
/// # Safety
///
/// As for [`part`].
unsafe fn any_part(context: u64, env: *mut RunEnv) -> Option<(NonNull<()>, TypeId)> {
    // SAFETY: the caller's promise.
    let (image, own) = unsafe { (Image::of_run(env), (*env).context) };
    if image.input != Input::Host || context != own || own == 0 {
        return None;
    }
    let front = std::ptr::with_exposed_provenance::<u64>(context as usize).wrapping_sub(1);
    // SAFETY: `typed_program`, which alone runs such programs, has put the address of a `RunPart` that outlives the run
    // into the word in front of the context.
    let part = unsafe { &*std::ptr::with_exposed_provenance::<RunPart>(front.read() as usize) };
    Some((NonNull::new(part.host)?, part.of))
}
