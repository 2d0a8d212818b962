//! The walk: every path through the program, depth first, one abstract state at a time.
//!
//! ```text
//!   pending  [ path ][ path ][ path ]      branches whose other way is still to be walked
//!                              |
//!   pop -> step, step, join? -> covered: path ends
//!                             -> new: remembered, step, branch -> push the other way, step, ... exit
//! ```
//!
//! The walk ends when no path is left: then every instruction on every path was found safe for every value
//! that its state stands for. Loops are walked round by round; a state that repeats itself exactly would go
//! round for ever, and one that never does is stopped by the limit.

use crate::domain::branch::{assume, assume_not, holds};
use crate::domain::recorded::Recorded;
use crate::domain::rounds::Construct;
use crate::domain::scalar::Scalar;
use crate::domain::state::State;
use crate::domain::unique::Unique;
use crate::domain::value::{Kind, Value};
use crate::explore::guess::{Doubt, Guess};
use crate::explore::paths::{BOUND_LOOP, MAX_SPARE, MAX_WORK, Path, Turn};
use crate::explore::prune::{Memory, NONE, Visit};
use crate::explore::watch::Watch;
use crate::program::Subject;
use crate::program::assumed::MapView;
use crate::program::cfg::{Shape, next_slot, target};
use crate::program::config::Config;
use crate::program::facts::Record;
use crate::program::fault::{Code, Fault, Step};
use crate::program::flow::{Flow, Live};
use crate::program::roots::{Root, RootKind};
use crate::step::callback::enter_timer;
use crate::step::object::Types;
use skep_abi::{Context, Entry, ProgramType};
use skep_isa::{CallTarget, Cond, Imm64, Insn, Operand, Reg, Width};
use std::cell::OnceCell;

/// A walk over one program.
pub(crate) struct Walker<'a> {
    pub(crate) program: &'a Subject,
    pub(crate) config: &'a Config<'a>,
    pub(crate) shape: &'a Shape,
    flow: &'a Flow,
    /// The same of a program in which no paths meet, made where it is asked for.
    straight: OnceCell<Flow>,
    pub(crate) record: Record,
    /// The host's types.
    pub(crate) types: Types<'a>,
    pub(crate) memory: Memory,
    pub(crate) pending: Vec<Path>,
    /// Guesses that are not confirmed yet.
    pub(crate) guesses: Vec<Guess>,
    /// Why the last one was wrong.
    pub(crate) doubt: Option<Doubt>,
    /// How many values were copied for paths put aside.
    pub(crate) copied: u64,
    /// How many values may be compared and copied in all.
    pub(crate) max_work: u64,
    /// States for reuse.
    pub(crate) spare: Vec<State>,
    /// The branches of the current path on which both ways were open.
    pub(crate) history: Vec<Turn>,
    pub(crate) last_id: u32,
    pub(crate) walked: u64,
    pub(crate) peak_states: u64,
    pub(crate) peak_bytes: usize,
    /// The instruction that is being walked.
    pub(crate) slot: usize,
    /// The node of the remembered states that the current path is below.
    pub(crate) node: u32,
    /// Where walks begin: the program itself, and what the host calls by itself.
    pub(crate) roots: Unique<Root>,
    /// Which functions helpers call back, by the slot of the call.
    pub(crate) calls_back: Unique<(u32, u32)>,
    /// The root that is being walked.
    pub(crate) root: usize,
    /// Whether some slice of a dynptr may be a copy in the stack.
    pub(crate) copies_in_stack: bool,
    /// Who is told of every step.
    pub(crate) watch: Option<&'a mut (dyn Watch + 'a)>,
    /// Every state that was walked, for tests that compare them with what really happens.
    pub(crate) recorded: Option<Recorded>,
}

/// Where a path goes after a step.
enum Next {
    To(usize),
    End,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(
        program: &'a Subject,
        config: &'a Config<'a>,
        shape: &'a Shape,
        flow: &'a Flow,
    ) -> Self {
        let slots = program.source.insns.len();
        Self {
            program,
            config,
            shape,
            flow,
            straight: OnceCell::new(),
            types: Types::new(config.btf),
            record: Record::new(slots, shape.functions.len()),
            memory: Memory::new(slots, shape.joins(), config.max_state_bytes),
            pending: Vec::new(),
            guesses: Vec::new(),
            doubt: None,
            copied: 0,
            max_work: config.max_walked.saturating_mul(MAX_WORK),
            spare: Vec::new(),
            history: Vec::new(),
            last_id: 0,
            walked: 0,
            peak_states: 0,
            peak_bytes: 0,
            slot: 0,
            node: NONE,
            roots: roots(shape),
            root: 0,
            copies_in_stack: false,
            watch: None,
            calls_back: Unique::default(),
            recorded: (config.max_recorded > 0).then(|| Recorded::new(slots, config.max_recorded)),
        }
    }

