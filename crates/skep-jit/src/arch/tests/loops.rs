//! What passes make of loops: which are copied and which are done in bulk, and that bulk does what rounds do.

use skep_abi::RunEnv;

use super::Program;
use crate::options::{Options, Passes};
use crate::passes::rewrite;

/// How many loops are done in bulk, and which instructions the code consists of.
fn shape(text: &str) -> Option<(usize, Vec<usize>)> {
    rewrite(Program::new(text).parts(), Options::default()).map(|rewritten| rewritten.shape())
}

fn is_bulk(text: &str) -> bool {
    shape(text).is_some_and(|(bulk, _)| bulk == 1)
}

#[test]
fn the_smallest_loops_have_four_copies_and_small_ones_two() {
    let copies = |length: usize, filler: usize| {
        let body = "r0 *= 3\n".repeat(length - 2);
        let rest = "r0 ^= 7\n".repeat(filler);
        let (bulk, slots) =
            shape(&format!("r2 = 9\nhead: {body}r2 -= 1\nif r2 != 0 goto head\n{rest}exit")).unwrap();
        assert_eq!(bulk, 0);
        slots.iter().filter(|slot| **slot == 1).count()
    };
    assert_eq!(copies(4, 0), 4);
    assert_eq!(copies(8, 0), 4);
    assert_eq!(copies(9, 0), 2);
    assert_eq!(copies(12, 0), 2);
    assert!(shape("r2 = 9\nhead: r0 /= r3\nr2 -= 1\nif r2 != 0 goto head\nexit").is_none());
    assert!(shape("r2 = 9\nhead: r2 -= 1\ncall f\nif r2 != 0 goto head\nexit\nf: r0 = 1\nexit").is_none());
    assert!(shape("r2 = 9\nr0 = r2\nexit").is_none());
}

#[test]
fn many_loops_do_not_double_a_program() {
    let one = |number: usize| {
        format!("r2 = 9\nhead{number}: r0 *= 3\nr0 ^= r2\nr0 += 5\nr2 -= 1\nif r2 != 0 goto head{number}\n")
    };
    let text: String = (0..30).map(one).collect();
    let slots = Program::new(&format!("{text}exit")).parts().insns.len();
    let (_, made) = shape(&format!("{text}exit")).unwrap();
    assert!(made.len() > slots && made.len() <= 2 * slots, "{} of {slots}", made.len());
}

#[test]
fn a_condition_at_the_start_gets_a_copy_at_the_end() {
    let only = Options { passes: Passes { rotate: true, ..Passes::NONE }, ..Options::default() };
    let text = "r2 = 0\nhead: r3 = r2\nif r3 > 5 goto out\nr0 *= 3\nr2 += 1\ngoto head\nout: exit";
    let program = Program::new(text);
    let rewritten = rewrite(program.parts(), only).expect("is rotated");
    // The jump back is gone; the two jumps of the copied condition stand for one instruction.
    assert_eq!(rewritten.shape().1, [0, 1, 2, 3, 4, 1, 2, 6]);
    let end = "r2 = 0\nhead: r0 *= 3\nr2 += 1\nif r2 == 9 goto +1\ngoto head\nexit";
    assert!(rewrite(Program::new(end).parts(), only).is_none(), "its condition is at the end already");
}

#[test]
fn copies_fills_and_sums_are_done_in_bulk() {
    for text in [
        "r2 = 0\nhead: r3 = r1\nr3 += r2\nr4 = *(u8 *)(r3 + 0)\n*(u8 *)(r3 + 512) = r4\nr2 += 1\nif r2 != 512 goto head\nexit",
        "r2 = 0\nhead: r3 = r1\nr3 += r2\nr4 = *(u8 *)(r3 + 0)\n*(u8 *)(r3 + 512) = r4\nr2 += 1\nif r2 == 512 goto +1\n\
         goto head\nexit",
        "head: r4 = *(u32 *)(r1 + 0)\n*(u32 *)(r2 - 4) = r4\nr1 += 4\nr2 += 4\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: r4 = *(u64 *)(r1 + 0)\n*(u64 *)(r2 + 0) = r4\nr2 += 8\nr1 += 8\nif r3 > r1 goto head\nexit",
        "head: *(u16 *)(r1 + 6) = 7\nr1 += 2\nif r1 < r3 goto head\nexit",
        "head: *(u64 *)(r1 + 0) = r5\nr1 += 8\nr2 += 1\nif r2 < 9 goto head\nexit",
        "head: r3 = *(u16 *)(r1 + 0)\nr5 += r3\nr1 += 2\nif r1 != r2 goto head\nr0 = r5\nexit",
        "head: r3 = *(u8 *)(r1 + 0)\nw5 += w3\nr1 += 1\nif r1 != r2 goto head\nr0 = r5\nexit",
    ] {
        assert!(is_bulk(text), "{text}");
    }
}

