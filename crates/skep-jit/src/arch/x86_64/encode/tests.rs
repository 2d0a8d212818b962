//! Every encoding, over all registers and all kinds of immediates and displacements, is decoded by an independent
//! disassembler to the intended instruction.

mod foreign;
mod llvm;
mod vector;

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use skep_isa::{Size, Width};

use super::*;
use foreign::{Op, decode, expect, expect_locked, full, m, named, operands, r};

const WIDTHS: [Width; 2] = [Width::W32, Width::W64];
const IMMEDIATES: [i32; 17] =
    [0, 1, -1, 2, 42, 126, 127, 128, 129, -127, -128, -129, 255, 256, 0x1234_5678, i32::MAX, i32::MIN];
const GROUP1: [(Group1, Mnemonic); 6] = [
    (Group1::Add, Mnemonic::Add),
    (Group1::Or, Mnemonic::Or),
    (Group1::And, Mnemonic::And),
    (Group1::Sub, Mnemonic::Sub),
    (Group1::Xor, Mnemonic::Xor),
    (Group1::Cmp, Mnemonic::Cmp),
];
const SHIFTS: [(Shift, Mnemonic); 4] = [
    (Shift::Rol, Mnemonic::Rol),
    (Shift::Shl, Mnemonic::Shl),
    (Shift::Shr, Mnemonic::Shr),
    (Shift::Sar, Mnemonic::Sar),
];

fn all() -> impl Iterator<Item = Gpr> + Clone {
    [
        Gpr::RAX,
        Gpr::RCX,
        Gpr::RDX,
        Gpr::RBX,
        Gpr::RSP,
        Gpr::RBP,
        Gpr::RSI,
        Gpr::RDI,
        Gpr::R8,
        Gpr::R9,
        Gpr::R10,
        Gpr::R11,
        Gpr::R12,
        Gpr::R13,
        Gpr::R14,
        Gpr::R15,
    ]
    .into_iter()
}

fn pairs() -> impl Iterator<Item = (Gpr, Gpr)> {
    all().flat_map(|a| all().map(move |b| (a, b)))
}

/// Memory operands with every base, index, scale and kind of displacement.
fn places() -> impl Iterator<Item = Mem> {
    let plain = all().flat_map(|base| IMMEDIATES.map(move |disp| Mem::at(base, disp)));
    let scales = [Scale::X1, Scale::X2, Scale::X4, Scale::X8];
    let indexed = pairs()
        .filter(|&(_, index)| index != Gpr::RSP)
        .flat_map(move |(base, index)| scales.map(move |scale| Mem::indexed(base, index, scale, 0)));
    let both = IMMEDIATES.into_iter().flat_map(|disp| {
        [
            (Gpr::RAX, Gpr::RCX),
            (Gpr::RBP, Gpr::R12),
            (Gpr::R13, Gpr::RBP),
            (Gpr::R12, Gpr::R15),
            (Gpr::RSP, Gpr::R8),
        ]
        .map(|(base, index)| Mem::indexed(base, index, Scale::X4, disp))
    });
    plain.chain(indexed).chain(both)
}

#[test]
fn moves_between_registers() {
    for (a, b) in pairs() {
        for width in WIDTHS {
            let size = full(width);
            expect(mov_rr(width, a, b), Mnemonic::Mov, &[r(size, a), r(size, b)]);
        }
        expect(movzx_rr(Size::B1, a, b), Mnemonic::Movzx, &[r(Size::B4, a), r(Size::B1, b)]);
        expect(movzx_rr(Size::B2, a, b), Mnemonic::Movzx, &[r(Size::B4, a), r(Size::B2, b)]);
        expect(movzx_rr(Size::B4, a, b), Mnemonic::Mov, &[r(Size::B4, a), r(Size::B4, b)]);
        expect(movzx_rr(Size::B8, a, b), Mnemonic::Mov, &[r(Size::B8, a), r(Size::B8, b)]);
        for width in WIDTHS {
            let wide = full(width);
            expect(movsx_rr(width, Size::B1, a, b), Mnemonic::Movsx, &[r(wide, a), r(Size::B1, b)]);
            expect(movsx_rr(width, Size::B2, a, b), Mnemonic::Movsx, &[r(wide, a), r(Size::B2, b)]);
        }
        let wide = movsx_rr(Width::W64, Size::B4, a, b);
        expect(wide, Mnemonic::Movsxd, &[r(Size::B8, a), r(Size::B4, b)]);
    }
}

