//! Compiles the native side of every benchmark program, several times over, and lists all of them, and skep's examples.
//!
//! The list is `bench/programs/programs.json`. Each copy of a native function starts with another number of
//! one-byte nops, so that its loops lie at other places relative to cache lines: the placements.

use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// Nops before the code of each copy. A multiple of the cache line would change nothing.
const PLACEMENTS: [u32; 4] = [0, 9, 22, 43];

#[derive(Deserialize)]
struct Table {
    programs: Vec<Program>,
    second: Vec<Program>,
}

impl Table {
    /// The programs of both sets.
    fn all(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().chain(&self.second)
    }
}

#[derive(Deserialize)]
struct Program {
    name: String,
    bytes: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    file: bool,
    plain: bool,
    native: bool,
    result: String,
    measures: String,
}

fn main() {
    let programs = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("programs");
    println!("cargo::rerun-if-changed={}", programs.display());
    println!("cargo::rerun-if-env-changed=CC");
    let table: Table = serde_json::from_slice(
        &fs::read(programs.join("programs.json")).expect("bench/programs/programs.json"),
    )
    .expect("bench/programs/programs.json is a table of programs");
    compile(&programs, &table);
    println!("cargo::rustc-env=SKEP_BENCH_COMPILER={}", compiler());
    let examples = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../examples");
    println!("cargo::rerun-if-changed={}", examples.display());
    let out = Path::new(&env::var("OUT_DIR").unwrap()).join("programs.rs");
    let text = list(&programs, &table) + &list_examples(&examples);
    fs::write(out, text).expect("the build directory is writable");
}

fn compile(programs: &Path, table: &Table) {
    for (placement, nops) in PLACEMENTS.iter().enumerate() {
        let mut build = cc::Build::new();
        build
            .opt_level(2)
            .flag("-falign-functions=64")
            .flag(format!("-fpatchable-function-entry={nops}"))
            .flag("-fno-strict-aliasing")
            .warnings(false)
            .define("PLACEMENT", placement.to_string().as_str())
            .include(programs);
        for program in table.all().filter(|program| program.native) {
            build.file(programs.join(format!("{}.bpf.c", program.name)));
        }
        build.compile(&format!("skep_bench_native_{placement}"));
    }
}

/// What the native code was compiled with, for the report: the first line of its version.
fn compiler() -> String {
    let version = cc::Build::new().get_compiler().to_command().arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    version
        .ok()
        .and_then(|text| Some(text.lines().next()?.to_owned()))
        .unwrap_or_else(|| "unknown".to_owned())
}

fn list(programs: &Path, table: &Table) -> String {
    let mut text = String::from("unsafe extern \"C\" {\n");
    for program in table.all().filter(|program| program.native) {
        for placement in 0..PLACEMENTS.len() {
            writeln!(text, "    fn native_{}_{placement}(memory: *mut u8, len: u64) -> u64;", program.name)
                .unwrap();
        }
    }
    text.push_str("}\n\n/// The benchmark programs.\npub(crate) static PROGRAMS: &[Program] = &[\n");
    list_set(&mut text, programs, &table.programs);
    text.push_str("];\n\n/// The second set, to which the compiler is not tuned.\npub(crate) static SECOND: &[Program] = &[\n");
    list_set(&mut text, programs, &table.second);
    text.push_str("];\n");
    text
}

fn list_set(text: &mut String, programs: &Path, set: &[Program]) {
    for Program { name, bytes, seed, file, plain, native, result, measures } in set {
        let path = |ending: &str| programs.join(format!("{name}.{ending}"));
        let memory = match file {
            true => format!("Memory::File(include_bytes!({:?}))", path("mem")),
            false => format!("Memory::Seed({seed})"),
        };
        let functions: Vec<String> =
            (0..PLACEMENTS.len()).filter(|_| *native).map(|i| format!("native_{name}_{i}")).collect();
        writeln!(
            text,
            "    Program {{ name: {name:?}, bytes: {bytes}, memory: {memory}, plain: {plain}, result: {result}, \
             measures: {measures:?}, object: include_bytes!({:?}), native: &[{}] }},",
            path("bpf.o"),
            functions.join(", ")
        )
        .unwrap();
    }
}

/// The objects of the examples with their names.
fn list_examples(examples: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(examples)
        .expect("examples")
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".bpf.o")?.to_owned()))
        .collect();
    names.sort();
    let mut text = String::from(
        "\n/// The objects of skep's examples, with their names.\npub(crate) static EXAMPLES: &[(&str, &[u8])] = &[\n",
    );
    for name in names {
        let path = examples.join(format!("{name}.bpf.o"));
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),").unwrap();
    }
    text.push_str("];\n");
    text
}
