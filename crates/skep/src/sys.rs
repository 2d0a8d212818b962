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
mod batches_tests;
#[cfg(test)]
mod calls_tests;
#[cfg(test)]
mod client_tests;
#[cfg(test)]
mod code_tests;
#[cfg(test)]
mod function_tests;
mod iterators;
#[cfg(test)]
mod iterators_tests;
#[cfg(test)]
mod kernel_types_tests;
mod lacking;
mod log;
mod maps;
mod places;
mod probes;
#[cfg(test)]
mod probes_tests;
mod programs;
#[cfg(test)]
mod refusals_tests;
mod run;
#[cfg(test)]
mod seed_tests;
#[cfg(feature = "signatures")]
mod signed;
#[cfg(all(test, feature = "signatures"))]
mod signed_tests;
mod sockets;
#[cfg(test)]
mod sockets_tests;
#[cfg(test)]
mod tests;

use crate::error::Error;
use crate::extension::Attachment;
use crate::helpers;
use crate::runtime::Runtime;
use crate::world::World;
use places::Places;
use skep_abi::MapKind;
use skep_btf::{Btf, CheckFault, Malformed};
use skep_sys::{
    Batch, BinaryPlaces, Client, CoreRelocation, Engine, Errno, Functions, MachineCode, MapRequest, Netkit,
    Place, ProbeInfo, ProgramFacts, ProgramObject, ProgramRequest, RunAnswer, RunRequest, RunsOn, Shown,
    Signature, Value, When,
};
use std::sync::Arc;

pub use lacking::Lack;
pub use maps::SysMap;
pub use probes::{ProbeEvent, ProbeRequest, Probing};
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
    waiting: run::Waiting,
    #[cfg(feature = "signatures")]
    trusted: signed::Trusted,
}

impl SysEngine {
    /// The engine of a runtime. `world`: the one that the runtime sees, for attachments to its devices.
    pub fn new(runtime: Runtime, world: Option<World>) -> Self {
        Self {
            runtime,
            world,
            host_types: None,
            places: Places::default(),
            lacking: lacking::Lacking::default(),
            waiting: run::Waiting::default(),
            #[cfg(feature = "signatures")]
            trusted: signed::Trusted::default(),
        }
    }

    /// Sets the host's types, as clients see them in `/sys/kernel/btf/vmlinux`: kernel functions are named by their
    /// numbers in it.
    #[must_use]
    pub fn host_types(mut self, types: Arc<Btf>) -> Self {
        self.host_types = Some(types);
        self
    }

    /// Says that clients mean one of the world's network namespaces by a number, which in Linux is the inode of the
    /// namespace's file. Other numbers mean the namespace with the same number.
    #[must_use]
    pub fn network(mut self, id: u64, namespace: u32) -> Self {
        self.places.add_network(id, namespace);
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
    type Attachment = Attachment;
    type Probe = Arc<ProbeEvent>;
    type Probing = Probing;

    fn cpus(&self) -> u32 {
        self.runtime.cpus()
    }

    fn now(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn load_types(&self, bytes: &[u8], log: &mut dyn FnMut(&str)) -> Result<Arc<Btf>, Errno> {
        // Clients give types alone; a file of another kind around them is none of theirs.
        if bytes.starts_with(b"\x7fELF") {
            log("Invalid magic");
            return Err(Errno::EINVAL);
        }
        let mut refused = |malformed: Malformed| {
            log(&malformed.to_string());
            match malformed.fault {
                CheckFault::Invalid => Errno::EINVAL,
                CheckFault::Encoding => Errno::ENOTSUPP,
                CheckFault::Endless => Errno::EEXIST,
                CheckFault::Deep => Errno::E2BIG,
            }
        };
        skep_btf::check_sections(bytes).map_err(&mut refused)?;
        let types = Btf::parse(bytes);
        if let Ok(types) = &types {
            types.check().map_err(refused)?;
        }
        let types = types.map_err(|error| {
            log(&error.to_string());
            Errno::EINVAL
        })?;
        Ok(Arc::new(types))
    }

    fn bytes_of_types<'a>(&self, types: &'a Arc<Btf>) -> &'a [u8] {
        types.bytes()
    }

