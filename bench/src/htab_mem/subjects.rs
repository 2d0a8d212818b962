//! What the producers work on: skep's map under each policy, maps of other crates, and the running kernel's.

use super::cases;
use super::programs::{self, Work};
use crate::maps::peers::{self, Peer};
use crate::maps::programs::Op;
use crate::{Result, kernel};
use skep::{Map, Packet, Program, Runtime};
use skep_mem::Policy;
use std::sync::Arc;

/// The map of the running kernel, by this name.
pub(super) const LINUX: &str = "linux";

/// Threads that may run skep's programs.
const CPUS: u32 = 64;

/// What a producer does in a turn, and returns: how many of its updates failed.
pub(super) type Producer<'a> = Box<dyn FnMut(Work) -> Result<u64> + Send + 'a>;

/// A map under test.
pub(super) trait Subject: Sync {
    /// The runs of one producer, whose keys begin there.
    fn producer(&self, first: u32) -> Producer<'_>;

    /// What the map holds, where it knows.
    fn held(&self) -> Option<Held> {
        None
    }
}

/// What a map holds.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// Bytes, exactly.
    pub(super) bytes: u64,
    /// The most that there were, as far as it knows.
    pub(super) peak: u64,
    /// Elements that were freed and could not be used again yet, at most.
    pub(super) in_flight: Option<u64>,
}

/// Makes one by its name: a policy, a crate or the kernel; for `works`, with that number of producers.
pub(super) fn make(name: &str, works: &[Work], producers: u32) -> Result<Box<dyn Subject>> {
    let keys = cases::keys(producers);
    if name == LINUX {
        return Ok(Box::new(Linux::new(works, keys)?));
    }
    if let Ok(policy) = name.parse::<Policy>() {
        return Ok(Box::new(Skep::new(policy, works, keys)?));
    }
    let (_, peer) = peers::all(2 * programs::KEYS as usize)
        .into_iter()
        .find(|(peer, _)| *peer == name)
        .ok_or_else(|| format!("there is no map called {name}"))?;
    Ok(Box::new(Other { peer, keys }))
}

/// A map of skep, and the programs.
struct Skep {
    map: Arc<Map>,
    programs: Vec<(Work, Program)>,
}

impl Skep {
    fn new(policy: Policy, works: &[Work], keys: u32) -> Result<Self> {
        let runtime = Runtime::builder().policy(policy).cpus(CPUS).build()?;
        let mut map: Option<Arc<Map>> = None;
        let mut programs = Vec::new();
        for &work in works {
            let object = programs::object(work, keys)?;
            let mut linker = runtime.linker(&object);
            if let Some(map) = &map {
                linker = linker.map("elements", Arc::clone(map));
            }
            let module = linker.load()?;
            map.get_or_insert(module.map("elements").cloned().ok_or("no map")?);
            programs.push((work, module.programs()[0].clone()));
        }
        Ok(Self { map: map.ok_or("no programs")?, programs })
    }
}

impl Subject for Skep {
    fn producer(&self, first: u32) -> Producer<'_> {
        let mut packet = Packet::new(&programs::packet(first));
        Box::new(move |work| {
            let (_, program) = self.programs.iter().find(|(other, _)| *other == work).ok_or("no program")?;
            Ok(program.run(&mut packet)?)
        })
    }

    fn held(&self) -> Option<Held> {
        let stats = self.map.stats();
        let in_flight = Some(stats.peak_in_flight);
        Some(Held { bytes: stats.bytes, peak: stats.peak_bytes, in_flight })
    }
}

/// A map of another crate.
struct Other {
    peer: Arc<dyn Peer>,
    keys: u32,
}

impl Subject for Other {
    fn producer(&self, first: u32) -> Producer<'_> {
        let keys: Vec<u32> = (first..first + self.keys).collect();
        Box::new(move |work| {
            let ops: &[Op] = match work {
                Work::Nothing => &[Op::Nothing],
                Work::Update => &[Op::Update],
                Work::Delete => &[Op::Delete],
                Work::UpdateAndDelete => &[Op::Update, Op::Delete],
            };
            for &op in ops {
                self.peer.pass(op, &keys, 0);
            }
            Ok(0)
        })
    }
}

/// A map of the kernel, and the programs in it.
struct Linux {
    map: kernel::Map,
    programs: Vec<(Work, kernel::Program)>,
}

impl Linux {
    fn new(works: &[Work], keys: u32) -> Result<Self> {
        let map = kernel::Map::new(&programs::map())?;
        let load = |&work: &Work| {
            Ok((work, kernel::Program::load(&programs::object(work, keys)?, "htab_mem", &[&map])?))
        };
        let programs = works.iter().map(load).collect::<Result<_>>()?;
        Ok(Self { map, programs })
    }
}

impl Subject for Linux {
    fn producer(&self, first: u32) -> Producer<'_> {
        let packet = programs::packet(first);
        Box::new(move |work| {
            let (_, program) = self.programs.iter().find(|(other, _)| *other == work).ok_or("no program")?;
            let (failed, _) = program.run(&packet, 1)?;
            Ok(failed.into())
        })
    }

    fn held(&self) -> Option<Held> {
        self.map.bytes().ok().map(|bytes| Held { bytes, ..Held::default() })
    }
}
