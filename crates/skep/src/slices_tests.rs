//! Dynptrs of packets, their parts and slices: in checking mode, in the interpreter and in the processor's JIT.

use crate::{Engine, Object, Packet, Program, Runtime};
use skep_abi::{ProgramType, own_kfunc_number};
use skep_interp::Regions;

const EINVAL: i64 = -22;
const ERANGE: i64 = -34;
const EFAULT: i64 = -14;
const E2BIG: i64 = -7;

/// Replaces `@name` by the call of that kernel function.
fn with_calls(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = line.trim();
        match line.strip_prefix('@') {
            Some(name) => {
                let number = own_kfunc_number(&format!("bpf_dynptr_{name}")).expect("a function");
                out.push_str(&format!("call kfunc[{number}]\n"));
            }
            None => out.push_str(&format!("{line}\n")),
        }
    }
    out
}

fn load(section: &str, text: &str) -> Result<Program, crate::Error> {
    let insns = skep_isa::assemble(&with_calls(text)).unwrap();
    let kind = ProgramType::from_name(section).unwrap();
    Ok(Runtime::new()?.load(&Object::from_insns("slices", kind, insns))?.programs()[0].clone())
}

/// Makes a dynptr of the packet at `r10 - 16`.
fn of_packet(section: &str) -> String {
    let from = if section == "xdp" { "xdp" } else { "skb" };
    format!("r6 = r1\nr2 = 0\nr3 = r10\nr3 += -16\n@from_{from}\n")
}

/// The result of a program over a packet of the bytes 0, 1, 2 ..., and the packet it leaves.
fn run(section: &str, text: &str) -> (i64, Vec<u8>) {
    let program = load(section, &(of_packet(section) + text + "\nexit"))
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let bytes: Vec<u8> = (0..64).collect();
    let mut packet = Packet::new(&bytes);
    let checked = program.run_checked(&mut packet, &mut [], Regions::DEFAULT_FUEL).unwrap();
    let result = checked.unwrap_or_else(|violation| panic!("{violation}\n{text}")) as i64;
    for engine in [Engine::Interpreter, Engine::Jit] {
        let mut other = Packet::new(&bytes);
        assert_eq!(program.run_with(engine, &mut other).unwrap() as i64, result, "{engine:?}: {text}");
        assert_eq!(other.bytes(), packet.bytes(), "{engine:?}: {text}");
    }
    (result, packet.bytes().to_vec())
}

const KINDS: [&str; 2] = ["xdp", "tc"];

/// A slice of four bytes at an offset, with a buffer at `r10 - 24`.
fn slice(function: &str, offset: &str) -> String {
    format!(
        "r1 = r10\nr1 += -16\nr2 = {offset}\nr3 = r10\nr3 += -24\nr4 = 4\n@{function}
         if r0 == 0 goto none\n"
    )
}

#[test]
fn a_slice_is_the_bytes_themselves_and_null_beyond_the_end() {
    for section in KINDS {
        for (offset, expected) in
            [("0", 0x0302_0100), ("60", 0x3f3e_3d3c), ("61", -1), ("-1", -1), ("64", -1)]
        {
            let text = slice("slice", offset) + "r0 = *(u32 *)(r0 + 0)\nexit\nnone: r0 = -1";
            assert_eq!(run(section, &text).0, expected, "{section} {offset}");
        }
        let text = slice("slice_rdwr", "8") + "*(u32 *)(r0 + 0) = 0\nr0 = 0\nexit\nnone: r0 = -1";
        let (result, bytes) = run(section, &text);
        assert_eq!((result, &bytes[6..14]), (0, &[6, 7, 0, 0, 0, 0, 12, 13][..]), "{section}");
    }
}

#[test]
fn a_dynptr_of_a_packet_is_read_and_written_within_its_bounds() {
    for section in KINDS {
        let read = |offset: i32, len: u32, flags: u32| {
            let text = format!(
                "r1 = r10\nr1 += -24\nr2 = {len}\nr3 = r10\nr3 += -16\nr4 = {offset}\nr5 = {flags}
                 *(u64 *)(r10 - 24) = -1\ncall 201\nif r0 != 0 goto end\nr0 = *(u64 *)(r10 - 24)\nend: r0 = r0"
            );
            run(section, &text).0
        };
        assert_eq!(read(1, 8, 0), 0x0807_0605_0403_0201);
        assert_eq!((read(57, 8, 0), read(56, 8, 1), read(-1, 1, 0)), (E2BIG, EINVAL, E2BIG), "{section}");
        let write = |offset: i32, flags: u32| {
            let text = format!(
                "*(u64 *)(r10 - 24) = 0\nr1 = r10\nr1 += -16\nr2 = {offset}\nr3 = r10\nr3 += -24\nr4 = 8\nr5 = {flags}
                 call 202"
            );
            run(section, &text)
        };
        let (result, bytes) = write(2, 0);
        assert_eq!((result, &bytes[..11]), (0, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 10][..]));
        assert_eq!(write(57, 0).0, E2BIG);
        // `BPF_F_RECOMPUTE_CSUM` is for socket buffers.
        assert_eq!(write(0, 1).0, if section == "tc" { 0 } else { EINVAL });
        assert_eq!(
            run(
                section,
                "r1 = r10\nr1 += -16\nr2 = 0\nr3 = 4\ncall 203\nif r0 == 0 goto end\nr0 = 1\nend: r0 = r0"
            )
            .0,
            0,
            "data is for memory"
        );
    }
}

