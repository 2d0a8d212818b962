//! The violations that checking mode must find, one at a time.

use super::calls::{helper, linkage, load, store};
use super::preparing::array;
use super::*;
use crate::watch::Checking;
use crate::{AccessKind, MemoryAccess, Reason, Regions, Rights, Violation};
use skep_abi::{
    Access, ArgKind, HelperFn, HelperProto, MapDef, MapFlags, MapLink, RetKind, SkbContext, XDP, XdpContext,
};
use skep_isa::{AtomicOp, CallTarget, Cond, Size};
use skep_verifier::CallFact;
use std::mem::offset_of;

const LOOKUP: u32 = 1;
const FILL: u32 = 2;
const READ: u32 = 3;

fn proto(id: u32, args: [ArgKind; 5], ret: RetKind) -> HelperProto {
    HelperProto::new(id, "test", args, ret)
}

fn protos() -> Vec<HelperProto> {
    use ArgKind::{Map, MapKey, None};
    let memory = |access| ArgKind::Memory { access, nullable: false };
    let size = ArgKind::Size { zero: false };
    vec![
        proto(LOOKUP, [Map, MapKey, None, None, None], RetKind::MapValueOrNull),
        proto(FILL, [memory(Access::Write), size, None, None, None], RetKind::Void),
        proto(READ, [memory(Access::Read), size, None, None, None], RetKind::Scalar),
    ]
}

/// Returns the map's handle as if it were the value: the tests' handles are addresses of values.
unsafe extern "C" fn lookup(map: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    map
}

unsafe extern "C" fn nothing(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0
}

const HELPERS: &[(u32, HelperFn)] = &[(LOOKUP, lookup), (FILL, nothing), (READ, nothing)];

/// Runs in checking mode with the test helpers.
fn checked(parts: Parts, linkage: &Linkage, r1: u64, context: u64) -> Result<u64, Violation> {
    let protos = protos();
    let by_id = |id| protos.iter().find(|proto| proto.id == id);
    checked_with(parts, linkage, r1, context, &Regions::new(&by_id).with_fuel(1000))
}

fn checked_with(
    parts: Parts,
    linkage: &Linkage,
    r1: u64,
    context: u64,
    regions: &Regions<'_>,
) -> Result<u64, Violation> {
    let code = Code::new(parts, linkage).unwrap();
    let mut env = RunEnv { context, ..RunEnv::default() };
    let mut watch = Checking::new(&code, r1, context, regions);
    // SAFETY: the watch allows only accesses to buffers that the tests own.
    unsafe { exec::run(&code, r1, 0, &mut env, &mut watch) }
}

/// The violation of a program that has only its stack and the test helpers.
fn reason(insns: &[Insn]) -> Reason {
    checked(parts(insns), &linkage(HELPERS), 0, 0).unwrap_err().reason
}

fn passes(insns: &[Insn]) -> u64 {
    checked(parts(insns), &linkage(HELPERS), 0, 0).unwrap()
}

#[test]
fn registers_must_be_written_before_they_are_read() {
    assert_eq!(reason(&[mov(R::R0, R::R3), Insn::Exit]), Reason::UninitialisedRegister(R::R3));
    assert_eq!(reason(&[Insn::Exit]), Reason::UninitialisedRegister(R::R0));
    let add = alu(Width::W64, AluOp::Add, R::R0, Operand::Imm(1));
    assert_eq!(reason(&[add, Insn::Exit]), Reason::UninitialisedRegister(R::R0));
    let exchange =
        Insn::Atomic { op: AtomicOp::CmpXchg, size: Size::B8, base: R::R10, offset: -8, src: R::R1 };
    assert_eq!(
        reason(&[store(R::R10, -8, R::R1), exchange, Insn::Exit]),
        Reason::UninitialisedRegister(R::R0)
    );
    assert_eq!(passes(&[mov(R::R0, R::R2), Insn::Exit]), 0);
}

#[test]
fn calls_clobber_argument_registers_and_void_helpers_r0() {
    let fill = [mov(R::R1, R::R10), alu(Width::W64, AluOp::Add, R::R1, Operand::Imm(-8)), mov_imm(R::R2, 8)];
    let program = [&fill[..], &[helper(FILL), mov(R::R0, R::R2), Insn::Exit]].concat();
    assert_eq!(reason(&program), Reason::UninitialisedRegister(R::R2));
    let program = [&fill[..], &[helper(FILL), Insn::Exit]].concat();
    assert_eq!(reason(&program), Reason::UninitialisedRegister(R::R0));
}

