//! Programs at functions of other programs: extensions, and programs that watch a function.
//!
//! A load names the function ([`ProgramRequest::attach_program`](crate::ProgramRequest::attach_program)), and the
//! program keeps it until its first attachment. Later ones of extensions name a function each; the engine checks that
//! it fits.

use crate::caller::Caller;
use crate::engine::{Engine, Place};
use crate::errno::Errno;
use crate::links::Held;
use crate::programs::ProgramObject;
use crate::system::System;
use alloc::sync::Arc;

/// Numbers of types of programs.
const TRACING: u32 = 26;
const EXTENSION: u32 = 28;
/// `BPF_TRACE_FENTRY`, `BPF_TRACE_FEXIT`, `BPF_MODIFY_RETURN`.
const AROUND_FUNCTIONS: core::ops::RangeInclusive<u32> = 24..=26;

/// Whether such programs are attached to functions.
pub(crate) fn is_of_functions(program_type: u32, expected_attach_type: u32) -> bool {
    match program_type {
        TRACING => AROUND_FUNCTIONS.contains(&expected_attach_type),
        program_type => program_type == EXTENSION,
    }
}

impl<E: Engine> System<E> {
    /// Attaches a program to a function: of the program behind that descriptor, whose type has that number, or without
    /// both to the one of its load.
    pub(crate) fn function_attach(
        &self,
        caller: &mut impl Caller<E>,
        program: Arc<ProgramObject<E>>,
        descriptor: i32,
        function: u32,
    ) -> Result<i64, Errno> {
        let (kind, expected) = (program.program_type(), program.expected_attach_type());
        if !is_of_functions(kind, expected) || (kind == EXTENSION && expected != 0) {
            return Err(Errno::EINVAL);
        }
        if (descriptor != 0) != (function != 0) {
            return Err(Errno::EINVAL);
        }
        let named = match descriptor {
            0 => None,
            _ if kind != EXTENSION => return Err(Errno::EINVAL),
            descriptor => Some(caller.handle(descriptor)?.program()?),
        };
        let of_load = program.target();
        let (target, function) = match (named, &of_load) {
            (Some(named), _) => (named, function),
            (None, Some(of_load)) => (Arc::clone(of_load), program.attach_type_id()),
            (None, None) => return Err(Errno::EINVAL),
        };
        let attachment = self.engine().attach(target.program(), function, program.program())?;
        // The first attachment to the function of the load is the one that needs no name.
        if of_load.is_some_and(|of_load| Arc::ptr_eq(&of_load, &target))
            && function == program.attach_type_id()
        {
            program.take_target();
        }
        let place = Place::Function { program: target.id(), function, attach_type: expected };
        self.link_holding(caller, program, place, Held::Function { _attachment: attachment, _of: target })
    }
}
