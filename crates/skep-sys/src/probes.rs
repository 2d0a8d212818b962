//! Programs at probes: links to perf events of functions, tracepoints and binaries, to many functions at once, to many
//! places of a binary.
//!
//! What can be probed is the engine's to know ([`Engine::has_probes`]). Without any, these links are refused as by a
//! kernel without tracing.

use crate::attr::{LinkCreate, double};
use crate::caller::Caller;
use crate::engine::{Engine, Place};
use crate::errno::Errno;
use crate::links::Held;
use crate::object::{Handle, Object};
use crate::place::attach_type;
use crate::programs::{ProgramObject, read_text};
use crate::system::System;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Numbers of types of programs.
const KPROBE: u32 = 2;
const TRACEPOINT: u32 = 5;
const PERF_EVENT: u32 = 7;
/// `BPF_F_KPROBE_MULTI_RETURN` and `BPF_F_UPROBE_MULTI_RETURN`.
const F_RETURN: u32 = 1;
/// The most probes of one link.
const MOST: u32 = 1 << 20;
/// The most bytes of all symbols of a link.
const MOST_TEXT: usize = 1 << 24;
/// The most bytes of a symbol and of a path, with their ends.
const SYMBOL: usize = 512;
const PATH: usize = 4096;

/// What a perf event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    /// A place in a binary.
    Binary,
    /// The return from there.
    BinaryReturn,
    /// A place in a function of the kernel.
    Function,
    /// The return from one.
    FunctionReturn,
    /// A tracepoint.
    Tracepoint,
}

/// What is known of a perf event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeInfo {
    /// What it is about.
    pub kind: ProbeKind,
    /// The function, the binary's path, the tracepoint.
    pub name: String,
    /// Bytes behind the start of that.
    pub offset: u64,
    /// The function's address with these; 0 for others.
    pub address: u64,
}

/// Functions of the kernel that a link shall watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Functions {
    /// By name.
    Named(Vec<String>),
    /// By address.
    At(Vec<u64>),
}

/// When programs at many functions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the start.
    Entry,
    /// At the end.
    Return,
    /// At both.
    Session,
}

/// Places in a binary that a link shall watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryPlaces {
    /// The file, as [`Caller::binary`] names it.
    pub path: String,
    /// Bytes behind its start.
    pub offsets: Vec<u64>,
    /// The returns from there.
    pub returns: bool,
    /// In this process alone.
    pub process: Option<u32>,
}

impl ProbeKind {
    /// `enum bpf_perf_event_type`.
    pub(crate) const fn event_type(self) -> u32 {
        match self {
            Self::Binary => 1,
            Self::BinaryReturn => 2,
            Self::Function => 3,
            Self::FunctionReturn => 4,
            Self::Tracepoint => 5,
        }
    }

    /// `enum bpf_task_fd_type`.
    pub(crate) const fn descriptor_type(self) -> u32 {
        match self {
            Self::Tracepoint => 1,
            Self::Function => 2,
            Self::FunctionReturn => 3,
            Self::Binary => 4,
            Self::BinaryReturn => 5,
        }
    }
}

/// Whether programs of that type are attached to probes by links.
pub(crate) const fn is_of_probes(program_type: u32) -> bool {
    matches!(program_type, KPROBE | TRACEPOINT | PERF_EVENT)
}

impl<E: Engine> System<E> {
    /// Attaches a program to a perf event, as `PERF_EVENT_IOC_SET_BPF` does. The caller keeps the handle of
    /// the program as long as the attachment.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for what is no program and for one of another type, [`Errno::EACCES`] if it reads more of a
    /// record than there is, [`Errno::EEXIST`] if the event has a program.
    pub fn probe(&self, probe: &E::Probe, program: &Handle<E>) -> Result<E::Probing, Errno> {
        let Object::Program(program) = program.object() else { return Err(Errno::EINVAL) };
        if expects_many(program.expected_attach_type()) {
            return Err(Errno::EINVAL);
        }
        self.engine().probe(probe, program, 0)
    }

