//! Functions of the program that a host's function calls.

use super::argument::{Argument, Registers};
use super::errno::Errno;
use crate::helpers::callback::call_back;
use skep_abi::{ArgKind, RunEnv};
use std::fmt;
use std::marker::PhantomData;

/// A function of the calling program. It takes two registers: the function `int f(u64 value, void *context)`, and what
/// it gets as its second argument, an address in the program's stack or null.
///
/// The verifier walks the function as often as it takes to prove that any number of calls with any values is safe. What
/// the program keeps in its context is its own: the host sees only results. A function that takes a callback gets no
/// memory of a packet, because what it calls may move the packet.
///
/// ```
/// use skep::function::{Callback, Errno};
/// use skep::{Object, Runtime};
///
/// /// The first of some numbers for which the program's function returns something other than 0.
/// fn first(mut is_wanted: Callback<'_>, below: u32) -> Result<u32, Errno> {
///     for value in 0..below {
///         if is_wanted.call(value.into())? != 0 {
///             return Ok(value);
///         }
///     }
///     Err(Errno::ENOENT)
/// }
///
/// let runtime = Runtime::builder().function(1000, "first", first).build()?;
/// let text = "
///     r1 = func[wanted] ll
///     r2 = 0
///     r3 = 10
///     call first#1000
///     exit
/// wanted:
///     r0 = 0
///     if r1 < 7 goto +1
///     r0 = 1
///     exit";
/// let insns = skep::isa::assemble(text).expect("the text is right");
/// let object = Object::from_insns("asking", &skep::abi::RAW, insns);
/// let module = runtime.linker(&object).buffer_len(4).load()?;
/// assert_eq!(module.programs()[0].run_raw(&mut [0; 4])?, 7);
/// # Ok::<(), skep::Error>(())
/// ```
pub struct Callback<'a> {
    function: u64,
    context: u64,
    env: *mut RunEnv,
    call: PhantomData<&'a mut ()>,
}

/// The run is over: a function that it called back ended it. The host's function should return soon; what it returns
/// does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was ended by a function that was called back")]
pub struct Ended;

impl Callback<'_> {
    /// Calls it. Returns the lower 32 bits of its result.
    ///
    /// # Errors
    ///
    /// [`Ended`] if the run is over; nothing is called from then on.
    pub fn call(&mut self, value: u64) -> Result<i32, Ended> {
        if self.is_over() {
            return Err(Ended);
        }
        // SAFETY: the program passed the function to the helper in progress, and the verifier proved it safe for any
        // value with this context; `env` is the run's.
        let result = unsafe { call_back(self.function, [value, self.context, 0, 0, 0], self.env) };
        if self.is_over() { Err(Ended) } else { Ok(result as i32) }
    }

    fn is_over(&self) -> bool {
        // SAFETY: the environment is that of the run in progress. Programs cannot throw in functions that are called
        // back, so this is another end.
        unsafe { (*self.env).thrown != 0 }
    }
}

impl fmt::Debug for Callback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl From<Ended> for Errno {
    fn from(_: Ended) -> Self {
        Self::ECANCELED
    }
}

/// The registers of a callback.
#[derive(Debug)]
pub struct HeldCallback {
    function: u64,
    context: u64,
    env: *mut RunEnv,
}

// SAFETY: calls the function that `KINDS` makes the verifier walk.
unsafe impl Argument for Callback<'_> {
    type Lent<'a> = Callback<'a>;
    type Held = HeldCallback;
    const KINDS: &'static [ArgKind] =
        &[ArgKind::Callback(skep_abi::Callback::Host), ArgKind::CallbackContext];
    unsafe fn hold(registers: &mut Registers) -> HeldCallback {
        HeldCallback { function: registers.take(), context: registers.take(), env: registers.env() }
    }
    fn lend(held: &mut HeldCallback) -> Callback<'_> {
        Callback { function: held.function, context: held.context, env: held.env, call: PhantomData }
    }
}
