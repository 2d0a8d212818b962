//! Maps that are known to the library.
//!
//! ```text
//!   token -> set of four entries -> entry { gate, token, where the values are }
//!
//!   a call:     token matches -> enter -> token still matches -> values -> leave
//!   eviction:   close -> empty? -> unmap -> another token and its values -> open
//! ```
//!
//! Invariant: what an entry says does not change, and its memory stays mapped, while somebody is behind its gate.
//!
//! Only who has [`Opening`] changes entries. Nobody waits for it: a signal handler may have interrupted its holder, and
//! a forked child has a copy without the holder.

use crate::gate::Gate;
use crate::protocol::Token;
use crate::table::Table;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const WAYS: usize = 4;
const SETS: usize = 64;

/// Where the values of a map are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    /// The mapping; 0 if the supervisor has refused to share the map.
    pub(crate) base: usize,
    pub(crate) len: usize,
    /// The address of the map's state.
    pub(crate) state: usize,
    /// The number of values of an array.
    pub(crate) entries: usize,
    pub(crate) stride: usize,
    pub(crate) value_size: usize,
    pub(crate) cpus: usize,
    /// 0 if all CPUs share a value.
    pub(crate) cpu_stride: usize,
    /// 0 or 1.
    pub(crate) writable: usize,
    pub(crate) table: Table,
}

/// [`Values`] have so many words.
const WORDS: usize = size_of::<Values>() / size_of::<usize>();

#[repr(align(128))]
pub(crate) struct Entry {
    gate: Gate,
    /// 0 before the entry is filled for the first time.
    token: AtomicU64,
    /// What it says: [`Values`].
    words: [AtomicUsize; WORDS],
}

static ENTRIES: [Entry; WAYS * SETS] = [const { Entry::empty() }; WAYS * SETS];
static OPENING: AtomicBool = AtomicBool::new(false);

/// A call that uses an entry.
pub(crate) struct Using(&'static Entry);

/// The right to change entries.
pub(crate) struct Opening(());

/// The entry of a token, if there is one.
#[inline]
pub(crate) fn find(token: Token) -> Option<Using> {
    set_of(token).iter().find_map(|entry| entry.enter(token))
}

#[inline]
fn set_of(token: Token) -> &'static [Entry] {
    let first = token.map() as usize % SETS * WAYS;
    ENTRIES.get(first..first + WAYS).unwrap_or(&[])
}

impl Entry {
    const fn empty() -> Self {
        Self {
            gate: Gate::new(AtomicU32::new(0)),
            token: AtomicU64::new(0),
            words: [const { AtomicUsize::new(0) }; WORDS],
        }
    }

    #[inline]
    fn enter(&'static self, token: Token) -> Option<Using> {
        // Relaxed: only whether it is worth entering; the load below decides.
        if self.token.load(Ordering::Relaxed) != token.position() || !self.gate.enter() {
            return None;
        }
        let using = Using(self);
        // Relaxed: ordered by the gate.
        (self.token.load(Ordering::Relaxed) == token.position()).then_some(using)
    }

    /// What it says.
    #[inline]
    fn values(&self) -> Values {
        // Relaxed: ordered by the gate.
        Values::from_words(core::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)))
    }

    fn set(&self, values: &Values) {
        for (to, word) in self.words.iter().zip(values.to_words()) {
            // Relaxed: published by the gate.
            to.store(word, Ordering::Relaxed);
        }
    }
}

impl Values {
    #[inline]
    fn from_words(words: [usize; WORDS]) -> Self {
        let [base, len, state, entries, stride, value_size, cpus, cpu_stride, writable, table @ ..] = words;
        let [key_size, buckets, buckets_len, mask, address, last, values_at, seed @ ..] = table;
        let table = Table { key_size, buckets, buckets_len, mask, address, last, values_at, seed };
        Self { base, len, state, entries, stride, value_size, cpus, cpu_stride, writable, table }
    }

    fn to_words(self) -> [usize; WORDS] {
        let Self { base, len, state, entries, stride, value_size, cpus, cpu_stride, writable, table } = self;
        let Table { key_size, buckets, buckets_len, mask, address, last, values_at, seed: [a, b, c] } = table;
        [
            base,
            len,
            state,
            entries,
            stride,
            value_size,
            cpus,
            cpu_stride,
            writable,
            key_size,
            buckets,
            buckets_len,
            mask,
            address,
            last,
            values_at,
            a,
            b,
            c,
        ]
    }
}

impl Using {
    #[inline]
    pub(crate) fn values(&self) -> Values {
        self.0.values()
    }
}

impl Drop for Using {
    #[inline]
    fn drop(&mut self) {
        self.0.gate.leave();
    }
}

impl Opening {
    /// `None` if another thread has it.
    pub(crate) fn begin() -> Option<Self> {
        // Pairs with the store in `drop`: what the one before did to entries is known to this one.
        (!OPENING.swap(true, Ordering::Acquire)).then_some(Self(()))
    }

    /// A place for a token: `None` if its set is full of maps that still exist. `ended`: whether a map does not, by its
    /// token and values; `unmap`: lets go of the values.
    pub(crate) fn place(
        &self,
        token: Token,
        ended: impl Fn(Token, &Values) -> bool,
        unmap: impl Fn(&Values),
    ) -> Option<&'static Entry> {
        for entry in &ENTRIES {
            // Relaxed: only the holder of this right writes tokens.
            let held = Token::from_position(entry.token.load(Ordering::Relaxed) as i64);
            if held.is_some_and(|held| ended(held, &entry.values())) {
                // Its memory is let go of now, wherever it is, or when somebody looks again.
                entry.gate.close();
                entry.is_vacant(&unmap);
            }
        }
        let free = |entry: &&Entry| entry.is_vacant(&unmap);
        set_of(token).iter().find(free).or_else(|| {
            let refused = set_of(token).iter().find(|entry| entry.values().base == 0)?;
            refused.gate.close();
            Some(refused).filter(free)
        })
    }

    /// Fills the place.
    pub(crate) fn fill(&self, entry: &Entry, token: Token, values: &Values) {
        entry.set(values);
        // Relaxed: published by the gate.
        entry.token.store(token.position(), Ordering::Relaxed);
        entry.gate.open();
    }
}

impl Entry {
    /// Whether nothing uses it; then its memory is gone.
    fn is_vacant(&self, unmap: &impl Fn(&Values)) -> bool {
        if !self.gate.is_empty() {
            return false;
        }
        let values = self.values();
        if values.base != 0 {
            self.set(&Values::default());
            unmap(&values);
        }
        true
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // Pairs with the swap in `begin`.
        OPENING.store(false, Ordering::Release);
    }
}
