//! Programs that look like large datapaths to the verifier: many live values on the stack, look-ups in many maps with a
//! null check after each, deep calls, loops that the compiler has unrolled.
//!
//! Unlike those of [`super::generate`] they leave the verifier something to skip: much of a state decides nothing.

use std::fmt::Write;

/// Stages of the datapath with maps, each a look-up with three ways out.
const STAGES: usize = 48;
/// Its maps.
pub(super) const MAPS: u32 = 8;
/// Words on its stack.
const WORDS: usize = 40;
/// Functions that call each other twice.
const DEPTH: usize = 6;
/// Iterations of the unrolled loop.
const ROUNDS: usize = 120;
/// Flags of the loop that tries again, and how often it does.
const FLAGS: usize = 12;
const TRIES: usize = 32;

/// A program for packets, with [`MAPS`] maps of 8-byte keys and 64-byte values.
pub(super) struct Datapath {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) text: String,
}

pub(super) fn all() -> Vec<Datapath> {
    let made = |name, what, text| Datapath { name, what, text };
    vec![
        made("datapath_maps", "48 look-ups in 8 maps, 40 words on the stack, 16 sets of flags", maps()),
        made(
            "datapath_calls",
            "functions that call each other twice, six deep, with spills in each",
            calls(),
        ),
        made("datapath_unrolled", "120 unrolled rounds of a copy, a look-up and two ways out", unrolled()),
        made(
            "datapath_retry",
            "32 tries over random numbers, and 12 flags that are tested after them",
            retry(),
        ),
    ]
}

/// Where a word of the state is.
fn depth(word: usize) -> usize {
    32 + 8 * (word % WORDS)
}

fn maps() -> String {
    let mut text = String::from(
        "r6 = r1\nr7 = *(u32 *)(r1 + 76)\nr8 = *(u32 *)(r1 + 80)\nr2 = r7\nr2 += 54\nr0 = 0\nif r2 > r8 goto out\n\
         r9 = 0\n*(u64 *)(r10 - 16) = r9\n",
    );
    for word in 0..WORDS {
        let _ = writeln!(text, "r3 = *(u8 *)(r7 + {})\n*(u64 *)(r10 - {}) = r3", word % 54, depth(word));
    }
    for stage in 0..STAGES {
        let _ = writeln!(
            text,
            "r3 = *(u32 *)(r7 + {})\n*(u32 *)(r10 - 8) = r3\nr4 = *(u64 *)(r10 - {})\n*(u32 *)(r10 - 4) = r4\n\
             r1 = map[{}] ll\nr2 = r10\nr2 += -8\ncall 1\nif r0 == 0 goto miss{stage}\n\
             r3 = *(u32 *)(r0 + 0)\n*(u64 *)(r10 - {}) = r3\nr9 = *(u64 *)(r10 - 16)\nr9 |= {}\n\
             *(u64 *)(r10 - 16) = r9\nif r3 > 100 goto next{stage}\nr4 = *(u32 *)(r0 + 4)\n\
             *(u64 *)(r10 - {}) = r4\ngoto next{stage}\nmiss{stage}:\nr5 = {stage}\n*(u64 *)(r10 - {}) = r5\n\
             next{stage}:",
            14 + stage % 32,
            depth(stage),
            stage % MAPS as usize,
            depth(7 * stage + 3),
            1 << (stage % 4),
            depth(5 * stage + 1),
            depth(3 * stage + 2),
        );
    }
    // The flags are an index, so that each set of them is walked.
    text.push_str(
        "r3 = 0\n*(u32 *)(r10 - 8) = r3\nr1 = map[0] ll\nr2 = r10\nr2 += -8\ncall 1\nif r0 == 0 goto out\n\
         r9 = *(u64 *)(r10 - 16)\nr0 += r9\nr0 = *(u8 *)(r0 + 0)\nout:\nr0 = 0\nexit",
    );
    text
}

