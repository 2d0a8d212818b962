//! A place in a recording, and how it moves.

use crate::breakpoint::{Breakpoint, line_of};
use crate::recording::{Recording, Step};

/// Which way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As the program ran.
    Forward,
    /// To what was before.
    Back,
}

/// A place in a recording. Moves return whether there was anywhere to go.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    recording: &'a Recording,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the first step.
    pub fn new(recording: &'a Recording) -> Self {
        Self { recording, at: 0 }
    }

    /// The recording.
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }

    /// The number of the step, from 0.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The step.
    pub fn step(&self) -> &'a Step {
        &self.recording.steps[self.at]
    }

    /// Whether it is the last step that was recorded.
    pub fn is_at_end(&self) -> bool {
        self.at + 1 >= self.recording.steps.len()
    }

    /// The index of its source line's record in [`skep::Verified::lines`].
    pub fn line(&self) -> Option<usize> {
        line_of(self.recording, self.at)
    }

    fn depth(&self, at: usize) -> usize {
        self.recording.steps[at].frames.len()
    }

    fn last(&self) -> usize {
        self.recording.steps.len() - 1
    }

    /// The step beside another one.
    fn beside(&self, at: usize, way: Way) -> Option<usize> {
        match way {
            Way::Forward => (at < self.last()).then_some(at + 1),
            Way::Back => at.checked_sub(1),
        }
    }

    fn go(&mut self, to: Option<usize>, way: Way) -> bool {
        let end = if way == Way::Forward { self.last() } else { 0 };
        let moved = to.is_some() || self.at != end;
        self.at = to.unwrap_or(end);
        moved
    }

    /// The first step in that direction that is right.
    fn find(&self, way: Way, mut is_right: impl FnMut(usize) -> bool) -> Option<usize> {
        let mut at = self.beside(self.at, way)?;
        while !is_right(at) {
            at = self.beside(at, way)?;
        }
        Some(at)
    }

    /// One instruction.
    pub fn instruction(&mut self, way: Way) -> bool {
        match self.beside(self.at, way) {
            Some(at) => {
                self.at = at;
                true
            }
            None => false,
        }
    }

    /// To another source line. `over`: not into functions that are called here. Backwards it is the beginning of that
    /// line, so that forward and back lead to the same place.
    pub fn source(&mut self, way: Way, over: bool) -> bool {
        let (depth, line) = (self.depth(self.at), self.line());
        let is_other = |at: usize| {
            let here = self.depth(at);
            (!over || here <= depth) && (here != depth || line_of(self.recording, at) != line)
        };
        // Backwards from the middle of a line is to its beginning first.
        let first = self.start_of_line(self.at, over);
        if way == Way::Back && first < self.at {
            self.at = first;
            return true;
        }
        let found = self.find(way, is_other);
        let found = match way {
            Way::Forward => found,
            Way::Back => found.map(|at| self.start_of_line(at, over)),
        };
        self.go(found, way)
    }

    /// The first of the steps before this one that are of the same line and function. `over`: with those of functions
    /// that are called in between.
    fn start_of_line(&self, from: usize, over: bool) -> usize {
        let (depth, line) = (self.depth(from), line_of(self.recording, from));
        let (mut first, mut at) = (from, from);
        while let Some(before) = at.checked_sub(1) {
            let here = self.depth(before);
            if here == depth && line_of(self.recording, before) == line {
                first = before;
            } else if !(over && here > depth) {
                break;
            }
            at = before;
        }
        first
    }

    /// To the end of the function, or back to its call: where the one that called it goes on, or calls it.
    pub fn finish(&mut self, way: Way) -> bool {
        let depth = self.depth(self.at);
        let found = self.find(way, |at| self.depth(at) < depth);
        self.go(found, way)
    }

    /// To the next step at which a breakpoint is, or to the end. Returns which one it is.
    pub fn proceed(&mut self, way: Way, breakpoints: &[(usize, Breakpoint)]) -> Option<usize> {
        let hit = |at: usize| {
            let mut hit = breakpoints.iter().filter(|(_, breakpoint)| breakpoint.hits(self.recording, at));
            hit.next().map(|(number, _)| *number)
        };
        let found = self.find(way, |at| hit(at).is_some());
        let number = found.and_then(hit);
        self.go(found, way);
        number
    }
}
