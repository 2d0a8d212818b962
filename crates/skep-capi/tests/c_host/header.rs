//! The header matches the library: every function with its type, every number, every structure.

use crate::toolchain::{compiler, crate_root, run, scratch};
use skep_capi::{Field, HelperOptions, OutcomeInfo, PLACES, Param, Quotas, RuntimeOptions, Status};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Rust types in this crate's declarations, with their names in C.
const TYPES: [(&str, &str); 58] = [
    ("c_int", "int"),
    ("c_char", "char"),
    ("c_void", "void"),
    ("u8", "uint8_t"),
    ("u32", "uint32_t"),
    ("i32", "int32_t"),
    ("u64", "uint64_t"),
    ("i64", "int64_t"),
    ("usize", "size_t"),
    ("Runtime", "skep_runtime"),
    ("Object", "skep_object"),
    ("Module", "skep_module"),
    ("Program", "skep_program"),
    ("Map", "skep_map"),
    ("Packet", "skep_packet"),
    ("RuntimeOptions", "skep_runtime_options"),
    ("LoadOptions", "skep_load_options"),
    ("Events", "skep_ringbuf"),
    ("RecordFn", "skep_record_fn"),
    ("DropFn", "skep_free_fn"),
    ("Builder", "skep_builder"),
    ("HelperOptions", "skep_helper"),
    ("Param", "skep_param"),
    ("[Param; 5]", "skep_param[5]"),
    ("[u32; 5]", "uint32_t[5]"),
    ("Value", "skep_value"),
    ("HelperFn", "skep_helper_fn"),
    ("HelperCall<'_>", "skep_call"),
    ("LogFn", "skep_log_fn"),
    ("AuditFn", "skep_audit_fn"),
    ("OwnType", "skep_type"),
    ("TypeOptions", "skep_type_options"),
    ("Field", "skep_field"),
    ("Struct", "skep_struct"),
    ("NamedVerdict", "skep_verdict"),
    ("Bytes", "skep_bytes"),
    ("LinkerHandle", "skep_linker"),
    ("LineFn", "skep_line_fn"),
    ("Quotas", "skep_tenant"),
    ("QuotaOptions", "skep_quota"),
    ("UsageInfo", "skep_usage"),
    ("World", "skep_world"),
    ("VariableInfo", "skep_variable"),
    ("RefusalInfo", "skep_refusal"),
    ("StepInfo", "skep_step"),
    ("Context", "skep_context"),
    ("Hook", "skep_hook"),
    ("Link", "skep_link"),
    ("ResultFn", "skep_result_fn"),
    ("StatsInfo", "skep_stats"),
    ("Bucket", "skep_bucket"),
    ("MapInfo", "skep_map_info"),
    ("BatchCursor", "skep_cursor"),
    ("ProgramArray", "skep_program_array"),
    ("OuterMap", "skep_outer_map"),
    ("UserRingBuffer", "skep_user_ringbuf"),
    ("Metadata", "skep_packet_info"),
    ("OutcomeInfo", "skep_outcome"),
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
fn the_hosts_in_c_use_every_function() {
    let source = |name| std::fs::read_to_string(crate_root().join("tests/c_host").join(name)).unwrap();
    let hosts = ["host.c", "parity.c", "limits.c"].map(source).concat();
    for (name, _) in declarations() {
        assert!(hosts.contains(&format!("{name}(")), "no host in C calls {name}");
    }
}

#[test]
fn the_manual_page_names_every_function() {
    let page = std::fs::read_to_string(crate_root().join("man/skep.3")).unwrap();
    for (name, _) in declarations() {
        assert!(page.contains(&format!(".Fn {name} ")), "skep.3 does not name {name}");
    }
}

#[test]
fn every_number_is_the_same_in_rust_and_c() {
    let mut numbers: BTreeMap<&str, i64> = BTreeMap::new();
    numbers.extend(Status::ALL.map(|(name, status)| (name, status as i64)));
    let flags = [
        ("SKEP_ANY", "Any"),
        ("SKEP_NOEXIST", "NoExist"),
        ("SKEP_EXIST", "Exist"),
        ("SKEP_LOCK", "AnyLocked"),
    ];
    for (name, flags) in flags {
        let number = (0..8)
            .find(|n| skep::UpdateFlags::from_number(*n).is_some_and(|found| format!("{found:?}") == flags));
        numbers.insert(name, number.expect("it has a number") as i64);
    }
    numbers.insert("SKEP_LANDING_PADS", RuntimeOptions::LANDING_PADS as i64);
    numbers.insert("SKEP_SIGNED_RETURNS", RuntimeOptions::SIGNED_RETURNS as i64);
    let lists = [
        &Param::KINDS[..],
        &HelperOptions::RESULTS,
        &Field::KINDS,
        &Quotas::RESOURCES,
        &OutcomeInfo::REDIRECTS,
    ];
    numbers.extend(lists.into_iter().flat_map(|list| list.iter().copied().zip(0..)));
    numbers.extend(PLACES.iter().map(|(name, _)| *name).zip(0..));
    for bits in [&RuntimeOptions::FLAGS, &Field::FLAGS] {
        numbers.extend(bits.iter().copied().zip(0..).map(|(name, bit)| (name, 1 << bit)));
    }
    let header = header();
    let of_header: Vec<(&str, &str)> = header
        .split([',', '{', '}', '\n'])
        .filter_map(|part| part.trim().strip_prefix("SKEP_").map(|_| part.trim()))
        .filter_map(|part| part.split_once('='))
        .map(|(name, number)| (name.trim(), number.trim()))
        .collect();
    for (name, number) in &of_header {
        let known = numbers.get(name).unwrap_or_else(|| panic!("{name} is not compared with Rust"));
        assert_eq!(number.parse(), Ok(*known), "{name}");
    }
    assert_eq!(of_header.len(), numbers.len(), "the header lacks some of {:?}", numbers.keys());
}

#[test]
fn every_structure_is_the_same_in_rust_and_c() {
    let mut text = "#include <stddef.h>\n".to_owned();
    let mut same = |condition: &str| {
        let line = text.lines().count();
        writeln!(text, "typedef char same_{line}[({condition}) ? 1 : -1];").unwrap();
    };
    let structures = structures();
    assert!(structures.len() >= 20, "only {} structures were found", structures.len());
    let header = header();
    for (name, fields) in structures {
        // The same fields declared from Rust have the same places, sizes and types.
        let declared = fields.iter().fold(String::new(), |mut all, (field, of)| {
            match of.split_once('[') {
                Some((of, count)) => write!(all, "{of} {field}[{count};").unwrap(),
                None => write!(all, "{of} {field};").unwrap(),
            }
            all
        });
        same(&format!("sizeof({name}) == sizeof(struct {{ {declared} }})"));
        for (field, of) in &fields {
            let before = declared.split_once(&format!(" {field};")).map_or(String::new(), |(before, _)| {
                before[..before.rfind(';').map_or(0, |at| at + 1)].to_owned()
            });
            let place = format!("offsetof(struct {{ {before} {of} at; }}, at)");
            if !of.contains('[') {
                same(&format!("offsetof({name}, {field}) == {place}"));
                same(&format!("__builtin_types_compatible_p(__typeof__((({name} *) 0)->{field}), {of})"));
            }
        }
        let (body, _) = header.split_once(&format!("}} {name};")).unwrap_or_else(|| panic!("no {name}"));
        let body = &body[body.rfind('{').expect("it begins")..];
        assert_eq!(body.matches(';').count(), fields.len(), "{name} has other fields in C");
    }
    accept("structures", &text);
}

#[test]
fn the_header_is_one_of_cpp() {
    let Some(mut compiler) = crate::toolchain::cpp() else { return };
    let file = scratch("cpp").join("test.cpp");
    let lines: String = declarations().into_iter().map(|(_, line)| line + "\n").collect();
    std::fs::write(&file, format!("#include <skep.h>\nextern \"C\" {{\n{lines}}}\n")).unwrap();
    run(compiler.arg("-fsyntax-only").arg("-I").arg(crate_root().join("include")).arg(file));
}

#[test]
fn the_version_is_one() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(header().contains(&format!("#define SKEP_VERSION \"{version}\"")));
    let readme = std::fs::read_to_string(crate_root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("s|@VERSION@|{version}|")));
}

/// Name and C declaration of every function that the Rust sources export.
pub(crate) fn declarations() -> Vec<(String, String)> {
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
    assert!(exported >= 150, "only {exported} functions were found");
    found
}

/// Whether the header tells nothing of a structure but its name.
pub(crate) fn is_opaque(name: &str) -> bool {
    name != "skep_call" && header().contains(&format!("typedef struct {name} {name};"))
}

/// Name, and fields with their types in C, of every structure that C sees.
fn structures() -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(crate_root().join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for structure in text.split("#[repr(C)]\npub struct ").skip(1) {
            let (name, rest) = structure.split_once(" {").expect("fields follow");
            let (body, _) = rest.split_once("\n}").expect("it ends");
            let fields = body.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": "));
            let fields = fields.map(|(field, of)| (field.to_owned(), in_c(of.trim_end_matches(','))));
            found.push((in_c(name), fields.collect()));
        }
    }
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
    let known = TYPES.iter().find(|(of, _)| *of == rust);
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
