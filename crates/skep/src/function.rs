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
mod callback;
mod declared;
mod dynamic;
mod errno;
mod header;
mod host;
mod memory;
mod returned;
mod state;
mod view;

pub use argument::{Argument, Caller, Out, PacketView};
pub use callback::{Callback, Ended};
pub use declared::Prototypes;
pub(crate) use declared::stub;
pub(crate) use dynamic::dynamic;
pub use dynamic::{Given, Invocation, Parameter, Prototype, Returns};
pub use errno::Errno;
pub(crate) use header::header;
pub use host::{Host, HostPart, Method};
pub use memory::Plain;
pub use returned::Returned;
pub use state::State;
pub use view::{MemoryView, MemoryViewMut};

use crate::ending;
use crate::run_state::StateType;
use crate::shared::Helper;
use argument::Registers;
use skep_abi::{ArgKind, HelperFn, HelperProto, RetKind, RunEnv};
use std::ptr::NonNull;
use std::sync::Arc;

/// A function that programs can call: a `fn` or a closure that takes [`Argument`]s and returns a [`Returned`].
/// Implemented for all of these.
///
/// | argument | the program passes |
/// |---|---|
/// | `u8` to `u64`, `i8` to `i64` | a number; the lower bits are significant |
/// | `bool` | a number: whether it is not 0 |
/// | `&T`, `&mut T` with [`T: Plain`](Plain) | readable, or readable and writable, memory of the size of `T` |
/// | [`Out<T>`](Out) with [`T: Plain`](Plain) | writable memory of the size of `T`, which need not be initialised |
/// | `&[u8]`, `&mut [u8]` | memory, and its size in the next register |
/// | `Option<&[u8]>`, `Option<&mut [u8]>` | the same, or null with a size of 0 |
/// | [`MemoryView`], [`MemoryViewMut`] | memory, and its size in the next register, without copies |
/// | `&Map` | a map |
/// | [`PacketView`] | the program's context |
/// | [`Callback`] | a function of the program, and what it gets as its second argument |
/// | [`Caller`] | nothing: it names the calling program |
/// | [`State`] | nothing: it is what the caller of the run lends |
/// | [`Host<T>`](Host) | the program's context, in functions for programs of one type of the host's own |
///
/// A result is an integer, a `bool`, or nothing, or a [`Result`] of nothing, `bool` or `u8` to `u32` with an [`Errno`];
/// the verifier knows its range.
///
/// # State
///
/// A closure owns what it captures, so state belongs to the runtime that the closure is given to, and two runtimes can
/// differ. Any thread may call it, at the same time as others: what changes needs a lock or an atomic. It is dropped
/// when the runtime and all its programs are gone, on whatever thread that happens. A closure that owns its runtime or
/// a program of it keeps them for ever.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let calls = Arc::new(AtomicU64::new(0));
/// let counted = Arc::clone(&calls);
/// let count = move || -> u64 { counted.fetch_add(1, Ordering::Relaxed) };
/// let runtime = skep::Runtime::builder().function(1000, "count", count).build()?;
/// # let insns = skep::isa::assemble("call count#1000\nexit").expect("the text is right");
/// # let object = skep::Object::from_insns("counting", &skep::abi::RAW, insns);
/// # let module = runtime.linker(&object).buffer_len(4).load()?;
/// # for _ in 0..3 { module.programs()[0].run_raw(&mut [0; 4])?; }
/// assert_eq!(calls.load(Ordering::Relaxed), 3); // after three runs of a program that calls it once
/// # Ok::<(), skep::Error>(())
/// ```
///
/// If the function panics, the program ends right after the call, everything that it holds is released, and the host's
/// run returns [`Error::HostPanicked`](crate::Error::HostPanicked). The function may have left its own state
/// half-changed, as after any panic that is caught; a `Mutex` that it held is poisoned. Changes through mutable
/// arguments are not copied back. With `panic = "abort"` in the host's profile, panics abort the process all the same.
///
/// A function cannot keep its arguments:
///
/// ```compile_fail
/// fn keeps(bytes: &'static [u8]) {}
/// let _ = skep::Runtime::builder().function(1000, "keeps", keeps);
/// ```
///
/// nor own what only one thread may use:
///
/// ```compile_fail
/// let secret = std::rc::Rc::new(7);
/// let runtime = skep::Runtime::builder().function(1000, "guess", move |guess: u32| guess == *secret);
/// ```
///
/// # Safety
///
/// `CALL` must be sound for all arguments that satisfy `ARGS`, and return what `RET` says. This crate implements it
/// for all possible functions.
pub unsafe trait HostFunction<Signature>: Send + Sync + 'static {
    #[doc(hidden)]
    const ARGS: [ArgKind; 5];
    #[doc(hidden)]
    const RET: RetKind;
    #[doc(hidden)]
    const STATE: Option<StateType>;
    #[doc(hidden)]
    const CALL: HelperFn;
}

