//! The dissector as it is loaded, in its four variants.

use super::packets::{Case, Flow};
use crate::Result;
use crate::programs::EXAMPLES;
use serde_json::{Value, json};
use skep::abi::SCHED_CLS;
use skep::isa::{AluOp, Insn, Operand, Reg, Width};
use skep::{Engine, Map, Object, Packet, Program, Runtime, UpdateFlags};
use std::sync::Arc;

/// `TC_ACT_OK`: a flow was found.
pub(super) const DISSECTED: u32 = 0;

/// Bytes of `struct found`.
const FOUND: usize = 48;

/// One way to build the dissector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// Parsers that jump to each other, or a loop that calls them.
    pub(super) tail_calls: bool,
    /// Whether flows are stored in a hash map.
    pub(super) map_update: bool,
}

/// All of them.
pub(super) const VARIANTS: [Variant; 4] = [
    Variant { tail_calls: true, map_update: true },
    Variant { tail_calls: true, map_update: false },
    Variant { tail_calls: false, map_update: true },
    Variant { tail_calls: false, map_update: false },
];

/// A program that returns at once.
pub(super) fn floor() -> Object {
    let src = Operand::Imm(DISSECTED.cast_signed());
    let insns = vec![Insn::Alu { width: Width::W64, op: AluOp::Mov, dst: Reg::R0, src }, Insn::Exit];
    Object::from_insns("floor", &SCHED_CLS, insns)
}

impl Variant {
    /// The key of the row for a packet.
    pub(super) fn key(self, packet: &str) -> Value {
        json!({"packet": packet, "tail_calls": self.tail_calls, "map_update": self.map_update})
    }

    /// The object with these parsers.
    pub(super) fn object(self) -> Result<Object> {
        let name = if self.tail_calls { "dissector" } else { "dissector_calls" };
        let (_, bytes) =
            EXAMPLES.iter().find(|(known, _)| *known == name).ok_or("the dissector is missing")?;
        Ok(Object::parse(bytes)?)
    }

    /// The program that packets are given to.
    pub(super) fn entry(self) -> &'static str {
        if self.tail_calls { "dissect" } else { "dissect_by_calls" }
    }

    /// The constant `store` of the source.
    pub(super) fn store(self) -> [u8; 4] {
        u32::from(self.map_update).to_ne_bytes()
    }
}

/// A dissector in skep, with its own maps and its own place.
pub(super) struct Loaded {
    pub(super) entry: Program,
    flows: Arc<Map>,
    found: Arc<Map>,
    variant: Variant,
    /// The other parsers, and what keeps them reachable.
    _module: skep::Module,
}

impl Loaded {
    pub(super) fn new(runtime: &Runtime, variant: Variant) -> Result<Self> {
        let module = runtime.linker(&variant.object()?).variable("store", &variant.store()).load()?;
        let entry = module.program(variant.entry()).ok_or("the dissector has another name")?.clone();
        let map = |name| module.map(name).cloned().ok_or("the dissector has other maps");
        Ok(Self { entry, flows: map("flows")?, found: map("found")?, variant, _module: module })
    }

    /// Expects it to find in a packet what is to be found, and nothing else.
    pub(super) fn check(&self, engine: Engine, case: &Case) -> Result<()> {
        let found = self.find(engine, case);
        found.map_err(|error| format!("{}, {:?}: the {engine:?} {error}", case.name, self.variant).into())
    }

    fn find(&self, engine: Engine, case: &Case) -> Result<()> {
        let known: Vec<_> = self.flows.entries().collect();
        for (key, _) in known {
            self.flows.delete(&key)?;
        }
        // What an earlier packet left must not matter.
        self.found.update(&[0; 4], &vec![0xff; self.found.host_value_size()], UpdateFlags::Any)?;

        let result = self.entry.run_with(engine, &mut Packet::new(&case.frame))? as u32;
        if (result == DISSECTED) != case.flow.is_some() {
            return Err(format!("returns {}", result.cast_signed()).into());
        }
        let stored: Vec<_> = self.flows.entries().collect();
        let wanted = case.flow.filter(|_| self.variant.map_update);
        let wanted: Vec<_> = wanted.iter().map(|flow| (flow.key.to_vec(), flow.value.to_vec())).collect();
        if stored != wanted {
            return Err(format!("stores {stored:?}, not {wanted:?}").into());
        }
        let Some(Flow { key, value }) = case.flow else { return Ok(()) };
        // It has a value for each CPU, and the program wrote one of them.
        let left = self.found.lookup(&[0; 4])?.unwrap_or_default();
        match left.chunks(FOUND).any(|one| *one == [&key[..], &value].concat()) {
            true => Ok(()),
            false => Err(format!("leaves {left:x?}, not {:x?}", case.flow).into()),
        }
    }
}
