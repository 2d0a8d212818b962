//! The header matches the library: every function with its type, every number, every structure.

use crate::toolchain::{compiler, crate_root, run, scratch};
use skep_capi::{LoadOptions, RuntimeOptions, Status};
use std::fmt::Write;
use std::mem::offset_of;

/// Rust types in this crate's declarations, with their names in C.
const TYPES: [(&str, &str); 16] = [
    ("c_int", "int"),
    ("c_char", "char"),
    ("c_void", "void"),
    ("u8", "uint8_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("usize", "size_t"),
    ("Runtime", "skep_runtime"),
    ("Object", "skep_object"),
    ("Module", "skep_module"),
    ("Program", "skep_program"),
    ("Map", "skep_map"),
    ("Packet", "skep_packet"),
    ("RuntimeOptions", "skep_runtime_options"),
    ("Events", "skep_ringbuf"),
    ("RecordFn", "skep_record_fn"),
];

#[test]
fn the_header_declares_every_function_of_the_library() {
    let declared = declarations();
    let names: Vec<&str> = declared.iter().map(|(name, _)| name.as_str()).collect();
    let header = header();
    let of_header: Vec<&str> = called(&header).collect();
    for name in &names {
        assert!(of_header.contains(name), "{name} is not in skep.h");
    }
    for name in &of_header {
        assert!(names.contains(name), "skep.h declares {name}, which does not exist");
    }
    // C rejects a redeclaration with another type.
    let again: String = declared.into_iter().map(|(_, declaration)| declaration + "\n").collect();
    accept("declarations", &again);
}

#[test]
fn the_host_in_c_uses_every_function() {
    let host = std::fs::read_to_string(crate_root().join("tests/c_host/host.c")).unwrap();
    for (name, _) in declarations() {
        assert!(host.contains(&format!("{name}(")), "host.c does not call {name}");
    }
}

#[test]
fn numbers_and_structures_match_in_rust_and_c() {
    let mut text = String::new();
    let mut same = |c: &str, rust: i64| {
        let line = text.lines().count();
        writeln!(text, "typedef char same_{line}[({c}) == ({rust}) ? 1 : -1];").unwrap();
    };
    for (name, status) in Status::ALL {
        same(name, status as i64);
    }
    let flags = [
        ("SKEP_ANY", "Any"),
        ("SKEP_NOEXIST", "NoExist"),
        ("SKEP_EXIST", "Exist"),
        ("SKEP_LOCK", "AnyLocked"),
    ];
    for (name, flags) in flags {
        let number = (0..8)
            .find(|n| skep::UpdateFlags::from_number(*n).is_some_and(|found| format!("{found:?}") == flags));
        same(name, number.expect("it has a number") as i64);
    }
    same("SKEP_LANDING_PADS", RuntimeOptions::LANDING_PADS as i64);
    same("SKEP_SIGNED_RETURNS", RuntimeOptions::SIGNED_RETURNS as i64);
    let mut field = |structure: &str, field: &str, at: usize| {
        same(&format!("offsetof({structure}, {field})"), at as i64);
    };
    field("skep_runtime_options", "size", offset_of!(RuntimeOptions, size));
    field("skep_runtime_options", "cpus", offset_of!(RuntimeOptions, cpus));
    field("skep_runtime_options", "map_memory", offset_of!(RuntimeOptions, map_memory));
    field("skep_runtime_options", "code_memory", offset_of!(RuntimeOptions, code_memory));
    field("skep_runtime_options", "hardening", offset_of!(RuntimeOptions, hardening));
    field("skep_load_options", "size", offset_of!(LoadOptions, size));
    field("skep_load_options", "program", offset_of!(LoadOptions, program));
    field("skep_load_options", "buffer_len", offset_of!(LoadOptions, buffer_len));
    same("sizeof(skep_runtime_options)", size_of::<RuntimeOptions>() as i64);
    same("sizeof(skep_load_options)", size_of::<LoadOptions>() as i64);
    accept("numbers", &text);
    // Counted, so that a new field cannot be forgotten above.
    let header = header();
    let statuses = header.lines().filter(|line| line.contains("SKEP_E_") && line.contains("= -"));
    assert_eq!(statuses.count() + 1, Status::ALL.len());
}

#[test]
fn the_version_is_one() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(header().contains(&format!("#define SKEP_VERSION \"{version}\"")));
    let readme = std::fs::read_to_string(crate_root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("s|@VERSION@|{version}|")));
}

/// Name and C declaration of every function that the Rust sources export.
fn declarations() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(crate_root().join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in text.split("extern \"C\" fn ").skip(1) {
            let (signature, _) = function.split_once(" {").expect("a body follows");
            let (name, rest) = signature.split_once('(').expect("arguments follow");
            let (arguments, result) = rest.rsplit_once(')').expect("arguments end");
            let arguments: Vec<String> = arguments
                .split(',')
                .filter_map(|argument| argument.split_once(':'))
                .map(|(_, of)| in_c(of.trim()))
                .collect();
            let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
            let result = result.trim().strip_prefix("-> ").map_or("void".to_owned(), in_c);
            found.push((name.to_owned(), format!("{result} {name}({arguments});")));
        }
    }
    let exported = found.len();
    assert!(exported >= 20, "only {exported} functions were found");
    found
}

/// A type as C writes it.
fn in_c(rust: &str) -> String {
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", in_c(to));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        // `const` comes before a name, but after a pointer.
        let to = in_c(to);
        return if to.ends_with('*') { format!("{to}const *") } else { format!("const {to} *") };
    }
    let known = TYPES.iter().chain([&("LoadOptions", "skep_load_options")]).find(|(of, _)| *of == rust);
    known.unwrap_or_else(|| panic!("the type {rust} has no name in C")).1.to_owned()
}

/// The header without its comments.
fn header() -> String {
    let text = std::fs::read_to_string(crate_root().join("include/skep.h")).unwrap();
    let mut code = String::new();
    for part in text.split("/*") {
        code.push_str(part.split_once("*/").map_or(part, |(_, code)| code));
    }
    code
}

/// The names before a parenthesis that begin with `skep_`.
fn called(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('(').filter_map(|(at, _)| {
        let name = text[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        name.starts_with("skep_").then_some(name)
    })
}

/// Compiles these lines after the header.
fn accept(test: &str, lines: &str) {
    let Some(mut compiler) = compiler() else { return };
    let file = scratch(test).join("test.c");
    std::fs::write(&file, format!("#include <skep.h>\n{lines}")).unwrap();
    run(compiler.arg("-fsyntax-only").arg("-I").arg(crate_root().join("include")).arg(file));
}
