//! Hosts in C, linked to the shared library and to the archive, installed as README.md describes.

use crate::toolchain::{built, compiler, crate_root, root, run, scratch};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_host_in_c_runs_programs_and_gets_error_messages() {
    let Some(said) = host("shared", Linked::Shared) else { return };
    said_by_host(&said);
}

#[test]
fn a_host_may_link_the_archive() {
    let Some(said) = host("archive", Linked::Archive) else { return };
    said_by_host(&said);
}

#[test]
fn the_address_sanitizer_finds_no_error_and_no_leak_in_the_first_host() {
    if skep_testkit::is_emulated() {
        let what = "errors and leaks of the first host in C, by the compiler";
        return skep_testkit::hidden(skep_testkit::Hidden::DebuggersAndProfilers, what);
    }
    let Some(said) = host("host-asan", Linked::Sanitized) else { return };
    said_by_host(&said);
}

#[test]
fn the_example_of_the_readme_runs() {
    let Some(mut compiler) = compiler() else { return };
    let prefix = scratch("readme");
    install(&prefix);
    let source = prefix.join("first.c");
    std::fs::write(&source, block("c")).unwrap();
    let program = prefix.join("first");
    run(compiler.arg("-o").arg(&program).arg(source).args(pc(&prefix, &["Cflags", "Libs"])));
    let mut first = skep_testkit::other(&program);
    first.env("LD_LIBRARY_PATH", prefix.join("lib"));
    assert_eq!(run(first.arg(example("firewall")).arg("firewall")), "verdict 2\n");

    let failed = first.arg("too many").output().unwrap();
    assert!(!failed.status.success());
    assert_eq!(String::from_utf8_lossy(&failed.stderr), "usage: first OBJECT PROGRAM\n");
}

enum Linked {
    Shared,
    Archive,
    /// To the shared library, with the compiler's checks in the host.
    Sanitized,
}

/// Compiles, links and runs `host.c`; returns its output.
fn host(test: &str, linked: Linked) -> Option<String> {
    let mut compiler = compiler()?;
    let prefix = scratch(test);
    install(&prefix);
    let program = prefix.join("host");
    compiler.arg("-pthread").arg("-o").arg(&program).arg(crate_root().join("tests/c_host/host.c"));
    compiler.arg("-I").arg(root().join("crates/skep/tests/objects/typed"));
    compiler.args(pc(&prefix, &["Cflags"]));
    match linked {
        Linked::Shared => compiler.args(pc(&prefix, &["Libs"])),
        // Not position-independent: where addresses are random in 32 bits, it may be placed where the sanitizer's heap
        // is.
        Linked::Sanitized => compiler.args(["-fsanitize=address", "-no-pie"]).args(pc(&prefix, &["Libs"])),
        Linked::Archive => compiler.arg(prefix.join("lib/libskep.a")).args(pc(&prefix, &["Libs.private"])),
    };
    run(&mut compiler);
    let mut host = skep_testkit::other(&program);
    // Reads that may fault are part of skep, whose own handler comes first.
    host.env("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0:detect_leaks=1:allocator_may_return_null=1");
    if !matches!(linked, Linked::Archive) {
        host.env("LD_LIBRARY_PATH", prefix.join("lib"));
        // At run time the soname finds the library.
        std::fs::remove_file(prefix.join("lib/libskep.so")).unwrap();
    }
    let bad = |name: &str| root().join("crates/skep-cli/tests/objects").join(name);
    host.arg(example("firewall")).arg(example("raw"));
    host.arg(bad("inner_too_large.bpf.o")).arg(bad("missing_null_check.bpf.o"));
    Some(run(host.arg(root().join("crates/skep/tests/objects/typed/typed.bpf.o"))))
}

