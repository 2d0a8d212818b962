//! LLVM reads skep's bytes and text as skep does. Needs `llvm-mc-19`; without it the tests are skipped, or fail with
//! `SKEP_REQUIRE_ALL=1`.

use skep_isa::{CallTarget, Imm64, Insn, PacketBase, Size, Slot, assemble, decode};

const LLVM_MC: &str = "llvm-mc-19";

#[test]
fn llvm_disassembles_every_instruction_to_the_same_text() {
    let programs = instructions(printed_alike);
    let opcodes: std::collections::BTreeSet<_> = programs.iter().map(|(_, slots)| slots[0].opcode).collect();
    // All 129 except the two sizes that only load-acquire and store-release have.
    assert_eq!(opcodes.len(), 127, "{opcodes:02x?}");
    for (mcpu, needs_sub_registers) in [("generic", false), ("v4", true)] {
        let programs: Vec<_> =
            programs.iter().filter(|(insn, _)| wants_sub_registers(insn) == needs_sub_registers).collect();
        let Some(theirs) = llvm(&["--disassemble", mcpu_flag(mcpu)], &hex_lines(&programs)) else { return };
        let ours: Vec<_> = programs.iter().map(|(insn, _)| insn.to_string()).collect();
        assert_same_lines(&ours, &theirs, &hex_lines(&programs));
    }
}

#[test]
fn the_assembler_takes_what_llvm_prints_with_sub_registers() {
    let programs = instructions(printed_alike);
    let programs: Vec<_> = programs.iter().collect();
    let Some(theirs) = llvm(&["--disassemble", mcpu_flag("v4")], &hex_lines(&programs)) else { return };
    assert_eq!(theirs.len(), programs.len());
    let mut with_w = 0;
    for ((insn, _), text) in programs.iter().zip(theirs) {
        assert_eq!(assemble(&text).map(|program| program[0]), Ok(*insn), "{text}");
        with_w += usize::from(text.starts_with('w') && matches!(insn, Insn::Load { .. }));
    }
    assert!(with_w > 0, "LLVM printed no load with a w register: the test compares nothing new");
}

#[test]
fn llvm_assembles_our_text_to_the_same_bytes() {
    // LLVM's assembler accepts no `gotol` distance beyond 16 bits, though its disassembler prints them.
    let programs = instructions(|insn| {
        let distance = insn.jump_offset().unwrap_or(0);
        printed_alike(insn) && i16::try_from(distance).is_ok()
    });
    let text: String = programs.iter().map(|(insn, _)| format!("{insn}\n")).collect();
    let Some(theirs) = llvm(&["-show-encoding", mcpu_flag("v4")], &text) else { return };
    let encoding =
        |line: &String| Some(line.split_once("encoding: [")?.1.trim_end_matches(']').replace(',', " "));
    let theirs: Vec<_> = theirs.iter().filter_map(encoding).collect();
    let ours: Vec<_> = programs.iter().map(|(_, slots)| hex(slots)).collect();
    assert_same_lines(&ours, &theirs, &text);
}

/// Whether LLVM 19 knows the instruction and its text says everything about it. The others are listed at
/// [`skep_isa`]'s disassembler, which has forms of its own for them.
fn printed_alike(insn: &Insn) -> bool {
    !matches!(
        insn,
        Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. }
            | Insn::Call { target: CallTarget::Local(_) | CallTarget::Kfunc { .. } }
            | Insn::LoadPacket { base: PacketBase::Indirect(_), imm: 1.. | ..=-1, .. }
    ) && !matches!(insn, Insn::LoadImm64 { value, .. } if !matches!(value, Imm64::Value(_)))
}

/// Whether LLVM knows the instruction only with 32-bit registers enabled, which change how it prints others.
fn wants_sub_registers(insn: &Insn) -> bool {
    matches!(insn, Insn::Atomic { size: Size::B4, .. })
}

/// Instructions with their slots: every opcode with notable fields, if they decode and `wanted` accepts them.
fn instructions(wanted: fn(&Insn) -> bool) -> Vec<(Insn, Vec<Slot>)> {
    let mut all = Vec::new();
    for opcode in 0..=255 {
        for (dst, src) in [(0, 0), (1, 0), (0, 2), (1, 2), (10, 9)] {
            for offset in [0, 1, -1, 8, 16, 32, 5, i16::MIN, i16::MAX] {
                for imm in
                    [0, 1, -1, 16, 32, 64, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1, i32::MIN, i32::MAX]
                {
                    let mut slots = vec![Slot { opcode, dst, src, offset, imm }];
                    if opcode == 0x18 {
                        slots.push(Slot { imm: imm.wrapping_mul(3), ..Slot::default() });
                    }
                    all.extend(
                        decode(&slots).ok().filter(|insns| wanted(&insns[0])).map(|insns| (insns[0], slots)),
                    );
                }
            }
        }
    }
    all
}

fn hex(slots: &[Slot]) -> String {
    let bytes = slots.iter().flat_map(|slot| slot.to_bytes());
    bytes.map(|byte| format!("{byte:#04x}")).collect::<Vec<_>>().join(" ")
}

fn hex_lines(programs: &[&(Insn, Vec<Slot>)]) -> String {
    programs.iter().map(|(_, slots)| hex(slots) + "\n").collect()
}

fn mcpu_flag(mcpu: &str) -> &'static str {
    if mcpu == "v4" { "-mcpu=v4" } else { "-mcpu=generic" }
}

fn assert_same_lines(ours: &[String], theirs: &[String], input: &str) {
    for ((ours, theirs), input) in ours.iter().zip(theirs).zip(input.lines()) {
        assert_eq!(ours, theirs, "for {input}");
    }
    assert_eq!(ours.len(), theirs.len(), "one line for each instruction");
}

/// LLVM's output lines for `input`; `None` if LLVM is missing and the test may be skipped.
fn llvm(flags: &[&str], input: &str) -> Option<Vec<String>> {
    let flags = [&["-triple=bpfel", "-print-imm-hex"], flags].concat();
    let text = skep_testkit::answer("comparison with LLVM", &[LLVM_MC], &flags, input)?;
    Some(text.lines().map(|line| line.trim().to_owned()).filter(|line| line != ".text").collect())
}