#[test]
fn what_only_looks_like_it_is_done_one_by_one() {
    for text in [
        // Another exit; another store; another stride; a value that is changed.
        "head: r4 = *(u8 *)(r1 + 0)\nif r4 == 0 goto out\n*(u8 *)(r2 + 0) = r4\nr1 += 1\nr2 += 1\nr3 -= 1\n\
         if r3 != 0 goto head\nout: exit",
        "head: r4 = *(u8 *)(r1 + 0)\n*(u8 *)(r2 + 0) = r4\n*(u8 *)(r5 + 0) = r4\nr1 += 1\nr2 += 1\nr3 -= 1\n\
         if r3 != 0 goto head\nexit",
        "head: r4 = *(u8 *)(r1 + 0)\n*(u8 *)(r2 + 0) = r4\nr1 += 2\nr2 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: r4 = *(u8 *)(r1 + 0)\nr4 += 1\n*(u8 *)(r2 + 0) = r4\nr1 += 1\nr2 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        // Of another size; signed; what is read was loaded in the round before.
        "head: r4 = *(u16 *)(r1 + 0)\n*(u8 *)(r2 + 0) = r4\nr1 += 2\nr2 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: r4 = *(s8 *)(r1 + 0)\nr5 += r4\nr1 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: r5 = r4\nr4 = *(u8 *)(r1 + 0)\n*(u8 *)(r2 + 0) = r4\nr1 += 1\nr2 += 1\nr3 -= 1\nif r3 != 0 goto head\n\
         r0 = r5\nexit",
        // The limit moves; backwards; the lower half is compared; compared before it is counted.
        "head: *(u8 *)(r1 + 0) = 0\nr1 += 1\nr2 += 1\nr3 -= 1\nif r2 < r3 goto head\nexit",
        "head: *(u8 *)(r1 + 0) = 0\nr1 -= 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: *(u8 *)(r1 + 0) = 0\nr1 += 1\nw3 -= 1\nif w3 != 0 goto head\nexit",
        "head: *(u8 *)(r1 + 0) = 0\nr2 = r3\nr1 += 1\nr3 -= 1\nif r2 != 0 goto head\nexit",
        // A sum that is used in the round.
        "head: r4 = *(u8 *)(r1 + 0)\nr5 += r4\nr0 ^= r5\nr1 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: r4 = *(u8 *)(r1 + 0)\nr5 += r4\nr5 += r4\nr1 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
        "head: *(u8 *)(r1 + 0) = r3\nr1 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit",
    ] {
        assert!(!is_bulk(text), "{text}");
    }
}

#[test]
fn programs_of_strangers_and_charged_ones_are_not_done_in_bulk() {
    let text = "head: *(u8 *)(r1 + 0) = 0\nr1 += 1\nr3 -= 1\nif r3 != 0 goto head\nexit";
    assert!(is_bulk(text));
    assert!(rewrite(Program::new(text).parts(), Options::default().untrusted()).is_none());
    let ends = skep_abi::EndsLink { after: Vec::new(), charge: Some(super::far_helper) };
    let charged = Program::new(text).linked(skep_abi::Linkage { ends: Some(ends), ..Default::default() });
    let (bulk, slots) = rewrite(charged.parts(), Options::default()).expect("copies").shape();
    assert_eq!((bulk, slots.iter().filter(|slot| **slot == 0).count()), (0, 4));
}

#[test]
fn loads_that_may_fault_are_not_done_in_bulk() {
    let text = "head: r4 = *(u8 *)(r1 + 0)\nr5 += r4\nr1 += 1\nr3 -= 1\nif r3 != 0 goto head\nr0 = r5\nexit";
    assert!(is_bulk(text));
    let program = Program::new(text).probing();
    let rewritten = rewrite(program.parts(), Options::default()).expect("copies");
    assert_eq!(rewritten.shape().0, 0);
}

/// Runs a program over memory, its first argument three words: two addresses and a count.
fn run(ready: &super::Ready, memory: &mut [u8], from: usize, to: usize, count: u64) -> Vec<(u64, Vec<u8>)> {
    let before = memory.to_vec();
    let of = |compiled: &crate::Compiled| {
        memory.copy_from_slice(&before);
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        let words = [start + from as u64, start + to as u64, count];
        let words_at = (&raw const words).expose_provenance() as u64;
        // SAFETY: the test's own program, which stays within the memory.
        let result = unsafe { compiled.entry().call(words_at, 0, &mut RunEnv::default()) };
        (result, memory.to_vec())
    };
    ready.0.iter().map(of).collect()
}

