//! Compares random programs with an interpreter that runs one instruction at a time. The programs consist of the
//! idioms that the compiler fuses, with other instructions between them.
//!
//! The live-out registers are random too, so that optimisations of dead values happen often. Programs share one
//! buffer, to which `r9` points; `r8` counts iterations of loops.

use std::fmt::Write;

use skep_abi::{InlineArray, Linkage, MapLink, RunEnv};
use skep_isa::{AtomicOp, ByteOrder, Insn, Operand, Reg, Size, Width};
use skep_testkit::fewer_if_emulated;
use skep_verifier::CallFact;

use super::Program;
use crate::model;

const BYTES: usize = 1024;

/// Size of the buffer in bytes: no index, scale and offset lead out of it.
const MIDDLE: i32 = 512;

struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// One of `r0` to `r7`.
    fn reg(&mut self) -> u64 {
        self.below(8)
    }

    fn constant(&mut self) -> i32 {
        match self.below(4) {
            0 => self.below(16) as i32 - 8,
            1 => model::EDGES[self.below(model::EDGES.len() as u64) as usize] as i32,
            2 => 1 << self.below(32),
            _ => self.below(1 << 32) as i32,
        }
    }

    fn offset(&mut self) -> String {
        let offset = self.below(200) as i32 - 100;
        format!("{offset:+}")
    }
}

/// A program of several blocks, with its text.
fn text(random: &mut Random) -> String {
    let mut text = String::from("r9 = r1\n");
    for reg in 0..8 {
        writeln!(text, "r{reg} = *(u64 *)(r9 {:+})", 8 * reg).expect("text");
    }
    let blocks = 1 + random.below(5);
    for block in 0..blocks {
        let rounds = random.chance(4).then(|| 1 + random.below(4));
        if let Some(rounds) = rounds {
            writeln!(text, "r8 = {rounds}\nloop{block}:").expect("text");
        }
        for _ in 0..random.below(8) {
            idiom(random, &mut text);
        }
        if random.chance(2) {
            let (mut a, b) = (random.reg(), random.reg());
            // Often the register that was written last.
            let last = text.trim_end().lines().last().and_then(|line| line[1..2].parse().ok());
            if let Some(last @ 0..8) = last
                && random.chance(2)
            {
                a = last;
            }
            let cond =
                random.one_of(&["==", "!=", "==", "!=", ">", ">=", "<", "<=", "s>", "s<", "s>=", "s<=", "&"]);
            let w = random.one_of(&['r', 'w']);
            let target = block + 1 + random.below(blocks - block);
            let other = match random.below(3) {
                0 => random.constant().to_string(),
                1 => "0".to_string(),
                _ => format!("{w}{b}"),
            };
            if rounds.is_none() && random.chance(2) {
                writeln!(text, "if {w}{a} {cond} {other} goto +1\ngoto block{target}").expect("text");
            } else if rounds.is_none() {
                writeln!(text, "if {w}{a} {cond} {other} goto block{target}").expect("text");
            }
        }
        for _ in 0..random.below(4) {
            idiom(random, &mut text);
        }
        if rounds.is_some() {
            writeln!(text, "r8 += -1\nif r8 != 0 goto loop{block}").expect("text");
        }
        writeln!(text, "block{}:", block + 1).expect("text");
    }
    let kept = random.below(256);
    for reg in (0..8).filter(|reg| kept & 1 << reg != 0) {
        writeln!(text, "*(u64 *)(r9 {:+}) = r{reg}", 900 + 8 * reg).expect("text");
    }
    text += "exit\n";
    text
}

