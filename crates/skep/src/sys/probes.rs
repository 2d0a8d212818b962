//! Probes of the world as clients of the system call attach programs to them.
//!
//! ```text
//!   perf_event_open --> ProbeRequest --SysEngine::open_probe--> ProbeEvent   one program at a time
//!   BPF_LINK_CREATE, PERF_EVENT_IOC_SET_BPF --> Probing --> World::probe
//! ```

use super::{SysEngine, errno};
use crate::error::Error;
use crate::world::{Event, Happening, Probe, ProbeLink, ProbeOptions, ProbePoint, Ran, World};
use skep_sys::{BinaryPlaces, Errno, Functions, ProbeInfo, ProbeKind, ProgramObject, When};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The types of programs.
const KPROBE: u32 = 2;
/// The group of the tracepoints of system calls.
const SYSTEM_CALLS: &str = "syscalls";

/// What a client opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeRequest {
    /// A place in a function of the kernel.
    Function {
        /// Its name; without it, the offset is an address.
        name: Option<String>,
        /// Bytes behind its start.
        offset: u64,
        /// The function's return.
        returns: bool,
    },
    /// A place in a binary.
    Binary {
        /// The file, as the world names it.
        path: PathBuf,
        /// The file, as the client names it.
        given: String,
        /// Bytes behind its start.
        offset: u64,
        /// The return from there.
        returns: bool,
    },
    /// The tracepoint of that number.
    Tracepoint(u32),
}

/// A probe or a tracepoint that a client has opened.
#[derive(Debug)]
pub struct ProbeEvent {
    probe: Probe,
    info: ProbeInfo,
    process: Option<u32>,
    enabled: Arc<AtomicBool>,
    /// The identifier of the program that it has.
    program: Mutex<Option<u32>>,
}

/// A program at probes. Dropping it detaches the program.
#[derive(Debug)]
pub struct Probing {
    _link: ProbeLink,
    event: Option<Arc<ProbeEvent>>,
}

impl ProbeEvent {
    /// What it is about.
    pub fn info(&self) -> &ProbeInfo {
        &self.info
    }

