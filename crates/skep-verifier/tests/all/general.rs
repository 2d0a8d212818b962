//! General states: where explored states differ from a new one in numbers alone, the walk speculates that these do not
//! matter.
//!
//! Each program has so many flags that walking all of their combinations would reach the limit.

use crate::common::{accepted, kind, program, refused};
use skep_verifier::{Code, Config, verify};
use std::fmt::Write;

const FLAGS: usize = 24;

/// Sets bit after bit of `r7` or not, at random. `r6` is the context, `r8` a map's value of 64 bytes.
fn flags() -> String {
    let mut text = "r6 = r1\nr8 = map_value[1]+0x0 ll\nr7 = 0\n".to_owned();
    for flag in 0..FLAGS {
        let _ = write!(text, "call 7\nif r0 > 100 goto +1\nr7 |= {:#x}\n", 1 << flag);
    }
    text
}

/// `then` where a flag is set.
fn test_of(flag: usize, then: &str) -> String {
    format!("r1 = r7\nr1 &= {:#x}\nif r1 == 0 goto none{flag}\n{then}\nnone{flag}:\n", 1 << flag)
}

#[test]
fn flags_that_decide_which_way_is_taken_make_few_states() {
    let mut text = flags();
    for flag in 0..FLAGS {
        text += &test_of(flag, "r1 = *(u8 *)(r8 + 1)\n*(u8 *)(r8 + 2) = r1");
    }
    let walked = accepted("tc", &(text + "r0 = 0\nexit")).stats().walked;
    assert!(walked < 30_000, "{walked}");
}

#[test]
fn the_same_flags_in_the_stack_make_few_states() {
    let mut text = "r8 = map_value[1]+0x0 ll\n".to_owned();
    for flag in 1..=FLAGS {
        let _ = write!(
            text,
            "call 7\n*(u8 *)(r10 - {flag}) = 0\nif r0 > 100 goto +1\n*(u8 *)(r10 - {flag}) = 1\n"
        );
    }
    for flag in 1..=FLAGS {
        let _ = write!(text, "r1 = *(u8 *)(r10 - {flag})\nif r1 != 1 goto +1\n*(u8 *)(r8 + 2) = r1\n");
    }
    let walked = accepted("tc", &(text + "r0 = 0\nexit")).stats().walked;
    assert!(walked < 30_000, "{walked}");
}

#[test]
fn what_one_combination_of_flags_does_is_found() {
    // Whichever flag it is, whether it must be set or not, and wherever the access.
    for flag in [0, 1, 7, FLAGS - 1] {
        for set in [false, true] {
            for (access, code) in [
                ("r0 = *(u8 *)(r8 + 64)", Code::OutOfBounds),
                ("r0 = *(u64 *)(r9 + 0)", Code::Uninitialised),
                ("*(u64 *)(r8 + 0) = r10", Code::PointerLeak),
            ] {
                let mut text = flags();
                for other in 0..FLAGS {
                    let test = test_of(other, if other == flag { access } else { "*(u8 *)(r8 + 2) = 1" });
                    text += &if set { test } else { test.replace("== 0", "!= 0") };
                }
                refused("tc", &(text + "r0 = 0\nexit"), code, "");
            }
        }
    }
    // Two flags together.
    for (one, other) in [("==", "=="), ("!=", "=="), ("==", "!="), ("!=", "!=")] {
        let bad = format!("r2 = r7\nr2 &= 0x8\nif r2 {one} 0 goto fine\nr0 = *(u8 *)(r8 + 64)\nfine:");
        let text = flags() + &test_of(11, &bad).replace("r1 == 0", &format!("r1 {other} 0")) + "r0 = 0\nexit";
        refused("tc", &text, Code::OutOfBounds, "");
    }
}

/// One of five numbers is in `r9`, or in the stack; flags are tested, and the number becomes an index.
fn one_of(numbers: [u32; 5], [put, get]: [fn(u32) -> String; 2]) -> String {
    let mut text = flags() + &put(numbers[0]);
    for number in &numbers[1..] {
        let _ = write!(text, "call 7\nif r0 > 100 goto +1\n{}", put(*number));
    }
    for flag in 0..FLAGS {
        text += &test_of(flag, "*(u8 *)(r8 + 2) = 1");
    }
    text + &get(0) + "r8 += r9\nr0 = *(u8 *)(r8 + 0)\nr0 = 0\nexit"
}

