//! Timers and work queues of a runtime: functions of programs that are called later, with an element of a map.
//!
//! A work queue is a timer that is due when it is started. What it calls may sleep, so it runs in a sleepable section.
//!
//! A timer is 16 bytes in a map's value. Its first word is a number, 0 before `bpf_timer_init`, and all else is here:
//!
//! ```text
//!   value   | data | number ....... | data |         entries: number -> key, callback, program, expiry
//!                      |                             queue:   (expiry, start) -> number
//!                      '--> entries[number]
//! ```
//!
//! # Which element
//!
//! Nothing is told when an element is deleted or replaced. Instead an entry knows the key and the address of its value,
//! and before each call, inside the section in which the callback then runs, the key is looked up: the element is still
//! there if the look-up finds the same address, and the timer if the number there is the same. A new element begins
//! with 0, an update writes 0, and numbers are never used again. So a deleted element is never called with, and an
//! element that is deleted while its callback runs stays valid until the section ends, like any other that a program
//! has found.
//!
//! Entries of elements that are gone are found when they expire, and when a map has more entries than it could have
//! elements: so their number is bounded by twice the map's capacity.
//!
//! # What a timer keeps alive
//!
//! A program with a callback that may be called, as long as the host or another program could notice: while somebody
//! else refers to the program, or to the map. The entry of a map that only such programs refer to ends, as on Linux,
//! where the last reference from user space cancels the timers of a map.
//!
//! # The lock
//!
//! No callback runs, no map is looked into and nothing is dropped under the lock. A thread that holds it counts as
//! holding a lock, so that a signal handler runs no program on it that could wait for it ([`Counted`]).

mod due;
mod entry;

pub(crate) use due::Due;
use entry::{Callback, ElementPlace, Entry, Held};
pub(crate) use entry::{Entrance, Flavour, Function};

use crate::dispatch::Connected;
use skep_maps::Map;
use skep_maps::lock::Counted;
use skep_rcu::TaskHandle;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Linux's error numbers, negated as helpers return them.
const EPERM: u64 = -1i64 as u64;
const ENOENT: u64 = -2i64 as u64;
const EBUSY: u64 = -16i64 as u64;
const EINVAL: u64 = -22i64 as u64;
const EDEADLK: u64 = -35i64 as u64;

/// Entries that a map may have beyond its capacity before those of deleted elements are looked for.
const SPARE: usize = 64;
/// How often a cancellation looks whether the callback has returned, and the pauses between: a second together.
const LOOKS: u32 = 10_000;
const PAUSE: Duration = Duration::from_micros(100);

/// The timers of a runtime.
#[derive(Default)]
pub(crate) struct Timers {
    state: Mutex<State>,
    /// The background task that calls what is due, for as long as the runtime lives.
    task: OnceLock<TaskHandle>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    /// Armed entries in the order in which they are called.
    queue: BTreeMap<Place, u64>,
    /// The number of starts so far.
    starts: u64,
    /// Programs whose functions may be callbacks.
    programs: Vec<Known>,
    /// Programs with callbacks, by their addresses: one reference each.
    held: BTreeMap<usize, Held>,
    /// Entries of each map, by its handle.
    counts: BTreeMap<u64, Count>,
    /// The callback in progress.
    running: Option<Running>,
    /// No longer needed, and dropped by the background task: not by the program that replaced them.
    gone: Vec<Arc<Connected>>,
}

/// The expiry in nanoseconds, and which start it was.
type Place = (u64, u64);

/// A program, and where its code is: under the lock no program is looked into, since that takes a reference that might
/// become the last.
struct Known {
    program: Weak<Connected>,
    code: Range<usize>,
    /// Where the program itself is, and so its interpreter.
    itself: Range<usize>,
}

struct Count {
    entries: usize,
    /// The number of entries at which those of deleted elements are looked for.
    most: usize,
}

#[derive(Clone, Copy)]
struct Running {
    number: u64,
    /// The virtual CPU that it runs on.
    cpu: u32,
    program: usize,
    /// The handle of the map.
    map: u64,
}

/// A handle of a program with callbacks ends: timers that only it could notice do too.
#[derive(Clone)]
pub(crate) struct SweepOnDrop(pub(crate) Arc<Timers>);

impl Drop for SweepOnDrop {
    fn drop(&mut self) {
        self.0.request_sweep();
    }
}

/// The locked state.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    // After the guard, so dropped after it.
    _counted: Counted,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// A field of a value, as a helper got it.
#[derive(Clone, Copy)]
pub(crate) struct Field(*mut u8);

impl Field {
    /// # Safety
    ///
    /// It is a timer or work queue in a value that the program found in a section which the thread is still in, at
    /// least while the field is used.
    pub(crate) unsafe fn new(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }

    fn number(&self) -> &AtomicU64 {
        // SAFETY: by the promise of `new`.
        unsafe { Map::number_at(self.0) }
    }
}

