//! Sequences of helpers over packets, compared step by step with what Linux 6.12 answers.
//!
//! Linux's answers were recorded in a virtual machine through `BPF_PROG_TEST_RUN`. A line of `packets.linux` is
//!
//! ```text
//!   tc v4 | 18 81 5 | 21 @0 2c 0 | w 44 4 7   =>   0 74 0 0008 0081:5 0 0 0 | ...   =>   74 HASH HASH
//!   type, packet, steps                            after each step                       afterwards
//! ```
//!
//! A step is a helper with its arguments after the context, or a write to the context (`w OFFSET BYTES VALUE`); `@N` is
//! the address of byte N of the memory that the first line gives. After each step the line has the result, then for
//! XDP the lengths of packet and metadata, for others length, type, protocol and tag of the packet, its hash, and for
//! classifiers the clock and the time stamp. At the end: the packet's length, hashes of its bytes and of the memory.

use skep::abi::{MapDef, MapKind, ProgramType, linux_helper};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Module, Object, Packet, Runtime, UpdateFlags};
use std::collections::HashMap;

#[path = "../oracle/packets.rs"]
mod oracle;

use oracle::{MEMORY, SHARED, STATE, program};

const LINUX: &str = include_str!("../data/packets.linux");
const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];

/// Names of types in the file.
const TYPES: [(&str, &str); 4] =
    [("tc", "sched_cls"), ("xdp", "xdp"), ("lwt", "lwt_in"), ("cgroup", "cgroup_skb/ingress")];

