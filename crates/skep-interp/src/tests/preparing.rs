//! What [`Code::new`] resolves and refuses.

use super::calls::{call, helper};
use super::*;
use crate::Error;
use skep_abi::{MapDef, MapKind, MapLink};
use skep_isa::{CallTarget, PacketBase, Size};

pub(crate) fn array(value_size: u32) -> MapDef {
    MapDef::new("values", MapKind::Array, 4, value_size, 1)
}

fn error(parts: Parts) -> Error {
    let maps = vec![MapLink { handle: 0x1111, value_base: None, inline: None, programs: None, arena: None }];
    Code::new(parts, &Linkage { maps, ..Linkage::default() }).unwrap_err()
}

fn load_imm64(value: Imm64) -> [Insn; 3] {
    [Insn::LoadImm64 { dst: R::R0, value }, Insn::LoadImm64Tail, Insn::Exit]
}

#[test]
fn maps_become_their_handle_and_values_their_address() {
    let maps = vec![
        MapLink { handle: 0x1111, value_base: None, inline: None, programs: None, arena: None },
        MapLink { handle: 0x2222, value_base: Some(0x3000), inline: None, programs: None, arena: None },
    ];
    let linkage = Linkage { maps, ..Linkage::default() };
    for (value, expected) in
        [(Imm64::Map(0), 0x1111), (Imm64::Map(1), 0x2222), (Imm64::MapValue { map: 1, offset: 0x10 }, 0x3010)]
    {
        assert_eq!(run(&parts(&load_imm64(value)), &linkage, 0, 0), expected);
    }
}

#[test]
fn errors_name_unlinked_maps_and_helpers() {
    let unlinked = error(parts(&[mov_imm(R::R0, 0), helper(12345), Insn::Exit]));
    assert_eq!(unlinked, Error::UnknownHelper { slot: 1, id: 12345 });
    assert_eq!(error(parts(&load_imm64(Imm64::Map(1)))), Error::UnknownMap { slot: 0, map: 1 });
    let value = Imm64::MapValue { map: 0, offset: 0 };
    assert_eq!(error(parts(&load_imm64(value))), Error::NoDirectValue { slot: 0, map: 0 });
}

#[test]
fn errors_name_unsupported_instructions() {
    let unsupported: Vec<Vec<Insn>> = vec![
        vec![Insn::LoadPacket { size: Size::B1, base: PacketBase::Absolute, imm: 0 }, Insn::Exit],
        vec![Insn::CallReg { reg: R::R1 }, Insn::Exit],
        vec![Insn::Call { target: CallTarget::Kfunc { id: 1, object: 0 } }, Insn::Exit],
        load_imm64(Imm64::MapFd(3)).to_vec(),
        load_imm64(Imm64::MapFdValue { fd: 3, offset: 0 }).to_vec(),
        load_imm64(Imm64::Variable { id: 3, object: 0 }).to_vec(),
    ];
    for insns in unsupported {
        let error = error(parts(&insns));
        assert!(matches!(error, Error::Unsupported { slot: 0, .. }), "{:?}: {error}", insns[0]);
    }
}

#[test]
fn unreached_instructions_are_ignored() {
    let insns = [mov_imm(R::R0, 7), Insn::Exit, Insn::MayGoto { offset: 100 }];
    let mut parts = parts(&insns);
    parts.facts[2].reached = false;
    assert_eq!(run(&parts, &Linkage::default(), 0, 0), 7);
}

#[test]
fn malformed_programs_are_refused() {
    let [first, second] = load64(R::R0, 1);
    let malformed: Vec<Vec<Insn>> = vec![
        vec![mov_imm(R::R0, 0)],
        vec![Insn::Jump { offset: 1, long: false }, Insn::Exit],
        vec![Insn::Jump { offset: -2, long: false }, Insn::Exit],
        vec![Insn::Jump { offset: i32::MAX, long: true }, Insn::Exit],
        vec![Insn::Jump { offset: 1, long: false }, first, second, Insn::Exit],
        vec![first, Insn::Exit],
        vec![first],
        vec![first, second],
        vec![second, Insn::Exit],
        vec![call(5), Insn::Exit],
        vec![call(i32::MAX), Insn::Exit],
        vec![],
    ];
    for insns in malformed {
        let error = error(parts(&insns));
        assert!(matches!(error, Error::Malformed { .. }), "{insns:?}: {error}");
    }
}
