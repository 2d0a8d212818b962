//! What a run in checking mode finds, and how it is told.

use std::fmt;

use skep_isa::Reg;
use skep_verifier::Mismatch;

use crate::exec::AccessKind;

/// What a program did and may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slot of the instruction, from 0.
    pub slot: u32,
    /// What it did.
    pub reason: Reason,
}

/// In what way an instruction broke the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It accessed memory through a null pointer, perhaps with an offset.
    Null(MemoryAccess),
    /// It accessed memory that is not the program's.
    Unknown(MemoryAccess),
    /// It accessed the context where no field is.
    NoField(MemoryAccess),
    /// It read memory that may only be written.
    NotReadable(MemoryAccess),
    /// It wrote memory that may only be read.
    NotWritable(MemoryAccess),
    /// It read bytes of the stack that were never written.
    UninitialisedStack(MemoryAccess),
    /// It made an atomic access that is not aligned to its size.
    MisalignedAtomic(MemoryAccess),
    /// It read a register that was never written, or not since a call lost it.
    UninitialisedRegister(Reg),
    /// It loads from the packet by a legacy load, and `r6` is not the context.
    NotTheContext {
        /// What `r6` is.
        value: u64,
    },
    /// It called a helper that has no prototype.
    UnknownHelper {
        /// The helper's number.
        id: u32,
    },
    /// It passed a helper an argument that the prototype does not allow.
    Argument {
        /// Which, from 1.
        number: u8,
        /// Its value.
        value: u64,
    },
    /// It touches bytes of an iterator, which only the iterator's functions may do.
    Iterator(MemoryAccess),
    /// It ends a function in whose stack an iterator was not destroyed.
    IteratorLeft {
        /// The iterator's address.
        address: u64,
    },
    /// It was executed, but the verifier's facts call it unreachable.
    Unreached,
    /// It jumped to a slot that the verifier's facts do not call a jump target, or back to one that they do
    /// not call a loop's head.
    UnmarkedTarget {
        /// The slot it jumped to.
        target: u32,
    },
    /// It goes another way than the conditional jump that the verifier took for decided.
    WrongBranch {
        /// Whether the conditional jump would be taken.
        taken: bool,
    },
    /// It called a helper with another map than the verifier's facts say.
    WrongMapFact {
        /// The map in the facts.
        map: u32,
    },
    /// It called a helper with another key than the verifier's facts say.
    WrongKeyFact {
        /// The key in the facts.
        fact: u32,
        /// The key in memory.
        found: u32,
    },
    /// It called a helper with a key that is no index of the array, which the verifier's facts say it is.
    WrongBoundsFact {
        /// The key in memory.
        found: u32,
    },
    /// No state that the verifier was in there stands for the machine as the run left it.
    OutsideOfStates(Box<Mismatch>),
    /// The run has executed all the instructions it was allowed.
    OutOfFuel {
        /// How many that were.
        executed: u64,
    },
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Where.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Which way.
    pub kind: AccessKind,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}: {}", self.slot, self.reason)
    }
}

impl std::error::Error for Violation {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Null(access) => write!(f, "{access} through a null pointer"),
            Self::Unknown(access) => write!(f, "{access} that is not the program's memory"),
            Self::NoField(access) => write!(f, "{access} in the context where no field is"),
            Self::NotReadable(access) => write!(f, "{access} that may only be written"),
            Self::NotWritable(access) => write!(f, "{access} that may only be read"),
            Self::UninitialisedStack(access) => write!(f, "{access} of stack that was never written"),
            Self::MisalignedAtomic(access) => write!(f, "{access}, atomic but not aligned"),
            Self::UninitialisedRegister(reg) => write!(f, "reads {reg}, which was never written"),
            Self::NotTheContext { value } => {
                write!(f, "loads from the packet with {value:#x} in r6, which is not the context")
            }
            Self::UnknownHelper { id } => write!(f, "calls helper {id}, which has no prototype"),
            Self::Argument { number, value } => {
                write!(f, "argument {number} is {value:#x}, which the helper's prototype does not allow")
            }
            Self::Iterator(access) => write!(f, "{access} that belong to an iterator"),
            Self::IteratorLeft { address } => {
                write!(
                    f,
                    "ends the function, but the iterator at {address:#x} in its stack was not destroyed"
                )
            }
            Self::Unreached => f.write_str("executed, but the verifier found it unreachable"),
            Self::UnmarkedTarget { target } => {
                write!(f, "jumps to {target}, which the verifier did not find to be such a target")
            }
            Self::WrongBranch { taken } => {
                let verb = if taken { "is" } else { "is not" };
                write!(f, "the jump that was here {verb} taken, which the verifier thought impossible")
            }
            Self::WrongMapFact { map } => write!(f, "calls with another map than the verifier's {map}"),
            Self::WrongKeyFact { fact, found } => {
                write!(f, "calls with the key {found} instead of the verifier's {fact}")
            }
            Self::WrongBoundsFact { found } => {
                write!(f, "calls with the key {found}, which the verifier found to be in bounds")
            }
            Self::OutsideOfStates(ref mismatch) => mismatch.fmt(f),
            Self::OutOfFuel { executed } => write!(f, "not at its end after {executed} instructions"),
        }
    }
}

impl fmt::Display for MemoryAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.kind {
            AccessKind::Read => "reads",
            AccessKind::Write => "writes",
            AccessKind::Modify => "modifies",
        };
        write!(f, "{verb} {} bytes at {:#x}", self.bytes, self.address)
    }
}
