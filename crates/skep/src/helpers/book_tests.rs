//! The book's lists of helpers and map kinds match the code, and no page denies one that exists.

use std::collections::BTreeMap;

use skep_abi::{MapDef, MapKind, ProgramType};
use skep_maps::{Map, MapError, Options};

use super::PROVIDED;

const README: &str = include_str!("../../../../README.md");
const INTRODUCTION: &str = include_str!("../../../../docs/src/introduction.md");
const HELPERS: &str = include_str!("../../../../docs/src/reference/helpers.md");
const MAPS: &str = include_str!("../../../../docs/src/reference/maps.md");

/// The cells of each row of the table under that heading.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the page has this heading");
    let lines = section.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The text under that heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the page has this heading");
    section.split("\n## ").next().unwrap_or_default()
}

/// Names in backquotes.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn provided_kinds() -> Vec<MapKind> {
    let options = Options { cpus: 1, limit: 0 };
    let refused = |kind| {
        let outcome = Map::create(&MapDef::new("any", kind, 0, 0, 0), &options);
        matches!(outcome, Err(MapError::KindNotProvided { .. }))
    };
    MapKind::ALL.iter().copied().filter(|kind| !refused(*kind)).collect()
}

#[test]
fn the_book_lists_the_helpers_that_run_with_their_types_and_licence() {
    let rows = table(HELPERS, "All that run");
    let rows: BTreeMap<u32, _> = rows.iter().map(|row| (row[0].parse().unwrap(), row)).collect();
    assert!(rows.keys().eq(PROVIDED.iter().map(|(id, _)| id)), "{:?}", rows.keys());
    let types = ["xdp", "sched_cls", "socket_filter", "raw"];
    for (id, row) in rows {
        let proto = skep_abi::linux_helper(id).unwrap();
        assert_eq!(names(row[1]).collect::<Vec<_>>(), [format!("bpf_{}", proto.name)], "{id}");
        assert_eq!(row[4].ends_with("GPL"), proto.gpl_only, "{id}: GPL");
        // Socket filters may call these helpers, but cannot use a map with a lock, as in Linux.
        let locks = matches!(id, 93 | 94);
        let may = |name: &&str| {
            ProgramType::from_name(name).unwrap().may_call(id, None) && !(locks && *name == "socket_filter")
        };
        let real: Vec<_> = types.iter().copied().filter(may).collect();
        let said: Vec<_> = match row[4].split_once("all") {
            Some((_, but)) => types.into_iter().filter(|name| !names(but).any(|no| no == *name)).collect(),
            None => types.into_iter().filter(|name| names(row[4]).any(|yes| yes == *name)).collect(),
        };
        assert_eq!(said, real, "{id}: types");
    }
}

#[test]
fn the_book_says_why_each_other_helper_is_left_out() {
    let rows = table(HELPERS, "Left out");
    // The reason may name a helper that runs.
    let said: Vec<_> = rows.iter().flat_map(|row| names(row[1])).collect();
    let real = |name: &&str| skep_abi::LINUX.iter().any(|proto| format!("bpf_{}", proto.name) == **name);
    assert!(said.iter().all(real), "{said:?}");
    for proto in skep_abi::LINUX {
        let runs = PROVIDED.iter().any(|(id, _)| *id == proto.id);
        let name = format!("bpf_{}", proto.name);
        assert!(runs != said.contains(&name.as_str()), "{name}: runs: {runs}, and its row says otherwise");
    }
}

#[test]
fn the_book_lists_the_kinds_of_maps_that_run() {
    let rows = table(MAPS, "Kinds");
    let mut said: Vec<_> = rows.iter().flat_map(|row| names(row[0])).collect();
    let mut real: Vec<_> = provided_kinds().iter().map(|kind| kind.name()).collect();
    said.sort_unstable();
    real.sort_unstable();
    assert_eq!(said, real);
}

/// How a page would name a missing kind of map.
const CALLED: [(&str, MapKind); 8] = [
    ("ring buffer", MapKind::Ringbuf),
    ("LRU", MapKind::LruHash),
    ("least-recently-used", MapKind::LruHash),
    ("hash tables of maps", MapKind::HashOfMaps),
    ("arrays of maps", MapKind::ArrayOfMaps),
    ("arrays of programs", MapKind::ProgArray),
    ("bloom filter", MapKind::BloomFilter),
    ("queue", MapKind::Queue),
];

#[test]
fn no_page_calls_an_existing_helper_or_map_kind_missing() {
    let kinds = provided_kinds();
    let missing = [section(README, "What is not there yet"), section(INTRODUCTION, "What it is not, yet")];
    for text in missing {
        for (words, kind) in CALLED.iter().filter(|(_, kind)| kinds.contains(kind)) {
            assert!(!text.contains(words), "`{kind}` runs, but is said to be missing:\n{text}");
        }
        for (id, _) in PROVIDED {
            let name = &skep_abi::linux_helper(*id).unwrap().name;
            assert!(
                !text.contains(&format!("`bpf_{name}`")),
                "`bpf_{name}` runs, but is said to be missing:\n{text}"
            );
        }
    }
}
