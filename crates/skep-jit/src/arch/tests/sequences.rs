//! Compares short sequences of instructions on few registers with an interpreter that runs them one at a time: every
//! pair from a pool, and a sample of longer sequences.
//!
//! Which instructions are fused depends on the following ones and on live-out registers, so each sequence is followed
//! by one of a few ends. `SKEP_SEED` changes the start, `SKEP_CASES` is the number of sequences.

use std::sync::LazyLock;

use skep_abi::{InlineArray, Linkage, MapLink, RunEnv};
use skep_isa::{AluOp, AtomicOp, ByteOrder, CallTarget, Imm64, Insn, Operand, Reg, Size, Width, assemble};
use skep_testkit::fewer_if_emulated;
use skep_verifier::CallFact;

use super::Program;
use crate::arch::testing::CLOBBER;
use crate::{arch, model};

/// Bytes of the buffer; `r9` points to its middle.
const BYTES: usize = 512;
const MIDDLE: usize = 256;
/// Number of stack bytes in use, all of them initialised.
const STACK: usize = 32;
/// The address at which the program reports the address of its stack.
const STACK_SAYS: usize = MIDDLE - 72;
/// More instructions than any terminating program executes.
const FUEL: u32 = 200;

/// Registers, offsets and constants are chosen so that one instruction's result is another's operand.
const POOL: &str = "
    r0 = r1; r1 = r0; r2 = r1; r6 = r0; r0 = r6; r2 = r6; r1 = r10; r0 = r10; r2 = r10; r1 = r9; r0 = r9; r2 = r9
    w0 = w1; w1 = w0; w2 = w6; w1 = w1; w0 = w0; w6 = w1
    r0 = 0; r1 = -1; r0 = 7; w1 = -5; r2 = 305419896; r1 = 3
    r0 += r1; r1 += r0; r1 += r2; r2 += r1; r0 += r2; r0 += r6; r6 += r0; r1 += r1; r2 += r10; w0 += w1; w1 += w6
    r1 += 8; r0 += -8; r2 += 4096; r1 += 305419896; r1 += -2147483648; r2 += -16; w1 += -1; w0 += 65537
    r0 -= r1; r1 -= r0; r1 -= r10; w1 -= w2; r0 -= -2147483648; r1 -= 16; r2 -= 305419896; r2 -= r1
    r1 <<= 3; r2 <<= 2; r0 <<= 1; r0 <<= 3; w1 <<= 4; r1 >>= 12; r0 >>= 32; w0 >>= 7; r1 s>>= 3; w2 s>>= 31
    r1 <<= 48; r1 >>= 48; r1 s>>= 48; w1 <<= 24; w1 >>= 24; w1 s>>= 24; r1 <<= r0; w0 >>= w1; r0 s>>= r6
    r0 <<= 13; r1 >>= 51; r0 >>= 51; r2 <<= 13; r1 <<= 2; r2 <<= 0; w2 >>= 0; r6 <<= 3; r6 >>= 1; w6 <<= 2
    r1 &= 255; r0 &= 65535; r1 &= 8; w1 &= -2147483648; r1 &= -2147483648; r0 &= 63; r1 &= 0; r0 &= r1; w0 &= w2
    r2 &= -8; r1 &= 5; r2 &= r10; r0 &= 4095; w1 &= 255; r6 &= r1; r1 &= 7
    r0 |= r1; r1 |= r2; r0 ^= r1; w1 ^= w0; r1 ^= -1; w0 ^= -1; r0 |= 74565; r2 |= r1; w0 |= w1; r1 ^= r6; r2 |= r0
    r1 *= r0; r0 *= r1; r2 *= r1; w1 *= w2; r1 *= 24; r0 *= -7; w0 *= 10; r1 *= 2; r1 *= 641; r0 *= -8; w1 *= -1
    r1 /= r0; w1 %= w2; r0 /= 7; w0 %= 10; r1 s/= -3; w0 s/= w1; r1 /= -7; r0 %= 641; r1 /= 28; r0 %= 16; r0 s%= r1
    r1 = (s8)r0; r0 = (s32)r1; w2 = (s16)w1; r2 = (s8)r2; w0 = (s8)w0; r0 = (s16)r6
    r1 = -r1; w0 = -w0; r2 = -r2
    r1 = be16 r1; r0 = le16 r0; r0 = bswap64 r0; r1 = be32 r1; r0 = be16 r0
    r0 = *(u64 *)(r9 + 8); r1 = *(u64 *)(r9 + 8); r1 = *(u64 *)(r9 + 0); r1 = *(u32 *)(r9 + 12); r2 = *(u64 *)(r9 + 16)
    r0 = *(u64 *)(r9 + 0); r1 = *(s8 *)(r9 + 5); r0 = *(u8 *)(r1 + 3); r1 = *(u64 *)(r2 + 8); r2 = *(u64 *)(r2 + 16)
    r0 = *(u16 *)(r2 - 1); r0 = *(u64 *)(r10 - 8); r1 = *(u64 *)(r10 - 16); r1 = *(u32 *)(r10 - 8)
    r2 = *(u32 *)(r10 - 4); r0 = *(u64 *)(r0 + 0); r1 = *(u64 *)(r1 + 8); r1 = *(s32 *)(r0 + 0); r0 = *(u64 *)(r2 + 16)
    r0 = *(u8 *)(r9 + 8); r1 = *(u16 *)(r2 + 8); r6 = *(u64 *)(r9 + 24); r0 = *(u32 *)(r9 + 8); r2 = *(u8 *)(r1 + 0)
    *(u64 *)(r9 + 8) = r0; *(u64 *)(r9 + 16) = r1; *(u64 *)(r9 + 24) = 0; *(u32 *)(r9 + 20) = r2; *(u32 *)(r9 + 24) = r6
    *(u8 *)(r1 + 3) = r0; *(u64 *)(r10 - 8) = r1; *(u64 *)(r10 - 16) = r10; *(u64 *)(r2 + 0) = r2; *(u64 *)(r2 + 8) = r10
    *(u16 *)(r0 + 1) = -3; *(u64 *)(r10 - 16) = 0; *(u32 *)(r1 + 4) = r1; *(u32 *)(r1 + 0) = 0; *(u64 *)(r1 + 8) = 77
    if r0 == 0 goto +1; if r1 != 0 goto +1; if r1 == 0 goto +0; if w1 s< 0 goto +1; if r0 s> -1 goto +2
    if r1 & 8 goto +1; if w0 & -2147483648 goto +1; if r2 > r1 goto +1; if r1 == -5 goto +1; if r1 < 4096 goto +1
    if r0 s<= -2147483648 goto +1; if r6 == r10 goto +1; if r1 != 0 goto -1; if r1 == 0 goto -2; if r0 == r0 goto +1
    if r1 == 0 goto +1; if r0 != 0 goto +2; if w1 == 0 goto +1; if r2 s>= 0 goto +1; if r10 > r2 goto +1; if r1 != 0 goto -2
    if w0 != 0 goto +1; if r1 == 0 goto +2; if r0 & -2147483648 goto +1; if w1 > -16 goto +1; if r0 & r1 goto +1
    goto +0; goto +1; goto +2; exit; exit; call 7; call 7; call 1; call 1; call 1; call 8";

