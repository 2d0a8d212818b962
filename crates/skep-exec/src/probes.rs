//! Probes of the world: what an application finds of them, opens and attaches programs to, and how they are fired.
//!
//! ```text
//!   /sys/bus/event_source/devices   types of perf events: kprobe, uprobe           (`files`)
//!   /sys/kernel/tracing             tracepoints, functions, kprobe_events          (`files`, `events`)
//!   perf_event_open, ioctl          an event, and its program                      (`open`)
//!   events of the world             with system calls, after a time, or by reading /sys/kernel/tracing/fire/NAME
//! ```
//!
//! Only a world that has probes does this: without one, nothing here is mounted, and no system call more is notified.

mod calls;
mod events;
mod files;
mod folder;
mod open;

use crate::listener::Answer;
use crate::process::Process;
use crate::procfs::{give, written};
use crate::table::FileId;
use crate::turn::Turn;
pub(crate) use calls::number as call_number;
use events::Events;
pub(crate) use events::named;
pub(crate) use files::{Prepared, prepare};
pub(crate) use open::{Opened, ioctl, is_probe, open};
use parking_lot::Mutex;
use skep::sys::SysEngine;
use skep::world::Event;
use skep_sys::{Caller, Errno};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often it is looked at the time while events wait for it.
const STEP: Duration = Duration::from_millis(2);
/// The longest definition of a probe that is read.
const LONGEST: u64 = 4096;

/// The probes of a world, as processes see them.
pub(crate) struct Probes {
    /// Events that happen with system calls, and the numbers of these.
    with_calls: Vec<(i64, Event)>,
    /// Those that happen by themselves, the first ones first.
    timed: Vec<Event>,
    /// Files whose opening lets an event happen.
    fires: Vec<(FileId, Event)>,
    /// The root of the tracing file system.
    root: FileId,
    /// The files that definitions of probes are written to.
    definitions: [FileId; 2],
    /// The binaries of the world that there are, by their files.
    binaries: Vec<(FileId, PathBuf)>,
    events: Mutex<Events>,
}

impl Probes {
    /// The probes of the engine's world, with files that were prepared.
    pub(crate) fn new(engine: &SysEngine, prepared: Prepared) -> Option<Self> {
        let machine = engine.world()?.machine();
        let probes = &machine.probes;
        let with_calls = probes
            .events()
            .filter_map(|event| Some((call_number(event.system_call.as_deref()?)?.into(), event.clone())));
        let mut timed: Vec<_> = probes.events().filter(|event| event.after.is_some()).cloned().collect();
        timed.sort_by_key(|event| event.after);
        let fires = prepared.fires.into_iter();
        let fires = fires.filter_map(|(file, name)| Some((file, probes.event(&name)?.clone()))).collect();
        let id = |path: &Path| rustix::fs::stat(path).ok().map(|status| (status.st_dev, status.st_ino));
        let binaries = probes.binaries().iter().filter_map(|path| Some((id(path)?, path.clone()))).collect();
        Some(Self {
            with_calls: with_calls.collect(),
            timed,
            fires,
            root: prepared.root,
            definitions: prepared.definitions,
            binaries,
            events: Mutex::new(Events::new(prepared.events, probes.tracepoints().len() as u32)),
        })
    }

    /// Whether a file is the root of the tracing file system.
    pub(crate) fn is_root(&self, file: FileId) -> bool {
        self.root == file
    }

    /// The name under which the world has a binary.
    pub(crate) fn binary(&self, file: FileId) -> Option<&Path> {
        let found = self.binaries.iter().find(|(known, _)| *known == file);
        found.map(|(_, path)| path.as_path())
    }

    /// A process makes a system call: lets the events happen that happen with it.
    pub(crate) fn entered(&self, process: &Process<'_>) {
        let mut own = self.with_calls.iter().filter(|(number, _)| *number == process.call.number).peekable();
        if own.peek().is_none() {
            return;
        }
        // What was closed before this call is no longer attached.
        process.table.settle(false);
        let Some(group) = process.group() else { return };
        for (number, event) in own {
            // A program that cannot run now, since no virtual CPU is free, misses the event.
            let _ran = process.engine.fire_with_call(event, group, (*number as u64, process.call.arguments));
        }
    }

    /// Lets events happen at their times, until nobody is left to see them. Returns how many programs ran.
    pub(crate) fn keep_time(&self, engine: &SysEngine, turn: &Turn) -> u64 {
        let (start, mut ran) = (Instant::now(), 0);
        for event in &self.timed {
            loop {
                if turn.is_over() {
                    return ran;
                }
                if start.elapsed() >= event.after.unwrap_or_default() {
                    break;
                }
                std::thread::sleep(STEP);
            }
            ran += engine.fire_event(event, None).map_or(0, |ran| ran.programs);
        }
        ran
    }

