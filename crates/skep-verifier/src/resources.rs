//! What a path holds and must give back: references.

/// A reference that must be released exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// Its number: the `reference` of the values that hold it.
    pub(crate) id: u32,
    /// The slot of the call that acquired it.
    pub(crate) slot: u32,
}

/// What a path holds.
#[derive(Clone, Default)]
pub(crate) struct Resources {
    pub(crate) references: Vec<Reference>,
}

impl Resources {
    /// Becomes a copy of `source`, reusing its own allocation.
    pub(crate) fn copy_from(&mut self, source: &Self) {
        self.references.clone_from(&source.references);
    }

    pub(crate) fn clear(&mut self) {
        self.references.clear();
    }
}