/// A function as a helper.
pub(crate) fn helper<F: HostFunction<S>, S>(id: u32, name: String, function: F) -> Helper {
    let mut proto = HelperProto::new(id, "", F::ARGS, F::RET);
    proto.name = name.into();
    // What is called back may move the packet, so memory that the function has meanwhile must not be in it.
    proto.moves_packet = proto.calls_back();
    Helper {
        proto,
        call: Some(F::CALL),
        owned: Some(Arc::new(function)),
        takes: F::STATE,
        of_host: true,
        may_panic: true,
    }
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

/// The state among the arguments, and whether the result can say that the function could not have it.
const fn state(arguments: &[Option<StateType>], kinds: [ArgKind; 5], fallible: bool) -> Option<StateType> {
    let (mut found, mut at, mut callbacks) = (None, 0, 0);
    while at < arguments.len() {
        if arguments[at].is_some() {
            assert!(found.is_none(), "a run has one state: a function takes it once");
            assert!(
                fallible,
                "a function that takes the state of a run returns a Result with skep::function::Errno"
            );
            found = arguments[at];
        }
        at += 1;
    }
    at = 0;
    while at < kinds.len() {
        if matches!(kinds[at], ArgKind::Callback(_)) {
            callbacks += 1;
        }
        at += 1;
    }
    assert!(callbacks <= 1, "a function takes at most one callback");
    found
}

/// What the function of the call in progress owns.
///
/// # Safety
///
/// A value of `F` lives at the address that engines note for the call ([`RunEnv::printed`]), or anywhere if it has no
/// bytes. `env` is the environment of the run in progress.
unsafe fn owner<'a, F>(env: *mut RunEnv) -> &'a F {
    if size_of::<F>() == 0 {
        // SAFETY: a type without bytes has one value at most, and the caller says that there is one.
        return unsafe { NonNull::<F>::dangling().as_ref() };
    }
    // SAFETY: the caller's promise. The next call must not find the address.
    unsafe {
        let at = std::mem::take(&mut (*env).printed);
        &*std::ptr::with_exposed_provenance::<F>(at as usize)
    }
}

macro_rules! functions {
    ($($argument:ident $held:ident),*) => {
        // SAFETY: the arguments' kinds are those that the shim takes them by, and so is the result's.
        unsafe impl<F, R, $($argument),*> HostFunction<fn($($argument),*) -> R> for F
        where
            F: Send + Sync + 'static,
            R: Returned,
            $($argument: Argument,)*
            F: Fn($($argument),*) -> R,
            F: for<'a> Fn($($argument::Lent<'a>),*) -> R,
        {
            const ARGS: [ArgKind; 5] = kinds(&[$($argument::KINDS),*]);
            const RET: RetKind = R::KIND;
            const STATE: Option<StateType> =
                state(&[$($argument::STATE),*], Self::ARGS, R::FALLIBLE);
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
                    R: Returned,
                    $($argument: Argument,)*
                    F: for<'a> Fn($($argument::Lent<'a>),*) -> R,
                {
                    // SAFETY: this is only made into a prototype where a function of type `F` was given, which the
                    // runtime keeps, and so do the programs that call it. First: a callback's calls note others.
                    let function = unsafe { owner::<F>(env) };
                    #[allow(unused_mut, unused_variables)] // functions without arguments
                    let mut registers = Registers::new([r1, r2, r3, r4, r5], env);
                    $(
                        // SAFETY: the verifier proved the arguments by the prototype that was made of these types,
                        // and `env` is the run's.
                        #[allow(non_snake_case)]
                        let mut $held = unsafe { $argument::hold(&mut registers) };
                    )*
                    let refused: Option<Errno> = None$(.or($argument::refuses(&$held)))*;
                    let result = match refused {
                        None => {
                            let lent = || function($($argument::lend(&mut $held)),*).into_register();
                            // SAFETY: `env` is the run's; code that calls functions of the host looks for its end.
                            let result = unsafe { ending::guard(call::<F, R, $($argument),*>, env, lent) };
                            // The program ends right after this call, and reads nothing any more.
                            let Some(result) = result else { return 0 };
                            result
                        }
                        Some(errno) => R::failed(errno),
                    };
                    $(
                        // SAFETY: as above; the program is not running meanwhile.
                        unsafe { $argument::give_back($held) };
                    )*
                    result
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
