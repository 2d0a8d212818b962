//! Runs with a state that functions of the host take.

use super::Program;
use crate::context::Context;
use crate::error::Error;
use crate::image::Engine;
use crate::packet::{Outcome, Packet};
use crate::run_state::{RunState, StateType};
use std::any::Any;
use std::fmt;

/// A program and the state of its next runs ([`Program::with_state`]).
pub struct WithState<'a> {
    program: &'a Program,
    state: RunState<'a>,
}

impl Program {
    /// Lends a state to the next runs: the functions of the host that the program calls can
    /// [take](crate::function::State) it. Costs nothing by itself.
    ///
    /// ```
    /// use skep::function::{Errno, State};
    /// use skep::{Object, Runtime};
    ///
    /// fn note(mut notes: State<'_, Vec<u64>>, value: u64) -> Result<(), Errno> {
    ///     notes.push(value);
    ///     Ok(())
    /// }
    ///
    /// let runtime = Runtime::builder().function(1000, "note", note).build()?;
    /// let insns = skep::isa::assemble("r1 = 7\ncall note#1000\nexit").expect("the text is right");
    /// let object = Object::from_insns("noting", &skep::abi::RAW, insns);
    /// let module = runtime.linker(&object).buffer_len(4).load()?;
    ///
    /// let mut notes = Vec::new();
    /// let mut noting = module.programs()[0].with_state(&mut notes);
    /// noting.run_raw(&mut [0; 4])?;
    /// noting.run_raw(&mut [0; 4])?;
    /// assert_eq!(notes, [7, 7]);
    /// # Ok::<(), skep::Error>(())
    /// ```
    #[inline]
    pub fn with_state<'a, T: Any>(&'a self, state: &'a mut T) -> WithState<'a> {
        WithState { program: self, state: RunState::new(state) }
    }

    /// [`Program::run`] with a state for functions of the host.
    ///
    /// # Errors
    ///
    /// As [`Program::run`], and [`Error::StateMissing`] if they take a state of another type.
    #[inline]
    pub fn run_with_state<T: Any>(&self, packet: &mut Packet, state: &mut T) -> Result<u64, Error> {
        self.with_state(state).run(packet)
    }

    /// [`Program::run_raw`] with a state for functions of the host.
    ///
    /// # Errors
    ///
    /// As [`Program::run_raw`], and [`Error::StateMissing`] if they take a state of another type.
    #[inline]
    pub fn run_raw_with_state<T: Any>(&self, buffer: &mut [u8], state: &mut T) -> Result<u64, Error> {
        self.with_state(state).run_raw(buffer)
    }

    /// [`Program::run_context`] with a state for functions of the host.
    ///
    /// # Errors
    ///
    /// As [`Program::run_context`], and [`Error::StateMissing`] if they take a state of another type.
    #[inline]
    pub fn run_context_with_state<T: Any>(&self, context: &mut Context, state: &mut T) -> Result<u64, Error> {
        self.with_state(state).run_context(context)
    }

    /// Refuses a run without the state that its functions take.
    #[inline]
    pub(super) fn check_state(&self, wanted: StateType, state: Option<&RunState<'_>>) -> Result<(), Error> {
        let given = state.map(RunState::of);
        if given.is_some_and(|given| given.id() == wanted.id()) {
            return Ok(());
        }
        let program = self.name().to_owned();
        Err(Error::StateMissing { program, wanted: wanted.name(), given: given.map(StateType::name) })
    }
}

impl WithState<'_> {
    /// [`Program::run`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_with_state`].
    #[inline]
    pub fn run(&mut self, packet: &mut Packet) -> Result<u64, Error> {
        self.run_with(Engine::Jit, packet)
    }

    /// [`Program::run_with`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_with_state`] and [`Program::run_with`].
    #[inline]
    pub fn run_with(&mut self, engine: Engine, packet: &mut Packet) -> Result<u64, Error> {
        self.program.run_lending(engine, packet, Some(&self.state))
    }

    /// [`Program::outcome_with`].
    ///
    /// # Errors
    ///
    /// As [`WithState::run_with`].
    pub fn outcome_with(&mut self, engine: Engine, packet: &mut Packet) -> Result<Outcome, Error> {
        self.program.outcome_lending(engine, packet, Some(&self.state))
    }

    /// [`Program::run_raw`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_raw_with_state`].
    #[inline]
    pub fn run_raw(&mut self, buffer: &mut [u8]) -> Result<u64, Error> {
        self.run_raw_with(Engine::Jit, buffer)
    }

    /// [`Program::run_raw_with`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_raw_with_state`] and [`Program::run_raw_with`].
    #[inline]
    pub fn run_raw_with(&mut self, engine: Engine, buffer: &mut [u8]) -> Result<u64, Error> {
        self.program.run_raw_lending(engine, buffer, Some(&self.state))
    }

    /// [`Program::run_context`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_context_with_state`].
    pub fn run_context(&mut self, context: &mut Context) -> Result<u64, Error> {
        self.run_context_with(Engine::Jit, context)
    }

    /// [`Program::run_context_with`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_context_with_state`] and [`Program::run_context_with`].
    pub fn run_context_with(&mut self, engine: Engine, context: &mut Context) -> Result<u64, Error> {
        self.program.run_context_lending(engine, context, Some(&self.state))
    }
}

impl fmt::Debug for WithState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.of().name();
        f.debug_struct("WithState").field("program", self.program).field("state", &state).finish()
    }
}
