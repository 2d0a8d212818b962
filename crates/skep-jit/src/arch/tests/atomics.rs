//! Atomic operations: their results, and atomicity between threads.

use std::sync::atomic::{AtomicU64, Ordering};

use skep_isa::{AtomicOp, Insn, Operand, Reg, Size, Width};

use super::Program;

/// The value in memory after the operation.
fn combined(op: AtomicOp, old: u64, src: u64, r0: u64) -> u64 {
    match op {
        AtomicOp::Add { .. } => old.wrapping_add(src),
        AtomicOp::Or { .. } => old | src,
        AtomicOp::And { .. } => old & src,
        AtomicOp::Xor { .. } => old ^ src,
        AtomicOp::Xchg => src,
        AtomicOp::CmpXchg if old == r0 => src,
        AtomicOp::CmpXchg => old,
    }
}

fn truncated(size: Size, value: u64) -> u64 {
    if size == Size::B4 { value & 0xffff_ffff } else { value }
}

/// Puts the address in `base`, `r2` in `src` and `r0`'s number in `r0` if the registers differ, runs the operation,
/// and stores `r0` and `src` after the number.
fn program(op: AtomicOp, size: Size, base: Reg, src: Reg) -> Program {
    let mov =
        |dst, src| Insn::Alu { width: Width::W64, op: skep_isa::AluOp::Mov, dst, src: Operand::Reg(src) };
    let store = |offset, src| Insn::Store { size: Size::B8, base: Reg::R10, offset, src: Operand::Reg(src) };
    let load = |dst, offset| Insn::Load { size: Size::B8, signed: false, dst, base: Reg::R10, offset };
    let mut insns = vec![store(-8, Reg::R1), store(-16, Reg::R2)];
    insns.push(Insn::Load { size: Size::B8, signed: false, dst: Reg::R0, base: Reg::R1, offset: 8 });
    if src != base {
        insns.push(load(src, -16));
    }
    insns.push(mov(base, Reg::R1));
    if base == Reg::R1 {
        insns.pop();
    }
    if src == Reg::R1 && base != Reg::R1 {
        // The operation overwrote the address; reload it from the stack.
        insns.pop();
        insns.push(load(base, -8));
    }
    insns.push(Insn::Atomic { op, size, base, offset: -8, src });
    insns.push(store(-24, Reg::R0));
    insns.push(store(-32, src));
    insns.push(load(Reg::R1, -8));
    for (from, to) in [(-24, 16), (-32, 24)] {
        insns.push(load(Reg::R2, from));
        insns.push(Insn::Store { size: Size::B8, base: Reg::R1, offset: to, src: Operand::Reg(Reg::R2) });
    }
    insns.push(Insn::Exit);
    Program::of(insns)
}

#[test]
fn every_operation_on_every_register_pair_is_right() {
    let numbers = [0, 1, 0x1_0000_0001, 0xffff_ffff, 0x8000_0000, u64::MAX, 0x1234_5678_9abc_def0];
    for op in AtomicOp::ALL {
        for size in [Size::B4, Size::B8] {
            for base in Reg::ALL.into_iter().filter(|&reg| reg != Reg::R10) {
                for src in Reg::ALL.into_iter().filter(|&reg| reg != Reg::R10 && reg != base) {
                    if op == AtomicOp::CmpXchg && (base == Reg::R0 || src == Reg::R0) {
                        continue; // one register cannot hold two numbers; see below
                    }
                    for compiled in program(op, size, base, src).variants() {
                        for old in numbers {
                            check(&compiled, op, size, (base, src), old, 0xff00_ff00_ff00_ff00, old);
                            check(&compiled, op, size, (base, src), old, 0x0f0f_0f0f_f0f0_f0f0, 77);
                        }
                    }
                }
            }
        }
    }
}

