//! What goes wrong inside of the verifier, before it is dressed as a [`crate::Refusal`].

use crate::Code;

/// A reason to refuse the program.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// Where, if not at the instruction that is being walked.
    pub(crate) slot: Option<u32>,
    /// What was expected and what was found.
    pub(crate) reason: String,
    /// What to change.
    pub(crate) suggestion: Option<&'static str>,
    /// What it speaks of, where that is not a register that the reason names.
    pub(crate) about: About,
}

/// What a fault speaks of: where the path that led to it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum About {
    /// The registers that the reason names.
    #[default]
    Named,
    /// Bytes of a stack, from `r10`.
    Stack { offset: i32, size: u32 },
}

/// The result of one step; faults are rare and boxed.
pub(crate) type Step<T> = Result<T, Box<Fault>>;

impl Fault {
    #[cold]
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, slot: None, reason: reason.into(), suggestion: None, about: About::Named })
    }

    #[cold]
    pub(crate) fn at(code: Code, slot: usize, reason: impl Into<String>) -> Box<Self> {
        let slot = Some(slot as u32);
        Box::new(Self { code, slot, reason: reason.into(), suggestion: None, about: About::Named })
    }

    pub(crate) fn suggest(mut self: Box<Self>, suggestion: &'static str) -> Box<Self> {
        self.suggestion = Some(suggestion);
        self
    }

    /// Says that it speaks of these bytes of a stack.
    pub(crate) fn of_stack(mut self: Box<Self>, offset: i32, size: u32) -> Box<Self> {
        self.about = About::Stack { offset, size };
        self
    }
}