/// The ends that follow a sequence.
const ENDS: [&str; 7] = [
    "exit",
    "*(u64 *)(r9 + 96) = r0\nexit",
    "*(u64 *)(r9 + 104) = r1\n*(u64 *)(r9 + 128) = r2\n*(u64 *)(r9 + 112) = r6\nexit",
    "*(u64 *)(r9 + 104) = r2\nr0 = r1\nexit",
    "r0 += r1\nexit",
    "*(u64 *)(r9 + 104) = r1\ngoto +1\nexit\nexit",
    "if r6 != 0 goto +2\nr0 = r1\nexit\nr1 = 5\nr1 += r0\n*(u64 *)(r9 + 104) = r1\nexit",
];

/// The start: initialises all registers and stack, and reports the address of the stack.
const START: &str = "r9 = r1
    *(u64 *)(r9 - 72) = r10
    r2 = *(u64 *)(r9 - 48)
    *(u64 *)(r10 - 8) = r2
    *(u64 *)(r10 - 16) = r9
    *(u64 *)(r10 - 24) = r10
    *(u64 *)(r10 - 32) = 19088743
    r6 = *(u64 *)(r9 - 40)
    r2 = *(u64 *)(r9 - 48)
    r1 = *(u64 *)(r9 - 56)
    r0 = *(u64 *)(r9 - 64)";

