//! RFC 9669 section 5: loads, stores, atomics.

use super::*;
use skep_isa::{AtomicOp, Size};
use std::thread;

/// Runs a program over a buffer whose address is in `r1`; `r2` is `operand`.
fn over(buffer: &mut [u64; 2], operand: u64, body: &[Insn]) -> u64 {
    let mut program = body.to_vec();
    program.push(Insn::Exit);
    result(&program, buffer.as_mut_ptr().expose_provenance() as u64, operand)
}

#[test]
fn loads_extend_to_64_bits() {
    const TABLE: &[(Size, bool, i16, u64)] = &[
        (Size::B1, false, 0, 0x88),
        (Size::B2, false, 0, 0x9988),
        (Size::B4, false, 0, 0xbbaa_9988),
        (Size::B8, false, 0, 0xffee_ddcc_bbaa_9988),
        (Size::B1, true, 0, 0xffff_ffff_ffff_ff88),
        (Size::B2, true, 0, 0xffff_ffff_ffff_9988),
        (Size::B4, true, 0, 0xffff_ffff_bbaa_9988),
        (Size::B1, true, 8, 0x11),
        (Size::B2, true, 8, 0x2211),
        (Size::B4, true, 8, 0x4433_2211),
        // Misaligned.
        (Size::B2, false, 1, 0xaa99),
        (Size::B4, false, 3, 0xeedd_ccbb),
        (Size::B8, false, 4, 0x4433_2211_ffee_ddcc),
        (Size::B4, true, 3, 0xffff_ffff_eedd_ccbb),
    ];
    for &(size, signed, offset, expected) in TABLE {
        let mut buffer = [0xffee_ddcc_bbaa_9988, 0x8877_6655_4433_2211];
        let load = Insn::Load { size, signed, dst: R::R0, base: R::R1, offset };
        assert_eq!(over(&mut buffer, 0, &[load]), expected, "{size:?} {signed} {offset}");
        if !signed {
            let load = Insn::LoadAcquire { size, dst: R::R0, base: R::R1, offset };
            assert_eq!(over(&mut buffer, 0, &[load]), expected, "acquire {size:?} {offset}");
        }
    }
}

#[test]
fn a_load_may_replace_its_base() {
    let mut buffer = [7, 0];
    let load = Insn::Load { size: Size::B8, signed: false, dst: R::R1, base: R::R1, offset: 0 };
    assert_eq!(over(&mut buffer, 0, &[load, mov(R::R0, R::R1)]), 7);
}

#[test]
fn stores_write_their_size_and_nothing_else() {
    const TABLE: &[(Size, i16, [u64; 2])] = &[
        (Size::B1, 0, [0xffff_ffff_ffff_ff10, u64::MAX]),
        (Size::B2, 0, [0xffff_ffff_ffff_3210, u64::MAX]),
        (Size::B4, 0, [0xffff_ffff_7654_3210, u64::MAX]),
        (Size::B8, 0, [0xfedc_ba98_7654_3210, u64::MAX]),
        (Size::B1, 15, [u64::MAX, 0x10ff_ffff_ffff_ffff]),
        (Size::B2, 7, [0x10ff_ffff_ffff_ffff, 0xffff_ffff_ffff_ff32]),
        (Size::B4, 6, [0x3210_ffff_ffff_ffff, 0xffff_ffff_ffff_7654]),
        (Size::B8, 4, [0x7654_3210_ffff_ffff, 0xffff_ffff_fedc_ba98]),
    ];
    for &(size, offset, expected) in TABLE {
        let mut buffer = [u64::MAX; 2];
        let store = Insn::Store { size, base: R::R1, offset, src: Operand::Reg(R::R2) };
        over(&mut buffer, 0xfedc_ba98_7654_3210, &[store]);
        assert_eq!(buffer, expected, "{size:?} {offset}");
        let mut buffer = [u64::MAX; 2];
        let store = Insn::StoreRelease { size, base: R::R1, offset, src: R::R2 };
        over(&mut buffer, 0xfedc_ba98_7654_3210, &[store]);
        assert_eq!(buffer, expected, "release {size:?} {offset}");
    }
}

