//! CO-RE relocations without an object file: a client of the system call bpf(2) may leave them to the kernel, and gives
//! instructions, types and records.

use std::fmt;

use skep_btf::Btf;
use skep_isa::Insn;

use crate::co_re::{self, CoRe, Fault, Record};

/// `struct bpf_core_relo`, with the number of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreRecord {
    /// The instruction.
    pub slot: u32,
    /// The type of the program's that it is about.
    pub ty: u32,
    /// The offset of a string in the types: the way into the type.
    pub path: u32,
    /// What is asked, a number of `enum bpf_core_relo_kind`.
    pub kind: u32,
}

/// Why a record cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreError {
    /// Which record it is.
    pub index: usize,
    /// The instruction.
    pub slot: u32,
    /// What is to be relocated.
    pub kind: &'static str,
    /// The type it is about.
    pub target: String,
    /// Why it cannot.
    pub reason: String,
}

/// Applies relocations to the instructions of a program with types of its `own`, so that they fit the target's. What
/// the target does not have becomes a call that must not be reached ([`skep_abi::UNRELOCATED`]).
///
/// # Errors
///
/// The first record that makes no sense, or that needs a target where there is none.
pub fn relocate_core(
    insns: &mut [Insn],
    own: &Btf,
    target: Option<&Btf>,
    records: impl IntoIterator<Item = CoreRecord>,
) -> Result<(), CoreError> {
    let mut co_re = CoRe::new(own, target.unwrap_or(own));
    for (index, CoreRecord { slot, ty, path, kind }) in records.into_iter().enumerate() {
        let reason = if target.is_none() && !co_re::is_about_own_types(kind) {
            "needs the kernel's types: give them with --btf".to_owned()
        } else {
            match co_re.apply(Record { ty, path, question: kind }, insns, slot as usize) {
                Ok(_) => continue,
                Err(Fault::Reason(reason)) => reason.to_owned(),
                Err(Fault::Types(error)) => error.to_string(),
            }
        };
        let target = own.type_name(ty).unwrap_or_else(|_| format!("type {ty}"));
        return Err(CoreError { index, slot, kind: co_re::question_name(kind), target, reason });
    }
    Ok(())
}

impl fmt::Display for CoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, slot, kind, target, reason } = self;
        write!(f, "relo #{index} at instruction {slot}: the {kind} of {target} {reason}")
    }
}

impl std::error::Error for CoreError {}