#[test]
fn moves_of_constants_are_the_shortest() {
    for reg in all() {
        for (value, len) in [
            (0, 5),
            (1, 5),
            (0x7fff_ffff, 5),
            (0x8000_0000, 5),
            (0xffff_ffff, 5),
            (0x1_0000_0000, 10),
            (u64::MAX, 7),
            (0xffff_ffff_8000_0000, 7),
            (0xffff_ffff_7fff_ffff, 10),
            (0x1234_5678_9abc_def0, 10),
            (1 << 63, 10),
        ] {
            let bytes = mov_ri(reg, value);
            let insn = decode(bytes);
            assert_eq!(insn.mnemonic(), Mnemonic::Mov);
            assert_eq!(insn.op0_register().full_register(), named(Size::B8, reg));
            let wide = insn.op0_register().is_gpr64();
            let moved = insn.immediate(1);
            assert_eq!(if wide { moved } else { u64::from(moved as u32) }, value, "{insn}");
            assert_eq!(bytes.len(), len + usize::from(len == 5 && reg.high() == 1), "{insn}");
        }
        expect(zero(reg), Mnemonic::Xor, &[r(Size::B4, reg), r(Size::B4, reg)]);
    }
}

#[test]
fn arithmetic_between_registers() {
    for (a, b) in pairs() {
        for width in WIDTHS {
            let size = full(width);
            for (op, mnemonic) in GROUP1 {
                expect(alu_rr(op, width, a, b), mnemonic, &[r(size, a), r(size, b)]);
            }
            expect(test_rr(width, a, b), Mnemonic::Test, &[r(size, a), r(size, b)]);
            expect(imul_rr(width, a, b), Mnemonic::Imul, &[r(size, a), r(size, b)]);
        }
    }
}

#[test]
fn arithmetic_with_constants() {
    for a in all() {
        for imm in IMMEDIATES {
            for width in WIDTHS {
                let size = full(width);
                for (op, mnemonic) in GROUP1 {
                    let bytes = alu_ri(op, width, a, imm);
                    expect(bytes, mnemonic, &[r(size, a), Op::Imm(imm.into())]);
                    let prefix = usize::from(width == Width::W64 || a.high() == 1);
                    let short = i8::try_from(imm).is_ok();
                    let len = if short {
                        3
                    } else if a == Gpr::RAX {
                        5
                    } else {
                        6
                    };
                    assert_eq!(bytes.len(), prefix + len);
                }
                for b in all() {
                    let bytes = imul_rri(width, a, b, imm);
                    expect(bytes, Mnemonic::Imul, &[r(size, a), r(size, b), Op::Imm(imm.into())]);
                }
            }
        }
    }
}

#[test]
fn tests_with_constants_test_the_intended_bits() {
    for a in all() {
        for imm in IMMEDIATES {
            for width in WIDTHS {
                let insn = decode(test_ri(width, a, imm));
                assert_eq!(insn.mnemonic(), Mnemonic::Test);
                assert_eq!(insn.op0_register().full_register(), named(Size::B8, a));
                // The mask as the instruction applies it, and as intended.
                let applied = match insn.op0_register().size() {
                    1 => u64::from(insn.immediate8()),
                    4 => u64::from(insn.immediate32()),
                    _ => insn.immediate(1),
                };
                let meant = i64::from(imm) as u64;
                let meant = if width == Width::W32 { meant & 0xffff_ffff } else { meant };
                assert_eq!(applied, meant, "{insn}");
            }
        }
    }
}

#[test]
fn arithmetic_with_one_operand() {
    for (op, mnemonic) in [
        (Unary::Not, Mnemonic::Not),
        (Unary::Neg, Mnemonic::Neg),
        (Unary::Div, Mnemonic::Div),
        (Unary::Idiv, Mnemonic::Idiv),
        (Unary::Inc, Mnemonic::Inc),
        (Unary::Dec, Mnemonic::Dec),
    ] {
        for a in all() {
            for width in WIDTHS {
                expect(unary(op, width, a), mnemonic, &[r(full(width), a)]);
            }
        }
    }
    for a in all() {
        for width in WIDTHS {
            expect(bswap(width, a), Mnemonic::Bswap, &[r(full(width), a)]);
        }
        expect(swap16(a), Mnemonic::Rol, &[r(Size::B2, a), Op::Imm(8)]);
    }
    expect(sign_to_rdx(Width::W32), Mnemonic::Cdq, &[]);
    expect(sign_to_rdx(Width::W64), Mnemonic::Cqo, &[]);
}

#[test]
fn shifts_and_rotates() {
    for a in all() {
        for width in WIDTHS {
            let size = full(width);
            for (op, mnemonic) in SHIFTS {
                for count in 1..width.bits() as u8 {
                    expect(shift_ri(op, width, a, count), mnemonic, &[r(size, a), Op::Imm(count.into())]);
                }
                let cl = Op::Reg(Register::CL);
                expect(shift_cl(op, width, a), mnemonic, &[r(size, a), cl]);
            }
        }
    }
}

