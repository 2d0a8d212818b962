//! Ring buffers behave as the running Linux's: programs write records, and a consumer takes them.
//!
//! Linux's consumer reads the memory that it shares with the kernel, where the length and state of a record are bits
//! of its header. skep's consumer is a method. So the tests compare lengths, states, bytes, positions and wake-ups,
//! but not the layout.

mod here;
mod linux;
mod ops;

use skep_testkit::skip;

use crate::cases::Random;
use crate::{data, recording, seed};
use here::Ring;
use linux::LinuxRing;
use ops::{Answer, Op, edges, random};

/// The rings' sizes: Linux has two maps and a program for each.
const SIZES: [usize; 2] = [4096, 16384];
/// Number of random operations on each, after those at the edges: of a transcript, and of a live comparison.
const RECORDED: usize = 150;
const LIVE: usize = 2000;

/// `BPF_RINGBUF_BUSY_BIT`
const BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`
const DISCARDED: u32 = 1 << 30;

/// An implementation of a ring buffer. Operations are numbered, so that each writes different bytes.
trait Subject {
    fn answer(&mut self, op: &Op, number: usize) -> Answer;
}

/// Size in bytes of a record with its header.
fn total(len: usize) -> usize {
    (len + 8).next_multiple_of(8)
}

/// The reason of an intended difference from Linux.
fn difference(op: &Op, linux: &str, here: &Answer) -> Option<&'static str> {
    match (op, here) {
        (Op::Take, Answer::Taken(Some(bytes)))
            if linux.starts_with(&format!("{} bytes ", bytes.len()))
                && bytes.iter().all(|byte| *byte == 0) =>
        {
            Some("a record that is not filled is zeroes; Linux's holds what was there before")
        }
        (Op::Host(_), Answer::Refused(95)) if linux == "error 524" => {
            Some("what a kind cannot do is EOPNOTSUPP (95); 524 is no error number of the interface")
        }
        _ => None,
    }
}

/// Checks skep's answers against the transcripts.
pub(crate) fn check_here() {
    for size in SIZES {
        let path = data(&file(size));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let compared = replay(size, &text).unwrap_or_else(|line| panic!("{}: {line}", path.display()));
        assert!(compared > RECORDED);
    }
}

fn replay(size: usize, text: &str) -> Result<usize, String> {
    let mut lines = text.lines();
    if lines.next() != Some(&format!("ring {size}")) {
        return Err("is of another ring".to_owned());
    }
    let mut ring = Ring::new(size);
    let mut compared = 0;
    for (number, line) in lines.enumerate() {
        let Some((op, theirs)) = line.split_once(" -> ") else { return Err(format!("no answer: {line}")) };
        let op: Op = op.parse()?;
        let ours = ring.answer(&op, number);
        if ours.to_string() != theirs && difference(&op, theirs, &ours).is_none() {
            return Err(format!("line {}: {line}\nskep: {ours}", number + 2));
        }
        compared += 1;
    }
    Ok(compared)
}

/// Asks Linux and skep the same.
pub(crate) fn check_linux() {
    for size in SIZES {
        let mut linux = match LinuxRing::new(size) {
            Ok(ring) => ring,
            Err(why) => return skip("comparison of ring buffers with Linux's", &why),
        };
        let mut numbers = Random(seed() + size as u64);
        let ops = edges(size).into_iter().chain(random(size, move |bound| numbers.below(bound)));
        let count = edges(size).len() + if recording() { RECORDED } else { LIVE };
        let (mut here, mut text) = (Ring::new(size), format!("ring {size}\n"));
        for (number, op) in ops.take(count).enumerate() {
            let theirs = linux.answer(&op, number);
            text += &format!("{op} -> {theirs}\n");
            if recording() {
                continue;
            }
            let ours = here.answer(&op, number);
            assert!(
                ours == theirs || difference(&op, &theirs.to_string(), &ours).is_some(),
                "SKEP_SEED={}, operation {number} on a ring of {size} bytes: {op}\nLinux: {theirs}\nskep:  {ours}",
                seed()
            );
        }
        if recording() {
            std::fs::write(data(&file(size)), text).unwrap();
        }
    }
}

fn file(size: usize) -> String {
    format!("ringbuf-{size}.ring")
}
