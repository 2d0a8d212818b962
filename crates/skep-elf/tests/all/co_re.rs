//! CO-RE: programs relocated for a target whose structures differ from those at compile time.

use crate::support::btf::Types;
use skep_abi::{RAW, UNRELOCATED};
use skep_btf::Btf;
use skep_elf::{Error, LinkOptions, Object};
use skep_isa::{AluOp, CallTarget, Imm64, Insn, Operand, Size};

const CORE: &[u8] = include_bytes!("../objects/core.bpf.o");

/// The target's structures, with other offsets, sizes and flavours.
fn target() -> Btf {
    let mut types = Types::new();
    let char = types.int("char", 1);
    let int = types.signed("int", 4);
    let u32 = types.int("unsigned int", 4);
    let u64 = types.int("unsigned long", 8);
    let name = types.pointer(char);
    let place = types.composite(4, "place", 12, &[("y", u32, 0), ("x", u32, 4), ("z", u32, 8)]);
    let places = types.array(place, 8);
    let deep = types.composite(5, "", 4, &[("other", u32, 0), ("inner", u32, 0)]);
    let deeper = types.composite(4, "", 8, &[("pad", u32, 0), ("", deep, 4)]);
    // Members are: name, type, bit offset, width.
    let task = types.bit_fields(
        "task",
        232,
        &[
            ("name", name, 128 * 8, 0),
            ("counter", u64, 136 * 8, 0),
            ("pid", u32, 4 * 8, 0),
            ("places", places, 16 * 8, 0),
            ("", deeper, 144 * 8, 0),
            ("level", u32, 160 * 8 + 30, 7),
            ("sign", int, 168 * 8 + 3, 5),
            ("balance", int, 176 * 8, 0),
            ("parent", name + 100, 184 * 8, 0),
        ],
    );
    while types.add("", 10, 0, int, &[]) < name + 99 {}
    assert_eq!(types.pointer(task), name + 100);
    types.enumeration("color", &[("RED___new", 10), ("GREEN", 20)]);
    let large = types.string("LARGE");
    types.add("wide", 19, 1, 8, &[large, 5, 7]);
    // A typedef of the same name has another kind and must not match.
    types.typedef("nowhere", int);
    Btf::parse(types.build()).unwrap()
}

fn link(program: &str, target: Option<&Btf>) -> Result<Vec<Insn>, Error> {
    let object = Object::parse(CORE).unwrap();
    let options = LinkOptions { target, ..LinkOptions::default() };
    object.program(program)?.link(Some(&RAW), &options).map(|source| source.insns)
}

fn linked(program: &str) -> Vec<Insn> {
    link(program, Some(&target())).unwrap()
}

/// Sizes and offsets of loads and stores.
fn accesses(program: &str) -> Vec<(Size, i16)> {
    let access = |insn: &Insn| match *insn {
        Insn::Load { size, offset, .. } | Insn::Store { size, offset, .. } => Some((size, offset)),
        _ => None,
    };
    linked(program).iter().filter_map(access).collect()
}

/// The result of a program without branches that computes with constants only.
fn computed(insns: &[Insn]) -> u64 {
    let mut registers = [0u64; 11];
    for insn in insns {
        match *insn {
            Insn::Alu { op, dst, src, width } => {
                let operand = match src {
                    Operand::Reg(reg) => registers[reg.index()],
                    Operand::Imm(imm) => i64::from(imm).cast_unsigned(),
                };
                let dst = &mut registers[dst.index()];
                *dst = match op {
                    AluOp::Mov => operand,
                    AluOp::Or => *dst | operand,
                    AluOp::Lsh => *dst << operand,
                    other => panic!("{other:?}"),
                };
                if width.bits() == 32 {
                    *dst = u64::from(*dst as u32);
                }
            }
            Insn::LoadImm64 { dst, value: Imm64::Value(value) } => registers[dst.index()] = value,
            Insn::LoadImm64Tail => {}
            Insn::Exit => return registers[0],
            other => panic!("{other:?}"),
        }
    }
    panic!("the program does not end")
}

#[test]
fn without_a_target_programs_stay_as_they_were_compiled() {
    let insns = link("loads", None).unwrap();
    let Insn::Load { offset, .. } = insns[0] else { panic!("{:?}", insns[0]) };
    assert_eq!(offset, 64);
    assert_eq!(computed(&link("values", None).unwrap()), 2);
}

#[test]
fn loads_and_stores_get_the_target_s_offsets_and_sizes() {
    assert_eq!(accesses("loads"), [(Size::B8, 184), (Size::B8, 136), (Size::B8, 184)]);
    assert_eq!(accesses("stores"), [(Size::B8, 136), (Size::B4, 176)]);
    assert_eq!(accesses("narrowed"), [(Size::B8, 128)]);
    assert_eq!(accesses("negative"), [(Size::B4, 176)]);
}

#[test]
fn paths_lead_through_arrays_and_anonymous_members() {
    assert_eq!(accesses("elements"), [(Size::B4, 16 + 2 * 12)]);
    assert_eq!(accesses("anonymous"), [(Size::B4, 144 + 4)]);
}

