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
}

/// The result of one step; faults are rare and boxed.
pub(crate) type Step<T> = Result<T, Box<Fault>>;

impl Fault {
    #[cold]
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, slot: None, reason: reason.into(), suggestion: None })
    }

    #[cold]
    pub(crate) fn at(code: Code, slot: usize, reason: impl Into<String>) -> Box<Self> {
        Box::new(Self { code, slot: Some(slot as u32), reason: reason.into(), suggestion: None })
    }

    pub(crate) fn suggest(mut self: Box<Self>, suggestion: &'static str) -> Box<Self> {
        self.suggestion = Some(suggestion);
        self
    }
}
