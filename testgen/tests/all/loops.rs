//! Loops of every shape: the compiler's passes against the interpreter. `SKEP_SEED` sets the first seed, `SKEP_CASES`
//! the number of programs.
//!
//! The loops are what compilers write and what only looks like it: counted up and down, with the condition at the
//! start, at the end or in two jumps, with several exits and several jumps back; the same with their blocks in any
//! order; copies at every distance of source and destination, fills and sums, and the same with one thing that is
//! different, of which a pass must take note.

use std::fmt::Write;

use crate::common::{Lab, cases, difference, first_seed, verified};
use skep_jit::Passes;
use skep_testgen::{End, Flavour, Host, Source, TestProgram};

const LEN: u32 = 256;
/// Number of inputs for each program.
const INPUTS: u64 = 3;

#[test]
fn loops_do_the_same_with_and_without_passes_as_in_the_interpreter() {
    let mut lab = Lab::new(Host::new(Flavour::Buffer { len: LEN }));
    let (mut accepted, mut rewritten) = (0, 0);
    let programs = cases(1200);
    for seed in first_seed()..first_seed() + programs {
        let program = program(&mut Source::from_seed(seed));
        let Ok(verified) = verified(&program) else { continue };
        accepted += 1;
        let fails = |reason: String| -> ! { panic!("SKEP_SEED={seed} SKEP_CASES=1: {reason}\n{program}") };
        lab.options.passes = Passes::ALL;
        if let Err(reason) = lab.agree(&program, &verified, INPUTS) {
            fails(reason);
        }
        let with = lab.compiled(&verified).unwrap_or_else(|reason| fails(reason));
        lab.options.passes = Passes::NONE;
        let without = lab.compiled(&verified).unwrap_or_else(|reason| fails(reason));
        rewritten += u64::from(!with.pieces().is_empty());
        assert!(without.pieces().is_empty());
        for input in 0..INPUTS {
            let (one, other) = (lab.execute(&with, input), lab.execute(&without, input));
            if let Err(reason) = difference("the passes", &one, "no pass", &other) {
                fails(reason);
            }
        }
    }
    println!("{accepted} of {programs} accepted, {rewritten} rewritten");
    assert!(accepted * 10 >= programs * 8, "only {accepted} of {programs}");
    assert!(rewritten * 10 >= accepted * 7, "only {rewritten} of {accepted} were rewritten");
}

#[test]
fn each_copy_of_a_round_is_charged() {
    let mut lab = Lab::new(Host::new(Flavour::Buffer { len: LEN }));
    let programs = cases(300);
    let (mut whole, mut ended) = (0, 0);
    for seed in first_seed()..first_seed() + programs {
        let program = program(&mut Source::from_seed(seed));
        let Ok(verified) = verified(&program) else { continue };
        let fails = |reason: String| -> ! { panic!("SKEP_SEED={seed} SKEP_CASES=1: {reason}\n{program}") };
        let mut source = Source::from_seed(seed ^ 0x10_0b5);
        let mut left = 1_000_000;
        for turn in 0..5 {
            let units = if turn == 0 { left } else { source.below((1_000_000 - left) as u32 + 2) as i32 };
            lab.host.set_end(Some(End { units, call: 0 }));
            let interpreter = lab.interpreter(&verified).unwrap_or_else(|reason| fails(reason));
            let compiled = lab.compiled(&verified).unwrap_or_else(|reason| fails(reason));
            let (mut a, mut b) = (lab.interpret(&interpreter, seed), lab.execute(&compiled, seed));
            if a.1.over.0 && b.1.over.0 {
                (a.0, b.0) = (0, 0); // means nothing
            }
            if let Err(reason) = difference("the interpreter", &a, "compiled code", &b) {
                fails(format!("{units} units: {reason}"));
            }
            match a.1.over {
                (true, _) => ended += 1,
                (false, rest) => {
                    whole += 1;
                    left = if turn == 0 { rest } else { left };
                }
            }
        }
    }
    println!("{whole} to their ends, {ended} out of units");
    assert!(programs < 100 || whole.min(ended) * 2 > programs, "{whole} and {ended}");
}

