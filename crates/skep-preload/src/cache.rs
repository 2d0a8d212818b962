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
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const WAYS: usize = 4;
const SETS: usize = 64;

/// Where the values of a map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// The mapping; 0 if the supervisor has refused to share the map.
    pub(crate) base: usize,
    pub(crate) len: usize,
    pub(crate) stride: usize,
    pub(crate) cpu_stride: usize,
    /// The address of the map's state.
    pub(crate) state: usize,
    pub(crate) entries: u32,
    pub(crate) value_size: u32,
    pub(crate) cpus: u32,
    pub(crate) writable: bool,
}

#[repr(align(128))]
pub(crate) struct Entry {
    gate: Gate,
    /// 0 before the entry is filled for the first time.
    token: AtomicU64,
    entries: AtomicU32,
    value_size: AtomicU32,
    cpus: AtomicU32,
    writable: AtomicBool,
    base: AtomicUsize,
    len: AtomicUsize,
    stride: AtomicUsize,
    cpu_stride: AtomicUsize,
    state: AtomicUsize,
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
            entries: AtomicU32::new(0),
            value_size: AtomicU32::new(0),
            cpus: AtomicU32::new(0),
            writable: AtomicBool::new(false),
            base: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            stride: AtomicUsize::new(0),
            cpu_stride: AtomicUsize::new(0),
            state: AtomicUsize::new(0),
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

    /// What it says. Relaxed: ordered by the gate.
    #[inline]
    fn values(&self) -> Values {
        use Ordering::Relaxed;
        Values {
            base: self.base.load(Relaxed),
            len: self.len.load(Relaxed),
            stride: self.stride.load(Relaxed),
            cpu_stride: self.cpu_stride.load(Relaxed),
            state: self.state.load(Relaxed),
            entries: self.entries.load(Relaxed),
            value_size: self.value_size.load(Relaxed),
            cpus: self.cpus.load(Relaxed),
            writable: self.writable.load(Relaxed),
        }
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
        use Ordering::Relaxed;
        // Relaxed, all: published by the gate.
        entry.base.store(values.base, Relaxed);
        entry.len.store(values.len, Relaxed);
        entry.stride.store(values.stride, Relaxed);
        entry.cpu_stride.store(values.cpu_stride, Relaxed);
        entry.state.store(values.state, Relaxed);
        entry.entries.store(values.entries, Relaxed);
        entry.value_size.store(values.value_size, Relaxed);
        entry.cpus.store(values.cpus, Relaxed);
        entry.writable.store(values.writable, Relaxed);
        entry.token.store(token.position(), Relaxed);
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
            // Relaxed: nobody is behind the gate.
            self.base.store(0, Ordering::Relaxed);
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