    fn kernel_types(&self) -> Option<Arc<Btf>> {
        self.host_types.clone()
    }

    fn relocate(
        &self,
        insns: &mut [u8],
        types: &Arc<Btf>,
        relocations: &[CoreRelocation],
        log: &mut dyn FnMut(&str),
    ) -> Result<(), Errno> {
        programs::relocate(insns, types, self.host_types.as_deref(), relocations).map_err(|reason| {
            log(&reason);
            Errno::EINVAL
        })
    }

    fn create_map(&self, request: &MapRequest<'_, Self>) -> Result<SysMap, Errno> {
        SysMap::create(&self.runtime, (self.host_types.as_ref(), &self.lacking), request)
    }

    fn has_owner(&self, map: &Self::Map, number: u64) -> bool {
        let machine = self.world.as_ref().map(|world| world.machine()).unwrap_or_default();
        match map.map().kind() {
            MapKind::TaskStorage => {
                u32::try_from(number).is_ok_and(|pid| machine.task_numbered(pid).is_some())
            }
            // Values of the world's own sockets are its programs'.
            MapKind::SkStorage => (1..=u32::MAX.into()).contains(&number) && machine.socket(number).is_err(),
            _ => machine.cgroups.contains_key(&number),
        }
    }

    fn arena_start(&self, map: &SysMap) -> Option<u64> {
        map.map().arena().and_then(|arena| arena.known_start())
    }

    fn place_arena(&self, map: &SysMap, address: u64) -> bool {
        map.map().arena().is_some_and(|arena| arena.set_start(address))
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
        if matches!(value, Value::Socket { runs: true, .. }) {
            self.note_lack("program", "for what a socket of the machine sends or receives");
        }
        map.update(key, value, flags)
    }

    fn socket_at(&self, map: &SysMap, key: &[u8]) -> Option<u64> {
        map.map().member(key).ok().flatten().map(|member| member.id())
    }

    fn holds_socket(&self, map: &SysMap, cookie: u64) -> bool {
        sockets::holds(map.map(), cookie)
    }

