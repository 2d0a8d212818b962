//! Properties that must hold for every program, type and set of maps. A property test and the fuzzer `verify_hostile`
//! both check them.
//!
//! A few bytes choose the type and the maps, the rest are instructions: eight bytes each, decoded if possible, and
//! otherwise mapped to some valid instruction. They may be repeated many times, to build programs whose verification
//! explodes.

use skep_abi::{Entry, Function, LINUX, MapDef, MapFlags, MapKind, ProgramSource, TYPES};
use skep_isa::{
    AluOp, AtomicOp, ByteOrder, CallTarget, Cond, Imm64, Insn, Operand, PacketBase, Reg, Size, Width,
    decode_bytes,
};
use skep_verifier::{Config, Unverified, verify};

/// The limit of walked instructions.
const MAX_WALKED: u64 = 20_000;
/// The limit of bytes for states, and the bytes that one more step may add.
const MAX_STATE_BYTES: usize = 2 << 20;
const SLACK: u64 = 1 << 20;
/// The most instructions of a program.
const MAX_INSNS: usize = 1 << 14;

/// The verdict on a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was accepted.
    Accepted,
    /// It was refused.
    Refused,
}

/// Verifies the program that the bytes encode.
///
/// # Panics
///
/// If the verifier panics, or exceeds a limit.
pub(crate) fn check(data: &[u8]) -> Outcome {
    let mut bytes = Bytes(data);
    let program = program(&mut bytes);
    let (slots, maps) = (program.source.insns.len(), program.maps.len());
    let config = Config {
        max_walked: MAX_WALKED,
        max_state_bytes: MAX_STATE_BYTES,
        strict_alignment: bytes.0.len() % 2 == 1,
        privileged: bytes.0.len() % 3 == 1,
        ..Config::default()
    };
    match verify(program, &config) {
        Ok(verified) => {
            let stats = verified.stats();
            assert!(stats.walked <= MAX_WALKED, "{} instructions walked", stats.walked);
            assert!(
                stats.peak_bytes <= MAX_STATE_BYTES as u64 + SLACK,
                "{} bytes of states",
                stats.peak_bytes
            );
            assert_eq!((verified.insns().len(), verified.facts().len()), (slots, slots));
            assert_eq!(verified.maps().len(), maps);
            Outcome::Accepted
        }
        Err(refusal) => {
            assert!(refusal.walked <= MAX_WALKED, "{} instructions walked", refusal.walked);
            assert!((refusal.slot as usize) < slots.max(1), "refused at {} of {slots}", refusal.slot);
            assert!(!refusal.reason.is_empty() && !refusal.to_string().is_empty());
            Outcome::Refused
        }
    }
}

/// Bytes that are consumed one by one; after their end come zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn size(&mut self) -> u32 {
        match self.below(4) {
            0 => self.word(),
            1 => self.pick(&[0, 1, 4, 8, 16, 512, 513, u32::MAX, 1 << 29, 1 << 31]),
            _ => self.byte().into(),
        }
    }
}

fn program(bytes: &mut Bytes<'_>) -> Unverified {
    let program_type = bytes.pick(TYPES);
    let entry = match program_type.context.is_buffer() {
        true => Entry::Buffer { len: bytes.size() },
        false => Entry::Context,
    };
    let count = bytes.below(5);
    let maps: Vec<MapDef> = (0..count).map(|_| map(bytes, true)).collect();
    let flags = bytes.byte();
    let rounds = if flags & 3 == 0 { 1 << bytes.below(12) } else { 1 };
    // Otherwise most programs would be refused at the first register that they read.
    let mut insns = if bytes.below(4) > 0 { prelude() } else { Vec::new() };
    let mut once = instructions(bytes);
    once.truncate(MAX_INSNS / rounds);
    for _ in 0..rounds {
        insns.extend_from_slice(&once);
    }
    if flags & 4 == 0 {
        insns.push(Insn::Exit);
    }
    Unverified {
        source: ProgramSource {
            functions: functions(&insns, flags),
            gpl_compatible: flags & 8 == 0,
            sleepable: flags & 16 == 0 && program_type.may_sleep,
            target: (flags & 32 == 0).then(|| "function".to_owned()),
            ..ProgramSource::new("hostile", program_type, insns)
        },
        maps: maps.into(),
        entry,
    }
}

fn map(bytes: &mut Bytes<'_>, outer: bool) -> MapDef {
    let kind = bytes.pick(MapKind::ALL);
    let flags = MapFlags(bytes.size());
    let inner = (outer && bytes.below(4) == 0).then(|| Box::new(map(bytes, false)));
    MapDef { flags, inner, ..MapDef::new("map", kind, bytes.size(), bytes.size(), bytes.size()) }
}

/// Functions, usually at the targets of calls.
fn functions(insns: &[Insn], flags: u8) -> Vec<Function> {
    let mut starts: Vec<usize> = match flags & 64 {
        0 => insns.iter().enumerate().filter_map(|(slot, insn)| insn.function_target(slot)).collect(),
        _ => vec![usize::from(flags), insns.len() / 2],
    };
    starts.push(usize::from(flags & 128 != 0));
    if flags & 63 != 63 {
        starts.retain(|start| *start < insns.len());
        starts.sort_unstable();
        starts.dedup();
    }
    let function =
        |(number, start): (usize, usize)| Function::new(format!("f{number}"), start as u32, flags & 2 == 0);
    starts.into_iter().enumerate().map(function).collect()
}