#[test]
fn stored_immediates_are_sign_extended() {
    for (size, expected) in
        [(Size::B1, 0xfe), (Size::B2, 0xfffe), (Size::B4, 0xffff_fffe), (Size::B8, u64::MAX - 1)]
    {
        let mut buffer = [0; 2];
        over(&mut buffer, 0, &[Insn::Store { size, base: R::R1, offset: 0, src: Operand::Imm(-2) }]);
        assert_eq!(buffer, [expected, 0], "{size:?}");
    }
}

const OLD: u64 = 0x8000_0000_9000_0001;
const OPERAND: u64 = 0x1111_1111_8000_0003;

/// Operation, size, memory afterwards. Memory was `OLD`, `src` is `OPERAND`, and `r0` is `OLD` so that an exchange
/// succeeds.
const ATOMICS: &[(AtomicOp, Size, u64)] = &[
    (AtomicOp::Add { fetch: false }, Size::B8, 0x9111_1112_1000_0004),
    (AtomicOp::Add { fetch: true }, Size::B8, 0x9111_1112_1000_0004),
    (AtomicOp::Add { fetch: false }, Size::B4, 0x8000_0000_1000_0004),
    (AtomicOp::Add { fetch: true }, Size::B4, 0x8000_0000_1000_0004),
    (AtomicOp::Or { fetch: false }, Size::B8, 0x9111_1111_9000_0003),
    (AtomicOp::Or { fetch: true }, Size::B8, 0x9111_1111_9000_0003),
    (AtomicOp::Or { fetch: false }, Size::B4, 0x8000_0000_9000_0003),
    (AtomicOp::Or { fetch: true }, Size::B4, 0x8000_0000_9000_0003),
    (AtomicOp::And { fetch: false }, Size::B8, 0x0000_0000_8000_0001),
    (AtomicOp::And { fetch: true }, Size::B8, 0x0000_0000_8000_0001),
    (AtomicOp::And { fetch: false }, Size::B4, 0x8000_0000_8000_0001),
    (AtomicOp::And { fetch: true }, Size::B4, 0x8000_0000_8000_0001),
    (AtomicOp::Xor { fetch: false }, Size::B8, 0x9111_1111_1000_0002),
    (AtomicOp::Xor { fetch: true }, Size::B8, 0x9111_1111_1000_0002),
    (AtomicOp::Xor { fetch: false }, Size::B4, 0x8000_0000_1000_0002),
    (AtomicOp::Xor { fetch: true }, Size::B4, 0x8000_0000_1000_0002),
    (AtomicOp::Xchg, Size::B8, OPERAND),
    (AtomicOp::Xchg, Size::B4, 0x8000_0000_8000_0003),
    (AtomicOp::CmpXchg, Size::B8, OPERAND),
    (AtomicOp::CmpXchg, Size::B4, 0x8000_0000_8000_0003),
];

#[test]
fn every_atomic_operation_is_in_the_table_in_both_sizes() {
    for op in AtomicOp::ALL {
        for size in [Size::B4, Size::B8] {
            assert!(ATOMICS.iter().any(|row| row.0 == op && row.1 == size), "{op:?} {size:?}");
        }
    }
}

#[test]
fn atomics_modify_memory_and_fetch_what_was_there() {
    for &(op, size, expected) in ATOMICS {
        for misaligned in [false, true] {
            let mut buffer = [0u64; 2];
            let offset = if misaligned { 3 } else { 0 };
            write_at(&mut buffer, offset, OLD);
            let atomic = Insn::Atomic { op, size, base: R::R1, offset: offset as i16, src: R::R2 };
            // r3 keeps the compared value: the content of memory, with junk above a 4-byte operand.
            let [l0, l1] = load64(R::R0, OLD);
            let old = if size == Size::B4 { OLD & 0xffff_ffff } else { OLD };

            let src = over(&mut buffer, OPERAND, &[l0, l1, atomic, mov(R::R0, R::R2)]);
            assert_eq!(read_at(&buffer, offset), expected, "{op:?} {size:?} {misaligned}");
            let fetches = matches!(
                op,
                AtomicOp::Add { fetch: true }
                    | AtomicOp::Or { fetch: true }
                    | AtomicOp::And { fetch: true }
                    | AtomicOp::Xor { fetch: true }
                    | AtomicOp::Xchg
            );
            assert_eq!(src, if fetches { old } else { OPERAND }, "src of {op:?} {size:?}");

            write_at(&mut buffer, offset, OLD);
            let r0 = over(&mut buffer, OPERAND, &[l0, l1, atomic]);
            assert_eq!(r0, if op == AtomicOp::CmpXchg { old } else { OLD }, "r0 of {op:?} {size:?}");
        }
    }
}

