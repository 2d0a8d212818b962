//! Calls of the callbacks of timers: by the runtime's background thread, or by the host that steps a
//! virtual clock.
//!
//! ```text
//!   real clock       start --wakes--> the keeper: all that is due, then sleeps until the next expiry
//!   virtual clock    World::step: moves the clock to the next expiry, calls, moves on ... up to its end
//! ```
//!
//! A callback is a run of its own, with a virtual CPU and a section, but without context and packet. No lock is held.
//! Callbacks of a runtime are called one after the other, in the order of their expiries, and of their starts where
//! these are equal. What a callback starts for now or earlier is called in the next round, so that no program can keep
//! a round going.

use crate::dispatch::Connected;
use crate::image::Image;
use crate::shared::Shared;
use crate::surroundings::Timed;
use crate::timers::{Due, Entrance};
use skep_abi::{HelperFn, RunEnv};
use skep_rcu::BackgroundTask;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// When to try again while every virtual CPU belongs to another thread, or a lock is held.
const LATER: Duration = Duration::from_millis(1);
/// How long it sleeps at most, so that a clock that is set does not matter.
const LONGEST: Duration = Duration::from_secs(3600);

/// The background task of a runtime.
struct Expiry(Weak<Shared>);

impl BackgroundTask for Expiry {
    fn poll(&self) -> Option<Duration> {
        let shared = self.0.upgrade()?;
        shared.timers.sweep();
        if shared.surroundings.clock.is_virtual() {
            return None; // the host's steps call
        }
        // Callers that have a virtual CPU keep it.
        let had = shared.domain.enter_if_known().is_some();
        let (starts, now) = (shared.timers.starts(), shared.now());
        let mut blocked = false;
        while !blocked && shared.timers.next(starts).is_some_and(|due| due <= now) {
            blocked = shared.call_next(now, starts).is_none();
        }
        if !had {
            shared.domain.release();
        }
        shared.timers.sweep();
        if blocked {
            return Some(LATER);
        }
        let next = shared.timers.next(u64::MAX)?;
        Some(Duration::from_nanos(next.saturating_sub(shared.now())).min(LONGEST))
    }
}

impl Timed for Shared {
    fn next(&self, starts: u64) -> Option<u64> {
        self.timers.next(starts)
    }

    fn starts(&self) -> u64 {
        self.timers.starts()
    }

    fn expire(&self, now: u64, starts: u64) -> Option<bool> {
        self.call_next(now, starts)
    }
}

impl Shared {
    /// A program that may set callbacks is loaded.
    pub(crate) fn may_defer(self: &Arc<Self>, program: &Arc<Connected>) {
        self.timers.know(program);
        self.timers.attach(|| self.domain.attach(Arc::new(Expiry(Arc::downgrade(self)))));
        let timed: Weak<dyn Timed> = Arc::downgrade(self) as Weak<dyn Timed>;
        self.surroundings.add_timers(timed);
    }

    /// Calls the first callback that is due at `now` and was among the first `starts` starts. Returns whether it was
    /// called: entries of deleted elements end instead. `None` if nothing can be called now.
    fn call_next(&self, now: u64, starts: u64) -> Option<bool> {
        if skep_maps::lock::is_held() {
            return None;
        }
        let mut env = RunEnv { host: std::ptr::from_ref(self) as u64, ..RunEnv::default() };
        let section = self.domain.enter().ok()?;
        env.cpu = section.number();
        let Some(due) = self.timers.take(now, starts, env.cpu) else { return Some(false) };
        let image: &Image = &due.program;
        env.program = std::ptr::from_ref(image) as u64;
        // SAFETY: this thread is in a section of the domain of the runtime's maps.
        let arguments = unsafe { due.arguments(env.cpu) };
        // A sleepable section keeps elements too, and nobody else should wait for a sleeper.
        let mut normal = Some(section);
        let sleepable = due.sleeps.then(|| self.domain.enter_sleepable().ok()).flatten();
        if sleepable.is_some() {
            (normal, env.sleepable) = (None, 1);
        }
        if let Some(arguments) = arguments {
            let mut ending = self.ending(image, None);
            if let Some(ending) = &mut ending {
                ending.attach(&mut env);
            }
            // SAFETY: the arguments are those of such a callback, and the section lasts until it has returned.
            unsafe {
                self.call(&due, arguments, &mut env);
                self.finish_unseen(image, &mut env, ending.as_mut());
            }
        }
        self.timers.finish(due, arguments.is_some());
        drop((normal, sleepable));
        Some(arguments.is_some())
    }

    /// # Safety
    ///
    /// The arguments are those of the callback; `env` is that of a run in a section.
    unsafe fn call(&self, due: &Due, arguments: [u64; 5], env: &mut RunEnv) {
        // The host may step a clock where its guarded memory is open. That there is a key was checked.
        #[cfg(feature = "guard")]
        let _closed = self.guards.then(skep_guard::Closed::new);
        match due.function {
            Entrance::Compiled(address) => {
                let [map, key, value, d, e] = arguments;
                // SAFETY: the program passed the address of a function with this signature, which the verifier walked
                // for these arguments; the program is kept.
                unsafe {
                    let call = std::mem::transmute::<usize, HelperFn>(address as usize);
                    call(map, key, value, d, e, env);
                }
            }
            Entrance::Interpreted(number) => {
                if let Ok(interpreter) = self.interpreter(&due.program) {
                    // SAFETY: as above.
                    let called = unsafe { interpreter.run_function(number, arguments, env) };
                    debug_assert!(called.is_some());
                }
            }
        }
    }
}
