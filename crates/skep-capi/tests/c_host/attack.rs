//! A host in C that passes what it should not: NULL for each argument of each function, and the program `attack.c`.

use crate::header::declarations;
use crate::hosts::{install, pc};
use crate::toolchain::{compiler, crate_root, run, scratch};
use std::fmt::Write;
use std::process::Command;

/// Functions with a result of type int that is no status.
const NO_STATUS: [&str; 4] =
    ["skep_runtime_release_cpu", "skep_cursor_at_end", "skep_ringbuf_fd", "skep_user_ringbuf_fd"];

#[test]
fn null_for_any_argument_is_an_error_and_no_crash() {
    let mut text = "#include \"attack.h\"\nstatic void *slot[8];\nstatic uint64_t buffer[64];\n".to_owned();
    text += "static struct { size_t size; uint64_t zeroes[64]; } any;\n";
    text += "int main(int argc, char **argv)\n{\n\tCHECK(argc == 2);\n";
    for (name, declaration) in declarations() {
        let arguments = arguments(&declaration);
        let nothing: Vec<String> = arguments.iter().map(|of| format!("({of})0")).collect();
        let call = format!("{name}({})", nothing.join(", "));
        if declaration.starts_with("int ") && !NO_STATUS.contains(&name.as_str()) {
            writeln!(text, "\tCHECK({call} < 0);").unwrap();
        } else {
            writeln!(text, "\t(void){call};").unwrap();
        }
    }
    text += "\tmake_valid(argv[1]);\n";
    for (name, declaration) in declarations() {
        let arguments = arguments(&declaration);
        // What is freed cannot be used again.
        if name.ends_with("_free") || arguments.len() < 2 {
            continue;
        }
        for null in 0..arguments.len() {
            if !arguments[null].ends_with('*') {
                continue;
            }
            let given = arguments.iter().enumerate();
            let given: Vec<String> =
                given.map(|(at, of)| if at == null { format!("({of})0") } else { valid(of) }).collect();
            writeln!(text, "\tany.size = 8;\n\t(void){name}({});", given.join(", ")).unwrap();
        }
    }
    text += "\tputs(\"no crash\");\n\treturn 0;\n}\n";
    let Some(mut host) = built("nulls", Some(&text)) else { return };
    assert_eq!(run(&mut host), "no crash\n");
}

#[test]
fn wrong_sizes_orders_of_frees_and_threads_break_nothing() {
    let Some(mut host) = built("attack", None) else { return };
    assert_eq!(run(&mut host), "attack: nothing broke\n");
}

#[test]
fn the_address_sanitizer_finds_nothing_in_an_attack() {
    let what = "errors and leaks of a hostile host in C";
    if skep_testkit::is_emulated() {
        return skep_testkit::hidden(skep_testkit::Hidden::DebuggersAndProfilers, what);
    }
    let Some(mut host) = built("attack-asan", None) else { return };
    // Reads that may fault are part of skep, whose own handler comes first.
    host.env("ASAN_OPTIONS", "handle_segv=0:handle_sigbus=0:detect_leaks=1:allocator_may_return_null=1");
    assert_eq!(run(&mut host), "attack: nothing broke\n");
}

/// The types of a function's arguments.
fn arguments(declaration: &str) -> Vec<&str> {
    let (_, arguments) = declaration.split_once('(').expect("arguments follow");
    let arguments = arguments.trim_end_matches(");");
    if arguments == "void" { Vec::new() } else { arguments.split(", ").collect() }
}

/// An argument of this type that is as it should be.
fn valid(of: &str) -> String {
    let bare = of.trim_start_matches("const ");
    match of {
        "const char *" => "\"x\"".to_owned(),
        _ if of.matches('*').count() > 1 => format!("({of})slot"),
        _ if !of.ends_with('*') => format!("({of})0"),
        _ if crate::header::is_opaque(bare.trim_end_matches(" *")) => {
            format!("valid_{}", bare.trim_end_matches(" *"))
        }
        "skep_call *" | "const skep_call *" => format!("({of})0"),
        _ if bare.starts_with("skep_") && !bare.starts_with("skep_bucket") => format!("({of})&any"),
        _ => format!("({of})buffer"),
    }
}

/// The host from this text or from `attack.c`, with its argument.
fn built(test: &str, text: Option<&str>) -> Option<Command> {
    let mut compiler = compiler()?;
    let prefix = scratch(test);
    install(&prefix);
    let here = crate_root().join("tests/c_host");
    let source = match text {
        None => here.join("attack.c"),
        Some(text) => {
            let source = prefix.join("generated.c");
            std::fs::write(&source, text).unwrap();
            source
        }
    };
    let program = prefix.join("host");
    if test.ends_with("asan") {
        // Not position-independent: where addresses are random in 32 bits, it may be placed where the sanitizer's heap
        // is.
        compiler.args(["-fsanitize=address", "-no-pie"]);
    }
    compiler.arg("-g").arg("-pthread").arg("-I").arg(&here).arg("-o").arg(&program).arg(source);
    run(compiler.args(pc(&prefix, &["Cflags", "Libs"])));
    let mut host = skep_testkit::other(&program);
    host.env("LD_LIBRARY_PATH", prefix.join("lib"));
    host.arg(crate_root().join("tests/objects/parity.bpf.o"));
    Some(host)
}