#[test]
fn a_compare_exchange_that_finds_another_value_leaves_it_and_returns_it() {
    for (size, found) in [(Size::B8, OLD), (Size::B4, OLD & 0xffff_ffff)] {
        for offset in [0, 2] {
            let mut buffer = [0; 2];
            write_at(&mut buffer, offset, OLD);
            let [l0, l1] = load64(R::R0, OLD ^ 0x10);
            let exchange =
                Insn::Atomic { op: AtomicOp::CmpXchg, size, base: R::R1, offset: offset as i16, src: R::R2 };
            assert_eq!(over(&mut buffer, OPERAND, &[l0, l1, exchange]), found);
            assert_eq!(read_at(&buffer, offset), OLD);
        }
    }
}

#[test]
fn a_4_byte_compare_exchange_compares_4_bytes() {
    let mut buffer = [OLD, 0];
    let [l0, l1] = load64(R::R0, 0x1234_5678_0000_0000 | (OLD & 0xffff_ffff));
    let exchange = Insn::Atomic { op: AtomicOp::CmpXchg, size: Size::B4, base: R::R1, offset: 0, src: R::R2 };
    assert_eq!(over(&mut buffer, OPERAND, &[l0, l1, exchange]), OLD & 0xffff_ffff);
    assert_eq!(buffer[0], 0x8000_0000_8000_0003);
}

#[test]
fn an_atomic_whose_operand_is_its_base_uses_the_address_first() {
    let mut buffer = [5, 0];
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    let add = Insn::Atomic {
        op: AtomicOp::Add { fetch: true },
        size: Size::B8,
        base: R::R1,
        offset: 0,
        src: R::R1,
    };
    assert_eq!(over(&mut buffer, 0, &[add, mov(R::R0, R::R1)]), 5);
    assert_eq!(buffer[0], address + 5);
}

#[test]
fn additions_of_many_threads_are_all_counted() {
    const ITERATIONS: u64 = 10_000;
    let counter = std::sync::atomic::AtomicU64::new(0);
    let address = counter.as_ptr().expose_provenance() as u64;
    let add = Insn::Atomic {
        op: AtomicOp::Add { fetch: false },
        size: Size::B8,
        base: R::R1,
        offset: 0,
        src: R::R3,
    };
    let program = [
        mov_imm(R::R3, 1),
        add,
        alu(Width::W64, AluOp::Sub, R::R2, Operand::Imm(1)),
        Insn::JumpIf {
            width: Width::W64,
            cond: skep_isa::Cond::Ne,
            dst: R::R2,
            src: Operand::Imm(0),
            offset: -3,
        },
        mov_imm(R::R0, 0),
        Insn::Exit,
    ];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| result(&program, address, ITERATIONS));
        }
    });
    assert_eq!(counter.into_inner(), 4 * ITERATIONS);
}

fn write_at(buffer: &mut [u64; 2], offset: usize, value: u64) {
    let mut bytes = [0; 16];
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    *buffer = [
        u64::from_le_bytes(bytes[..8].try_into().unwrap()),
        u64::from_le_bytes(bytes[8..].try_into().unwrap()),
    ];
}

fn read_at(buffer: &[u64; 2], offset: usize) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&buffer[0].to_le_bytes());
    bytes[8..].copy_from_slice(&buffer[1].to_le_bytes());
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap())
}
