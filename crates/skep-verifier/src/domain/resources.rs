//! The resources that a path holds and must give back: references, a lock, sections.
//!
//! A call that acquires makes a *reference*, and the values that it returns carry the reference's number. Releasing it
//! invalidates every value with that number, in all frames. If a result that may be null turns out to be null, nothing
//! was acquired. At the program's end nothing may be held.
//!
//! ```text
//!   acquired -> r0 (id = reference = 7, maybe null) -> null:     nothing is held
//!                                                   -> not null: reference 7 is held -> released: 7 ends
//! ```
//!
//! A value owns a reference if its `id` or its object is that of the reference. Other values were only derived from it.

/// The kind of thing a reference refers to. It decides which calls release it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Referent {
    /// A record of a ring buffer.
    Record,
    /// A `struct bpf_dynptr` over a record.
    Dynptr,
    /// An object of the host.
    Object,
    /// An open-coded iterator.
    Iterator,
    /// An object that the program allocated.
    Allocated,
}

impl Referent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Record => "the ring buffer's record",
            Self::Dynptr => "the dynptr",
            Self::Object => "the object",
            Self::Iterator => "the iterator",
            Self::Allocated => "the allocated object",
        }
    }

    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Record => "submit or discard the record on every path where it is not null",
            Self::Dynptr => {
                "submit or discard the dynptr on every path, also where the reservation of its record failed"
            }
            Self::Iterator => "destroy the iterator on every path",
            Self::Object => "release the object on every path where it is not null",
            Self::Allocated => {
                "drop the object, or give it to a list, a tree or a map, on every path where it is not null"
            }
        }
    }
}

/// A reference that must be released exactly once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// Its number: the `reference` of the values that hold it.
    pub(crate) id: u32,
    /// The slot of the call that acquired it.
    pub(crate) slot: u32,
    /// What it refers to.
    pub(crate) what: Referent,
    /// The frame that holds it: that of the call, or of the caller it was returned to.
    pub(crate) frame: u8,
}

/// Where a lock lies, or another special field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// In values of that map.
    Map(u32),
    /// In allocated objects of that type of the program's own.
    Own(u32),
}

/// A lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    /// What it lies in.
    pub(crate) of: Holder,
    /// The identity of the value or object.
    pub(crate) id: u32,
    /// The slot of the call that took it.
    pub(crate) slot: u32,
}

/// A part of a path with restrictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Section {
    /// Objects that are protected by RCU stay alive.
    Read,
    /// The scheduler does not take the CPU away.
    NoPreempt,
    /// Interrupts do not either.
    NoInterrupts,
}

impl Section {
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::NoPreempt, Self::NoInterrupts];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "the RCU read section",
            Self::NoPreempt => "the section with preemption disabled",
            Self::NoInterrupts => "the section with interrupts disabled",
        }
    }

    /// How deep they may nest.
    pub(crate) fn depth(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::NoPreempt | Self::NoInterrupts => 64,
        }
    }
}

/// A restriction on a path that a call lifts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// A section, at any depth.
    Section(Section),
    /// A lock.
    Lock,
}

impl Guard {
    /// What the call that lifts it does.
    pub(crate) fn left(self) -> String {
        match self {
            Self::Section(section) => format!("{} is left", section.name()),
            Self::Lock => "the lock is released".to_owned(),
        }
    }
}

/// How many sections of each kind a path is in.
pub(crate) type Depths = [u8; 3];

/// What a path holds.
#[derive(Clone, Default)]
pub(crate) struct Resources {
    pub(crate) references: Vec<Reference>,
    pub(crate) lock: Option<Lock>,
    /// How many sections of each kind the path is in.
    pub(crate) sections: Depths,
    /// Slot of the call that entered the last one.
    pub(crate) entered: u32,
}

impl Resources {
    /// Becomes a copy of `source`, reusing its own allocation.
    pub(crate) fn copy_from(&mut self, source: &Self) {
        self.references.clone_from(&source.references);
        self.lock = source.lock;
        self.sections = source.sections;
        self.entered = source.entered;
    }

    pub(crate) fn clear(&mut self) {
        self.references.clear();
        self.lock = None;
        self.sections = [0; 3];
    }

    /// The restriction that `after` no longer has.
    pub(crate) fn left(&self, after: &Self) -> impl Iterator<Item = Guard> {
        let ended = |section: &Section| self.depth(*section) > 0 && after.depth(*section) == 0;
        let sections = Section::ALL.into_iter().filter(ended).map(Guard::Section);
        let lock = (self.lock.is_some() && after.lock.is_none()).then_some(Guard::Lock);
        sections.chain(lock)
    }

    /// Whether nothing is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.references.is_empty() && self.lock.is_none() && self.sections == [0; 3]
    }

    /// How many sections of each kind the path is in.
    pub(crate) fn depths(&self) -> Depths {
        self.sections
    }

    /// How many sections of that kind the path is in.
    pub(crate) fn depth(&self, section: Section) -> u32 {
        self.sections[section as usize].into()
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.references)
    }

    /// Whether `new` holds the same resources under other numbers; `pair` says whether two numbers may correspond.
    pub(crate) fn subsumes(&self, new: &Self, mut pair: impl FnMut(u32, u32) -> bool) -> bool {
        let alike = |(old, new): (&Reference, &Reference)| {
            old.slot == new.slot && old.what == new.what && old.frame == new.frame && pair(old.id, new.id)
        };
        if self.sections != new.sections
            || self.references.len() != new.references.len()
            || !self.references.iter().zip(&new.references).all(alike)
        {
            return false;
        }
        match (&self.lock, &new.lock) {
            (None, None) => true,
            (Some(old), Some(new)) => {
                old.of == new.of && (old.id == 0) == (new.id == 0) && (old.id == 0 || pair(old.id, new.id))
            }
            _ => false,
        }
    }

    /// Gives the references of a frame that ends to its caller.
    pub(crate) fn leave_frame(&mut self, caller: u8) {
        for reference in &mut self.references {
            reference.frame = reference.frame.min(caller);
        }
    }

    /// Drops a reference whose pointer turned out to be null.
    pub(crate) fn was_null(&mut self, id: u32) {
        self.references.retain(|reference| reference.id != id);
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Reference> {
        self.references.iter().find(|reference| reference.id == id)
    }
}