    pub(crate) fn has_timed(&self) -> bool {
        !self.timed.is_empty()
    }

    /// A process opens a file: one that lets an event happen, or one for definitions of probes.
    pub(crate) fn opened(
        &self,
        process: &mut Process<'_>,
        (directory, path): (Option<i32>, u64),
        flags: i32,
    ) -> Option<Answer> {
        let path = process.text(path).ok()?;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let defines = [&b"kprobe_events"[..], b"uprobe_events"].contains(&name);
        if !defines && !self.fires.iter().any(|(_, event)| event.name.as_bytes() == name) {
            return None;
        }
        let file = process.file_of(directory, &path).ok()?;
        let closes = flags & libc::O_CLOEXEC != 0;
        let reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        if let Some((_, event)) = self.fires.iter().find(|(known, _)| *known == file) {
            if !reads {
                return Some(Answer::Error(Errno::EACCES));
            }
            process.table.settle(false);
            let ran = process.engine.fire_event(event, process.group());
            let text = ran.map(|ran| format!("{}\n", ran.programs)).map_err(|_| Errno::EAGAIN);
            let file = text.and_then(|text| written("fire", text.as_bytes()));
            return Some(give(process, file, closes));
        }
        let which = self.definitions.iter().position(|known| *known == file)?;
        if reads {
            let text = self.events.lock().definitions(which);
            return Some(give(process, written("probe_events", text.as_bytes()), closes));
        }
        if flags & libc::O_TRUNC != 0
            && let Err(error) = self.events.lock().clear(which)
        {
            return Some(Answer::Error(error));
        }
        let opened = self.events.lock().file(which);
        let given = opened.and_then(|file| crate::netlink::give_high(process, &file, closes));
        Some(given.map_or_else(Answer::Error, |number| Answer::Value(number.into())))
    }

    /// A process writes to a file with a high descriptor: definitions of probes, if it is that.
    pub(crate) fn written(&self, process: &mut Process<'_>, arguments: [u64; 6]) -> Answer {
        let [descriptor, address, len, ..] = arguments;
        let Ok((file, _)) = process.file(descriptor as i32) else { return Answer::Continue };
        let Some(which) = self.events.lock().which(file) else { return Answer::Continue };
        if len > LONGEST {
            return Answer::Error(Errno::E2BIG);
        }
        let mut bytes = vec![0; len as usize];
        if let Err(error) = process.read(address, &mut bytes) {
            return Answer::Error(error);
        }
        process.table.settle(false);
        let done = self.events.lock().define(process, self, which, &bytes);
        done.map_or_else(Answer::Error, |()| Answer::Value(len as i64))
    }

    /// What a tracepoint of that number is, and a hold on it while it is open.
    fn tracepoint(&self, id: u64) -> Option<(skep::sys::ProbeRequest, Arc<()>)> {
        self.events.lock().request(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use skep::abi::ProgramType;
    use skep::world::{Function, Happening, Machine, Probe, ProbeOptions, ProbePoint, World};
    use skep::{Object, Runtime};

    #[test]
    fn events_happen_at_their_times_while_somebody_is_there() {
        let (mut machine, point) = (Machine::new(), ProbePoint::function("f"));
        machine.probes.add_function(Function { name: "f".to_owned(), address: 0, size: 0 }).unwrap();
        for (name, after) in [("late", Some(3)), ("early", Some(1)), ("never", None)] {
            let what = Happening::Call { point: point.clone(), arguments: Vec::new(), result: None };
            let (name, after) = (name.to_owned(), after.map(Duration::from_millis));
            machine.probes.add_event(Event { name, what, system_call: None, after }).unwrap();
        }
        let world = World::new(machine);
        let runtime = Runtime::builder().world(&world).build().unwrap();
        let insns = skep::isa::assemble("r0 = 0\nexit").unwrap();
        let kind = ProgramType::from_name("kprobe").unwrap();
        let loaded = runtime.load(&Object::from_insns("p", kind, insns)).unwrap();
        let options = ProbeOptions::default();
        let _link = world.probe(&loaded.programs()[0], Probe::Entry(point), options).unwrap();
        let prepared = prepare(&Files::new().unwrap(), &world.machine().probes).unwrap();
        let engine = SysEngine::new(runtime, Some(world));
        let probes = Probes::new(&engine, prepared).unwrap();
        let names: Vec<_> = probes.timed.iter().map(|event| &*event.name).collect();
        assert_eq!(names, ["early", "late"]);
        let turn = Turn::default();
        assert_eq!(probes.keep_time(&engine, &turn), 2);
        turn.end();
        assert_eq!(probes.keep_time(&engine, &turn), 0, "nobody is there");
    }
}