#[test]
fn a_copied_head_that_could_be_fused_is_charged() {
    let mut lab = Lab::new(Host::new(Flavour::Buffer { len: LEN }));
    for text in [
        "r0 = 0\nr3 = 1\nr4 = 5000\nhead: if r3 == 0 goto out\nr4 += -1\nr3 = r4\nr3 &= 1023\ngoto head\n\
         out: r0 = r4\nexit",
        "r0 = 0\nr4 = 500\nr2 = 0\nhead: r2 += r0\nr4 += -1\nif r4 == 0 goto out\nr0 += r2\nr2 = r4\n\
         goto head\nout: r0 += r2\nexit",
        "r0 = 0\nr4 = 500\nr2 = 0\nhead: r0 += r2\nr4 += -1\nif r4 == 0 goto out\nr2 = r4\nr2 >>= 3\n\
         goto head\nout: exit",
    ] {
        let insns = skep_isa::assemble(text).expect("the text is right");
        let program = TestProgram { insns, functions: vec![0], flavour: Flavour::Buffer { len: LEN } };
        let verified = verified(&program).expect("the verifier takes it");
        for units in [1_000_000, 2000, 100] {
            lab.host.set_end(Some(End { units, call: 0 }));
            let interpreter = lab.interpreter(&verified).expect("an interpreter");
            let compiled = lab.compiled(&verified).expect("code");
            let (slow, fast) = (lab.interpret(&interpreter, 1), lab.execute(&compiled, 1));
            assert_eq!(slow.1.over, fast.1.over, "{units} units\n{text}");
        }
    }
}

/// A few loops behind each other. `r6` is the buffer, `r0` the result.
fn program(source: &mut Source) -> TestProgram {
    let mut text = String::from("r6 = r1\nr0 = *(u64 *)(r6 + 8)\nr9 = *(u64 *)(r6 + 16)\n");
    for reg in 2..6 {
        let _ = writeln!(text, "r{reg} = *(u64 *)(r6 + {})", 8 * reg);
    }
    for number in 0..source.between(1, 3) {
        match source.below(6) {
            0 | 1 => counted(source, &mut text, number),
            2 | 3 => moving(source, &mut text, number),
            4 => scattered(source, &mut text, number),
            _ => nested(source, &mut text, number),
        }
    }
    for reg in 1..6 {
        let _ = writeln!(text, "r0 *= 31\nr0 += r{reg}");
    }
    text += "r0 ^= r9\nexit\n";
    // The address of the buffer is no result.
    text = text.replace("r0 *= 31\nr0 += r1\n", "");
    let insns = skep_isa::assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    TestProgram { insns, functions: vec![0], flavour: Flavour::Buffer { len: LEN } }
}

/// A few instructions on `r2` to `r5`, `r0` and the buffer.
fn body(source: &mut Source, text: &mut String, most: u32) {
    for _ in 0..source.between(1, most) {
        let (a, b) = (source.between(2, 5), source.pick(&[0, 2, 3, 4, 5, 9]));
        let w = source.pick(&['r', 'w']);
        let at = source.below(30) * 8;
        let size = source.pick(&["u8", "u16", "u32", "u64", "s8", "s16"]);
        let plain = source.pick(&["u8", "u16", "u32", "u64"]);
        let op = source.pick(&["+=", "-=", "*=", "^=", "|=", "&=", "="]);
        let _ = match source.below(7) {
            0 => writeln!(text, "r{a} = *({size} *)(r6 + {at})"),
            1 => writeln!(text, "*({plain} *)(r6 + {at}) = r{b}"),
            2 => writeln!(text, "{w}{a} {op} {}", source.below(2000) as i32 - 1000),
            3 => writeln!(text, "{w}{a} <<= 3\n{w}{a} ^= {w}{b}"),
            4 => writeln!(text, "r{a} = 0x123456789abc ll\nr{a} ^= r{b}"),
            5 => writeln!(text, "r0 += r{a}\nr0 *= 33"),
            _ => writeln!(text, "{w}{a} {op} {w}{b}"),
        };
    }
}

/// A jump out of the loop, or forward in it, where something holds.
fn leave(source: &mut Source, text: &mut String, label: &str) {
    if source.chance(60) {
        return;
    }
    let (a, b) = (source.between(2, 5), source.between(2, 5));
    let w = source.pick(&['r', 'w']);
    let cond = source.pick(&["==", "!=", ">", "<", "s>", "s<=", "&", ">=", "<="]);
    let _ = match source.below(3) {
        0 => writeln!(text, "if {w}{a} {cond} {w}{b} goto {label}"),
        1 => writeln!(text, "if {w}{a} {cond} {} goto {label}", source.below(300)),
        _ => writeln!(text, "if {w}{a} {cond} {} goto +1\ngoto {label}", source.below(300)),
    };
}

