//! Vectors, over the registers and places that loops in bulk use.

use iced_x86::{Mnemonic, Register};

use super::foreign::{decode, m, operands};
use super::*;

fn xmm(reg: Xmm) -> Register {
    Register::XMM0 + u32::from(reg.0)
}

#[test]
fn vectors() {
    let all = (0..8).flat_map(|a| (0..8).map(move |b| (Xmm(a), Xmm(b))));
    for (a, b) in all {
        for (op, mnemonic) in [
            (Vector::LowBytes, Mnemonic::Punpcklbw),
            (Vector::LowWords, Mnemonic::Punpcklwd),
            (Vector::LowDoubles, Mnemonic::Punpckldq),
            (Vector::HighWords, Mnemonic::Punpckhwd),
            (Vector::HighDoubles, Mnemonic::Punpckhdq),
            (Vector::LowQuads, Mnemonic::Punpcklqdq),
            (Vector::HighQuads, Mnemonic::Punpckhqdq),
            (Vector::Move, Mnemonic::Movdqa),
            (Vector::AddQuads, Mnemonic::Paddq),
            (Vector::Xor, Mnemonic::Pxor),
            (Vector::SumBytes, Mnemonic::Psadbw),
            (Vector::AddDoubles, Mnemonic::Paddd),
        ] {
            let insn = decode(vector(op, a, b));
            let found = (insn.mnemonic(), insn.op0_register(), insn.op1_register());
            assert_eq!(found, (mnemonic, xmm(a), xmm(b)));
        }
        let insn = decode(spread(a, b));
        let found = (insn.mnemonic(), insn.op0_register(), insn.op1_register(), insn.immediate8());
        assert_eq!(found, (Mnemonic::Pshufd, xmm(a), xmm(b), 0));
    }
}

#[test]
fn vectors_in_memory() {
    for mem in places() {
        for reg in [Xmm(0), Xmm(7)] {
            let load = decode(load_vector(reg, mem));
            assert_eq!((load.mnemonic(), load.op0_register()), (Mnemonic::Movdqu, xmm(reg)));
            let store = decode(store_vector(mem, reg));
            assert_eq!((store.mnemonic(), store.op1_register()), (Mnemonic::Movdqu, xmm(reg)));
            for (insn, at) in [(load, 1), (store, 0)] {
                let place = match (operands(&insn).swap_remove(at), m(Size::B8, mem)) {
                    (foreign::Op::Mem(base, index, disp, bytes), foreign::Op::Mem(b, i, d, _)) => {
                        assert_eq!(bytes, 16);
                        (base, index, disp) == (b, i, d)
                    }
                    _ => false,
                };
                assert!(place, "{mem:?}");
            }
        }
    }
}

#[test]
fn addresses_are_moved_or_computed() {
    assert_eq!(decode(address(Gpr::R9, Mem::at(Gpr::RDI, 0))).mnemonic(), Mnemonic::Mov);
    assert_eq!(decode(address(Gpr::R9, Mem::at(Gpr::RDI, 8))).mnemonic(), Mnemonic::Lea);
    let jump = decode(jcc_rel(Cc::Equal.number()));
    assert_eq!((jump.mnemonic(), jump.len(), jump.near_branch64()), (Mnemonic::Je, 6, jump.next_ip()));
}
