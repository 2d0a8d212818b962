//! Programs that are made for the verifier: as long as they are named by, and walked as far.
//!
//! All are given a buffer and return a number. No state can be pruned as irrelevant: the values that distinguish two
//! states are compared with a bound or used as an index at the end, so no sound verifier may treat the states as equal.

use std::fmt::Write;

/// A generated program.
pub(super) struct Generated {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// In assembler.
    pub(super) text: String,
    /// The length of the buffer that it is given.
    pub(super) buffer: u32,
}

/// Instructions of the straight-line programs.
pub(super) const STRAIGHT: usize = 4000;
/// Iterations of their loop.
pub(super) const ROUNDS: u64 = 1024;
/// Iterations of the loop that is walked for about a million instructions.
const LONG_ROUNDS: u64 = 95_000;
/// Diamonds whose branches never merge again, walked for about a million instructions.
const APART: u32 = 17;
/// The same with this many bytes of values on the stack.
const DEEP: u32 = 12;
const DEEP_BYTES: usize = 8 * 56;
/// Diamonds whose branches merge.
const TOGETHER: usize = 500;

/// Every program. The one whose states take most memory comes first, so that the growth counted for it is its own.
pub(super) fn all() -> Vec<Generated> {
    let made = |name, what, text, buffer| Generated { name, what, text, buffer };
    vec![
        made(
            "diamonds_deep",
            "12 diamonds, and 56 values on the stack in each state",
            apart(DEEP, true),
            1 << DEEP,
        ),
        made("straight_arithmetic", "4,000 instructions of arithmetic", straight(arithmetic), 64),
        made(
            "straight_stack",
            "4,000 instructions, stores to the stack and loads from it",
            straight(stack),
            64,
        ),
        made("straight_mixed", "4,000 instructions of both, and loads of the buffer", straight(mixed), 64),
        made("switch_counter", "1,024 rounds over a switch by the counter", switch("r9 = r6"), 64),
        made("switch_data", "1,024 rounds over a switch by data", switch("r9 = *(u8 *)(r1 + 8)"), 64),
        made("diamonds_together", "500 diamonds whose ways meet in equal states", together(), 64),
        made(
            "diamonds_apart",
            "17 diamonds, 131,072 states that differ in the end",
            apart(APART, false),
            1 << APART,
        ),
        made("long_loop", "95,000 rounds with a stack that differs in each", long_loop(), LONG_ROUNDS as u32),
    ]
}