/// The called function: it changes a register that it must preserve for its caller.
const FUNCTION: &str = "r6 = r1\nr6 *= 3\nr0 = r6\nr1 = 1\nexit";

/// The result of the look-up; the key is at `r2`.
const ARRAY: InlineArray = InlineArray { base: 0x10_0000, stride: 24, cpu_stride: 40, max_entries: 5 };
const LOOK_UP: Insn = Insn::Call { target: CallTarget::Helper(1) };
const CPU: u32 = 3;

struct Parts {
    start: Vec<Insn>,
    pool: Vec<Insn>,
    ends: Vec<Vec<Insn>>,
    function: Vec<Insn>,
}

static PARTS: LazyLock<Parts> = LazyLock::new(|| {
    let one = |line: &str| {
        // Jumps have a target within the program.
        let around = "r0 = 0\n".repeat(3);
        assemble(&format!("{around}{line}\n{around}exit")).unwrap_or_else(|error| panic!("{line}: {error}"))
            [3]
    };
    let lines = POOL.lines().flat_map(|line| line.split(';')).map(str::trim).filter(|line| !line.is_empty());
    let mut pool: Vec<Insn> = lines.map(one).collect();
    let atomics = [
        (AtomicOp::Add { fetch: true }, Size::B8, Reg::R9, Reg::R1),
        (AtomicOp::Add { fetch: true }, Size::B4, Reg::R9, Reg::R0),
        (AtomicOp::And { fetch: true }, Size::B8, Reg::R10, Reg::R0),
        (AtomicOp::And { fetch: false }, Size::B4, Reg::R9, Reg::R1),
        (AtomicOp::Xor { fetch: true }, Size::B4, Reg::R10, Reg::R1),
        (AtomicOp::Or { fetch: false }, Size::B8, Reg::R1, Reg::R0),
        (AtomicOp::Xchg, Size::B8, Reg::R1, Reg::R1),
        (AtomicOp::Xchg, Size::B8, Reg::R0, Reg::R0),
        (AtomicOp::Xchg, Size::B4, Reg::R9, Reg::R2),
        (AtomicOp::CmpXchg, Size::B8, Reg::R9, Reg::R1),
        (AtomicOp::CmpXchg, Size::B8, Reg::R10, Reg::R0),
        (AtomicOp::CmpXchg, Size::B4, Reg::R9, Reg::R2),
        (AtomicOp::CmpXchg, Size::B8, Reg::R1, Reg::R1),
    ];
    pool.extend(atomics.map(|(op, size, base, src)| Insn::Atomic { op, size, base, offset: -8, src }));
    pool.push(Insn::LoadAcquire { size: Size::B8, dst: Reg::R1, base: Reg::R9, offset: 8 });
    pool.push(Insn::LoadAcquire { size: Size::B4, dst: Reg::R0, base: Reg::R1, offset: 8 });
    pool.push(Insn::StoreRelease { size: Size::B8, base: Reg::R10, offset: -8, src: Reg::R1 });
    for (dst, value) in
        [(Reg::R0, 7), (Reg::R0, 0x1234_5678_9abc_def0), (Reg::R1, 1 << 32), (Reg::R2, u64::MAX - 7)]
    {
        pool.push(Insn::LoadImm64 { dst, value: Imm64::Value(value) });
    }
    pool.extend([Insn::Call { target: CallTarget::Local(0) }; 2]);
    let text = |text: &str| assemble(text).expect("assembles");
    // The ends store registers that may be uninitialised: then the sequence is skipped.
    let ends = ENDS.map(text).to_vec();
    Parts { start: text(START), pool, ends, function: text(FUNCTION) }
});