/// A loop of a few rounds, counted in `r8`.
fn counted(source: &mut Source, text: &mut String, number: u32) {
    let rounds = source.between(1, 20);
    let (head, out, step) = (format!("head{number}"), format!("out{number}"), format!("step{number}"));
    let most = source.pick(&[2, 4, 8]);
    let part = |source: &mut Source, text: &mut String| {
        body(source, text, most);
        let to = if source.chance(50) { &out } else { &step };
        leave(source, text, to);
        body(source, text, 3);
    };
    match source.below(7) {
        0 => {
            let _ = writeln!(text, "r8 = 0\n{head}:");
            part(source, text);
            let end = source.pick(&[
                "if r8 != N goto H",
                "if r8 < N goto H",
                "if r8 == N goto +1\ngoto H",
                "if w8 s< N goto H",
            ]);
            let end = end.replace('N', &rounds.to_string()).replace('H', &head);
            let _ = writeln!(text, "{step}: r8 += 1\n{end}");
        }
        1 => {
            let _ = writeln!(text, "r8 = {rounds}\n{head}:");
            part(source, text);
            let _ = writeln!(text, "{step}: r8 += -1\nif r8 != 0 goto {head}");
        }
        2 => {
            let cond = source.pick(&[">=", "==", "s>="]);
            let _ = writeln!(text, "r8 = 0\n{head}: if r8 {cond} {rounds} goto {out}");
            part(source, text);
            let _ = writeln!(text, "{step}: r8 += 1\ngoto {head}");
        }
        // The condition is a few instructions behind the head.
        3 => {
            let _ = writeln!(text, "r8 = 0\n{head}: r2 = r8\nr2 += 5\nif r2 > {} goto {out}", rounds + 5);
            part(source, text);
            let _ = writeln!(text, "{step}: r8 += 1\ngoto {head}");
        }
        // Control enters at the condition.
        4 => {
            let _ = writeln!(text, "r8 = 0\ngoto test{number}\n{head}:");
            part(source, text);
            let _ = writeln!(text, "{step}: r8 += 1\ntest{number}: if r8 < {rounds} goto {head}");
        }
        // Several jumps back.
        5 => {
            let _ = writeln!(text, "r8 = 0\n{head}: r8 += 1\nif r8 > {rounds} goto {out}");
            part(source, text);
            leave(source, text, &head);
            body(source, text, 3);
            leave(source, text, &head);
            let _ = writeln!(text, "{step}: goto {head}");
        }
        // The bits of a register.
        _ => {
            let _ = writeln!(text, "r8 = {}\n{head}:", source.below(1 << 12) | 1);
            part(source, text);
            let _ = writeln!(text, "{step}: r8 >>= 1\nif r8 & 0xffff goto {head}");
        }
    }
    let _ = writeln!(text, "{out}:");
}

/// A loop, counted in `r8`, whose blocks are in any order.
fn scattered(source: &mut Source, text: &mut String, number: u32) {
    let (blocks, rounds) = (source.between(2, 5), source.between(1, 12));
    let out = format!("out{number}");
    let label = |block: u32| if block > blocks { out.clone() } else { format!("block{number}x{block}") };
    let mut parts: Vec<String> = (0..=blocks)
        .map(|block| {
            let mut part = format!("{}:\n", label(block));
            body(source, &mut part, 3);
            if block == blocks {
                let _ = match source.below(3) {
                    0 => writeln!(part, "r8 += 1\nif r8 < {rounds} goto {}\ngoto {out}", label(0)),
                    1 => writeln!(part, "r8 += 1\nif r8 >= {rounds} goto {out}\ngoto {}", label(0)),
                    _ => writeln!(part, "r8 += 1\nif r8 & 8 goto {out}\ngoto {}", label(0)),
                };
                return part;
            }
            // Some blocks are only a jump.
            if source.chance(20) {
                part = format!("{}:\n", label(block));
            }
            let to = label(source.between(block + 1, blocks + 1));
            leave(source, &mut part, &to);
            let _ = writeln!(part, "goto {}", label(block + 1));
            part
        })
        .collect();
    for at in (1..parts.len()).rev() {
        parts.swap(at, source.below(at as u32 + 1) as usize);
    }
    let _ = writeln!(text, "r8 = 0\ngoto {}\n{}{out}:", label(0), parts.concat());
}

/// A loop within a loop.
fn nested(source: &mut Source, text: &mut String, number: u32) {
    let _ = writeln!(text, "r7 = 0\nouter{number}:");
    match source.below(3) {
        0 => counted(source, text, number),
        1 => scattered(source, text, number),
        _ => moving(source, text, number),
    }
    let rounds = source.between(1, 3);
    let _ = writeln!(text, "r7 &= 7\nr7 += 1\nif r7 < {rounds} goto outer{number}");
}

