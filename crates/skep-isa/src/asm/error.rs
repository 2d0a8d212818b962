//! What can be wrong with assembler text.

use thiserror::Error;

/// Why text is not a program, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct AssembleError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong there.
    pub problem: AssembleProblem,
}

/// What is wrong with assembler text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AssembleProblem {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What could stand here.
        expected: String,
        /// What stands here, quoted, or `the end of the line`.
        found: String,
    },
    /// A number that its place has no room for.
    #[error("{number} is out of range: {what} goes from {min} to {max}{hint}")]
    NumberOutOfRange {
        /// The number as written.
        number: String,
        /// What the number is.
        what: &'static str,
        /// Smallest.
        min: i64,
        /// Largest.
        max: u64,
        /// What to do about it, or nothing.
        hint: &'static str,
    },
    /// A label of that name is there already.
    #[error("the label {name} is already defined in line {first_line}")]
    DuplicateLabel {
        /// Its name.
        name: String,
        /// The line of the first definition.
        first_line: usize,
    },
    /// No line defines this label.
    #[error("no label {name} in this program")]
    UnknownLabel {
        /// Its name.
        name: String,
    },
    /// A label out of reach.
    #[error(
        "the label {name} is {distance} slots away, more than this jump reaches; `gotol` reaches further"
    )]
    LabelTooFar {
        /// Its name.
        name: String,
        /// Slots from the next instruction.
        distance: i64,
    },
    /// The slot number written before an instruction is not that of the instruction.
    #[error("the line says slot {written}, but this is slot {actual}")]
    WrongSlotNumber {
        /// As written.
        written: u64,
        /// As counted.
        actual: usize,
    },
}
