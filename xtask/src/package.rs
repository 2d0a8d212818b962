//! `cargo xtask package`: packs every published crate, and builds each from its package.
//!
//! All in one run of cargo, because the crates depend on each other's versions, which no registry has before the
//! release.

use std::fs;

use crate::process::{self, Outcome};
use crate::workspace;

/// Packs the crates in `crates/`; `arguments` are passed on to cargo.
pub(crate) fn run(arguments: &[&str]) -> Outcome {
    let names = published();
    let packages = names.iter().flat_map(|name| ["--package", name]);
    let words: Vec<&str> = ["package", "--locked"].into_iter().chain(packages).collect();
    process::cargo(&[&words, arguments].concat()).run()
}

/// Without the Python package, which goes to PyPI as a wheel.
fn published() -> Vec<String> {
    let Ok(entries) = fs::read_dir(workspace::root().join("crates")) else { return Vec::new() };
    let manifest = |entry: &fs::DirEntry| fs::read_to_string(entry.path().join("Cargo.toml"));
    let is_published = |manifest: String| !manifest.lines().any(|line| line == "publish = false");
    let crates = entries.flatten().filter(|entry| manifest(entry).is_ok_and(is_published));
    let mut names: Vec<String> =
        crates.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Published crates that lack something for crates.io: a line of the manifest, a README, the licences.
pub(crate) fn incomplete() -> Vec<String> {
    const LINES: [&str; 9] = [
        "version.workspace = true",
        "edition.workspace = true",
        "rust-version.workspace = true",
        "license.workspace = true",
        "authors.workspace = true",
        "keywords.workspace = true",
        "categories.workspace = true",
        "include.workspace = true",
        "readme = \"README.md\"",
    ];
    const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];
    let mut broken = Vec::new();
    for name in published() {
        let directory = workspace::root().join("crates").join(&name);
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        let has = |wanted: &str| manifest.lines().any(|line| line == wanted);
        let described = manifest.lines().any(|line| line.starts_with("description = \""));
        let lines = LINES.into_iter().filter(|line| !has(line)).chain((!described).then_some("description"));
        broken.extend(lines.map(|line| format!("crates/{name}/Cargo.toml lacks {line}")));
        let files = FILES.into_iter().filter(|file| !directory.join(file).exists());
        broken.extend(files.map(|file| format!("crates/{name} lacks {file}")));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_crate_has_a_description_and_licences() {
        assert!(published().contains(&"skep".to_owned()));
        assert!(!published().contains(&"skep-python".to_owned()));
        assert_eq!(incomplete(), [""; 0]);
    }
}
