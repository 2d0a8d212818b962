//! Compares the walk of a program with its execution: random programs are walked, then run on numbers. Before each
//! instruction, some walked state must contain the value of every register and stack cell. That checks pruning,
//! liveness and linked values as well.

use crate::domain::stack::STACK_BYTES;
use crate::program::cfg::{next_slot, target};
use crate::{Config, Machine, MachineFrame, Mismatch, Recorded, Unverified, verify};
use skep_abi::{Entry, Function, ProgramSource, RAW};
use skep_isa::{AluOp, ByteOrder, CallTarget, Cond, Insn, Operand, Reg, Size, Width, semantics};
use std::sync::Arc;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 20) % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn imm(&mut self) -> i32 {
        match self.below(4) {
            0 => self.next() as i32,
            1 => self.pick(&[i32::MIN, i32::MAX, -1, 0, 1, 0x7fff, 0x8000, 0xffff]),
            _ => self.below(64) as i32 - 16,
        }
    }
}

const LEN: u32 = 16;
/// `r9` is the buffer, `r8` counts a loop, the others hold numbers.
const NUMBERS: [Reg; 8] = [Reg::R0, Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5, Reg::R6, Reg::R7];

fn generate(random: &mut Random) -> (Vec<Insn>, Vec<u32>) {
    let mut insns = vec![alu(AluOp::Mov, Reg::R9, Operand::Reg(Reg::R1))];
    for reg in NUMBERS {
        let size = random.pick(&Size::ALL);
        let signed = size != Size::B8 && random.below(3) == 0;
        let offset = random.below(u64::from(LEN - size.bytes() + 1)) as i16;
        insns.push(Insn::Load { size, signed, dst: reg, base: Reg::R9, offset });
    }
    for slot in 1..=4 {
        let src = if random.below(2) == 0 { Operand::Imm(0) } else { Operand::Reg(random.pick(&NUMBERS)) };
        insns.push(Insn::Store { size: Size::B8, base: Reg::R10, offset: -8 * slot, src });
    }
    // A copy plus a constant: one of the two is checked where paths part and forgotten where they meet.
    let (one, other) = (random.pick(&NUMBERS), random.pick(&NUMBERS));
    insns.push(alu(AluOp::Mov, one, Operand::Reg(other)));
    let checked = random.pick(&[one, other]);
    let (cond, src) = (random.pick(&Cond::ALL), Operand::Imm(random.imm()));
    insns.push(Insn::JumpIf { width: Width::W64, cond, dst: checked, src, offset: 1 });
    insns.push(alu(random.pick(&[AluOp::Add, AluOp::Sub]), checked, Operand::Imm(random.imm())));
    insns.push(alu(AluOp::Mov, Reg::R8, Operand::Imm(0)));
    let head = insns.len();
    let body = 8 + random.below(24) as usize;
    let calls = random.below(3) == 0;
    let mut call = None;
    for at in 0..body {
        let left = (body - at - 1) as u64;
        insns.push(if calls && call.is_none() && at > body / 2 {
            call = Some(insns.len());
            Insn::Call { target: CallTarget::Local(0) }
        } else {
            instruction(random, left)
        });
        if call == Some(insns.len() - 1) {
            // Loads the clobbered registers again.
            for reg in &NUMBERS[1..6] {
                insns.push(Insn::Load { size: Size::B2, signed: false, dst: *reg, base: Reg::R9, offset: 2 });
            }
        }
    }
    insns.push(alu(AluOp::Add, Reg::R8, Operand::Imm(1)));
    let back = head as i64 - (insns.len() as i64 + 1);
    let loops = 1 + random.below(4) as i32;
    insns.push(Insn::JumpIf {
        width: Width::W64,
        cond: Cond::Lt,
        dst: Reg::R8,
        src: Operand::Imm(loops),
        offset: back as i16,
    });
    // A value must matter in the end: an index that is in bounds only if it has the walked range.
    let index = random.pick(&NUMBERS);
    insns.push(Insn::JumpIf {
        width: random.pick(&[Width::W32, Width::W64]),
        cond: random.pick(&Cond::ALL),
        dst: index,
        src: Operand::Reg(random.pick(&NUMBERS)),
        offset: 0,
    });
    insns.push(Insn::Exit);
    let mut functions = vec![0];
    if let Some(call) = call {
        let start = insns.len();
        functions.push(start as u32);
        insns[call] = Insn::Call { target: CallTarget::Local((start - call - 1) as i32) };
        insns.push(alu(AluOp::Mov, Reg::R0, Operand::Reg(Reg::R1)));
        for reg in [Reg::R6, Reg::R7] {
            insns.push(alu(AluOp::Mov, reg, Operand::Reg(Reg::R2)));
        }
        for slot in 1..=4 {
            let src = Operand::Reg(Reg::R3);
            insns.push(Insn::Store { size: Size::B8, base: Reg::R10, offset: -8 * slot, src });
        }
        let body = 3 + random.below(8);
        for at in 0..body {
            insns.push(match instruction(random, body - at - 1) {
                // The buffer's address is not passed.
                Insn::Load { dst, base: Reg::R9, .. } => alu(AluOp::Mov, dst, Operand::Reg(Reg::R4)),
                insn => insn,
            });
        }
        insns.push(Insn::Exit);
    }
    (insns, functions)
}

