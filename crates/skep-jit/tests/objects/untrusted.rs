//! Code for programs whose authors may attack the process, as foreign disassemblers read it: no constant of a program
//! is in it, and each address is masked.

use std::collections::BTreeSet;

use iced_x86::{DecoderOptions, FlowControl, Instruction, OpAccess, OpKind, Register};
use skep_abi::Linkage;
use skep_isa::{AluOp, Insn, Operand as Src};
use skep_jit::{Emitted, Options, Target, emit};
use skep_testgen::{Flavour, Host, Options as Kinds, Source, structured};
use skep_testkit::fewer_if_emulated;
use skep_verifier::{Config, Verified, verify};
use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::{emitted_with, everything};

/// Constants that need not be hidden on x86-64, as `skep_jit` documents them.
const HARMLESS: [u64; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64];

/// The constants of a program, as they are written and as operations use them. Counts of shifts have six bits and
/// are no constants in this sense.
fn constants(program: &Verified) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for (insn, fact) in program.insns().iter().zip(program.facts()) {
        let imm = match *insn {
            _ if !fact.reached => continue,
            Insn::Alu { op: AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, .. } => continue,
            Insn::Alu { src: Src::Imm(imm), .. }
            | Insn::JumpIf { src: Src::Imm(imm), .. }
            | Insn::Store { src: Src::Imm(imm), .. }
            | Insn::LoadPacket { imm, .. } => imm,
            Insn::LoadImm64 { value: skep_isa::Imm64::Value(value), .. } => {
                found.insert(value);
                continue;
            }
            _ => continue,
        };
        found.extend([i64::from(imm) as u64, u64::from(imm as u32)]);
    }
    found
}

/// Every program: examples, benchmarks and random ones, with what they are linked to.
fn each(mut check: impl FnMut(&Verified, &dyn Fn(Options, Target) -> Emitted)) {
    for program in everything() {
        check(&program, &|options, target| emitted_with(&program, options, target));
    }
    let mut checked = 0;
    for flavour in [Flavour::Buffer { len: 512 }, Flavour::Xdp] {
        let host = Host::new(flavour);
        let linkage: &Linkage = host.linkage();
        for seed in 0..fewer_if_emulated(300) as u64 {
            let random = structured(&mut Source::from_seed(seed), &Kinds::all(flavour));
            if !host.suits(&random) {
                continue;
            }
            let config = Config { helpers: &skep_testgen::helpers, ..Config::default() };
            let Ok(program) = verify(random.unverified(), &config) else {
                continue;
            };
            let home = 0x7f12_0000_0000..0x7f12_0800_0000;
            check(&program, &|options, target| {
                emit(&program, linkage, options, target, home.clone()).expect("compiles")
            });
            checked += 1;
        }
    }
    assert!(checked > fewer_if_emulated(200), "only {checked} random programs are accepted");
}

/// Constants hidden and nothing else: masks have a constant of their own.
fn blinded() -> Options {
    let mut options = Options::default();
    options.blind_constants = true;
    options
}

fn has(code: &[u8], bytes: &[u8]) -> bool {
    code.windows(bytes.len()).any(|window| window == bytes)
}

/// Constants of four and eight bytes that are in the code at any place.
fn exposed(constants: &BTreeSet<u64>, code: &[u8]) -> BTreeSet<u64> {
    // Zeroes and ones lie side by side in displacements too.
    let is_plain = |value: u64| {
        (value as u32).to_le_bytes().iter().filter(|&&byte| matches!(byte, 0 | 0xff)).count() > 1
    };
    // Offsets of loads and stores have 16 bits and their sign.
    let is_offset = |value: u64| i16::try_from(value.cast_signed()).is_ok() || value <= 0xffff;
    let extended = |value: u64| i64::from(value as u32 as i32) as u64;
    let is_exposed = |value: u64| match value {
        _ if is_offset(value) || value >> 32 == 0 && is_offset(extended(value)) => false,
        _ if is_plain(value) => false,
        _ if value >> 32 == 0 || value == extended(value) => has(code, &(value as u32).to_le_bytes()),
        _ => has(code, &value.to_le_bytes()),
    };
    constants.iter().copied().filter(|&value| is_exposed(value)).collect()
}

