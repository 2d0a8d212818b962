//! The cases: which keys a producer has, and what its runs do with them.

use super::programs::{KEYS, Work};
use serde::{Deserialize, Serialize};

/// What the producers do, by its name in the published table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// Nothing but pass over their keys.
    NoOp,
    /// Update each key.
    Overwrite,
    /// Add all keys, and delete them.
    BatchAddBatchDel,
    /// In pairs: one adds, then the other deletes the same keys.
    AddDelOnDiffCpu,
}

/// How much of what was published for eight producers there is to compare with.
pub(super) const PUBLISHED: u32 = 8;

/// How many producers there are.
pub(super) const PRODUCERS: [u32; 3] = [1, 2, 8];

impl Case {
    pub(super) const ALL: [Self; 4] =
        [Self::NoOp, Self::Overwrite, Self::BatchAddBatchDel, Self::AddDelOnDiffCpu];

    /// What the runs of a producer do, in turns. One that is alone does the work of both of a pair.
    pub(super) fn works(self, producer: u32, producers: u32) -> &'static [Work] {
        match (self, producers, producer % 2) {
            (Self::NoOp, ..) => &[Work::Nothing],
            (Self::Overwrite, ..) => &[Work::Update],
            (Self::BatchAddBatchDel, ..) => &[Work::UpdateAndDelete],
            (Self::AddDelOnDiffCpu, 1, _) => &[Work::Update, Work::Delete],
            (Self::AddDelOnDiffCpu, _, 1) => &[Work::Update],
            (Self::AddDelOnDiffCpu, ..) => &[Work::Delete],
        }
    }

    /// Whether producers come in pairs that take turns.
    pub(super) fn in_pairs(self, producers: u32) -> bool {
        self == Self::AddDelOnDiffCpu && producers > 1
    }

    /// The first of the keys of a producer.
    pub(super) fn first(self, producer: u32, producers: u32) -> u32 {
        let place = if self.in_pairs(producers) { producer / 2 } else { producer };
        place * keys(producers)
    }
}

/// How many keys each run passes over.
pub(super) fn keys(producers: u32) -> u32 {
    KEYS / producers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_share_keys_in_pairs_and_nowhere_else() {
        assert_eq!(
            (0..8).map(|at| Case::Overwrite.first(at, 8)).collect::<Vec<_>>(),
            [0, 1024, 2048, 3072, 4096, 5120, 6144, 7168]
        );
        assert_eq!(
            (0..4).map(|at| Case::AddDelOnDiffCpu.first(at, 8)).collect::<Vec<_>>(),
            [0, 0, 1024, 1024]
        );
        assert_eq!(Case::AddDelOnDiffCpu.works(0, 2), [Work::Delete]);
        assert_eq!(Case::AddDelOnDiffCpu.works(1, 2), [Work::Update]);
        assert_eq!(Case::AddDelOnDiffCpu.works(0, 1), [Work::Update, Work::Delete]);
        assert!(!Case::AddDelOnDiffCpu.in_pairs(1));
    }
}
