//! Assembler programs, compiled and run on this machine. They are not verified, but are safe by construction.

mod alu;
mod atomics;
mod callbacks;
mod calls;
mod exceptions;
mod jumps;
mod lookups;
mod loops;
mod memory;
mod merged;
mod order;
mod packet;
mod probes;
mod random;
mod refusals;
mod sequences;
mod speculation;

use std::sync::{Arc, LazyLock};

use skep_abi::{HelperFn, Linkage, MapLink, Printed, ProgramTable, RunEnv};
use skep_isa::{CallTarget, Insn, assemble};
use skep_text::{Arena, Config};
use skep_verifier::{CallFact, Fact, FunctionFacts};

use crate::arch::{Native, testing};
use crate::lower::lower;
use crate::parts::Parts;
use crate::port::Arch;
use crate::port::Home;
use crate::{Compiled, Emitted, Error, Options, Passes, arch, compile_parts};

/// The CPU features that this machine's processor may have.
type Features = <Native as Arch>::Features;

/// All services of the host that code can use.
pub(super) const HARDENED: Options = Options { landing_pads: true, signed_returns: true, ..PLAIN };

/// No services.
const PLAIN: Options = Options {
    landing_pads: false,
    signed_returns: false,
    fixed_code: false,
    patchable: false,
    blind_constants: false,
    mask_speculation: false,
    order_reloads: false,
    retpolines: false,
    passes: Passes::ALL,
};

/// Instruction by instruction.
const UNPASSED: Options = Options { passes: Passes::NONE, ..PLAIN };

/// Programs whose authors may attack the process.
pub(super) const UNTRUSTED: Options = PLAIN.untrusted();

/// A program, and its loads that find what it has stored; the second one follows the first without a store between.
pub(super) const RELOADS: (&str, &[usize]) = (
    "*(u64 *)(r10 - 8) = r1
    r2 = *(u64 *)(r10 - 8)
    r3 = *(u64 *)(r10 - 8)
    r2 += r3
    *(u64 *)(r10 - 32) = r2
    r0 = *(u64 *)(r10 - 32)
    exit",
    &[1, 2, 5],
);

/// A helper that is never called.
pub(super) unsafe extern "C" fn far_helper(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0
}

/// An arena from which the helpers of these tests can be called directly.
pub(super) static NEAR: LazyLock<Arena> = LazyLock::new(|| {
    let here = crate::compile as *const () as usize;
    Arena::new(Config::new().near(here)).expect("an arena")
});

/// An arena from which they are out of reach.
static FAR: LazyLock<Arena> = LazyLock::new(|| {
    // Half of the address space away.
    let here = crate::compile as *const () as usize;
    Arena::new(Config::new().near(here ^ 0x2000_0000_0000)).expect("an arena")
});

/// A program with every kind of instruction, to inspect its code.
pub(super) const MIXED: &str = "
        r6 = r1
        r7 = 0x123456789abcdef ll
        r0 = 0
        *(u64 *)(r10 - 8) = r6
    next:
        r0 += r7
        r1 = r10
        r1 += -8
        r2 = 8
        call inner
        w8 = w0
        r8 %= r7
        r8 s/= -3
        lock *(u64 *)(r10 - 8) += r8
        r8 = atomic_fetch_or((u64 *)(r10 - 8), r8)
        r9 = (s16)r8
        r9 <<= r8
        w9 >>= w0
        r9 = be64 r9
        if r9 s> 100 goto next
        if w0 & 16 goto over
        goto end
    over:
        r0 = bswap16 r0
        *(u8 *)(r10 - 9) = r6
        *(u16 *)(r10 - 12) = 7
    end:
        exit
    inner:
        r0 = *(s8 *)(r1 + 0)
        r3 = r0
        r3 /= r2
        if r3 == 0 goto out
        r0 = r3
        exit
    out:
        r0 ^= -1
        exit";

/// A program with the verifier's facts about it.
#[derive(Clone)]
pub(super) struct Program {
    insns: Vec<Insn>,
    facts: Vec<Fact>,
    functions: Vec<FunctionFacts>,
    exception_callback: Option<usize>,
    linkage: Linkage,
    socket_buffer: bool,
    fixed: bool,
    printed: Arc<[(u32, Printed)]>,
}

impl Program {
    /// Assembles a program. Functions begin at the targets of calls.
    pub(super) fn new(text: &str) -> Self {
        let insns = assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        Self::of(insns)
    }

