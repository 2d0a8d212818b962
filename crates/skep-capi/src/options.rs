//! Options structures that can grow: the caller gives the size of its own version.
//!
//! ```text
//!   caller's  |size|a|b|          shorter: missing fields are 0, which always means the default
//!   ours      |size|a|b|c|
//!   caller's  |size|a|b|c|d|      longer: refused unless unknown fields are 0
//! ```

use crate::argument::number;
use crate::status::Failure;
use skep::{Budget, Error, Runtime, RuntimeBuilder};
use std::ffi::c_char;
use std::time::Duration;

/// Greater sizes are taken for uninitialised memory.
const MOST: usize = 4096;

/// A C structure that begins with its own size in bytes and for which all zeroes is a valid value.
///
/// # Safety
///
/// `repr(C)`, without padding, begins with a `usize`, and valid if all bytes are zero.
pub(crate) unsafe trait Options: Copy {
    /// Its name in C.
    const NAME: &'static str;
}

/// `skep_runtime_options`: settings of a runtime. Zero means the default in every field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RuntimeOptions {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Number of virtual CPUs: threads that can run programs at the same time.
    pub cpus: u64,
    /// Maximum size of one map in bytes.
    pub map_memory: u64,
    /// Maximum executable memory in bytes.
    pub code_memory: u64,
    /// Hardening of the generated code: the sum of `SKEP_LANDING_PADS` and `SKEP_SIGNED_RETURNS`.
    pub hardening: u64,
    /// The most instructions that the verifier walks for one program.
    pub max_walked: u64,
    /// The most units of work of a run.
    pub budget_units: u64,
    /// The most time of a run in nanoseconds.
    pub budget_ns: u64,
    /// Times that programs see are multiples of this many nanoseconds.
    pub clock_granularity_ns: u64,
    /// A sum of [`RuntimeOptions::FLAGS`].
    pub flags: u64,
}

/// `skep_load_options`: options of a load. Zero means the default in every field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LoadOptions {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The only program to load; null for all.
    pub program: *const c_char,
    /// For programs of type `raw`, the length of the buffer in bytes.
    pub buffer_len: u64,
}

impl RuntimeOptions {
    /// The bits of [`RuntimeOptions::flags`], from the lowest.
    pub const FLAGS: [&'static str; 3] = ["SKEP_UNTRUSTED", "SKEP_PRIVILEGED", "SKEP_INTERRUPTIBLE"];
    /// `SKEP_LANDING_PADS`, of [`RuntimeOptions::hardening`].
    pub const LANDING_PADS: u64 = 1;
    /// `SKEP_SIGNED_RETURNS`, of [`RuntimeOptions::hardening`].
    pub const SIGNED_RETURNS: u64 = 2;

    /// Compiler options for this hardening.
    pub(crate) fn compile(&self) -> Result<skep::jit::Options, Failure> {
        let unknown = self.hardening & !(Self::LANDING_PADS | Self::SIGNED_RETURNS);
        if unknown != 0 {
            return Err(Failure::argument(format!(
                "skep_runtime_options: hardening: {unknown:#x} is unknown to this library; add up SKEP_LANDING_PADS and \
                 SKEP_SIGNED_RETURNS"
            )));
        }
        let mut options = skep::jit::Options::default();
        options.landing_pads = self.hardening & Self::LANDING_PADS != 0;
        options.signed_returns = self.hardening & Self::SIGNED_RETURNS != 0;
        Ok(options)
    }

    /// Refuses options that [`RuntimeOptions::apply`] would refuse.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.apply(skep::Runtime::builder()).map(|_| ())
    }

    /// The settings of a runtime.
    pub(crate) fn apply(&self, mut builder: RuntimeBuilder) -> Result<RuntimeBuilder, Failure> {
        let unknown = self.flags & !((1 << Self::FLAGS.len()) - 1);
        if unknown != 0 {
            let text = format!("skep_runtime_options: flags: {unknown:#x} is unknown to this library");
            return Err(Failure::argument(text));
        }
        if self.cpus != 0 {
            builder = builder.cpus(number(self.cpus, "skep_runtime_options: cpus")?);
        }
        if self.map_memory != 0 {
            builder = builder.map_memory(self.map_memory);
        }
        if self.code_memory != 0 {
            builder = builder.code_memory(number(self.code_memory, "skep_runtime_options: code_memory")?);
        }
        if self.max_walked != 0 {
            builder = builder.max_walked(self.max_walked);
        }
        if self.clock_granularity_ns != 0 {
            builder = builder.clock_granularity(Duration::from_nanos(self.clock_granularity_ns));
        }
        let [untrusted, privileged, interruptible] = [1, 2, 4].map(|flag| self.flags & flag != 0);
        if interruptible || self.budget_units != 0 || self.budget_ns != 0 {
            builder = builder.budget(budget(self.budget_units, self.budget_ns));
        }
        if untrusted {
            builder = builder.untrusted();
        }
        Ok(builder.privileged(privileged).compile(self.compile()?))
    }
}

/// A budget; 0 stands for no limit.
pub(crate) fn budget(units: u64, ns: u64) -> Budget {
    let units = if units == 0 { Budget::UNLIMITED } else { Budget::units(units) };
    if ns == 0 { units } else { units.and_time(Duration::from_nanos(ns)) }
}

