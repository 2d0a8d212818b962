//! What a test has executed of each program.

use skep::Module;
use std::path::{Path, PathBuf};

/// What a test has executed of a program.
#[derive(Clone, Debug)]
pub(crate) struct Covered {
    pub(crate) object: PathBuf,
    pub(crate) program: String,
    pub(crate) functions: Vec<(String, u32)>,
    pub(crate) coverage: skep::Coverage,
}

/// What the runs of a module's programs have executed; nothing if its runtime does not count.
pub(crate) fn of_module(object: &Path, module: &Module) -> Vec<Covered> {
    let of = |program: &skep::Program| {
        let functions = program.verified().functions().iter();
        Some(Covered {
            object: object.to_owned(),
            program: program.name().to_owned(),
            functions: functions.map(|function| (function.name.clone(), function.start)).collect(),
            coverage: program.coverage()?,
        })
    };
    module.programs().iter().filter_map(of).collect()
}
