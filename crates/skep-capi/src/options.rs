//! Structures of options that can grow: a caller says how large its own is.
//!
//! ```text
//!   caller's  |size|a|b|          shorter: what it does not know is 0, which always means the default
//!   ours      |size|a|b|c|
//!   caller's  |size|a|b|c|d|      longer: refused unless what we do not know is 0
//! ```

use crate::status::Failure;
use std::ffi::c_char;

/// Sizes above this are no sizes but memory that nobody initialised.
const MOST: usize = 4096;

/// A C structure whose first field is its own size in bytes and for which all zeroes is a value.
///
/// # Safety
///
/// `repr(C)`, without padding, begins with a `usize`, and valid with all bytes zero.
pub(crate) unsafe trait Options: Copy {
    /// Its name in C.
    const NAME: &'static str;
}

/// `skep_runtime_options`: settings of a runtime. Zero is the default everywhere.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RuntimeOptions {
    /// Bytes in this structure.
    pub size: usize,
    /// Virtual CPUs: threads that can run programs at once.
    pub cpus: u64,
    /// The most bytes that one map may take.
    pub map_memory: u64,
    /// The most bytes of executable memory.
    pub code_memory: u64,
    /// What code does beyond computing: `SKEP_LANDING_PADS` and `SKEP_SIGNED_RETURNS`, added.
    pub hardening: u64,
}

/// `skep_load_options`: choices of a load. Zero is the default everywhere.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LoadOptions {
    /// Bytes in this structure.
    pub size: usize,
    /// The one program to load; null for all.
    pub program: *const c_char,
    /// For programs of type `raw`, bytes in the buffer they will be given.
    pub buffer_len: u64,
}

impl RuntimeOptions {
    /// `SKEP_LANDING_PADS`, of [`RuntimeOptions::hardening`].
    pub const LANDING_PADS: u64 = 1;
    /// `SKEP_SIGNED_RETURNS`, of [`RuntimeOptions::hardening`].
    pub const SIGNED_RETURNS: u64 = 2;

    /// How programs are to be compiled.
    pub(crate) fn compile(&self) -> Result<skep::jit::Options, Failure> {
        let unknown = self.hardening & !(Self::LANDING_PADS | Self::SIGNED_RETURNS);
        if unknown != 0 {
            return Err(Failure::argument(format!(
                "skep_runtime_options: hardening: {unknown:#x} is not known to this library; add up SKEP_LANDING_PADS and \
                 SKEP_SIGNED_RETURNS"
            )));
        }
        let mut options = skep::jit::Options::default();
        options.landing_pads = self.hardening & Self::LANDING_PADS != 0;
        options.signed_returns = self.hardening & Self::SIGNED_RETURNS != 0;
        Ok(options)
    }
}

// SAFETY: five words of numbers.
unsafe impl Options for RuntimeOptions {
    const NAME: &'static str = "skep_runtime_options";
}

// SAFETY: three words, of which the pointer may be null.
unsafe impl Options for LoadOptions {
    const NAME: &'static str = "skep_load_options";
}

/// A copy of the caller's options, `None` where it gives none.
///
/// # Safety
///
/// Null, or readable for as many bytes as the `usize` at its start says.
pub(crate) unsafe fn read<T: Options>(given: *const T) -> Result<Option<T>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    let name = T::NAME;
    let (given, ours) = (given.cast::<u8>(), size_of::<T>());
    // SAFETY: the caller's promise covers at least the field that says how far it reaches.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=MOST).contains(&size) {
        return Err(Failure::argument(format!(
            "{name}: its size is {size}; set it to sizeof(struct {name}) and the rest to 0 before use"
        )));
    }
    // SAFETY: the caller's promise.
    let newer = unsafe { std::slice::from_raw_parts(given, size) }.get(ours..).unwrap_or_default();
    if let Some(at) = newer.iter().position(|byte| *byte != 0) {
        return Err(Failure::argument(format!(
            "{name}: the option at byte {} is not known to this library, which is {}; install a newer one",
            ours + at,
            env!("CARGO_PKG_VERSION")
        )));
    }
    let mut options = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both are that long; all zeroes is a value of the type, and the caller's bytes are from one.
    unsafe {
        given.copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(ours));
        Ok(Some(options.assume_init()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[usize]) -> Result<Option<LoadOptions>, Failure> {
        // SAFETY: the tests below give at least as many bytes as the first word says, or a size that is refused.
        unsafe { read(given.as_ptr().cast()) }
    }

    fn refusal(given: &[usize]) -> String {
        words(given).expect_err("refused").message().to_owned()
    }

    #[test]
    fn a_shorter_structure_leaves_the_rest_at_the_default() {
        let options = words(&[8, 7, 7]).ok().flatten().expect("options");
        assert!(options.program.is_null());
        assert_eq!(options.buffer_len, 0);
        assert_eq!(words(&[24, 0, 7]).ok().flatten().expect("options").buffer_len, 7);
    }

    #[test]
    fn a_longer_structure_must_ask_for_nothing_unknown() {
        assert_eq!(words(&[40, 0, 7, 0, 0]).ok().flatten().expect("options").buffer_len, 7);
        let text = refusal(&[40, 0, 7, 0, 1]);
        assert!(text.starts_with("skep_load_options: the option at byte 32 is not known"), "{text}");
    }

    #[test]
    fn hardening_is_what_was_added_up() {
        for hardening in 0..4 {
            let options = RuntimeOptions { size: 40, cpus: 0, map_memory: 0, code_memory: 0, hardening };
            let compile = options.compile().ok().expect("known");
            let back = [
                (compile.landing_pads, RuntimeOptions::LANDING_PADS),
                (compile.signed_returns, RuntimeOptions::SIGNED_RETURNS),
            ];
            let sum: u64 = back.into_iter().filter_map(|(asked, flag)| asked.then_some(flag)).sum();
            assert_eq!(sum, hardening);
        }
        for hardening in [4, 7, 1 << 63] {
            let options = RuntimeOptions { size: 40, cpus: 0, map_memory: 0, code_memory: 0, hardening };
            assert!(options.compile().is_err(), "{hardening:#x}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        for size in [0, 7, 4097, usize::MAX] {
            let text = refusal(&[size]);
            assert!(text.contains(&format!("its size is {size};")), "{text}");
        }
    }
}
