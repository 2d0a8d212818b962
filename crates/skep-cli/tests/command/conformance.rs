//! The plugin protocol of the public bpf_conformance suite.

use crate::{Said, command, from_output, skep};
use std::io::Write;
use std::process::Stdio;

fn assemble(text: &str) -> String {
    let slots = skep::isa::encode(&skep::isa::assemble(text).unwrap()).unwrap();
    let bytes = slots.into_iter().flat_map(|slot| slot.to_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Runs a program both ways and returns what both printed.
#[track_caller]
fn answer(program: &str, memory: &str) -> String {
    let program = assemble(program);
    let said = |engine| {
        let said = skep(&["conformance", memory, "--program", &program, engine]);
        assert_eq!(said.status, Some(0), "{}", said.err);
        said.out.trim().to_owned()
    };
    let compiled = said("--jit");
    assert_eq!(compiled, said("--interpret"));
    compiled
}

#[test]
fn the_answer_is_r0_in_hexadecimal() {
    assert_eq!(answer("r0 = 291\nexit", ""), "123");
    assert_eq!(answer("r0 = -1\nexit", ""), "ffffffffffffffff");
}

#[test]
fn memory_and_its_length_are_the_arguments() {
    assert_eq!(answer("r0 = *(u16 *)(r1 + 2)\nexit", "aa bb 11 22 cc dd"), "2211");
    assert_eq!(answer("r0 = r2\nexit", "aabb 1122"), "4");
    assert_eq!(answer("r0 = r2\nexit", ""), "0");
}

/// The suite's runner gives the memory, then the plugin's options.
#[test]
fn the_memory_may_precede_the_commands_name() {
    let program = assemble("r0 = *(u8 *)(r1 + 1)\nr0 += r2\nexit");
    let said = skep(&["05 07 09", "conformance", "--program", &program, "--jit"]);
    assert_eq!((said.status, said.out.as_str()), (Some(0), "a\n"), "{}", said.err);
    let program = assemble("r0 = r2\nexit");
    let said = skep(&["", "conformance", "--program", &program]);
    assert_eq!((said.status, said.out.as_str()), (Some(0), "0\n"), "{}", said.err);
    // What is no memory is no command either.
    skep(&["05 zz", "conformance"]).refused(2, &["05 zz"]);
}

#[test]
fn the_program_may_come_on_standard_input() {
    let mut child = command()
        .args(["conformance", "01 02"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let program = assemble("r0 = *(u8 *)(r1 + 1)\nexit").replace(' ', "\n\t ");
    child.stdin.take().unwrap().write_all(program.as_bytes()).unwrap();
    let said: Said = from_output(&child.wait_with_output().unwrap());
    assert_eq!((said.status, said.out.as_str()), (Some(0), "2\n"), "{}", said.err);
}

#[test]
fn the_helper_may_be_a_constant_in_a_register() {
    assert_eq!(answer("r1 = 81\nr4 = 3\ncallx r4\nexit", ""), "9");
    assert_eq!(answer("r1 = 0\nr0 = 5\ncallx r0\nr0 = 7\nexit", ""), "0", "unwinding ends the program");
    let own = "r7 = func[own] ll\ncallx r7\nr0 += 1\nexit\nown: r0 = 4\nexit";
    assert_eq!(answer(own, ""), "5");
    let program = assemble("r4 = *(u8 *)(r1 + 0)\nr1 = 81\ncallx r4\nexit");
    skep(&["conformance", "03", "--program", &program]).refused(1, &["through registers"]);
}

#[test]
fn the_suites_helpers_are_there() {
    let gather = "r1 = 1\nr2 = 2\nr3 = 3\nr4 = 4\nr5 = 5\ncall 0\nexit";
    assert_eq!(answer(gather, ""), "102030405");
    assert_eq!(answer("r2 = 2\nr6 = r1\ncall 1\nr0 = *(u16 *)(r6 + 0)\nexit", "2a 2b"), "100");
    assert_eq!(answer("r6 = 7\ncall 2\nr0 = r6\nexit", ""), "7");
    assert_eq!(answer("r1 = 1000000\ncall 3\nexit", ""), "3e8");
    assert_eq!(answer("r2 = r1\nr2 += 3\ncall 4\nexit", "61 62 00 61 62 00"), "0");
}

#[test]
fn unwinding_ends_the_program_when_the_helper_returns_zero_and_not_otherwise() {
    assert_eq!(answer("r1 = -1\ncall 5\nr0 = 2\nexit", ""), "2");
    assert_eq!(answer("r1 = 0\ncall 5\nr0 = 2\nexit", ""), "0");
}

#[test]
fn programs_go_through_the_verifier() {
    let program = assemble("r0 = *(u64 *)(r1 + 8)\nexit");
    skep(&["conformance", "0011223344556677", "--program", &program]).refused(1, &["instruction 0"]);
    let program = assemble("r0 = r9\nexit");
    skep(&["conformance", "--program", &program]).refused(1, &["r9"]);
}

#[test]
fn bytes_that_are_no_instructions_are_refused() {
    skep(&["conformance", "--program", "ff 00 00 00 00 00 00 00"]).refused(1, &["0xff"]);
    skep(&["conformance", "--program", "95 00 00"]).refused(1, &["8"]);
}