#[test]
fn stack_bytes_must_be_written_before_they_are_read() {
    let half = Insn::Store { size: Size::B4, base: R::R10, offset: -8, src: Operand::Imm(0) };
    let Reason::UninitialisedStack(access) = reason(&[half, load(R::R0, R::R10, -8), Insn::Exit]) else {
        panic!("not found");
    };
    assert_eq!((access.bytes, access.kind), (8, AccessKind::Read));
    let other = Insn::Store { size: Size::B4, base: R::R10, offset: -4, src: Operand::Imm(0) };
    assert_eq!(passes(&[half, other, load(R::R0, R::R10, -8), Insn::Exit]), 0);
    // Unless the verifier found that they are read, and frames are zeroed for it.
    let mut zeroed = parts(&[half, load(R::R0, R::R10, -8), Insn::Exit]);
    zeroed.functions[0].zeroed = true;
    assert_eq!(checked(zeroed, &linkage(HELPERS), 0, 0).unwrap(), 0);
}

#[test]
fn helpers_initialise_stack_they_fill_and_read_only_written_stack() {
    let fill = [mov(R::R1, R::R10), alu(Width::W64, AluOp::Add, R::R1, Operand::Imm(-8)), mov_imm(R::R2, 8)];
    let program = [&fill[..], &[helper(FILL), load(R::R0, R::R10, -8), Insn::Exit]].concat();
    assert_eq!(passes(&program), 0);
    let program = [&fill[..], &[helper(READ), Insn::Exit]].concat();
    assert!(matches!(reason(&program), Reason::UninitialisedStack(MemoryAccess { bytes: 8, .. })));
    let mut program = program;
    program[2] = mov_imm(R::R2, 0);
    assert_eq!(reason(&program), Reason::Argument { number: 2, value: 0 });
}

#[test]
fn the_stack_ends_where_the_verifier_said() {
    for offset in [0, -4, -520, -513] {
        let program = [mov_imm(R::R0, 0), store(R::R10, offset, R::R0), Insn::Exit];
        assert!(matches!(reason(&program), Reason::Unknown(_)), "{offset}");
    }
    let program = [mov_imm(R::R0, 0), store(R::R10, -24, R::R0), Insn::Exit];
    let mut small = parts(&program);
    small.functions[0].stack_bytes = 16;
    let violation = checked(small, &Linkage::default(), 0, 0).unwrap_err();
    assert!(matches!(violation, Violation { slot: 1, reason: Reason::Unknown(_) }), "{violation}");
}

#[test]
fn a_callee_sees_no_caller_registers_and_leaves_no_frame() {
    let call = |offset| Insn::Call { target: CallTarget::Local(offset) };
    let with_callee = |main: &[Insn], callee: &[Insn]| {
        let mut parts = parts(&[main, callee].concat());
        let split = main.len() as u32;
        parts.functions = vec![function("main", 0, split), function("f", split, parts.insns.len() as u32)];
        checked(parts, &Linkage::default(), 0, 0)
    };
    let found = with_callee(
        &[call(2), load(R::R0, R::R0, -8), Insn::Exit],
        &[mov_imm(R::R2, 0), store(R::R10, -8, R::R2), mov(R::R0, R::R10), Insn::Exit],
    );
    assert!(matches!(found, Err(Violation { slot: 1, reason: Reason::Unknown(_) })), "{found:?}");
    let found = with_callee(&[mov_imm(R::R6, 0), call(1), Insn::Exit], &[mov(R::R0, R::R6), Insn::Exit]);
    assert_eq!(found, Err(Violation { slot: 3, reason: Reason::UninitialisedRegister(R::R6) }));
    let found = with_callee(&[mov_imm(R::R6, 3), call(2), mov(R::R0, R::R6), Insn::Exit], &[Insn::Exit]);
    assert_eq!(found, Ok(3));
    let found = with_callee(&[call(1), Insn::Exit], &[Insn::Exit]);
    assert_eq!(found, Err(Violation { slot: 1, reason: Reason::UninitialisedRegister(R::R0) }));
}

#[test]
fn null_and_unknown_addresses_are_told_apart() {
    let through = |address: i32| reason(&[mov_imm(R::R2, address), load(R::R0, R::R2, 0), Insn::Exit]);
    assert!(matches!(through(0), Reason::Null(_)));
    assert!(matches!(through(64), Reason::Null(_)));
    assert!(matches!(through(0x10000), Reason::Unknown(_)));
    assert!(matches!(through(-8), Reason::Unknown(_)));
}

