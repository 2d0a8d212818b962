//! Images: verified programs with their code, maps and entry.
//!
//! An image knows neither the runtime nor the dispatch of tail calls, since both hold images. They pass what its slow
//! paths need: code memory for the entry of tail calls, probe loads for the interpreter.

use crate::ending::Interrupts;
use crate::error::Error;
use crate::observe::Life;
use crate::run_state::StateType;
use crate::shown::Layout;
use crate::stats::Counted;
use crate::tenant::Tenant;
use skep_abi::{Linkage, MapKind, RunEnv};
use skep_btf::Btf;
use skep_interp::{EnterFunction, FindProgram, Interpreter};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_jit::{Compiled, TailEntry};
use skep_maps::{Charge, Map};
use skep_text::{Arena, Loads};
use skep_verifier::Verified;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a program is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Machine code.
    #[default]
    Jit,
    /// The interpreter: the oracle, for tests and comparisons.
    Interpreter,
}

/// The time that loading a program took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTimes {
    /// Extraction from the object, and linking.
    pub link: Duration,
    /// Verification.
    pub verify: Duration,
    /// Compilation and installation.
    pub jit: Duration,
    /// The part of that for installation: reserving a place in the arena, writing the code for it, copying it there and
    /// making it runnable.
    pub install: Duration,
}

/// A program as it is installed. Helpers find it through [`RunEnv::program`].
///
/// A host may have ten thousand of them: what most programs lack is behind a pointer.
pub(crate) struct Image {
    pub(crate) name: Arc<str>,
    pub(crate) verified: Verified,
    /// The entry of the code, here to save an indirection.
    pub(crate) entry: skep_jit::Entry,
    pub(crate) compiled: Arc<Compiled>,
    /// Made when the program is first put into an array.
    pub(crate) tail_entry: OnceLock<Box<TailEntry>>,
    /// Made by the first run in the interpreter: most programs have none. Not behind a pointer: timers find a program
    /// by the address of its interpreter, which is inside of it.
    pub(crate) interpreter: OnceLock<Result<Interpreter, skep_interp::Error>>,
    pub(crate) linkage: Arc<Linkage>,
    pub(crate) input: Input,
    /// What it is shown, for [`Input::Shown`].
    pub(crate) layout: Option<Box<Layout>>,
    pub(crate) sleepable: bool,
    /// Whether it may take a lock, itself or in a program that it tail-calls.
    pub(crate) locks: bool,
    /// The state of a run that functions of the host take, which it calls.
    pub(crate) takes: Option<StateType>,
    /// The times of linking, and of compilation with installation; the rest know verifier and compiler.
    pub(crate) link_time: Duration,
    pub(crate) jit_time: Duration,
    /// The maps that the program names, by index.
    pub(crate) maps: BTreeMap<u32, Arc<Map>>,
    /// Its arena, if another process maps that: see [`Map::meet_touched_pages`].
    pub(crate) mapped_arena: Option<Arc<Map>>,
    pub(crate) counted: Counted,
    pub(crate) _life: Life,
    pub(crate) tenant: Option<Arc<Tenant>>,
    /// Counts it among the tenant's programs.
    pub(crate) _charge: Charge,
    /// Whether its runs may end early ([`Linkage::ends`]).
    pub(crate) ends: bool,
    /// What [`needs_no_cpu`] says, and that none of its functions may be replaced or watched.
    pub(crate) needs_no_cpu: bool,
    /// What [`defers`] says.
    pub(crate) defers: bool,
    /// Of its runs.
    pub(crate) interrupts: Interrupts,
    /// The types of its object, if its functions may be replaced and watched.
    pub(crate) types: Option<Arc<Btf>>,
    /// By function: its hook, for the interpreter. Empty without `types`. Stores have Release under the lock of the
    /// program's entries; the partner is the Acquire load at the function's beginning.
    pub(crate) entries: Box<[AtomicPtr<()>]>,
}

/// The numbers of the helpers that work on timers.
pub(crate) const TIMERS: RangeInclusive<u32> = 169..=172;
/// That of `bpf_timer_set_callback`.
const SET_CALLBACK: u32 = 170;

/// The input of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Xdp,
    Skb,
    Buffer(Buffer),
    /// The structure or the bytes of a [`crate::Context`].
    Context,
    /// The context of a host's own type ([`crate::TypedProgram`]).
    Host,
    /// What the program around it passes: an extension, or a program that watches a function.
    Inside,
    /// A packet in a hook of the packet filter.
    Netfilter,
    /// The arguments of a member of a table ([`crate::OpsMember`]).
    Arguments,
    /// What an iterator shows ([`crate::Iterate`]).
    Shown,
}

/// The input of a program of type `raw`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) len: u32,
    /// Whether it must begin at a multiple of [`ALIGNMENT`]: the verifier assumed that for atomic accesses. Other
    /// addresses fault on aarch64, and may fault on x86-64 across cache lines.
    pub(crate) aligned: bool,
}

/// The alignment in bytes of the objects that programs access.
pub(crate) const ALIGNMENT: usize = size_of::<u64>();

