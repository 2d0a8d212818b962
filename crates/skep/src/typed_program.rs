//! Programs over a host's own context, and their runs.
//!
//! ```text
//!   Module::typed::<Request>(name) -> TypedProgram<Request>   the program's type is the structure's
//!   TypedProgram::run(&mut Request) -> Verdict                lend every field, call, take numbers back
//! ```
//!
//! Invariant: r1 of a program of a host's type is the address of a structure that was lent by the slots of that very
//! type. Only this module runs such programs, and it has compared the types by address.

use crate::error::Error;
use crate::host::{HostContext, HostData, HostType, Lending, RunPart, Space, TakingBack, Verdict};
use crate::image::{Engine, Input};
use crate::module::Module;
use crate::program::{Call, Program, WithState};
use crate::run_state::RunState;
use crate::runtime::Runtime;
use skep_abi::HelperProto;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

/// A program whose context is the Rust structure `K`, with `'static` for its lifetimes. Cheap to clone; any number of
/// threads may run it at once.
pub struct TypedProgram<K> {
    program: Program,
    host: &'static HostType,
    _kind: PhantomData<fn(&mut K)>,
}

impl Program {
    /// The program as one over the context `C`.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] if it was verified for another type; [`Error::HostType`] as [`HostType::of`].
    pub fn typed<C: HostContext>(&self) -> Result<TypedProgram<C::Kind>, Error> {
        let host = HostType::of::<C>()?;
        if self.image().input != Input::Host || !std::ptr::eq(self.program_type(), host.program_type()) {
            let given = format!("the context of SEC(\"{}\"), struct {}", host.section(), C::NAME);
            return Err(self.wrong_input(format!("an input of type {}", self.program_type().name), given));
        }
        Ok(TypedProgram { program: self.clone(), host, _kind: PhantomData })
    }
}

impl Module {
    /// The program of that name, over the context `C`.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the module has no such program, and those of [`Program::typed`].
    pub fn typed<C: HostContext>(&self, name: &str) -> Result<TypedProgram<C::Kind>, Error> {
        let known = || self.programs().iter().map(|program| program.name().to_owned()).collect();
        let missing = || Error::Unknown { what: "program", name: name.to_owned(), known: known() };
        self.program(name).ok_or_else(missing)?.typed::<C>()
    }
}

impl Runtime {
    /// The C header for authors of programs over this context: [`HostType::header`] and prototypes of the functions
    /// that the runtime was given for them ([`RuntimeBuilder::method`](crate::RuntimeBuilder::method)).
    ///
    /// # Errors
    ///
    /// [`Error::HostType`] as [`HostType::of`].
    pub fn context_header<C: HostContext>(&self) -> Result<String, Error> {
        let host = HostType::of::<C>()?;
        let shared = self.shared();
        let of_type =
            |proto: &&HelperProto| proto.only.is_some_and(|only| std::ptr::eq(only, host.program_type()));
        let functions: Vec<_> = shared.helpers.values().map(|helper| &helper.proto).filter(of_type).collect();
        Ok(host.header_with(&functions))
    }
}

impl Program {
    /// Runs it over a context of a type that was described as data ([`HostType::new`]). `part` is what functions of the
    /// type work on ([`HostPart`](crate::function::HostPart)). Returns the result.
    ///
    /// # Errors
    ///
    /// [`Error::WrongInput`] if it was verified for another type; [`Error::Lent`] if the context does not lend what the
    /// type describes; [`Error::Verdict`] for a result between the verdicts that is none of them; the others of
    /// [`Program::run`].
    pub fn run_data<P: 'static>(
        &self,
        host: &'static HostType,
        context: &mut dyn HostData,
        part: &mut P,
    ) -> Result<i32, Error> {
        self.run_data_lending(host, context, part, None)
    }

    fn run_data_lending<P: 'static>(
        &self,
        host: &'static HostType,
        context: &mut dyn HostData,
        part: &mut P,
        state: Option<&RunState<'_>>,
    ) -> Result<i32, Error> {
        let name = host.description().name();
        if self.image().input != Input::Host || !std::ptr::eq(self.program_type(), host.program_type()) {
            let given = format!("the context of SEC(\"{}\"), struct {name}", host.section());
            return Err(self.wrong_input(format!("an input of type {}", self.program_type().name), given));
        }
        let mut space = Space::new(host.bytes());
        let mut lending = Lending::new(host.slots(), space.words());
        context.lend(&mut lending);
        let part = RunPart { host: std::ptr::from_mut(part).cast(), of: TypeId::of::<P>() };
        let not_lent = || Error::Lent { program: self.name().to_owned(), name };
        let address = lending.finish(&part).ok_or_else(not_lent)?;
        // SAFETY: the address is that of a structure lent by the slots of the program's own type. It and all that it
        // leads to are borrowed for as long as `lending` is, and so is the part.
        let result = during(&lending, || unsafe {
            self.call(Call::on_context(Engine::Jit, address, 0).lending(state))
        });
        let result = result? as u32 as i32;
        context.take_back(&mut TakingBack::new(host.slots(), space.words()));
        let verdicts = &host.verdict().values;
        if !verdicts.is_empty() && verdicts.iter().all(|(_, number)| *number != result) {
            return Err(Error::Verdict { program: self.name().to_owned(), result });
        }
        Ok(result)
    }
}

