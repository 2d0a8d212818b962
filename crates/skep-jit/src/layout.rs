//! Code whose branches have no length yet, and the algorithm that gives them one.
//!
//! Emission appends bytes once. A branch is not among them: it is a *gap*, a place between two bytes with a
//! target, whose length is decided when all targets are known. Labels therefore count gaps as well as bytes.
//!
//! ```text
//!   raw bytes   48 01 c7 | 83 c0 04 85 ff | 89 f8 c3
//!                        ^ gap 0          ^ gap 1        label 3 = (byte 3, behind 1 gap)
//! ```
//!
//! Lengths start at the smallest form, which for a plain jump is nothing at all (its target may turn out to
//! be the next byte), and every round lengthens those that do not reach. They never shrink, so there are at
//! most as many rounds as lengthenings, and the round that lengthens none has checked every branch against
//! the very layout that is written out. What would break it: letting a branch shrink, or letting padding
//! differ between the check and the writing. Padding may shrink and grow between rounds; it is no branch.

use crate::arch::backend as arch;

/// A place that branches lead to. Slots of the program come first, then one exit for each function.
pub(crate) type Label = u32;

/// What a gap becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// A jump if the condition of this number holds, always with `None`.
    Jump {
        /// The architecture's number of the condition.
        condition: Option<u8>,
        /// Where to.
        target: Label,
    },
    /// Padding before a loop, so that what the processor fetches together lies together. The loop ends where
    /// this label is.
    LoopHead {
        /// The slot behind the loop.
        end: Label,
    },
}

#[derive(Clone, Copy, Debug)]
struct Sized {
    gap: Gap,
    /// Raw bytes before it.
    at: u32,
    /// Its length, never shrinking for jumps.
    len: u32,
    /// Lengths of all gaps before it in the current round.
    shift: u32,
}

/// Where a label is: raw bytes and gaps before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    at: u32,
    gaps: u32,
}

/// Four bytes to be completed with a distance once addresses are known.
#[derive(Clone, Copy, Debug)]
struct Patch {
    /// Place of the four bytes.
    place: Place,
    target: Target,
}

/// What a distance leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A label of this code.
    Label(Label),
    /// An address of the process, which must be in reach.
    Address(u64),
}

/// Code under construction.
#[derive(Debug)]
pub(crate) struct Assembly {
    raw: Vec<u8>,
    gaps: Vec<Sized>,
    labels: Vec<Place>,
    patches: Vec<Patch>,
}

impl Assembly {
    /// No code, and so many labels. Every label that is used must be bound; `insns` is a hint.
    pub(crate) fn new(labels: usize, insns: usize) -> Self {
        Self {
            raw: Vec::with_capacity(insns * 5 + 64),
            gaps: Vec::with_capacity(insns / 4 + 8),
            labels: vec![Place::default(); labels],
            patches: Vec::new(),
        }
    }

    /// Appends the first `len` bytes.
    #[inline]
    pub(crate) fn put(&mut self, bytes: [u8; 16], len: usize) {
        let end = self.raw.len() + len;
        // All sixteen are copied, for a copy of constant length is one instruction.
        self.raw.extend_from_slice(&bytes);
        self.raw.truncate(end);
    }

    /// Raw bytes so far.
    pub(crate) fn here(&self) -> usize {
        self.raw.len()
    }

    /// A raw byte that was appended since the last gap.
    pub(crate) fn byte_mut(&mut self, at: usize) -> &mut u8 {
        &mut self.raw[at]
    }

    /// Says that the label is here.
    #[inline]
    pub(crate) fn bind(&mut self, label: Label) {
        let place = self.place();
        self.labels[label as usize] = place;
    }

    /// Leaves a gap here.
    pub(crate) fn gap(&mut self, gap: Gap) {
        let at = self.raw.len() as u32;
        let len = match gap {
            Gap::Jump { condition, .. } => arch::jump_start(condition),
            Gap::LoopHead { .. } => 0,
        };
        self.gaps.push(Sized { gap, at, len, shift: 0 });
    }

