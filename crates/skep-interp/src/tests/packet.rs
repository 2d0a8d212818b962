//! Legacy packet loads.

use super::calls::call;
use super::*;
use crate::{Error, Reason, Regions, Violation};
use skep_abi::{SCHED_CLS, SOCKET_FILTER, SkbContext, XDP};
use skep_isa::{PacketBase, Size};

fn load(size: Size, base: PacketBase, imm: i32) -> Insn {
    Insn::LoadPacket { size, base, imm }
}

fn over_packet(insns: &[Insn]) -> Parts {
    Parts { program_type: &SOCKET_FILTER, entry: Entry::Context, ..parts(insns) }
}

/// The result of a program over the bytes 0 to 59, unchecked and checked.
fn on_packet(parts: &Parts) -> Result<u64, Violation> {
    let bytes: Vec<u8> = (0..60).collect();
    let data = bytes.as_ptr().expose_provenance() as u64;
    let skb = SkbContext { data, data_end: data + 60, data_meta: data, network: 14, ..SkbContext::default() };
    let context = (&raw const skb).expose_provenance() as u64;
    let code = Code::new(parts.clone(), &Linkage::default()).unwrap();
    let regions = Regions::new(&|_| None);
    let mut env = RunEnv { context, ..RunEnv::default() };
    let mut watch = crate::watch::Checking::new(&code, context, context, &regions);
    // SAFETY: the context describes the bytes, and the watch allows nothing else.
    let result = unsafe { exec::run(&code, context, 0, &mut env, &mut watch) }?;
    // SAFETY: as above, and there was no violation.
    let Ok(plain) = unsafe { exec::run(&code, context, 0, &mut env, &mut exec::Unwatched) };
    assert_eq!(plain, result);
    Ok(result)
}

fn loaded(size: Size, base: PacketBase, imm: i32, reg: i32) -> u64 {
    let program = [mov(R::R6, R::R1), mov_imm(R::R7, reg), load(size, base, imm), Insn::Exit];
    on_packet(&over_packet(&program)).unwrap()
}

#[test]
fn packet_bytes_are_loaded_in_network_order() {
    use PacketBase::{Absolute, Indirect};
    assert_eq!(loaded(Size::B1, Absolute, 5, 0), 5);
    assert_eq!(loaded(Size::B2, Absolute, 12, 0), 0x0c0d);
    assert_eq!(loaded(Size::B4, Absolute, 56, 0), 0x3839_3a3b);
    assert_eq!(loaded(Size::B2, Indirect(R::R7), 10, 7), 0x1112);
    assert_eq!(loaded(Size::B2, Indirect(R::R7), 10, -3), 0x0708);
    assert_eq!(loaded(Size::B4, Absolute, -0x10_0000, 0), 0x0e0f_1011, "from the network header");
    assert_eq!(loaded(Size::B1, Absolute, -0x20_0000 + 3, 0), 3, "from the link-layer header");
}

#[test]
fn a_load_beyond_the_packet_ends_the_function_with_0() {
    use PacketBase::{Absolute, Indirect};
    let ends = |insn| {
        let program = [mov(R::R6, R::R1), mov_imm(R::R7, 58), insn, mov_imm(R::R0, 9), Insn::Exit];
        on_packet(&over_packet(&program)).unwrap()
    };
    assert_eq!(ends(load(Size::B4, Absolute, 56)), 9);
    assert_eq!(ends(load(Size::B4, Absolute, 57)), 0);
    assert_eq!(ends(load(Size::B1, Absolute, i32::MIN)), 0);
    assert_eq!(ends(load(Size::B2, Indirect(R::R7), 0)), 9);
    assert_eq!(ends(load(Size::B2, Indirect(R::R7), 1)), 0);
    assert_eq!(ends(load(Size::B2, Indirect(R::R7), i32::MAX)), 0);
    let main =
        [mov_imm(R::R9, 5), call(2), alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(R::R9)), Insn::Exit];
    let callee = [mov(R::R6, R::R1), load(Size::B1, Absolute, 60), mov_imm(R::R0, 3), Insn::Exit];
    let whole = [main, callee].concat();
    let functions = vec![function("main", 0, 4), function("f", 4, 8)];
    assert_eq!(on_packet(&Parts { functions, ..over_packet(&whole) }).unwrap(), 5);
}

#[test]
fn legacy_loads_clobber_argument_registers_and_need_the_context() {
    let lost = [mov(R::R6, R::R1), load(Size::B1, PacketBase::Absolute, 0), mov(R::R0, R::R1), Insn::Exit];
    assert_eq!(
        on_packet(&over_packet(&lost)),
        Err(Violation { slot: 2, reason: Reason::UninitialisedRegister(R::R1) })
    );
    let other = [mov_imm(R::R6, 1), load(Size::B1, PacketBase::Absolute, 0), Insn::Exit];
    assert_eq!(
        on_packet(&over_packet(&other)),
        Err(Violation { slot: 1, reason: Reason::NotTheContext { value: 1 } })
    );
}

#[test]
fn only_socket_buffers_have_legacy_loads() {
    let insns = [load(Size::B1, PacketBase::Absolute, 0), Insn::Exit];
    let of = |program_type| {
        let parts = Parts { program_type, entry: Entry::Context, ..parts(&insns) };
        Code::new(parts, &Linkage::default()).map(|_| ())
    };
    assert_eq!(of(&SCHED_CLS), Ok(()));
    assert!(matches!(of(&XDP), Err(Error::Unsupported { slot: 0, .. })));
}