#[test]
fn the_buffer_ends_at_its_length() {
    let mut buffer = [0u64; 4];
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    let run = |offset: i16, size| {
        let load = Insn::Load { size, signed: false, dst: R::R0, base: R::R1, offset };
        let parts = Parts { entry: Entry::Buffer { len: 13 }, ..parts(&[load, Insn::Exit]) };
        checked(parts, &Linkage::default(), address, 0).map_err(|violation| violation.reason)
    };
    assert_eq!(run(0, Size::B8), Ok(0));
    assert_eq!(run(5, Size::B8), Ok(0));
    assert_eq!(run(12, Size::B1), Ok(0));
    for (offset, size) in [(6, Size::B8), (12, Size::B2), (13, Size::B1), (-1, Size::B1), (-1, Size::B2)] {
        assert!(matches!(run(offset, size), Err(Reason::Unknown(_))), "{offset} {size:?}");
    }
}

/// Runs a context program whose packet is the middle of an array.
fn over_packet(insns: &[Insn]) -> Result<u64, Reason> {
    let mut bytes = [0u64; 16];
    let start = bytes.as_mut_ptr().expose_provenance() as u64;
    let mut context = XdpContext {
        data: start + 32,
        data_end: start + 96,
        data_meta: start + 24,
        buffer_start: start,
        buffer_end: start + 128,
        ..XdpContext::default()
    };
    let context = (&raw mut context).expose_provenance() as u64;
    let parts = Parts { entry: Entry::Context, program_type: &XDP, ..parts(insns) };
    checked(parts, &Linkage::default(), context, context).map_err(|violation| violation.reason)
}

#[test]
fn the_context_is_accessed_by_fields_with_their_rights() {
    let field = |offset: usize, size| {
        let load = Insn::Load { size, signed: false, dst: R::R0, base: R::R1, offset: offset as i16 };
        over_packet(&[load, Insn::Exit])
    };
    assert_eq!(field(offset_of!(XdpContext, ingress_ifindex), Size::B4), Ok(0));
    assert!(field(offset_of!(XdpContext, data), Size::B8).is_ok());
    for (offset, size) in [
        (offset_of!(XdpContext, data), Size::B4),
        (offset_of!(XdpContext, buffer_start), Size::B8),
        (offset_of!(XdpContext, ingress_ifindex), Size::B8),
        (offset_of!(XdpContext, ingress_ifindex) + 1, Size::B1),
    ] {
        assert!(matches!(field(offset, size), Err(Reason::NoField(_))), "{offset} {size:?}");
    }
    let past = field(offset_of!(XdpContext, reserved), Size::B4);
    assert!(matches!(past, Err(Reason::Unknown(_))));
    let offset = offset_of!(XdpContext, ingress_ifindex) as i16;
    let write = Insn::Store { size: Size::B4, base: R::R1, offset, src: Operand::Imm(1) };
    assert!(matches!(over_packet(&[write, Insn::Exit]), Err(Reason::NotWritable(_))));
    assert!(offset_of!(SkbContext, data) == offset_of!(XdpContext, data));
}

#[test]
fn the_packet_is_what_the_context_says() {
    let at = |offset: i16| {
        over_packet(&[
            load(R::R2, R::R1, offset_of!(XdpContext, data) as i16),
            Insn::Load { size: Size::B8, signed: false, dst: R::R0, base: R::R2, offset },
            Insn::Exit,
        ])
    };
    for offset in [0, 56, -8] {
        assert_eq!(at(offset), Ok(0), "{offset}");
    }
    for offset in [57, 64, -4, -9] {
        assert!(matches!(at(offset), Err(Reason::Unknown(_))), "{offset}");
    }
}

fn map_linkage(value: u64, direct: bool) -> Linkage {
    let link = MapLink {
        handle: value,
        value_base: direct.then_some(value),
        inline: None,
        programs: None,
        arena: None,
    };
    Linkage { maps: vec![link], ..linkage(HELPERS) }
}

/// Looks up the key 7 and loads 8 bytes at `offset` of the value.
fn look_up_and(access: &[Insn]) -> Vec<Insn> {
    let head = [
        Insn::LoadImm64 { dst: R::R1, value: Imm64::Map(0) },
        Insn::LoadImm64Tail,
        Insn::Store { size: Size::B4, base: R::R10, offset: -4, src: Operand::Imm(7) },
        mov(R::R2, R::R10),
        alu(Width::W64, AluOp::Add, R::R2, Operand::Imm(-4)),
        helper(LOOKUP),
        mov(R::R1, R::R0),
    ];
    [&head[..], access, &[Insn::Exit]].concat()
}