#[test]
fn no_constant_of_a_program_is_among_the_bytes_of_its_code() {
    let hidden = blinded();
    let (mut known, mut found) = (0, 0);
    each(|program, emitted| {
        let constants = constants(program);
        let exposed = |options| exposed(&constants, &emitted(options, Target::X86_64).bytes);
        // What is there by chance is not there twice: each load has its own keys.
        let twice: BTreeSet<u64> = exposed(hidden).intersection(&exposed(hidden)).copied().collect();
        assert!(twice.is_empty(), "{}: {twice:x?} of {constants:x?}", program.name());
        known += constants.len();
        found += exposed(Options::default()).len();
    });
    assert!(known > 1000 && found > 100, "{found} of {known} constants are in code that hides none");
}

fn decoded(code: &[u8]) -> Vec<Instruction> {
    iced_x86::Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect()
}

/// The immediate operands of x86-64 code, without counts of shifts and what is done to the stack pointer.
fn immediates(code: &[u8]) -> BTreeSet<u64> {
    use iced_x86::Mnemonic::{Rol, Rorx, Sar, Shl, Shr};
    let mut found = BTreeSet::new();
    for insn in decoded(code) {
        let shifts = [Rol, Rorx, Sar, Shl, Shr].contains(&insn.mnemonic());
        if shifts || insn.op0_register() == Register::RSP {
            continue;
        }
        for operand in 0..insn.op_count() {
            let branch = [OpKind::NearBranch16, OpKind::NearBranch32, OpKind::NearBranch64];
            if !branch.contains(&insn.op_kind(operand)) && insn.try_immediate(operand).is_ok() {
                found.insert(insn.immediate(operand));
            }
        }
    }
    found
}

#[test]
fn no_constant_of_a_program_is_an_operand_of_its_code() {
    let hidden = blinded();
    let (mut known, mut found) = (0, 0);
    each(|program, emitted| {
        let mut constants = constants(program);
        constants.retain(|value| !HARMLESS.contains(value));
        let exposed = |options| {
            let immediates = immediates(&emitted(options, Target::X86_64).bytes);
            constants.intersection(&immediates).copied().collect::<BTreeSet<u64>>()
        };
        let twice: BTreeSet<u64> = exposed(hidden).intersection(&exposed(hidden)).copied().collect();
        assert!(twice.is_empty(), "{}: {twice:x?}", program.name());
        known += constants.len();
        found += exposed(Options::default()).len();
    });
    assert!(known > 1000 && found > 500, "{found} of {known} constants are operands of code that hides none");
}

/// The numbers that aarch64 code makes of constants: what moves leave in a register, and masks of bits.
fn made(code: &[u8]) -> BTreeSet<u64> {
    let mut registers = [None; 32];
    let mut made = BTreeSet::new();
    for word in code.chunks_exact(4) {
        let insn = InstDecoder::default().decode(&mut U8Reader::new(word)).expect("decodes").to_string();
        let words: Vec<&str> = insn.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let number = |text: &str| {
            let text = text.strip_prefix('#')?;
            let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
            let value = match text.strip_prefix("0x") {
                Some(text) => u64::from_str_radix(text, 16).ok()?,
                None => text.parse().ok()?,
            };
            Some(if negative { value.wrapping_neg() } else { value })
        };
        let register = words.get(1).and_then(|word| word[1..].parse::<usize>().ok()).filter(|at| *at < 31);
        let numbers: Vec<u64> = words.iter().filter_map(|word| number(word)).collect();
        let wide = words.get(1).is_some_and(|word| word.starts_with('x'));
        let shift = if words.contains(&"lsl") { *numbers.last().unwrap_or(&0) } else { 0 };
        let narrow = |value: u64| if wide { value } else { value & 0xffff_ffff };
        match (words[0], register, numbers.first()) {
            ("mov", Some(at), Some(&value)) => registers[at] = Some(narrow(value)),
            ("movz", Some(at), Some(&value)) => registers[at] = Some(narrow(value << shift)),
            ("movn", Some(at), Some(&value)) => registers[at] = Some(narrow(!(value << shift))),
            ("movk", Some(at), Some(&value)) => {
                registers[at] = registers[at].map(|old| old & !(0xffff << shift) | value << shift)
            }
            ("and" | "orr" | "eor" | "tst" | "ands", Some(at), Some(&value)) if shift == 0 => {
                made.insert(value);
                registers[at] = None;
            }
            (_, Some(at), _) => registers[at] = None,
            _ => {}
        }
        made.extend(register.and_then(|at| registers[at]));
    }
    made
}