fn alu(op: AluOp, dst: Reg, src: Operand) -> Insn {
    Insn::Alu { width: Width::W64, op, dst, src }
}

/// An instruction that may jump over at most `left` others.
fn instruction(random: &mut Random, left: u64) -> Insn {
    let width = random.pick(&[Width::W32, Width::W64]);
    let (dst, src) = (random.pick(&NUMBERS), random.pick(&NUMBERS));
    let operand = if random.below(2) == 0 { Operand::Reg(src) } else { Operand::Imm(random.imm()) };
    let size = random.pick(&Size::ALL);
    let place = -(random.below(32 / u64::from(size.bytes())) as i16 + 1) * size.bytes() as i16;
    match random.below(12) {
        0 | 1 => Insn::Alu { width, op: random.pick(&AluOp::ALL), dst, src: operand },
        // Copies and constant distances link values.
        2 => Insn::Alu { width, op: AluOp::Mov, dst, src: Operand::Reg(src) },
        3 => alu(random.pick(&[AluOp::Add, AluOp::Sub]), dst, Operand::Imm(random.imm())),
        4 => match random.below(3) {
            0 => Insn::Neg { width, dst },
            1 => Insn::MovSx { width, from: random.pick(&[Size::B1, Size::B2]), dst, src },
            _ => Insn::Endian {
                order: ByteOrder::ToBig,
                size: random.pick(&[Size::B2, Size::B4, Size::B8]),
                dst,
            },
        },
        5 => Insn::Store { size, base: Reg::R10, offset: place, src: operand },
        6 => Insn::Load {
            size,
            signed: size != Size::B8 && random.below(3) == 0,
            dst,
            base: Reg::R10,
            offset: place,
        },
        7 => {
            Insn::Load { size: Size::B1, signed: false, dst, base: Reg::R9, offset: random.below(16) as i16 }
        }
        _ => {
            let offset = random.below(left.min(6) + 1) as i16;
            Insn::JumpIf { width, cond: random.pick(&Cond::ALL), dst, src: operand, offset }
        }
    }
}

/// The concrete machine.
struct Real {
    frames: Vec<RealFrame>,
    buffer: [u8; LEN as usize],
}

struct RealFrame {
    regs: [u64; 11],
    stack: [u8; STACK_BYTES as usize],
    back: usize,
}

/// Addresses of the simulated machine.
const BUFFER: u64 = 0x7000_0000_0000;
const STACKS: u64 = 0x7fff_0000_0000;

impl Real {
    fn bytes(&mut self, address: u64, size: Size) -> &mut [u8] {
        let bytes = size.bytes() as usize;
        if address < STACKS {
            let at = (address - BUFFER) as usize;
            return &mut self.buffer[at..at + bytes];
        }
        let at = (address - STACKS) as usize;
        &mut self.frames[at >> 16].stack[at & 0xffff..][..bytes]
    }

    fn load(&mut self, address: u64, size: Size, signed: bool) -> u64 {
        let mut number = [0; 8];
        let bytes = self.bytes(address, size);
        number[..bytes.len()].copy_from_slice(bytes);
        let number = u64::from_le_bytes(number);
        let up = 64 - size.bits();
        if signed { (((number << up) as i64) >> up) as u64 } else { number }
    }

    fn store(&mut self, address: u64, size: Size, number: u64) {
        let bytes = self.bytes(address, size);
        let len = bytes.len();
        bytes.copy_from_slice(&number.to_le_bytes()[..len]);
    }

    fn push(&mut self, regs: [u64; 11], back: usize) {
        let at = self.frames.len() as u64;
        let mut frame = RealFrame { regs, stack: [0xa5; STACK_BYTES as usize], back };
        frame.regs[10] = STACKS + (at << 16) + u64::from(STACK_BYTES);
        self.frames.push(frame);
    }