impl Timers {
    fn lock(&self) -> Locked<'_> {
        let counted = Counted::begin();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { state, _counted: counted }
    }

    /// The background task polls from now on; `attach` is called once.
    pub(crate) fn attach(&self, attach: impl FnOnce() -> TaskHandle) {
        self.task.get_or_init(attach);
    }

    /// A program whose functions may be callbacks.
    pub(crate) fn know(&self, program: &Arc<Connected>) {
        let mut state = self.lock();
        state.programs.retain(|known| known.program.strong_count() > 0);
        let (start, own) = (program.compiled.text().address(), Arc::as_ptr(program).addr());
        state.programs.push(Known {
            program: Arc::downgrade(program),
            code: start..start + program.compiled.code_bytes(),
            itself: own..own + size_of::<Connected>(),
        });
    }

    /// Makes the background task look for entries whose program or map nobody refers to any more.
    pub(crate) fn request_sweep(&self) {
        if let Some(task) = self.task.get() {
            task.wake();
        }
    }

    /// `bpf_timer_init`, with arguments that were checked. Returns 0 or a negated error number.
    ///
    /// # Safety
    ///
    /// The field is one of that map's and of that flavour; the thread is in a section, as that virtual CPU.
    pub(crate) unsafe fn init(&self, map: &Arc<Map>, field: Field, flavour: Flavour, cpu: u32) -> u64 {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // SAFETY: the caller's promise.
        let Some(entry) = (unsafe { Entry::new(map, field.0, flavour) }) else { return EINVAL };
        // SAFETY: as above.
        if !unsafe { entry.is_at(map, cpu) } {
            return ENOENT;
        }
        // SAFETY: as above.
        unsafe { self.make_room(map, cpu) };
        // Relaxed: each value is used once, whatever the order.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = self.lock();
            // Relaxed: all changes of entries are made under the lock.
            let before = field.number().load(Ordering::Relaxed);
            if state.entries.contains_key(&before) {
                return EBUSY;
            }
            if !state.is_used(&Arc::downgrade(map), 1) {
                return EPERM;
            }
            state.insert(number, entry, map);
            field.number().store(number, Ordering::SeqCst);
        }
        // The element may have been deleted meanwhile, before or after its field was written.
        let entry = self.lock().entries.get(&number).map(Entry::place);
        // SAFETY: as above.
        let still = entry.is_none_or(|entry| unsafe { entry.is_at(map, cpu) });
        if still {
            return 0;
        }
        let mut state = self.lock();
        state.remove(number);
        self.unlock(state);
        // The element may be another's by now, with a number of its own.
        let _ = field.number().compare_exchange(number, 0, Ordering::SeqCst, Ordering::Relaxed);
        ENOENT
    }

    /// `bpf_timer_set_callback`.
    pub(crate) fn set_callback(&self, field: Field, function: &Function) -> u64 {
        let mut state = self.lock();
        let number = field.number().load(Ordering::Relaxed);
        let Some(entry) = state.entries.get(&number) else { return EINVAL };
        let Some(program) = state.owner(function) else { return EINVAL };
        let used = state.others(&program, 1) > 0 || state.is_used(&entry.map, 0);
        if used {
            state.set(number, &program, function.entry);
            drop(program); // not the last reference
        } else {
            state.gone.push(program);
        }
        self.unlock(state);
        if used { 0 } else { EPERM }
    }

    /// `bpf_timer_start`: to be called at `expiry(flavour)`, in nanoseconds of the monotonic clock.
    pub(crate) fn start(&self, field: Field, expiry: impl FnOnce(Flavour) -> u64) -> u64 {
        let mut state = self.lock();
        let number = field.number().load(Ordering::Relaxed);
        let soonest = state.queue.first_key_value().map(|(place, _)| place.0);
        let start = state.starts + 1;
        let State { entries, queue, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&number).filter(|entry| entry.callback.is_some()) else {
            return EINVAL;
        };
        // Work that waits is not asked for twice.
        if entry.flavour == Flavour::Work && entry.armed.is_some() {
            return 0;
        }
        let place = (expiry(entry.flavour), start);
        if let Some(before) = entry.armed.replace(place) {
            queue.remove(&before);
        }
        queue.insert(place, number);
        state.starts = start;
        drop(state);
        if soonest.is_none_or(|soonest| place.0 < soonest) {
            self.request_sweep();
        }
        0
    }

    /// `bpf_timer_cancel`. Waits for a callback in progress on another CPU.
    pub(crate) fn cancel(&self, field: Field, cpu: u32) -> u64 {
        let mut state = self.lock();
        let number = field.number().load(Ordering::Relaxed);
        if !state.entries.contains_key(&number) {
            return EINVAL;
        }
        let running = |state: &State| state.running.filter(|running| running.number == number);
        if running(&state).is_some_and(|running| running.cpu == cpu) {
            return EDEADLK;
        }
        let pending = state.disarm(number);
        state.clear(number);
        let mut waits = running(&state).is_some();
        self.unlock(state);
        for _ in 0..LOOKS {
            if !waits {
                return pending.into();
            }
            std::thread::sleep(PAUSE);
            waits = running(&self.lock()).is_some();
        }
        // The callback may be waiting for this program in turn.
        EDEADLK
    }

    /// Unlocks, and has dropped what is not needed any more.
    fn unlock(&self, state: Locked<'_>) {
        let gone = !state.gone.is_empty();
        drop(state);
        if gone {
            self.request_sweep();
        }
    }

    /// Ends the entries of a map's deleted and updated elements if the map has more than it can have elements.
    ///
    /// # Safety
    ///
    /// As for [`init`](Self::init).
    unsafe fn make_room(&self, map: &Arc<Map>, cpu: u32) {
        let handle = map.link().handle;
        let places: Vec<_> = {
            let state = self.lock();
            if state.counts.get(&handle).is_none_or(|count| count.entries < count.most) {
                return;
            }
            let of_map = state.entries.iter().filter(|(_, entry)| entry.handle == handle);
            of_map.map(|(number, entry)| (*number, entry.place())).collect()
        };
        // SAFETY: the caller's promise.
        let has = |number: u64, place: &ElementPlace| unsafe { place.has(number, map, cpu) };
        let gone: Vec<_> = places.iter().filter(|(number, place)| !has(*number, place)).collect();
        let mut state = self.lock();
        for (number, _) in gone {
            state.remove(*number);
        }
        if let Some(count) = state.counts.get_mut(&handle) {
            count.most =
                count.entries.max(map.def().max_entries as usize).saturating_mul(2).saturating_add(SPARE);
        }
        self.unlock(state);
    }
}

