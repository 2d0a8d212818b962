//! The exception table of one text: which instructions may fault, and where to resume.
//!
//! Offsets are relative to the start of the text, so a table is valid for the draft and for its final address.
//! Entries are sorted, and found by bisection in a signal handler: nothing that a handler calls here allocates or
//! panics.

use std::ops::Range;

use super::Probe;
use crate::arch;
use crate::error::{BadProbe, Error};

/// A text's probes, sorted.
pub(super) struct Table {
    start: usize,
    entries: Box<[Entry]>,
}

struct Entry {
    at: u32,
    resume: u32,
    register: Option<u8>,
}

/// The response to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remedy {
    /// The address to resume at.
    pub(super) resume: usize,
    /// The register to zero first.
    pub(super) register: Option<u8>,
}

impl Table {
    /// Checks the probes again, against the final length of the text.
    pub(super) fn new(text: Range<usize>, mut probes: Vec<Probe>) -> Result<Self, Error> {
        probes.sort_unstable_by_key(|probe| probe.at);
        let mut entries = Vec::with_capacity(probes.len());
        let mut last = None;
        for probe in probes {
            let (at, resume) = check(&probe, text.len())?;
            if last.replace(at) == Some(at) {
                return Err(Error::Probe { at: probe.at, reason: BadProbe::Twice });
            }
            entries.push(Entry { at, resume, register: probe.register });
        }
        Ok(Self { start: text.start, entries: entries.into_boxed_slice() })
    }

    /// The response to a fault at this address; `None` if it is not a probe.
    pub(super) fn remedy(&self, address: usize) -> Option<Remedy> {
        let offset = u32::try_from(address.checked_sub(self.start)?).ok()?;
        let found = self.entries.binary_search_by_key(&offset, |entry| entry.at).ok()?;
        let entry = self.entries.get(found)?;
        Some(Remedy { resume: self.start + entry.resume as usize, register: entry.register })
    }
}

/// Checks a probe against a text of `len` bytes; returns its offsets in the table's format.
pub(super) fn check(probe: &Probe, len: usize) -> Result<(u32, u32), Error> {
    // The length of a trap is the alignment of instructions.
    let aligned = |offset: usize| offset.is_multiple_of(arch::TRAP.len());
    let inside = |offset: usize| u32::try_from(offset).ok().filter(|_| offset < len);
    let bad = |reason| Error::Probe { at: probe.at, reason };

    let at = inside(probe.at).ok_or_else(|| bad(BadProbe::Outside { len }))?;
    let resume =
        inside(probe.resume).ok_or_else(|| bad(BadProbe::ResumesOutside { resume: probe.resume, len }))?;
    if !aligned(probe.at) || !aligned(probe.resume) {
        return Err(bad(BadProbe::Misaligned { resume: probe.resume }));
    }
    match probe.register {
        Some(register) if !arch::fault::can_be_zeroed(register) => Err(bad(BadProbe::Register { register })),
        _ => Ok((at, resume)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(at: usize, resume: usize) -> Probe {
        Probe { at, resume, register: Some(1) }
    }

    #[test]
    fn every_probe_is_found_by_its_own_address_and_no_other() {
        // Multiples of 8 that are not sorted.
        let offsets = [40, 8, 16, 120, 64, 0];
        let probes = offsets.map(|at| probe(at, at + 4)).to_vec();
        let table = Table::new(0x5000..0x5080, probes).unwrap();
        for address in 0x4f00..0x5200 {
            let expected = offsets
                .iter()
                .any(|at| 0x5000 + at == address)
                .then_some(Remedy { resume: address + 4, register: Some(1) });
            assert_eq!(table.remedy(address), expected, "{address:#x}");
        }
        assert_eq!(table.remedy(0), None);
        assert_eq!(table.remedy(usize::MAX), None);
    }

    #[test]
    fn probes_that_do_not_fit_the_text_are_refused() {
        let reason = |probes: &[Probe]| match Table::new(0x5000..0x5040, probes.to_vec()) {
            Err(Error::Probe { reason, .. }) => Some(reason),
            Ok(_) => None,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(reason(&[probe(0, 60)]), None);
        assert_eq!(reason(&[probe(64, 0)]), Some(BadProbe::Outside { len: 64 }));
        assert_eq!(reason(&[probe(0, 64)]), Some(BadProbe::ResumesOutside { resume: 64, len: 64 }));
        assert_eq!(reason(&[probe(1 << 32, 0)]), Some(BadProbe::Outside { len: 64 }));
        assert_eq!(reason(&[probe(8, 0), probe(0, 4), probe(8, 12)]), Some(BadProbe::Twice));
        for register in [31, 200, u8::MAX] {
            let probe = Probe { at: 0, resume: 4, register: Some(register) };
            assert_eq!(reason(&[probe]), Some(BadProbe::Register { register }));
        }
        assert_eq!(reason(&[Probe { at: 0, resume: 4, register: None }]), None);
    }
}
