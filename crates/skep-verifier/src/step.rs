//! Transfer functions: what one instruction demands of a state, and how it changes it.
//!
//! [`Transfer`] holds those of all instructions. A step reads the program and the host's types, changes one state, and
//! records facts for compilers. It knows nothing about other paths: where a path splits, it leaves the other half
//! behind as a [`fork::Fork`], which the explorer collects.

pub(crate) mod access;
pub(crate) mod alu;
pub(crate) mod arena;
pub(crate) mod args;
pub(crate) mod branch;
pub(crate) mod call;
pub(crate) mod callback;
pub(crate) mod dynptr;
pub(crate) mod ends;
pub(crate) mod entry;
pub(crate) mod exception;
pub(crate) mod fork;
pub(crate) mod frames;
pub(crate) mod global;
pub(crate) mod iterator;
pub(crate) mod kfunc;
pub(crate) mod maps;
pub(crate) mod memory;
pub(crate) mod notes;
pub(crate) mod object;
pub(crate) mod own;
pub(crate) mod packet;
pub(crate) mod pointer;
pub(crate) mod printed;
pub(crate) mod region;
pub(crate) mod resources;
pub(crate) mod special;
pub(crate) mod stale;
pub(crate) mod tail;

use crate::domain::state::State;
use crate::domain::value::{Kind, MAX_OFFSET, Value};
use crate::program::cfg::next_slot;
use crate::program::env::Env;
use crate::program::facts::Record;
use crate::program::roots::RootKind;
use crate::program::violation::{Checked, Code, Violation};
use fork::Forks;
use notes::Notes;
use object::Types;
use skep_isa::{CallTarget, Imm64, Insn};

/// The transfer functions of instructions.
pub(crate) struct Transfer<'a> {
    pub(crate) env: Env<'a>,
    /// The host's types, and what was looked up in them so far.
    pub(crate) types: Types<'a>,
    /// The facts for compilers.
    pub(crate) record: Record,
    /// The instruction that is walked.
    pub(crate) slot: usize,
    /// The kind of root that the walk began at.
    pub(crate) root: RootKind,
    /// Whether some slice of a dynptr may be a copy in the stack.
    pub(crate) copies_in_stack: bool,
    pub(crate) last_id: u32,
    pub(crate) forks: Forks,
    pub(crate) notes: Notes,
}

/// Where a path goes after a step.
pub(crate) enum Next {
    To(usize),
    End,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(env: Env<'a>) -> Self {
        Self {
            types: Types::new(env.config.btf),
            record: Record::new(env.program.source.insns.len(), env.cfg),
            slot: 0,
            root: RootKind::Program,
            copies_in_stack: false,
            last_id: 0,
            forks: Forks::default(),
            notes: Notes::default(),
            env,
        }
    }

    /// A fresh id. A walk ends before they run out.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// Walks the instruction at [`Self::slot`].
    pub(crate) fn step(&mut self, state: &mut State) -> Checked<Next> {
        let insns = &self.env.program.source.insns[..];
        let insn = &insns[self.slot];
        match *insn {
            Insn::Alu { .. } | Insn::Neg { .. } | Insn::MovSx { .. } | Insn::Endian { .. } => {
                self.arithmetic(state, insn)?;
                return Ok(Next::To(self.slot + 1));
            }
            Insn::AddrSpaceCast { dst, src, to, from } => self.cast(state, dst, src, to, from)?,
            Insn::LoadImm64 { dst, value } => {
                let value = self.immediate(value)?;
                self.write(state, dst, value)?;
            }
            Insn::Load { size, signed, dst, base, offset } => {
                self.load(state, size, signed, dst, base, offset)?;
            }
            Insn::Store { size, base, offset, src } => self.store(state, size, base, offset, src)?,
            Insn::Atomic { .. } => self.atomic(state, insn)?,
            Insn::LoadAcquire { .. } | Insn::StoreRelease { .. } => self.ordered(state, insn)?,
            Insn::Jump { offset, .. } => return self.jump(offset),
            Insn::JumpIf { width, cond, dst, src, offset } => {
                return self.branch(state, width, cond, dst, src, offset);
            }
            Insn::Call { target: CallTarget::Helper(id) } => {
                self.call_helper(state, id)?;
                return Ok(Next::To(self.slot + 1));
            }
            Insn::Call { target: CallTarget::Local(offset) } => {
                return Ok(Next::To(self.call_local(state, offset)?));
            }
            Insn::Exit => {
                return Ok(match self.exit(state)? {
                    Some(slot) => Next::To(slot),
                    None => Next::End,
                });
            }
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
                return self.call_kfunc(state, id as u32);
            }
            Insn::CallReg { reg } => {
                let text = format!("calls through registers ({reg})");
                return Err(unsupported(text).in_linux("unknown opcode 8d"));
            }
            Insn::MayGoto { offset } => return self.may_goto(state, offset),
            Insn::LoadPacket { size, base, .. } => self.load_packet(state, size, base)?,
            Insn::LoadImm64Tail => {
                let text = "control reaches the second slot of a 64-bit immediate load";
                return Err(Violation::new(Code::Structure, text));
            }
        }
        Ok(Next::To(next_slot(insns, self.slot)))
    }

    fn immediate(&mut self, value: Imm64) -> Checked<Value> {
        match value {
            Imm64::Value(number) => Ok(Value::constant(number)),
            Imm64::Map(map) => {
                let def = self.named_map(map)?;
                self.check_map_of_sleeper(def)?;
                Ok(Value::pointer(Kind::Map { map }, 0))
            }
            Imm64::MapValue { map, offset } => {
                let def = self.named_map(map)?;
                if def.kind() == skep_abi::MapKind::Arena {
                    // Where the host's code finds that byte: a number, as all addresses in space 1.
                    return Ok(Value::UNKNOWN);
                }
                if def.kind() != skep_abi::MapKind::Array || def.at_least() == 0 {
                    let text =
                        format!("values of the map {}, a {}, have no fixed address", def.name(), def.kind());
                    return Err(Violation::new(Code::Structure, text));
                }
                if offset >= def.value_size() {
                    let text = format!(
                        "offset {offset} is outside of the {} bytes of {}",
                        def.value_size(),
                        def.name()
                    );
                    let words = match offset {
                        0..0x2000_0000 => format!(
                            "invalid access to map value pointer, value_size={} off={offset}",
                            def.value_size()
                        ),
                        _ => format!("direct value offset of {offset} is not allowed"),
                    };
                    return Err(Violation::new(Code::OutOfBounds, text).in_linux(words));
                }
                let offset = i32::try_from(offset).ok().filter(|at| i64::from(*at) < MAX_OFFSET);
                let Some(offset) = offset else {
                    return Err(Violation::new(
                        Code::OutOfBounds,
                        "the offset into the map's value is too large",
                    ));
                };
                Ok(Value::pointer(Kind::MapValue { map, maybe_null: false }, offset))
            }
            Imm64::MapFd(fd) | Imm64::MapFdValue { fd, .. } => Err(Violation::new(
                Code::Unsupported,
                format!("the map of file descriptor {fd} was not linked: maps are named by their index here"),
            )),
            Imm64::Variable { id, .. } => self.variable(id as u32),
            Imm64::Function(offset) => self.function_address(offset),
        }
    }
}

#[cold]
fn unsupported(what: impl std::fmt::Display) -> Box<Violation> {
    Violation::new(Code::Unsupported, format!("{what}: not supported yet"))
}