    fn of(insns: Vec<Insn>) -> Self {
        let mut starts: Vec<usize> =
            insns.iter().enumerate().filter_map(|(slot, insn)| insn.function_target(slot)).collect();
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).copied().chain([insns.len()]);
        let functions = starts
            .iter()
            .zip(ends)
            .map(|(&start, end)| FunctionFacts {
                name: format!("at_{start}"),
                start: start as u32,
                end: end as u32,
                stack_bytes: 512,
                ..FunctionFacts::default()
            })
            .collect();
        let mut program = Self {
            facts: Vec::new(),
            insns,
            functions,
            exception_callback: None,
            linkage: Linkage::default(),
            socket_buffer: false,
            fixed: false,
            printed: [].into(),
        };
        program.facts = program.reached();
        program
    }

    pub(super) fn stack(mut self, bytes: u32) -> Self {
        self.functions.iter_mut().for_each(|function| function.stack_bytes = bytes);
        self
    }

    /// Marks all functions as reading stack that they may not have written.
    pub(super) fn zeroed(mut self) -> Self {
        self.functions.iter_mut().for_each(|function| function.zeroed = true);
        self
    }

    pub(super) fn helpers(mut self, helpers: &[(u32, HelperFn)]) -> Self {
        self.linkage.helpers = helpers.into();
        self
    }

    pub(super) fn linked(mut self, linkage: Linkage) -> Self {
        self.linkage = linkage;
        self
    }

    /// Directs tail calls to the element with that index of the program's only map, or to the index in `r3`.
    pub(super) fn with_tail_calls(self, key: Option<u32>) -> Self {
        let programs = Some(ProgramTable { entries: 0x6000_0000_0000, len: 8 });
        let maps = vec![MapLink { handle: 0x1234, value_base: None, inline: None, programs, arena: None }];
        let calls: Vec<usize> = (0..self.insns.len())
            .filter(|&slot| self.insns[slot] == Insn::Call { target: CallTarget::Helper(12) })
            .collect();
        let linked = self.linked(Linkage { maps, inline_linux_helpers: true, ..Linkage::default() });
        let fact = CallFact { map: Some(0), key, in_bounds: false };
        calls.into_iter().fold(linked, |program, slot| program.call_fact(slot, fact))
    }

    /// Compiles it so that its code is never poked.
    pub(super) fn fixed(mut self) -> Self {
        self.fixed = true;
        self
    }

    pub(super) fn call_fact(mut self, slot: usize, fact: CallFact) -> Self {
        self.facts[slot].call = Some(fact);
        self
    }

    /// Marks these loads as reloads.
    pub(super) fn reloading(mut self, slots: &[usize]) -> Self {
        slots.iter().for_each(|&slot| self.facts[slot].reload = true);
        self
    }

    /// Marks all loads as probes.
    pub(super) fn probing(mut self) -> Self {
        for (fact, insn) in self.facts.iter_mut().zip(&self.insns) {
            fact.probe = matches!(insn, Insn::Load { .. });
        }
        self
    }

    /// Makes calls of functions by name end the program.
    pub(super) fn throwing(mut self, exception_callback: Option<usize>) -> Self {
        self.exception_callback = exception_callback;
        for (slot, insn) in self.insns.iter().enumerate() {
            if let Insn::Call { target: CallTarget::Kfunc { id, .. } } = *insn {
                self.facts[slot].throws = true;
                self.linkage.functions = [(id.cast_unsigned(), testing::CLOBBER as _)].into();
            }
        }
        // Functions call later ones.
        for at in (0..self.functions.len()).rev() {
            let slots = self.functions[at].start as usize..self.functions[at].end as usize;
            let callee = |slot: usize| {
                let target = self.insns[slot].function_target(slot)?;
                self.functions.iter().find(|function| function.start as usize == target)
            };
            let throws =
                |slot: usize| self.facts[slot].throws || callee(slot).is_some_and(|callee| callee.may_throw);
            self.functions[at].may_throw = slots.into_iter().any(throws);
        }
        self
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            insns: &self.insns,
            facts: &self.facts,
            functions: &self.functions,
            printed: &self.printed,
            exception_callback: self.exception_callback,
            linkage: &self.linkage,
            socket_buffer: self.socket_buffer,
            buffer_len: None,
            patched: !self.fixed,
            entries: false,
            extension: false,
            arena: self.linkage.arena(&self.insns),
            rewriting: None,
        }
    }

    fn compile_for(&self, features: Features, arena: &Arena) -> Result<Compiled, Error> {
        self.compile_with(features, Options::default(), arena)
    }

    pub(super) fn compile_with(
        &self,
        features: Features,
        options: Options,
        arena: &Arena,
    ) -> Result<Compiled, Error> {
        compile_parts(self.parts(), Arc::clone(&self.printed), features, options, arena, || "test".into())
    }

    fn compile(&self) -> Compiled {
        self.compile_for(arch::detect(), &NEAR).expect("compiles")
    }

    fn refusal(&self) -> Error {
        self.compile_for(arch::detect(), &NEAR).expect_err("is refused")
    }

    /// Runs every variant that this machine can compile; asserts that all results are equal.
    fn run(&self, r1: u64, r2: u64) -> u64 {
        self.run_in(r1, r2, &mut RunEnv::default())
    }

    fn run_in(&self, r1: u64, r2: u64, env: &mut RunEnv) -> u64 {
        self.ready().run_in(r1, r2, env)
    }

    /// Compiled once for many runs.
    fn ready(&self) -> Ready {
        Ready(self.variants().collect())
    }

    /// All variants of its compilation for this machine.
    fn variants(&self) -> impl Iterator<Item = Compiled> {
        let mut features = vec![testing::OLDEST];
        features.extend(Some(arch::detect()).filter(|detected| *detected != features[0]));
        let arenas: [&Arena; 2] = [&NEAR, &FAR];
        let plain = Options::default();
        let ways = arenas
            .into_iter()
            .flat_map(move |arena| features.clone().into_iter().map(move |f| (f, plain, arena)))
            .chain([(arch::detect(), HARDENED, arenas[0])])
            .chain([(arch::detect(), UNPASSED, arenas[0])])
            .chain([(arch::detect(), UNTRUSTED, arenas[0]), (testing::OLDEST, UNTRUSTED, arenas[1])]);
        ways.map(|(features, options, arena)| self.compile_with(features, options, arena).expect("compiles"))
    }

    /// Its code for the newest processor of an architecture, and the offset of each slot's code.
    pub(super) fn code<A: Arch>(&self, home: &Home, address: u64) -> (Vec<u8>, Vec<u32>) {
        let emitted = self.emit::<A>(Options::default(), home, address).expect("compiles");
        (emitted.bytes, emitted.offsets.into_vec())
    }

    /// Its compiled form for the newest processor of an architecture, for inspection.
    pub(super) fn emit<A: Arch>(
        &self,
        options: Options,
        home: &Home,
        address: u64,
    ) -> Result<Emitted, Error> {
        let (layout, _, _, places) = lower::<A>(self.parts(), A::NEWEST, options, home)?;
        let mut bytes = vec![0; layout.len()];
        layout.write(address, &mut bytes).ok_or(Error::OutOfReach)?;
        let (offsets, pieces) =
            (crate::offsets(&places, &layout).collect(), crate::pieces(&places, &layout).collect());
        Ok(Emitted { bytes, offsets, pieces, instructions: layout.instructions() })
    }

    /// The reachable slots, with both branches of every conditional jump.
    fn reached(&self) -> Vec<Fact> {
        let mut facts = vec![Fact::default(); self.insns.len()];
        let mut open: Vec<usize> = self.functions.iter().map(|function| function.start as usize).collect();
        while let Some(slot) = open.pop() {
            if slot >= facts.len() || std::mem::replace(&mut facts[slot].reached, true) {
                continue;
            }
            let insn = &self.insns[slot];
            open.extend(insn.jump_target(slot));
            if insn.falls_through() {
                open.push(slot + 1);
            }
        }
        facts
    }
}

/// A [`Program`], compiled in every variant for this machine.
struct Ready(Vec<Compiled>);

impl Ready {
    /// Runs every variant; asserts that all results are equal.
    fn run(&self, r1: u64, r2: u64) -> u64 {
        self.run_in(r1, r2, &mut RunEnv::default())
    }

    fn run_in(&self, r1: u64, r2: u64, env: &mut RunEnv) -> u64 {
        let mut results = self.0.iter().map(|compiled| {
            // SAFETY: the test's own program, which receives the arguments that it expects.
            unsafe { compiled.entry().call(r1, r2, env) }
        });
        let first = results.next().expect("a variant");
        assert!(results.all(|result| result == first), "variants disagree");
        first
    }
}

/// Runs a program given as text.
fn run(text: &str) -> u64 {
    Program::new(text).run(0, 0)
}
