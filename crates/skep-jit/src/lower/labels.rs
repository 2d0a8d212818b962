//! Labels of a program's code. Those below the number of instructions are their slots; functions, exits and callbacks
//! follow.

use crate::layout::Label;

/// What labels mean.
#[derive(Clone, Copy)]
pub(super) struct Labels {
    pub(super) slots: usize,
    pub(super) functions: usize,
    pub(super) callbacks: usize,
    /// Places beside the program's own slots: see `lower::ends`.
    pub(super) asides: usize,
}

impl Labels {
    pub(super) fn slot(self, slot: usize) -> Label {
        slot as Label
    }

    /// After the last function.
    pub(super) fn end(self) -> Label {
        self.slots as Label
    }

    /// The target of calls of a function. Jumps to its first slot skip the prologue.
    pub(super) fn entry(self, function: usize) -> Label {
        (self.slots + 1 + function) as Label
    }

    /// The exit of a function.
    pub(super) fn exit(self, function: usize) -> Label {
        (self.slots + 1 + self.functions + function) as Label
    }

    /// Where hosts enter the program's first function, if that begins with a branch that may be replaced: tail calls go
    /// behind it.
    pub(super) fn start(self) -> Label {
        (self.slots + 1 + 2 * self.functions) as Label
    }

    /// The target of jumps that are never taken.
    pub(super) fn trap(self) -> Label {
        self.start() + 1
    }

    /// Where helpers enter a function whose address is taken, by its number among those.
    pub(super) fn callback(self, number: usize) -> Label {
        self.trap() + 1 + number as Label
    }

    /// A place beside the slots, by its number.
    pub(super) fn aside(self, number: usize) -> Label {
        self.callback(self.callbacks) + number as Label
    }

    pub(super) fn count(self) -> usize {
        self.aside(self.asides) as usize
    }
}
