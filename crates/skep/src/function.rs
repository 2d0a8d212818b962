//! A host's Rust functions as helpers: the prototype comes from the signature.
//!
//! ```text
//!   fn tenant_of(address: u32, table: &[u8]) -> u8
//!                  r1: a number  r2, r3: memory and its size   r0: 0..=255
//! ```
//!
//! The verifier proves for each call what the signature needs, so a host writes no `unsafe`. Arguments are copied in
//! before the function runs, and mutable ones are copied back after it. A Rust reference would not allow two cases: a
//! program may pass the same memory twice, and other threads may change maps meanwhile.

mod argument;
mod host;
mod memory;

pub use argument::{Argument, Caller, Out, PacketView, Returned};
pub use host::{Host, Method};
pub use memory::Plain;

use argument::Registers;
use skep_abi::{ArgKind, HelperFn, HelperProto, RetKind, RunEnv};

/// A function that programs can call: it takes [`Argument`]s, returns a [`Returned`], and has no state (a `fn`, or a
/// closure that captures nothing). Implemented for all of these.
///
/// | argument | the program passes |
/// |---|---|
/// | `u8` to `u64`, `i8` to `i64` | a number; the lower bits are significant |
/// | `bool` | a number: whether it is not 0 |
/// | `&T`, `&mut T` with [`T: Plain`](Plain) | readable, or readable and writable, memory of the size of `T` |
/// | [`Out<T>`](Out) with [`T: Plain`](Plain) | writable memory of the size of `T`, which need not be initialised |
/// | `&[u8]`, `&mut [u8]` | memory, and its size in the next register |
/// | `Option<&[u8]>`, `Option<&mut [u8]>` | the same, or null with a size of 0 |
/// | `&Map` | a map |
/// | [`PacketView`] | the program's context |
/// | [`Caller`] | nothing: it names the calling program |
/// | [`Host<T>`](Host) | the program's context, in functions for programs of one type of the host's own |
///
/// A result is an integer, a `bool`, or nothing; the verifier knows its range.
///
/// A panic in the function aborts the process: a program's frames cannot be unwound.
///
/// A function cannot keep its arguments:
///
/// ```compile_fail
/// fn keeps(bytes: &'static [u8]) {}
/// let _ = skep::Runtime::builder().function(1000, "keeps", keeps);
/// ```
///
/// and has no state:
///
/// ```compile_fail
/// let secret = std::env::args().count() as u32;
/// let runtime = skep::Runtime::builder().function(1000, "guess", move |guess: u32| guess == secret);
/// ```
///
/// # Safety
///
/// `CALL` must be sound for all arguments that satisfy `ARGS`, and return what `RET` says. This crate implements it
/// for all possible functions.
pub unsafe trait HostFunction<Signature>: Copy + Send + Sync + 'static {
    #[doc(hidden)]
    const ARGS: [ArgKind; 5];
    #[doc(hidden)]
    const RET: RetKind;
    #[doc(hidden)]
    const CALL: HelperFn;
}

/// The prototype and the implementation of a function as a helper.
pub(crate) fn helper<F: HostFunction<S>, S>(id: u32, name: String) -> (HelperProto, HelperFn) {
    let mut proto = HelperProto::new(id, "", F::ARGS, F::RET);
    proto.name = name.into();
    (proto, F::CALL)
}

/// The kinds of several arguments, side by side.
const fn kinds(arguments: &[&[ArgKind]]) -> [ArgKind; 5] {
    let mut all = [ArgKind::None; 5];
    let (mut at, mut argument) = (0, 0);
    while argument < arguments.len() {
        let mut part = 0;
        while part < arguments[argument].len() {
            assert!(at < 5, "a helper's arguments take at most five registers; slices take two");
            all[at] = arguments[argument][part];
            at += 1;
            part += 1;
        }
        argument += 1;
    }
    all
}

/// The only value of a type without state.
///
/// # Safety
///
/// A value of `F` exists.
unsafe fn stateless<F: Copy>() -> F {
    const {
        assert!(
            size_of::<F>() == 0,
            "a host's function may not capture anything: its state belongs in statics"
        );
    }
    // SAFETY: a type without bytes has one value at most, and the caller says that there is one.
    unsafe { std::ptr::NonNull::<F>::dangling().read() }
}

macro_rules! functions {
    ($($argument:ident $held:ident),*) => {
        // SAFETY: the arguments' kinds are those that the shim takes them by, and so is the result's.
        unsafe impl<F, R, $($argument),*> HostFunction<fn($($argument),*) -> R> for F
        where
            F: Copy + Send + Sync + 'static,
            R: Returned,
            $($argument: Argument,)*
            F: Fn($($argument),*) -> R,
            F: for<'a> Fn($($argument::Lent<'a>),*) -> R,
        {
            const ARGS: [ArgKind; 5] = kinds(&[$($argument::KINDS),*]);
            const RET: RetKind = R::KIND;
            const CALL: HelperFn = {
                /// The function behind the machine's calling convention.
                unsafe extern "C" fn call<F, R, $($argument),*>(
                    r1: u64,
                    r2: u64,
                    r3: u64,
                    r4: u64,
                    r5: u64,
                    env: *mut RunEnv,
                ) -> u64
                where
                    F: Copy,
                    R: Returned,
                    $($argument: Argument,)*
                    F: for<'a> Fn($($argument::Lent<'a>),*) -> R,
                {
                    #[allow(unused_mut, unused_variables)] // functions without arguments
                    let mut registers = Registers::new([r1, r2, r3, r4, r5], env);
                    $(
                        // SAFETY: the verifier proved the arguments by the prototype that was made of these types,
                        // and `env` is the run's.
                        #[allow(non_snake_case)]
                        let mut $held = unsafe { $argument::hold(&mut registers) };
                    )*
                    // SAFETY: this is only made into a prototype where a function of type `F` was given.
                    let function = unsafe { stateless::<F>() };
                    let result = function($($argument::lend(&mut $held)),*);
                    $(
                        // SAFETY: as above; the program is not running meanwhile.
                        unsafe { $argument::give_back($held) };
                    )*
                    result.into_register()
                }
                call::<F, R, $($argument),*>
            };
        }
    };
}

functions!();
functions!(A a);
functions!(A a, B b);
functions!(A a, B b, C c);
functions!(A a, B b, C c, D d);
functions!(A a, B b, C c, D d, E e);