/// A few instructions.
fn idiom(random: &mut Random, text: &mut String) {
    let (a, b, c) = (random.reg(), random.reg(), random.reg());
    let w = random.one_of(&['r', 'w']);
    match random.below(13) {
        0..3 => {
            let op = random.one_of(&["+=", "-=", "*=", "|=", "&=", "^=", "<<=", ">>=", "s>>=", "=", "="]);
            match random.below(2) {
                0 => writeln!(text, "{w}{a} {op} {w}{b}"),
                _ => writeln!(text, "{w}{a} {op} {}", random.constant()),
            }
        }
        3 => {
            let op = random.one_of(&["/=", "%=", "s/=", "s%="]);
            match random.below(2) {
                0 => writeln!(text, "{w}{a} {op} {w}{b}"),
                _ => writeln!(text, "{w}{a} {op} {}", random.constant()),
            }
        }
        4 => {
            let op = random.one_of(&["+=", "-=", "*=", "&=", "<<="]);
            let other = match random.below(2) {
                0 => format!("{w}{c}"),
                _ => random.constant().to_string(),
            };
            writeln!(text, "{w}{a} = {w}{b}\n{w}{a} {op} {other}")
        }
        5 | 6 => {
            address(random, text);
            Ok(())
        }
        7 => {
            rotate(random, text);
            Ok(())
        }
        8 => {
            let size = random.one_of(&["u8", "u16", "u32", "u64", "s8", "s16", "s32"]);
            let op = random.one_of(&["+=", "-=", "*=", "|=", "&=", "^=", "="]);
            let offset = random.offset();
            writeln!(text, "r{a} = *({size} *)(r9 + 512)").expect("text");
            writeln!(text, "r{a} = *({size} *)(r9 {:+})", 512 + offset.parse::<i32>().expect("a number"))
                .expect("text");
            writeln!(text, "{w}{b} {op} {w}{a}")
        }
        9 => {
            let count = random.one_of(&[8, 16, 24, 32, 48, 56]);
            let back = random.one_of(&[">>=", "s>>="]);
            let count = if w == 'w' { count % 32 } else { count };
            writeln!(text, "{w}{a} <<= {count}\n{w}{a} {back} {count}")
        }
        10 => {
            let size = random.one_of(&[16, 32, 64]);
            let order = random.one_of(&["be", "le", "bswap"]);
            writeln!(text, "r{a} = {order}{size} r{a}")
        }
        11 => match random.below(4) {
            0 => writeln!(text, "{w}{a} = (s8){w}{b}"),
            1 => writeln!(text, "r{a} = (s32)r{b}"),
            2 => writeln!(text, "{w}{a} = -{w}{a}"),
            _ => writeln!(text, "{w}{a} = {w}{a}"),
        },
        _ => {
            let op = random.one_of(&["add", "or", "and", "xor"]);
            match random.below(3) {
                0 => writeln!(text, "r{a} = atomic_fetch_{op}((u64 *)(r9 + 520), r{a})"),
                1 => writeln!(text, "r{a} = xchg_64(r9 + 520, r{a})"),
                _ => writeln!(text, "r0 = cmpxchg_64(r9 + 520, r0, r{a})"),
            }
        }
    }
    .expect("text");
}

/// An element of an array, as compilers compute its address.
fn address(random: &mut Random, text: &mut String) {
    let mut regs: Vec<u64> = (0..8).collect();
    for i in (1..regs.len()).rev() {
        regs.swap(i, random.below(i as u64 + 1) as usize);
    }
    let (x, scaled, y, t, v) = (regs[0], regs[1], regs[2], regs[3], regs[4]);
    let shift = 1 + random.below(3);
    writeln!(text, "r{x} &= 7\nr{y} = r9\nr{y} += {MIDDLE}").expect("text");
    // Case 9 loads the base, which is stored in the buffer first.
    let kind = random.below(10);
    let sum = match kind {
        0 => format!("r{scaled} = r{x}\nr{scaled} <<= {shift}\nr{t} = r{y}\nr{t} += r{scaled}"),
        1 => format!("r{scaled} = r{x}\nr{scaled} <<= {shift}\nr{t} = r{scaled}\nr{t} += r{y}"),
        2 => format!("r{t} = r{x}\nr{t} <<= {shift}\nr{t} += r{y}"),
        3 => format!("r{x} <<= {shift}\nr{t} = r{y}\nr{t} += r{x}"),
        4 => format!("r{t} = r{y}\nr{x} <<= {shift}\nr{t} += r{x}"),
        5 => format!("r{t} = r{x}\nr{t} += r{y}"),
        6 => format!("r{t} = r{y}\nr{t} += {}", random.below(100) as i64 - 50),
        9 => format!(
            "*(u64 *)(r9 + 800) = r{y}\nr{scaled} = r{x}\nr{scaled} <<= {shift}\nr{t} = *(u64 *)(r9 + 800)\nr{t} += r{scaled}"
        ),
        7 => format!("r{t} = r{y}\nw{x} = w{x}\nr{t} += r{x}"),
        _ => format!("r{x} += r{y}\nr{t} = r{x}"),
    };
    writeln!(text, "{sum}").expect("text");
    // Another address while the first is in use.
    let second = (kind != 8 && random.chance(3)).then_some(regs[5]);
    if let Some(u) = second {
        writeln!(text, "r{u} = r{y}\nr{u} += r{x}\nr{} = *(u32 *)(r{u} + 8)", regs[6]).expect("text");
    }
    for _ in 0..1 + random.below(4) {
        let size = random.one_of(&["u8", "u16", "u32", "u64"]);
        let offset = random.offset();
        let v = if random.chance(3) { random.reg() } else { v };
        let line = match random.below(5) {
            0 => format!("*({size} *)(r{t} {offset}) = r{v}"),
            1 => format!("*({size} *)(r{t} {offset}) = 77"),
            2 => format!("r{v} += r{}", random.reg()),
            // Divisions clobber registers of their own.
            3 if random.chance(3) => format!("r{v} /= r{}", random.reg()),
            _ => format!("r{v} = *({size} *)(r{t} {offset})"),
        };
        writeln!(text, "{line}").expect("text");
        if v == t && !line.starts_with('*') {
            // The address is overwritten.
            return;
        }
    }
    if random.chance(2) {
        writeln!(text, "r{t} = *(u32 *)(r{t} + 4)").expect("text");
    }
}

