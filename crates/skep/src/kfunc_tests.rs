//! Kernel functions of the runtime: iterators over bits, and what a device says of a packet. In checking mode, in the
//! interpreter and in the processor's JIT.

use crate::packet::{PacketInfo, Vlan};
use crate::{Engine, Error, Object, Packet, Program, Runtime};
use skep_abi::{ProgramType, own_kfunc_number};
use skep_interp::Regions;

const E2BIG: i64 = -7;
const EINVAL: i64 = -22;
const ENODATA: i64 = -61;

/// Replaces `@name` by the call of that kernel function.
fn with_calls(text: &str) -> String {
    let call = |line: &str| match line.trim().strip_prefix('@') {
        Some(name) => format!("call kfunc[{}]\n", own_kfunc_number(name).expect("a function")),
        None => format!("{line}\n"),
    };
    text.lines().map(call).collect()
}

fn load(section: &str, text: &str) -> Result<Program, Error> {
    let insns = skep_isa::assemble(&with_calls(text)).unwrap();
    let kind = ProgramType::from_name(section).unwrap();
    Ok(Runtime::new()?.load(&Object::from_insns("kfuncs", kind, insns))?.programs()[0].clone())
}

fn run(section: &str, info: PacketInfo, text: &str) -> i64 {
    let program = load(section, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let packet = || {
        let mut packet = Packet::new(&[7; 64]);
        packet.info = info;
        packet
    };
    let checked = program.run_checked(&mut packet(), &mut [], Regions::DEFAULT_FUEL).unwrap();
    let result = checked.unwrap_or_else(|violation| panic!("{violation}\n{text}"));
    for engine in [Engine::Interpreter, Engine::Jit] {
        assert_eq!(program.run_with(engine, &mut packet()).unwrap(), result, "{engine:?}: {text}");
    }
    result as i64
}

/// Sums the bits, and multiplies the sum by eight for each: `setup` puts the words and their count into `r2` and `r3`.
fn over_bits(setup: &str) -> String {
    format!(
        "{setup}
         r1 = r10
         r1 += -16
         @bpf_iter_bits_new
         r6 = r0
         r7 = 0
         again: r1 = r10
         r1 += -16
         @bpf_iter_bits_next
         if r0 == 0 goto out
         r1 = *(s32 *)(r0 + 0)
         r7 *= 8
         r7 += r1
         goto again
         out: r1 = r10
         r1 += -16
         @bpf_iter_bits_destroy
         r0 = r6
         if r0 != 0 goto end
         r0 = r7
         end: exit"
    )
}

/// Two words below the iterator.
const WORDS: &str = "r2 = 5\n*(u64 *)(r10 - 32) = r2\nr2 = 2\n*(u64 *)(r10 - 24) = r2\nr2 = r10\nr2 += -32\n";

#[test]
fn an_iterator_over_bits_gives_those_that_are_set() {
    for section in ["xdp", "tc", "socket"] {
        let bits =
            |count: u32| run(section, PacketInfo::default(), &over_bits(&format!("{WORDS}r3 = {count}")));
        assert_eq!(bits(1), 2, "{section}: bits 0 and 2");
        assert_eq!(bits(2), 2 * 8 + 65, "{section}: bits 0, 2 and 65");
    }
}

#[test]
fn an_iterator_over_bits_goes_over_a_copy() {
    let text = over_bits(&format!("{WORDS}r3 = 2")).replacen("r6 = r0", "r6 = r0\n*(u64 *)(r10 - 24) = 0", 1);
    assert_eq!(run("xdp", PacketInfo::default(), &text), 2 * 8 + 65);
}

#[test]
fn sizes_that_linux_refuses_are_errors_and_give_no_bits() {
    let bits = |setup: &str| run("xdp", PacketInfo::default(), &over_bits(setup));
    assert_eq!(bits(&format!("{WORDS}r3 = 0")), EINVAL);
    assert_eq!(bits("r2 = 0\nr3 = 1"), EINVAL);
    assert_eq!(bits(&format!("{WORDS}r3 = 512")), E2BIG);
    assert_eq!(bits(&format!("{WORDS}r3 = 0x20000001")), E2BIG);
}

#[test]
fn words_that_are_not_the_programs_are_refused() {
    let refused = |setup: &str| load("xdp", &over_bits(setup)).map(drop).expect_err(setup).to_string();
    assert!(refused(&format!("{WORDS}r3 = 5")).contains("bpf_iter_bits_new"), "beyond the stack");
    assert!(refused("r2 = r1\nr3 = 1").contains("bpf_iter_bits_new"), "the context");
    assert!(refused("r2 = 4096\nr3 = 1").contains("bpf_iter_bits_new"), "an address by number");
    // Eight times as many bytes must be there as words can be asked for.
    let unbounded = format!("call 7\nr6 = r0\n{WORDS}r3 = r6");
    assert!(refused(&unbounded).contains("bpf_iter_bits_new"));
    let masked = |mask: u32| format!("call 7\nr6 = r0\n{WORDS}r3 = r6\nr3 &= {mask}");
    assert!(load("xdp", &over_bits(&masked(1))).is_ok());
    assert!(refused(&masked(7)).contains("bpf_iter_bits_new"));
    let left = "r2 = 0\nr3 = 1\nr1 = r10\nr1 += -16\n@bpf_iter_bits_new\nr0 = 0\nexit";
    assert!(load("xdp", left).is_err(), "an iterator must be destroyed");
}

/// Calls a function with its variables at `r10 - 8` and `r10 - 16`, and returns its result or the variables.
fn ask(function: &str, load: &str) -> String {
    format!(
        "r2 = r10\nr2 += -8\nr3 = r10\nr3 += -16\n@bpf_xdp_metadata_{function}\nif r0 != 0 goto end\n{load}\nend: exit"
    )
}

#[test]
fn a_program_reads_what_the_device_says_of_a_packet() {
    let info = PacketInfo {
        hwtstamp: 1 << 40,
        hash: 0x1234,
        hash_type: 0x82,
        vlan: Some(Vlan { protocol: 0x8100, tci: 5 }),
        ..PacketInfo::default()
    };
    let both = "r1 = *(u32 *)(r10 - 8)\nr0 = *(u32 *)(r10 - 16)\nr0 <<= 32\nr0 |= r1";
    for (function, load, expected) in [
        ("rx_timestamp", "r0 = *(u64 *)(r10 - 8)", 1 << 40),
        ("rx_hash", both, 0x82_0000_1234),
        (
            "rx_vlan_tag",
            "r0 = *(u16 *)(r10 - 8)\nr0 = be16 r0\nr1 = *(u16 *)(r10 - 16)\nr0 <<= 16\nr0 |= r1",
            0x8100_0005,
        ),
    ] {
        let text = ask(function, load);
        assert_eq!(run("xdp", info, &text), expected, "{function}");
        assert_eq!(run("xdp", PacketInfo::default(), &text), ENODATA, "{function}");
        assert!(self::load("tc", &text).is_err(), "{function} is for XDP");
        let elsewhere = text.replacen("r2 = r10", "r1 += 8\nr2 = r10", 1);
        assert!(self::load("xdp", &elsewhere).is_err(), "{function} takes the context itself");
        let nowhere = text.replacen("r2 += -8", "r2 += -1", 1);
        assert!(self::load("xdp", &nowhere).is_err(), "{function} writes within the stack");
    }
}