impl Parts {
    /// The program of a sequence, unless it jumps into the middle of a wide instruction.
    fn program(&self, sequence: &[usize], end: usize) -> Option<Program> {
        let mut insns = self.start.clone();
        let begin = insns.len();
        let slots = |which: &usize| if matches!(self.pool[*which], Insn::LoadImm64 { .. }) { 2 } else { 1 };
        let function = begin + sequence.iter().map(slots).sum::<usize>() + self.ends[end].len();
        for &which in sequence {
            let at = insns.len();
            let inside =
                |offset: i64| offset.clamp(begin as i64 - at as i64 - 1, function as i64 - at as i64 - 2);
            insns.push(match self.pool[which] {
                Insn::Call { target: CallTarget::Local(_) } => {
                    Insn::Call { target: CallTarget::Local((function - at - 1) as i32) }
                }
                Insn::Jump { offset, long } => Insn::Jump { offset: inside(offset.into()) as i32, long },
                Insn::JumpIf { width, cond, dst, src, offset } => {
                    Insn::JumpIf { width, cond, dst, src, offset: inside(offset.into()) as i16 }
                }
                insn => insn,
            });
            if matches!(self.pool[which], Insn::LoadImm64 { .. }) {
                insns.push(Insn::LoadImm64Tail);
            }
        }
        insns.extend(&self.ends[end]);
        let into =
            |slot: usize| insns[slot].jump_target(slot).is_some_and(|to| insns[to] == Insn::LoadImm64Tail);
        if (begin..insns.len()).any(into) {
            return None;
        }
        let calls = insns.iter().any(|insn| matches!(insn, Insn::Call { target: CallTarget::Local(_) }));
        if calls {
            insns.extend(&self.function);
        }
        let look_ups = insns.iter().enumerate().filter(|(_, insn)| **insn == LOOK_UP).map(|(slot, _)| slot);
        let look_ups: Vec<usize> = look_ups.collect();
        let fact = CallFact { map: Some(0), key: None, in_bounds: false };
        let mut program =
            look_ups.into_iter().fold(Program::of(insns), |program, slot| program.call_fact(slot, fact));
        let link =
            MapLink { handle: 0x1234, value_base: None, inline: Some(ARRAY), programs: None, arena: None };
        program.linkage = Linkage {
            maps: vec![link],
            helpers: [(7, CLOBBER as _)].into(),
            inline_linux_helpers: true,
            ..Linkage::default()
        };
        Some(program)
    }
}

impl Program {
    fn text(&self) -> String {
        self.insns.iter().map(|insn| format!("{insn}\n")).collect()
    }
}

/// The program's memory and registers; the stack has an invented address.
#[derive(Clone)]
struct Machine {
    base: u64,
    memory: Vec<u8>,
    r10: u64,
    stack: [u8; STACK],
}

impl Machine {
    fn place(&mut self, address: u64, size: Size) -> Option<&mut [u8]> {
        let bytes = size.bytes() as usize;
        let in_memory = address.wrapping_sub(self.base) as usize;
        let in_stack = address.wrapping_sub(self.r10.wrapping_sub(STACK as u64)) as usize;
        match in_memory.checked_add(bytes) {
            Some(end) if end <= self.memory.len() => self.memory.get_mut(in_memory..end),
            _ => self.stack.get_mut(in_stack..in_stack.checked_add(bytes)?),
        }
    }

    fn read(&mut self, address: u64, size: Size) -> Option<u64> {
        let mut number = [0; 8];
        let place = self.place(address, size)?;
        number[..place.len()].copy_from_slice(place);
        Some(u64::from_le_bytes(number))
    }

    fn write(&mut self, address: u64, size: Size, value: u64) -> Option<()> {
        let place = self.place(address, size)?;
        let bytes = place.len();
        place.copy_from_slice(&value.to_le_bytes()[..bytes]);
        Some(())
    }

