//! What became of mutants, and the score of the tests.

use crate::mutants::Mutant;

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A test failed, as it should.
    Noticed {
        /// The test's file.
        file: String,
        /// The test's name.
        test: String,
    },
    /// All tests passed: nothing that they promise depends on the instruction.
    Survived,
    /// The verifier refuses it: it could not be loaded.
    Refused,
    /// All tests passed, and the mutant has the same machine code.
    Equivalent,
    /// All tests passed, and no path leads to the instruction as the object is configured.
    Dead,
}

/// A mutant, and what became of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The mutant.
    pub mutant: Mutant,
    /// What became of it.
    pub fate: Fate,
}

/// What became of all mutants, by number.
#[derive(Clone, Debug, Default)]
pub struct Score {
    /// One for each mutant that was tried.
    pub judged: Vec<Judged>,
}

impl Score {
    /// How many were noticed.
    pub fn noticed(&self) -> usize {
        self.count(|fate| matches!(fate, Fate::Noticed { .. }))
    }

    /// How many survived.
    pub fn survived(&self) -> usize {
        self.count(|fate| *fate == Fate::Survived)
    }

    /// The share of mutants that were noticed, in percent, of those that were noticed or survived. `None` if there were
    /// none of either.
    pub fn percent(&self) -> Option<f64> {
        let all = self.noticed() + self.survived();
        (all > 0).then(|| self.noticed() as f64 * 100.0 / all as f64)
    }

    /// How many have a fate.
    pub fn count(&self, of: impl Fn(&Fate) -> bool) -> usize {
        self.judged.iter().filter(|judged| of(&judged.fate)).count()
    }
}
