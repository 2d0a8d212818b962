//! Probe loads: they give 0 if they fault, in both modes.

use std::sync::Arc;

use skep_abi::{Linkage, RunEnv};
use skep_isa::{Insn, Size};
use skep_text::{Arena, Config, Loads};

use super::*;
use crate::Error;
use crate::regions::Regions;
use crate::watch::Checking;

/// A program all of whose loads may fault.
fn probing(insns: &[Insn]) -> Parts {
    let mut parts = parts(insns);
    for (fact, insn) in parts.facts.iter_mut().zip(insns) {
        fact.probe = matches!(insn, Insn::Load { .. });
    }
    parts
}

/// Runs it unchecked and in checking mode, and compares.
fn both(parts: &Parts, loads: &Arc<Loads>, r1: u64) -> u64 {
    let code = Code::with(parts.clone(), &Linkage::default(), Some(Arc::clone(loads))).unwrap();
    let mut env = RunEnv::default();
    // SAFETY: the programs access memory only by probe loads.
    let Ok(plain) = unsafe { exec::run(&code, r1, 0, &mut env, &mut exec::Unwatched) };
    let helpers = |_| None;
    let regions = Regions::new(&helpers);
    let mut watch = Checking::new(&code, r1, 0, &regions);
    // SAFETY: as above.
    let checked = unsafe { exec::run(&code, r1, 0, &mut env, &mut watch) };
    assert_eq!(checked, Ok(plain));
    plain
}

#[test]
fn probes_of_every_size_give_the_value_or_0_on_a_fault() {
    let loads = Arc::new(Arena::new(Config::new()).unwrap().loads().unwrap());
    let number = 0xf1e2_d3c4_b5a6_9788_u64;
    for size in Size::ALL {
        for signed in [false, true] {
            if signed && size == Size::B8 {
                continue;
            }
            for offset in [0, 8, -8, i16::MAX, i16::MIN] {
                let load = Insn::Load { size, signed, dst: R::R0, base: R::R1, offset };
                let parts = probing(&[mov_imm(R::R0, -1), load, Insn::Exit]);
                let read =
                    |address: u64| both(&parts, &loads, address.wrapping_sub(i64::from(offset) as u64));
                let bits = 64 - size.bits();
                let expected =
                    if signed { ((number << bits) as i64 >> bits) as u64 } else { number << bits >> bits };
                assert_eq!(read(&raw const number as u64), expected, "{load}");
                for bad in [
                    0,
                    1,
                    4095,
                    1 << 47,
                    0x4000_0000_0000_0000,
                    0xffff_8000_0000_0000,
                    u64::MAX - 7,
                    u64::MAX,
                ] {
                    assert_eq!(read(bad), 0, "{load} of {bad:#x}");
                }
            }
        }
    }
}

#[test]
fn a_faulting_probe_changes_only_its_register() {
    let loads = Arc::new(Arena::new(Config::new()).unwrap().loads().unwrap());
    let load = Insn::Load { size: Size::B4, signed: false, dst: R::R3, base: R::R1, offset: 4 };
    let add = |src| alu(Width::W64, AluOp::Add, R::R0, Operand::Reg(src));
    let insns = [
        mov_imm(R::R0, 1),
        mov_imm(R::R2, 20),
        mov_imm(R::R3, 300),
        load,
        add(R::R2),
        add(R::R3),
        add(R::R1),
        Insn::Exit,
    ];
    assert_eq!(both(&probing(&insns), &loads, 4000), 4021);
}

#[test]
fn an_interpreter_without_probe_loads_refuses_the_program() {
    let load = Insn::Load { size: Size::B4, signed: false, dst: R::R0, base: R::R1, offset: 4 };
    let parts = probing(&[mov_imm(R::R0, 1), load, Insn::Exit]);
    let error = Code::new(parts, &Linkage::default()).unwrap_err();
    assert_eq!(error, Error::NoProbes { slot: 1 });
    assert!(error.to_string().contains("Interpreter::probing"), "{error}");
}

#[test]
fn unsupported_facts_are_refused() {
    let loads = Arc::new(Arena::new(Config::new()).unwrap().loads().unwrap());
    let refused = |parts: Parts| {
        Code::with(parts, &Linkage::default(), Some(Arc::clone(&loads))).unwrap_err().to_string()
    };
    let store = Insn::Store { size: Size::B8, base: R::R10, offset: -8, src: Operand::Imm(1) };
    let mut parts = parts(&[mov_imm(R::R0, 1), store, Insn::Exit]);
    parts.facts[1].probe = true;
    assert!(
        refused(parts.clone()).contains("instruction 1 is an access that may fault but is not a plain load")
    );
    let skep_abi::Context::Struct(layout) = skep_abi::XDP.context else { panic!("a structure") };
    parts.facts[1] = Fact { reached: true, foreign: Some(&layout.fields[0]), ..Fact::default() };
    assert!(refused(parts.clone()).contains("instruction 1 is an access to a field that the context lacks"));
    parts.facts[1] = Fact { reached: true, arena: true, ..Fact::default() };
    assert!(refused(parts.clone()).contains("about an arena, and no arena is linked"));
    parts.insns[1] = Insn::AddrSpaceCast { dst: R::R0, src: R::R1, to: 0, from: 1 };
    parts.facts[1] = Fact { reached: true, ..Fact::default() };
    assert!(refused(parts.clone()).contains("about an arena, and no arena is linked"));
    parts.insns[1] = mov_imm(R::R0, 2);
    parts.facts[1].arena = true;
    assert!(refused(parts).contains("only loads, stores and atomic operations access an arena"));
}