fn over_map(def: MapDef, insns: &[Insn], direct: bool, fact: Option<CallFact>) -> Result<u64, Reason> {
    let mut value = [0u64; 4];
    let address = value.as_mut_ptr().expose_provenance() as u64;
    let mut parts = Parts { maps: vec![def], ..parts(insns) };
    for (insn, slot) in insns.iter().zip(&mut parts.facts) {
        if *insn == helper(LOOKUP) {
            slot.call = fact;
        }
    }
    checked(parts, &map_linkage(address, direct), 0, 0).map_err(|violation| violation.reason)
}

#[test]
fn values_may_be_touched_once_they_were_looked_up() {
    let load_at = |offset| look_up_and(&[load(R::R0, R::R1, offset)]);
    assert_eq!(over_map(array(24), &load_at(16), false, None), Ok(0));
    assert!(matches!(over_map(array(24), &load_at(17), false, None), Err(Reason::Unknown(_))));
    // The test knows the value's address, but the program never looked it up.
    let guess = [
        Insn::LoadImm64 { dst: R::R1, value: Imm64::Map(0) },
        Insn::LoadImm64Tail,
        load(R::R0, R::R1, 0),
        Insn::Exit,
    ];
    assert!(matches!(over_map(array(24), &guess, false, None), Err(Reason::Unknown(_))));
    assert_eq!(over_map(array(24), &guess, true, None), Ok(0));
}

#[test]
fn maps_may_be_read_only_or_write_only() {
    let mut def = array(24);
    def.flags = MapFlags::RDONLY_PROG;
    let write = look_up_and(&[mov_imm(R::R0, 1), store(R::R1, 0, R::R0)]);
    assert!(matches!(over_map(def.clone(), &write, false, None), Err(Reason::NotWritable(_))));
    def.flags = MapFlags::WRONLY_PROG;
    assert_eq!(over_map(def.clone(), &write, false, None), Ok(1));
    let read = look_up_and(&[load(R::R0, R::R1, 0)]);
    assert!(matches!(over_map(def, &read, false, None), Err(Reason::NotReadable(_))));
}

#[test]
fn facts_of_calls_are_compared_with_the_call() {
    let program = look_up_and(&[mov_imm(R::R0, 0)]);
    let fact = |map, key| Some(CallFact { map: Some(map), key, in_bounds: false });
    assert_eq!(over_map(array(8), &program, false, fact(0, None)), Ok(0));
    assert_eq!(over_map(array(8), &program, false, fact(0, Some(7))), Ok(0));
    let wrong = over_map(array(8), &program, false, fact(1, None));
    assert_eq!(wrong, Err(Reason::WrongMapFact { map: 1 }));
    let wrong = over_map(array(8), &program, false, fact(0, Some(8)));
    assert_eq!(wrong, Err(Reason::WrongKeyFact { fact: 8, found: 7 }));
    let bounded = Some(CallFact { map: Some(0), key: None, in_bounds: true });
    let mut def = array(8);
    def.max_entries = 8;
    assert_eq!(over_map(def.clone(), &program, false, bounded), Ok(0));
    def.max_entries = 7;
    assert_eq!(over_map(def, &program, false, bounded), Err(Reason::WrongBoundsFact { found: 7 }));
}

#[test]
fn unread_upper_halves_are_overwritten() {
    // The 32-bit move does not read the addition's upper half; the result is the move's upper half.
    let insns = [
        mov_imm(R::R1, 7),
        alu(Width::W32, AluOp::Add, R::R1, Operand::Imm(1)),
        alu(Width::W32, AluOp::Mov, R::R0, Operand::Reg(R::R1)),
        Insn::Exit,
    ];
    assert_eq!(passes(&insns), 8);
    let wide = [
        mov_imm(R::R1, 7),
        alu(Width::W32, AluOp::Add, R::R1, Operand::Imm(1)),
        alu(Width::W64, AluOp::Mov, R::R0, Operand::Reg(R::R1)),
        Insn::Exit,
    ];
    assert_eq!(passes(&wide), 8, "all of it is read, so nothing is overwritten");
}