impl State {
    fn insert(&mut self, number: u64, entry: Entry, map: &Map) {
        let most = (map.def().max_entries as usize).saturating_mul(2).saturating_add(SPARE);
        self.counts.entry(entry.handle).or_insert(Count { entries: 0, most }).entries += 1;
        self.entries.insert(number, entry);
    }

    /// Ends an entry.
    fn remove(&mut self, number: u64) {
        self.disarm(number);
        self.clear(number);
        let Some(entry) = self.entries.remove(&number) else { return };
        if let Some(count) = self.counts.get_mut(&entry.handle) {
            count.entries -= 1;
            if count.entries == 0 {
                self.counts.remove(&entry.handle);
            }
        }
    }

    /// Takes an entry out of the queue. Returns whether it was there.
    fn disarm(&mut self, number: u64) -> bool {
        let armed = self.entries.get_mut(&number).and_then(|entry| entry.armed.take());
        armed.is_some_and(|place| self.queue.remove(&place).is_some())
    }

    /// Takes the callback from an entry.
    fn clear(&mut self, number: u64) {
        let Some(callback) = self.entries.get_mut(&number).and_then(|entry| entry.callback.take()) else {
            return;
        };
        let Some(held) = self.held.get_mut(&callback.program) else { return };
        held.callbacks -= 1;
        if held.callbacks == 0
            && let Some(held) = self.held.remove(&callback.program)
        {
            self.gone.push(held.program);
        }
    }

    fn set(&mut self, number: u64, program: &Arc<Connected>, function: entry::Entrance) {
        let address = Arc::as_ptr(program).addr();
        let held = self.held.entry(address);
        held.or_insert_with(|| Held { program: Arc::clone(program), callbacks: 0 }).callbacks += 1;
        self.clear(number);
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.callback = Some(Callback { program: address, function });
        }
    }

    /// The program that a function belongs to.
    fn owner(&self, function: &Function) -> Option<Arc<Connected>> {
        let known = self.programs.iter().find(|known| match function.place() {
            entry::Within::Code(address) => known.code.contains(&address),
            entry::Within::Itself(address) => known.itself.contains(&address),
        })?;
        known.program.upgrade()
    }

    /// How many references to a program there are besides those here. `ours`: those of the caller.
    fn others(&self, program: &Arc<Connected>, ours: usize) -> usize {
        let address = Arc::as_ptr(program).addr();
        let held = usize::from(self.held.contains_key(&address));
        let running = usize::from(self.running.is_some_and(|running| running.program == address));
        let gone = self.gone.iter().filter(|gone| Arc::ptr_eq(gone, program)).count();
        Arc::strong_count(program).saturating_sub(held + running + gone + ours)
    }

    /// Whether anybody but timers, and programs that only timers refer to, refers to a map. `ours`: references that
    /// the caller has.
    fn is_used(&self, map: &Weak<Map>, ours: usize) -> bool {
        let at = map.as_ptr();
        let only_held = self.held.values().filter(|held| self.others(&held.program, 0) == 0);
        let theirs =
            only_held.flat_map(|held| held.program.maps()).filter(|of| Arc::as_ptr(of) == at).count();
        let running = usize::from(self.running.is_some_and(|running| running.map == at.addr() as u64));
        map.strong_count().saturating_sub(theirs + running + ours) > 0
    }
}
