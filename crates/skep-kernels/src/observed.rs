//! What kernels answered when they were asked call by call: `data/observed/*.tsv`.
//!
//! ```text
//!   section    socket,kprobe,xdp,...                    sections whose programs it has
//!   helpers    tc,action               1-14 16 25-28    what these may call
//!   functions  bpf_task_acquire,...    tc,xdp           kernel functions, and who may call them
//! ```
//!
//! A release between two observed ones has what both have, and lacks what both lack. What only one of them has is
//! decided by the documentation, if it can be, and is not certain otherwise.

use crate::Version;
use skep_abi::{ProgramType, Section};
use std::collections::HashMap;
use std::sync::OnceLock;

const FILES: &[(Version, &str)] = &[
    (Version::new(5, 10), include_str!("../data/observed/5.10.tsv")),
    (Version::new(6, 1), include_str!("../data/observed/6.1.tsv")),
    (Version::new(6, 12), include_str!("../data/observed/6.12.tsv")),
    (Version::new(6, 16), include_str!("../data/observed/6.16.tsv")),
    (Version::new(6, 18), include_str!("../data/observed/6.18.tsv")),
    (Version::new(7, 3), include_str!("../data/observed/7.3.tsv")),
];

/// Whether a release has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has it.
    Present,
    /// It lacks it.
    Absent,
    /// No table says so.
    Unknown,
}

impl Presence {
    pub(crate) fn of(is_present: bool) -> Self {
        if is_present { Self::Present } else { Self::Absent }
    }
}

/// Who calls: a type and attachment of programs, and whether they may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Caller {
    kind: Option<u32>,
    attach: u32,
    sleeps: bool,
}

/// The answers of one kernel.
struct Answers {
    version: Version,
    callers: Vec<Caller>,
    helpers: HashMap<Caller, Numbers>,
    functions: HashMap<&'static str, Vec<Caller>>,
}

/// A set of small numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers([u64; 4]);

impl Numbers {
    fn insert(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn contains(self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }
}

/// A program's place in the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    caller: Caller,
    /// Whether kernels were asked for exactly this type, attachment and target. If not, what a similar one may call is
    /// taken as what this one may call at least.
    exact: bool,
}

impl Asker {
    /// The place of programs of that type. What members of structures, hooks and iterators may call depends on their
    /// names: kernels were asked for one of each.
    pub(crate) fn of(kind: &ProgramType, sleeps: bool) -> Self {
        let caller = Caller { kind: kind.number, attach: kind.attach.unwrap_or(0), sleeps };
        let depends_on_name = matches!(kind.number, Some(STRUCT_OPS | LSM))
            || caller.attach == ITERATOR
            || (kind.number == Some(TRACING) && (sleeps || caller.attach == MODIFY_RETURN));
        let asked = |caller: &Caller| all().iter().any(|answers| answers.callers.contains(caller));
        let similar = Caller { sleeps: !sleeps, ..caller };
        match (asked(&caller), asked(&similar)) {
            (true, _) => Self { caller, exact: !depends_on_name },
            (false, true) => Self { caller: similar, exact: false },
            (false, false) => Self { caller, exact: false },
        }
    }
}

const STRUCT_OPS: u32 = 27;
const LSM: u32 = 29;
const TRACING: u32 = 26;
const ITERATOR: u32 = 28;
const MODIFY_RETURN: u32 = 26;

/// Whether a release has programs of that type, attachment and permission to sleep.
pub(crate) fn section(asker: Asker, version: Version) -> Presence {
    at_least(asker, between(version, |answers| answers.callers.contains(&asker.caller)))
}

/// Whether a release lets programs of that type call the helper of that number.
pub(crate) fn helper(asker: Asker, number: u32, version: Version) -> Presence {
    let has = |answers: &Answers| {
        answers.helpers.get(&asker.caller).is_some_and(|helpers| helpers.contains(number))
    };
    at_least(asker, between(version, has))
}

/// Whether a release lets programs of that type call the kernel function of that name; `None` if no kernel was asked.
pub(crate) fn function(asker: Asker, name: &str, version: Version) -> Option<Presence> {
    let asked = all().iter().any(|answers| answers.functions.contains_key(name));
    let has = |answers: &Answers| {
        answers.functions.get(name).is_some_and(|callers| callers.contains(&asker.caller))
    };
    asked.then(|| at_least(asker, between(version, has)))
}

/// Nothing is known to lack what a similar program lacks.
fn at_least(asker: Asker, presence: Presence) -> Presence {
    match presence {
        Presence::Absent if !asker.exact => Presence::Unknown,
        other => other,
    }
}

