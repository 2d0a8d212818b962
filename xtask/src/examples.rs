//! Committed files that can be rebuilt: BPF objects from their C sources, captures and memory images from their
//! generators. Each is made in memory first and then either written or compared, so that a check and a rebuild cannot
//! disagree.
//!
//! An object contains nothing about the machine that built it: paths are relative, there is no compiler
//! identification, and DWARF, which contains paths of system headers, is stripped. BTF and line information stay.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Outcome, Process};
use crate::{capture, memory, tools, workspace};

/// The prefix of a line in a source's head comment with additional flags for the compiler.
const OWN_FLAGS: &str = " * clang: ";

/// The directories of objects, with the additional flags of their sources.
struct Place {
    directory: &'static str,
    flags: &'static [&'static str],
}

const PLACES: [Place; 22] = [
    Place { directory: "examples", flags: &[] },
    Place { directory: "crates/skep-cli/tests/objects", flags: &[] },
    Place { directory: "crates/skep-capi/tests/objects", flags: &[] },
    Place { directory: "crates/skep/data", flags: &[] },
    Place { directory: "crates/skep/examples", flags: &[] },
    Place { directory: "crates/skep-python/tests/objects", flags: &[] },
    Place { directory: "crates/skep/tests/objects/hosts", flags: &[] },
    Place { directory: "crates/skep/tests/objects/arenas", flags: &[] },
    Place { directory: "crates/skep/tests/objects/early", flags: &[] },
    Place { directory: "crates/skep/tests/objects/extensions", flags: &[] },
    Place { directory: "crates/skep/tests/objects/exceptions", flags: &[] },
    Place { directory: "crates/skep/tests/objects/iterate", flags: &[] },
    Place { directory: "crates/skep/tests/objects/iterators", flags: &[] },
    Place { directory: "crates/skep/tests/objects/machine", flags: &[] },
    Place { directory: "crates/skep/tests/objects/masks", flags: &[] },
    Place { directory: "crates/skep/tests/objects/ops", flags: &[] },
    Place { directory: "crates/skep/tests/objects/typed", flags: &[] },
    Place { directory: "crates/skep/tests/objects/owners", flags: &[] },
    Place { directory: "crates/skep/tests/objects/printing", flags: &[] },
    Place { directory: "crates/skep/tests/objects/sections", flags: &[] },
    Place { directory: "crates/skep/tests/objects/verdicts", flags: &[] },
    // A loop that copies bytes must be compiled as a loop, not as a call of memcpy, which BPF lacks.
    Place { directory: "bench/programs", flags: &["-fno-builtin"] },
];

const FLAGS: [&str; 11] = [
    "-O2",
    "-g",
    "-target",
    "bpf",
    "-mcpu=v3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fno-ident",
    "-fno-addrsig",
    "-fdebug-compilation-dir=.",
];

