//! Notes: which numbers a step relied on, and where it read and wrote the stack.
//!
//! The explorer keeps the notes of the current path, and follows it backwards once it has ended
//! ([`crate::explore::trail`]). A transfer function notes only what the instruction does not say by itself.

use crate::domain::needs::FrameNeeds;

/// One note about a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Note {
    /// A load reads these bytes of that frame's stack, and its result is made of them.
    Reads { frame: u8, start: u32, end: u32 },
    /// These bytes are read.
    Takes { frame: u8, start: u32, end: u32 },
    /// A store may write all bytes of these, or some.
    Writes { frame: u8, start: u32, end: u32, all: bool },
    /// A call overwrites these bytes with numbers that nobody knows.
    Fills { frame: u8, start: u32, end: u32 },
    /// The step relied on the number in these bytes.
    ReliesOn { frame: u8, start: u32, end: u32 },
    /// These numbers of that frame are linked to an operand of a branch, which may narrow them.
    Tied { frame: u8, regs: u16, stack: [u64; 2] },
    /// The state that was recorded before the step.
    Recorded(u32),
    /// The step may have relied on everything.
    Everything,
}

impl Note {
    /// [`Self::Tied`], in fewer bytes.
    pub(crate) fn tied(frame: u8, to: &FrameNeeds) -> Self {
        Self::Tied { frame, regs: to.regs, stack: [to.stack as u64, (to.stack >> 64) as u64] }
    }
}

/// The notes of the current path.
#[derive(Default)]
pub(crate) struct Notes {
    /// Those of all its steps, the last one's at the end.
    pub(crate) notes: Vec<Note>,
    /// Whether the step relied on the operands that its instruction names.
    pub(crate) relies: bool,
    /// Whether anybody will ask.
    pub(crate) wanted: bool,
}

impl Notes {
    #[inline]
    pub(crate) fn add(&mut self, note: Note) {
        if self.wanted {
            self.notes.push(note);
        }
    }
}