/// A program without branches: what `block` writes for its number, again and again, cut at the length.
fn straight(block: fn(usize, &mut String)) -> String {
    let mut lines: Vec<String> =
        ["r6 = *(u64 *)(r1 + 0)", "r7 = *(u32 *)(r1 + 8)", "r8 = 7", "r0 = 0"].map(str::to_owned).into();
    for depth in (8..=512).step_by(8) {
        lines.push(format!("*(u64 *)(r10 - {depth}) = r6"));
    }
    for number in 0.. {
        if lines.len() >= STRAIGHT {
            break;
        }
        let mut text = String::new();
        block(number, &mut text);
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.truncate(STRAIGHT - 2);
    lines.push("r0 += r6".to_owned());
    lines.push("exit".to_owned());
    lines.join("\n")
}

fn arithmetic(number: usize, text: &mut String) {
    let _ = writeln!(
        text,
        "r6 += {number}\nr7 ^= r6\nr8 *= 31\nr0 += r7\nw7 &= {}\nr2 = r7\nr2 <<= 3\nr2 |= r8\nr6 -= r2\nw8 = w6\n\
         r3 = r2\nr3 >>= {}\nr0 ^= r3",
        0xffff ^ number,
        number % 63 + 1
    );
}

fn stack(number: usize, text: &mut String) {
    let depth = |of: usize| 8 * (of % 64 + 1);
    let (a, b, c) = (depth(number), depth(5 * number + 3), depth(11 * number + 7));
    let _ = writeln!(
        text,
        "*(u64 *)(r10 - {a}) = r6\nr6 = *(u64 *)(r10 - {b})\n*(u32 *)(r10 - {c}) = r7\nr7 = *(u32 *)(r10 - {c})\n\
         *(u64 *)(r10 - {b}) = {number}\nr2 = *(u8 *)(r10 - {a})\n*(u8 *)(r10 - {b}) = r2\nr0 = *(u64 *)(r10 - {a})"
    );
}

fn mixed(number: usize, text: &mut String) {
    let (depth, at) = (8 * (number % 64 + 1), 8 * (number % 8));
    let _ = writeln!(
        text,
        "r2 = *(u64 *)(r1 + {at})\nr6 += r2\n*(u64 *)(r10 - {depth}) = r6\nr7 ^= r2\nr7 &= 63\nr3 = r1\nr3 += r7\n\
         r4 = *(u8 *)(r3 + 0)\n*(u64 *)(r1 + {at}) = r4\nr5 = *(u64 *)(r10 - {depth})\nr0 += r5\nr8 = r10\n\
         r8 += -{depth}\n*(u32 *)(r8 + 4) = r4"
    );
}

/// A loop whose body is a switch of eight cases, by the lowest bits of what `by` loads into `r9`. The counter is known
/// in every iteration, and compared.
fn switch(by: &str) -> String {
    let mut text = format!("r8 = *(u64 *)(r1 + 0)\nr6 = 0\nr7 = r8\nround:\n{by}\nr9 &= 7\n");
    for case in 1..8 {
        let _ = writeln!(text, "if r9 == {case} goto case{case}");
    }
    for case in 0..8 {
        let depth = 8 * (case + 1);
        let op = ["+=", "^=", "-="][case % 3];
        let _ = writeln!(
            text,
            "case{case}:\nr4 = r8\nr4 += r6\nr4 *= {}\n*(u64 *)(r10 - {depth}) = r4\nr5 = *(u64 *)(r10 - {depth})\n\
             r7 {op} r5\nr7 ^= r4\ngoto next",
            2 * case + 3
        );
    }
    let _ = write!(text, "next:\nr7 += r6\nr6 += 1\nif r6 < {ROUNDS} goto round\nr0 = r7\nexit");
    text
}

/// Diamonds: branches on data whose two sides do different things and leave the same state.
fn together() -> String {
    let mut text = String::from("r0 = 0\n");
    for at in 0..TOGETHER {
        let _ = writeln!(
            text,
            "r7 = *(u8 *)(r1 + {})\nif r7 > {} goto one{at}\nr2 = r7\nr2 *= 3\ngoto both{at}\none{at}:\nr2 = r7\n\
             r2 += 7\nboth{at}:\n*(u8 *)(r1 + {}) = r2",
            at % 64,
            at % 250,
            (at + 1) % 64
        );
    }
    text.push_str("exit");
    text
}

/// Diamonds on data, each of which sets another bit of a sum or not. The sum is an index at the end. With `deep`, the
/// stack has bytes of data, each in a place of its own, and each of them is an index at the end.
fn apart(diamonds: u32, deep: bool) -> String {
    let mut text = String::from("r0 = 0\n");
    let depths = || (8..=if deep { DEEP_BYTES } else { 0 }).step_by(8);
    for depth in depths() {
        let _ = writeln!(text, "r3 = *(u8 *)(r1 + {depth})\n*(u64 *)(r10 - {depth}) = r3");
    }
    for bit in 0..diamonds {
        let _ = writeln!(
            text,
            "r7 = *(u8 *)(r1 + {bit})\nif r7 > 10 goto over{bit}\nr0 += {}\nover{bit}:",
            1u32 << bit
        );
    }
    text.push_str("r2 = r1\nr2 += r0\nr0 = *(u8 *)(r2 + 0)\n");
    for depth in depths() {
        let _ = writeln!(text, "r3 = *(u64 *)(r10 - {depth})\nr2 = r1\nr2 += r3\nr0 = *(u8 *)(r2 + 0)");
    }
    text.push_str("exit");
    text
}

/// A long loop whose counter is an index and is stored on the stack as well.
fn long_loop() -> String {
    let mut text = String::from("r6 = 0\nr0 = 0\n");
    for depth in [8, 16, 24, 32] {
        let _ = writeln!(text, "*(u64 *)(r10 - {depth}) = r6");
    }
    text.push_str("round:\nr2 = r1\nr2 += r6\nr3 = *(u8 *)(r2 + 0)\nr0 ^= r3\n");
    for depth in [8, 16, 24, 32] {
        let _ = writeln!(text, "*(u64 *)(r10 - {depth}) = r{}", if depth < 24 { 6 } else { 3 });
    }
    let _ = writeln!(text, "r6 += 1\nif r6 < {LONG_ROUNDS} goto round");
    for depth in [8, 16, 24, 32] {
        let _ = writeln!(text, "r3 = *(u64 *)(r10 - {depth})\nr0 += r3");
    }
    text.push_str("exit");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Subject;

    /// Instructions, and how many are walked.
    fn walk(name: &str) -> (usize, u64) {
        let made = all().into_iter().find(|made| made.name == name).unwrap();
        let subject = Subject::generated(&made).unwrap();
        let verified = subject.verify().unwrap_or_else(|refusal| panic!("{refusal}"));
        (subject.insns, verified.stats().walked)
    }

    #[test]
    fn straight_lines_are_4000_instructions_and_walked_once() {
        for name in ["straight_arithmetic", "straight_stack", "straight_mixed"] {
            assert_eq!(walk(name), (4000, 4000), "{name}");
        }
        for made in all().iter().filter(|made| made.name.starts_with("straight")) {
            assert!(!made.text.contains("goto"), "{}", made.name);
        }
    }

    #[test]
    fn the_switches_are_81_instructions_and_every_round_is_walked() {
        // A round by the counter: two instructions before the switch, a compare for each case that is left out and the
        // one that is taken (case 0 and case 7 have seven), eight in the case, three after it.
        let compares: u64 = (1..=7).sum::<u64>() + 7;
        assert_eq!(walk("switch_counter"), (81, 3 + ROUNDS / 8 * (8 * 13 + compares) + 2));
        // By data a round takes all eight cases, each up to where they meet.
        let (insns, walked) = walk("switch_data");
        assert_eq!(insns, 81);
        assert!(walked >= ROUNDS * (2 + 7 + 8 * 8 + 3), "{walked}");
        assert!(walked < 2 * ROUNDS * (2 + 7 + 8 * 8 + 3), "equal states are walked once: {walked}");
    }

    #[test]
    fn diamonds_that_meet_are_walked_once_each() {
        let (insns, walked) = walk("diamonds_together");
        assert_eq!(insns, 2 + 8 * TOGETHER);
        assert_eq!(walked, insns as u64);
    }

    #[test]
    fn diamonds_whose_states_differ_end_in_general_states() {
        let (ways, deep) = (1u64 << APART, 1u64 << DEEP);
        assert_eq!(walk("diamonds_apart").0, 3 * APART as usize + 5);
        // What exact states would take.
        let exact = [
            ("diamonds_apart", 1 + 3 * (ways - 1) + 4 * ways),
            ("diamonds_deep", 113 + 3 * (deep - 1) + 228 * deep),
        ];
        for (name, exact) in exact {
            assert!((900_000..=1_000_000).contains(&exact), "{name}: {exact}");
            let walked = walk(name).1;
            assert!((10_000..20_000).contains(&walked), "{name}: {walked}");
        }
    }

    #[test]
    fn the_long_loop_is_walked_for_about_a_million_instructions() {
        let walked = walk("long_loop").1;
        assert_eq!(walked, 6 + 10 * LONG_ROUNDS + 9);
        assert!((900_000..=1_000_000).contains(&walked), "{walked}");
    }
}