    /// Runs one instruction after the other; `None` if the verifier would refuse one.
    fn run(&mut self, insns: &[Insn]) -> Option<u64> {
        let mut regs = [None; 11];
        (regs[1], regs[2], regs[10]) = (Some(self.base + MIDDLE as u64), Some(0), Some(self.r10));
        let mut callers: Vec<(usize, [Option<u64>; 11])> = Vec::new();
        let mut at = 0;
        for _ in 0..FUEL {
            let insn = insns[at];
            at += 1;
            let get = |reg: Reg| regs[reg.index()];
            let value = |src: Operand| match src {
                Operand::Reg(reg) => get(reg),
                Operand::Imm(imm) => Some(i64::from(imm) as u64),
            };
            let address = |base: Reg, offset: i16| Some(get(base)?.wrapping_add(i64::from(offset) as u64));
            let aligned =
                |address: u64, size: Size| address.is_multiple_of(size.bytes().into()).then_some(address);
            match insn {
                Insn::Alu { op: AluOp::Mov, width, dst, src } => {
                    regs[dst.index()] = Some(model::alu(AluOp::Mov, width, 0, value(src)?));
                }
                Insn::Alu { width, op, dst, src } => {
                    regs[dst.index()] = Some(model::alu(op, width, get(dst)?, value(src)?));
                }
                Insn::LoadImm64 { dst, value: Imm64::Value(value) } => {
                    regs[dst.index()] = Some(value);
                    at += 1;
                }
                Insn::Neg { width, dst } => {
                    regs[dst.index()] = Some(model::alu(AluOp::Sub, width, 0, get(dst)?));
                }
                Insn::MovSx { width, from, dst, src } => {
                    let extended = extended(get(src)?, from);
                    let mask = if width == Width::W32 { u64::from(u32::MAX) } else { u64::MAX };
                    regs[dst.index()] = Some(extended & mask);
                }
                Insn::Endian { order, size, dst } => {
                    let bits = 64 - size.bits();
                    let low = get(dst)? << bits >> bits;
                    let swapped = low.swap_bytes() >> bits;
                    regs[dst.index()] = Some(if order == ByteOrder::ToLittle { low } else { swapped });
                }
                Insn::Load { size, signed, dst, base, offset } => {
                    let number = self.read(address(base, offset)?, size)?;
                    regs[dst.index()] = Some(if signed { extended(number, size) } else { number });
                }
                Insn::LoadAcquire { size, dst, base, offset } => {
                    regs[dst.index()] = Some(self.read(aligned(address(base, offset)?, size)?, size)?);
                }
                Insn::Store { size, base, offset, src } => {
                    self.write(address(base, offset)?, size, value(src)?)?;
                }
                Insn::StoreRelease { size, base, offset, src } => {
                    self.write(aligned(address(base, offset)?, size)?, size, get(src)?)?;
                }
                Insn::Atomic { op, size, base, offset, src } => {
                    let place = aligned(address(base, offset)?, size)?;
                    let old = self.read(place, size)?;
                    let with = get(src)?;
                    let mask = u64::MAX >> (64 - size.bits());
                    let new = match op {
                        AtomicOp::Add { .. } => old.wrapping_add(with),
                        AtomicOp::Or { .. } => old | with,
                        AtomicOp::And { .. } => old & with,
                        AtomicOp::Xor { .. } => old ^ with,
                        AtomicOp::Xchg => with,
                        AtomicOp::CmpXchg if old == get(Reg::R0)? & mask => with,
                        AtomicOp::CmpXchg => old,
                    };
                    self.write(place, size, new)?;
                    if op == AtomicOp::CmpXchg {
                        regs[0] = Some(old);
                    } else if op.fetches() {
                        regs[src.index()] = Some(old);
                    }
                }
                Insn::Jump { .. } => at = insn.jump_target(at - 1)?,
                Insn::JumpIf { width, cond, dst, src, .. } => {
                    if model::holds(cond, width, get(dst)?, value(src)?) {
                        at = insn.jump_target(at - 1)?;
                    }
                }
                Insn::Call { target: CallTarget::Local(_) } => {
                    regs[1]?;
                    callers.push((at, regs));
                    // Its function reads no other bytes.
                    regs = [None, regs[1], None, None, None, None, None, None, None, None, None];
                    at = insn.function_target(at - 1)?;
                }
                Insn::Call { target: CallTarget::Helper(id) } => {
                    let result = match id {
                        1 => match self.read(get(Reg::R2)?, Size::B4)? {
                            key if key < u64::from(ARRAY.max_entries) => {
                                let cpu = u64::from(CPU) * u64::from(ARRAY.cpu_stride);
                                ARRAY.base + key * u64::from(ARRAY.stride) + cpu
                            }
                            _ => 0,
                        },
                        8 => CPU.into(),
                        _ => 42,
                    };
                    regs[..6].fill(None);
                    regs[0] = Some(result);
                }
                Insn::Exit => match callers.pop() {
                    None => return regs[0],
                    Some((back, before)) => {
                        let result = regs[0]?;
                        (at, regs) = (back, before);
                        regs[..6].fill(None);
                        regs[0] = Some(result);
                    }
                },
                _ => return None,
            }
        }
        None
    }
}