    /// Walks everything.
    pub(crate) fn walk(&mut self) -> Step<()> {
        let mut state = State::default();
        while let Some(root) = self.roots.items().get(self.root).copied() {
            self.slot = self.shape.functions[root.function as usize].start;
            self.node = NONE;
            self.history.clear();
            state.start(root.function, self.root as u32);
            if let Some(watch) = &mut self.watch {
                watch.start();
            }
            self.enter_function(&mut state);
            match root.of {
                RootKind::Program => self.enter(&mut state)?,
                RootKind::Timer { map } => enter_timer(&mut state, map),
                RootKind::Global | RootKind::Exception => {
                    self.enter_global(&mut state, root.function as usize);
                }
            }
            self.walk_root(&mut state)?;
            self.root += 1;
        }
        self.check_chains()
    }

    pub(crate) fn insn(&self, slot: usize) -> Insn {
        self.program.source.insns[slot]
    }

    pub(crate) fn function_name(&self, function: usize) -> &str {
        self.program.source.functions.get(function).map_or("?", |function| &function.name)
    }

    /// What the host calls later, to be walked by itself.
    pub(crate) fn add_root(&mut self, root: Root) {
        self.roots.add(root);
    }

    pub(crate) fn root_kind(&self) -> RootKind {
        self.roots.items()[self.root].of
    }

    fn walk_root(&mut self, state: &mut State) -> Step<()> {
        loop {
            if let Err(fault) = self.walk_path(state) {
                self.retreat(state, fault)?;
                continue;
            }
            self.memory.close(self.node);
            self.confirm_guesses();
            let Some(path) = self.pending.pop() else { return Ok(()) };
            self.memory.pending_bytes -= path.bytes;
            let done = std::mem::replace(state, path.state);
            if self.spare.len() < MAX_SPARE {
                self.spare.push(done);
            }
            self.slot = path.slot;
            self.node = path.node;
            self.history.truncate(path.history);
            self.history.push(path.turn);
            if let Some(watch) = &mut self.watch {
                watch.resume(path.history, path.turn, path.slot);
            }
        }
    }