/// Runs while this is borrowed, with all that was lent.
fn during<T>(_lending: &Lending<'_>, run: impl FnOnce() -> T) -> T {
    run()
}

impl WithState<'_> {
    /// [`Program::run_data`].
    ///
    /// # Errors
    ///
    /// As [`Program::run_data`], and [`Error::StateMissing`] if functions take a state of another type.
    pub fn run_data<P: 'static>(
        &mut self,
        host: &'static HostType,
        context: &mut dyn HostData,
        part: &mut P,
    ) -> Result<i32, Error> {
        self.program.run_data_lending(host, context, part, Some(&self.state))
    }
}

impl<K: HostContext<Kind = K>> TypedProgram<K> {
    /// Runs it over a context. Numbers with `#[context(write)]`, and bytes that are lent `mut`, are as the program left
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Lent`] if an implementation of [`HostStruct`](crate::host::HostStruct) by hand does not lend what it
    /// describes; [`Error::Verdict`] for a result between the verdicts that is none of them; [`Error::Slots`] and
    /// [`Error::LockHeld`] as for [`Program::run`].
    pub fn run<C: HostContext<Kind = K>>(&self, context: &mut C) -> Result<C::Verdict, Error> {
        self.run_with(Engine::Jit, context)
    }

    /// [`TypedProgram::run`] on the given engine.
    ///
    /// # Errors
    ///
    /// As [`TypedProgram::run`], and [`Error::Interpret`] as for [`Program::run_with`].
    pub fn run_with<C: HostContext<Kind = K>>(
        &self,
        engine: Engine,
        context: &mut C,
    ) -> Result<C::Verdict, Error> {
        self.with(context, |program, address, _| {
            // SAFETY: the address is that of a structure lent by the slots of the program's own type, which `typed` has
            // compared. It and all that it leads to are borrowed until this returns.
            unsafe { program.call(Call::on_context(engine, address, 0)) }
        })
    }

    /// The same in checking mode.
    #[cfg(test)]
    pub(crate) fn run_checked<C: HostContext<Kind = K>>(
        &self,
        context: &mut C,
    ) -> Result<C::Verdict, CheckedRun> {
        let mut violation = None;
        let result = self.with(context, |program, address, lending| {
            program.run_lent_checked(address, lending).map(|result| {
                result.unwrap_or_else(|found| {
                    violation = Some(found);
                    0
                })
            })
        });
        match violation {
            Some(violation) => Err(CheckedRun::Violation(violation)),
            None => result.map_err(CheckedRun::Error),
        }
    }

    fn with<C: HostContext<Kind = K>>(
        &self,
        context: &mut C,
        run: impl FnOnce(&Program, u64, &Lending<'_>) -> Result<u64, Error>,
    ) -> Result<C::Verdict, Error> {
        let mut space = Space::new(self.host.bytes());
        let mut lending = Lending::new(self.host.slots(), space.words());
        let host: *mut C::Host = context.lend_with_host(&mut lending);
        let part = RunPart { host: host.cast(), of: TypeId::of::<C::Host>() };
        let not_lent = || Error::Lent { program: self.program.name().to_owned(), name: C::NAME };
        let address = lending.finish(&part).ok_or_else(not_lent)?;
        // It is borrowed with all that was lent, so that borrows cover the run.
        let result = run(&self.program, address, &lending);
        let result = result? as u32 as i32;
        context.take_back(&mut TakingBack::new(self.host.slots(), space.words()));
        let unknown = || Error::Verdict { program: self.program.name().to_owned(), result };
        C::Verdict::from_result(result).ok_or_else(unknown)
    }

    /// The program itself: its name, its code, what the verifier proved.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

impl<K> Clone for TypedProgram<K> {
    fn clone(&self) -> Self {
        Self { program: self.program.clone(), host: self.host, _kind: PhantomData }
    }
}

impl<K> fmt::Debug for TypedProgram<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedProgram").field("program", &self.program).finish_non_exhaustive()
    }
}

/// How a run in checking mode can fail.
#[cfg(test)]
#[derive(Debug)]
pub(crate) enum CheckedRun {
    Violation(skep_interp::Violation),
    Error(Error),
}
