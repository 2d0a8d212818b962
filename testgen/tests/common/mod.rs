//! Shared code of the differential tests: verifying, running a program in every engine, and reporting failures so
//! that they can be reproduced.
#![allow(dead_code)] // each test file uses a part

pub(crate) mod bpf;

use std::cell::Cell;
use std::sync::Once;

use skep_abi::{CountsLink, Linkage};
use skep_interp::{Interpreter, Reason, Regions, Violation};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_jit::{Compiled, Options};
use skep_testgen::{Host, Source, State, TestProgram, helpers};
use skep_text::{Arena, Config as ArenaConfig};
use skep_verifier::{Config, Refusal, Verified, verify};

/// How many programs a test runs: `SKEP_CASES`, or else the usual number, which is smaller under an emulator.
pub(crate) fn cases(usual: u64) -> u64 {
    let set = std::env::var("SKEP_CASES").ok().and_then(|text| text.parse().ok());
    set.unwrap_or(skep_testkit::fewer_if_emulated(usual))
}

/// How many inputs each program runs over: `SKEP_INPUTS`, or else the usual number.
pub(crate) fn inputs(usual: u64) -> u64 {
    std::env::var("SKEP_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The first seed: `SKEP_SEED`, or else 1.
pub(crate) fn first_seed() -> u64 {
    std::env::var("SKEP_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Verifies with limits that keep a test short.
pub(crate) fn verified(program: &TestProgram) -> Result<Verified, Box<Refusal>> {
    verified_by(program, false)
}

/// The same by the rules for privileged programs, or not.
pub(crate) fn verified_by(program: &TestProgram, privileged: bool) -> Result<Verified, Box<Refusal>> {
    let config = Config {
        privileged,
        helpers: &|id| helpers(id),
        max_walked: 100_000,
        // Programs with more instructions get no comparison of states.
        max_recorded: 20_000,
        ..Config::default()
    };
    let run = std::panic::AssertUnwindSafe(|| verify(program.unverified(), &config));
    std::panic::catch_unwind(run).unwrap_or_else(|cause| {
        eprintln!("the verifier panicked over\n{program}");
        std::panic::resume_unwind(cause)
    })
}

/// Everything needed to run programs: a host and a place for code.
pub(crate) struct Lab {
    pub(crate) host: Host,
    /// Numbers that inputs contain, besides others.
    hints: Vec<u64>,
    keep_hints: bool,
    /// How many instructions a run in checking mode may execute.
    pub(crate) fuel: u64,
    /// What counts the executions of the next program that is prepared.
    pub(crate) counts: Option<CountsLink>,
    /// The host's services for compiled code.
    pub(crate) options: Options,
    arena: Arena,
}

/// The outcome of a run: `r0` and the host's state.
pub(crate) type Outcome = (u64, State);

impl Lab {
    pub(crate) fn new(host: Host) -> Self {
        let arena = Arena::new(ArenaConfig::new()).expect("an arena");
        Self {
            host,
            hints: Vec::new(),
            keep_hints: false,
            fuel: 2_000_000,
            counts: None,
            options: Options::default(),
            arena,
        }
    }

    fn linkage(&self) -> Linkage {
        Linkage { counts: self.counts.clone(), ..self.host.linkage().clone() }
    }

    pub(crate) fn interpreter(&self, program: &Verified) -> Result<Interpreter, String> {
        Interpreter::new(program, &self.linkage()).map_err(|error| format!("interpreter: {error}"))
    }

    pub(crate) fn compiled(&self, program: &Verified) -> Result<Compiled, String> {
        skep_jit::compile(program, &self.linkage(), self.options, &self.arena)
            .map_err(|error| format!("compiler: {error}"))
    }

    /// From now on inputs contain the numbers in that program.
    pub(crate) fn set_hints(&mut self, program: &TestProgram) {
        (self.hints, self.keep_hints) = (program.hints(), false);
    }

    /// Keeps the present numbers.
    pub(crate) fn keep_hints(&mut self) {
        self.keep_hints = true;
    }

    /// Prepares the contents of input number `input`.
    pub(crate) fn reset(&mut self, input: u64) {
        self.host.reset(&mut Source::from_seed(input), &self.hints);
    }

    /// Runs in checking mode over input number `input`.
    pub(crate) fn check(
        &mut self,
        program: &Interpreter,
        source: &TestProgram,
        input: u64,
    ) -> Result<Outcome, Violation> {
        self.reset(input);
        let regions = Regions::new(&|id| helpers(id)).with_fuel(self.fuel).with_source(&source.insns);
        let (result, state) = self.host.run(|r1, r2, env| {
            // SAFETY: the host's memory, maps and helpers outlive the run, and the run starts as the program was
            // verified.
            unsafe { program.run_checked(r1, r2, env, &regions) }
        });
        result.map(|r0| (r0, state))
    }

    /// Runs the interpreter over input number `input`.
    pub(crate) fn interpret(&mut self, program: &Interpreter, input: u64) -> Outcome {
        self.reset(input);
        // SAFETY: as in `check`, and the run in checking mode went well.
        self.host.run(|r1, r2, env| unsafe { program.run(r1, r2, env) })
    }

    /// Runs compiled code over input number `input`.
    pub(crate) fn execute(&mut self, program: &Compiled, input: u64) -> Outcome {
        self.reset(input);
        let entry = program.entry();
        // SAFETY: as in `check`, and the run in checking mode went well.
        self.host.run(|r1, r2, env| unsafe { entry.call(r1, r2, env) })
    }

    /// Runs an accepted program in checking mode alone over that many inputs.
    pub(crate) fn is_sound(
        &mut self,
        program: &TestProgram,
        accepted: &Verified,
        inputs: u64,
    ) -> Result<(), String> {
        self.set_hints(program);
        let interpreter = self.interpreter(accepted)?;
        for input in 0..inputs {
            if self.checked(&interpreter, program, input)?.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The outcome of a run in checking mode; `None` if it would take too long.
    fn checked(
        &mut self,
        interpreter: &Interpreter,
        program: &TestProgram,
        input: u64,
    ) -> Result<Option<Outcome>, String> {
        match self.check(interpreter, program, input) {
            Ok(expected) => Ok(Some(expected)),
            // Verifiers bound these loops by eight million iterations each, which would take too long.
            Err(Violation { reason: Reason::OutOfFuel { .. }, .. }) if has_long_loops(program) => Ok(None),
            Err(violation) => Err(format!("accepted, but in checking mode: {violation}")),
        }
    }

    /// Runs an accepted program in every engine over that many inputs.
    pub(crate) fn agree(
        &mut self,
        program: &TestProgram,
        accepted: &Verified,
        inputs: u64,
    ) -> Result<(), String> {
        if !self.keep_hints {
            self.set_hints(program);
        }
        let interpreter = self.interpreter(accepted)?;
        let compiled = self.compiled(accepted)?;
        for input in 0..inputs {
            let Some(expected) = self.checked(&interpreter, program, input)? else { return Ok(()) };
            let interpreted = self.interpret(&interpreter, input);
            difference("checking mode", &expected, "the interpreter", &interpreted)?;
            let _guard = Running::new(program);
            let executed = self.execute(&compiled, input);
            difference("the interpreter", &expected, "compiled code", &executed)
                .map_err(|text| format!("{text}\ncode: {:02x?}", compiled.text().bytes()))?;
        }
        Ok(())
    }
}

/// Whether there are loops bounded only by a great number.
pub(crate) fn has_long_loops(program: &TestProgram) -> bool {
    let long = |insn: &Insn| {
        matches!(
            insn,
            Insn::MayGoto { .. }
                | Insn::LoadImm64 { value: Imm64::Function(_), .. }
                | Insn::Call { target: CallTarget::Kfunc { .. } }
        )
    };
    program.insns.iter().any(long)
}

/// The difference of two outcomes.
pub(crate) fn difference(one: &str, a: &Outcome, other: &str, b: &Outcome) -> Result<(), String> {
    if a.0 != b.0 {
        return Err(format!("r0 is {:#x} by {one}, {:#x} by {other}", a.0, b.0));
    }
    let (a, b) = (&a.1, &b.1);
    if let Some(at) = a.memory.iter().zip(&b.memory).position(|(a, b)| a != b) {
        let (a, b) = (a.memory[at], b.memory[at]);
        return Err(format!("memory at {at} is {a:#x} by {one}, {b:#x} by {other}"));
    }
    if a != b {
        return Err(format!("{one} left {a:x?}\n{other} left {b:x?}"));
    }
    Ok(())
}

/// Panics with the program, reduced as long as `fails` still returns the same reason.
pub(crate) fn fail(
    seed: u64,
    program: &TestProgram,
    mut fails: impl FnMut(&TestProgram) -> Option<String>,
) -> ! {
    let mut smallest = program.clone();
    let mut reason = fails(program).unwrap_or_else(|| "it passed the second time".into());
    eprintln!("SKEP_SEED={seed} SKEP_CASES=1: {reason}");
    let nothing = Insn::Jump { offset: 0, long: false };
    loop {
        let before = smallest.insns.clone();
        for slot in 0..smallest.insns.len() {
            let insn = smallest.insns[slot];
            if insn == nothing || insn == Insn::LoadImm64Tail {
                continue;
            }
            let wide = matches!(insn, Insn::LoadImm64 { .. });
            let mut smaller = smallest.clone();
            smaller.insns[slot] = nothing;
            if wide {
                smaller.insns[slot + 1] = nothing;
            }
            if let Some(text) = fails(&smaller).filter(|text| gist(text) == gist(&reason)) {
                (smallest, reason) = (smaller, text);
            }
        }
        if smallest.insns == before {
            break;
        }
    }
    panic!(
        "SKEP_SEED={seed} SKEP_CASES=1: {reason}\nthe smallest such program (goto +0 does nothing):\n{smallest}"
    );
}

/// A reason without its numbers, which must stay the same while a program shrinks.
fn gist(reason: &str) -> String {
    let first = reason.lines().next().unwrap_or_default();
    let words = first.split_whitespace().filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

thread_local! {
    /// The program whose compiled code this thread runs, for the signal handler.
    static CURRENT: Cell<(*const u8, usize)> = const { Cell::new((std::ptr::null(), 0)) };
}

/// A guard: while it lives, a crash prints the program.
struct Running(String);

impl Running {
    fn new(program: &TestProgram) -> Self {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(install_handlers);
        let running = Self(format!("\ncompiled code crashed; the program was:\n{program}"));
        CURRENT.set((running.0.as_ptr(), running.0.len()));
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CURRENT.set((std::ptr::null(), 0));
    }
}

fn install_handlers() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
        // SAFETY: the handler only writes and ends the process; SA_RESETHAND makes a second fault fatal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_crash as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn on_crash(signal: libc::c_int) {
    let (text, len) = CURRENT.get();
    // SAFETY: `Running` keeps the text alive while it is set; write and raise are async-signal-safe.
    unsafe {
        if !text.is_null() {
            libc::write(2, text.cast(), len);
        }
        libc::raise(signal);
    }
}