    pub(crate) fn program_type(&self) -> &'static ProgramType {
        self.program.source.program_type
    }

    /// What the program is attached to, where that is known.
    pub(crate) fn target(&self) -> Option<&'a str> {
        self.program.source.target.as_deref()
    }

    pub(crate) fn gpl_compatible(&self) -> bool {
        self.program.source.gpl_compatible
    }

    pub(crate) fn is_sleepable(&self) -> bool {
        self.program.source.sleepable
    }

    /// Whether `reg` is among what the future asks for behind the instruction.
    pub(crate) fn after(&self, of: impl Fn(&Live) -> u16, reg: Reg) -> bool {
        let behind = next_slot(&self.program.source.insns, self.slot);
        let flow = match self.flow.is_empty() {
            true => self.straight.get_or_init(|| Flow::of(self.program, self.shape, self.config)),
            false => self.flow,
        };
        of(flow.before(behind)) & 1 << reg.number() != 0
    }

    /// The map of that index in the object.
    pub(crate) fn outer_map(&self, index: u32) -> Step<MapView<'a>> {
        self.program.maps.get(index).ok_or_else(|| {
            Fault::new(Code::Structure, format!("there is no map of index {index} in the object"))
        })
    }

    /// A fresh id. A walk ends before they run out.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.last_id += 1;
        self.last_id
    }

    /// The registers at the program's start.
    fn enter(&mut self, state: &mut State) -> Step<()> {
        match (self.program.entry, self.program_type().context) {
            (Entry::Context, Context::Struct(_) | Context::Bytes { .. } | Context::Arguments { .. }) => {
                if let Context::Arguments { of } = self.program_type().context {
                    self.attach(of)?;
                }
                *state.reg_mut(Reg::R1) = Value::pointer(Kind::Context, 0)
            }
            (Entry::Buffer { len }, Context::Buffer) => {
                *state.reg_mut(Reg::R1) = Value::pointer(Kind::Buffer { bytes: len }, 0);
                *state.reg_mut(Reg::R2) = Value::constant(len.into());
            }
            (Entry::Context, Context::Buffer) => {
                let text = "programs of this type are given a buffer, whose length must be said";
                return Err(Fault::new(Code::Context, text));
            }
            (Entry::Buffer { .. }, _) => {
                let text = "programs of this type are given a context, not a buffer";
                return Err(Fault::new(Code::Context, text));
            }
        }
        Ok(())
    }

    /// Follows one path to its end.
    fn walk_path(&mut self, state: &mut State) -> Step<()> {
        loop {
            let arrival = self.shape.arrivals[self.slot];
            if arrival.is_join() {
                if arrival.calls_back {
                    self.enter_call(state);
                }
                match self.memory.visit(state, self.slot, self.node, self.flow) {
                    Visit::Covered => {
                        if let Some(watch) = &mut self.watch {
                            watch.covered(self.slot);
                        }
                        return Ok(());
                    }
                    Visit::Repeats => {
                        let text = "the loop comes round to here with nothing changed that it depends on, so it may never end";
                        return Err(Fault::new(Code::Loop, text).suggest(BOUND_LOOP));
                    }
                    Visit::New(node) => self.node = node,
                    Visit::Guessed { node, exact, invocation } => {
                        let before = std::mem::replace(&mut self.node, node);
                        self.guess(*exact, before, invocation);
                    }
                }
                self.note_peak();
                if let Some(watch) = &mut self.watch {
                    watch.remembered(self.slot);
                }
            }
            self.check_limits()?;
            if let Some(recorded) = &mut self.recorded {
                recorded.take(self.slot, state);
            }
            if let Some(watch) = &mut self.watch {
                watch.step(self.slot, state);
            }
            self.walked += 1;
            self.record.reached(self.slot);
            let insn = &self.program.source.insns[self.slot];
            if let Insn::Alu { .. } = insn {
                self.arithmetic(state, insn)?;
                self.slot += 1;
                continue;
            }
            match self.step(state)? {
                Next::To(slot) => self.slot = slot,
                Next::End => return Ok(()),
            }
        }
    }

    fn step(&mut self, state: &mut State) -> Step<Next> {
        let insns = &self.program.source.insns[..];
        let insn = &insns[self.slot];
        match *insn {
            Insn::Alu { .. } | Insn::Neg { .. } | Insn::MovSx { .. } | Insn::Endian { .. } => {
                self.arithmetic(state, insn)?;
                return Ok(Next::To(self.slot + 1));
            }
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
                let next = self.call_helper(state, id)?;
                return Ok(Next::To(next.unwrap_or(self.slot + 1)));
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
                if self.call_kfunc(state, id as u32)? {
                    return Ok(Next::End);
                }
            }
            Insn::CallReg { reg } => return Err(unsupported(format!("calls through registers ({reg})"))),
            Insn::MayGoto { offset } => return self.may_goto(state, offset),
            Insn::LoadPacket { size, base, .. } => self.load_packet(state, size, base)?,
            Insn::LoadImm64Tail => {
                let text = "control reaches the second slot of a 64-bit immediate load";
                return Err(Fault::new(Code::Structure, text));
            }
        }
        Ok(Next::To(next_slot(insns, self.slot)))
    }

    fn immediate(&mut self, value: Imm64) -> Step<Value> {
        match value {
            Imm64::Value(number) => Ok(Value::constant(number)),
            Imm64::Map(map) => {
                let def = self.named_map(map)?;
                self.check_map_of_sleeper(def)?;
                Ok(Value::pointer(Kind::Map { map }, 0))
            }
            Imm64::MapValue { map, offset } => {
                let def = self.named_map(map)?;
                if def.kind() != skep_abi::MapKind::Array || def.at_least() == 0 {
                    let text =
                        format!("values of the map {}, a {}, have no fixed address", def.name(), def.kind());
                    return Err(Fault::new(Code::Structure, text));
                }
                if offset >= def.value_size() {
                    let text = format!(
                        "offset {offset} is outside of the {} bytes of {}",
                        def.value_size(),
                        def.name()
                    );
                    return Err(Fault::new(Code::OutOfBounds, text));
                }
                let offset =
                    i32::try_from(offset).ok().filter(|at| i64::from(*at) < crate::domain::value::MAX_OFFSET);
                let Some(offset) = offset else {
                    return Err(Fault::new(
                        Code::OutOfBounds,
                        "the offset into the map's value is too large",
                    ));
                };
                Ok(Value::pointer(Kind::MapValue { map, maybe_null: false }, offset))
            }
            Imm64::MapFd(fd) | Imm64::MapFdValue { fd, .. } => Err(Fault::new(
                Code::Unsupported,
                format!("the map of file descriptor {fd} was not linked: maps are named by their index here"),
            )),
            Imm64::Variable { id, .. } => self.variable(id as u32),
            Imm64::Function(offset) => self.function_address(offset),
        }
    }

    fn jump(&self, offset: i32) -> Step<Next> {
        match target(self.slot, offset) {
            Some(to) => Ok(Next::To(to)),
            None => Err(Fault::new(Code::Structure, "the jump leads out of the program")),
        }
    }

    fn branch(
        &mut self,
        state: &mut State,
        width: Width,
        cond: Cond,
        dst: Reg,
        src: Operand,
        offset: i16,
    ) -> Step<Next> {
        // Most loops count in constants: those need no copies.
        if let Some(a) = state.reg(dst).as_constant()
            && let Some(b) = match src {
                Operand::Imm(imm) => Some(i64::from(imm) as u64),
                Operand::Reg(src) => state.reg(src).as_constant(),
            }
        {
            let taken = holds(cond, width, a, b);
            return self.turn((taken, !taken), offset);
        }
        let a = *self.look(state, dst)?;
        let b = self.operand(state, src)?;
        if !a.is_scalar() || !b.is_scalar() {
            let test = self.compare_pointers(width, cond, dst, src, &a, &b)?;
            if test.ways.0 && test.ways.1 {
                self.fork(state, offset, |other| {
                    test.taken.apply(other);
                    true
                })?;
            }
            if test.ways.1 {
                test.not_taken.apply(state);
            }
            return self.turn(test.ways, offset);
        }
        let taken = assume(cond, width, &a.num, &b.num);
        let not_taken = assume_not(cond, width, &a.num, &b.num);
        match (taken, not_taken) {
            (Some(taken), Some(not_taken)) => {
                self.fork(state, offset, |other| narrow(other, dst, &a, &taken.0, src, &b, &taken.1))?;
                if narrow(state, dst, &a, &not_taken.0, src, &b, &not_taken.1) {
                    self.turn((true, true), offset)
                } else {
                    Ok(Next::End)
                }
            }
            (Some(_), None) => self.turn((true, false), offset),
            (None, Some(_)) => self.turn((false, true), offset),
            // No number is here at all: the path is never taken.
            (None, None) => Ok(Next::End),
        }
    }

    /// Goes on after a conditional jump: not taken if that is possible.
    fn turn(&mut self, ways: (bool, bool), offset: i16) -> Step<Next> {
        self.record.branch(self.slot, !ways.1);
        if !ways.1 {
            return self.jump(offset.into());
        }
        if ways.0 {
            self.stay();
        }
        Ok(Next::To(self.slot + 1))
    }

    /// The program may go on, as often as the host lets it, or jump.
    fn may_goto(&mut self, state: &mut State, offset: i16) -> Step<Next> {
        self.fork(state, offset, |_| true)?;
        let of = Construct::MayGoto { frame: state.top_index() };
        let id = self.new_id();
        state.rounds.advance(of, id);
        self.turn((true, true), offset)
    }
}

