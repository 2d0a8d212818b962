//! The programs of `skep-bench pack`: many of about the same size, no two alike, compiled by skep itself.
//!
//! The benchmark places code, so the programs must run anywhere: they call nothing and refer to nothing outside
//! themselves. They are arithmetic on registers and a buffer, with some branches that are hardly ever taken, like
//! checks. Each program has constants of its own, so no two share code or results, and a call of the wrong one is
//! detected. Lengths vary by a tenth, as those of real programs do.
//!
//! Every copy is run and compared with the interpreter's result before anything is measured.

use crate::Result;
use crate::programs::assembled;
use crate::random::Random;
use skep::abi::RAW;
use skep::{Engine, Runtime};
use std::fmt::Write;

/// Bytes of the buffer that every program gets.
pub(crate) const BUFFER: usize = 64;

/// The machine code of a program, and what it must return.
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
    pub(crate) result: u64,
}

/// Compiles `count` programs of `size` bytes, give or take a tenth.
///
/// # Errors
///
/// What the runtime refuses; a program that cannot be made that long.
pub(crate) fn compile(count: usize, size: usize) -> Result<Vec<Code>> {
    let runtime = Runtime::new()?;
    // Blocks that were right for the last program are nearly right for the next.
    let mut steps = size / 6;
    let mut codes = Vec::with_capacity(count);
    for seed in 0..count as u64 {
        // Lengths spread evenly over half of what is allowed: an instruction more or less takes the rest.
        let wanted = size - size / 20 + (seed.wrapping_mul(7919) as usize) % (size / 10);
        let code = fitted(&runtime, seed, wanted, &mut steps)?;
        if code.bytes.len().abs_diff(size) > size / 10 {
            return Err(format!("a program of {} bytes where {size} were wanted", code.bytes.len()).into());
        }
        codes.push(code);
    }
    Ok(codes)
}

/// The empty program: entry and exit, nothing between.
pub(crate) fn empty() -> Result<Code> {
    one(&Runtime::new()?, "r0 = 0\nexit\n")
}

/// A program as near to `wanted` bytes as the steps allow.
fn fitted(runtime: &Runtime, seed: u64, wanted: usize, steps: &mut usize) -> Result<Code> {
    let mut best: Option<Code> = None;
    for _ in 0..12 {
        let code = one(runtime, &source(seed, *steps))?;
        let missing = wanted as isize - code.bytes.len() as isize;
        let better =
            best.as_ref().is_none_or(|best| best.bytes.len().abs_diff(wanted) > missing.unsigned_abs());
        if better {
            best = Some(code);
        } else {
            break;
        }
        // A step is between 3 and 9 bytes long.
        let by = missing / 6;
        if by == 0 {
            break;
        }
        *steps = steps.saturating_add_signed(by).max(1);
    }
    Ok(best.ok_or_else(|| format!("no program of {wanted} bytes could be made"))?)
}

fn one(runtime: &Runtime, text: &str) -> Result<Code> {
    let object = assembled("packed", &RAW, text, Vec::new())?;
    let module = runtime.linker(&object).buffer_len(BUFFER as u32).load()?;
    let program = &module.programs()[0];
    let result = program.run_raw_with(Engine::Interpreter, &mut buffer())?;
    Ok(Code { bytes: program.compiled().text().bytes(), result })
}

/// The buffer as every program gets it.
pub(crate) fn buffer() -> [u8; BUFFER] {
    std::array::from_fn(|at| at as u8)
}

fn source(seed: u64, steps: usize) -> String {
    let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut text =
        format!("r3 = *(u64 *)(r1 + 0)\nr4 = *(u64 *)(r1 + 8)\nr5 = {}\nr0 = 0\n", small(&mut random));
    for step in 0..steps {
        let value = small(&mut random);
        match step % 8 {
            0 => writeln!(text, "r3 += {value}"),
            1 => writeln!(text, "r4 ^= {value}"),
            2 => writeln!(text, "r5 += r3"),
            3 => writeln!(text, "r0 ^= r4"),
            4 => writeln!(text, "r3 ^= {value}"),
            5 => writeln!(text, "r0 += r5"),
            // Equal by a chance of 1 in 2^64.
            6 => writeln!(text, "if r3 == {value} goto out"),
            _ => writeln!(text, "r4 += r5"),
        }
        .expect("a string takes all text");
    }
    text.push_str("r0 ^= r3\nr0 += r4\nout:\nexit\n");
    text
}

/// A positive number of 31 bits, never small.
fn small(random: &mut Random) -> u64 {
    (random.next() >> 34) | 0x0100_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_size_they_are_named_by_and_no_two_are_alike() {
        for size in [150, 600] {
            let codes = compile(24, size).unwrap();
            assert!(codes.iter().all(|code| code.bytes.len().abs_diff(size) <= size / 10));
            let mut results: Vec<u64> = codes.iter().map(|code| code.result).collect();
            results.sort_unstable();
            results.dedup();
            assert_eq!(results.len(), 24);
            let mean = codes.iter().map(|code| code.bytes.len()).sum::<usize>() / 24;
            assert!(mean.abs_diff(size) <= size / 20, "{mean}");
        }
    }
}
