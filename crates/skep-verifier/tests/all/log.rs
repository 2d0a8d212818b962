//! The log of a walk. Readers of the Linux verifier's log must be able to read it.

use crate::common::{kind, maps, program};
use skep_abi::LineInfo;
use skep_verifier::{Config, verify_with_log};
use std::sync::Arc;

/// The lines of the log.
fn log(kind_name: &str, text: &str) -> Vec<String> {
    let mut unverified = program(kind(kind_name), text);
    unverified.maps = maps();
    let line = |slot, line, text: &str| LineInfo {
        slot,
        file: Arc::from("/src/a.bpf.c"),
        text: Arc::from(text),
        line,
        column: 1,
    };
    unverified.source.lines = vec![line(0, 3, "    first = 1;"), line(2, 5, "second(first);")];
    let mut lines = Vec::new();
    let _ = verify_with_log(unverified, &Config::default(), &mut |line| lines.push(line.to_owned()));
    lines
}

/// The log without the lines that contain a time.
fn timeless(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).filter(|line| !line.starts_with("verification time")).collect()
}

#[test]
fn an_accepted_program_is_logged_step_by_step() {
    let lines = log(
        "xdp",
        "r2 = *(u32 *)(r1 + 4)
         r1 = *(u32 *)(r1 + 0)
         r3 = r1
         r3 += 14
         if r3 > r2 goto +3
         r1 = *(u8 *)(r1 + 12)
         *(u32 *)(r10 - 4) = r1
         if w1 == 8 goto +0
         r0 = 2
         exit",
    );
    assert_eq!(
        timeless(&lines),
        [
            "func#0 @0",
            "0: R1=ctx() R10=fp0",
            "; first = 1; @ a.bpf.c:3",
            "0: (61) r2 = *(u32 *)(r1 +4)          ; R1=ctx() R2_w=pkt_end()",
            "1: (61) r1 = *(u32 *)(r1 +0)          ; R1_w=pkt(r=0)",
            "; second(first); @ a.bpf.c:5",
            "2: (bf) r3 = r1                       ; R1_w=pkt(r=0) R3_w=pkt(r=0)",
            "3: (07) r3 += 14                      ; R3_w=pkt(off=14,r=0)",
            "4: (2d) if r3 > r2 goto pc+3          ; R1_w=pkt(r=14) R2_w=pkt_end() R3_w=pkt(off=14,r=14)",
            "5: (71) r1 = *(u8 *)(r1 +12)          ; R1_w=scalar(smin=smin32=0,smax=umax=smax32=umax32=255,var_off=(0x0; 0xff))",
            "6: (63) *(u32 *)(r10 -4) = r1         ; R1_w=scalar(id=1,smin=smin32=0,smax=umax=smax32=umax32=255,var_off=(0x0; 0xff)) R10=fp0 fp-8_w=mmmm????",
            "7: (16) if w1 == 0x8 goto pc+0",
            "8: (b7) r0 = 2                        ; R0_w=2",
            "9: (95) exit",
            "from 7 to 8: safe",
            "from 4 to 8: safe",
            "stack depth 4",
            "processed 10 insns (limit 1000000) max_states_per_insn 1 total_states 1 peak_states 3 mark_read 0",
        ]
    );
}

#[test]
fn a_refusal_ends_the_log_with_its_reason() {
    let lines = log(
        "xdp",
        "r1 = map[0] ll
         r2 = r10
         r2 += -4
         *(u32 *)(r10 - 4) = 0
         call 1
         call sub
         exit
         sub:
         r1 = *(u64 *)(r0 + 0)
         exit",
    );
    assert_eq!(
        timeless(&lines),
        [
            "func#0 @0",
            "func#1 @8",
            "0: R1=ctx() R10=fp0",
            "; first = 1; @ a.bpf.c:3",
            "0: (18) r1 = 0x0                      ; R1_w=map_ptr(map=hash,ks=4,vs=16)",
            "; second(first); @ a.bpf.c:5",
            "2: (bf) r2 = r10                      ; R2_w=fp0 R10=fp0",
            "3: (07) r2 += -4                      ; R2_w=fp-4",
            "4: (62) *(u32 *)(r10 -4) = 0          ; R10=fp0 fp-8_w=0000????",
            "5: (85) call bpf_map_lookup_elem#1    ; R0_w=map_value_or_null(id=1,map=hash,ks=4,vs=16)",
            "6: (85) call pc+1",
            "caller:",
            " R0=map_value_or_null(id=1,map=hash,ks=4,vs=16) R10=fp0 fp-8=0000????",
            "callee:",
            " frame1: R10=fp0",
            "8: frame1: R10=fp0",
            "8: (79) r1 = *(u64 *)(r0 +0)",
            "r0 is read but was never written",
            "stack depth 0",
            "processed 7 insns (limit 1000000) max_states_per_insn 1 total_states 1 peak_states 1 mark_read 0",
        ]
    );
}

