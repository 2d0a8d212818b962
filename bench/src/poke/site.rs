//! A function whose branch is poked.
//!
//! ```text
//!    no-ops up to where a branch can be patched | branch | ... | return one value | ... | return another value
//!                                                  └──────────────^ or ──────────────^
//! ```
//!
//! In the large form the two targets are so far apart that the two encodings of the branch differ in three bytes, and
//! wherever a mixture of the bytes would lead, there is code that returns [`TORN`]. What would break it: a branch
//! that begins elsewhere than [`BRANCH_OFFSET`] says.

use crate::{Result, arch};
use skep_text::{Arena, BRANCH_BYTES, BRANCH_OFFSET, Branch, Error, Pokes, Text};

/// What the two targets return.
pub(super) const VALUES: [u32; 2] = [1001, 2002];
/// What all places return that neither branch leads to.
pub(super) const TORN: u32 = 6666;

/// Where the branch ends.
const BEHIND: usize = BRANCH_OFFSET + BRANCH_BYTES;

pub(super) struct Site {
    text: Text,
    targets: [usize; 2],
}

impl Site {
    /// Everything within a cache line or two.
    pub(super) fn small(arena: &Arena) -> Result<Self> {
        Self::new(arena, [8, 24], &[])
    }

    /// One that shows whether a branch was ever seen half poked.
    pub(super) fn large(arena: &Arena) -> Result<Self> {
        Self::new(arena, arch::DISTANCES, &arch::mixtures())
    }

    fn new(arena: &Arena, distances: [usize; 2], wrong: &[usize]) -> Result<Self> {
        let returns = arch::returns(TORN).len();
        let last = distances.iter().chain(wrong).copied().max().unwrap_or(0);
        let mut draft = arena.draft_aligned(BEHIND + last + returns, 64)?;
        let start = draft.address();
        let targets = distances.map(|distance| start + BEHIND + distance);
        let branch = Branch::To(targets[0]).encode(start + BRANCH_OFFSET)?;
        let bytes = draft.bytes_mut();
        for at in (0..BRANCH_OFFSET).step_by(arch::NOP.len()) {
            bytes[at..at + arch::NOP.len()].copy_from_slice(arch::NOP);
        }
        bytes[BRANCH_OFFSET..BEHIND].copy_from_slice(&branch);
        let ends = distances.iter().zip(VALUES).chain(wrong.iter().map(|distance| (distance, TORN)));
        for (distance, value) in ends {
            let at = BEHIND + distance;
            bytes[at..at + returns].copy_from_slice(&arch::returns(value));
        }
        Ok(Self { text: draft.finalize()?, targets })
    }

    /// Sends the branch to the target.
    #[inline]
    pub(super) fn poke<'a>(&'a self, pokes: &mut Pokes<'a>, target: usize) -> Result<(), Error> {
        // SAFETY: a patchable branch was placed there, and both targets are functions' ends within the same text.
        unsafe { pokes.branch(&self.text, BRANCH_OFFSET, Branch::To(self.targets[target])) }
    }

    /// Runs it: one of [`VALUES`], or [`TORN`].
    #[inline]
    pub(super) fn call(&self) -> u32 {
        // SAFETY: the text is a function of this type that returns a number wherever its branch leads, and `self`
        // lives.
        unsafe { std::mem::transmute::<*const u8, extern "C" fn() -> u32>(self.text.as_ptr())() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_text::Config;

    #[test]
    fn a_poked_branch_leads_where_the_last_batch_sent_it() {
        let arena = Arena::new(Config::new()).unwrap();
        for site in [Site::small(&arena).unwrap(), Site::large(&arena).unwrap()] {
            assert_eq!(site.call(), VALUES[0]);
            for time in 1..20 {
                let mut pokes = arena.pokes().unwrap();
                site.poke(&mut pokes, time % 2).unwrap();
                pokes.finish().unwrap();
                assert_eq!(site.call(), VALUES[time % 2]);
            }
        }
    }

    #[test]
    fn every_mixture_of_the_two_branches_leads_to_a_place_that_says_so() {
        let arena = Arena::new(Config::new()).unwrap();
        let site = Site::large(&arena).unwrap();
        let at = site.text.address() + BRANCH_OFFSET;
        let [one, other] = site.targets.map(|target| Branch::To(target).encode(at).unwrap());
        let bytes = site.text.bytes();
        let differing: Vec<usize> = (0..BRANCH_BYTES).filter(|&at| one[at] != other[at]).collect();
        assert_eq!(differing.len(), 3);
        // The text from every place where a mixture leads.
        for wrong in arch::mixtures() {
            let code = &bytes[BEHIND + wrong..][..arch::returns(TORN).len()];
            assert_eq!(code, arch::returns(TORN), "at {wrong:#x}");
            let target = site.text.address() + BEHIND + wrong;
            let mixed = Branch::To(target).encode(at).unwrap();
            assert!((0..BRANCH_BYTES).all(|at| mixed[at] == one[at] || mixed[at] == other[at]));
            assert!(mixed != one && mixed != other);
        }
    }
}
