//! Runs that the host looks at, step by step, for recorders and debuggers.
//!
//! An observer is the host's code in the middle of a run. Its panic must not leave the run there, where references and
//! locks are held: it is caught, the run goes on unobserved, and the panic continues after the run.

use super::{Call, Program};
use crate::error::Error;
use crate::image::{Engine, Input};
use crate::netfilter::NativeHook;
use crate::packet::Packet;
use skep_abi::{SkbContext, XdpContext};
use skep_interp::{AccessKind, Callee, Observer, Step};
use skep_isa::Size;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

impl Program {
    /// Runs it on a packet in the interpreter, and tells `observer` each step. Programs behind tail calls run, but are
    /// not observed. Runs without an observer do not pay for it.
    ///
    /// The run holds what the program holds while the observer is called: it should not touch values under a lock that
    /// the program may have taken. If it panics, the run goes on to its end without it, and then the panic continues.
    ///
    /// ```
    /// use skep::interp::{Observer, Step};
    /// use skep::{Object, Packet, Runtime};
    ///
    /// struct Trace(Vec<String>);
    ///
    /// impl Observer for Trace {
    ///     fn step(&mut self, step: &Step<'_>) {
    ///         self.0.push(format!("{}: r0 = {}", step.slot, step.registers[0]));
    ///     }
    /// }
    ///
    /// let insns = skep::isa::assemble("r0 = 1\nr0 += 1\nexit").expect("the text is right");
    /// let module = Runtime::builder().build()?.load(&Object::from_insns("two", &skep::abi::XDP, insns))?;
    /// let mut trace = Trace(Vec::new());
    /// assert_eq!(module.programs()[0].run_observed(&mut Packet::new(&[0; 60]), &mut trace)?, 2);
    /// assert_eq!(trace.0, ["0: r0 = 0", "1: r0 = 1", "2: r0 = 2"]);
    /// # Ok::<(), skep::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Program::run_with`] in the interpreter.
    ///
    /// # Panics
    ///
    /// If the observer panics.
    pub fn run_observed(&self, packet: &mut Packet, observer: &mut dyn Observer) -> Result<u64, Error> {
        let mut observer = Guarded { observer, panic: None };
        let result = self.observe_packet(packet, &mut observer);
        match observer.panic {
            Some(panic) => resume_unwind(panic),
            None => result,
        }
    }

    fn observe_packet(&self, packet: &mut Packet, observer: &mut Guarded<'_>) -> Result<u64, Error> {
        match self.input {
            Input::Xdp => {
                let mut context: XdpContext = packet.xdp();
                let effects;
                (context.packet, effects) = packet.begin();
                let call = Call::on_context(Engine::Interpreter, &raw mut context as u64, effects);
                // SAFETY: as in `Program::run_lending`: the context describes the packet's buffer, which is borrowed
                // for the whole run, and is the structure that this program type was verified for.
                let result = unsafe { self.call_observed(call, observer) };
                packet.take_xdp(&context);
                result
            }
            Input::Skb => {
                let mut context: SkbContext = packet.skb(self.program_type().from_network);
                let effects;
                (context.packet, effects) = packet.begin();
                let call = Call::on_context(Engine::Interpreter, &raw mut context as u64, effects);
                // SAFETY: as above.
                let result = unsafe { self.call_observed(call, observer) };
                packet.take_skb(&context);
                result
            }
            Input::Netfilter => {
                let mut hook = NativeHook::new(packet);
                let effects;
                (hook.skb.packet, effects) = packet.begin();
                let call = Call::on_context(Engine::Interpreter, hook.words(), effects);
                // SAFETY: as in `Program::run_lending`: the words lead to the hook's state and to the context.
                unsafe { self.call_observed(call, observer) }
            }
            // Programs that take no packet: it says so.
            _ => self.run_with(Engine::Interpreter, packet),
        }
    }
}

/// An observer, and its panic. After that it is told nothing more.
struct Guarded<'a> {
    observer: &'a mut dyn Observer,
    panic: Option<Box<dyn Any + Send>>,
}

impl Guarded<'_> {
    fn tell(&mut self, tell: impl FnOnce(&mut dyn Observer)) {
        if self.panic.is_none() {
            // Whoever catches the panic after the run decides whether the observer is still of use.
            self.panic = catch_unwind(AssertUnwindSafe(|| tell(self.observer))).err();
        }
    }
}

impl Observer for Guarded<'_> {
    fn step(&mut self, step: &Step<'_>) {
        self.tell(|observer| observer.step(step));
    }

    fn access(&mut self, at: u64, size: Size, kind: AccessKind) {
        self.tell(|observer| observer.access(at, size, kind));
    }

    fn call(&mut self, callee: Callee, args: [u64; 5]) {
        self.tell(|observer| observer.call(callee, args));
    }

    fn returned(&mut self, callee: Callee, result: u64) {
        self.tell(|observer| observer.returned(callee, result));
    }
}
