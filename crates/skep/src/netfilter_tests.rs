//! Programs of type `netfilter`, in checking mode, in the interpreter and in the processor's JIT.

use crate::packet::PacketInfo;
use crate::{Engine, Error, Object, Packet, Program, Runtime};
use skep_abi::{ProgramType, own_kfunc_number};
use skep_interp::Regions;

const ACCEPT: u64 = 1;

fn load(text: &str) -> Result<Program, Error> {
    let made = own_kfunc_number("bpf_dynptr_from_skb").expect("a function");
    let text = text.replace("@from_skb", &format!("call kfunc[{made}]"));
    let insns = skep_isa::assemble(&text).unwrap();
    let kind = ProgramType::from_name("netfilter").unwrap();
    Ok(Runtime::new()?.load(&Object::from_insns("filter", kind, insns))?.programs()[0].clone())
}

/// The result over a packet of IPv6 whose first bytes behind the Ethernet header are 0x60, 1, 2, 3.
fn run(text: &str, info: PacketInfo) -> u64 {
    let program = load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = [0; 64];
    bytes[12..18].copy_from_slice(&[0x86, 0xdd, 0x60, 1, 2, 3]);
    let packet = || {
        let mut packet = Packet::new(&bytes);
        packet.info = info;
        packet
    };
    let checked = program.run_checked(&mut packet(), &mut [], Regions::DEFAULT_FUEL).unwrap();
    let result = checked.unwrap_or_else(|violation| panic!("{violation}\n{text}"));
    for engine in [Engine::Interpreter, Engine::Jit] {
        let mut packet = packet();
        assert_eq!(program.run_with(engine, &mut packet).unwrap(), result, "{engine:?}: {text}");
        assert_eq!(packet.bytes(), bytes, "programs only read");
    }
    result
}

/// Accepts the packet if what is loaded into `r2` is that number.
fn accepts(load: &str, number: u64) -> String {
    format!("{load}\nr0 = 1\nr3 = {number} ll\nif r2 == r3 goto +1\nr0 = 0\nexit")
}

#[test]
fn a_program_reads_the_hook_and_the_devices() {
    let info = PacketInfo { netfilter_hook: 1, ingress_ifindex: 7, ..PacketInfo::default() };
    let state = "r1 = *(u64 *)(r1 + 0)\n";
    let inward = "r2 = *(u64 *)(r1 + 8)\nr2 = *(s32 *)(r2 + 0)";
    let outward = "r2 = *(u64 *)(r1 + 16)\nr2 = *(s32 *)(r2 + 0)";
    for (text, info, expected) in [
        ("r2 = *(u8 *)(r1 + 0)", info, 1),
        ("r2 = *(u8 *)(r1 + 1)", info, 10),
        (inward, info, 7),
        // There is none.
        (outward, info, 0),
        (outward, PacketInfo { netfilter_hook: 4, ifindex: 9, ..info }, 9),
        (inward, PacketInfo { netfilter_hook: 4, ifindex: 9, ..info }, 7),
        (inward, PacketInfo { netfilter_hook: 3, ifindex: 9, ..info }, 0),
        (outward, PacketInfo { netfilter_hook: 2, ifindex: 9, ..info }, 9),
    ] {
        assert_eq!(run(&accepts(&format!("{state}{text}"), expected), info), ACCEPT, "{text}");
    }
}

#[test]
fn a_program_reads_the_buffer_and_its_bytes_from_the_network_header_on() {
    let info = PacketInfo { mark: 77, priority: 5, hash: 0x1234, ..PacketInfo::default() };
    let buffer = "r1 = *(u64 *)(r1 + 8)\n";
    for (member, expected) in [(72, 50), (80, 77), (104, 5), (140, 0x1234)] {
        let text = accepts(&format!("{buffer}r2 = *(u32 *)(r1 + {member})"), expected);
        assert_eq!(run(&text, info), ACCEPT, "{member}");
    }
    let protocol = u64::from(0x86ddu16.to_be());
    assert_eq!(run(&accepts(&format!("{buffer}r2 = *(u16 *)(r1 + 88)"), protocol), info), ACCEPT);
    let bytes = format!(
        "{buffer}r2 = 0\nr3 = r10\nr3 += -16\n@from_skb\nr1 = r10\nr1 += -24\nr2 = 4\nr3 = r10\nr3 += -16\nr4 = 0\n\
         r5 = 0\ncall dynptr_read#201\nr2 = *(u32 *)(r10 - 24)"
    );
    assert_eq!(run(&accepts(&bytes, 0x0302_0160), info), ACCEPT);
}

#[test]
fn only_the_buffer_is_a_packet_and_nothing_is_written() {
    let made = "r2 = 0\nr3 = r10\nr3 += -16\n@from_skb\nr0 = 1\nexit";
    for (text, expected) in [
        (made.to_owned(), "sk_buff"),
        (format!("r1 = *(u64 *)(r1 + 0)\n{made}"), "sk_buff"),
        (format!("r1 = *(u64 *)(r1 + 8)\nr1 += 8\n{made}"), "sk_buff"),
        ("r1 = *(u64 *)(r1 + 8)\n*(u32 *)(r1 + 80) = 1\nr0 = 1\nexit".to_owned(), "only be read"),
        ("r2 = *(u64 *)(r1 + 16)\nr0 = 1\nexit".to_owned(), "no value 2"),
        ("r0 = 2\nexit".to_owned(), "0 to 1"),
        // Addresses of the host.
        ("r1 = *(u64 *)(r1 + 8)\nr0 = *(u64 *)(r1 + 0)\nr0 = 1\nexit".to_owned(), "sk_buff"),
        ("r1 = *(u64 *)(r1 + 8)\nr0 = *(u32 *)(r1 + 64)\nr0 = 1\nexit".to_owned(), "sk_buff"),
    ] {
        let error = load(&text).map(drop).expect_err(&text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