/// `[mid, number, r0 before, r0 after, src after]`; the program receives the address of the third.
fn check(
    compiled: &crate::Compiled,
    op: AtomicOp,
    size: Size,
    (base, src): (Reg, Reg),
    old: u64,
    operand: u64,
    r0: u64,
) {
    let mut memory = [old, 0, r0, 0, 0];
    // The number is before the address, its `r0` after it: [number, address -> unused, r0, r0', src']
    let address = &raw mut memory[1] as u64;
    // SAFETY: the program accesses this memory.
    unsafe { compiled.entry().call(address, operand, std::ptr::null_mut()) };
    let context = format!("{op:?} {size:?} {base} {src}: {old:#x} {operand:#x} {r0:#x}");
    let r0_before = match (base, src) {
        (Reg::R0, _) => address,
        (_, Reg::R0) => operand,
        _ => r0,
    };
    let new = combined(op, truncated(size, old), truncated(size, operand), truncated(size, r0_before));
    let upper = if size == Size::B4 { old >> 32 << 32 } else { 0 };
    assert_eq!(memory[0], upper | truncated(size, new), "{context}");
    let fetched = truncated(size, old);
    let r0_after = match op {
        AtomicOp::CmpXchg => fetched,
        _ if op.fetches() && src == Reg::R0 => fetched,
        _ => r0_before,
    };
    assert_eq!(memory[3], r0_after, "r0 of {context}");
    let src_after = if op.fetches() && op != AtomicOp::CmpXchg { fetched } else { operand };
    assert_eq!(memory[4], src_after, "src of {context}");
}

#[test]
fn an_operand_may_be_its_own_address() {
    let mut cell = 5u64;
    let address = &raw mut cell as u64;
    for (text, expected) in [
        ("r1 = atomic_fetch_or((u64 *)(r1 + 0), r1)\nr0 = r1\nexit", 5 | address),
        ("r0 = r1\nr0 = atomic_fetch_xor((u64 *)(r0 + 0), r0)\nexit", 5 ^ address),
    ] {
        for compiled in Program::new(text).variants() {
            cell = 5;
            // SAFETY: the program accesses the cell.
            let old = unsafe { compiled.entry().call(address, 0, std::ptr::null_mut()) };
            assert_eq!((old, cell), (5, expected), "{text}");
        }
    }
}

#[test]
fn a_32_bit_compare_exchange_always_clears_r0_s_upper_half() {
    for (r0, stored) in [(5u64, 9), (6, 5)] {
        let text = "r0 = r2\nr3 = 9\nw0 = cmpxchg32_32(r1 + 0, w0, w3)\nexit";
        for compiled in Program::new(text).variants() {
            let mut cell = 5u64;
            let r0 = 0xffff_ffff_0000_0000 | r0;
            // SAFETY: the program accesses the cell.
            let old = unsafe { compiled.entry().call(&raw mut cell as u64, r0, std::ptr::null_mut()) };
            assert_eq!((old, cell), (5, stored));
        }
    }
}

#[test]
fn no_atomic_operation_is_lost_between_threads() {
    const ROUNDS: u64 = 20_000;
    // Each thread flips its own bit by a compare-exchange loop and counts by fetching additions: each count is seen
    // once.
    let text = "
        next:
            r3 = 1
            r3 = atomic_fetch_add((u64 *)(r1 + 0), r3)
            r4 = r2
            r4 = atomic_fetch_xor((u64 *)(r1 + 8), r4)
            r5 = 1
            lock *(u64 *)(r1 + 16) += r5
            r3 += 1
            if r3 < 40000 goto next
            r0 = 0
            exit";
    for compiled in Program::new(text).variants() {
        let cells = [const { AtomicU64::new(0) }; 3];
        std::thread::scope(|scope| {
            for bit in [1u64 << 3, 1 << 40] {
                let (cells, compiled) = (&cells, &compiled);
                // SAFETY: the program accesses the cells atomically.
                scope.spawn(move || unsafe {
                    compiled.entry().call(cells.as_ptr() as u64, bit, std::ptr::null_mut());
                });
            }
        });
        let [count, bits, plain] = cells.map(|cell| cell.load(Ordering::Relaxed));
        assert_eq!(count, plain);
        assert!(count >= 2 * ROUNDS);
        // Every round flipped one of two bits, so together they were flipped as often as was counted.
        assert_eq!(u64::from(bits.count_ones()) % 2, count % 2);
    }
}