fn calls() -> String {
    let mut text = String::from("r2 = r10\nr2 += -64\n");
    for word in 1..=8 {
        let _ = writeln!(text, "r3 = {word}\n*(u64 *)(r10 - {}) = r3", 8 * word);
    }
    text.push_str("call f1\nr0 = 0\nexit\n");
    for depth in 1..=DEPTH {
        let call = if depth < DEPTH {
            format!("r1 = r6\nr2 = r7\ncall f{}\n", depth + 1)
        } else {
            String::from("r0 = *(u32 *)(r6 + 8)\n")
        };
        let _ = writeln!(
            text,
            "f{depth}:\nr6 = r1\nr7 = r2\n*(u64 *)(r10 - 8) = r1\n*(u64 *)(r10 - 16) = r2\nr8 = *(u32 *)(r1 + {})\n\
             *(u64 *)(r10 - 24) = r8\nif r8 > {depth} goto other{depth}\n*(u64 *)(r7 + {}) = r8\n{call}\
             goto both{depth}\nother{depth}:\nr3 = {depth}\n*(u64 *)(r7 + {}) = r3\n{call}both{depth}:\n\
             r4 = *(u64 *)(r10 - 24)\nr0 += r4\nr1 = *(u64 *)(r10 - 8)\nr3 = *(u32 *)(r1 + 4)\n\
             if r3 == 7 goto end{depth}\nr0 ^= r3\nend{depth}:\nexit",
            [0, 4, 8, 16][depth % 4],
            8 * (depth % 8),
            8 * (3 * depth % 8),
        );
    }
    text
}

fn unrolled() -> String {
    let mut text = String::from("r6 = r1\nr9 = 0\n");
    for round in 0..ROUNDS {
        let _ = writeln!(
            text,
            "r1 = r6\nr2 = r9\nr3 = r10\nr3 += -16\nr4 = 16\ncall 26\nif r0 != 0 goto end\n\
             r3 = *(u64 *)(r10 - 16)\n*(u64 *)(r10 - {}) = r3\nif r3 == 0 goto end\nr9 = *(u32 *)(r10 - 8)\n\
             r9 &= 1023\nr3 = {round}\n*(u32 *)(r10 - 20) = r3\nr1 = map[{}] ll\nr2 = r10\nr2 += -24\n\
             *(u32 *)(r10 - 24) = r3\ncall 1\nif r0 == 0 goto over{round}\nr4 = *(u64 *)(r0 + 0)\nr4 += 1\n\
             *(u64 *)(r0 + 0) = r4\nif r4 > 1000 goto over{round}\nr5 = *(u64 *)(r0 + 8)\n*(u64 *)(r10 - 32) = r5\n\
             over{round}:",
            depth(round) + 8,
            round % MAPS as usize,
        );
    }
    text.push_str("end:\nr0 = 0\nexit");
    text
}

fn retry() -> String {
    let mut text = String::from("r6 = r1\nr7 = 0\n");
    for flag in 0..FLAGS {
        let depth = depth(flag);
        let _ = writeln!(
            text,
            "call 7\nr1 = 1\nif r0 > {flag} goto set{flag}\nr1 = 2\nset{flag}:\n*(u64 *)(r10 - {depth}) = r1"
        );
    }
    let _ = writeln!(
        text,
        "try:\ncall 7\nif r0 == 5 goto found\nr8 = r0\ncall 7\nif r0 > r8 goto again\n*(u64 *)(r10 - 8) = r8\n\
         again:\nr7 += 1\nif r7 < {TRIES} goto try\nfound:"
    );
    for flag in 0..FLAGS {
        let depth = depth(flag);
        let _ = writeln!(
            text,
            "call 7\nr1 = *(u64 *)(r10 - {depth})\nif r0 == r1 goto equal{flag}\nr7 += r1\nequal{flag}:"
        );
    }
    text.push_str("r0 = r7\nexit");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Subject;

    #[test]
    fn look_alikes_are_accepted_and_have_many_states() {
        for made in all() {
            let subject = Subject::datapath(&made).unwrap();
            let verified = subject.verify().unwrap_or_else(|refusal| panic!("{}: {refusal}", made.name));
            let stats = verified.stats();
            assert!((300..200_000).contains(&stats.walked), "{}: {}", made.name, stats.walked);
            assert!(stats.peak_states >= 50, "{}: {}", made.name, stats.peak_states);
        }
    }
}