impl Image {
    /// The program that the host runs, also after a tail call.
    ///
    /// # Safety
    ///
    /// `env` is the environment of the run in progress.
    pub(crate) unsafe fn of_run<'a>(env: *mut RunEnv) -> &'a Self {
        // SAFETY: the caller's promise; a run keeps its program alive.
        unsafe { &*((*env).program as *const Self) }
    }

    /// Its name, for those that keep it.
    #[inline]
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn name(&self) -> &str {
        self.verified.name()
    }

    /// Its entry for tail calls.
    pub(crate) fn tail_entry(&self, arena: &Arena) -> Result<usize, skep_text::Error> {
        if let Some(entry) = self.tail_entry.get() {
            return Ok(entry.address());
        }
        let entry = self.compiled.tail_entry(arena)?;
        // Another thread may have been first; then nothing has used this one.
        Ok(self.tail_entry.get_or_init(|| Box::new(entry)).address())
    }

    /// The maps that it names.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Arc<Map>> {
        self.maps.values()
    }

    /// The map with this index, if the program names it.
    pub(crate) fn map(&self, index: u32) -> Option<&Arc<Map>> {
        self.maps.get(&index)
    }

    /// Whether it names arrays of programs or of maps.
    pub(crate) fn uses_arrays(&self) -> bool {
        self.maps().any(|map| takes_part(map))
    }

    /// The program as the interpreter takes it. `loads` makes the probe loads, for programs that have some.
    #[cold]
    pub(crate) fn interpreter(
        &self,
        loads: impl FnOnce() -> Result<Arc<Loads>, Error>,
        find: FindProgram,
        enter: EnterFunction,
    ) -> Result<&Interpreter, Error> {
        if self.interpreter.get().is_none() {
            let probes = self.verified.facts().iter().any(|fact| fact.reached && fact.probe);
            let loads = probes.then(loads).transpose()?;
            let made = match loads {
                Some(loads) => Interpreter::probing(&self.verified, &self.linkage, loads),
                None => Interpreter::new(&self.verified, &self.linkage),
            };
            let made = made.map(|interpreter| {
                let interpreter = interpreter.find_programs(find);
                if self.entries.is_empty() {
                    return interpreter;
                }
                // The image keeps its interpreter.
                let own = std::ptr::from_ref(self).expose_provenance() as u64;
                interpreter.enter_functions(own, enter)
            });
            let _ = self.interpreter.set(made);
        }
        // Another thread may have made the same one first.
        let Some(made) = self.interpreter.get() else { unreachable!("it was just made") };
        made.as_ref().map_err(|source| Error::Interpret { program: self.name().to_owned(), source: *source })
    }
}

/// Whether the program may set callbacks of timers or work queues.
pub(crate) fn defers(program: &Verified) -> bool {
    program.insns().iter().any(|insn| match *insn {
        Insn::Call { target: CallTarget::Helper(id) } => id == SET_CALLBACK,
        Insn::Call { target: CallTarget::Kfunc { id, .. } } => {
            skep_abi::own_kfunc(id.cast_unsigned()).is_some_and(skep_abi::OwnKfunc::defers)
        }
        _ => false,
    })
}

/// Whether a compiled run of the program needs nothing but its input: no environment, no virtual CPU, no read-side
/// critical section.
///
/// A run needs the environment for calls out of the program and for an early end, the CPU for data of its own, and the
/// section for whatever may be freed while it runs. A program that calls only its own functions reaches its input,
/// its stack, and values of maps that it names by address. The caller's handle keeps its code and these maps.
///
/// What would break it: an instruction that the compiler turns into a call, or that loads a pointer to what another
/// thread may free. So the list says what is known to be harmless, and leaves out: contexts with pointers in them, maps
/// whose values have special fields (a kept pointer leads to an object), arenas, and loads that may fault.
pub(crate) fn needs_no_cpu(
    program: &Verified,
    linkage: &Linkage,
    input: Input,
    maps: &BTreeMap<u32, Arc<Map>>,
) -> bool {
    let harmless = |insn: &Insn| {
        matches!(
            insn,
            Insn::Alu { .. }
                | Insn::Neg { .. }
                | Insn::MovSx { .. }
                | Insn::Endian { .. }
                | Insn::LoadImm64 { value: Imm64::Value(_) | Imm64::MapValue { .. }, .. }
                | Insn::LoadImm64Tail
                | Insn::Load { .. }
                | Insn::Store { .. }
                | Insn::Atomic { .. }
                | Insn::LoadAcquire { .. }
                | Insn::StoreRelease { .. }
                | Insn::Jump { .. }
                | Insn::JumpIf { .. }
                | Insn::Call { target: CallTarget::Local(_) }
                | Insn::Exit
        )
    };
    matches!(input, Input::Xdp | Input::Buffer(_))
        && linkage.ends.is_none()
        && !program.is_sleepable()
        && program.insns().iter().all(harmless)
        && program.facts().iter().all(|fact| !fact.probe && !fact.arena)
        && maps.values().all(|map| map.kind() == MapKind::Array && map.def().fields.is_empty())
}

/// Whether a map holds programs or maps, and so takes part in the dispatch of tail calls.
pub(crate) fn takes_part(map: &Map) -> bool {
    map.references().is_some()
}
