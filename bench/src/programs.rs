//! The benchmark programs: C sources that are BPF and native code alike; and programs in assembler.

use crate::Result;
use skep::Object;
use skep::abi::{MapDef, ProgramType};

/// A benchmark program.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Bytes of memory that it is given.
    pub(crate) bytes: usize,
    /// What that memory holds at first.
    pub(crate) memory: Memory,
    /// Whether it needs neither maps nor helpers.
    pub(crate) plain: bool,
    /// What every engine must return.
    pub(crate) result: u64,
    /// What it measures.
    pub(crate) measures: &'static str,
    /// The BPF object.
    pub(crate) object: &'static [u8],
    /// The same function as native code, at several places; empty where there is none.
    pub(crate) native: &'static [Native],
}

/// A benchmark program as native code.
pub(crate) type Native = unsafe extern "C" fn(memory: *mut u8, len: u64) -> u64;

/// What a program's memory holds at first.
pub(crate) enum Memory {
    /// The words of SplitMix64 from this seed, little-endian.
    Seed(u64),
    /// These bytes, and zeroes after them.
    File(&'static [u8]),
}

include!(concat!(env!("OUT_DIR"), "/programs.rs"));

impl Program {
    /// Its memory before the first run.
    pub(crate) fn fresh_memory(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = match self.memory {
            Memory::File(bytes) => bytes.to_vec(),
            Memory::Seed(mut state) => {
                (0..self.bytes.div_ceil(8)).flat_map(|_| split_mix(&mut state).to_le_bytes()).collect()
            }
        };
        bytes.resize(self.bytes, 0);
        bytes
    }
}

/// SplitMix64.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// An object with one program in assembler, which names maps by their index.
pub(crate) fn assembled(
    name: &str,
    kind: &'static ProgramType,
    text: &str,
    maps: Vec<MapDef>,
) -> Result<Object> {
    let insns = skep::isa::assemble(text).map_err(|error| format!("{name}: {error}"))?;
    Ok(Object::from_bytecode_and_maps(name, kind, &skep::isa::encode_bytes(&insns)?, maps)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_code_returns_what_the_table_says_at_every_placement_and_again() {
        for program in PROGRAMS.iter().chain(SECOND) {
            for native in program.native {
                let mut memory = program.fresh_memory();
                for run in 0..2 {
                    // SAFETY: the function reads and writes the `bytes` bytes that it is given.
                    let result = unsafe { native(memory.as_mut_ptr(), program.bytes as u64) };
                    assert_eq!(result, program.result, "{} in run {run}", program.name);
                }
            }
        }
    }
}