/// The context in `r6`, numbers in the other registers and on top of the stack.
fn prelude() -> Vec<Insn> {
    let mov = |dst, src| Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src };
    let mut insns = vec![mov(Reg::R6, Operand::Reg(Reg::R1))];
    for reg in [Reg::R0, Reg::R2, Reg::R3, Reg::R4, Reg::R5, Reg::R7, Reg::R8, Reg::R9] {
        insns.push(mov(reg, Operand::Imm(i32::from(reg.number()))));
    }
    for slot in 1..=2 {
        insns.push(Insn::Store { size: Size::B8, base: Reg::R10, offset: -8 * slot, src: Operand::Imm(0) });
    }
    insns
}

fn instructions(bytes: &mut Bytes<'_>) -> Vec<Insn> {
    let mut insns = Vec::new();
    while !bytes.0.is_empty() && insns.len() < MAX_INSNS {
        let slot = &bytes.0[..bytes.0.len().min(8)];
        if let Ok(decoded) = decode_bytes(slot) {
            insns.extend(decoded);
            bytes.0 = &bytes.0[slot.len()..];
            continue;
        }
        let insn = instruction(bytes);
        insns.push(insn);
        if matches!(insn, Insn::LoadImm64 { .. }) {
            insns.push(Insn::LoadImm64Tail);
        }
    }
    insns
}

/// An instruction, for any bytes.
fn instruction(bytes: &mut Bytes<'_>) -> Insn {
    let kind = bytes.below(32);
    let (dst, other) = match bytes.below(8) {
        0 => (bytes.pick(&Reg::ALL), bytes.pick(&Reg::ALL)),
        _ => (bytes.pick(&Reg::ALL[..10]), bytes.pick(&Reg::ALL)),
    };
    let width = bytes.pick(&[Width::W32, Width::W64]);
    let size = bytes.pick(&Size::ALL);
    let imm = match bytes.below(4) {
        0 => bytes.word() as i32,
        1 => bytes.pick(&[i32::MIN, i32::MAX, -1, 0, 1, 64, 512, -512]),
        _ => i32::from(bytes.byte() as i8),
    };
    let offset = match bytes.below(8) {
        0 => bytes.word() as i16,
        _ => i16::from(bytes.byte() as i8),
    };
    let src = if bytes.below(2) == 0 { Operand::Imm(imm) } else { Operand::Reg(other) };
    match kind {
        0..=3 => Insn::Alu { width, op: bytes.pick(&AluOp::ALL), dst, src },
        4 => Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src },
        5 => Insn::Neg { width, dst },
        6 => Insn::MovSx { width, from: bytes.pick(&[Size::B1, Size::B2]), dst, src: other },
        7 => Insn::Endian {
            order: bytes.pick(&[ByteOrder::ToLittle, ByteOrder::ToBig, ByteOrder::Swap]),
            size: bytes.pick(&[Size::B2, Size::B4, Size::B8]),
            dst,
        },
        8..=10 => Insn::LoadImm64 { dst, value: immediate(bytes, imm) },
        11 | 12 => {
            Insn::Load { size, signed: size != Size::B8 && bytes.below(4) == 0, dst, base: other, offset }
        }
        13 | 14 => Insn::Store { size, base: dst, offset, src },
        15 => Insn::Atomic {
            op: bytes.pick(&AtomicOp::ALL),
            size: bytes.pick(&[Size::B4, Size::B8]),
            base: dst,
            offset,
            src: other,
        },
        16 => Insn::LoadAcquire { size, dst, base: other, offset },
        17 => Insn::StoreRelease { size, base: dst, offset, src: other },
        18 => {
            let base = if offset & 1 == 0 { PacketBase::Absolute } else { PacketBase::Indirect(other) };
            Insn::LoadPacket { size: bytes.pick(&[Size::B1, Size::B2, Size::B4]), base, imm }
        }
        19 | 20 => Insn::Jump {
            offset: if width == Width::W32 { imm } else { offset.into() },
            long: width == Width::W32,
        },
        21..=24 => Insn::JumpIf { width, cond: bytes.pick(&Cond::ALL), dst, src, offset },
        25 => Insn::MayGoto { offset },
        26..=28 => Insn::Call { target: call(bytes, imm, offset) },
        29 => Insn::CallReg { reg: dst },
        _ => Insn::Exit,
    }
}

fn immediate(bytes: &mut Bytes<'_>, imm: i32) -> Imm64 {
    let number = bytes.size();
    let map = number % 6;
    match bytes.below(8) {
        0 => Imm64::MapFd(imm),
        1 => Imm64::MapFdValue { fd: imm, offset: number },
        2 => Imm64::Variable { id: imm, object: 0 },
        3 => Imm64::Function(imm % 64),
        4 => Imm64::Map(map),
        5 => Imm64::MapValue { map, offset: imm as u32 },
        _ => Imm64::Value(u64::from(number) << 32 | u64::from(imm as u32)),
    }
}

fn call(bytes: &mut Bytes<'_>, imm: i32, offset: i16) -> CallTarget {
    match bytes.below(8) {
        0 => CallTarget::Helper(imm as u32),
        1 | 2 => CallTarget::Local(imm % 64),
        3 => CallTarget::Kfunc { id: imm, object: offset },
        _ => CallTarget::Helper(
            bytes.pick(LINUX_IDS.get_or_init(|| LINUX.iter().map(|proto| proto.id).collect())),
        ),
    }
}

static LINUX_IDS: std::sync::OnceLock<Vec<u32>> = std::sync::OnceLock::new();
