//! The abstract machine on one path: the frames, with their registers and stacks.

use crate::domain::loops::LoopCounts;
use crate::domain::resources::{Depths, Resources};
use crate::domain::scalar::Scalar;
use crate::domain::stack::Stack;
use crate::domain::value::{Kind, Value};
use skep_abi::Callback;
use skep_isa::Reg;

/// The most frames that calls may nest, the program's own included.
pub(crate) const MAX_FRAMES: usize = 8;

/// The registers in which calls pass arguments.
pub(crate) const ARGS: [Reg; 5] = [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5];

/// One function in progress.
#[derive(Clone, Default)]
pub(crate) struct Frame {
    pub(crate) regs: Registers,
    pub(crate) stack: Stack,
    /// Index of the function.
    pub(crate) function: u32,
    /// Slot of the call that made this frame; in the first frame, the number of the root.
    pub(crate) call_slot: u32,
    /// The kind of its call, if a helper called it.
    pub(crate) callback: Option<Callback>,
    /// The sections of its caller at the call.
    pub(crate) sections: Depths,
}

/// The registers of a frame.
#[derive(Clone, Copy)]
pub(crate) struct Registers(pub(crate) [Value; 11]);

impl Default for Registers {
    fn default() -> Self {
        Self([Value::UNINIT; 11])
    }
}

impl Registers {
    /// The registers with a value but `r10`, one bit each.
    pub(crate) fn made(&self) -> u16 {
        let bit = |(at, value): (usize, &Value)| u16::from(value.is_made()) << at;
        self.0[..10].iter().enumerate().map(bit).sum()
    }
}

impl std::ops::Index<Reg> for Registers {
    type Output = Value;

    fn index(&self, reg: Reg) -> &Value {
        &self.0[reg.index()]
    }
}

impl std::ops::IndexMut<Reg> for Registers {
    fn index_mut(&mut self, reg: Reg) -> &mut Value {
        &mut self.0[reg.index()]
    }
}

impl Frame {
    fn copy_from(&mut self, source: &Self) {
        self.regs = source.regs;
        self.stack.clone_from(&source.stack);
        self.function = source.function;
        self.call_slot = source.call_slot;
        self.callback = source.callback;
        self.sections = source.sections;
    }
}

/// The machine on one path. Popped frames are kept for reuse.
#[derive(Default)]
pub(crate) struct State {
    frames: Vec<Frame>,
    depth: usize,
    /// What the path must give back.
    pub(crate) resources: Resources,
    /// The constructs that end by themselves, with their iterations.
    pub(crate) loops: LoopCounts,
}

impl State {
    /// Forgets everything and enters a function for a root of the walk.
    pub(crate) fn start(&mut self, function: u32, root: u32) {
        self.depth = 0;
        self.resources.clear();
        self.loops.clear();
        self.push(function, root);
    }

    /// Becomes a copy of `source`, reusing its own allocations.
    pub(crate) fn copy_from(&mut self, source: &Self) {
        self.depth = source.depth;
        self.resources.copy_from(&source.resources);
        self.loops.copy_from(&source.loops);
        for (at, frame) in source.frames().iter().enumerate() {
            match self.frames.get_mut(at) {
                Some(mine) => mine.copy_from(frame),
                None => self.frames.push(frame.clone()),
            }
        }
    }

    /// The frames, outermost first.
    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames[..self.depth]
    }

    pub(crate) fn frames_mut(&mut self) -> &mut [Frame] {
        &mut self.frames[..self.depth]
    }

    /// Index of the innermost frame.
    pub(crate) fn top_index(&self) -> u8 {
        (self.depth - 1) as u8
    }

    pub(crate) fn top(&self) -> &Frame {
        &self.frames[self.depth - 1]
    }

    pub(crate) fn top_mut(&mut self) -> &mut Frame {
        &mut self.frames[self.depth - 1]
    }

    pub(crate) fn reg(&self, reg: Reg) -> &Value {
        &self.top().regs[reg]
    }

    pub(crate) fn reg_mut(&mut self, reg: Reg) -> &mut Value {
        &mut self.top_mut().regs[reg]
    }

    /// Enters a function with nothing but its frame pointer.
    pub(crate) fn push(&mut self, function: u32, call_slot: u32) {
        if self.depth == self.frames.len() {
            self.frames.push(Frame::default());
        }
        let frame = &mut self.frames[self.depth];
        frame.regs = Registers::default();
        frame.regs[Reg::R10] = Value::pointer(Kind::Stack { frame: self.depth as u8 }, 0);
        frame.stack.clear();
        frame.function = function;
        frame.call_slot = call_slot;
        frame.callback = None;
        frame.sections = self.resources.depths();
        self.depth += 1;
    }

    /// Leaves the innermost function.
    pub(crate) fn pop(&mut self) {
        self.depth -= 1;
        self.loops.leave_frame(self.depth as u8);
    }

    /// About how many bytes of memory it holds.
    pub(crate) fn bytes(&self) -> usize {
        let frame = |frame: &Frame| size_of::<Frame>() + size_of_val(&*frame.stack.cells);
        self.frames().iter().map(frame).sum::<usize>()
            + size_of_val(self.loops.as_slice())
            + self.resources.bytes()
    }

    /// Calls `change` for every value in registers and stacks that `wanted` selects.
    pub(crate) fn change_values(
        &mut self,
        wanted: impl Fn(&Value) -> bool,
        mut change: impl FnMut(&mut Value),
    ) {
        for frame in self.frames_mut() {
            for value in &mut frame.regs.0 {
                if wanted(value) {
                    change(value);
                }
            }
            for at in 0..frame.stack.cells.len() {
                if wanted(&frame.stack.cells[at].value) {
                    let mut value = *frame.stack.cells[at].value;
                    change(&mut value);
                    frame.stack.set_cell(at, value);
                }
            }
        }
    }

    /// Narrows every scalar linked to `id` by `num`, each at its own distance from `offset`. False if one of them
    /// cannot have that value.
    pub(crate) fn narrow_linked(&mut self, id: u32, offset: i32, num: &Scalar) -> bool {
        use skep_isa::{AluOp, Width};
        let mut possible = true;
        self.change_values(
            |value| value.id == id && value.is_scalar(),
            |value| {
                let distance = i64::from(value.offset) - i64::from(offset);
                let implied = if distance == 0 {
                    *num
                } else {
                    num.alu(AluOp::Add, Width::W64, &Scalar::constant(distance as u64))
                };
                match value.num.meet(&implied) {
                    Some(met) => value.num = met,
                    None => possible = false,
                }
            },
        );
        possible
    }
}
