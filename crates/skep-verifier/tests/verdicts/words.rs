//! Compares the words of refusals with those that Linux said, for every program that both refuse.
//!
//! Tools search the log for these words. Numbers in them may count something of the walk, such as identifiers of
//! references, so digits are not compared.

use super::{STRICT_ALIGNMENT, build, files};
use skep_verdicts::{Entry, Verdict, entries};
use skep_verifier::{Config, Unverified, verify};
use std::collections::BTreeMap;
use std::fs;

/// The share of programs, in percent, for which the words were Linux's when this was last looked at. More is welcome:
/// then this number grows.
const SAME: usize = 68;

/// The last line of the words for the program; `None` if it is accepted or has none.
fn words(entry: &Entry) -> Option<String> {
    let (source, maps, given) = build::source(entry).ok().flatten()?;
    let config = Config {
        btf: Some(build::linux_types()),
        strict_alignment: entry.flags & STRICT_ALIGNMENT != 0,
        // Linux was asked as root.
        privileged: !entry.unprivileged,
        ..Config::default()
    };
    let refusal = verify(Unverified { source, maps, entry: given }, &config).err()?;
    Some(refusal.words.as_deref().and_then(|words| words.lines().last()).unwrap_or_default().to_owned())
}

fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            c => plain.push(c),
        }
    }
    plain.trim_end_matches([' ', '!']).to_owned()
}

#[test]
fn most_refusals_say_what_linux_says() {
    let (mut same, mut all) = (0, 0);
    let mut others: BTreeMap<(String, String), usize> = BTreeMap::new();
    for path in files() {
        for entry in &entries(&fs::read_to_string(&path).unwrap()).unwrap() {
            let Some(Verdict::Refuse(linux)) = &entry.linux else { continue };
            let Some(found) = words(entry) else { continue };
            let (linux, found) = (without_numbers(linux), without_numbers(&found));
            all += 1;
            match found == linux {
                true => same += 1,
                false => *others.entry((linux, found)).or_default() += 1,
            }
        }
    }
    let mut others: Vec<_> = others.into_iter().map(|(texts, count)| (count, texts)).collect();
    others.sort_by(|a, b| b.cmp(a));
    let shown: Vec<String> = others
        .iter()
        .take(60)
        .map(|(count, (linux, found))| format!("{count} times Linux: {linux}\n          skep: {found}"))
        .collect();
    assert!(same * 100 >= SAME * all, "the same in {same} of {all}\n{}", shown.join("\n"));
}
