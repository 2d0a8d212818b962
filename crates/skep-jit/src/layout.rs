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
//!
//! A few rounds are enough for any code that was not made to need many. After those, every branch gets its
//! longest form, so that time is bounded by the length of the code.

use crate::arch::port::Arch;

/// Rounds before every branch is made long.
const MAX_ROUNDS: usize = 16;

/// A place that branches lead to; what the numbers mean is for those who bind them to say.
pub(crate) type Label = u32;

/// What a gap becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap<J> {
    /// A jump.
    Jump {
        /// When it is taken, in the machine's own words.
        jump: J,
        /// Where to.
        target: Label,
    },
    /// Padding before a loop or a function, so that what the processor fetches together lies together.
    Head {
        /// The slot behind it.
        end: Label,
    },
    /// A branch that will be replaced while the code runs, where that can be done by one store; it does nothing yet.
    Site,
}

#[derive(Clone, Copy, Debug)]
struct Sized<J> {
    gap: Gap<J>,
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

/// Bytes of a cache line, by which loops are laid out.
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
    /// Behind its last byte.
    end: Place,
    /// Its length in bytes.
    len: u32,
    /// The register, by the machine's number.
    register: u8,
    /// The slot that it belongs to.
    slot: u32,
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
pub(crate) struct Assembly<A: Arch> {
    raw: Vec<u8>,
    gaps: Vec<Sized<A::Jump>>,
    labels: Vec<Place>,
    patches: Vec<Patch>,
    probes: Vec<Probe>,
    /// Instructions among the raw bytes.
    count: u32,
}

impl<A: Arch> Assembly<A> {
    /// No code, and so many labels. Every label that is used must be bound; `insns` is a hint.
    pub(crate) fn new(labels: usize, insns: usize) -> Self {
        Self {
            raw: Vec::with_capacity(insns * 5 + 64),
            gaps: Vec::with_capacity(insns / 4 + 8),
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
        // All sixteen are copied, for a copy of constant length is one instruction.
        self.raw.extend_from_slice(&bytes);
        self.raw.truncate(end);
    }

    /// The code, where it has neither gaps nor distances.
    pub(crate) fn plain(self) -> Vec<u8> {
        debug_assert!(self.gaps.is_empty() && self.patches.is_empty());
        self.raw
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
    pub(crate) fn gap(&mut self, gap: Gap<A::Jump>) {
        let at = self.raw.len() as u32;
        let len = match gap {
            Gap::Jump { jump, .. } => A::jump_start(jump),
            Gap::Head { .. } => 0,
            Gap::Site => A::SITE,
        };
        self.gaps.push(Sized { gap, at, len, shift: 0 });
    }

    /// Has the four bytes before this point completed with the distance to the target.
    pub(crate) fn patch_last(&mut self, target: Target) {
        let place = self.place();
        self.patches.push(Patch { place: Place { at: place.at - 4, ..place }, target });
    }

    /// The last instruction, of `len` bytes, may fault: it zeroes this register then, and control goes on behind it.
    pub(crate) fn probe_last(&mut self, slot: usize, len: usize, register: u8) {
        self.probes.push(Probe { end: self.place(), len: len as u32, register, slot: slot as u32 });
    }

    /// Gives every gap its length; what it returns can be written anywhere that is aligned as it says.
    pub(crate) fn relax(mut self) -> Layout<A> {
        let mut rounds = 0;
        while self.round() {
            rounds += 1;
            if rounds == MAX_ROUNDS {
                self.lengthen_all();
            }
        }
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
            let start = self.gaps[i].at + shift;
            match self.gaps[i].gap {
                Gap::Head { end } => {
                    // Gaps inside the loop still have the last round's shifts, which is near enough.
                    let size = self.head_size(i, end);
                    self.gaps[i].len = A::head_padding(start, size);
                }
                Gap::Site => self.gaps[i].len = A::site_padding(start) + A::SITE,
                Gap::Jump { .. } => {}
            }
            shift += self.gaps[i].len;
        }
        let mut lengthened = false;
        for i in 0..self.gaps.len() {
            let Sized { gap: Gap::Jump { jump, target }, at, len, shift } = self.gaps[i] else {
                continue;
            };
            let place = self.labels[target as usize];
            let distance = i64::from(self.resolve(place)) - i64::from(at + shift);
            let needed = A::jump_len(jump, distance, place.gaps > i as u32, len);
            if needed > len {
                self.gaps[i].len = needed;
                lengthened = true;
            }
        }
        lengthened
    }

    /// Gives every branch its longest form; the next round lengthens none.
    fn lengthen_all(&mut self) {
        for sized in &mut self.gaps {
            if let Gap::Jump { jump, .. } = sized.gap {
                sized.len = A::jump_longest(jump);
            }
        }
    }

    /// Bytes between a head's gap and the end of what it heads, as far as they are known.
    fn head_size(&self, head: usize, end: Label) -> u32 {
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
pub(crate) struct Layout<A: Arch>(Assembly<A>);

impl<A: Arch> Layout<A> {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.resolve(self.0.place()) as usize
    }

    /// What its address must be a multiple of: a cache line where loops were laid out by lines, [`Arch::STEP`] otherwise.
    pub(crate) fn align(&self) -> usize {
        let has_loops = self.0.gaps.iter().any(|sized| matches!(sized.gap, Gap::Head { .. }));
        if has_loops { LINE } else { A::STEP }
    }

    /// How many instructions it has, padding not counted.
    pub(crate) fn instructions(&self) -> u32 {
        let count = |sized: &Sized<A::Jump>| match sized.gap {
            Gap::Jump { .. } => A::jump_count(sized.len),
            Gap::Head { .. } => 0,
            Gap::Site => 1,
        };
        self.0.count + self.0.gaps.iter().map(count).sum::<u32>()
    }

    /// Where each [`Gap::Site`] has its branch, in their order.
    pub(crate) fn sites(&self) -> impl Iterator<Item = u32> {
        let sites = self.0.gaps.iter().filter(|sized| sized.gap == Gap::Site);
        sites.map(|sized| sized.at + sized.shift + sized.len - A::SITE)
    }

    /// The instructions that may fault, each with its slot.
    pub(crate) fn probes(&self) -> impl Iterator<Item = (usize, skep_text::Probe)> {
        self.0.probes.iter().map(|probe| {
            // No gap lies between an instruction and its end.
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
        for sized in &code.gaps {
            let at = sized.at as usize;
            let start = at + sized.shift as usize;
            out.get_mut(done + sized.shift as usize..start)?.copy_from_slice(&code.raw[done..at]);
            done = at;
            let gap = out.get_mut(start..start + sized.len as usize)?;
            match sized.gap {
                Gap::Jump { jump, target } => {
                    let distance = i64::from(self.offset(target)) - start as i64;
                    A::write_jump(jump, distance, gap)?;
                }
                Gap::Head { .. } => A::write_padding(gap),
                Gap::Site => {
                    let (padding, site) = gap.split_at_mut(gap.len() - A::SITE as usize);
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
mod tests {
    use super::*;
    use crate::arch::x86_64::X86_64;

    /// Code in which a byte stands for itself, and `(from, to)` are jumps between bytes.
    fn assemble(bytes: usize, mut jumps: Vec<(usize, usize)>) -> Assembly<X86_64> {
        jumps.sort_unstable();
        let mut code = Assembly::new(bytes + 1, bytes);
        for at in 0..=bytes {
            code.bind(at as Label);
            for &(_, to) in jumps.iter().filter(|&&(from, _)| from == at) {
                code.gap(Gap::Jump { jump: None, target: to as Label });
            }
            if at < bytes {
                code.put([0x90; 16], 1);
            }
        }
        code
    }

    /// Where each jump of the written code leads, by its place, as offsets.
    fn written(layout: &Layout<X86_64>) -> Vec<(i64, i64)> {
        let mut out = vec![0; layout.len()];
        layout.write(0, &mut out).expect("in reach");
        let mut at = 0;
        let mut found = Vec::new();
        while at < out.len() {
            let (len, disp) = match out[at] {
                0x90 => (1, None),
                0xeb => (2, Some(i64::from(out[at + 1] as i8))),
                0xe9 => {
                    let disp = i32::from_le_bytes(out[at + 1..at + 5].try_into().expect("four bytes"));
                    (5, Some(i64::from(disp)))
                }
                other => panic!("{other:#x} at {at}"),
            };
            if let Some(disp) = disp {
                found.push((at as i64, at as i64 + len as i64 + disp));
            }
            at += len;
        }
        found
    }

    fn expect(bytes: usize, jumps: &[(usize, usize)]) -> usize {
        let layout = assemble(bytes, jumps.to_vec()).relax();
        let mut expected: Vec<_> = jumps.to_vec();
        expected.sort_unstable();
        let targets: Vec<i64> = written(&layout).into_iter().map(|(_, to)| to).collect();
        let offsets: Vec<i64> =
            expected.into_iter().map(|(_, to)| i64::from(layout.offset(to as Label))).collect();
        assert_eq!(targets, offsets);
        layout.len()
    }

    #[test]
    fn jumps_are_short_as_far_as_they_reach_and_not_farther() {
        for (distance, len) in [(1, 2), (127, 2), (128, 5)] {
            assert_eq!(expect(300, &[(10, 10 + distance)]), 300 + len, "{distance} forward");
        }
        for (distance, len) in [(0, 2), (126, 2), (127, 5)] {
            assert_eq!(expect(300, &[(200, 200 - distance)]), 300 + len, "{distance} backward");
        }
    }

    #[test]
    fn a_jump_to_itself_is_not_a_jump_to_the_next_byte() {
        let layout = assemble(3, vec![(1, 1)]).relax();
        assert_eq!(written(&layout), [(1, 1)]);
    }

    #[test]
    fn chains_of_jumps_at_the_edge_of_the_short_form_become_long_one_by_one() {
        // Each jump spans a later one and 127 bytes with it: when the last becomes long, so must all before it.
        for count in 1..60 {
            let jumps: Vec<_> =
                (0..count).map(|i| (i * 63, i * 63 + 125)).chain([(count * 63, count * 63 + 128)]).collect();
            let len = expect(count * 63 + 200, &jumps);
            assert_eq!(len, count * 63 + 200 + 5 * (count + 1), "{count} jumps");
        }
    }

    #[test]
    fn distances_are_patched_from_their_places_and_refused_out_of_reach() {
        let code = |target| {
            let mut code = Assembly::<X86_64>::new(1, 1);
            code.put([0xe8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 5);
            code.patch_last(target);
            code.bind(0);
            code.put([0xc3; 16], 1);
            code.relax()
        };
        let mut out = [0; 6];
        code(Target::Label(0)).write(0x4000_0000_0000, &mut out).expect("in reach");
        assert_eq!(out, [0xe8, 0, 0, 0, 0, 0xc3]);
        code(Target::Address(0x4000_0000_0000)).write(0x4000_0000_0000, &mut out).expect("in reach");
        assert_eq!(out, [0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3]);
        assert_eq!(code(Target::Address(0x5000_0000_0000)).write(0x4000_0000_0000, &mut out), None);
    }

    #[test]
    fn a_buffer_that_is_too_short_is_refused() {
        let layout = assemble(10, vec![(2, 6)]).relax();
        assert_eq!(layout.write(0, &mut [0; 11]), None);
        assert_eq!(layout.write(0, &mut [0; 12]), Some(()));
    }
}