    /// Executes one instruction; the next slot, or `None` at the end.
    fn step(&mut self, insns: &[Insn], slot: usize) -> Option<usize> {
        let top = self.frames.len() - 1;
        let regs = &mut self.frames[top].regs;
        let value = |regs: &[u64; 11], operand: Operand| match operand {
            Operand::Reg(reg) => regs[reg.index()],
            Operand::Imm(imm) => i64::from(imm) as u64,
        };
        match insns[slot] {
            Insn::Alu { width, op, dst, src } => {
                regs[dst.index()] = semantics::alu(width, op, regs[dst.index()], value(regs, src));
            }
            Insn::Neg { width, dst } => {
                regs[dst.index()] = semantics::alu(width, AluOp::Sub, 0, regs[dst.index()]);
            }
            Insn::MovSx { width, from, dst, src } => {
                let up = 64 - from.bits();
                let wide = (((regs[src.index()] << up) as i64) >> up) as u64;
                regs[dst.index()] = if width == Width::W32 { u64::from(wide as u32) } else { wide };
            }
            Insn::Endian { size, dst, .. } => {
                regs[dst.index()] = regs[dst.index()].swap_bytes() >> (64 - size.bits());
            }
            Insn::Load { size, signed, dst, base, offset } => {
                let address = regs[base.index()].wrapping_add(offset as u64);
                let number = self.load(address, size, signed);
                self.frames[top].regs[dst.index()] = number;
            }
            Insn::Store { size, base, offset, src } => {
                let (address, number) = (regs[base.index()].wrapping_add(offset as u64), value(regs, src));
                self.store(address, size, number);
            }
            Insn::JumpIf { width, cond, dst, src, offset } => {
                if semantics::holds(width, cond, regs[dst.index()], value(regs, src)) {
                    return target(slot, offset.into());
                }
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                let regs = *regs;
                self.push(regs, slot + 1);
                return target(slot, offset);
            }
            Insn::Exit => {
                let frame = self.frames.pop()?;
                let caller = self.frames.last_mut()?;
                caller.regs[0] = frame.regs[0];
                return Some(frame.back);
            }
            insn => panic!("{insn} is not generated"),
        }
        Some(next_slot(insns, slot))
    }

    /// Whether some walked state contains this machine's state.
    fn check(&self, recorded: &Recorded, slot: usize) -> Result<(), Mismatch> {
        let frames: Vec<MachineFrame<'_>> = self
            .frames
            .iter()
            .enumerate()
            .map(|(at, frame)| MachineFrame {
                regs: &frame.regs,
                stack: &frame.stack,
                function: u32::from(at > 0),
                call_slot: frame.back.saturating_sub(1) as u32,
            })
            .collect();
        recorded.check(&Machine {
            slot: slot as u32,
            frames: &frames,
            context: 0,
            packet: None,
            slices: &[],
            buffer: BUFFER,
            maps: &[],
            objects: &[],
            functions: &[],
        })
    }
}

#[test]
fn every_step_of_every_run_is_in_a_walked_state() {
    let (mut walked, mut runs, mut steps) = (0, 0, 0);
    for seed in 1..=1500u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (insns, functions) = generate(&mut random);
        let functions =
            functions.into_iter().map(|start| Function::new(format!("f{start}"), start, false)).collect();
        let program = Unverified {
            source: ProgramSource {
                name: "random".to_owned(),
                program_type: &RAW,
                insns,
                functions,
                lines: Vec::new(),
                gpl_compatible: true,
                sleepable: false,
                target: None,
                btf: None,
                externs: Vec::new(),
                unresolved: Vec::new(),
                of: None,
            },
            maps: Arc::from([]),
            entry: Entry::Buffer { len: LEN },
        };
        let helpers = |_| None;
        let config =
            Config { helpers: &helpers, max_walked: 3_000, max_recorded: 3_000, ..Config::default() };
        let insns = program.source.insns.clone();
        let insns = &insns[..];
        // Some programs have too many paths.
        let Ok(verified) = verify(program, &config) else { continue };
        let recorded = verified.recorded().expect("states were asked for");
        assert!(recorded.is_complete());
        walked += 1;
        for _ in 0..12 {
            let mut real = Real { frames: Vec::new(), buffer: [0; LEN as usize] };
            for byte in &mut real.buffer {
                *byte = random.pick(&[0, 1, 0x7f, 0x80, 0xff, random.0 as u8, (random.0 >> 9) as u8]);
                random.next();
            }
            let mut regs = [0x5555_5555_5555_5555; 11];
            (regs[1], regs[2]) = (BUFFER, LEN.into());
            real.push(regs, 0);
            runs += 1;
            let mut slot = 0;
            loop {
                steps += 1;
                if let Err(mismatch) = real.check(recorded, slot) {
                    panic!("seed {seed}: {mismatch}\n{}", skep_isa::disassemble(insns));
                }
                match real.step(insns, slot) {
                    Some(next) => slot = next,
                    None => break,
                }
            }
        }
    }
    assert!(walked > 700 && steps > 200_000, "{walked} programs, {runs} runs, {steps} steps");
}
