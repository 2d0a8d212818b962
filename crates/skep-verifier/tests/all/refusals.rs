//! The contents of a refusal, and of an accepted program.

use crate::common::{accepted, check, from_insns, kind, maps, program, refused};
use skep_abi::{Entry, LineInfo};
use skep_isa::{Insn, Operand, Reg, Size};
use skep_verifier::{Code, Config, Unverified, verify};
use std::sync::Arc;

/// Looks up key 0 of map 0; r0 is the value or null.
const LOOKUP: &str = "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall 1\n";

#[test]
fn unsupported_instructions_are_refused_by_name() {
    let unsupported = [
        ("xdp", "callx r1\nexit", "through registers"),
        ("xdp", "r1 = map_fd[3] ll\nr0 = 0\nexit", "was not linked"),
        ("xdp", "r1 = map_fd_value[3]+0x4 ll\nr0 = 0\nexit", "was not linked"),
    ];
    for (kind, text, phrase) in unsupported {
        refused(kind, text, Code::Unsupported, phrase);
    }
}

#[test]
fn entries_fit_their_types() {
    let entered = |kind_name, entry| {
        let mut unverified = program(kind(kind_name), "r0 = 0\nexit");
        unverified.entry = entry;
        verify(unverified, &Config::default()).map_err(|refusal| refusal.code)
    };
    assert!(entered("xdp", Entry::Context).is_ok());
    assert_eq!(entered("xdp", Entry::Buffer { len: 4 }).unwrap_err(), Code::Context);
    assert!(entered("raw", Entry::Buffer { len: 0 }).is_ok());
    assert_eq!(entered("raw", Entry::Context).unwrap_err(), Code::Context);
}

#[test]
fn a_buffer_has_exactly_its_length() {
    accepted("raw", "r0 = *(u64 *)(r1 + 8)\nexit");
    refused("raw", "r0 = *(u64 *)(r1 + 9)\nexit", Code::OutOfBounds, "16-byte buffer, found bytes 9..17");
    refused("raw", "r0 = *(u8 *)(r1 - 1)\nexit", Code::OutOfBounds, "bytes -1..0");
    // r2 is its length, a known number.
    accepted("raw", "r1 += r2\nr0 = *(u8 *)(r1 - 1)\nexit");
    refused("raw", "r1 += r2\nr0 = *(u8 *)(r1 + 0)\nexit", Code::OutOfBounds, "bytes 16..17");
    let mut empty = program(kind("raw"), "r0 = *(u8 *)(r1 + 0)\nexit");
    empty.entry = Entry::Buffer { len: 0 };
    assert_eq!(verify(empty, &Config::default()).unwrap_err().code, Code::OutOfBounds);
}

#[test]
fn strict_alignment_is_the_hosts_choice() {
    let aligned = |text: &str| {
        let config = Config { strict_alignment: true, ..Config::default() };
        verify(program(kind("raw"), text), &config).map(|_| ()).map_err(|refusal| refusal.code)
    };
    accepted("raw", "r0 = *(u32 *)(r1 + 2)\nexit");
    assert_eq!(aligned("r0 = *(u32 *)(r1 + 2)\nexit"), Err(Code::Misaligned));
    assert_eq!(aligned("r0 = *(u32 *)(r1 + 4)\nexit"), Ok(()));
    assert_eq!(
        aligned("r2 = *(u8 *)(r1 + 0)\nr2 &= 7\nr1 += r2\nr0 = *(u16 *)(r1 + 0)\nexit"),
        Err(Code::Misaligned)
    );
    assert_eq!(aligned("r2 = *(u8 *)(r1 + 0)\nr2 &= 6\nr1 += r2\nr0 = *(u16 *)(r1 + 0)\nexit"), Ok(()));
}

#[test]
fn a_refusal_names_the_line_and_the_path() {
    let mut unverified: Unverified = program(
        kind("xdp"),
        &format!("{LOOKUP}r6 = *(u32 *)(r10 - 4)\nif r6 == 1 goto +0\nr0 = *(u64 *)(r0 + 0)\nexit"),
    );
    unverified.maps = maps();
    let line = |slot, line, text: &str| LineInfo {
        slot,
        file: Arc::from("a.bpf.c"),
        text: Arc::from(text),
        line,
        column: 1,
    };
    unverified.source.lines =
        vec![line(0, 3, "key = 0;"), line(6, 7, "if (key == 1)"), line(8, 9, "return *value;")];
    let refusal = verify(unverified, &Config::default()).unwrap_err();
    assert_eq!((refusal.slot, refusal.line, refusal.file.as_deref()), (8, Some(9), Some("a.bpf.c")));
    assert_eq!(refusal.source.as_deref(), Some("return *value;"));
    assert_eq!(
        refusal.to_string(),
        "program test refused at instruction 8 `r0 = *(u64 *)(r0 + 0x0)` (a.bpf.c:9): r0 may be null: \
         map_value_or_null(map=0,id=1,off=0); compare it with NULL first"
    );
    let refusal = refused(
        "tc",
        "r2 = *(u32 *)(r1 + 0)\nif r2 == 1 goto +2\nr0 = 0\nexit\nif r2 > 5 goto +0\nr0 = r7\nexit",
        Code::Uninitialised,
        "r7",
    );
    let path: Vec<&str> = refusal.path.iter().map(|step| &*step.text).collect();
    assert_eq!(path, ["if r2 == 0x1 goto +0x2: taken"]);
    assert_eq!(refusal.walked, 6);
}

#[test]
fn a_branch_that_goes_one_way_only_becomes_a_jump() {
    let verified = accepted("xdp", "r0 = 1\nif r0 == 1 goto +1\nr0 = r9\nexit");
    assert!(matches!(verified.insns()[1], Insn::Jump { offset: 1, .. }));
    assert!(!verified.facts()[2].reached);
    let verified = accepted("xdp", "r0 = 1\nif r0 != 1 goto +1\nexit\nr0 = r9\nexit");
    assert!(matches!(verified.insns()[1], Insn::Jump { offset: 0, .. }));
    assert!(!verified.facts()[3].reached && !verified.facts()[3].jump_target);
}

#[test]
fn the_tag_is_that_of_the_program_as_given() {
    let text = "r0 = *(u32 *)(r1 + 12)\nexit";
    let verified = accepted("xdp", text);
    assert_ne!(verified.insns(), program(kind("xdp"), text).source.insns);
    let tag = skep_isa::tag(&program(kind("xdp"), text).source.insns).unwrap();
    assert_eq!(verified.tag(), tag.0);
}

#[test]
fn no_program_makes_the_verifier_panic() {
    // Every instruction on its own, with every register, in every type.
    let mut tried = 0;
    for kind_name in ["xdp", "tc", "socket", "raw"] {
        for opcode in 0..=255u8 {
            for regs in [0x00, 0x10, 0x21, 0x3a, 0xa1, 0x1a] {
                for (offset, imm) in [(0i16, 0i32), (-8, 1), (0, -1), (1, i32::MIN), (8, 16), (256, 7)] {
                    let mut bytes = vec![opcode, regs];
                    bytes.extend(offset.to_le_bytes());
                    bytes.extend(imm.to_le_bytes());
                    let Ok(mut insns) = skep_isa::decode_bytes(&bytes) else { continue };
                    insns.push(Insn::Store {
                        size: Size::B8,
                        base: Reg::R10,
                        offset: -8,
                        src: Operand::Reg(Reg::R1),
                    });
                    insns.push(Insn::Exit);
                    let _ = verify(from_insns(kind(kind_name), insns), &Config::default());
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
    assert!(check("raw", "r0 = 0\nexit").is_ok());
}
