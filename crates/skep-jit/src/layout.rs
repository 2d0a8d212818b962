//! Branch relaxation: code whose branches have no length yet, and the algorithm that gives them one.
//!
//! Emission appends bytes once. A branch is a *fragment* of variable length between two of these bytes; its length is
//! decided when all targets are known. So a label counts bytes and fragments.
//!
//! ```text
//!   raw bytes   48 01 c7 | 83 c0 04 85 ff | 89 f8 c3
//!                        ^ fragment 0          ^ fragment 1        label 3 = (byte 3, behind 1 fragment)
//! ```
//!
//! Each length starts at the shortest form. For a plain jump that is 0, since its target may be the next byte. Every
//! iteration lengthens the branches that do not reach. Branches never shrink, so a fixpoint is reached, and the last
//! iteration has checked every branch against the layout that is written. Two changes would break this: a branch
//! that shrinks, and padding that differs between the check and the writing. Between iterations padding may change.
//!
//! Ordinary code needs a few iterations. After a fixed number of them every branch gets its longest form, so that
//! time is linear in the length of the code, whatever the program.

mod encoding;

pub(crate) use encoding::Encoding;

/// Iterations before every branch is made long.
const MAX_ITERATIONS: usize = 16;

/// A branch target. The code that binds a label gives its number a meaning.
pub(crate) type Label = u32;

/// What a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment<J> {
    /// A jump.
    Jump {
        /// Its condition, as the machine encodes it.
        jump: J,
        /// Its target.
        target: Label,
    },
    /// Padding before a loop or a function, which aligns it to fetch blocks or cache lines.
    Pad {
        /// The end of what is aligned.
        end: Label,
    },
    /// A branch that will be replaced while the code runs, where that can be done by one store; it does nothing yet.
    Site,
}

#[derive(Clone, Copy, Debug)]
struct Sized<J> {
    fragment: Fragment<J>,
    /// Raw bytes before it.
    at: u32,
    /// Its length, never shrinking for jumps.
    len: u32,
    /// Lengths of all fragments before it in the current iteration.
    shift: u32,
}

/// Where a label is: raw bytes and fragments before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    at: u32,
    fragments: u32,
}

/// Bytes of a cache line, the unit in which loops are laid out.
const LINE: usize = 64;

/// Four bytes to be completed with a distance once addresses are known.
#[derive(Clone, Copy, Debug)]
struct Patch {
    /// Place of the four bytes.
    place: Place,
    target: Target,
}

/// An instruction that may fault, and zeroes a register then.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// The offset after its last byte.
    end: Place,
    /// Its length in bytes.
    len: u32,
    /// The register, by the machine's number.
    register: u8,
    /// Its slot in the program.
    slot: u32,
}

/// The target of a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A label of this code.
    Label(Label),
    /// An address of the process, which must be within reach.
    Address(u64),
}

/// Code under construction.
#[derive(Debug)]
pub(crate) struct Assembly<A: Encoding> {
    raw: Vec<u8>,
    fragments: Vec<Sized<A::Jump>>,
    labels: Vec<Place>,
    patches: Vec<Patch>,
    probes: Vec<Probe>,
    /// Instructions among the raw bytes.
    count: u32,
}

impl<A: Encoding> Assembly<A> {
    /// No code, with this number of labels. Every label that is used must be bound; `insns` is a hint.
    pub(crate) fn new(labels: usize, insns: usize) -> Self {
        Self {
            raw: Vec::with_capacity(insns * 5 + 64),
            fragments: Vec::with_capacity(insns / 4 + 8),
            labels: vec![Place::default(); labels],
            patches: Vec::new(),
            probes: Vec::new(),
            count: 0,
        }
    }

    /// Appends an instruction: the first `len` bytes.
    #[inline]
    pub(crate) fn put(&mut self, bytes: [u8; 16], len: usize) {
        let end = self.raw.len() + len;
        self.count += 1;
        // All sixteen are copied: a copy of constant length is one instruction.
        self.raw.extend_from_slice(&bytes);
        self.raw.truncate(end);
    }

    /// The code, if it has neither fragments nor distances.
    pub(crate) fn plain(self) -> Vec<u8> {
        debug_assert!(self.fragments.is_empty() && self.patches.is_empty());
        self.raw
    }

    /// Raw bytes so far.
    pub(crate) fn here(&self) -> usize {
        self.raw.len()
    }

    /// A raw byte that was appended since the last fragment.
    pub(crate) fn byte_mut(&mut self, at: usize) -> &mut u8 {
        &mut self.raw[at]
    }

    /// Binds the label here.
    #[inline]
    pub(crate) fn bind(&mut self, label: Label) {
        let place = self.place();
        self.labels[label as usize] = place;
    }

    /// Appends a fragment.
    pub(crate) fn fragment(&mut self, fragment: Fragment<A::Jump>) {
        let at = self.raw.len() as u32;
        let len = match fragment {
            Fragment::Jump { jump, .. } => A::jump_start(jump),
            Fragment::Pad { .. } => 0,
            Fragment::Site => A::SITE,
        };
        self.fragments.push(Sized { fragment, at, len, shift: 0 });
    }

    /// Records that the last four bytes take the distance to the target.
    pub(crate) fn patch_last(&mut self, target: Target) {
        let place = self.place();
        self.patches.push(Patch { place: Place { at: place.at - 4, ..place }, target });
    }

    /// Records that the last instruction, of `len` bytes, may fault. Then it zeroes this register and is skipped.
    pub(crate) fn probe_last(&mut self, slot: usize, len: usize, register: u8) {
        self.probes.push(Probe { end: self.place(), len: len as u32, register, slot: slot as u32 });
    }