/// What the observed kernels around a release say.
fn between(version: Version, has: impl Fn(&Answers) -> bool) -> Presence {
    let before = all().iter().rev().find(|answers| answers.version <= version);
    let after = all().iter().find(|answers| answers.version >= version);
    match (before.map(&has), after.map(&has)) {
        (Some(before), Some(after)) if before == after => Presence::of(before),
        (Some(one), None) | (None, Some(one)) => match one {
            // Nothing is taken away.
            true if before.is_some() => Presence::Present,
            false if after.is_some() => Presence::Absent,
            _ => Presence::Unknown,
        },
        _ => Presence::Unknown,
    }
}

/// The tables, read at the first use.
fn all() -> &'static [Answers] {
    static ALL: OnceLock<Vec<Answers>> = OnceLock::new();
    ALL.get_or_init(|| FILES.iter().map(|&(version, text)| Answers::read(version, text)).collect())
}

impl Answers {
    fn read(version: Version, text: &'static str) -> Self {
        let mut answers =
            Self { version, callers: Vec::new(), helpers: HashMap::new(), functions: HashMap::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut cells = line.split('\t');
            let (subject, first, second) =
                (cells.next().unwrap_or(""), cells.next().unwrap_or(""), cells.next().unwrap_or(""));
            match subject {
                "section" => answers.callers = callers(first),
                "helpers" => {
                    let numbers = numbers(second);
                    answers.helpers.extend(callers(first).into_iter().map(|caller| (caller, numbers)));
                }
                "functions" => {
                    let callers = callers(second);
                    answers.functions.extend(first.split(',').map(|name| (name, callers.clone())));
                }
                _ => {}
            }
        }
        answers
    }
}

fn callers(sections: &str) -> Vec<Caller> {
    let caller = |section: Section<'_>| Caller {
        kind: section.kind.number,
        attach: section.kind.attach.unwrap_or(0),
        sleeps: section.sleepable,
    };
    sections.split(',').filter_map(|name| Section::parse(name).map(caller)).collect()
}

fn numbers(text: &str) -> Numbers {
    let mut set = Numbers::default();
    for run in text.split_whitespace() {
        let (from, to) = run.split_once('-').unwrap_or((run, run));
        if let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) {
            (from..=to).for_each(|number| set.insert(number));
        }
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use Presence::{Absent, Present, Unknown};

    fn asker(section: &str) -> Asker {
        let found = Section::parse(section).expect("a section");
        Asker::of(found.kind, found.sleepable)
    }

    #[test]
    fn every_section_of_the_tables_is_one_that_skep_knows() {
        for (version, text) in FILES {
            let line = text.lines().find_map(|line| line.strip_prefix("section\t")).expect("sections");
            for name in line.split(',') {
                assert!(Section::parse(name).is_some(), "{version}: {name}");
            }
        }
    }

    #[test]
    fn observed_kernels_answer_for_those_between_them() {
        // bpf_loop came with 5.17.
        let at = |major, minor| helper(asker("xdp"), 181, Version::new(major, minor));
        assert_eq!(
            [at(5, 10), at(5, 15), at(6, 1), at(6, 6), at(6, 12), at(7, 3)],
            [Absent, Unknown, Present, Present, Present, Present]
        );
        // bpf_map_lookup_elem is as old as maps.
        assert_eq!(helper(asker("socket"), 1, Version::new(5, 15)), Present);
        assert_eq!(section(asker("netfilter"), Version::new(6, 1)), Absent);
        assert_eq!(section(asker("netfilter"), Version::new(6, 12)), Present);
    }

    #[test]
    fn later_kernels_keep_the_helpers_of_earlier_ones_with_few_exceptions() {
        let mut gone: Vec<(String, Option<u32>, u32)> = Vec::new();
        for pair in all().windows(2) {
            // Linux 5.10 takes the attach type of lsm_cgroup for that of lsm.
            let callers = pair[0].helpers.iter().filter(|(caller, _)| caller.attach != 43);
            for (caller, helpers) in callers {
                let later = pair[1].helpers.get(caller).copied().unwrap_or_default();
                let lost = (1..256).filter(|number| helpers.contains(*number) && !later.contains(*number));
                gone.extend(lost.map(|number| (pair[1].version.to_string(), caller.kind, number)));
            }
        }
        let gone: Vec<_> = gone
            .iter()
            .map(|(version, kind, number)| (version.as_str(), kind.unwrap_or(0), *number))
            .collect();
        // bind may no longer change socket options, nor seg6local pull data.
        let expected = [("7.3", 18, 49), ("7.3", 18, 57), ("7.3", 19, 39)];
        assert!(gone.iter().all(|lost| expected.contains(lost)), "{gone:?}");
    }
}