    /// Has the four bytes before this point completed with the distance to the target.
    pub(crate) fn patch_last(&mut self, target: Target) {
        let place = self.place();
        self.patches.push(Patch { place: Place { at: place.at - 4, ..place }, target });
    }

    /// Gives every gap its length; what it returns can be written anywhere that is aligned to a cache line.
    pub(crate) fn relax(mut self) -> Layout {
        while self.round() {}
        Layout(self)
    }

    fn place(&self) -> Place {
        Place { at: self.raw.len() as u32, gaps: self.gaps.len() as u32 }
    }

    /// One round of lengthening; whether any branch was lengthened.
    fn round(&mut self) -> bool {
        let mut shift = 0;
        for i in 0..self.gaps.len() {
            self.gaps[i].shift = shift;
            if let Gap::LoopHead { end } = self.gaps[i].gap {
                let start = self.gaps[i].at + shift;
                // Gaps inside the loop still have the last round's shifts, which is near enough.
                let size = self.loop_size(i, end);
                self.gaps[i].len = arch::loop_padding(start, size);
            }
            shift += self.gaps[i].len;
        }
        let mut lengthened = false;
        for i in 0..self.gaps.len() {
            let Sized { gap: Gap::Jump { condition, target }, at, len, shift } = self.gaps[i] else {
                continue;
            };
            let place = self.labels[target as usize];
            let distance = i64::from(self.resolve(place)) - i64::from(at + shift);
            let needed = arch::jump_len(condition, distance, place.gaps > i as u32, len);
            if needed > len {
                self.gaps[i].len = needed;
                lengthened = true;
            }
        }
        lengthened
    }

    /// Bytes between a loop head's gap and the loop's end, as far as they are known.
    fn loop_size(&self, head: usize, end: Label) -> u32 {
        let end = self.labels[end as usize];
        let gaps: u32 = self.gaps[head + 1..end.gaps as usize].iter().map(|gap| gap.len).sum();
        end.at - self.gaps[head].at + gaps
    }

    /// The final offset of a place, from the current shifts.
    fn resolve(&self, place: Place) -> u32 {
        place.at
            + place.gaps.checked_sub(1).map_or(0, |last| {
                let last = &self.gaps[last as usize];
                last.shift + last.len
            })
    }
}

/// Code of which only the address is missing.
#[derive(Debug)]
pub(crate) struct Layout(Assembly);

impl Layout {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.resolve(self.0.place()) as usize
    }

    /// The offset of a label in bytes.
    pub(crate) fn offset(&self, label: Label) -> u32 {
        self.0.resolve(self.0.labels[label as usize])
    }

    /// Writes the code, which will run at `address`, a multiple of a cache line. `None` where the buffer is
    /// shorter than [`Layout::len`] or a target is out of reach.
    pub(crate) fn write(&self, address: u64, out: &mut [u8]) -> Option<()> {
        let code = &self.0;
        let mut done = 0;
        for sized in &code.gaps {
            let at = sized.at as usize;
            let start = at + sized.shift as usize;
            out.get_mut(done + sized.shift as usize..start)?.copy_from_slice(&code.raw[done..at]);
            done = at;
            let gap = out.get_mut(start..start + sized.len as usize)?;
            match sized.gap {
                Gap::Jump { condition, target } => {
                    let distance = i64::from(self.offset(target)) - start as i64;
                    arch::write_jump(condition, distance, gap);
                }
                Gap::LoopHead { .. } => arch::write_padding(gap),
            }
        }
        let rest = self.len() - (code.raw.len() - done);
        out.get_mut(rest..self.len())?.copy_from_slice(&code.raw[done..]);
        for patch in &code.patches {
            let at = code.resolve(patch.place) as usize;
            let to = match patch.target {
                Target::Label(label) => address.wrapping_add(self.offset(label).into()),
                Target::Address(to) => to,
            };
            let distance = to.wrapping_sub(address.wrapping_add(at as u64)).cast_signed();
            arch::write_distance(distance, out.get_mut(at..at + 4)?)?;
        }
        Some(())
    }
}