    /// Gives every fragment its length. The result can be written to any address with its alignment.
    pub(crate) fn relax(mut self) -> Layout<A> {
        let mut iterations = 0;
        while self.iterate() {
            iterations += 1;
            if iterations == MAX_ITERATIONS {
                self.lengthen_all();
            }
        }
        Layout(self)
    }

    fn place(&self) -> Place {
        Place { at: self.raw.len() as u32, fragments: self.fragments.len() as u32 }
    }

    /// One iteration. Returns whether any branch was lengthened.
    fn iterate(&mut self) -> bool {
        let mut shift = 0;
        for i in 0..self.fragments.len() {
            self.fragments[i].shift = shift;
            let start = self.fragments[i].at + shift;
            match self.fragments[i].fragment {
                Fragment::Pad { end } => {
                    // Fragments inside the loop still have the last iteration's shifts, which is near enough.
                    let size = self.padded_size(i, end);
                    self.fragments[i].len = A::alignment_padding(start, size);
                }
                Fragment::Site => self.fragments[i].len = A::site_padding(start) + A::SITE,
                Fragment::Jump { .. } => {}
            }
            shift += self.fragments[i].len;
        }
        let mut lengthened = false;
        for i in 0..self.fragments.len() {
            let Sized { fragment: Fragment::Jump { jump, target }, at, len, shift } = self.fragments[i]
            else {
                continue;
            };
            let place = self.labels[target as usize];
            let distance = i64::from(self.resolve(place)) - i64::from(at + shift);
            let longer = A::jump_len(jump, distance, place.fragments > i as u32, len);
            if longer > len {
                self.fragments[i].len = longer;
                lengthened = true;
            }
        }
        lengthened
    }

    /// Gives every branch its longest form; the next iteration lengthens none.
    fn lengthen_all(&mut self) {
        for sized in &mut self.fragments {
            if let Fragment::Jump { jump, .. } = sized.fragment {
                sized.len = A::jump_longest(jump);
            }
        }
    }

    /// Bytes between the pad and the end of what it aligns, as far as they are known.
    fn padded_size(&self, head: usize, end: Label) -> u32 {
        let end = self.labels[end as usize];
        let fragments: u32 =
            self.fragments[head + 1..end.fragments as usize].iter().map(|fragment| fragment.len).sum();
        end.at - self.fragments[head].at + fragments
    }

    /// The final offset of a place, from the current shifts.
    fn resolve(&self, place: Place) -> u32 {
        place.at
            + place.fragments.checked_sub(1).map_or(0, |last| {
                let last = &self.fragments[last as usize];
                last.shift + last.len
            })
    }
}

/// Code that lacks only its address.
#[derive(Debug)]
pub(crate) struct Layout<A: Encoding>(Assembly<A>);

impl<A: Encoding> Layout<A> {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.resolve(self.0.place()) as usize
    }

    /// The alignment of its address in bytes: a cache line where loops are aligned, otherwise [`Encoding::STEP`].
    pub(crate) fn align(&self) -> usize {
        let has_loops = self.0.fragments.iter().any(|sized| matches!(sized.fragment, Fragment::Pad { .. }));
        if has_loops { LINE } else { A::STEP }
    }

    /// How many instructions it has, padding not counted.
    pub(crate) fn instructions(&self) -> u32 {
        let count = |sized: &Sized<A::Jump>| match sized.fragment {
            Fragment::Jump { .. } => A::jump_count(sized.len),
            Fragment::Pad { .. } => 0,
            Fragment::Site => 1,
        };
        self.0.count + self.0.fragments.iter().map(count).sum::<u32>()
    }

    /// Where each [`Fragment::Site`] has its branch, in their order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = u32> {
        let sites = self.0.fragments.iter().filter(|sized| sized.fragment == Fragment::Site);
        sites.map(|sized| sized.at + sized.shift + sized.len - A::SITE)
    }

    /// The instructions that may fault, each with its slot.
    pub(crate) fn probes(&self) -> impl Iterator<Item = (usize, skep_text::Probe)> {
        self.0.probes.iter().map(|probe| {
            // There is no fragment within an instruction.
            let resume = self.0.resolve(probe.end) as usize;
            let at = resume - probe.len as usize;
            (probe.slot as usize, skep_text::Probe { at, resume, register: Some(probe.register) })
        })
    }

    /// The offset of a label in bytes.
    pub(crate) fn offset(&self, label: Label) -> u32 {
        self.0.resolve(self.0.labels[label as usize])
    }

    /// Writes the code, which will run at `address`, a multiple of [`Layout::align`]. `None` where the buffer is
    /// shorter than [`Layout::len`] or a target is out of reach.
    pub(crate) fn write(&self, address: u64, out: &mut [u8]) -> Option<()> {
        let code = &self.0;
        let mut done = 0;
        for sized in &code.fragments {
            let at = sized.at as usize;
            let start = at + sized.shift as usize;
            out.get_mut(done + sized.shift as usize..start)?.copy_from_slice(&code.raw[done..at]);
            done = at;
            let fragment = out.get_mut(start..start + sized.len as usize)?;
            match sized.fragment {
                Fragment::Jump { jump, target } => {
                    let distance = i64::from(self.offset(target)) - start as i64;
                    A::write_jump(jump, distance, fragment)?;
                }
                Fragment::Pad { .. } => A::write_padding(fragment),
                Fragment::Site => {
                    let (padding, site) = fragment.split_at_mut(fragment.len() - A::SITE as usize);
                    A::write_padding(padding);
                    A::write_padding(site);
                }
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
            A::write_distance(address.wrapping_add(at as u64), to, out.get_mut(at..at + 4)?)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