#[test]
fn no_large_constant_of_a_program_is_made_of_constants_on_aarch64() {
    let hidden = Options::default().untrusted();
    let (mut known, mut found) = (0, 0);
    each(|program, emitted| {
        let mut constants = constants(program);
        // What takes one field of an instruction may be there.
        constants.retain(|&value| value > 0xffff && !value > 0xffff);
        let exposed = |options| {
            let made = made(&emitted(options, Target::Aarch64).bytes);
            constants.intersection(&made).copied().collect::<BTreeSet<u64>>()
        };
        let twice: BTreeSet<u64> = exposed(hidden).intersection(&exposed(hidden)).copied().collect();
        assert!(twice.is_empty(), "{}: {twice:x?}", program.name());
        known += constants.len();
        found += exposed(Options::default()).len();
    });
    assert!(known > 500 && found > 200, "{found} of {known} constants are in code that hides none");
}

/// The registers that stand for those of BPF, `r10` not among them.
const POINTERS: [Register; 10] = [
    Register::RAX,
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::RBX,
    Register::R13,
    Register::R14,
    Register::R15,
];

#[test]
fn each_address_is_masked_since_the_last_place_where_control_may_come_from_elsewhere() {
    let mut masked = Options::default();
    masked.mask_speculation = true;
    let (mut accesses, mut jumps) = (0, 0);
    each(|program, emitted| {
        let code = emitted(masked, Target::X86_64);
        let insns = decoded(&code.bytes);
        let targets: BTreeSet<u64> = insns.iter().map(Instruction::near_branch_target).collect();
        let mut info = iced_x86::InstructionInfoFactory::new();
        let mut masks = BTreeSet::new();
        for (at, insn) in insns.iter().enumerate() {
            // Jumps inside of an instruction, such as those around a division, are on the same path.
            let noted = |insn: Option<&Instruction>| {
                insn.is_some_and(|insn| {
                    insn.op_count() == 2
                        && (insn.op0_register(), insn.op1_register()) == (Register::R9, Register::R10)
                })
            };
            let guarded = insn.flow_control() == FlowControl::ConditionalBranch && noted(insns.get(at + 1));
            let from_elsewhere = targets.contains(&insn.ip()) && code.offsets.contains(&(insn.ip() as u32));
            let leaves = match insn.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => false,
                FlowControl::UnconditionalBranch => code.offsets.contains(&(insn.next_ip() as u32)),
                _ => true,
            };
            if guarded || from_elsewhere || leaves {
                masks.clear();
            }
            let is_access =
                insn.mnemonic() != iced_x86::Mnemonic::Lea && insn.mnemonic() != iced_x86::Mnemonic::Nop;
            for memory in info.info(insn).used_memory().iter().filter(|_| is_access) {
                let parts =
                    [memory.base(), memory.index()].into_iter().filter(|part| POINTERS.contains(part));
                for part in parts {
                    let name = program.name();
                    assert!(
                        masks.contains(&part),
                        "{name}: {part:?} in {insn} at {:#x} is not masked",
                        insn.ip()
                    );
                    accesses += 1;
                }
                assert!(
                    i16::try_from(memory.displacement() as i64).is_ok() || memory.base() == Register::None
                );
            }
            // A division keeps registers in others.
            let is_copy = insn.mnemonic() == iced_x86::Mnemonic::Mov && insn.op1_kind() == OpKind::Register;
            let copied = is_copy && masks.contains(&insn.op1_register());
            let writes = info.info(insn).used_registers().iter().filter(|used| {
                !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
            });
            writes.for_each(|used| {
                masks.remove(&used.register().full_register());
            });
            let masked = insn.mnemonic() == iced_x86::Mnemonic::Or && insn.op1_register() == Register::R9;
            if masked || copied {
                masks.insert(insn.op0_register());
            }
            // Both ways of a jump note which one is right.
            if guarded && insns[at + 2].flow_control() == FlowControl::UnconditionalBranch {
                assert!(noted(insns.get(at + 3)), "{}: {insn} at {:#x}", program.name(), insn.ip());
                assert_eq!(insn.near_branch_target(), insns[at + 3].ip());
                jumps += 1;
            }
        }
    });
    // In an emulator the samples are smaller.
    assert!(accesses > 1500 && jumps > 700, "{accesses} accesses and {jumps} jumps");
}
