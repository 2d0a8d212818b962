//! Watched functions: what a host learns of each call of a function, and of its return.

use skep_abi::RunEnv;

/// Called around a function. `words` are its arguments, and after it also its result, which comes behind the last
/// argument; the word before the first one is the number of arguments.
///
/// # Safety
///
/// The compiled code passes the `data` that it was made with, words that are valid for the call, and the environment of
/// the run in progress; its lowest bits, below [`RunEnv::ALIGN`], may hold a count.
pub type WatchFn = unsafe extern "C" fn(data: u64, words: *mut u64, env: *mut RunEnv);

/// What is called around a function.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// What both functions are given.
    pub data: u64,
    /// How many arguments the function has, at most five.
    pub arguments: u8,
    /// Called before the function.
    pub before: WatchFn,
    /// Called after it.
    pub after: WatchFn,
}