/// Builds the runtime.
pub(crate) fn build(builder: RuntimeBuilder) -> Result<Runtime, Failure> {
    builder.build().map_err(|error| match error {
        // Here the requested number is out of range. During a run the same error means that all virtual CPUs are taken.
        Error::Slots(_) => Failure::argument(format!("skep_runtime_options: cpus: {error}")),
        error => error.into(),
    })
}

// SAFETY: ten words of numbers.
unsafe impl Options for RuntimeOptions {
    const NAME: &'static str = "skep_runtime_options";
}

// SAFETY: three words, of which the pointer may be null.
unsafe impl Options for LoadOptions {
    const NAME: &'static str = "skep_load_options";
}

/// A copy of the caller's options; `None` for a null pointer.
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
    // SAFETY: the caller's promise covers at least the size field.
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
            "{name}: unknown option at byte {} for library version {}; install a newer library or set it to 0",
            ours + at,
            env!("CARGO_PKG_VERSION")
        )));
    }
    // SAFETY: the caller's promise.
    Ok(Some(unsafe { known(given, size) }))
}

/// What this library knows of options that may have more; `None` if there are none, or their size is impossible.
///
/// # Safety
///
/// As for [`read`].
pub(crate) unsafe fn read_known<T: Options>(given: *const T) -> Option<T> {
    // SAFETY: the caller's promise covers at least the size field.
    let size = unsafe { check(given) }.ok()?;
    // SAFETY: the caller's promise.
    Some(unsafe { known(given.cast(), size) })
}

/// The first fields, and zeroes for missing ones.
///
/// # Safety
///
/// Readable for `size` bytes.
unsafe fn known<T: Options>(given: *const u8, size: usize) -> T {
    let mut options = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: both are that long; all zeroes is a valid value, and the caller's bytes come from a value of the
    // type.
    unsafe {
        given.copy_to_nonoverlapping(options.as_mut_ptr().cast(), size.min(size_of::<T>()));
        options.assume_init()
    }
}

/// Refuses a structure to fill that is null or whose size is impossible. Returns the size.
///
/// # Safety
///
/// Null, or readable for the `usize` at its start.
pub(crate) unsafe fn check<T: Options>(to: *const T) -> Result<usize, Failure> {
    let name = T::NAME;
    if to.is_null() {
        return Err(Failure::argument(format!("{name} is NULL")));
    }
    // SAFETY: the caller's promise covers at least the size field.
    let size = unsafe { to.cast::<usize>().read_unaligned() };
    if (size_of::<usize>()..=MOST).contains(&size) {
        return Ok(size);
    }
    Err(Failure::argument(format!(
        "{name}: its size is {size}; set it to sizeof(struct {name}) before the call"
    )))
}

/// Fills a structure of the caller's, up to the size that it gives, which stays.
///
/// # Safety
///
/// Null, or writable for as many bytes as the `usize` at its start says. `T` has no padding.
pub(crate) unsafe fn write<T: Options>(to: *mut T, value: T) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let size = unsafe { check(to.cast_const())? };
    let word = size_of::<usize>();
    // SAFETY: both have that many bytes; the first word stays the caller's. What a newer caller has more is zero.
    unsafe {
        let (from, to) = (std::ptr::from_ref(&value).cast::<u8>(), to.cast::<u8>());
        let known = size.min(size_of::<T>());
        to.add(word).copy_from_nonoverlapping(from.add(word), known - word);
        to.add(known).write_bytes(0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[usize]) -> Result<Option<LoadOptions>, Failure> {
        // SAFETY: the tests below pass at least as many bytes as the first word says, or a size that is refused.
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
    fn a_longer_structure_must_not_set_unknown_options() {
        assert_eq!(words(&[40, 0, 7, 0, 0]).ok().flatten().expect("options").buffer_len, 7);
        let text = refusal(&[40, 0, 7, 0, 1]);
        assert!(text.starts_with("skep_load_options: unknown option at byte 32"), "{text}");
    }

    fn hardened(hardening: u64) -> RuntimeOptions {
        // SAFETY: all zeroes is a valid value.
        let zero: RuntimeOptions = unsafe { std::mem::zeroed() };
        RuntimeOptions { hardening, ..zero }
    }

    #[test]
    fn hardening_is_a_sum_of_flags() {
        for hardening in 0..4 {
            let options = hardened(hardening);
            let compile = options.compile().ok().expect("known");
            let back = [
                (compile.landing_pads, RuntimeOptions::LANDING_PADS),
                (compile.signed_returns, RuntimeOptions::SIGNED_RETURNS),
            ];
            let sum: u64 = back.into_iter().filter_map(|(asked, flag)| asked.then_some(flag)).sum();
            assert_eq!(sum, hardening);
        }
        for hardening in [4, 7, 1 << 63] {
            let options = hardened(hardening);
            assert!(options.compile().is_err(), "{hardening:#x}");
        }
    }

    #[test]
    fn an_impossible_size_is_refused() {
        for size in [0, 7, 4097, usize::MAX] {
            let text = refusal(&[size]);
            assert!(text.contains(&format!("its size is {size};")), "{text}");
        }
    }
}
