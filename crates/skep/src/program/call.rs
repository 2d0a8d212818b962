//! One call of a program: a virtual CPU for this thread, an environment block on its stack, and the program's entry. A
//! program that needs neither is only entered.

use super::Program;
use crate::error::Error;
use crate::image::{Engine, Image};
use crate::run_state::RunState;
use skep_abi::RunEnv;
use skep_interp::Observer;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What a program is called with.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    engine: Engine,
    r1: u64,
    r2: u64,
    /// Address of the native context, or 0 without one.
    context: u64,
    /// Address of the packet's or context's [`Effects`](crate::packet::Effects), or 0 without either.
    effects: u64,
    /// For functions of the host.
    state: Option<&'a RunState<'a>>,
}

impl<'a> Call<'a> {
    /// On a context at that address. `effects`: the address of its [`Effects`](crate::packet::Effects), or 0.
    #[inline]
    pub(crate) fn on_context(engine: Engine, context: u64, effects: u64) -> Self {
        Self { engine, r1: context, r2: 0, context, effects, state: None }
    }

    /// On a buffer at that address.
    #[inline]
    pub(crate) fn on_buffer(engine: Engine, address: u64, len: u32) -> Self {
        Self { engine, r1: address, r2: len.into(), context: 0, effects: 0, state: None }
    }

    /// With a state for functions of the host.
    #[inline]
    pub(crate) fn lending(self, state: Option<&'a RunState<'a>>) -> Self {
        Self { state, ..self }
    }
}

impl Program {
    /// # Safety
    ///
    /// The context or buffer is one for which the program was verified, valid and unshared for the whole run, and so
    /// are the effects.
    #[inline]
    pub(crate) unsafe fn call(&self, call: Call<'_>) -> Result<u64, Error> {
        // Stored by `Registry::want`, and not ordered with anything.
        if self.shared.counts_runs.load(Ordering::Relaxed) != 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.call_counted(call) };
        }
        #[cfg(feature = "guard")]
        if self.shared.guards {
            // SAFETY: the caller's promise.
            return unsafe { self.call_guarded(call) };
        }
        if let (Some(entry), Engine::Jit) = (self.bare, call.engine) {
            // SAFETY: the caller's promise; the program needs no environment, and `self` keeps its code and maps.
            return Ok(unsafe { entry.call(call.r1, call.r2, ptr::null_mut()) });
        }
        // SAFETY: the caller's promise.
        unsafe { self.call_now(call) }
    }

    /// [`Program::call`] with the host's guarded memory closed.
    ///
    /// # Safety
    ///
    /// As for [`Program::call`].
    #[cfg(feature = "guard")]
    #[inline(never)]
    unsafe fn call_guarded(&self, call: Call<'_>) -> Result<u64, Error> {
        let _closed = skep_guard::Closed::new()?;
        // SAFETY: the caller's promise.
        unsafe { self.call_now(call) }
    }

    /// [`Program::call`], counted with its time.
    ///
    /// # Safety
    ///
    /// As for [`Program::call`].
    #[cold]
    #[inline(never)]
    unsafe fn call_counted(&self, call: Call<'_>) -> Result<u64, Error> {
        // Only says which counters are touched: where threads share virtual CPUs, the run may have another one, and
        // counters may be touched by two at once.
        let cpu = self.shared.domain.enter()?.number();
        #[cfg(feature = "guard")]
        let _closed = self.shared.guards.then(skep_guard::Closed::new).transpose()?;
        let started = Instant::now();
        // SAFETY: the caller's promise.
        let result = unsafe { self.call_now(call) };
        let time = started.elapsed();
        for counted in
            [Some(&self.image.counted), self.link.as_ref().map(|link| &link.counted)].into_iter().flatten()
        {
            match result {
                Ok(_) => counted.add(cpu, time),
                Err(Error::LockHeld) => counted.miss(cpu),
                Err(_) => {}
            }
        }
        result
    }

    /// [`Program::call`], whether runs are counted or not.
    ///
    /// # Safety
    ///
    /// As for [`Program::call`].
    #[inline]
    unsafe fn call_now(&self, call: Call<'_>) -> Result<u64, Error> {
        let image: &Image = &self.image;
        let interpreter = match call.engine {
            Engine::Jit => None,
            Engine::Interpreter => Some(self.shared.interpreter(image)?),
        };
        // SAFETY: the caller's promise; the linkage's maps and helpers live as long as `self`.
        let enter = |env: &mut RunEnv| unsafe {
            match interpreter {
                None => image.entry.call(call.r1, call.r2, env),
                Some(interpreter) => interpreter.run(call.r1, call.r2, env),
            }
        };
        // SAFETY: it runs this program.
        unsafe { self.start(&call, enter) }
    }

    /// [`Program::call`] in the interpreter, whatever the call's engine, with an observer. It is not counted.
    ///
    /// # Safety
    ///
    /// As for [`Program::call`].
    pub(super) unsafe fn call_observed(
        &self,
        call: Call<'_>,
        observer: &mut impl Observer,
    ) -> Result<u64, Error> {
        let interpreter = self.shared.interpreter(&self.image)?;
        // SAFETY: the caller's promise; the linkage's maps and helpers live as long as `self`.
        let enter = |env: &mut RunEnv| unsafe { interpreter.run_observed(call.r1, call.r2, env, observer) };
        // SAFETY: it runs this program.
        unsafe { self.start(&call, enter) }
    }

    /// Prepares a virtual CPU and an environment, lets `enter` run the program in them, and settles what the run left.
    ///
    /// # Safety
    ///
    /// As for [`Program::call`]; `enter` runs this program in the environment, and does nothing else with that.
    #[inline]
    unsafe fn start(&self, call: &Call<'_>, enter: impl FnOnce(&mut RunEnv) -> u64) -> Result<u64, Error> {
        let image: &Image = &self.image;
        if let Some(wanted) = image.takes {
            self.check_state(wanted, call.state)?;
        }
        if image.locks && skep_maps::lock::is_held() {
            return Err(Error::LockHeld);
        }
        if let Some(arena) = &image.mapped_arena {
            arena.meet_touched_pages();
        }
        let mut env = RunEnv {
            context: call.context,
            host: &raw const *self.shared as u64,
            program: &raw const *image as u64,
            run: call.effects,
            state: call.state.map_or(0, |state| (&raw const *state).expose_provenance() as u64),
            ..RunEnv::default()
        };
        // Its number is the virtual CPU; and as long as it lives, no code that this run can reach is reused.
        let (_normal, _sleepable);
        if image.sleepable {
            let section = self.shared.domain.enter_sleepable()?;
            (env.cpu, env.sleepable) = (section.number(), 1);
            _sleepable = section;
        } else {
            let section = self.shared.domain.enter()?;
            env.cpu = section.number();
            _normal = section;
        }
        let mut ending = self.shared.ending(image, self.budget.as_deref().copied());
        if let Some(ending) = &mut ending {
            ending.attach(&mut env);
        }
        let result = enter(&mut env);
        if u64::from(env.sections) | env.ending != 0 {
            // SAFETY: the run has returned, and its section lasts.
            unsafe { self.shared.finish(image, &mut env, ending.as_mut())? };
        }
        Ok(result)
    }
}