#[test]
fn bounds_move_inwards_only_and_a_clone_has_its_own() {
    for section in KINDS {
        let adjust = |start: i64, end: i64, then: &str| {
            let text = format!(
                "r1 = r10\nr1 += -16\nr2 = {start}\nr3 = {end}\n@adjust\nif r0 != 0 goto end\n{then}"
            );
            run(section, &(text + "\nend: r0 = r0")).0
        };
        let size = "r1 = r10\nr1 += -16\n@size";
        assert_eq!((adjust(4, 10, size), adjust(64, 64, size), adjust(0, 64, size)), (6, 0, 64));
        assert_eq!((adjust(5, 4, size), adjust(0, 65, size), adjust(65, 65, size)), (EINVAL, ERANGE, ERANGE));
        assert_eq!((adjust(0, -1, size), adjust(-1, -1, size)), (ERANGE, ERANGE));
        let first = slice("slice", "1") + "r0 = *(u8 *)(r0 + 0)\nexit\nnone: r0 = -1";
        assert_eq!(
            (adjust(4, 10, &first), adjust(4, 9, &first), adjust(4, 8, &first)),
            (5, 5, -1),
            "{section}"
        );
        let text = "r1 = r10\nr1 += -16\nr2 = r10\nr2 += -32\n@clone\nif r0 != 0 goto end
                    r1 = r10\nr1 += -32\nr2 = 60\nr3 = 64\n@adjust\nif r0 != 0 goto end
                    r1 = r10\nr1 += -16\n@size\nr7 = r0\nr1 = r10\nr1 += -32\n@size\nr0 <<= 8\nr0 |= r7\nend: r0 = r0";
        assert_eq!(run(section, text).0, 4 << 8 | 64);
    }
}

#[test]
fn what_is_read_only_cannot_be_written() {
    let text = "r1 = r10\nr1 += -16\n@is_rdonly";
    assert_eq!((run("tc", text).0, run("xdp", text).0), (0, 0));
    assert_eq!(run("cgroup_skb", &(text.to_owned() + "\nr0 = 1")).0, 1);
    let text = of_packet("cgroup_skb") + &slice("slice_rdwr", "0") + "none: r0 = 1\nexit";
    let error = load("cgroup_skb", &text).unwrap_err().to_string();
    assert!(error.contains("expects a writable dynptr"), "{error}");
    let null = "r1 = r6\nr2 = 1\nr3 = r10\nr3 += -32\n@from_xdp\nr7 = r0\nr1 = r10\nr1 += -32\n";
    assert_eq!(run("xdp", &format!("{null}r0 = r7")).0, EINVAL, "flags");
    assert_eq!(run("xdp", &format!("{null}@is_null")).0, 1);
    assert_eq!(run("xdp", &format!("{null}@size")).0, EINVAL);
    assert_eq!(run("xdp", &format!("{null}@is_rdonly")).0, 0);
    assert_eq!(run("xdp", &format!("{null}r2 = r10\nr2 += -48\n@clone")).0, EINVAL);
    assert_eq!(run("xdp", &format!("{null}r2 = 0\nr3 = 0\n@adjust")).0, EINVAL);
    assert_eq!(run("xdp", "r1 = r10\nr1 += -16\n@is_null").0, 0);
}

/// The dynptr stays, and what is no longer in the packet is out of reach; slices from before are refused.
#[test]
fn a_packet_that_becomes_shorter_takes_its_bytes_along() {
    let shrink = "r1 = r6\nr2 = -32\ncall 65\n";
    for (offset, expected) in [("28", 0x1f1e_1d1c), ("29", -1), ("40", -1)] {
        let text = shrink.to_owned() + &slice("slice", offset) + "r0 = *(u32 *)(r0 + 0)\nexit\nnone: r0 = -1";
        assert_eq!(run("xdp", &text).0, expected, "{offset}");
    }
    let read = "r1 = r10\nr1 += -24\nr2 = 8\nr3 = r10\nr3 += -16\nr4 = 30\nr5 = 0\ncall 201";
    assert_eq!(run("xdp", &(shrink.to_owned() + read)).0, EINVAL);
    let shrink_skb = "r1 = r6\nr2 = 32\nr3 = 0\ncall 38\n";
    assert_eq!(run("tc", &(shrink_skb.to_owned() + read)).0, EFAULT);
    let text = of_packet("xdp")
        + &slice("slice", "0")
        + "r7 = r0\n"
        + shrink
        + "r0 = *(u32 *)(r7 + 0)\nnone: r0 = 1\nexit";
    assert!(load("xdp", &text).is_err(), "a slice ends when the packet moves");
}

#[test]
fn contexts_that_are_no_packets_have_no_dynptr() {
    let error = load("flow_dissector", &(of_packet("tc") + "r0 = 0\nexit")).unwrap_err().to_string();
    assert!(error.contains("bpf_dynptr_from_skb"), "{error}");
    for section in ["raw", "xdp"] {
        assert!(load(section, &(of_packet("tc") + "r0 = 0\nexit")).is_err(), "{section}");
    }
}