    fn forget_socket(&self, map: &SysMap, cookie: u64) {
        // Another socket's value is not the client's.
        if map.map().kind() != MapKind::SkStorage || self.has_owner(map, cookie) {
            sockets::forget(map.map(), cookie);
        }
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

    #[cfg(feature = "signatures")]
    fn check_signature(&self, signature: &Signature<'_>, log: &mut dyn FnMut(&str)) -> Result<(), Errno> {
        self.check(signature, log)
    }

    #[cfg(not(feature = "signatures"))]
    fn check_signature(&self, _: &Signature<'_>, log: &mut dyn FnMut(&str)) -> Result<(), Errno> {
        log("the program is signed, and this library was built without the feature `signatures`");
        Err(Errno::ENOKEY)
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

    fn machine_code(&self, program: &SysProgram) -> MachineCode {
        program.machine_code()
    }

    fn runs_on(&self, program: &SysProgram) -> RunsOn {
        run::runs_on(program.program())
    }

    fn run(
        &self,
        program: &SysProgram,
        request: &RunRequest,
        client: &mut dyn Client,
    ) -> Result<RunAnswer, Errno> {
        let task = program.asks_for_task().then(|| client.task()).flatten();
        let mut runs = run::Runs {
            runtime: &self.runtime,
            waiting: &self.waiting,
            types: self.host_types.as_deref(),
            client,
        };
        let run = || run::run(self.world.as_ref(), program.program(), request, &mut runs);
        let answer = helpers::client::as_task(task, run);
        // Threads that serve calls come and go, and each that runs a program would keep a virtual CPU.
        self.runtime.release_cpu();
        answer
    }

    fn needs_expected_place(&self, program: &SysProgram) -> bool {
        program.needs_expected_place()
    }

    fn iterates(&self, program: &SysProgram) -> Option<&'static str> {
        program.program().iterates()
    }

    fn may_show(&self, program: &SysProgram, shown: &Shown<'_, Self>) -> Result<(), Errno> {
        self.with_shown(shown, |over| program.program().may_iterate(over))
    }

    fn iterate(&self, program: &SysProgram, shown: &Shown<'_, Self>) -> Result<Vec<u8>, Errno> {
        self.with_shown(shown, |over| program.program().iterate(over))
    }

    fn has_device(&self, index: u32) -> bool {
        self.world.as_ref().is_some_and(|world| world.machine().find_device(index).is_some())
    }

    fn netkit(&self, index: u32) -> Netkit {
        let machine = self.world.as_ref().map(|world| world.machine());
        let device = machine.as_ref().and_then(|machine| machine.find_device(index));
        match device.and_then(|device| Some((device.netkit?.primary, device.peer))) {
            Some((true, peer)) => Netkit::Primary { peer: peer.unwrap_or(0) },
            Some((false, _)) => Netkit::Peer,
            None => Netkit::No,
        }
    }

    fn has_tracepoint(&self, name: &str) -> bool {
        let of_world = |world: &World| world.machine().probes.has_raw_tracepoint(name);
        self.world.as_ref().is_some_and(of_world) || places::has_tracepoint(self.host_types.as_deref(), name)
    }

    fn attach(&self, target: &SysProgram, function: u32, program: &SysProgram) -> Result<Attachment, Errno> {
        let index = target.function(function).ok_or(Errno::EINVAL)?;
        let attached = target.program().attach_at(index, program.program());
        // As after a run.
        self.runtime.release_cpu();
        attached.map_err(|error| errno(&error))
    }

    fn has_probes(&self) -> bool {
        Self::has_probes(self)
    }

    fn describe(&self, probe: &Arc<ProbeEvent>) -> ProbeInfo {
        probe.info().clone()
    }

    fn program_at(&self, probe: &Arc<ProbeEvent>) -> Option<u32> {
        probe.program()
    }

    fn probe(
        &self,
        probe: &Arc<ProbeEvent>,
        program: &Arc<ProgramObject<Self>>,
        cookie: u64,
    ) -> Result<Probing, Errno> {
        self.attach_probe(probe, program, cookie)
    }

    fn probe_functions(
        &self,
        functions: &Functions,
        when: When,
        program: &ProgramObject<Self>,
        cookies: &[u64],
    ) -> Result<skep_sys::ProbedFunctions<Probing>, Errno> {
        self.attach_functions(functions, when, program, cookies)
    }

    fn probe_binary(
        &self,
        places: &BinaryPlaces,
        program: &ProgramObject<Self>,
        cookies: &[u64],
    ) -> Result<Probing, Errno> {
        self.attach_binary(places, program, cookies)
    }

    fn probe_raw(
        &self,
        name: &str,
        program: &ProgramObject<Self>,
        cookie: u64,
    ) -> Result<Option<Probing>, Errno> {
        self.attach_raw(name, program, cookie)
    }

    fn place(&self, place: &Place, programs: &[&SysProgram]) -> Result<(), Errno> {
        let programs: Vec<_> = programs.iter().map(|program| program.program()).collect();
        let set = self.places.set(self.world.as_ref(), place, &programs);
        // As after a run: the thread has looked at the programs of a place.
        self.runtime.release_cpu();
        set
    }

    fn count_runs(&self, on: bool) {
        self.runtime.want_stats(crate::registry::CALLS, on);
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
        #[cfg(feature = "signatures")]
        Error::Signature { fault, .. } => signed::errno(fault),
        Error::TargetTaken { .. } | Error::TailCallee { .. } => Errno::EBUSY,
        _ => Errno::EINVAL,
    }
}
