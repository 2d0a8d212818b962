//! Loads of adjacent bytes that become one load: what they read, and when they stay apart.

use skep_abi::RunEnv;
use skep_isa::Insn;

use super::Program;
use crate::options::Options;
use crate::passes::rewrite;

/// How many loads the code has.
fn loads(text: &str) -> usize {
    let program = Program::new(text);
    let rewritten = rewrite(program.parts(), Options::default());
    let is_load = |insn: &&Insn| matches!(insn, Insn::Load { .. });
    let count = |insns: &[Insn]| insns.iter().filter(is_load).count();
    rewritten.map_or(count(program.parts().insns), |rewritten| count(rewritten.parts().insns))
}

/// The bytes `order` puts together, from the lowest to the highest, as compilers write it.
fn text(order: &[i32]) -> String {
    let mut text = String::new();
    for (at, offset) in order.iter().enumerate() {
        let reg = if at == 0 { 0 } else { 3 };
        text += &format!("r{reg} = *(u8 *)(r1 + {offset})\n");
        if at > 0 {
            text += &format!("r{reg} <<= {}\nr0 |= r{reg}\n", 8 * at);
        }
    }
    text + "exit"
}

fn memory() -> Vec<u8> {
    (0..64).map(|at: u32| (at * 77 + 130) as u8).collect()
}

fn run(program: &Program) -> u64 {
    let bytes = memory();
    let at = (&raw const bytes[16]).expose_provenance() as u64;
    program.run_in(at, 0, &mut RunEnv::default())
}

#[test]
fn neighbours_in_either_order_become_one_load() {
    let bytes = memory();
    for (count, offset) in [2, 4, 8].into_iter().flat_map(|count| [-3, 0, 5].map(|offset| (count, offset))) {
        let up: Vec<i32> = (offset..offset + count).collect();
        let down: Vec<i32> = up.iter().rev().copied().collect();
        for order in [up, down] {
            let text = text(&order);
            assert_eq!(loads(&text), 1, "{text}");
            let expected =
                order.iter().rev().fold(0, |value, at| value << 8 | u64::from(bytes[(16 + at) as usize]));
            assert_eq!(run(&Program::new(&text)), expected, "{text}");
        }
    }
}

#[test]
fn halves_that_are_made_of_bytes_become_one_load() {
    let text = "r2 = *(u8 *)(r1 + 1)\nr2 <<= 8\nr3 = *(u8 *)(r1 + 0)\nr2 |= r3\nr3 = *(u8 *)(r1 + 2)\nr3 <<= 16\n\
                r0 = *(u8 *)(r1 + 3)\nw0 <<= 24\nr0 |= r3\nr0 |= r2\nexit";
    assert_eq!(loads(text), 1);
    let bytes = memory();
    assert_eq!(run(&Program::new(text)), u64::from(u32::from_le_bytes(*bytes[16..].first_chunk().unwrap())));
    let words = "r0 = *(u16 *)(r1 + 4)\nr2 = *(u16 *)(r1 + 6)\nr2 <<= 16\nr0 += r2\nexit";
    assert_eq!(loads(words), 1);
    assert_eq!(run(&Program::new(words)), u64::from(u32::from_le_bytes(*bytes[20..].first_chunk().unwrap())));
}

#[test]
fn loads_stay_apart_where_something_else_needs_them() {
    for text in [
        // Not neighbours; the same byte twice; a hole; two bases.
        "r0 = *(u8 *)(r1 + 0)\nr2 = *(u8 *)(r1 + 2)\nr2 <<= 8\nr0 |= r2\nexit",
        "r0 = *(u8 *)(r1 + 0)\nr2 = *(u8 *)(r1 + 0)\nr2 <<= 8\nr0 |= r2\nexit",
        "r0 = *(u8 *)(r1 + 0)\nr2 = *(u8 *)(r1 + 1)\nr2 <<= 16\nr0 |= r2\nexit",
        "r5 = r1\nr0 = *(u8 *)(r1 + 0)\nr2 = *(u8 *)(r5 + 1)\nr2 <<= 8\nr0 |= r2\nexit",
        // A part is needed afterwards, or between.
        "r0 = *(u8 *)(r1 + 0)\nr2 = *(u8 *)(r1 + 1)\nr3 = r2\nr2 <<= 8\nr0 |= r2\nr0 += r3\nexit",
        "r4 = *(u8 *)(r1 + 0)\nr0 = r4\nr2 = *(u8 *)(r1 + 1)\nr2 <<= 8\nr0 |= r2\nr0 += r4\nexit",
        "r5 = 0\nr0 = *(u8 *)(r1 + 0)\nr2 = *(u8 *)(r1 + 1)\nr2 <<= 8\nr5 += r2\nr0 |= r2\nr0 ^= r5\nexit",
        // Memory, or the base, changes between the loads; control enters between them.
        "r0 = *(u8 *)(r1 + 0)\n*(u8 *)(r1 + 0) = 9\nr2 = *(u8 *)(r1 + 1)\nr2 <<= 8\nr0 |= r2\n*(u8 *)(r1 + 0) = 82\nexit",
        "r0 = *(u8 *)(r1 + 0)\nr1 += 3\nr2 = *(u8 *)(r1 + 1)\nr2 <<= 8\nr0 |= r2\nexit",
        "r2 = 5\nr0 = *(u8 *)(r1 + 0)\nif r1 != 0 goto over\nr2 = *(u8 *)(r1 + 1)\nover: r2 <<= 8\nr0 |= r2\nexit",
        // A sign is extended.
        "r0 = *(u8 *)(r1 + 0)\nr2 = *(s8 *)(r1 + 1)\nr2 <<= 8\nr0 |= r2\nexit",
    ] {
        let program = Program::new(text);
        assert!(loads(text) > 1, "{text}");
        // Every variant has the same result, also the one without passes.
        run(&program);
    }
    let probing = Program::new(&text(&[0, 1])).probing();
    assert!(rewrite(probing.parts(), Options::default()).is_none());
}