/// One file: its path and its expected contents.
struct Made {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Builds everything and writes the files that differ.
pub(crate) fn rebuild() -> Outcome {
    if let Some(missing) = tools::missing_for_bpf() {
        return Err(format!("the BPF objects cannot be compiled: {missing}"));
    }
    for made in generated().into_iter().chain(objects()?) {
        if fs::read(&made.path).is_ok_and(|present| present == made.bytes) {
            continue;
        }
        write(&made)?;
        eprintln!("wrote {} ({} bytes)", workspace::relative(&made.path), made.bytes.len());
    }
    Ok(())
}

/// Builds everything (without a BPF compiler, only what needs none), and compares.
pub(crate) fn check() -> Outcome {
    compare(&generated(), "its generator makes other bytes")?;
    check_objects()
}

fn check_objects() -> Outcome {
    match tools::missing_for_bpf() {
        Some(missing) => tools::skip("comparing the BPF objects with their sources", &missing),
        None => compare(
            &objects()?,
            &format!("compiling its source gives different bytes here ({})", compiler_version()),
        ),
    }
}

/// Captures and memory images.
fn generated() -> Vec<Made> {
    let root = workspace::root();
    let captures =
        capture::files().into_iter().map(|(name, bytes)| (root.join("examples").join(name), bytes));
    let images =
        memory::files().into_iter().map(|(name, bytes)| (root.join("bench/programs").join(name), bytes));
    captures.chain(images).map(|(path, bytes)| Made { path, bytes }).collect()
}

/// All BPF objects, compiled.
fn objects() -> Result<Vec<Made>, String> {
    let scratch = Scratch::new()?;
    let mut made = Vec::new();
    for place in &PLACES {
        let directory = workspace::root().join(place.directory);
        for source in workspace::files_below(&directory, ".bpf.c") {
            made.push(compile(&source, place.flags, &scratch)?);
        }
    }
    Ok(made)
}

fn compile(source: &Path, flags: &[&str], scratch: &Scratch) -> Result<Made, String> {
    let directory = source.parent().unwrap_or(Path::new("."));
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let object = scratch.0.join("object.o");
    let object_text = object.to_string_lossy();
    // Debian has <asm/types.h> in a directory of the host's architecture; it is the same for all architectures.
    let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let text = fs::read_to_string(source).map_err(|error| format!("{name} cannot be read: {error}"))?;
    let own: Vec<&str> = text
        .lines()
        .find_map(|line| line.strip_prefix(OWN_FLAGS))
        .map_or(Vec::new(), |flags| flags.split_whitespace().collect());
    let files = ["-idirafter", &headers, "-c", &name, "-o", &object_text];
    let arguments = [&FLAGS[..], flags, &own, &files].concat();
    Process::new("clang-19", &arguments).at(directory).output()?;
    Process::new("llvm-strip-19", &["--strip-debug", &object_text]).output()?;
    let bytes = fs::read(&object).map_err(|error| format!("{object_text} cannot be read: {error}"))?;
    Ok(Made { path: source.with_extension("o"), bytes })
}

fn compiler_version() -> String {
    let version = Process::new("clang-19", &["--version"]).output().unwrap_or_default();
    version.lines().next().unwrap_or("clang-19 of unknown version").to_owned()
}

fn compare(files: &[Made], complaint: &str) -> Outcome {
    let differs = |made: &&Made| !fs::read(&made.path).is_ok_and(|present| present == made.bytes);
    let different: Vec<_> =
        files.iter().filter(differs).map(|made| workspace::relative(&made.path)).collect();
    match different.as_slice() {
        [] => Ok(()),
        names => Err(format!("{}: {complaint}; rebuild them with `cargo xtask examples`", names.join(", "))),
    }
}

fn write(made: &Made) -> Outcome {
    let directory = made.path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(&made.path, &made.bytes))
        .map_err(|error| format!("{} cannot be written: {error}", workspace::relative(&made.path)))
}

/// A directory that is deleted when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("skep-xtask-{}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|error| format!("{} cannot be created: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, one small file remains in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_captures_and_images_equal_their_generators_output() {
        compare(&generated(), "its generator makes other bytes").unwrap();
    }

    #[test]
    fn committed_objects_equal_their_compiled_sources() {
        check_objects().unwrap();
    }

    #[test]
    fn every_source_has_its_object_and_every_object_its_source() {
        for place in &PLACES {
            let directory = workspace::root().join(place.directory);
            let sources = workspace::files_below(&directory, ".bpf.c");
            let objects = workspace::files_below(&directory, ".bpf.o");
            assert!(!sources.is_empty(), "no sources in {}", place.directory);
            assert_eq!(sources.iter().map(|path| path.with_extension("o")).collect::<Vec<_>>(), objects);
        }
    }

    #[test]
    fn no_object_contains_an_absolute_path() {
        for place in &PLACES {
            for object in workspace::files_below(&workspace::root().join(place.directory), ".bpf.o") {
                let bytes = fs::read(&object).unwrap();
                for needle in [&b"/usr/"[..], b"/home/", b"/root/", b"/tmp/", b".debug_info"] {
                    let found = bytes.windows(needle.len()).any(|window| window == needle);
                    assert!(!found, "{} holds {}", object.display(), String::from_utf8_lossy(needle));
                }
            }
        }
    }
}
