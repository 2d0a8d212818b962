//! Programs that cannot be compiled, and their errors.

use skep_abi::{Linkage, MapLink};

use super::Program;

fn message(text: &str) -> String {
    Program::new(text).refusal().to_string()
}

#[test]
fn an_uncompilable_instruction_is_named_with_its_slot() {
    for (text, expected) in [
        ("r0 = 0\ncall 77\nexit", "slot 1: nothing implements helper 77; add it to the linkage"),
        ("r1 = map[0] ll\nexit", "slot 0: the linkage has 0 maps and none at index 0"),
        ("r0 = 0\ncallx r1\nexit", "slot 1: a call of the function in a register cannot be compiled"),
        (
            "r0 = *(u8 *)skb[4]\nexit",
            "slot 0: a legacy packet load without a socket buffer cannot be compiled",
        ),
        ("r1 = map_fd[3] ll\nexit", "slot 0: a map named by file descriptor cannot be compiled"),
    ] {
        assert_eq!(message(text), expected, "{text}");
    }
}

#[test]
fn direct_values_are_for_maps_that_have_them() {
    let mut program = Program::new("r1 = map_value[0]+8 ll\nr0 = 0\nexit");
    program.linkage = Linkage { maps: vec![MapLink::default()], ..Linkage::default() };
    assert_eq!(program.refusal().to_string(), "slot 0: values of map 0 cannot be addressed directly");
}

#[test]
fn parts_that_contradict_each_other_are_refused_without_a_panic() {
    for (text, expected) in [
        ("goto +5\nexit", "slot 0: a jump leaves its function"),
        ("goto -3\nexit", "slot 0: a jump leaves its function"),
        ("goto +1\nr0 = 5 ll\nexit", "slot 0: a jump into the middle of a 64-bit immediate load"),
    ] {
        assert_eq!(message(text), expected, "{text}");
    }
    let mut program = Program::new("r0 = 0\nexit");
    program.facts.pop();
    assert_eq!(program.refusal().to_string(), "slot 2: facts and instructions differ in number");
    let mut program = Program::new("r0 = 0\nexit\nexit");
    program.functions[0].end = 2;
    assert_eq!(program.refusal().to_string(), "slot 2: instructions outside of all functions");
    let mut program = Program::new("r0 = 0\ncall f\nexit\nf: exit");
    program.functions[0].end = 4;
    program.functions.pop();
    assert_eq!(
        program.refusal().to_string(),
        "slot 1: a call or the address of something that is not a function"
    );
}

#[test]
fn an_address_of_no_function_is_refused() {
    let mut program = Program::new("r1 = func[f] ll\nr0 = 0\nexit\nf: exit");
    program.functions[0].end = 5;
    program.functions.pop();
    assert_eq!(
        program.refusal().to_string(),
        "slot 0: a call or the address of something that is not a function"
    );
}

#[test]
fn unreachable_instructions_need_no_code() {
    let mut program = Program::new("r0 = 5\nexit\ncall 77\nexit");
    program.facts[2].reached = false;
    assert_eq!(program.run(0, 0), 5);
}