/// Rotations, and sequences that only look like rotations.
fn rotate(random: &mut Random, text: &mut String) {
    let w = random.one_of(&['r', 'w']);
    let bits = if w == 'w' { 32 } else { 64 };
    let count = 1 + random.below(bits - 1);
    let rest = if random.chance(6) { random.below(bits) } else { bits - count };
    let (a, t, b) = (random.reg(), random.reg(), random.reg());
    let (one, other) = random.one_of(&[("<<=", ">>="), (">>=", "<<="), ("<<=", "<<=")]);
    let mov = if random.chance(6) { 'w' } else { w };
    let (x, y) = match random.below(4) {
        0 => {
            writeln!(text, "{mov}{t} = {mov}{a}\n{w}{t} {one} {count}\n{w}{a} {other} {rest}").expect("text");
            (t, a)
        }
        _ => {
            writeln!(text, "{w}{t} = {w}{a}\n{w}{t} {one} {count}").expect("text");
            writeln!(text, "{mov}{b} = {mov}{a}\n{w}{b} {other} {rest}").expect("text");
            (t, b)
        }
    };
    let (x, y) = if random.chance(2) { (x, y) } else { (y, x) };
    writeln!(text, "{w}{x} |= {w}{y}").expect("text");
}

/// Runs one instruction after the other. Returns `None` if an access leaves the buffer; a load from `r8` yields 0.
fn interpret(insns: &[Insn], memory: &mut [u8]) -> Option<u64> {
    let base = memory.as_ptr() as u64;
    let mut regs = [0u64; 11];
    regs[1] = base;
    let mut at = 0;
    loop {
        let insn = insns[at];
        at += 1;
        let value = |src: Operand, regs: &[u64; 11]| match src {
            Operand::Reg(reg) => regs[reg.index()],
            Operand::Imm(imm) => i64::from(imm) as u64,
        };
        let range = |reg: Reg, offset: i16, size: Size, regs: &[u64; 11]| {
            let start = regs[reg.index()].wrapping_add(i64::from(offset) as u64).wrapping_sub(base) as usize;
            start..start.wrapping_add(size.bytes() as usize)
        };
        let read = |bytes: &[u8]| {
            let mut number = [0; 8];
            number[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(number)
        };
        match insn {
            Insn::Alu { width, op, dst, src } => {
                regs[dst.index()] = model::alu(op, width, regs[dst.index()], value(src, &regs));
            }
            Insn::Neg { width, dst } => {
                regs[dst.index()] = model::alu(skep_isa::AluOp::Sub, width, 0, regs[dst.index()]);
            }
            Insn::MovSx { width, from, dst, src } => {
                let bits = 64 - from.bits();
                let extended = (regs[src.index()] << bits) as i64 >> bits;
                regs[dst.index()] =
                    if width == Width::W32 { extended as u32 as u64 } else { extended as u64 };
            }
            Insn::Endian { order, size, dst } => {
                let bits = 64 - size.bits();
                let low = regs[dst.index()] << bits >> bits;
                let swapped = low.swap_bytes() >> bits;
                regs[dst.index()] = if order == ByteOrder::ToLittle { low } else { swapped };
            }
            Insn::Load { size, signed, dst, base, offset } => {
                // The loop counter is not an address: such a load faults.
                let number = match base {
                    Reg::R8 => 0,
                    _ => read(memory.get(range(base, offset, size, &regs))?),
                };
                let bits = 64 - size.bits();
                let extended = ((number << bits) as i64 >> bits) as u64;
                regs[dst.index()] = if signed { extended } else { number };
            }
            Insn::Store { size, base, offset, src } => {
                let number = value(src, &regs).to_le_bytes();
                memory
                    .get_mut(range(base, offset, size, &regs))?
                    .copy_from_slice(&number[..size.bytes() as usize]);
            }
            Insn::Atomic { op, size: Size::B8, base, offset, src } => {
                let place = range(base, offset, Size::B8, &regs);
                let old = read(memory.get(place.clone())?);
                let with = regs[src.index()];
                let new = match op {
                    AtomicOp::Add { .. } => old.wrapping_add(with),
                    AtomicOp::Or { .. } => old | with,
                    AtomicOp::And { .. } => old & with,
                    AtomicOp::Xor { .. } => old ^ with,
                    AtomicOp::Xchg => with,
                    AtomicOp::CmpXchg if old == regs[0] => with,
                    AtomicOp::CmpXchg => old,
                };
                memory[place].copy_from_slice(&new.to_le_bytes());
                let to = if op == AtomicOp::CmpXchg { Reg::R0 } else { src };
                regs[to.index()] = old;
            }
            Insn::Jump { .. } => at = insn.jump_target(at - 1).expect("a target"),
            Insn::JumpIf { width, cond, dst, src, .. } => {
                if model::holds(cond, width, regs[dst.index()], value(src, &regs)) {
                    at = insn.jump_target(at - 1).expect("a target");
                }
            }
            Insn::Exit => return Some(regs[0]),
            other => unreachable!("{other}"),
        }
    }
}

#[test]
fn random_programs_equal_their_single_instructions() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..fewer_if_emulated(12_000) {
        let text = text(&mut random);
        let program = Program::new(&text);
        let original: Vec<u8> =
            (0..BYTES).map(|_| if random.chance(3) { 0 } else { random.below(256) as u8 }).collect();
        // All runs use one buffer, because its address may become data.
        let mut memory = original.clone();
        let expected = interpret(&program.insns, &mut memory).expect("inside of the buffer");
        let after = memory.clone();
        for compiled in program.variants().step_by(if round % 16 == 0 { 1 } else { 3 }) {
            memory.copy_from_slice(&original);
            // SAFETY: the interpreter has just run it inside of this buffer.
            let got = unsafe {
                compiled.entry().call(memory.as_mut_ptr() as u64, 0, std::ptr::null_mut::<RunEnv>())
            };
            assert_eq!(got, expected, "round {round}:\n{text}");
            assert!(memory == after, "memory differs in round {round}:\n{text}");
        }
    }
}

