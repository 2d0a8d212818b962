//! A program in a runtime of its own, with fresh maps.

use crate::error::Error;
use crate::setup::Setup;
use skep::abi::{Context, ProgramType};
use skep::world::{Clock, Machine, Random};
use skep::{Budget, Module, Object, Packet, Program, Runtime, World};
use std::time::Duration;

/// Units of work after which a run is taken for one that does not end.
const BUDGET: u64 = 4_000_000;

/// What is fuzzed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) program: String,
    pub(crate) program_type: Option<&'static ProgramType>,
    /// The program that sees each result.
    pub(crate) check: Option<String>,
    /// Bytes of the buffer, for programs over one.
    pub(crate) buffer: Option<u32>,
}

/// A loaded program.
pub(crate) struct Target {
    pub(crate) module: Module,
    program: Program,
    check: Option<Program>,
    packet: Packet,
    checked: Packet,
}

/// What a run has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// The result.
    Verdict(u64),
    /// It did not end, or a helper could not go on.
    Failed(String),
}

impl Target {
    pub(crate) fn load(object: &Object, wanted: &Wanted, setup: &Setup) -> Result<Self, Error> {
        let failed = |source| Error::Load { source: Box::new(source) };
        let world = World::with(Machine::new(), Clock::stepped(Duration::from_secs(1)), Random::seeded(0));
        let builder = Runtime::builder().cpus(1).coverage(true).world(&world).log(|_, _| {});
        let runtime = builder.budget(Budget::units(BUDGET)).build().map_err(failed)?;
        let mut linker = runtime.linker(object).only(&wanted.program);
        if let Some(kind) = wanted.program_type {
            linker = linker.program_type(kind);
        }
        if let Some(len) = wanted.buffer {
            linker = linker.buffer_len(len);
        }
        if let Some(check) = &wanted.check {
            linker = linker.and(check);
        }
        let module = linker.load().map_err(failed)?;
        setup.apply(&module);
        let named = |name: &str| {
            let lacks = || Error::NoProgram { program: name.to_owned() };
            module.program(name).cloned().ok_or_else(lacks)
        };
        let program = named(&wanted.program)?;
        let check = wanted.check.as_deref().map(named).transpose()?;
        let empty = || Packet::new(&[]);
        Ok(Self { module, program, check, packet: empty(), checked: empty() })
    }

    /// The program.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Runs it on a packet, or on a buffer.
    pub(crate) fn run(&mut self, bytes: &[u8]) -> Ran {
        if let Context::Buffer = self.program.program_type().context {
            self.packet.set(bytes);
            return ran(self.program.run_raw(self.packet.bytes_mut()));
        }
        self.packet.set(bytes);
        match ran(self.program.run(&mut self.packet)) {
            Ran::Verdict(result) => Ran::Verdict(result & 0xffff_ffff),
            failed => failed,
        }
    }

    /// The packet or buffer as the last run left it.
    pub(crate) fn left(&self) -> &[u8] {
        self.packet.bytes()
    }

    /// What the check says of the last run: 1 is right, 3 that it does not matter. `None` without a check.
    pub(crate) fn check(&mut self, result: u64, whole: &mut Vec<u8>) -> Option<Ran> {
        let check = self.check.as_ref()?;
        whole.clear();
        whole.extend_from_slice(&(result as u32).to_ne_bytes());
        whole.extend_from_slice(self.packet.bytes());
        self.checked.set(whole);
        Some(match ran(check.run(&mut self.checked)) {
            Ran::Verdict(result) => Ran::Verdict(result & 0xffff_ffff),
            failed => failed,
        })
    }

    /// The name of a verdict, or its number.
    pub(crate) fn verdict(&self, ran: &Ran) -> String {
        match ran {
            Ran::Failed(text) => text.clone(),
            Ran::Verdict(result) => match self.program.program_type().verdict(*result) {
                Some(name) => name.to_owned(),
                None => (*result as u32 as i32).to_string(),
            },
        }
    }
}

fn ran(result: Result<u64, skep::Error>) -> Ran {
    match result {
        Ok(result) => Ran::Verdict(result),
        Err(error) => Ran::Failed(error.to_string()),
    }
}