#[test]
fn three_operand_shifts_rotates_and_multiplications() {
    for (a, b) in pairs() {
        for width in WIDTHS {
            let size = full(width);
            for c in all() {
                for (op, mnemonic) in
                    [(Shift::Shl, Mnemonic::Shlx), (Shift::Shr, Mnemonic::Shrx), (Shift::Sar, Mnemonic::Sarx)]
                {
                    let bytes = shift_rrr(op, width, a, b, c);
                    expect(bytes, mnemonic, &[r(size, a), r(size, b), r(size, c)]);
                }
                expect(mulx(width, a, b, c), Mnemonic::Mulx, &[r(size, a), r(size, b), r(size, c)]);
            }
            for count in [1, 7, 31] {
                let bytes = rorx(width, a, b, count);
                expect(bytes, Mnemonic::Rorx, &[r(size, a), r(size, b), Op::Imm(count.into())]);
            }
        }
    }
}

#[test]
fn addresses() {
    for mem in places() {
        for a in all() {
            for width in WIDTHS {
                let insn = decode(lea(width, a, mem));
                let Op::Mem(base, index, disp, _) = m(Size::B8, mem) else { unreachable!() };
                assert_eq!(insn.mnemonic(), Mnemonic::Lea);
                assert_eq!(insn.op0_register(), named(full(width), a));
                assert_eq!((insn.memory_base(), insn.memory_displacement64() as i64), (base, disp), "{insn}");
                let got = (insn.memory_index() != Register::None)
                    .then(|| (insn.memory_index(), insn.memory_index_scale()));
                assert_eq!(got, index, "{insn}");
            }
        }
    }
    for a in all() {
        let insn = decode(lea_rip(a));
        assert_eq!((insn.op0_register(), insn.memory_base()), (named(Size::B8, a), Register::RIP));
        assert_eq!(insn.memory_displacement64(), 0x1000 + insn.len() as u64);
    }
}

#[test]
fn loads() {
    for mem in places() {
        for a in all() {
            use Size::{B1, B2, B4, B8};
            expect(load(B1, false, a, mem), Mnemonic::Movzx, &[r(B4, a), m(B1, mem)]);
            expect(load(B2, false, a, mem), Mnemonic::Movzx, &[r(B4, a), m(B2, mem)]);
            expect(load(B4, false, a, mem), Mnemonic::Mov, &[r(B4, a), m(B4, mem)]);
            expect(load(B8, false, a, mem), Mnemonic::Mov, &[r(B8, a), m(B8, mem)]);
            expect(load(B1, true, a, mem), Mnemonic::Movsx, &[r(B8, a), m(B1, mem)]);
            expect(load(B2, true, a, mem), Mnemonic::Movsx, &[r(B8, a), m(B2, mem)]);
            expect(load(B4, true, a, mem), Mnemonic::Movsxd, &[r(B8, a), m(B4, mem)]);
        }
    }
}

#[test]
fn arithmetic_with_memory() {
    for mem in places() {
        for a in all() {
            for width in WIDTHS {
                let size = full(width);
                for (op, mnemonic) in GROUP1 {
                    expect(alu_rm(op, width, a, mem), mnemonic, &[r(size, a), m(size, mem)]);
                }
                expect(imul_rm(width, a, mem), Mnemonic::Imul, &[r(size, a), m(size, mem)]);
            }
        }
    }
}

#[test]
fn displacements_take_the_shortest_form() {
    for base in all() {
        let sib = usize::from(matches!(base, Gpr::RSP | Gpr::R12));
        let len = |disp| load(Size::B8, false, Gpr::RAX, Mem::at(base, disp)).len() - 3 - sib;
        assert_eq!(len(0), usize::from(matches!(base, Gpr::RBP | Gpr::R13)));
        assert_eq!([len(1), len(-1), len(127), len(-128)], [1; 4]);
        assert_eq!([len(128), len(-129), len(32767)], [4; 3]);
    }
}

#[test]
fn comparisons_of_bytes_in_memory() {
    for mem in places() {
        for imm in [0, 1, 0x7f, 0x80, 0xff] {
            let insn = decode(cmp_byte(mem, imm));
            assert_eq!(insn.mnemonic(), Mnemonic::Cmp);
            assert_eq!(operands(&insn)[0], m(Size::B1, mem));
            assert_eq!(insn.immediate(1) as u8, imm, "{insn}");
        }
    }
}

