//! What suites expect of loads and test runs: the words of Linux 6.12's log at the end of a refusal's, what the flags
//! of a load ask for, what programs see of a packet.

use super::tests::{Attr, Process, run};
use skep_sys::{Command, Errno};

const SOCKET_FILTER: u32 = 1;
const TC: u32 = 3;
const XDP: u32 = 6;
/// Levels of the log: all paths, and statistics alone.
const ALL_PATHS: u32 = 2;
const STATISTICS: u32 = 4;

/// The lines before the cost, the last first.
fn lines(program_type: u32, insns: &[u8], level: u32) -> (Result<i64, Errno>, Vec<String>) {
    let (answer, log) = Process::new().load_bytes(program_type, insns, level, 8192);
    let statistics = ["processed ", "verification time ", "stack depth "];
    let told = log.lines().filter(|line| !statistics.iter().any(|start| line.starts_with(start)));
    (answer, told.rev().map(str::to_owned).collect())
}

fn code(text: &str) -> Vec<u8> {
    skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap()
}

/// Loads with flags; whether it is taken, and the log.
fn load_with_flags(text: &str, flags: u32) -> (bool, String) {
    let mut process = Process::new();
    let (insns, licence, log) = (process.put(&code(text)), process.put(b"GPL\0"), process.put(&[0; 4096]));
    let attr = Attr::default().u32(0, XDP).u32(4, code(text).len() as u32 / 8).u64(8, insns).u64(16, licence);
    let attr = attr.u32(24, 1).u32(28, 4096).u64(32, log).u32(44, flags).u32(140, 0);
    let taken = process.call(Command::ProgLoad, &attr).is_ok();
    let text = process.get(log, 4096);
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    (taken, String::from_utf8_lossy(&text[..end]).into_owned())
}

#[test]
fn a_refusal_ends_with_what_linux_says_at_every_level() {
    for (program_type, text, words) in [
        (XDP, "r10 = 1\nexit", "frame pointer is read only"),
        (XDP, "r1 = 0\nr0 = *(u64 *)(r1 + 0)\nexit", "R1 invalid mem access 'scalar'"),
        (XDP, "r0 = *(u32 *)(r1 + 40)\nexit", "invalid bpf_context access off=40 size=4"),
        (TC, "*(u32 *)(r1 + 160) = 0\nr0 = 0\nexit", "invalid bpf_context access off=160 size=4"),
        (XDP, "r0 = *(u64 *)(r10 - 520)\nexit", "invalid read from stack R10 off=-520 size=8"),
        (XDP, "*(u8 *)(r10 + 0) = 0\nexit", "invalid write to stack R10 off=0 size=1"),
        (XDP, "r2 = *(u32 *)(r1 + 0)\nr0 = *(u8 *)(r2 + 3)\nexit", "R2 offset is outside of the packet"),
        (XDP, "r2 = r10\nr2 *= 2\nr0 = 0\nexit", "R2 pointer arithmetic with *= operator prohibited"),
        (XDP, "r2 = r10\nr2 &= 8\nr0 = 0\nexit", "R2 bitwise operator &= on pointer prohibited"),
        (
            XDP,
            "r2 = r10\nr2 += 536870912\nr0 = 0\nr3 = *(u8 *)(r2 + 0)\nexit",
            "math between fp pointer and 536870912 is not allowed",
        ),
        (XDP, "goto +5\nr0 = 0\nexit", "jump out of range from insn 0 to 6"),
        (XDP, "r0 = 0", "last insn is not an exit or jmp"),
        (XDP, "r0 = 0\nr0 /= 0\nexit", "div by zero"),
        (XDP, "r0 = 1\nr0 <<= 64\nexit", "invalid shift 64"),
        (XDP, "l:\ngoto l\n", "infinite loop detected at insn 0"),
        (SOCKET_FILTER, "r1 = r10\nr1 += -8\ncall 1\nexit", "R1 type=fp expected=map_ptr"),
        (XDP, "r0 = 0\nexit\nr0 = 1\nexit", "unreachable insn 2"),
    ] {
        for level in [1, ALL_PATHS, STATISTICS] {
            let (answer, lines) = lines(program_type, &code(text), level);
            assert!(answer.is_err(), "{text}");
            assert_eq!(lines.first().map(String::as_str), Some(words), "{text}, level {level}: {lines:?}");
        }
    }
}

#[test]
fn bytes_that_are_no_program_are_refused_in_linuxs_words() {
    const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];
    for (slot, words) in [
        ([0xff, 0, 0, 0, 0, 0, 0, 0], "unknown opcode ff"),
        ([0xb7, 0x0c, 0, 0, 0, 0, 0, 0], "R12 is invalid"),
        ([0xb7, 0, 1, 0, 0, 0, 0, 0], "BPF_ALU uses reserved fields"),
        ([0x85, 0, 1, 0, 0, 0, 0, 0], "BPF_CALL uses reserved fields"),
        ([0x01, 0, 0, 0, 0, 0, 0, 0], "BPF_LDX uses reserved fields"),
        // The exit is no second slot.
        ([0x18, 0, 0, 0, 0, 0, 0, 0], "invalid bpf_ld_imm64 insn"),
    ] {
        let (answer, lines) = lines(XDP, &[slot, EXIT].concat(), 1);
        assert_eq!(answer, Err(Errno::EINVAL));
        assert_eq!(lines.first().map(String::as_str), Some(words), "{lines:?}");
    }
}

#[test]
fn flags_of_a_load_ask_for_alignment_or_for_none() {
    const STRICT: u32 = 1;
    const ANY: u32 = 2;
    let text = "*(u64 *)(r10 - 12) = 0\nr0 = 2\nexit";
    for (flags, taken) in [(0, true), (STRICT, false), (ANY, true), (STRICT | ANY, true)] {
        let (found, log) = load_with_flags(text, flags);
        assert_eq!(found, taken, "{flags}: {log}");
        assert!(taken || log.contains("misaligned stack access off 0+0+-12 size 8"), "{log}");
    }
    // How the walk stores its states, and that it checks itself, changes no verdict.
    for flags in [1 << 3, 1 << 7] {
        assert!(load_with_flags("r0 = 2\nexit", flags).0, "{flags}");
    }
}

#[test]
fn calls_that_no_path_makes_count_for_the_stack() {
    let chain = |calls: usize| {
        let mut text = "r0 = 0\nif r0 == 0 goto end\ncall f1\nend:\nr0 = 2\nexit\n".to_owned();
        for at in 1..calls {
            text += &format!("f{at}:\ncall f{}\nr0 = 0\nexit\n", at + 1);
        }
        text + &format!("f{calls}:\nr0 = 0\nexit\n")
    };
    assert!(load_with_flags(&chain(7), 0).0);
    let (taken, log) = load_with_flags(&chain(8), 0);
    assert!(!taken);
    assert!(log.contains("the call stack of 9 frames is too deep"), "{log}");
}

#[test]
fn only_programs_of_tc_are_run_with_the_ethernet_header() {
    let packet: Vec<u8> = (0..64).collect();
    for (program_type, len) in [(SOCKET_FILTER, 50), (TC, 64)] {
        let mut process = Process::new();
        let (answer, log) = process.load_with(program_type, "r0 = *(u32 *)(r1 + 0)\nexit", 1, 4096);
        let (result, left) = run(&mut process, answer.expect(&log) as i32, &packet);
        assert_eq!(result, len, "{program_type}");
        assert_eq!((left.len(), &left[14..]), (64, &packet[14..]), "{program_type}");
    }
}
