//! A generated program, ready for a verifier.

use std::fmt;
use std::sync::Arc;

use skep_abi::{
    Entry, Function, MapDef, MapKind, ProgramSource, RAW, SCHED_CLS, SpecialField, SpecialKind, XDP,
};
use skep_isa::{Imm64, Insn, Operand};
use skep_verifier::Unverified;

/// The input of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// A buffer of that many bytes.
    Buffer {
        /// Its length.
        len: u32,
    },
    /// A packet, as XDP programs see it.
    Xdp,
    /// A packet in a socket buffer, as classifiers see it.
    Skb,
}

impl Flavour {
    /// Whether programs receive a packet.
    pub const fn has_packet(self) -> bool {
        matches!(self, Self::Xdp | Self::Skb)
    }
}

/// A generated program.
#[derive(Clone, Debug)]
pub struct TestProgram {
    /// Its instructions.
    pub insns: Vec<Insn>,
    /// The first slots of its functions, ascending from 0.
    pub functions: Vec<u32>,
    /// Its input.
    pub flavour: Flavour,
}

/// Index of the array of structures in [`maps`].
pub(crate) const ARRAY: u32 = 0;
/// Index of the array of one element, whose value programs address directly.
pub(crate) const GLOBALS: u32 = 1;
/// Index of the per-CPU array.
pub(crate) const PERCPU: u32 = 2;
/// Index of the map that is not an array.
pub(crate) const TABLE: u32 = 3;
/// Index of the array of maps.
pub(crate) const OUTER: u32 = 4;
/// Index of the array of values with timers.
pub(crate) const TIMED: u32 = 5;
/// The offset of the timer in their values; a program may access the bytes before it.
pub(crate) const TIMER_AT: i32 = 16;
/// Number of maps that the array of maps may hold.
pub(crate) const INNER_MAPS: usize = 2;

/// The definition of the inner maps.
pub(crate) fn inner() -> MapDef {
    MapDef::new("inner", MapKind::Array, 4, 40, 3)
}

/// The maps that programs may name.
pub fn maps() -> Vec<MapDef> {
    let map = |name, kind, key_size, value_size, max_entries| {
        MapDef::new(name, kind, key_size, value_size, max_entries)
    };
    vec![
        map("array", MapKind::Array, 4, 48, 5),
        map("globals", MapKind::Array, 4, 64, 1),
        map("percpu", MapKind::PercpuArray, 4, 16, 3),
        map("table", MapKind::Hash, 8, 24, 4),
        MapDef { inner: Some(Box::new(inner())), ..map("outer", MapKind::ArrayOfMaps, 4, 4, 4) },
        MapDef {
            fields: vec![SpecialField { kind: SpecialKind::Timer, offset: TIMER_AT as u32, size: 16 }],
            ..map("timed", MapKind::Array, 4, 32, 3)
        },
    ]
}

impl TestProgram {
    /// The numbers in it, at which it may behave specially.
    pub fn hints(&self) -> Vec<u64> {
        let number = |insn: &Insn| match *insn {
            Insn::Alu { src: Operand::Imm(imm), .. } | Insn::JumpIf { src: Operand::Imm(imm), .. } => {
                Some(i64::from(imm) as u64)
            }
            Insn::LoadImm64 { value: Imm64::Value(value), .. } => Some(value),
            _ => None,
        };
        let mut hints: Vec<u64> = self.insns.iter().filter_map(number).collect();
        hints.sort_unstable();
        hints.dedup();
        hints
    }

    /// The program as a loader would hand it to the verifier.
    pub fn unverified(&self) -> Unverified {
        let (program_type, entry) = match self.flavour {
            Flavour::Buffer { len } => (&RAW, Entry::Buffer { len }),
            Flavour::Xdp => (&XDP, Entry::Context),
            Flavour::Skb => (&SCHED_CLS, Entry::Context),
        };
        let function = |(number, &start): (usize, &u32)| Function::new(format!("f{number}"), start, false);
        Unverified {
            source: ProgramSource {
                functions: self.functions.iter().enumerate().map(function).collect(),
                ..ProgramSource::new("random", program_type, self.insns.clone())
            },
            maps: Arc::from(maps()),
            entry,
        }
    }
}

impl fmt::Display for TestProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "; {:?}, functions at {:?}", self.flavour, self.functions)?;
        skep_isa::disassemble(&self.insns).fmt(f)
    }
}
