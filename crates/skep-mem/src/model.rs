//! What takes the place of the system in models, and how they are run.

#[cfg(test)]
pub(crate) mod census;
pub(crate) mod domain;
pub(crate) mod memory;
#[cfg(test)]
mod run;
pub(crate) mod time;

#[cfg(test)]
pub(crate) use run::Model;