fn hash(bytes: &[u8]) -> u64 {
    // The 64-bit FNV-1a hash.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// The states after the steps and what is left afterwards, as a line of the file has them.
fn answer(kind: &str, module: &Module, engine: Engine, bytes: &[u8], memory: &[u8], steps: usize) -> String {
    let array = module.map("array").unwrap();
    let mut value = vec![0; SHARED];
    value[MEMORY..MEMORY + memory.len()].copy_from_slice(memory);
    array.update(&[0; 4], &value, UpdateFlags::Any).unwrap();
    let mut packet = Packet::new(bytes);
    // As Linux's loopback device would have it, whose address is all zeroes.
    let ours = bytes.starts_with(&[0; 6]);
    packet.info.pkt_type = if ours { 0 } else { 3 };
    assert_eq!(module.programs()[0].run_with(engine, &mut packet).unwrap(), 0);
    let value = array.lookup(&[0; 4]).unwrap().unwrap();
    let states: Vec<_> = (0..steps)
        .map(|step| {
            let at = |slot: usize| {
                let at = step * STATE + slot * 8;
                u64::from_ne_bytes(value[at..at + 8].try_into().unwrap())
            };
            let result = at(0) as i64;
            if kind == "xdp" {
                return format!("{result} {} {}", at(1), at(2));
            }
            let vlan = match at(4) {
                0 => "-".to_owned(),
                _ => format!("{:04x}:{:x}", at(6), at(5)),
            };
            let state = format!("{result} {} {} {:04x} {vlan} {:x}", at(1), at(2), at(3), at(7));
            if kind == "tc" { format!("{state} {} {:x}", at(8), at(9)) } else { state }
        })
        .collect();
    let left = match kind {
        // Linux gives the metadata too.
        "xdp" => [packet.metadata(), packet.bytes()].concat(),
        "tc" => packet.bytes().to_vec(),
        // Linux gives no link-layer header after programs that see none.
        _ => [&[0; 14], &packet.bytes()[14..]].concat(),
    };
    format!("{} => {} {:x} {:x}", states.join(" | "), left.len(), hash(&left), hash(&value[MEMORY..]))
}

#[test]
fn helpers_over_packets_answer_as_linux_step_by_step() {
    let (mut memory, mut packets) = (Vec::new(), HashMap::new());
    let mut wrong = Vec::new();
    let (mut compared, mut called) = (0, std::collections::BTreeSet::new());
    for line in LINUX.lines() {
        if let Some(hex) = line.strip_prefix("memory ") {
            memory = bytes(hex);
            continue;
        }
        if let Some((name, hex)) = line.strip_prefix("packet ").and_then(|rest| rest.split_once(' ')) {
            packets.insert(name, bytes(hex));
            continue;
        }
        let (asked, linux) = line.split_once(" => ").unwrap();
        let mut parts = asked.split(" | ");
        let (kind, name) = parts.next().unwrap().split_once(' ').unwrap();
        let steps: Vec<_> = parts.collect();
        called.extend(steps.iter().filter_map(|step| step.split(' ').next()?.parse::<u32>().ok()));
        let text = program(kind, &steps);
        let code = encode_bytes(&assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap();
        let array = MapDef::new("array", MapKind::Array, 4, SHARED as u32, 1);
        let object = Object::from_bytecode_and_maps(
            "steps",
            ProgramType::from_name(TYPES.iter().find(|(name, _)| *name == kind).unwrap().1).unwrap(),
            &code,
            vec![array],
        );
        let module = Runtime::new().unwrap().load(&object.unwrap());
        let module = module.unwrap_or_else(|error| panic!("{line}\n{error}"));
        for engine in ENGINES {
            let here = answer(kind, &module, engine, &packets[name], &memory, steps.len());
            if here != linux {
                let place = differ(&steps, &here, linux);
                wrong.push(format!("{asked}\n  {engine:?}: {here}\n  Linux: {linux}\n  {place}"));
            }
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 400, "{compared}");
    let names: Vec<_> = called.iter().map(|id| &*linux_helper(*id).unwrap().name).collect();
    assert!(names.len() >= 30, "{names:?}");
}

/// The first step after which the states differ.
fn differ(steps: &[&str], here: &str, linux: &str) -> String {
    let states = here.split(['|', '=']).zip(linux.split(['|', '='])).zip(steps);
    match states.into_iter().find(|((a, b), _)| a != b) {
        Some(((a, b), step)) => format!("after {step}: {a} instead of {b}"),
        None => "the bytes differ".to_owned(),
    }
}

#[test]
fn cookies_are_checked_by_programs_of_the_runtime_that_made_them_for_a_while() {
    use skep::world::{Clock, Machine, Random, World};
    use std::time::Duration;

    /// From the packet's TCP header, 20 bytes or those that the register says.
    const HEADERS: &str = "r6 = r1
         r7 = *(u32 *)(r6 + 0)
         r8 = *(u32 *)(r6 + 4)
         r2 = r7
         r2 += 64
         if r2 > r8 goto short
         r1 = r7
         r2 = r7
         r2 += 40";
    let text = |call: &str| format!("{HEADERS}\n{call}\nexit\nshort:\nr0 = 1\nexit");
    let clock = Clock::stepped(Duration::from_secs(1000));
    let world = World::with(Machine::new(), clock, Random::seeded(7));
    let runtime = Runtime::builder().world(&world).build().unwrap();
    let load = |call: &str| {
        let xdp = ProgramType::from_name("xdp").unwrap();
        runtime.load(&Object::from_insns("p", xdp, assemble(&text(call)).unwrap())).unwrap()
    };
    let calls = [
        ("r3 = 24\ncall 204", "call 206", 1460),
        ("r3 = 24\ncall 205", "call 207", 1440),
        ("r3 = 20\ncall 204", "call 206", 536),
    ];
    for (make, check, size) in calls {
        let (make, check) = (load(make), load(check));
        // Addresses, then a SYN with sequence number 7 and, unless it is short, segments of 1460 bytes.
        let mut bytes: [u8; 64] = std::array::from_fn(|at| at as u8);
        bytes[44..48].copy_from_slice(&7u32.to_be_bytes());
        bytes[52] = if size == 536 { 0x50 } else { 0x60 };
        bytes[60..64].copy_from_slice(&[2, 4, 0x05, 0xb4]);
        let run = |module: &Module, engine, bytes: &[u8]| {
            module.programs()[0].run_with(engine, &mut Packet::new(bytes)).unwrap()
        };
        let made = run(&make, Engine::Jit, &bytes);
        assert_eq!(made, run(&make, Engine::Interpreter, &bytes));
        assert_eq!(made >> 32, size);
        let mut ack = bytes;
        ack[44..48].copy_from_slice(&8u32.to_be_bytes());
        ack[48..52].copy_from_slice(&(made as u32).wrapping_add(1).to_be_bytes());
        for engine in ENGINES {
            assert_eq!(run(&check, engine, &ack), 0);
            for at in [8, 12, 40, 43, 47, 48, 51] {
                let mut other = ack;
                // An address, both ports, the sequence number, both ends of the cookie.
                let at = if at < 40 { at + 4 } else { at };
                other[at] ^= 1;
                assert_eq!(run(&check, engine, &other) as i64, -13, "byte {at}");
            }
        }
        world.clock().step(Duration::from_secs(64));
        assert_eq!(run(&check, Engine::Jit, &ack), 0, "the next period");
        world.clock().step(Duration::from_secs(64));
        assert_eq!(run(&check, Engine::Jit, &ack) as i64, -13, "the one after that");
        bytes[52] = 0xf0;
        assert_eq!(run(&make, Engine::Jit, &bytes) as i64, -22, "the header is said to be longer");
    }
}

#[test]
fn random_helpers_do_the_same_to_a_packet_in_both_engines() {
    // More of them: `SKEP_SEED=$(date +%s)000000 SKEP_CASES=100000`.
    let number = |name, usual| std::env::var(name).map_or(usual, |text: String| text.parse().unwrap());
    let first: u64 = number("SKEP_SEED", 0);
    for seed in first..first + number("SKEP_CASES", 400) {
        oracle::check(&mut skep_testgen::Source::from_seed(seed));
    }
}