/// Parses one line by the grammar of the log: consumes known tokens in order.
struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn word(&mut self, word: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(word)?;
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        number.parse().ok()
    }

    fn hex_byte(&mut self) -> Option<()> {
        let (byte, rest) = self.0.split_at_checked(2)?;
        self.0 = rest;
        u8::from_str_radix(byte, 16).ok().map(|_| ())
    }

    /// `R1=ctx() R2_w=scalar(...) fp-8_w=mmmm???? refs=1`, to the end of the line.
    fn state(&mut self) -> Option<()> {
        if self.0.starts_with("frame") {
            self.word("frame")?;
            self.number()?;
            self.word(": ")?;
        }
        while !self.0.is_empty() {
            let end = item_end(self.0)?;
            let (name, value) = self.0[..end].split_once('=')?;
            let name = name.strip_suffix("_w").unwrap_or(name);
            let register = name.strip_prefix('R').and_then(|number| number.parse::<u8>().ok());
            let slot =
                name.strip_prefix("fp").map(|rest| rest.trim_start_matches(|c| "[0123456789]".contains(c)));
            let known = register.is_some_and(|number| number <= 10)
                || slot.is_some_and(|slot| slot.parse::<i32>().is_ok_and(|at| (-512..0).contains(&at)))
                || name == "refs";
            if !known || value.is_empty() {
                return None;
            }
            self.0 = self.0[end..].trim_start();
        }
        Some(())
    }
}

/// The position of the next space outside of parentheses.
fn item_end(text: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (depth == 0).then_some(text.len())
}

fn instruction(line: &str) -> Option<()> {
    let mut reader = Reader(line);
    reader.number()?;
    reader.word(": (")?;
    reader.hex_byte()?;
    reader.word(") ")?;
    match reader.0.split_once("; ") {
        Some((text, state)) => (!text.trim().is_empty()).then(|| Reader(state).state())?,
        None => (!reader.0.is_empty()).then_some(()),
    }
}

fn start(line: &str) -> Option<()> {
    let mut reader = Reader(line);
    reader.number()?;
    reader.word(": ")?;
    if reader.0 == "safe" { Some(()) } else { reader.state() }
}

fn resumed(line: &str) -> Option<()> {
    let mut reader = Reader(line);
    reader.word("from ")?;
    reader.number()?;
    reader.word(" to ")?;
    start(reader.0)
}

fn source(line: &str) -> Option<()> {
    let (text, place) = line.strip_prefix("; ")?.rsplit_once(" @ ")?;
    let (file, number) = place.rsplit_once(':')?;
    (!text.is_empty() && !file.is_empty() && number.parse::<u32>().is_ok()).then_some(())
}

/// `caller:` and the like, and the states that follow them.
fn passing(line: &str) -> Option<()> {
    if let Some(state) = line.strip_prefix(' ') {
        return Reader(state).state();
    }
    if ["caller:", "callee:", "returning from callee:"].contains(&line) {
        return Some(());
    }
    let number = line.strip_prefix("to caller at ")?.strip_suffix(':')?;
    number.parse::<u32>().ok().map(|_| ())
}

fn function(line: &str) -> Option<()> {
    let mut reader = Reader(line);
    reader.word("func#")?;
    reader.number()?;
    reader.word(" @")?;
    reader.number().map(|_| ())
}

#[test]
fn every_line_is_one_of_the_logs_kinds() {
    let programs = [
        ("xdp", "call sub\nr0 = 0\nexit\nsub:\nr1 = r10\nr1 += -16\n*(u64 *)(r10 - 16) = r1\nr0 = 1\nexit"),
        (
            "xdp",
            "r6 = r1\nr2 = 0\ncall 44\nr7 = *(u32 *)(r6 + 12)\nr7 &= 63\nr8 = r10\nr8 += -64\nr8 += r7\n*(u8 *)(r8 + 0) = 1\nr0 = 0\nexit",
        ),
        (
            "tc",
            "r2 = *(u32 *)(r1 + 0)\nr3 = 10\nr3 += -1\nif r3 != 0 goto -2\nr2 s>>= 3\nw4 = w2\nr4 = (s8)r4\nr4 = be16 r4\nr4 = -r4\nr0 = 0\nexit",
        ),
        (
            "raw",
            "r2 = 7\nlock *(u64 *)(r1 + 0) += r2\nr2 = atomic_fetch_or((u64 *)(r1 + 0), r2)\nr2 = xchg_64(r1 + 8, r2)\nr0 = 3\nr0 = cmpxchg_64(r1 + 0x0, r0, r2)\nr0 = load_acquire((u64 *)(r1 + 0))\nstore_release((u64 *)(r1 + 0), r0)\nr0 = *(s8 *)(r1 + 3)\ngotol +0\nexit",
        ),
        (
            "xdp",
            "r1 = map[0] ll\nr2 = r10\nr2 += -8\n*(u64 *)(r10 - 8) = 0\ncall 1\nif r0 == 0 goto +2\nr1 = *(u64 *)(r0 + 8)\nr1 = 5\nr0 = 0x1122334455667788 ll\nexit",
        ),
    ];
    for (kind_name, text) in programs {
        let lines = log(kind_name, text);
        assert!(lines.len() > 8, "{text}");
        assert!(
            lines.last().unwrap().starts_with("processed "),
            "accepted without a reason:\n{}",
            lines.join("\n")
        );
        let ends = |line: &str| {
            ["processed ", "verification time ", "stack depth "].iter().any(|end| line.starts_with(end))
        };
        for line in &lines {
            let line = line.as_str();
            let known = [instruction, start, resumed, source, passing, function]
                .iter()
                .any(|kind| kind(line).is_some());
            assert!(
                known || line.is_empty() || ends(line),
                "not a line of a log: {line:?}\n{}",
                lines.join("\n")
            );
        }
    }
}

#[test]
fn an_invalid_program_has_a_log_with_the_reason() {
    let lines = log("xdp", "goto +7\nexit");
    let lines = timeless(&lines);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].contains("jump"), "{lines:?}");
    assert!(lines[2].starts_with("processed 0 insns"), "{lines:?}");
}
