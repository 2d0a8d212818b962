//! What every command asks of an object: open it, choose a program, take a type.

use crate::failure::Failure;
use skep::Object;
use skep::abi::{ProgramType, TYPES};

/// The program that was asked for, or the only one.
pub(crate) fn choose(object: &Object, asked: Option<&str>) -> Result<String, Failure> {
    let programs = object.programs();
    match (asked, programs.as_slice()) {
        (Some(name), names) if names.contains(&name) => Ok(name.to_owned()),
        (Some(name), names) => Err(Failure::Refused(format!(
            "there is no program {name:?} in the object; it has {}",
            names.join(", ")
        ))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Failure::Refused("there is no program in the object".into())),
        (None, names) => {
            Err(Failure::Usage(format!("the object has several programs; name one of {}", names.join(", "))))
        }
    }
}

/// Parses a program type's name, for clap.
pub(crate) fn program_type(name: &str) -> Result<&'static ProgramType, String> {
    ProgramType::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = TYPES.iter().map(|known| known.name).collect();
        format!("there is no program type {name:?}; there are {}", known.join(", "))
    })
}