#[test]
fn bit_fields_are_read_from_the_smallest_containing_integer() {
    // Bits 30 to 36 cross a word: eight bytes at 160.
    let level = 160 << 32 | 8 << 24 | (64 - 37) << 8 | (64 - 7);
    assert_eq!(computed(&linked("level")), level);
    let sign = 168 << 32 | 4 << 24 | 1 << 16 | (64 - 8) << 8 | (64 - 5);
    assert_eq!(computed(&linked("sign")), sign);
}

#[test]
fn existence_checks_give_1_or_0() {
    // counter; state_then in task; missing; task in the target's form; nowhere; RED; BLUE
    assert_eq!(computed(&linked("exist")), 0b1001010);
    assert_eq!(computed(&linked("sizes")), 12 << 32 | 4);
    assert_eq!(computed(&linked("matches")), 0b100);
}

#[test]
fn uses_of_missing_fields_must_be_unreachable() {
    let insns = linked("guarded");
    assert!(matches!(insns[1], Insn::Alu { src: Operand::Imm(0), .. }), "{:?}", insns[1]);
    assert_eq!(insns[3], Insn::Call { target: CallTarget::Helper(UNRELOCATED) });
    assert_eq!(insns.len(), 7);
    // A missing enumerator poisons both slots of its load.
    let empty = Btf::parse(Types::new().build()).unwrap();
    let insns = link("values", Some(&empty)).unwrap();
    assert_eq!(insns[..2], [Insn::Call { target: CallTarget::Helper(UNRELOCATED) }; 2]);
}

#[test]
fn enumerators_and_types_are_found_by_name() {
    assert_eq!(computed(&linked("values")), 20);
    assert_eq!(computed(&linked("wide_values")), 5 | 7 << 32);
    let target = target();
    let place = target.find("place", skep_btf::Kind::Struct).unwrap();
    assert_eq!(computed(&link("target_id", Some(&target)).unwrap()), place.into());
    let object = Object::parse(CORE).unwrap();
    let own = object.btf().unwrap().find("place", skep_btf::Kind::Struct).unwrap();
    assert_eq!(computed(&link("local_id", Some(&target)).unwrap()), own.into());
}

/// A target with a structure `task` of these members.
fn tasks(structures: &[&[(&str, u32, u32)]]) -> Btf {
    let mut types = Types::new();
    types.int("unsigned int", 4);
    types.int("unsigned char", 1);
    types.signed("int", 4);
    types.signed("long", 8);
    types.pointer(0);
    types.add("double", 16, 0, 8, &[]);
    for members in structures {
        types.composite(4, "task", 1 << 20, members);
    }
    Btf::parse(types.build()).unwrap()
}

#[test]
fn several_types_of_one_name_must_agree() {
    let same = tasks(&[&[("balance", 3, 8)], &[("other", 1, 0)], &[("pad", 1, 0), ("balance", 3, 8)]]);
    let insns = link("negative", Some(&same)).unwrap();
    assert!(matches!(insns[0], Insn::Load { offset: 8, .. }), "{:?}", insns[0]);
    let different = tasks(&[&[("balance", 3, 8)], &[("balance", 3, 16)]]);
    let error = link("negative", Some(&different)).unwrap_err().to_string();
    assert_eq!(
        error,
        "function negative, byte 136 of section raw: a CO-RE relocation (field offset of struct task) finds several \
         types of that name, which disagree"
    );
}

#[test]
fn signed_numbers_of_another_size_or_kind_are_refused() {
    let wall = Insn::Call { target: CallTarget::Helper(UNRELOCATED) };
    let longer = tasks(&[&[("balance", 4, 8)]]);
    assert_eq!(link("negative", Some(&longer)).unwrap()[0], wall);
    for kind in [5, 6] {
        let other = tasks(&[&[("balance", kind, 8)]]);
        assert_eq!(link("negative", Some(&other)).unwrap()[0], wall);
    }
    let shorter = tasks(&[&[("counter", 2, 8)]]);
    let insns = link("stores", Some(&shorter)).unwrap();
    assert!(matches!(insns[1], Insn::Store { size: Size::B1, offset: 8, .. }), "{:?}", insns[1]);
}

#[test]
fn an_offset_too_large_for_an_instruction_is_refused() {
    let far = tasks(&[&[("balance", 3, 40_000)]]);
    let error = link("negative", Some(&far)).unwrap_err().to_string();
    assert!(error.ends_with("finds an offset that is too large"), "{error}");
}

#[test]
fn a_type_of_itself_does_not_hang_the_search() {
    let mut types = Types::new();
    types.composite(4, "task", 8, &[("", 1, 0), ("", 1, 0)]);
    types.composite(4, "place", 8, &[("", 2, 0), ("x", 2, 0)]);
    let endless = Btf::parse(types.build()).unwrap();
    let error = link("negative", Some(&endless)).unwrap_err().to_string();
    assert!(error.ends_with("takes too many looks at types"), "{error}");
    assert!(link("matches", Some(&endless)).is_ok());
}
