//! What programs of type `iter` write: `bpf_seq_printf` and `bpf_seq_write`.
//!
//! The first argument is what the context led to. It is not looked at: a run has one output, that of its effects.

use super::errno::{EINVAL, EOVERFLOW};
use super::format::{copy_string, copy_values, print, take_printed};
use super::print::values_of;
use crate::packet::{Effects, SeqOutput};
use skep_abi::{MAX_FORMAT, MAX_PRINTED, Printable, Printed, RunEnv};

#[inline]
pub(super) unsafe fn printf(
    _seq: u64,
    format: u64,
    size: u64,
    values: u64,
    bytes: u64,
    env: *mut RunEnv,
) -> u64 {
    let size = size as u32 as usize;
    // SAFETY: the verifier proved that `format` is readable for `size` bytes and `values` for `bytes`, or null with 0
    // bytes; `env` is this run's, with the record of this call. What is shown is memory until the run ends.
    unsafe {
        let printed = take_printed(env);
        let mut copies = [0; MAX_PRINTED];
        let Some(copies) = values_of(bytes).and_then(|count| copies.get_mut(..count)) else {
            return EINVAL;
        };
        copy_values(values, copies);
        let format = copy_string(format, size.min(MAX_FORMAT));
        if format.len() == size || format.len() == MAX_FORMAT {
            return EINVAL; // nothing ends it
        }
        let Some(output) = output(env) else { return EINVAL };
        let printed = output.printable(copies, &printed);
        let Ok(text) = print(&format, copies, &printed, output.room()) else { return EINVAL };
        if text.len > text.kept().len() {
            return output.overflow();
        }
        output.write(text.kept())
    }
}

#[inline]
pub(super) unsafe fn write(_seq: u64, bytes: u64, size: u64, env: *mut RunEnv) -> u64 {
    let size = size as u32 as usize;
    // SAFETY: `env` is this run's; the verifier proved that `bytes` is readable for `size`, and the bytes are copied
    // before anything else of the program can run. Other threads may write there, as they may to any memory of a
    // program, so each is read once.
    unsafe {
        let Some(output) = output(env) else { return EINVAL };
        if size > output.room() {
            return output.overflow();
        }
        let copy: Vec<u8> = (0..size).map(|at| (bytes as *const u8).add(at).read_volatile()).collect();
        output.write(&copy)
    }
}

/// The output of the run in progress.
///
/// # Safety
///
/// As for [`Effects::of_run`].
unsafe fn output<'a>(env: *mut RunEnv) -> Option<&'a mut SeqOutput> {
    // SAFETY: the caller's promise.
    unsafe { Effects::of_run(env)?.seq.as_deref_mut() }
}

impl SeqOutput {
    /// What is known of values beside what the verifier has proved: an address in what is shown may be followed to the
    /// end of that. Such programs may see addresses as numbers ([`skep_abi::ProgramType::may_leak`]), so all others are
    /// numbers.
    fn printable(&self, values: &[u64], proved: &Printed) -> Printed {
        let mut all = *proved;
        for (place, value) in all.values.iter_mut().zip(values) {
            if *place != Printable::Hidden {
                continue;
            }
            let rest = |&(start, bytes): &(u64, usize)| {
                let inside = value.checked_sub(start)? as usize;
                bytes.checked_sub(inside).filter(|rest| *rest > 0)
            };
            *place = match self.shown.iter().find_map(rest) {
                Some(rest) => Printable::Memory { bytes: u32::try_from(rest).unwrap_or(u32::MAX) },
                None => Printable::Number,
            };
        }
        all
    }

    fn room(&self) -> usize {
        Self::MOST - self.bytes.len()
    }

    fn write(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.extend_from_slice(bytes);
        0
    }

    fn overflow(&mut self) -> u64 {
        self.overflown = true;
        EOVERFLOW
    }
}
