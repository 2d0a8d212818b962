//! Probes: programs at functions, tracepoints and binaries of the world, which run when the host says that something
//! happens there.
//!
//! ```text
//!   Machine::probes    what can be probed
//!   World::probe       a program, a probe  ------------------+
//!   World::fire        something happens  --> Context --> each program that is there
//! ```
//!
//! Nothing of the host is probed. Invariant: a program reads nothing of a tracepoint's record behind its end: how much
//! it reads is compared with the record when it is attached, and a shorter one that is fired has zeroes behind it.
//!
//! What would break it: programs that run while the list is locked. They may take long, and may attach others by way of
//! a host's functions.

mod arch;
mod registers;

use super::World;
use crate::audit::AuditEvent;
use crate::context::Context;
use crate::error::Error;
use crate::observe;
use crate::program::Program;
pub use registers::Registers;
use skep_world::{Event, Happening, Machine, ProbePoint};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a program is attached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Probe {
    /// It runs when code is reached.
    Entry(ProbePoint),
    /// It runs when a function returns.
    Return(ProbePoint),
    /// It runs at both; if it returns 1 at the start, it does not run at the end.
    Session(ProbePoint),
    /// It runs when a tracepoint is passed, on its record.
    Tracepoint {
        /// The group.
        group: String,
        /// The name.
        name: String,
    },
    /// It runs when a tracepoint is passed, on its arguments. The name is without the group.
    RawTracepoint(String),
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(point) => write!(f, "entry of {point}"),
            Self::Return(point) => write!(f, "return of {point}"),
            Self::Session(point) => write!(f, "call of {point}"),
            Self::Tracepoint { group, name } => write!(f, "tracepoint {group}:{name}"),
            Self::RawTracepoint(name) => write!(f, "raw tracepoint {name}"),
        }
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Fired<'a> {
    /// Code is reached: programs at [`Probe::Entry`] and [`Probe::Session`] run.
    Entry {
        /// Where.
        point: &'a ProbePoint,
        /// The registers.
        registers: &'a Registers,
    },
    /// A function returns: programs at [`Probe::Return`] run.
    Return {
        /// The function.
        point: &'a ProbePoint,
        /// The registers.
        registers: &'a Registers,
    },
    /// A function is called and returns: programs at its start run, and then those at its end.
    Call {
        /// The function.
        point: &'a ProbePoint,
        /// The registers at its start.
        registers: &'a Registers,
        /// What it returns.
        result: u64,
    },
    /// A tracepoint is passed.
    Tracepoint {
        /// The group.
        group: &'a str,
        /// The name.
        name: &'a str,
        /// Its record, with the 8 bytes that each begins with.
        record: &'a [u8],
        /// Its arguments, for raw tracepoints: at most 12.
        arguments: &'a [u64],
    },
}

/// What [`World::fire`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran {
    /// How many programs ran.
    pub programs: u64,
}

/// How a program is attached.
#[derive(Clone, Debug, Default)]
pub struct ProbeOptions {
    /// What `bpf_get_attach_cookie` returns.
    pub cookie: u64,
    /// The process in which it runs alone; in all without it.
    pub process: Option<u32>,
    /// It runs while this is true; always without it. Only the flag itself matters, nothing that was written before.
    pub enabled: Option<Arc<AtomicBool>>,
}

/// The attachment of a program to a probe. Dropping it detaches the program; a run that has begun ends.
#[derive(Debug)]
pub struct ProbeLink {
    attachments: Arc<Attachments>,
    id: u64,
    program: Program,
    /// Where it is attached, for the audit log.
    target: String,
}

/// What is attached.
#[derive(Debug, Default)]
pub(super) struct Attachments(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    next_id: u64,
    /// In the order of attachment.
    all: Vec<Arc<Attached>>,
}

#[derive(Debug)]
struct Attached {
    /// That of its link.
    id: u64,
    probe: Probe,
    program: Program,
    /// The address of the function, for `bpf_get_func_ip`.
    address: u64,
    options: ProbeOptions,
}

/// The end of a program's time at a call.
enum Part {
    Start,
    End,
}