    pub(crate) fn probe_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        program: Arc<ProgramObject<E>>,
    ) -> Result<i64, Errno> {
        let expected = program.expected_attach_type();
        let many = expects_many(expected);
        if create.flags != 0 || (many && expected != create.attach_type) {
            return Err(Errno::EINVAL);
        }
        match create.attach_type {
            attach_type::PERF_EVENT if !many => self.perf_event_link(caller, create, program),
            attach_type::KPROBE_MULTI | attach_type::KPROBE_SESSION if many => {
                self.functions_link(caller, create, program)
            }
            attach_type::UPROBE_MULTI if many => self.binary_link(caller, create, program),
            _ => Err(Errno::EINVAL),
        }
    }

    fn perf_event_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        program: Arc<ProgramObject<E>>,
    ) -> Result<i64, Errno> {
        let cookie = double(&create.more, 0);
        let probe = caller.probe(create.target)?;
        let info = self.engine().describe(&probe);
        let probing = self.engine().probe(&probe, &program, cookie)?;
        self.link_holding(caller, program, Place::PerfEvent { info, cookie }, Held::Probing(probing))
    }

    fn functions_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        program: Arc<ProgramObject<E>>,
    ) -> Result<i64, Errno> {
        let [flags, count, ..] = create.more;
        let [names, addresses, cookies] = [2, 4, 6].map(|at| double(&create.more, at));
        if create.more[8..] != [0; 3] || flags & !F_RETURN != 0 {
            return Err(Errno::EINVAL);
        }
        let session = create.attach_type == attach_type::KPROBE_SESSION;
        if (names == 0) == (addresses == 0) || count == 0 || (session && flags != 0) {
            return Err(Errno::EINVAL);
        }
        if count > MOST {
            return Err(Errno::E2BIG);
        }
        let cookies = list(caller, cookies, count)?;
        let functions = match names {
            0 => Functions::At(list(caller, addresses, count)?),
            names => Functions::Named(texts(caller, names, count)?),
        };
        let when = match (session, flags) {
            (true, _) => When::Session,
            (false, 0) => When::Entry,
            _ => When::Return,
        };
        let (probing, all) = self.engine().probe_functions(&functions, when, &program, &cookies)?;
        let addresses = all.iter().map(|(address, _)| *address).collect();
        let cookies = all.iter().map(|(_, cookie)| *cookie).collect();
        let place = Place::Functions { addresses, cookies, flags };
        self.link_holding(caller, program, place, Held::Probing(probing))
    }

    fn binary_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        program: Arc<ProgramObject<E>>,
    ) -> Result<i64, Errno> {
        let [path, offsets, counters, cookies] = [0, 2, 4, 6].map(|at| double(&create.more, at));
        let [count, flags, process] = [create.more[8], create.more[9], create.more[10]];
        if flags & !F_RETURN != 0 || path == 0 || offsets == 0 || count == 0 {
            return Err(Errno::EINVAL);
        }
        if count > MOST {
            return Err(Errno::E2BIG);
        }
        if (process as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let given = read_text(caller, path, PATH)?;
        let path = caller.binary(&given)?;
        let process = (process != 0).then_some(process);
        if let Some(process) = process
            && !caller.has_process(process)
        {
            return Err(Errno::ESRCH);
        }
        let offsets = list(caller, offsets, count)?;
        if offsets.iter().any(|offset| *offset as i64 as u64 >> 63 != 0) {
            return Err(Errno::EINVAL);
        }
        let (counters, cookies) = (list(caller, counters, count)?, list(caller, cookies, count)?);
        let places = BinaryPlaces { path, offsets, returns: flags != 0, process };
        let probing = self.engine().probe_binary(&places, &program, &cookies)?;
        let path = String::from_utf8(given).or(Err(Errno::ENOENT))?;
        let BinaryPlaces { offsets, .. } = places;
        let process = process.unwrap_or(0);
        let place = Place::Binary { path, offsets, counters, cookies, flags, process };
        self.link_holding(caller, program, place, Held::Probing(probing))
    }
}

/// Whether that is an attachment to many probes.
const fn expects_many(attach_type: u32) -> bool {
    matches!(attach_type, attach_type::KPROBE_MULTI | attach_type::KPROBE_SESSION | attach_type::UPROBE_MULTI)
}

/// A list of numbers; empty without an address.
fn list<E: Engine>(caller: &mut impl Caller<E>, address: u64, count: u32) -> Result<Vec<u64>, Errno> {
    if address == 0 {
        return Ok(Vec::new());
    }
    let mut numbers = Vec::new();
    // In parts: who promises too many has paid for none.
    let (mut at, mut rest) = (address, count as usize);
    while rest > 0 {
        let mut part = [0; 4096];
        let now = rest.min(part.len() / 8);
        caller.read(at, &mut part[..8 * now])?;
        let words = part[..8 * now].chunks_exact(8);
        numbers.extend(words.map(|word| word.try_into().map_or(0, u64::from_ne_bytes)));
        (at, rest) = (at.wrapping_add(8 * now as u64), rest - now);
    }
    Ok(numbers)
}

/// The texts at a list of addresses.
fn texts<E: Engine>(caller: &mut impl Caller<E>, address: u64, count: u32) -> Result<Vec<String>, Errno> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for address in list(caller, address, count)? {
        let text = read_text(caller, address, SYMBOL)?;
        bytes += text.len();
        if bytes > MOST_TEXT {
            return Err(Errno::ENOMEM);
        }
        // No function has a name like that.
        all.push(String::from_utf8(text).or(Err(Errno::ESRCH))?);
    }
    Ok(all)
}
