//! What clients asked for and the runtime does not have, by name.

use crate::error::Error;
use skep_maps::MapError;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Something that was refused because the runtime lacks it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lack {
    /// What kind of thing it is: `map kind`, `program type`, `helper`.
    pub what: &'static str,
    /// Its name, or its number.
    pub name: String,
}

/// Everything that was refused, and how often.
#[derive(Debug, Default)]
pub(super) struct Lacking(Mutex<BTreeMap<Lack, u64>>);

/// Names that are kept at most: clients may ask for anything.
const MOST: usize = 1000;

impl Lacking {
    pub(super) fn note(&self, what: &'static str, name: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lack = Lack { what, name };
        if let Some(count) = all.get_mut(&lack) {
            *count += 1;
        } else if all.len() < MOST {
            all.insert(lack, 1);
        }
    }

    pub(super) fn all(&self) -> Vec<(Lack, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(lack, count)| (lack.clone(), *count)).collect()
    }

    /// Notes what a load was refused for, if something lacked.
    pub(super) fn note_error(&self, error: &Error) {
        match error {
            Error::HelperMissing { helper, .. } => self.note("helper", helper.clone()),
            Error::KernelSymbol { symbol, .. } => self.note("kernel symbol", symbol.clone()),
            Error::TypeNotProvided { program_type, .. } => {
                self.note("program type", (*program_type).to_owned());
            }
            Error::FieldNotProvided { program_type, field, .. } => {
                self.note("context field", format!("{field} of {program_type}"));
            }
            Error::IteratorNotProvided { target, .. } => self.note("iterator", target.clone()),
            Error::NotProvided { what, .. } => self.note("instruction", what.clone()),
            Error::Map(MapError::KindNotProvided { kind, .. }) => {
                self.note("map kind", kind.name().to_owned());
            }
            _ => {}
        }
    }
}
