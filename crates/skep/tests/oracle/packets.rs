//! Random helpers over random packets: both engines do the same, the context describes the packet, a known sum of its
//! bytes stays right, and no helper touches memory that is not the packet's.

use skep::abi::{MapDef, MapKind, ProgramType};
use skep::isa::{assemble, encode_bytes};
use skep::{Checksum, Engine, Object, Packet, Runtime, Tunnel, UpdateFlags, Vlan};
use skep_testgen::Source;
use std::fmt::Write;

/// Bytes of the program's map: states after the steps, then the memory of the steps.
pub(crate) const SHARED: usize = 4096;
pub(crate) const STATE: usize = 128;
pub(crate) const MEMORY: usize = 2048;

/// Fields of a state, after the result: offset in the context, size.
const FIELDS: [(usize, usize); 7] = [(0, 4), (4, 4), (16, 4), (20, 4), (24, 4), (28, 4), (68, 4)];
const CLOCK: [(usize, usize); 2] = [(180, 1), (152, 8)];

/// The assembly of a program that makes the steps, and leaves a state for each.
pub(crate) fn program(kind: &str, steps: &[&str]) -> String {
    let mut text = "r6 = r1\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        let words: Vec<&str> = step.split(' ').collect();
        if let ["w", offset, size, value] = words[..] {
            let bits = 8 * size.parse::<u32>().unwrap();
            write!(text, "r2 = 0x{value} ll\n*(u{bits} *)(r6 + {offset}) = r2\nr0 = 0\n").unwrap();
        } else {
            text += "r1 = r6\n";
            for (register, arg) in (2..).zip(&words[1..]) {
                match arg.strip_prefix('@') {
                    Some(at) => {
                        let at = MEMORY + at.parse::<usize>().unwrap();
                        writeln!(text, "r{register} = map_value[0]+0x{at:x} ll").unwrap();
                    }
                    None => writeln!(text, "r{register} = 0x{arg} ll").unwrap(),
                }
            }
            writeln!(text, "call {}", words[0]).unwrap();
        }
        writeln!(text, "r7 = map_value[0]+0x{:x} ll\n*(u64 *)(r7 + 0) = r0", number * STATE).unwrap();
        let mut at = 8;
        let mut field = |text: &mut String, (offset, size): (usize, usize)| {
            writeln!(text, "r8 = *(u{} *)(r6 + {offset})\n*(u64 *)(r7 + {at}) = r8", 8 * size).unwrap();
            at += 8;
        };
        if kind == "xdp" {
            text += "r8 = *(u32 *)(r6 + 0)\nr9 = *(u32 *)(r6 + 4)\nr9 -= r8\n*(u64 *)(r7 + 8) = r9\n";
            text += "r9 = *(u32 *)(r6 + 8)\nr8 -= r9\n*(u64 *)(r7 + 16) = r8\n";
        } else {
            FIELDS.into_iter().for_each(|of| field(&mut text, of));
            let clock = if kind == "tc" { &CLOCK[..] } else { &[] };
            clock.iter().for_each(|of| field(&mut text, *of));
        }
    }
    text + "r0 = 0\nexit"
}

