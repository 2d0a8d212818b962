//! The engine behind bpf(2): this runtime's maps, verifier and programs for [`skep_sys::System`].
//!
//! ```text
//!   a client's bpf(2) --> skep_sys::System --> SysEngine --> Runtime: Linker, Map, Program, World
//! ```
//!
//! Needs the feature `sys`. `skep exec` serves whole applications with it; an emulator can do the same.

#[cfg(test)]
mod attach_tests;
#[cfg(test)]
mod calls_tests;
mod lacking;
mod log;
mod maps;
mod places;
mod programs;
#[cfg(test)]
mod refusals_tests;
mod run;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::runtime::Runtime;
use crate::world::World;
use places::Places;
use skep_btf::Btf;
use skep_sys::{
    Batch, Engine, Errno, MapRequest, Place, ProgramFacts, ProgramRequest, RunAnswer, RunRequest, RunsOn,
    Value,
};
use std::sync::Arc;

pub use lacking::Lack;
pub use maps::SysMap;
pub use programs::SysProgram;

/// A runtime as the engine of a [`skep_sys::System`].
///
/// Clients learn the number of CPUs from files of the system, and pass buffers of that size: a runtime that serves them
/// must have as many virtual CPUs ([`RuntimeBuilder::cpus`](crate::RuntimeBuilder::cpus)) as
/// `/sys/devices/system/cpu/possible` says.
#[derive(Debug)]
pub struct SysEngine {
    runtime: Runtime,
    world: Option<World>,
    host_types: Option<Arc<Btf>>,
    places: Places,
    lacking: lacking::Lacking,
}

impl SysEngine {
    /// The engine of a runtime. `world`: the one that the runtime sees, for attachments to its devices.
    pub fn new(runtime: Runtime, world: Option<World>) -> Self {
        let lacking = lacking::Lacking::default();
        Self { runtime, world, host_types: None, places: Places::default(), lacking }
    }

    /// Sets the host's types, as clients see them in `/sys/kernel/btf/vmlinux`: kernel functions are named by their
    /// numbers in it.
    #[must_use]
    pub fn host_types(mut self, types: Arc<Btf>) -> Self {
        self.host_types = Some(types);
        self
    }

    /// What clients were refused because the runtime lacks it, and how often, by name. Ordinary errors are not among
    /// it.
    pub fn lacking(&self) -> Vec<(Lack, u64)> {
        self.lacking.all()
    }

    /// Notes that a client was refused something that lacks: see [`lacking`](Self::lacking).
    pub fn note_lack(&self, what: &'static str, name: impl Into<String>) {
        self.lacking.note(what, name.into());
    }

    /// The world to whose devices programs are attached.
    pub fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    /// The runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Engine for SysEngine {
    type Lock = parking_lot::RawMutex;
    type Types = Arc<Btf>;
    type Map = SysMap;
    type Program = SysProgram;
    type PerfEvent = Arc<skep_maps::PerfEvent>;

    fn cpus(&self) -> u32 {
        self.runtime.cpus()
    }

    fn now(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn load_types(&self, bytes: &[u8], log: &mut dyn FnMut(&str)) -> Result<Arc<Btf>, Errno> {
        match Btf::parse(bytes) {
            Ok(types) => Ok(Arc::new(types)),
            Err(error) => {
                log(&error.to_string());
                Err(Errno::EINVAL)
            }
        }
    }

    fn create_map(&self, request: &MapRequest<'_, Self>) -> Result<SysMap, Errno> {
        SysMap::create(&self.runtime, (self.host_types.as_ref(), &self.lacking), request)
    }

    fn has_lock(&self, map: &SysMap) -> bool {
        map.has_lock()
    }

    fn map_memory(&self, map: &SysMap) -> u64 {
        map.map().memory()
    }

    fn lookup(&self, map: &SysMap, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        map.lookup(key, value, flags)
    }

    fn update(&self, map: &SysMap, key: &[u8], value: Value<'_, Self>, flags: u64) -> Result<(), Errno> {
        map.update(key, value, flags)
    }

    fn delete(&self, map: &SysMap, key: &[u8]) -> Result<(), Errno> {
        map.delete(key)
    }

    fn take(&self, map: &SysMap, key: &[u8], value: &mut [u8], _: u64) -> Result<(), Errno> {
        map.take(key, value)
    }

    fn next_key(&self, map: &SysMap, after: Option<&[u8]>, next: &mut [u8]) -> Result<(), Errno> {
        map.next_key(after, next)
    }

    fn batch(&self, map: &SysMap, from: Option<&[u8]>, count: usize, take: bool) -> Result<Batch, Errno> {
        map.batch(from, count, take)
    }

    fn batch_position_size(&self, map: &SysMap) -> usize {
        map.map().batch_position_size()
    }

    fn freeze(&self, map: &SysMap) -> Result<(), Errno> {
        map.map().freeze().map_err(|error| Errno(error.errno()))
    }

    fn load(
        &self,
        request: &ProgramRequest<'_, Self>,
        log: Option<&mut dyn FnMut(&str)>,
    ) -> Result<SysProgram, Errno> {
        SysProgram::load(&self.runtime, (self.host_types.as_ref(), &self.lacking), request, log)
    }

    fn facts(&self, program: &SysProgram) -> ProgramFacts {
        program.facts()
    }

    fn runs_on(&self, program: &SysProgram) -> RunsOn {
        run::runs_on(program.program())
    }

    fn run(&self, program: &SysProgram, request: &RunRequest) -> Result<RunAnswer, Errno> {
        let answer = run::run(self.world.as_ref(), program.program(), request);
        // Threads that serve calls come and go, and each that runs a program would keep a virtual CPU.
        self.runtime.release_cpu();
        answer
    }

    fn needs_expected_place(&self, program: &SysProgram) -> bool {
        program.needs_expected_place()
    }

    fn has_device(&self, index: u32) -> bool {
        self.world.as_ref().is_some_and(|world| world.machine().find_device(index).is_some())
    }

    fn has_tracepoint(&self, name: &str) -> bool {
        places::has_tracepoint(self.host_types.as_deref(), name)
    }

    fn place(&self, place: &Place, programs: &[&SysProgram]) -> Result<(), Errno> {
        let programs: Vec<_> = programs.iter().map(|program| program.program()).collect();
        let set = self.places.set(self.world.as_ref(), place, &programs);
        // As after a run: the thread has looked at the programs of a place.
        self.runtime.release_cpu();
        set
    }

    fn count_runs(&self, on: bool) {
        self.runtime.count_runs(on);
    }
}

/// Linux's number for an error.
fn errno(error: &Error) -> Errno {
    match error {
        Error::Map(error) => Errno(error.errno()),
        Error::NoSuchEntry { .. } => Errno::E2BIG,
        Error::World(_) => Errno::ENODEV,
        Error::Text(_) | Error::Compile { .. } => Errno::ENOMEM,
        Error::Slots(_) => Errno::EAGAIN,
        _ => Errno::EINVAL,
    }
}