fn extended(number: u64, from: Size) -> u64 {
    let bits = 64 - from.bits();
    ((number << bits) as i64 >> bits) as u64
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A hash of a number.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[test]
fn short_sequences_equal_their_single_instructions() {
    let usual = if cfg!(debug_assertions) { 6_000 } else { 30_000 };
    let cases = setting("SKEP_CASES").unwrap_or(fewer_if_emulated(usual));
    let first = setting("SKEP_SEED").unwrap_or(1);
    let pool = PARTS.pool.len() as u64;
    let mut memory = vec![0; BYTES];
    let base = memory.as_ptr() as u64;
    let middle = base + MIDDLE as u64;
    // `r0`, `r1`, `r2` and `r6`.
    let inputs = [
        [0x1122_3344_5566_7788, 3, middle + 16, 0xffff_ffff_8000_0000],
        [0, 8, middle - 24, middle],
        [middle + 8, -8i64 as u64, 0x8000_0000_0000_0007, 5],
        [1, middle, 0x80ff, 0],
    ];
    let originals = inputs.map(|input| {
        let mut bytes: Vec<u8> = (0..BYTES as u64).map(|at| mixed(at / 3) as u8).collect();
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        (0..4).for_each(|i| put(MIDDLE - 64 + 8 * i, input[i]));
        put(MIDDLE + 16, middle - 32);
        put(MIDDLE - 24, 2);
        bytes
    });
    let mut env = RunEnv { cpu: CPU, ..RunEnv::default() };
    // SAFETY: a program without memory.
    let near_stack = unsafe { Program::new("r0 = r10\nexit").compile().entry().call(0, 0, &raw mut env) };
    let (mut ran, mut passed_over) = (0, 0);
    for case in first..first + cases {
        let random = mixed(case);
        // A third of the cases are the pairs, in a mixed order.
        let sequence: Vec<u64> = match case % 3 {
            0 => {
                let pair = (case / 3).wrapping_mul(0x9e37_79b1) % (pool * pool);
                vec![pair / pool, pair % pool]
            }
            long => (0..long + 2).map(|i| mixed(random + i) % pool).collect(),
        };
        let sequence: Vec<usize> = sequence.into_iter().map(|which| which as usize).collect();
        let end = (random >> 40) as usize % ENDS.len();
        let Some(program) = PARTS.program(&sequence, end) else { continue };
        if cases == 1 {
            // Names the case before it runs, because it may crash.
            println!("{}", program.text());
        }
        let mut compiled = Vec::new();
        for original in &originals {
            // The address of the stack differs between runs, and programs may branch on it.
            let away = if sequence.iter().any(|&which| PARTS.pool[which].reads().contains(Reg::R10)) {
                16
            } else {
                0
            };
            let fails = |away: u64| {
                let r10 = near_stack.wrapping_sub(8 * away);
                let mut guess = Machine { base, memory: original.clone(), r10, stack: [0; STACK] };
                let at = STACK_SAYS;
                // The reported address of the stack must stay as it was stored.
                guess.run(&program.insns).is_none() || guess.memory[at..at + 8] != r10.to_le_bytes()
            };
            if (0..=away).any(fails) {
                passed_over += 1;
                continue;
            }
            if compiled.is_empty() {
                let way = case as usize % 2;
                compiled = program.variants().skip(way).step_by(2).collect();
            }
            for code in &compiled {
                memory.copy_from_slice(original);
                // SAFETY: the interpreter has just run it inside of this buffer and the stack.
                let got = unsafe { code.entry().call(middle, 0, &raw mut env) };
                let at = STACK_SAYS;
                let r10 = u64::from_le_bytes(memory[at..at + 8].try_into().expect("eight bytes"));
                let mut machine = Machine { base, memory: original.clone(), r10, stack: [0; STACK] };
                let Some(expected) = machine.run(&program.insns) else { continue };
                ran += 1;
                if got != expected || memory != machine.memory {
                    let changed = (0..BYTES).find(|&at| memory[at] != machine.memory[at]);
                    panic!(
                        "SKEP_SEED={case} SKEP_CASES=1: {got:#x}, expected {expected:#x}, memory differs at {changed:?} ({:?})\n{}",
                        arch::detect(),
                        program.text()
                    );
                }
            }
        }
    }
    println!("{ran} runs, {passed_over} passed over");
    assert!(ran > passed_over || cases == 1, "{passed_over} were passed over");
}