/// Where every walk of the program begins; the program itself is the first.
fn roots(shape: &Shape) -> Unique<Root> {
    let exception = |function| Root { function: function as u32, of: RootKind::Exception };
    std::iter::once(Root::PROGRAM).chain(shape.exception_callback.map(exception)).collect()
}

/// Tells the compared registers, and all that is tied to them, what the comparison says. False if that is
/// impossible.
fn narrow(
    state: &mut State,
    dst: Reg,
    a: &Value,
    a_num: &Scalar,
    src: Operand,
    b: &Value,
    b_num: &Scalar,
) -> bool {
    let mut possible = true;
    if *a_num != a.num {
        state.reg_mut(dst).num = *a_num;
        if a.id != 0 {
            possible &= state.narrow_tied(a.id, a.offset, a_num);
        }
    }
    if let Operand::Reg(src) = src
        && *b_num != b.num
    {
        match state.reg(src).num.meet(b_num) {
            Some(num) => state.reg_mut(src).num = num,
            None => return false,
        }
        if b.id != 0 {
            possible &= state.narrow_tied(b.id, b.offset, b_num);
        }
    }
    possible
}

fn unsupported(what: impl std::fmt::Display) -> Box<Fault> {
    Fault::new(Code::Unsupported, format!("{what}: not supported yet"))
}