#[test]
fn operations_on_memory_with_immediates() {
    for mem in places() {
        for width in WIDTHS {
            for (op, mnemonic) in GROUP1 {
                for imm in IMMEDIATES {
                    let insn = decode(alu_mi(op, width, mem, imm));
                    assert_eq!(insn.mnemonic(), mnemonic);
                    assert_eq!(operands(&insn)[0], m(full(width), mem));
                    assert_eq!(insn.immediate(1) as i32, imm, "{insn}");
                }
            }
        }
    }
}

#[test]
fn stores() {
    for mem in places() {
        for size in Size::ALL {
            for a in all() {
                expect(store_r(size, mem, a), Mnemonic::Mov, &[m(size, mem), r(size, a)]);
            }
            for imm in IMMEDIATES {
                let insn = decode(store_i(size, mem, imm));
                assert_eq!(insn.mnemonic(), Mnemonic::Mov);
                assert_eq!(operands(&insn)[0], m(size, mem));
                let bits = 64 - size.bits();
                assert_eq!(insn.immediate(1) << bits, (i64::from(imm) as u64) << bits, "{insn}");
            }
        }
    }
}

#[test]
fn atomic_instructions() {
    for mem in places() {
        for a in all() {
            for width in WIDTHS {
                let size = full(width);
                let expected = [m(size, mem), r(size, a)];
                for (op, mnemonic) in GROUP1 {
                    if op != Group1::Cmp {
                        expect_locked(lock_alu(op, width, mem, a), mnemonic, &expected);
                    }
                }
                expect_locked(xadd(width, mem, a), Mnemonic::Xadd, &expected);
                expect_locked(cmpxchg(width, mem, a), Mnemonic::Cmpxchg, &expected);
                // Locked without a prefix.
                expect(xchg(width, mem, a), Mnemonic::Xchg, &expected);
            }
        }
    }
}

#[test]
fn pushes_pops_and_calls() {
    for a in all() {
        expect(push(a), Mnemonic::Push, &[r(Size::B8, a)]);
        expect(pop(a), Mnemonic::Pop, &[r(Size::B8, a)]);
        expect(call_r(a), Mnemonic::Call, &[r(Size::B8, a)]);
        expect(jmp_r(a), Mnemonic::Jmp, &[r(Size::B8, a)]);
    }
    expect(leave(), Mnemonic::Leave, &[]);
    expect(ret(), Mnemonic::Ret, &[]);
    assert_eq!(decode(trap()).mnemonic(), Mnemonic::Int3);
    let insn = decode(call_rel());
    assert_eq!((insn.code(), insn.near_branch_target()), (Code::Call_rel32_64, 0x1005));
}

#[test]
fn jumps() {
    let conditions = [
        (Cc::Below, Mnemonic::Jb),
        (Cc::AboveOrEqual, Mnemonic::Jae),
        (Cc::Equal, Mnemonic::Je),
        (Cc::NotEqual, Mnemonic::Jne),
        (Cc::BelowOrEqual, Mnemonic::Jbe),
        (Cc::Above, Mnemonic::Ja),
        (Cc::Negative, Mnemonic::Js),
        (Cc::NotNegative, Mnemonic::Jns),
        (Cc::Less, Mnemonic::Jl),
        (Cc::GreaterOrEqual, Mnemonic::Jge),
        (Cc::LessOrEqual, Mnemonic::Jle),
        (Cc::Greater, Mnemonic::Jg),
    ];
    let leads = |bytes: Bytes, mnemonic, disp: i64| {
        let insn = decode(bytes);
        assert_eq!(insn.mnemonic(), mnemonic);
        assert_eq!(insn.near_branch_target() as i64, 0x1000 + bytes.len() as i64 + disp, "{insn}");
    };
    for disp in IMMEDIATES {
        leads(jmp32(disp), Mnemonic::Jmp, disp.into());
        leads(jmp8(disp as i8), Mnemonic::Jmp, (disp as i8).into());
        for (cc, mnemonic) in conditions {
            leads(jcc32(cc.number(), disp), mnemonic, disp.into());
            leads(jcc8(cc.number(), disp as i8), mnemonic, (disp as i8).into());
        }
    }
    for (cc, _) in conditions {
        let inverse = decode(jcc8(cc.number() ^ 1, 0)).condition_code();
        let mut negated = decode(jcc8(cc.number(), 0));
        negated.negate_condition_code();
        assert_eq!(inverse, negated.condition_code());
    }
}

#[test]
fn padding_is_one_instruction_of_its_length() {
    for len in 1..=9 {
        let bytes = nop(len);
        assert_eq!((decode(bytes).mnemonic(), bytes.len()), (Mnemonic::Nop, len));
    }
    assert_eq!(nop(0).len(), 0);
}