/// Bytes that are all different from their neighbours.
fn bytes() -> Vec<u8> {
    (0..300_u32).map(|at| (at * 37 + at / 7) as u8).collect()
}

#[test]
fn copies_do_what_rounds_do_at_every_distance() {
    for (size, step) in [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)] {
        let program = Program::new(&format!(
            "r2 = *(u64 *)(r1 + 8)\nr3 = *(u64 *)(r1 + 16)\nr1 = *(u64 *)(r1 + 0)\n\
             head: r4 = *({size} *)(r1 + 0)\n*({size} *)(r2 + 0) = r4\nr1 += {step}\nr2 += {step}\nr3 -= 1\n\
             if r3 != 0 goto head\nr0 = r4\nr0 += r3\nr0 += r1\nr0 -= r2\nexit"
        ));
        let ready = program.ready();
        for count in [1, 2, 3, 7, 8, 15, 16, 17, 18, 31, 32, 33, 34, 63] {
            let count = count / step + 1;
            for to in 60..=140 {
                let mut expected = bytes();
                for at in 0..count * step {
                    // Elements one by one.
                    let (element, byte) = (at / step * step, at % step);
                    if byte == 0 {
                        let loaded = expected[100 + element..100 + element + step].to_vec();
                        expected[to + element..to + element + step].copy_from_slice(&loaded);
                    }
                }
                let results = run(&ready, &mut bytes(), 100, to, count as u64);
                assert!(results.iter().all(|(_, memory)| *memory == expected), "{size} {count} to {to}");
                assert!(results.iter().all(|(result, _)| *result == results[0].0), "{size} {count} to {to}");
            }
        }
    }
}

#[test]
fn fills_and_sums_do_what_rounds_do() {
    for (size, step) in [("u8", 1_usize), ("u16", 2), ("u32", 4), ("u64", 8)] {
        let head = "r2 = *(u64 *)(r1 + 8)\nr3 = *(u64 *)(r1 + 16)\nr1 = *(u64 *)(r1 + 0)\nr5 = r3\nr5 *= 0x1234567\n";
        let tail = "r3 -= 1\nif r3 != 0 goto head\nr0 = r5\nexit";
        let fill = Program::new(&format!("{head}head: *({size} *)(r1 + 0) = r5\nr1 += {step}\n{tail}"));
        let constant = Program::new(&format!("{head}head: *({size} *)(r1 + 0) = -7\nr1 += {step}\n{tail}"));
        let sum =
            Program::new(&format!("{head}head: r4 = *({size} *)(r1 + 0)\nr5 += r4\nr1 += {step}\n{tail}"));
        let lower =
            Program::new(&format!("{head}head: r4 = *({size} *)(r1 + 0)\nw5 += w4\nr1 += {step}\n{tail}"));
        let [fill, constant, sum, lower] = [fill, constant, sum, lower].map(|program| program.ready());
        for count in 1..70 / step as u64 + 3 {
            let value = count * 0x123_4567;
            for from in [32, 37] {
                let end = from + count as usize * step;
                for (ready, value) in [(&fill, value), (&constant, -7_i64 as u64)] {
                    let mut expected = bytes();
                    for element in expected[from..end].chunks_mut(step) {
                        element.copy_from_slice(&value.to_le_bytes()[..step]);
                    }
                    let results = run(ready, &mut bytes(), from, 0, count);
                    assert!(
                        results.iter().all(|(_, memory)| *memory == expected),
                        "{size} {count} {value:#x}"
                    );
                }
                let word = |element: &[u8]| {
                    element.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte))
                };
                let all = bytes()[from..end].chunks(step).map(word).fold(value, u64::wrapping_add);
                let results = run(&sum, &mut bytes(), from, 0, count);
                assert!(results.iter().all(|(result, _)| *result == all), "{size} {count}");
                let results = run(&lower, &mut bytes(), from, 0, count);
                assert!(results.iter().all(|(result, _)| *result == u64::from(all as u32)), "{size} {count}");
            }
        }
    }
}

#[test]
fn long_sums_of_the_largest_numbers_do_not_overflow() {
    let program = Program::new(
        "r5 = 0\nr2 = *(u64 *)(r1 + 16)\nr1 = *(u64 *)(r1 + 0)\n\
         head: r4 = *(u16 *)(r1 + 0)\nr5 += r4\nr1 += 2\nr2 -= 1\nif r2 != 0 goto head\nr0 = r5\nexit",
    );
    let mut memory = vec![0xff_u8; 3 << 20];
    let count = memory.len() as u64 / 2;
    let results = run(&program.ready(), &mut memory, 0, 0, count);
    assert!(results.iter().all(|(result, _)| *result == count * 0xffff));
}
