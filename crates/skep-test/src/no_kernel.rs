//! In place of [`Kernel`] where libbpf is not built in.

use crate::fixture::Fixture;
use crate::ran::Ran;
use crate::table::{Step, Test};
use skep::Object;
use skep::abi::ProgramType;

/// No test gets this far: [`cannot`] refuses all.
pub(crate) enum Kernel {}

pub(crate) fn cannot(_: &Test, _: &Object, _: &ProgramType) -> Option<String> {
    Some("this skep was built without the feature `kernel`".to_owned())
}

impl Kernel {
    pub(crate) fn load(_: &Test, _: &Fixture, _: &str) -> Result<Self, String> {
        Err("this skep was built without the feature `kernel`".to_owned())
    }

    pub(crate) fn step(&mut self, _: &Fixture, _: &Step) -> Result<Ran, String> {
        match *self {}
    }
}