#[test]
fn a_number_on_which_safety_depends_stays_exact() {
    // An unknown one is too large. The first path puts the last of the numbers, the last path the first.
    let in_register: [fn(u32) -> String; 2] = [|number| format!("r9 = {number}\n"), |_| String::new()];
    let in_stack: [fn(u32) -> String; 2] =
        [|number| format!("*(u64 *)(r10 - 8) = {number}\n"), |_| "r9 = *(u64 *)(r10 - 8)\n".to_owned()];
    let of_a_byte: [fn(u32) -> String; 2] =
        [|number| format!("*(u8 *)(r10 - 3) = {number}\n"), |_| "r9 = *(u8 *)(r10 - 3)\n".to_owned()];
    for place in [in_register, in_stack, of_a_byte] {
        for at in 0..5 {
            let mut numbers = [16, 0, 32, 48, 60];
            numbers[at] = 63;
            let walked = accepted("tc", &one_of(numbers, place)).stats().walked;
            assert!(walked < 40_000, "{walked}");
            numbers[at] = 64;
            refused("tc", &one_of(numbers, place), Code::OutOfBounds, "");
        }
    }
}

#[test]
fn two_numbers_that_are_safe_only_together_stay_exact() {
    let pair = |index: u32| {
        let mut text = flags() + &format!("r9 = 5\nr6 = {index}\n");
        for (kind, index) in [(1, 60), (2, 50), (3, 40), (4, 30)] {
            let _ = write!(text, "call 7\nif r0 > 100 goto +2\nr9 = {kind}\nr6 = {index}\n");
        }
        text += "r0 = 0\nif r9 != 5 goto out\nr8 += r6\nr0 = *(u8 *)(r8 + 40)\nr0 = 0\nout: exit";
        text
    };
    accepted("tc", &pair(23));
    refused("tc", &pair(24), Code::OutOfBounds, "");
}

#[test]
fn a_counter_of_a_plain_loop_stays_exact() {
    // Paths with different flags come to a loop that walks along the map's value.
    let text = |rounds: u32| {
        let mut text = flags();
        for flag in 0..FLAGS {
            text += &test_of(flag, "*(u8 *)(r8 + 2) = 1");
        }
        text + &format!(
            "r9 = 0\nnext: call 7\nif r0 > 7 goto +1\nr7 |= 1\nr1 = *(u32 *)(r8 + 0)\nr8 += 4\nr9 += 1\n\
             if r9 != {rounds} goto next\nr0 = 0\nexit"
        )
    };
    let walked = accepted("tc", &text(16)).stats().walked;
    assert!(walked < 20_000, "{walked}");
    refused("tc", &text(17), Code::OutOfBounds, "");
}

/// A loop that ends only because it is known where it starts: at one of five numbers of a cycle of 256.
fn endless() -> String {
    let mut text = "r6 = 0\nr9 = 0\n".to_owned();
    for start in [3, 18, 93, 212, 255] {
        let _ = write!(text, "call 7\nif r0 > 100 goto +1\nr9 = {start}\n");
    }
    text + "next: r6 += 1\nif r6 != 100000 goto +1\nr0 = r7\nr9 *= 5\nr9 += 3\nr9 &= 255\ncall 7\nif r0 > r6 goto +1\nr0 = 0\nif r9 != 77 goto next\n\
            r0 = 0\nexit"
}

#[test]
fn a_general_state_that_leads_too_far_is_given_up() {
    let walked = accepted("tc", &endless()).stats().walked;
    assert!(walked < 100_000, "{walked}");
}

#[test]
fn a_general_state_that_fills_the_memory_is_given_up() {
    let mut config = Config { max_state_bytes: 1 << 20, ..Config::default() };
    verify(program(kind("tc"), &endless()), &config).unwrap();
    config.max_state_bytes = 1 << 12;
    assert_eq!(verify(program(kind("tc"), &endless()), &config).unwrap_err().code, Code::Limit);
}
