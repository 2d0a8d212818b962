//! Dependencies between crates: the table in the book must match the manifests, and no arrow may lead upwards.
//!
//! The table is in `docs/src/design/road.md`, one row for each published crate: its name with a dagger if it may
//! contain `unsafe`, its contents, and the other crates that it uses, without `skep-`.

use std::collections::BTreeSet;
use std::fs;

use crate::workspace;

const PAGE: &str = "docs/src/design/road.md";

/// A row of the table.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    has_unsafe: bool,
    uses: BTreeSet<String>,
}

/// Every difference between the page, the manifests, and the crates that may contain `unsafe`.
pub(crate) fn check(may_use_unsafe: &[&str]) -> Vec<String> {
    let root = workspace::root();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let rows = rows(&read(PAGE));
    let mut broken = compare(&rows, may_use_unsafe, |name| read(&format!("crates/{name}/Cargo.toml")));
    for manifest in workspace::files_below(&root.join("crates"), "/Cargo.toml") {
        let name = manifest.parent().and_then(|path| path.file_name()).unwrap_or_default().to_string_lossy();
        if !rows.iter().any(|row| row.name == name) {
            broken.push(format!("{PAGE}: the table lacks a row for {name}"));
        }
    }
    broken
}

fn compare(rows: &[Row], may_use_unsafe: &[&str], manifest: impl Fn(&str) -> String) -> Vec<String> {
    let mut broken = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let Row { name, has_unsafe, uses } = row;
        let real = dependencies(&manifest(name));
        let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if *uses != real {
            let (said, real) = (list(uses), list(&real));
            broken.push(format!("{PAGE}: {name} uses [{said}], but its Cargo.toml says [{real}]"));
        }
        for used in real.iter().filter(|used| !rows[..at].iter().any(|above| above.name == **used)) {
            broken.push(format!("{PAGE}: {name} uses {used}, which is not above it in the table"));
        }
        if *has_unsafe != may_use_unsafe.contains(&name.as_str()) {
            broken.push(format!("{PAGE}: the dagger of {name} contradicts the list in xtask/src/lint.rs"));
        }
    }
    broken
}

/// The rows of the first table whose third column is called "uses".
fn rows(page: &str) -> Vec<Row> {
    let mut lines = page.lines().skip_while(|line| !line.ends_with("| uses |")).skip(2);
    let table = lines.by_ref().take_while(|line| line.starts_with('|'));
    table.filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let name = cells.first()?.split('`').nth(1)?.to_owned();
    let used = cells.last()?.split(',').map(str::trim).filter(|word| *word != "-");
    let uses =
        used.map(|word| if word == "skep" { word.to_owned() } else { format!("skep-{word}") }).collect();
    Some(Row { name, has_unsafe: cells[0].ends_with('†'), uses })
}

/// Names in the section `[dependencies]` that begin with `skep`.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let section = lines.take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| line.split(['.', '=', ' ']).next());
    names.filter(|name| name.starts_with("skep")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
text
| crate | what it contains | uses |
|---|---|---|
| `skep-rcu` † | readers | - |
| `skep-mem` | caches | rcu |
| `skep` | all | rcu, mem |
after";

    fn judge(manifests: &[(&str, &str)]) -> Vec<String> {
        let find = |name: &str| {
            let found = manifests.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| *text);
            format!("[package]\n[dependencies]\n{found}\n[dev-dependencies]\nskep.workspace = true\n")
        };
        compare(&rows(TABLE), &["skep-rcu"], find)
    }

    #[test]
    fn a_table_that_matches_the_manifests_is_right() {
        let skep = "libc = \"0.2\"\nskep-mem.workspace = true\nskep-rcu = { path = \"x\" }";
        assert_eq!(judge(&[("skep-mem", "skep-rcu.workspace = true"), ("skep", skep)]), [""; 0]);
    }

    #[test]
    fn missing_and_upward_arrows_and_wrong_daggers_are_named() {
        let all = "skep-mem.workspace = true\nskep-rcu.workspace = true";
        let broken = judge(&[("skep-mem", ""), ("skep", all)]);
        assert!(broken[0].contains("skep-mem uses [skep-rcu], but its Cargo.toml says []"), "{broken:?}");
        let unpublished = format!("{all}\nskep-bench = \"1\"");
        let broken = judge(&[("skep-mem", "skep-rcu.workspace = true"), ("skep", &unpublished)]);
        assert!(broken[0].contains("Cargo.toml says [skep-bench, skep-mem, skep-rcu]"), "{broken:?}");
        let upwards = [("skep-rcu", "skep-mem = \"1\""), ("skep-mem", "skep-rcu = \"1\""), ("skep", all)];
        assert!(judge(&upwards)[1].contains("skep-rcu uses skep-mem, which is not above it"));
        let daggers = compare(&rows(TABLE)[..1], &[], |_| String::new());
        assert!(daggers[0].contains("dagger of skep-rcu"), "{daggers:?}");
    }

    #[test]
    fn the_book_says_which_crate_uses_which() {
        assert_eq!(check(&crate::lint::MAY_USE_UNSAFE), [""; 0]);
    }
}