/// What an argument of a helper is, besides the context.
#[derive(Clone, Copy)]
enum Arg {
    /// Any number.
    Any,
    /// One of few, or any number.
    Of(&'static [u64]),
    /// An offset into the packet.
    At,
    /// Memory, with its size as the next argument.
    Memory,
    /// One of these sizes.
    Sized(&'static [u64]),
}

use Arg::{Any, At, Memory, Of, Sized};

const SIZES: &[u64] = &[1, 2, 4, 8, 14, 20, 22, 28, 40, 44, 60, 252, 256, 257, 600];
const BY: &[u64] =
    &[0, 1, 4, 14, 20, 40, 4095, 4096, -1i64 as u64, -4i64 as u64, -20i64 as u64, -40i64 as u64];
const LENGTHS: &[u64] = &[0, 1, 13, 14, 15, 34, 54, 60, 1500, 3520, 16064, 16065, 1 << 20];
const PROTOCOLS: &[u64] = &[0x0008, 0xdd86, 0x0081, 0xa888];
const ROOM: &[u64] = &[0, 2, 4, 8, 10, 0x20, 0x80, 0x100, 0x42 | 14 << 56];
const CSUM: &[u64] = &[0, 2, 4, 0x10, 0x12, 0x34, 0x94, 0x74, 3];
const FLAGS: &[u64] = &[0, 1, 2, 16, 17];

/// Helpers of classifiers.
const SKB: &[(u32, &[Arg])] = &[
    (9, &[At, Memory, Sized(SIZES), Of(FLAGS)]),
    (10, &[At, Any, Any, Of(CSUM)]),
    (11, &[At, Any, Any, Of(CSUM)]),
    (18, &[Of(PROTOCOLS), Any]),
    (19, &[]),
    (20, &[Memory, Sized(SIZES), Of(FLAGS)]),
    (21, &[Memory, Sized(SIZES), Of(FLAGS)]),
    (26, &[At, Memory, Sized(SIZES)]),
    (29, &[Memory, Sized(SIZES)]),
    (30, &[Memory, Sized(SIZES)]),
    (31, &[Of(PROTOCOLS), Of(&[0])]),
    (32, &[Of(&[0, 3])]),
    (34, &[]),
    (38, &[Of(LENGTHS), Of(&[0])]),
    (39, &[Of(LENGTHS)]),
    (40, &[Any]),
    (41, &[]),
    (43, &[Of(LENGTHS), Of(&[0])]),
    (50, &[Of(BY), Of(&[0, 1]), Of(ROOM)]),
    (50, &[Of(BY), Of(&[0, 1]), Of(&[0])]),
    (68, &[At, Memory, Sized(SIZES), Of(&[0, 1])]),
    (97, &[]),
    (135, &[Of(&[0, 1, 2, 3])]),
    (192, &[Any, Of(&[0, 1, 2])]),
];
const XDP: &[(u32, &[Arg])] = &[
    (44, &[Of(BY)]),
    (54, &[Of(BY)]),
    (65, &[Of(BY)]),
    (65, &[Of(LENGTHS)]),
    (188, &[]),
    (189, &[At, Memory, Sized(SIZES)]),
    (190, &[At, Memory, Sized(SIZES)]),
];
const TUNNEL: &[(u32, &[Arg])] = &[
    (26, &[At, Memory, Sized(SIZES)]),
    (34, &[]),
    (39, &[Of(LENGTHS)]),
    (73, &[Of(&[2]), Memory, Sized(SIZES)]),
];
/// Those of them that leave the network header and the bytes behind it alone, or keep a known sum of these.
const KEEPS_SUM: [u32; 16] = [18, 19, 20, 21, 26, 29, 30, 31, 32, 34, 38, 39, 41, 50, 68, 73];

/// A step as text.
fn step(source: &mut Source, (id, args): (u32, &[Arg])) -> String {
    let mut text = id.to_string();
    for arg in args {
        let number = match *arg {
            Any => source.number(),
            Of(_) if source.chance(10) => source.number(),
            Of(few) | Sized(few) => source.pick(few),
            At if source.chance(80) => source.below(80).into(),
            At => source.number(),
            Memory => {
                write!(text, " @{}", source.below(700)).unwrap();
                continue;
            }
        };
        write!(text, " {number:x}").unwrap();
    }
    text
}

fn packet(source: &mut Source, summed: bool) -> Packet {
    let len = source.pick(&[0, 1, 13, 14, 15, 18, 33, 34, 53, 54, 60, 61, 100, 101, 1500, 3520, 3521]);
    let mut bytes: Vec<u8> = (0..len).map(|_| source.word() as u8).collect();
    let protocol = source.pick(&[[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8], [8, 6], [0, 46]]);
    if let Some(place) = bytes.get_mut(12..14) {
        place.copy_from_slice(&protocol);
    }
    let mut packet = Packet::new(&bytes);
    packet.info.vlan = source.chance(30).then_some(Vlan { protocol: 0x8100, tci: 5 });
    if source.chance(20) {
        (packet.info.gso_size, packet.info.gso_segs) = (100, 3);
        packet.info.gso_type = source.pick(&[0, 1, 16, 1 << 17]);
    }
    packet.info.checksum = match if summed { 3 } else { source.below(4) } {
        0 => Checksum::None,
        1 => Checksum::Correct { level: 1 },
        2 => Checksum::Partial,
        _ => Checksum::Complete { sum: sum(bytes.get(14..).unwrap_or_default()).into() },
    };
    if source.chance(20) {
        let options = vec![7; source.below(256) as usize];
        packet.set_tunnel(Some(Tunnel { id: 5, flags: 0x0804, options, ..Tunnel::default() }));
    }
    packet
}

/// The one's-complement sum; 0 is 0xffff as well.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    match words.fold(0u64, |sum, word| sum + u64::from(word)) % 0xffff {
        0 => 0xffff,
        rest => rest as u16,
    }
}

