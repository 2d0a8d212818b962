//! Violations that checking mode finds, and their texts.

use std::fmt;

use skep_isa::Reg;
use skep_verifier::Mismatch;

use crate::exec::AccessKind;

/// A forbidden action of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slot of the instruction, from 0.
    pub slot: u32,
    /// The kind of violation.
    pub reason: Reason,
}

/// The ways to break the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It accessed memory through a null pointer, perhaps with an offset.
    Null(MemoryAccess),
    /// It accessed memory that is not the program's.
    Unknown(MemoryAccess),
    /// It accessed part of the context that is no field.
    NoField(MemoryAccess),
    /// It read memory that may only be written.
    NotReadable(MemoryAccess),
    /// It wrote memory that may only be read.
    NotWritable(MemoryAccess),
    /// It read bytes of the stack that were never written.
    UninitialisedStack(MemoryAccess),
    /// It made an atomic access that is not aligned to its size.
    MisalignedAtomic(MemoryAccess),
    /// It read a register that was never written, or that a call clobbered.
    UninitialisedRegister(Reg),
    /// It used a legacy packet load, and `r6` is not the context.
    NotTheContext {
        /// The value of `r6`.
        value: u64,
    },
    /// It called a helper that has no prototype.
    UnknownHelper {
        /// The helper's number.
        id: u32,
    },
    /// It passed a helper an argument that the prototype does not allow.
    Argument {
        /// The number of the argument, from 1.
        number: u8,
        /// Its value.
        value: u64,
    },
    /// It accessed the arena where no offset of 32 bits and an instruction's leads.
    OutsideOfArena,
    /// It accesses bytes of an iterator, which only the iterator's functions may do.
    Iterator(MemoryAccess),
    /// It ends a function with a live iterator in its stack.
    IteratorLeft {
        /// The iterator's address.
        address: u64,
    },
    /// It was executed although the verifier's facts say that it is unreachable.
    Unreached,
    /// It jumped to a slot that the verifier's facts do not mark as a jump target, or back to one that they do not
    /// mark as a loop head.
    UnmarkedTarget {
        /// The slot it jumped to.
        target: u32,
    },
    /// A conditional jump that the verifier decided would go the other way.
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
    /// It called a helper with a key out of the array's bounds, although the verifier's facts say that it is in
    /// bounds.
    WrongBoundsFact {
        /// The key in memory.
        found: u32,
    },
    /// No recorded state of the verifier for this instruction contains the machine's state.
    OutsideOfStates(Box<Mismatch>),
    /// The run has used up its budget of instructions.
    OutOfFuel {
        /// Number of instructions executed.
        executed: u64,
    },
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Its address.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its kind.
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
            Self::Unknown(access) => write!(f, "{access} outside of the program's memory"),
            Self::NoField(access) => write!(f, "{access} in the context outside of its fields"),
            Self::NotReadable(access) => write!(f, "{access} of write-only memory"),
            Self::NotWritable(access) => write!(f, "{access} of read-only memory"),
            Self::UninitialisedStack(access) => write!(f, "{access} of stack that was never written"),
            Self::MisalignedAtomic(access) => write!(f, "{access} by a misaligned atomic operation"),
            Self::UninitialisedRegister(reg) => write!(f, "reads {reg}, which is uninitialised"),
            Self::NotTheContext { value } => {
                write!(f, "loads from the packet with {value:#x} in r6, which is not the context")
            }
            Self::UnknownHelper { id } => write!(f, "calls helper {id}, which has no prototype"),
            Self::Argument { number, value } => {
                write!(f, "argument {number} is {value:#x}, which the prototype does not allow")
            }
            Self::OutsideOfArena => f.write_str("accesses the arena outside of its window and guards"),
            Self::Iterator(access) => write!(f, "{access} that belong to an iterator"),
            Self::IteratorLeft { address } => {
                write!(
                    f,
                    "ends the function, but the iterator at {address:#x} in its stack was not destroyed"
                )
            }
            Self::Unreached => f.write_str("executed, but the verifier found it unreachable"),
            Self::UnmarkedTarget { target } => {
                write!(f, "jumps to {target}, which the verifier did not mark as a target")
            }
            Self::WrongBranch { taken } => {
                let verb = if taken { "is" } else { "is not" };
                write!(f, "the removed conditional jump {verb} taken, which the verifier ruled out")
            }
            Self::WrongMapFact { map } => {
                write!(f, "calls with another map than {map}, which the verifier expected")
            }
            Self::WrongKeyFact { fact, found } => {
                write!(f, "calls with the key {found} instead of the verifier's {fact}")
            }
            Self::WrongBoundsFact { found } => {
                write!(
                    f,
                    "calls with the key {found}, which is out of bounds although the verifier proved otherwise"
                )
            }
            Self::OutsideOfStates(ref mismatch) => mismatch.fmt(f),
            Self::OutOfFuel { executed } => write!(f, "still running after {executed} instructions"),
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