    /// Begins or ends to run its program. Relaxed: nothing else depends on it.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// The identifier of its program.
    pub fn program(&self) -> Option<u32> {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Probing {
    fn drop(&mut self) {
        if let Some(event) = &self.event {
            *event.program.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// Linux's number for what is wrong with a probe.
fn refusal(error: &Error) -> Errno {
    match error {
        Error::RecordSize { .. } => Errno::EACCES,
        Error::World(skep_world::Error::NoProbe { .. }) => Errno::ENOENT,
        Error::World(skep_world::Error::BadProbe { .. }) => Errno::EINVAL,
        error => errno(error),
    }
}

impl SysEngine {
    /// Whether the world has something that can be probed.
    pub fn has_probes(&self) -> bool {
        self.world().is_some_and(|world| !world.machine().probes.is_empty())
    }

    fn probed(&self) -> Result<&World, Errno> {
        self.world().ok_or(Errno::ENOENT)
    }

    /// Opens a probe, which runs the program that is attached to it later: in one process, or in all.
    ///
    /// # Errors
    ///
    /// [`Errno::ENOENT`] if there is no such function or binary, [`Errno::EINVAL`] if there is no such place in it or
    /// no such tracepoint.
    pub fn open_probe(
        &self,
        request: ProbeRequest,
        process: Option<u32>,
        enabled: bool,
    ) -> Result<Arc<ProbeEvent>, Errno> {
        let machine = self.probed()?.machine();
        let probes = &machine.probes;
        let (probe, info) = match request {
            ProbeRequest::Function { name, offset, returns } => {
                let (name, offset) = match name {
                    Some(name) => (name, offset),
                    None => {
                        let holds = |known: &&skep_world::Function| {
                            (known.address..known.address + known.size).contains(&offset)
                        };
                        let found = probes.functions().find(holds).ok_or(Errno::EINVAL)?;
                        (found.name.clone(), offset - found.address)
                    }
                };
                let point = ProbePoint::Function { name: name.clone(), offset };
                probes.check(&point).map_err(|error| refusal(&error.into()))?;
                if returns && offset != 0 {
                    return Err(Errno::EINVAL);
                }
                let kind = if returns { ProbeKind::FunctionReturn } else { ProbeKind::Function };
                let address = probes.address(&point);
                let probe = if returns { Probe::Return(point) } else { Probe::Entry(point) };
                (probe, ProbeInfo { kind, name, offset, address })
            }
            ProbeRequest::Binary { path, given, offset, returns } => {
                let point = ProbePoint::binary(path, offset);
                probes.check(&point).map_err(|error| refusal(&error.into()))?;
                let kind = if returns { ProbeKind::BinaryReturn } else { ProbeKind::Binary };
                let probe = if returns { Probe::Return(point) } else { Probe::Entry(point) };
                (probe, ProbeInfo { kind, name: given, offset, address: 0 })
            }
            ProbeRequest::Tracepoint(id) => {
                let found = probes.tracepoints().iter().find(|known| known.id() == id);
                let found = found.ok_or(Errno::EINVAL)?;
                let (group, name) = (found.group().to_owned(), found.name().to_owned());
                let info =
                    ProbeInfo { kind: ProbeKind::Tracepoint, name: name.clone(), offset: 0, address: 0 };
                (Probe::Tracepoint { group, name }, info)
            }
        };
        let enabled = Arc::new(AtomicBool::new(enabled));
        Ok(Arc::new(ProbeEvent { probe, info, process, enabled, program: Mutex::new(None) }))
    }

    /// Lets an event of the world happen in that process. Returns how many programs ran.
    ///
    /// # Errors
    ///
    /// Those of [`World::fire`].
    pub fn fire_event(&self, event: &Event, process: Option<u32>) -> Result<Ran, Error> {
        let Some(world) = self.world() else { return Ok(Ran::default()) };
        let ran = world.fire_event(event, process);
        // As after a test run: the thread serves calls, and may be idle for long.
        self.runtime().release_cpu();
        ran
    }

    /// The same for an event that happens with a system call. What the event does not say follows from the call: the
    /// arguments of a function, and of tracepoints of the group `syscalls` the record, which is the number and the
    /// arguments.
    ///
    /// # Errors
    ///
    /// As [`SysEngine::fire_event`].
    pub fn fire_with_call(
        &self,
        event: &Event,
        process: u32,
        (number, given): (u64, [u64; 6]),
    ) -> Result<Ran, Error> {
        let mut event = event.clone();
        match &mut event.what {
            Happening::Call { arguments, .. } if arguments.is_empty() => *arguments = given.to_vec(),
            Happening::Trace { group, record, .. } if group == SYSTEM_CALLS => {
                let words = std::iter::once(number).chain(given).flat_map(u64::to_ne_bytes);
                record.iter_mut().skip(8).zip(words).for_each(|(to, byte)| *to = byte);
            }
            _ => {}
        }
        self.fire_event(&event, Some(process))
    }

    pub(super) fn attach_probe(
        &self,
        event: &Arc<ProbeEvent>,
        program: &ProgramObject<Self>,
        cookie: u64,
    ) -> Result<Probing, Errno> {
        let sleeps_in_kernel = program.program_type() == KPROBE
            && program.program().program().verified().is_sleepable()
            && !matches!(event.info.kind, ProbeKind::Binary | ProbeKind::BinaryReturn);
        if sleeps_in_kernel {
            return Err(Errno::EINVAL);
        }
        let mut slot = event.program.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_some() {
            return Err(Errno::EEXIST);
        }
        let enabled = Some(Arc::clone(&event.enabled));
        let options = ProbeOptions { cookie, process: event.process, enabled };
        let link = self.probed()?.probe(program.program().program(), event.probe.clone(), options);
        let link = link.map_err(|error| refusal(&error))?;
        *slot = Some(program.id());
        drop(slot);
        Ok(Probing { _link: link, event: Some(Arc::clone(event)) })
    }

    pub(super) fn attach_functions(
        &self,
        functions: &Functions,
        when: When,
        program: &ProgramObject<Self>,
        cookies: &[u64],
    ) -> Result<skep_sys::ProbedFunctions<Probing>, Errno> {
        let machine = self.probed()?.machine();
        let probes = &machine.probes;
        let asked = match functions {
            Functions::Named(names) => names.len(),
            Functions::At(addresses) => addresses.len(),
        };
        let found: Vec<&skep_world::Function> = match functions {
            // Some are asked for twice: what would take long fails at once.
            Functions::At(_) if asked > probes.functions().count() => return Err(Errno::EINVAL),
            Functions::Named(names) => {
                let found = names.iter().map(|name| probes.function(name).ok_or(Errno::ESRCH));
                found.collect::<Result<_, _>>()?
            }
            Functions::At(addresses) => {
                let at = |address| probes.functions().find(|known| known.address == address);
                let found = addresses.iter().map(|address| at(*address).ok_or(Errno::EINVAL));
                found.collect::<Result<_, _>>()?
            }
        };
        let mut all: Vec<_> = found.iter().enumerate().map(|(at, function)| (*function, at)).collect();
        // As in Linux, each address once and in their order.
        all.sort_by_key(|(function, _)| function.address);
        if all.windows(2).any(|two| two[0].0.address == two[1].0.address) {
            return Err(Errno::EINVAL);
        }
        let cookie = |at: usize| cookies.get(at).copied().unwrap_or(0);
        let told = all.iter().map(|(function, at)| (function.address, cookie(*at))).collect();
        let all = all.iter().map(|(function, at)| {
            let point = ProbePoint::function(&function.name);
            let probe = match when {
                When::Entry => Probe::Entry(point),
                When::Return => Probe::Return(point),
                When::Session => Probe::Session(point),
            };
            (probe, ProbeOptions { cookie: cookie(*at), ..ProbeOptions::default() })
        });
        Ok((self.attach_all(program, all)?, told))
    }

    pub(super) fn attach_binary(
        &self,
        places: &BinaryPlaces,
        program: &ProgramObject<Self>,
        cookies: &[u64],
    ) -> Result<Probing, Errno> {
        let all = places.offsets.iter().enumerate().map(|(at, offset)| {
            let point = ProbePoint::binary(&places.path, *offset);
            let probe = if places.returns { Probe::Return(point) } else { Probe::Entry(point) };
            let cookie = cookies.get(at).copied().unwrap_or(0);
            (probe, ProbeOptions { cookie, process: places.process, enabled: None })
        });
        self.attach_all(program, all)
    }

    pub(super) fn attach_raw(
        &self,
        name: &str,
        program: &ProgramObject<Self>,
        cookie: u64,
    ) -> Result<Option<Probing>, Errno> {
        if !self.probed()?.machine().probes.has_raw_tracepoint(name) {
            return Ok(None);
        }
        let options = ProbeOptions { cookie, ..ProbeOptions::default() };
        self.attach_all(program, [(Probe::RawTracepoint(name.to_owned()), options)]).map(Some)
    }

    fn attach_all(
        &self,
        program: &ProgramObject<Self>,
        probes: impl IntoIterator<Item = (Probe, ProbeOptions)>,
    ) -> Result<Probing, Errno> {
        let link = self.probed()?.probe_all(program.program().program(), probes);
        Ok(Probing { _link: link.map_err(|error| refusal(&error))?, event: None })
    }
}