/// Some loads have invalid addresses, and all of them are probes.
#[test]
fn random_programs_with_faulting_loads_equal_their_single_instructions() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let rounds = fewer_if_emulated(1_500);
    let (mut loads, mut faulting, mut ran) = (0, 0, 0);
    for round in 0..rounds {
        let text = text(&mut random).replacen("r9 = r1\n", "r9 = r1\nr8 = 0\n", 1);
        let mut program = Program::new(&text).probing();
        for insn in &mut program.insns {
            if let Insn::Load { base, .. } = insn {
                loads += 1;
                if random.chance(5) {
                    (*base, faulting) = (Reg::R8, faulting + 1);
                }
            }
        }
        let original: Vec<u8> = (0..BYTES).map(|_| random.below(256) as u8).collect();
        let mut memory = original.clone();
        // A loaded address is then 0; its uses are left out.
        let Some(expected) = interpret(&program.insns, &mut memory) else { continue };
        ran += 1;
        let after = memory.clone();
        for compiled in program.variants().step_by(if round % 16 == 0 { 1 } else { 3 }) {
            memory.copy_from_slice(&original);
            // SAFETY: the interpreter has just run it inside of this buffer, and its other loads are probes, which
            // may go to any address.
            let got = unsafe {
                compiled.entry().call(memory.as_mut_ptr() as u64, 0, std::ptr::null_mut::<RunEnv>())
            };
            assert_eq!(got, expected, "round {round}:\n{text}");
            assert!(memory == after, "memory differs in round {round}:\n{text}");
        }
    }
    assert!(
        loads > 6 * rounds && faulting > rounds && 2 * ran > rounds,
        "{loads} loads, {faulting} lead nowhere; {ran} of {rounds} programs"
    );
}

#[test]
fn unread_arguments_of_inlined_look_ups_are_not_computed() {
    let text = "r6 = 5
        *(u32 *)(r10 - 4) = r6
        r2 = r10
        r2 += -4
        r1 = map[0] ll
        call 1
        exit";
    let array = InlineArray { base: 0x1000, stride: 8, cpu_stride: 0, max_entries: 10 };
    let link = MapLink {
        handle: 0x7fff_1234_5678,
        value_base: None,
        inline: Some(array),
        programs: None,
        arena: None,
    };
    let mut program =
        Program::new(text).call_fact(6, CallFact { map: Some(0), key: Some(5), in_bounds: false });
    program.linkage = Linkage { maps: vec![link], inline_linux_helpers: true, ..Linkage::default() };
    assert_eq!(program.run(0, 0), 0x1028);
    let with = program.compile().code_bytes();
    let without = Program::new("r6 = 5\n*(u32 *)(r10 - 4) = r6\nr0 = 0x1028\nexit").compile().code_bytes();
    assert_eq!(with, without);
}