fn said_by_host(said: &str) {
    let counted = "\
        ordinary: verdict 2\n\
        blocked by the host: verdict 1\n\
        end: map `blocked4`: no further key\n\
        free again: verdict 2\n\
        blocked by the program: verdict 1\n\
        cut: verdict 1\n\
        empty: verdict 1\n\
        reason 0: 4002 packets, 216108 bytes\n\
        reason 4: 2 packets, 20 bytes\n\
        reason 7: 2 packets, 108 bytes\n\
        no key: map `offenders`: no such key\n";
    assert!(said.starts_with(counted), "{said}");
    // The output about one subject: all lines for the verifier, otherwise one.
    let line = |name: &str, words: &[&str]| {
        let found =
            said.split(&format!("\n{name}: ")).nth(1).unwrap_or_else(|| panic!("no {name} in:\n{said}"));
        let end = if name == "refused" { "\nnothing: " } else { "\n" };
        let found = found.split_inclusive(end).next().unwrap_or_default();
        for word in words {
            assert!(found.contains(word), "{name} does not mention {word:?}: {found}");
        }
    };
    line("key size", &["map `offenders`: the key has 4 bytes instead of 16\n"]);
    line("value size", &["map `offenders`: the value has 4 bytes instead of 8; call skep_map_value_size\n"]);
    line("flags", &["flags are 0x8; give SKEP_ANY, SKEP_NOEXIST or SKEP_EXIST, with SKEP_LOCK or without\n"]);
    line("array", &["map `verdicts`: elements of an array cannot be deleted"]);
    line("no program", &["there is no program \"nobody\" in the object; it has firewall\n"]);
    line("no name", &["skep_module_map: name \"\\xff\" is not UTF-8\n"]);
    line("without the runtime's handle", &["verdict 1\n"]);
    line("wrong input", &["program firewall is of type xdp and takes a packet, not a buffer\n"]);
    line("sum 10", &["1 3 6 10, 5\n"]);
    line("length", &["takes a buffer of 4 bytes, not one of 5 bytes\n"]);
    line("shared", &["two threads"]);
    line("options", &["its size is 0; set it to sizeof(struct skep_load_options)"]);
    line("little code", &["1 bytes", "code_memory of skep_runtime_options"]);
    line("many CPUs", &["skep_runtime_options: cpus: 4294967295"]);
    line("hardening", &["hardening: 0x4 is unknown", "SKEP_SIGNED_RETURNS"]);
    line("no file", &["cannot read no/such/file.bpf.o: "]);
    line("no object", &["ELF"]);
    line("misfit", &["map outer.inner: max_entries differs", "4 entries", "1000000 entries"]);
    line("refused", &["careless", "missing_null_check.bpf.c", "null"]);
    line("nothing", &["skep_program_run: packet is NULL\n"]);
    line("no ring", &["flows", "hash"]);
    line("constant", &["scale is a constant", "by skep_linker_variable"]);
    assert!(said.ends_with("event 1: 54 bytes\nevent 2: 54 bytes\nevent 3: 54 bytes\n"), "{said}");
}

/// Runs the installation commands of README.md, with another prefix and from the build directory of the tests.
pub(crate) fn install(prefix: &Path) {
    let from = built();
    let script: String = block("sh")
        .lines()
        .filter(|line| *line != "ldconfig") // only for the system's own directories
        .map(|line| format!("{line}\n"))
        .collect();
    let script = script
        // The tools of the tests read symbols, and strip(1) knows one architecture.
        .replace("-D -s ", "-D ")
        .replace("../../target/release", from.to_str().expect("UTF-8"))
        .replace("/usr/local", prefix.to_str().expect("UTF-8"));
    run(Command::new("sh").arg("-ec").arg(script).current_dir(crate_root()));
    share(&prefix.join("lib"), &from);
}

/// Makes installed libraries links to those that were built, from which they do not differ here: copies for each test
/// would take gigabytes.
fn share(installed: &Path, built: &Path) {
    let sources = ["libskep_capi.a", "libskep_capi.so"].map(|name| built.join(name));
    for entry in std::fs::read_dir(installed).unwrap().map(Result::unwrap) {
        let length = |path: &Path| {
            std::fs::symlink_metadata(path).ok().filter(|about| about.is_file()).map(|about| about.len())
        };
        let path = entry.path();
        let same = sources.iter().find(|source| length(&path).is_some() && length(source) == length(&path));
        let Some(source) = same else { continue };
        let beside = path.with_extension("link");
        // Where there are no links, the copy stays.
        if std::fs::hard_link(source, &beside).is_ok() {
            std::fs::rename(&beside, &path).unwrap();
        }
    }
}

/// A code block of README.md in that language.
fn block(language: &str) -> String {
    let readme = std::fs::read_to_string(crate_root().join("README.md")).unwrap();
    let (_, behind) = readme.split_once(&format!("```{language}\n")).expect("there is such a block");
    behind.split_once("```").expect("it ends").0.to_owned()
}

/// The values of these lines in the installed skep.pc, with `${name}` replaced, as pkg-config prints them.
pub(crate) fn pc(prefix: &Path, names: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string(prefix.join("lib/pkgconfig/skep.pc")).unwrap();
    assert!(!text.contains('@'), "a place was not filled:\n{text}");
    let line = |name: &str, sign: &str| {
        let begin = format!("{name}{sign}");
        let found = text.lines().find_map(|line| line.strip_prefix(&begin));
        found.unwrap_or_else(|| panic!("no {begin} in:\n{text}")).trim().to_owned()
    };
    let names = names.iter().map(|name| {
        let mut value = line(name, ":");
        for variable in ["libdir", "includedir", "prefix"] {
            value = value.replace(&format!("${{{variable}}}"), &line(variable, "="));
        }
        value
    });
    names.flat_map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

pub(crate) fn example(name: &str) -> PathBuf {
    root().join(format!("examples/{name}.bpf.o"))
}