/// A loop over adjacent elements: a copy, a fill or a sum, or nearly one.
fn moving(source: &mut Source, text: &mut String, number: u32) {
    let (bytes, name) = source.pick(&[(1, "u8"), (1, "u8"), (2, "u16"), (4, "u32"), (8, "u64")]);
    let rounds = source.between(1, 80 / bytes);
    let from = 96 - source.below(24) as i32;
    // Every distance up to 24 in both directions, and far ones.
    let to = if source.chance(80) {
        from + source.below(49) as i32 - 24
    } else {
        from - 90 + source.below(150) as i32
    };
    let to = to.clamp(0, (LEN - rounds * bytes) as i32 - 8);
    let head = format!("move{number}");
    // Where the elements are, and how they move.
    let shape = source.below(6);
    let (read, write, next) = match shape {
        // By an index.
        0 | 1 => {
            let _ = writeln!(text, "r8 = 0\n{head}:");
            let copied = if shape == 0 { "r3 = r6\nr3 += r8\n" } else { "r3 = r8\nr3 += r6\n" };
            let again = if source.chance(50) { "" } else { copied };
            (
                format!("{copied}r4 = *({name} *)(r3 + {from})"),
                format!("{}*({name} *)(r3 + {to}) = ", again),
                format!("r8 += {bytes}\nif r8 COND {} goto {head}", rounds * bytes),
            )
        }
        // By two pointers and a counter that goes down.
        2 => {
            let _ = writeln!(text, "r1 = r6\nr1 += {from}\nr3 = r6\nr3 += {to}\nr8 = {rounds}\n{head}:");
            (
                format!("r4 = *({name} *)(r1 + 0)"),
                format!("*({name} *)(r3 + 0) = "),
                format!("r1 += {bytes}\nr3 += {bytes}\nr8 -= 1\nif r8 != 0 goto {head}"),
            )
        }
        // The pointers have moved already.
        3 => {
            let _ = writeln!(text, "r1 = r6\nr1 += {from}\nr3 = r6\nr3 += {to}\nr8 = 0\n{head}:");
            (
                format!("r1 += {bytes}\nr4 = *({name} *)(r1 - {bytes})"),
                format!("r3 += {bytes}\n*({name} *)(r3 - {bytes}) = "),
                format!("r8 += 1\nif r8 COND {rounds} goto {head}"),
            )
        }
        // As many as the input says.
        4 => {
            let _ =
                writeln!(text, "r5 = *(u8 *)(r6 + 3)\nr5 &= {}\nr5 += 1\nr8 = 0\n{head}:", (rounds | 1) / 2);
            (
                format!(
                    "r3 = r8\nr3 <<= {}\nr3 += r6\nr4 = *({name} *)(r3 + {from})",
                    bytes.trailing_zeros()
                ),
                format!("*({name} *)(r3 + {to}) = "),
                format!("r8 += 1\nif r8 < r5 goto {head}"),
            )
        }
        // Backwards.
        _ => {
            let _ = writeln!(
                text,
                "r1 = r6\nr1 += {from}\nr8 = {rounds}\nr1 += {}\n{head}:",
                (rounds - 1) * bytes
            );
            (
                format!("r4 = *({name} *)(r1 + 0)"),
                format!("*({name} *)(r1 + {}) = ", to - from),
                format!("r1 += -{bytes}\nr8 += -1\nif r8 > 0 goto {head}"),
            )
        }
    };
    let next = next.replace("COND", source.pick(&["!=", "<"]));
    let value = match source.below(6) {
        0 | 1 => {
            let _ = writeln!(text, "{read}\n{write}r4");
            ""
        }
        2 => {
            let value = source.pick(&["0", "7", "-2", "r9", "0x1234567"]);
            let address = read.rsplit_once('\n').map_or("", |(address, _)| address);
            let _ = match value.starts_with('r') {
                true => writeln!(text, "{address}\n{write}{value}"),
                false => writeln!(text, "{address}\n{write}{value}"),
            };
            ""
        }
        3 | 4 => {
            let add = source.pick(&[
                "r2 += r4",
                "w2 += w4",
                "r4 += r2\nr2 = r4",
                "r2 ^= r4",
                "r2 += r4\nr2 += r4",
                "r2 -= r4",
            ]);
            let _ = writeln!(text, "{read}\n{add}");
            ""
        }
        // Something that a pass must notice.
        _ => {
            let different = source.pick(&[
                "r4 += 1",
                "w4 = w4",
                "r0 += r4",
                "r2 = r9\nr9 = r4",
                "r4 ^= r9",
                "r0 ^= r8",
                "if r4 == 77 goto OUT",
                "*(u8 *)(r6 + 200) = r4",
                "r9 += 3",
                "r4 = *(u8 *)(r6 + 100)",
            ]);
            let different = different.replace("OUT", &format!("over{number}"));
            let _ = writeln!(text, "{read}\n{different}\n{write}r4");
            ""
        }
    };
    let _ = writeln!(text, "{value}{next}\nover{number}:");
    // What the pointers were is no number.
    let _ = writeln!(text, "r1 = 1\nr3 = r8\nr0 += r8");
    if source.chance(70) {
        let _ = writeln!(text, "r4 = 2");
    }
}
