//! Violations of the verifier's rules, which become a [`crate::Refusal`].

use crate::domain::resources::Guard;

/// The class of a refusal, stable for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The instructions do not form a program: bad jump, missing exit, overlapping functions.
    Structure,
    /// A register or stack byte is read before it is written.
    Uninitialised,
    /// An access outside of its object.
    OutOfBounds,
    /// An access that is not aligned, under strict alignment.
    Misaligned,
    /// A pointer that may be null is used.
    MaybeNull,
    /// Arithmetic that pointers do not allow.
    PointerArithmetic,
    /// A pointer would leak.
    PointerLeak,
    /// A write where only reads are allowed.
    ReadOnly,
    /// A call with an argument that the prototype does not allow.
    Argument,
    /// A helper that does not exist, or that this program type or licence may not call.
    Helper,
    /// A context access outside of its fields, or a write to a read-only field.
    Context,
    /// Too much stack, or too many frames.
    Stack,
    /// A reference, lock or section that is not given back, or not held.
    Resource,
    /// A loop that does not provably end.
    Loop,
    /// More work or memory than the limits allow.
    Limit,
    /// Types of the host that are needed are missing or damaged.
    Types,
    /// A return value that is not allowed.
    Return,
    /// Something that this version does not support yet.
    Unsupported,
}

impl Code {
    /// Its name in machine-readable output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Uninitialised => "uninitialised",
            Self::OutOfBounds => "out-of-bounds",
            Self::Misaligned => "misaligned",
            Self::MaybeNull => "maybe-null",
            Self::PointerArithmetic => "pointer-arithmetic",
            Self::PointerLeak => "pointer-leak",
            Self::ReadOnly => "read-only",
            Self::Argument => "argument",
            Self::Helper => "helper",
            Self::Context => "context",
            Self::Stack => "stack",
            Self::Resource => "resource",
            Self::Loop => "loop",
            Self::Limit => "limit",
            Self::Types => "types",
            Self::Return => "return",
            Self::Unsupported => "unsupported",
        }
    }
}

/// A reason to refuse the program.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) code: Code,
    /// Where, if not at the instruction that is being walked.
    pub(crate) slot: Option<u32>,
    /// What was expected and what was found.
    pub(crate) reason: String,
    /// What to change.
    pub(crate) suggestion: Option<&'static str>,
    /// What it is about, if not a register that the reason names.
    pub(crate) about: About,
    /// What Linux's verifier says of it.
    pub(crate) words: Option<String>,
}

/// What a violation is about: where the path that led to it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum About {
    /// The registers that the reason names.
    #[default]
    Named,
    /// Bytes of a stack, from `r10`.
    Stack { offset: i32, size: u32 },
    /// A section or lock that the path has left, besides the registers that the reason names.
    Left(Guard),
}

/// The result of one step; violations are rare and boxed.
pub(crate) type Checked<T> = Result<T, Box<Violation>>;

impl Violation {
    #[cold]
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Box<Self> {
        let reason = reason.into();
        Box::new(Self { code, slot: None, reason, suggestion: None, about: About::Named, words: None })
    }

    #[cold]
    pub(crate) fn at(code: Code, slot: usize, reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { slot: Some(slot as u32), ..*Self::new(code, reason) })
    }

    pub(crate) fn suggest(mut self: Box<Self>, suggestion: &'static str) -> Box<Self> {
        self.suggestion = Some(suggestion);
        self
    }

    /// Adds what Linux's verifier says of the same.
    pub(crate) fn in_linux(mut self: Box<Self>, words: impl Into<String>) -> Box<Self> {
        self.words = Some(words.into());
        self
    }

    /// Adds a line to what Linux's verifier says of the same.
    pub(crate) fn also_in_linux(mut self: Box<Self>, line: &str) -> Box<Self> {
        self.words = Some(match self.words.take() {
            Some(words) => format!("{words}\n{line}"),
            None => line.to_owned(),
        });
        self
    }

    /// Says that it is about these bytes of a stack.
    pub(crate) fn of_stack(mut self: Box<Self>, offset: i32, size: u32) -> Box<Self> {
        self.about = About::Stack { offset, size };
        self
    }

    /// Says that it would be allowed if the path were still in this.
    pub(crate) fn outside_of(mut self: Box<Self>, guard: Guard) -> Box<Self> {
        self.about = About::Left(guard);
        self
    }
}

/// Types that are damaged.
pub(crate) fn damaged(error: skep_btf::Error) -> Box<Violation> {
    Violation::new(Code::Types, format!("the given types cannot be used: {error}"))
}