impl Attachments {
    fn with<T>(&self, change: impl FnOnce(&mut List) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ProbeLink {
    fn drop(&mut self) {
        let event =
            || AuditEvent::Detach { program: self.program.name().to_owned(), target: self.target.clone() };
        // It is detached all the same.
        let _ = self.program.shared().observed.tell(self.program.image().tenant.as_deref(), None, event);
        let mut ended = Vec::new();
        // At once: a link may have very many. What they hold is let go without the lock.
        self.attachments.with(|list| {
            let (own, others) = std::mem::take(&mut list.all).into_iter().partition(|one| one.id == self.id);
            (ended, list.all) = (own, others);
        });
        drop::<Vec<Arc<Attached>>>(ended);
    }
}

impl World {
    /// Attaches a program to a probe, behind those that are there.
    ///
    /// ```
    /// use skep::world::{Clock, Fired, Function, Machine, Probe, ProbeOptions, ProbePoint, Random, Registers};
    /// use skep::{Object, Runtime};
    ///
    /// let mut machine = Machine::new();
    /// machine.probes.add_function(Function { name: "tcp_connect".into(), address: 0, size: 0 })?;
    /// let world = skep::World::new(machine);
    /// let runtime = Runtime::builder().world(&world).build()?;
    /// let kind = skep::abi::ProgramType::from_name("kprobe").expect("a type");
    /// let insns = skep::isa::assemble("r0 = 0\nexit").expect("the text is right");
    /// let module = runtime.load(&Object::from_insns("watch", kind, insns))?;
    ///
    /// let point = ProbePoint::function("tcp_connect");
    /// let link = world.probe(&module.programs()[0], Probe::Entry(point.clone()), ProbeOptions::default())?;
    /// let registers = Registers::call(&[0xffff_8880_0000_1000]);
    /// let fired = Fired::Call { point: &point, registers: &registers, result: 0 };
    /// assert_eq!(world.fire(fired, None)?.programs, 1);
    /// drop(link);
    /// assert_eq!(world.fire(fired, None)?.programs, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::World`] if the machine has no such function, tracepoint or binary, and for the return of something that
    /// is not the start of a function of the kernel; [`Error::WrongAttachment`] for programs of another type;
    /// [`Error::RecordSize`] if it reads more than the tracepoint's record has; [`Error::OtherWorld`] if its runtime
    /// does not see this world.
    pub fn probe(&self, program: &Program, probe: Probe, options: ProbeOptions) -> Result<ProbeLink, Error> {
        self.probe_all(program, [(probe, options)])
    }

    /// The same for many probes, by one link.
    pub(crate) fn probe_all(
        &self,
        program: &Program,
        probes: impl IntoIterator<Item = (Probe, ProbeOptions)>,
    ) -> Result<ProbeLink, Error> {
        let machine = self.machine();
        let id = self.probes.with(|list| {
            list.next_id += 1;
            list.next_id
        });
        let attached = probes.into_iter().map(|(probe, options)| {
            let address = self.check_probe(&machine, program, &probe)?;
            Ok(Arc::new(Attached { id, probe, program: program.clone(), address, options }))
        });
        let attached = attached.collect::<Result<Vec<_>, Error>>()?;
        let target = match attached.as_slice() {
            [] => "no probe".to_owned(),
            [only] => only.probe.to_string(),
            [first, rest @ ..] => format!("{} and {} more probes", first.probe, rest.len()),
        };
        let event = || observe::attach(program.verified(), &target);
        program.shared().observed.around(program.image().tenant.as_deref(), event, || {
            self.probes.with(|list| list.all.extend(attached));
            Ok(())
        })?;
        Ok(ProbeLink { attachments: Arc::clone(&self.probes), id, program: program.clone(), target })
    }

    /// Checks that a program may run at a probe. Returns the address of the function there.
    fn check_probe(&self, machine: &Machine, program: &Program, probe: &Probe) -> Result<u64, Error> {
        if !Arc::ptr_eq(&program.shared().surroundings, &self.surroundings) {
            return Err(Error::OtherWorld { program: program.name().to_owned() });
        }
        let missing = |name: &str| skep_world::Error::NoProbe { name: name.to_owned() };
        let mut address = 0;
        match probe {
            Probe::Entry(point) | Probe::Return(point) | Probe::Session(point) => {
                machine.probes.check(point)?;
                if let ProbePoint::Function { name, offset } = point {
                    if *offset != 0 && !matches!(probe, Probe::Entry(_)) {
                        let why = "a function returns as a whole: leave out the offset";
                        return Err(skep_world::Error::BadProbe { name: name.clone(), why }.into());
                    }
                    let start = machine.probes.function(name).map_or(0, |function| function.address);
                    address = if *offset == 0 { start } else { 0 };
                }
            }
            Probe::Tracepoint { group, name } => {
                let found = machine.probes.tracepoint(group, name);
                let found = found.ok_or_else(|| missing(&format!("{group}/{name}")))?;
                let (reads, record) = (program.verified().context_bytes() as usize, found.record_size());
                if reads > record {
                    return Err(Error::RecordSize { program: program.name().to_owned(), reads, record });
                }
            }
            Probe::RawTracepoint(name) => {
                if !machine.probes.has_raw_tracepoint(name) {
                    return Err(missing(name).into());
                }
            }
        }
        let (types, expected): (&[&str], _) = match probe {
            Probe::Tracepoint { .. } => (&["tracepoint"], "programs of type tracepoint"),
            Probe::RawTracepoint(_) => {
                (&["raw_tracepoint", "raw_tracepoint_writable"], "programs of type raw_tracepoint")
            }
            _ => (&["kprobe"], "programs of type kprobe"),
        };
        let type_name = program.program_type().name;
        if !types.contains(&type_name) {
            let given = format!("one of type {type_name}");
            let program = program.name().to_owned();
            return Err(Error::WrongAttachment { program, expected: expected.to_owned(), given });
        }
        Ok(address)
    }

    /// Something happens: runs all programs that are attached there, on this thread, in the order of their attachment.
    /// `process` is the number of the process in which it happens; without it, that of the machine's task. What nobody
    /// watches, or what the machine does not have, runs nothing.
    ///
    /// # Errors
    ///
    /// [`Error::ContextBytes`] for more than 12 arguments or a record of more than 8,192 bytes; otherwise those of
    /// [`Program::run_context`], after which no further program has run.
    pub fn fire(&self, fired: Fired<'_>, process: Option<u32>) -> Result<Ran, Error> {
        let process = process.or_else(|| self.machine().task.as_ref().map(|task| task.tgid));
        let watching = |attached: &Arc<Attached>| attached.watches(&fired) && attached.runs_in(process);
        let all: Vec<_> =
            self.probes.with(|list| list.all.iter().filter(|one| watching(one)).cloned().collect());
        let mut ran = Ran::default();
        let mut ended = Vec::new();
        for attached in &all {
            if !attached.runs_at(&fired, &Part::Start) {
                continue;
            }
            let result = attached.run(&fired, &Part::Start)?;
            ran.programs += 1;
            if matches!(attached.probe, Probe::Session(_)) && result as u32 == 1 {
                ended.push(Arc::as_ptr(attached));
            }
        }
        for attached in all.iter().filter(|attached| !ended.contains(&Arc::as_ptr(attached))) {
            if attached.runs_at(&fired, &Part::End) {
                attached.run(&fired, &Part::End)?;
                ran.programs += 1;
            }
        }
        Ok(ran)
    }

    /// Lets an event of the machine happen ([`skep_world::Probes::add_event`]).
    ///
    /// # Errors
    ///
    /// As [`World::fire`].
    pub fn fire_event(&self, event: &Event, process: Option<u32>) -> Result<Ran, Error> {
        match &event.what {
            Happening::Call { point, arguments, result } => {
                let registers = Registers::call(arguments);
                let registers = &registers.at(self.machine().probes.address(point));
                match *result {
                    Some(result) => self.fire(Fired::Call { point, registers, result }, process),
                    None => self.fire(Fired::Entry { point, registers }, process),
                }
            }
            Happening::Trace { group, name, record, arguments } => {
                self.fire(Fired::Tracepoint { group, name, record, arguments }, process)
            }
        }
    }
}

impl Attached {
    fn watches(&self, fired: &Fired<'_>) -> bool {
        match (&self.probe, fired) {
            (Probe::Entry(own) | Probe::Session(own), Fired::Entry { point, .. }) => own == *point,
            (Probe::Return(own), Fired::Return { point, .. }) => own == *point,
            (Probe::Entry(own) | Probe::Return(own) | Probe::Session(own), Fired::Call { point, .. }) => {
                own == *point
            }
            (Probe::Tracepoint { group, name }, Fired::Tracepoint { group: of, name: at, .. }) => {
                group == of && name == at
            }
            (Probe::RawTracepoint(own), Fired::Tracepoint { name, .. }) => own == name,
            _ => false,
        }
    }

    fn runs_in(&self, process: Option<u32>) -> bool {
        // Relaxed: the flag alone, as the options say.
        let enabled = self.options.enabled.as_ref().is_none_or(|enabled| enabled.load(Ordering::Relaxed));
        enabled && self.options.process.is_none_or(|own| process == Some(own))
    }

    fn runs_at(&self, fired: &Fired<'_>, part: &Part) -> bool {
        match (fired, part) {
            (Fired::Call { .. }, Part::Start) => !matches!(self.probe, Probe::Return(_)),
            (Fired::Call { .. }, Part::End) => !matches!(self.probe, Probe::Entry(_)),
            (_, Part::Start) => true,
            (_, Part::End) => false,
        }
    }

    fn run(&self, fired: &Fired<'_>, part: &Part) -> Result<u64, Error> {
        let mut context = Context::of(&self.program)?;
        context.set_attach_cookie(self.options.cookie);
        context.set_func_ip(self.address);
        match fired {
            Fired::Entry { registers, .. } | Fired::Return { registers, .. } => {
                context.set_bytes(&registers.bytes())?;
            }
            Fired::Call { registers, result, .. } => match part {
                Part::Start => context.set_bytes(&registers.bytes())?,
                Part::End => context.set_bytes(&registers.returning(*result).bytes())?,
            },
            Fired::Tracepoint { record, arguments, .. } => match self.probe {
                Probe::Tracepoint { .. } => context.set_bytes(record)?,
                _ if self.program.program_type().name == "raw_tracepoint" => {
                    let bytes: Vec<u8> = arguments.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    context.set_bytes(&bytes)?;
                }
                // The first argument is the address of the record, which the context has.
                _ => {
                    for (at, argument) in arguments.iter().enumerate().skip(1) {
                        context.set(&format!("args[{at}]"), *argument)?;
                    }
                }
            },
        }
        self.program.run_context(&mut context)
    }
}