#[test]
fn executed_slots_must_be_reached_and_targets_marked() {
    let insns = [
        mov_imm(R::R0, 2),
        alu(Width::W64, AluOp::Sub, R::R0, Operand::Imm(1)),
        Insn::JumpIf { width: Width::W64, cond: Cond::Ne, dst: R::R0, src: Operand::Imm(0), offset: -2 },
        Insn::Exit,
    ];
    assert_eq!(passes(&insns), 0);
    let with = |change: fn(&mut Parts)| {
        let mut parts = parts(&insns);
        change(&mut parts);
        checked(parts, &Linkage::default(), 0, 0).unwrap_err()
    };
    let unmarked = Violation { slot: 2, reason: Reason::UnmarkedTarget { target: 1 } };
    assert_eq!(with(|parts| parts.facts[1].jump_target = false), unmarked);
    assert_eq!(with(|parts| parts.facts[1].loop_head = false), unmarked);
    let unreached = Violation { slot: 3, reason: Reason::Unreached };
    assert_eq!(with(|parts| parts.facts[3].reached = false), unreached);
}

#[test]
fn an_endless_program_runs_out_of_fuel() {
    let violation = reason(&[Insn::Jump { offset: -1, long: false }]);
    assert_eq!(violation, Reason::OutOfFuel { executed: 1000 });
    assert_eq!(violation.to_string(), "still running after 1000 instructions");
}

#[test]
fn atomics_must_be_aligned() {
    let zero = [mov_imm(R::R0, 0), store(R::R10, -8, R::R0), store(R::R10, -16, R::R0)];
    let misaligned: [Insn; 3] = [
        Insn::Atomic { op: AtomicOp::Xchg, size: Size::B8, base: R::R10, offset: -12, src: R::R0 },
        Insn::LoadAcquire { size: Size::B4, dst: R::R0, base: R::R10, offset: -10 },
        Insn::StoreRelease { size: Size::B2, base: R::R10, offset: -9, src: R::R0 },
    ];
    for insn in misaligned {
        let program = [&zero[..], &[insn, Insn::Exit]].concat();
        assert!(matches!(reason(&program), Reason::MisalignedAtomic(_)), "{insn:?}");
    }
}

#[test]
fn hosts_may_allow_more_memory() {
    let mut word = 77u64;
    let address = (&raw mut word).expose_provenance() as u64;
    let [l0, l1] = load64(R::R2, address);
    let none = |_| None;
    let run = |last: Insn, rights| {
        let mut regions = Regions::new(&none);
        regions.allow(address, 8, rights);
        let program = [l0, l1, mov_imm(R::R0, 5), last, Insn::Exit];
        checked_with(parts(&program), &Linkage::default(), 0, 0, &regions)
    };
    assert_eq!(run(load(R::R0, R::R2, 0), Rights::READ), Ok(77));
    assert_eq!(run(store(R::R2, 0, R::R0), Rights::ALL), Ok(5));
    assert_eq!(
        run(store(R::R2, 0, R::R0), Rights::READ).unwrap_err().to_string(),
        format!("instruction 3: writes 8 bytes at {address:#x} of read-only memory")
    );
}

#[test]
fn decided_branches_are_checked_at_run_time() {
    let jump = |cond| Insn::JumpIf { width: Width::W64, cond, dst: R::R0, src: Operand::Imm(5), offset: 1 };
    let with = |insn| [mov_imm(R::R0, 5), insn, mov_imm(R::R0, 6), Insn::Exit];
    let run = |cond, decided| {
        let source = with(jump(cond));
        let none = |_| None;
        let regions = Regions::new(&none).with_source(&source);
        checked_with(parts(&with(decided)), &Linkage::default(), 0, 0, &regions)
    };
    let goto = |offset| Insn::Jump { offset, long: false };
    assert_eq!(run(Cond::Eq, goto(1)), Ok(5));
    assert_eq!(run(Cond::Ne, goto(0)), Ok(6));
    assert_eq!(run(Cond::Eq, jump(Cond::Eq)), Ok(5));
    let wrong = |taken| Err(Violation { slot: 1, reason: Reason::WrongBranch { taken } });
    assert_eq!(run(Cond::Eq, goto(0)), wrong(true));
    assert_eq!(run(Cond::Ne, goto(1)), wrong(false));
    assert_eq!(run(Cond::Ne, Insn::Exit), wrong(false));
    assert_eq!(
        run(Cond::Eq, goto(0)).unwrap_err().to_string(),
        "instruction 1: the removed conditional jump is taken, which the verifier ruled out"
    );
}
