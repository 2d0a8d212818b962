//! Explanations: refusals with their causes, and the log.

pub(crate) mod cause;
pub(crate) mod linux_text;
pub(crate) mod log;
pub(crate) mod refusal;
pub(crate) mod replay;
