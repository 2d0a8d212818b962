//! Why a program was refused: data first, text second.

use crate::program::violation::Code;
use std::fmt;
use std::sync::Arc;

/// One step of the path to a refusal. Only steps that matter for it are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The slot.
    pub slot: u32,
    /// The instruction, and for branches with both ways open the way taken.
    pub text: String,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// The source line's text.
    pub source: Option<Arc<str>>,
    /// The value that it made: `r2 = pkt(r=0)`; may be empty.
    pub state: String,
    /// Why it matters.
    pub why: Why,
}

/// Why a step matters for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// It made the value, or an operand of it.
    Makes,
    /// A comparison narrowed the value.
    Narrows,
    /// A call passed it as an argument.
    Passes,
    /// A function returned it.
    Returns,
    /// A call did not preserve it, made it unusable, or left the section or lock that it needed.
    Loses,
    /// A jump passed over an instruction that would have written it.
    Skips,
    /// It decided that control reached the refused instruction.
    Leads,
}

impl Why {
    /// Its name in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Makes => "makes",
            Self::Narrows => "narrows",
            Self::Passes => "passes",
            Self::Returns => "returns",
            Self::Loses => "loses",
            Self::Skips => "skips",
            Self::Leads => "leads",
        }
    }
}

/// Why a program was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The program's name.
    pub program: String,
    /// The class.
    pub code: Code,
    /// The slot of the instruction.
    pub slot: u32,
    /// The instruction in assembler.
    pub insn: String,
    /// What was expected and what was found.
    pub reason: String,
    /// What to change, if known.
    pub suggestion: Option<String>,
    /// What Linux's verifier says of the same, in its own words, where tools look for them; one line or several.
    pub words: Option<String>,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// The source line's text.
    pub source: Option<Arc<str>>,
    /// The steps that matter, oldest first.
    pub path: Vec<Step>,
    /// Instructions walked until then.
    pub walked: u64,
    /// The most states at once until then.
    pub peak_states: u64,
    /// Nanoseconds it took.
    pub nanoseconds: u64,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} refused at instruction {} `{}`", self.program, self.slot, self.insn)?;
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, " ({file}:{line})")?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(suggestion) = &self.suggestion {
            write!(f, "; {suggestion}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
