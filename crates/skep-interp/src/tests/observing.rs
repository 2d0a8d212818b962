//! What an observer is told of a run, against lists written by hand.

use super::callbacks::{LOOP, program, repeat};
use super::calls::linkage;
use super::*;
use crate::exec::AccessKind;
use crate::observe::{Callee, Observed, Observer, Step};
use skep_isa::Size;

/// Writes down everything. Addresses are relative to the `r10` of the program's first frame.
#[derive(Default)]
struct Record {
    lines: Vec<String>,
    top: u64,
    /// The last eight bytes of each frame's stack, at each step.
    stacks: Vec<Vec<u64>>,
}

impl Observer for Record {
    fn step(&mut self, step: &Step<'_>) {
        self.top = step.top(0);
        let frames: Vec<_> = (0..step.depth()).map(|n| (step.function(n), step.slot_of(n))).collect();
        self.lines.push(format!("{} r0={} {frames:?}", step.slot, step.registers[0]));
        assert_eq!(step.registers[10], step.top(step.depth() - 1), "r10 is the innermost frame's");
        let last = |n| u64::from_ne_bytes(step.stack(n)[504..].try_into().unwrap());
        self.stacks.push((0..step.depth()).map(last).collect());
    }
    fn access(&mut self, at: u64, size: Size, kind: AccessKind) {
        self.lines.push(format!("{kind:?} {} {}", at.wrapping_sub(self.top).cast_signed(), size.bytes()));
    }
    fn call(&mut self, callee: Callee, args: [u64; 5]) {
        self.lines.push(format!("call {callee:?} {}", args[0]));
    }
    fn returned(&mut self, callee: Callee, result: u64) {
        self.lines.push(format!("returned {callee:?} {result}"));
    }
}

/// Runs a program with and without an observer: the results must be equal.
fn observed(parts: &Parts) -> (u64, Record) {
    let linkage = linkage(&[(LOOP, repeat)]);
    let code = Code::new(parts.clone(), &linkage).unwrap();
    let (mut record, mut env) = (Record::default(), RunEnv::default());
    let mut watch = Observed::new(&code, &mut record);
    // SAFETY: the programs of these tests access only their own stack.
    let Ok(result) = unsafe { exec::run(&code, 0, 0, &mut env, &mut watch) };
    assert_eq!(run(parts, &linkage, 0, 0), result);
    (result, record)
}

#[test]
fn each_instruction_is_told_before_it_happens_and_its_access_after_that() {
    let parts = program("r0 = 7\n*(u64 *)(r10 - 8) = r0\nr0 = 1\nr0 = *(u64 *)(r10 - 8)\nexit", &[0]);
    let (result, record) = observed(&parts);
    let lines = [
        "0 r0=0 [(0, 0)]",
        "1 r0=7 [(0, 1)]",
        "Write -8 8",
        "2 r0=7 [(0, 2)]",
        "3 r0=1 [(0, 3)]",
        "Read -8 8",
        "4 r0=7 [(0, 4)]",
    ];
    assert_eq!((result, record.lines), (7, lines.map(str::to_owned).to_vec()));
    // The stack is shown as it is before the instruction.
    assert_eq!(record.stacks, [[0], [0], [7], [7], [7]]);
}

#[test]
fn a_called_function_has_a_frame_until_it_returns() {
    let text = "
        *(u64 *)(r10 - 8) = 5
        call three
        exit
 three: *(u64 *)(r10 - 8) = 6
        r0 = 3
        exit";
    let (result, record) = observed(&program(text, &[0, 3]));
    let steps: Vec<_> = record.lines.iter().filter(|line| line.contains("r0=")).cloned().collect();
    let expected = [
        "0 r0=0 [(0, 0)]",
        "1 r0=0 [(0, 1)]",
        "3 r0=0 [(0, 1), (1, 3)]",
        "4 r0=0 [(0, 1), (1, 4)]",
        "5 r0=3 [(0, 1), (1, 5)]",
        "2 r0=3 [(0, 2)]",
    ];
    assert_eq!((result, steps), (3, expected.map(str::to_owned).to_vec()));
    assert_eq!(record.stacks, [vec![0], vec![5], vec![5, 0], vec![5, 6], vec![5, 6], vec![5]]);
}

#[test]
fn functions_that_a_helper_calls_are_told_between_its_call_and_its_return() {
    let text = "
        r1 = 2
        r2 = func[again] ll
        r3 = 0
        r4 = 0
        call 181
        exit
 again: r0 = 0
        exit";
    // A 64-bit load has two slots.
    let (result, record) = observed(&program(text, &[0, 7]));
    let from = record.lines.iter().position(|line| line.starts_with("call")).unwrap();
    let expected = [
        "call Helper(181) 2",
        "7 r0=0 [(0, 5), (1, 7)]",
        "8 r0=0 [(0, 5), (1, 8)]",
        "7 r0=0 [(0, 5), (1, 7)]",
        "8 r0=0 [(0, 5), (1, 8)]",
        "returned Helper(181) 2",
        "6 r0=2 [(0, 6)]",
    ];
    assert_eq!((result, &record.lines[from..]), (2, &expected.map(str::to_owned)[..]));
}
