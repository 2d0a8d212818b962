//! Verdicts on one program, and what stands in the way.

use crate::Version;
use std::fmt;
use std::sync::Arc;

/// What is said about a program and a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The release takes the program.
    Accepted,
    /// The release refuses it.
    Refused,
    /// What is known does not decide it.
    NotCertain,
}

impl Verdict {
    /// Its name in tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::NotCertain => "not certain",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kind of thing that stands in the way, stable for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A map of a kind or with a flag that the release lacks.
    Map,
    /// A type of programs or an attachment that the release lacks.
    ProgramType,
    /// A target of the attachment, or another name, that is not among the release's types.
    KernelType,
    /// An instruction, or a form of a function, that the release lacks.
    Instruction,
    /// A helper that the release lacks, at least for programs of this type.
    Helper,
    /// A kernel function that the release lacks, at least for programs of this type.
    KernelFunction,
    /// Something that the verifier refuses in every release.
    Verifier,
    /// Something that the release's verifier may not be able to prove.
    Ability,
    /// Something that was not given, such as the release's types.
    Missing,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 9] = [
        Self::Map,
        Self::ProgramType,
        Self::KernelType,
        Self::Instruction,
        Self::Helper,
        Self::KernelFunction,
        Self::Verifier,
        Self::Ability,
        Self::Missing,
    ];

    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::ProgramType => "program-type",
            Self::KernelType => "kernel-type",
            Self::Instruction => "instruction",
            Self::Helper => "helper",
            Self::KernelFunction => "kernel-function",
            Self::Verifier => "verifier",
            Self::Ability => "ability",
            Self::Missing => "missing",
        }
    }

    /// What it is about, in one sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Map => "A map of a kind or with a flag that the kernel lacks",
            Self::ProgramType => "A type of programs or an attachment that the kernel lacks",
            Self::KernelType => "A name that is not among the kernel's types",
            Self::Instruction => "An instruction or a form of a function that the kernel lacks",
            Self::Helper => "A helper that the kernel lacks, at least for programs of this type",
            Self::KernelFunction => {
                "A kernel function that the kernel lacks, at least for programs of this type"
            }
            Self::Verifier => "Something that the verifier of every kernel refuses",
            Self::Ability => "Something that the kernel's verifier may not be able to prove",
            Self::Missing => "Something that was not given, such as the kernel's types",
        }
    }
}

/// The first thing that stands in a program's way, or that makes its verdict uncertain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Its kind.
    pub rule: Rule,
    /// What it is, in one sentence without a full stop.
    pub text: String,
    /// The release that has what is lacking first, if known.
    pub since: Option<Version>,
    /// Where in the program, if it is at an instruction.
    pub place: Option<Place>,
}

/// An instruction of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its slot.
    pub slot: u32,
    /// The instruction in assembler.
    pub insn: String,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// The source line's text.
    pub source: Option<Arc<str>>,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        let Some(Place { slot, insn, file, line, .. }) = &self.place else { return Ok(()) };
        write!(f, ", at instruction {slot} `{insn}`")?;
        match (file, line) {
            (Some(file), Some(line)) => {
                write!(f, " ({}:{line})", file.rsplit('/').next().unwrap_or_default())
            }
            _ => Ok(()),
        }
    }
}

/// The verdict on a program for a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// What stands in the way; `None` exactly if the program is accepted.
    pub obstacle: Option<Obstacle>,
}

impl Judgement {
    /// Accepted.
    pub const ACCEPTED: Self = Self { verdict: Verdict::Accepted, obstacle: None };

    /// Refused for that reason.
    pub const fn refused(obstacle: Obstacle) -> Self {
        Self { verdict: Verdict::Refused, obstacle: Some(obstacle) }
    }

    /// Not certain for that reason.
    pub const fn not_certain(obstacle: Obstacle) -> Self {
        Self { verdict: Verdict::NotCertain, obstacle: Some(obstacle) }
    }
}