/// # Panics
///
/// Panics where the promise does not hold.
pub(crate) fn check(source: &mut Source) {
    let (kind, name, helpers) = source.pick(&[
        ("tc", "sched_cls", SKB),
        ("tc", "sched_cls", SKB),
        ("xdp", "xdp", XDP),
        ("lwt", "lwt_in", TUNNEL),
    ]);
    // Some cases are about the sum alone.
    let summed = source.chance(30);
    let keeps = |(id, _): &&(u32, _)| !summed || kind == "xdp" || KEEPS_SUM.contains(id);
    let chosen: Vec<_> = helpers.iter().filter(keeps).copied().collect();
    let count = source.between(1, 12);
    let steps: Vec<String> = (0..count)
        .map(|_| {
            let chosen = source.pick(&chosen);
            step(source, chosen)
        })
        .collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let original = packet(source, summed);
    let memory: Vec<u8> = (0..SHARED - MEMORY).map(|at| (at * 37) as u8).collect();

    let text = program(kind, &steps);
    let code = encode_bytes(&assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap();
    let array = MapDef::new("array", MapKind::Array, 4, SHARED as u32, 1);
    let kind_of = ProgramType::from_name(name).unwrap();
    let object = Object::from_bytecode_and_maps("steps", kind_of, &code, vec![array]).unwrap();
    let module = Runtime::new().unwrap().load(&object).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let map = module.map("array").unwrap();
    let run = |engine| {
        let mut value = vec![0; MEMORY];
        value.extend(&memory);
        map.update(&[0; 4], &value, UpdateFlags::Any).unwrap();
        let mut packet = original.clone();
        module.programs()[0].run_with(engine, &mut packet).unwrap();
        (packet, map.lookup(&[0; 4]).unwrap().unwrap())
    };
    let (packet, left) = run(Engine::Jit);
    let (other, same) = run(Engine::Interpreter);
    let shown = || format!("{name} {} bytes: {}", original.bytes().len(), steps.join(" | "));
    assert_eq!(packet.bytes(), other.bytes(), "{}", shown());
    assert_eq!(packet.metadata(), other.metadata(), "{}", shown());
    assert_eq!((packet.info, packet.tunnel()), (other.info, other.tunnel()), "{}", shown());
    assert_eq!(left, same, "{}", shown());

    let at = (steps.len() - 1) * STATE + 8;
    let len = u64::from_ne_bytes(left[at..at + 8].try_into().unwrap()) as usize;
    let link = if kind == "lwt" { original.bytes().len().min(14) } else { 0 };
    assert_eq!(len, packet.bytes().len() - link, "{}", shown());
    let number = |step: &&str| step.split(' ').next().unwrap().parse().unwrap();
    let kept = steps.iter().all(|step| KEEPS_SUM.contains(&number(step)));
    if let (Checksum::Complete { sum: said }, true) = (packet.info.checksum, kept) {
        let first = if kind == "lwt" { link } else { 14 };
        let real = sum(packet.bytes().get(first..).unwrap_or_default());
        assert_eq!(sum(&said.to_ne_bytes()), real, "{}", shown());
    }
}
