//! When things came, as documents say: one table for each kind of thing, its number or name and the first release.
//!
//! A release before the first one lacks the thing for certain. For a later one the tables of `observed` say
//! more, since helpers and functions became open to more types of programs with time.

use crate::Version;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A table: keys, and the first releases.
struct Table {
    text: &'static str,
    read: OnceLock<HashMap<&'static str, Version>>,
}

static HELPERS: Table = Table::new(include_str!("../data/helpers.tsv"));
static FUNCTIONS: Table = Table::new(include_str!("../data/kfuncs.tsv"));
static MAPS: Table = Table::new(include_str!("../data/maps.tsv"));
static FLAGS: Table = Table::new(include_str!("../data/flags.tsv"));
static FIELDS: Table = Table::new(include_str!("../data/fields.tsv"));
static TYPES: Table = Table::new(include_str!("../data/types.tsv"));

impl Table {
    const fn new(text: &'static str) -> Self {
        Self { text, read: OnceLock::new() }
    }

    fn since(&self, key: &str) -> Option<Version> {
        let rows = self.read.get_or_init(|| {
            let lines = self.text.lines().filter(|line| !line.starts_with('#'));
            lines.filter_map(|line| line.rsplit_once('\t')).filter_map(row).collect()
        });
        rows.get(key).copied()
    }
}

fn row((key, version): (&'static str, &'static str)) -> Option<(&'static str, Version)> {
    Some((key, Version::numbers(version)?))
}

/// The first release with the helper of that number.
pub fn helper(number: u32) -> Option<Version> {
    HELPERS.since(&number.to_string())
}

/// The first release with the kernel function of that name.
pub fn function(name: &str) -> Option<Version> {
    FUNCTIONS.since(name)
}

/// The first release with the kind of maps of that number.
pub fn map_kind(number: u32) -> Option<Version> {
    MAPS.since(&number.to_string())
}

/// The first release with that flag of map creation.
pub fn map_flag(bit: u32) -> Option<Version> {
    FLAGS.since(&bit.to_string())
}

/// The first release with that field of a context, if it is not in all releases that the tables cover.
pub fn context_field(context: &str, field: &str) -> Option<Version> {
    FIELDS.since(&format!("{context}\t{field}"))
}

/// The first release with the program type of that number.
pub fn program_type(number: u32) -> Option<Version> {
    TYPES.since(&format!("type\t{number}"))
}

/// The first release with the attach type of that number.
pub fn attach_type(number: u32) -> Option<Version> {
    TYPES.since(&format!("attach\t{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        for (table, keys) in [(&HELPERS, 211), (&MAPS, 34), (&FLAGS, 20)] {
            let found = (0..=211).filter(|key| table.since(&key.to_string()).is_some()).count();
            assert_eq!(found, keys, "{:.40}", table.text);
        }
        for table in [&HELPERS, &FUNCTIONS, &MAPS, &FLAGS, &FIELDS, &TYPES] {
            let lines = table.text.lines().filter(|line| !line.starts_with('#'));
            lines.clone().for_each(|line| {
                let (_, version) = line.rsplit_once('\t').expect("two cells");
                assert!(version == "?" || Version::numbers(version).is_some(), "{line}");
            });
            assert!(lines.count() > 0);
        }
        assert_eq!(helper(181), Some(Version::new(5, 17)));
        assert_eq!(function("bpf_throw"), Some(Version::new(6, 7)));
        assert_eq!(map_kind(33), Some(Version::new(6, 9)));
        assert_eq!(context_field("__sk_buff", "hwtstamp"), Some(Version::new(5, 16)));
        assert_eq!(map_flag(10), Some(Version::new(5, 5)));
        assert_eq!(
            (program_type(31), attach_type(45)),
            (Some(Version::new(5, 14)), Some(Version::new(6, 4)))
        );
    }
}
