//! Runs the tests of tables by the kernel: `BPF_PROG_TEST_RUN`, through libbpf.
//!
//! ```text
//!   table --Fixture--> skep's maps --give--> the kernel's maps --run--> verdict, packet
//!                          ^                                     |
//!                          +--------------take-------------------+
//! ```
//!
//! So a table's values become bytes, and expectations are compared, by the same code as for skep's own runs. What a
//! test run of the kernel cannot do or show is a reason to skip the test: [`cannot`] names it.

use crate::fixture::{self, Fixture};
use crate::ran::Ran;
use crate::table::{Input, Step, Test};
use libbpf_rs::{MapCore, MapFlags, MapType, ObjectBuilder, PrintLevel, ProgramInput, RingBufferBuilder};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use skep::abi::{Context, MapKind, ProgramType};
use skep::{Event, Map, Object, UpdateFlags};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Room for the packet that a program leaves.
const ROOM: usize = 65_535 + 1_024;
/// Bytes of the shortest packet of a test run: an Ethernet header.
const LEAST: usize = 14;
/// Lines of libbpf's and the verifier's that are shown.
const LINES: usize = 30;
/// Metadata that a test run of Linux lets a test give and see: of programs over socket buffers.
const METADATA: [&str; 3] = ["mark", "priority", "tstamp"];

/// The context of programs over socket buffers.
const BUFFER: &str = "__sk_buff";

thread_local! {
    /// What libbpf said in this thread.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Why the kernel cannot run a test; `None` if it can.
pub(crate) fn cannot(test: &Test, object: &Object, kind: &ProgramType) -> Option<String> {
    if kind.number.is_none() {
        return Some("programs of this type are not Linux's".to_owned());
    }
    if test.world.is_some() {
        return Some("the kernel has no world".to_owned());
    }
    if test.clock.is_some() || test.steps.iter().any(|step| !step.after.is_zero()) {
        return Some("the kernel's clock cannot be set".to_owned());
    }
    if test.seed.is_some() {
        return Some("the kernel's random numbers have no seed".to_owned());
    }
    let is_buffer = matches!(kind.context, Context::Struct(layout) if layout.name == BUFFER);
    for step in &test.steps {
        match &step.input {
            Input::Context(_) => {
                return Some("a test run of the kernel has no fields of a context".to_owned());
            }
            Input::Packet(bytes) if bytes.len() < LEAST => {
                return Some(format!("the kernel runs no program on fewer than {LEAST} bytes"));
            }
            _ => {}
        }
        let expected = step.expect.iter().flat_map(|expect| &expect.metadata);
        for (name, _) in step.metadata.iter().chain(expected) {
            if !is_buffer || !METADATA.contains(&&**name) {
                return Some(format!("a test run of the kernel has no {name}"));
            }
        }
    }
    for expect in test.expectations() {
        if expect.printed.is_some() {
            return Some("printed lines go to the machine's trace".to_owned());
        }
        if expect.redirect.is_some() {
            return Some("a test run of the kernel does not tell where a packet goes".to_owned());
        }
        let samples = object.maps().iter().any(|map| map.kind == MapKind::PerfEventArray);
        if expect.events.is_some() && samples {
            return Some("samples of perf events are longer in the kernel's rings".to_owned());
        }
    }
    None
}

/// A test's object in the kernel.
pub(crate) struct Kernel {
    object: libbpf_rs::Object,
    program: String,
    kind: &'static ProgramType,
    /// The one processor on which this thread runs, so that a map has one value per CPU that counts.
    cpu: usize,
    before: CpuSet,
    rings: Option<libbpf_rs::RingBuffer<'static>>,
    events: Rc<RefCell<Vec<Event>>>,
}

impl Kernel {
    /// Loads the programs of a fixture into the kernel, with the same maps and elements.
    pub(crate) fn load(test: &Test, fixture: &Fixture, program: &str) -> Result<Self, String> {
        let wrong = |text: String| test.object.1.error(text).to_string();
        let kind = fixture.module.program(program).map(skep::Program::program_type);
        let kind = kind.ok_or_else(|| format!("no program {program}"))?;
        let object = open(test, fixture, &test.object.0).map_err(wrong)?;
        let before = sched_getaffinity(None).map_err(|error| error.to_string())?;
        let cpu = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).map_err(|error| format!("cannot stay on a processor: {error}"))?;
        let events = Rc::default();
        let mut kernel = Self { object, program: program.to_owned(), kind, cpu, before, rings: None, events };
        kernel.listen()?;
        kernel.give(test, fixture)?;
        Ok(kernel)
    }

    /// Runs a step in the kernel, and takes over what it left.
    pub(crate) fn step(&mut self, fixture: &Fixture, step: &Step) -> Result<Ran, String> {
        let mut ran = Ran::default();
        if matches!(step.input, Input::Nothing) {
            return Ok(ran);
        }
        for _ in 0..step.repeat {
            self.run(step, &mut ran).map_err(|text| format!("{}: {text}", self.program))?;
        }
        if let Some(rings) = &self.rings {
            rings.consume().map_err(|error| format!("a ring buffer: {error}"))?;
        }
        ran.events = self.events.take();
        ran.ran = true;
        ran.verdict = self.kind.verdict(ran.result);
        ran.names = self.kind.verdicts.iter().map(|(_, name)| *name).collect();
        self.take(fixture)?;
        Ok(ran)
    }

    fn run(&self, step: &Step, ran: &mut Ran) -> Result<(), String> {
        let program = self.object.progs_mut().find(|program| program.name() == &*self.program);
        let program = program.ok_or("libbpf does not know this program")?;
        let mut out = vec![0; ROOM];
        let refused = |error: libbpf_rs::Error| format!("the kernel refuses the test run: {error:#}");
        match &step.input {
            Input::Packet(bytes) => {
                let Context::Struct(layout) = self.kind.context else {
                    return Err("the kernel runs no such program on a packet".to_owned());
                };
                let is_buffer = layout.name == BUFFER;
                let mut context = vec![0; if is_buffer { layout.size as usize } else { 0 }];
                for (name, node) in &step.metadata {
                    let number = node.number().map_err(|error| error.to_string())?;
                    let place = place(layout, name).ok_or_else(|| format!("no field {name}"))?;
                    let len = place.len();
                    context[place].copy_from_slice(&number.to_ne_bytes()[..len]);
                }
                let mut after = vec![0; context.len()];
                let input = ProgramInput {
                    data_in: Some(bytes),
                    data_out: Some(&mut out),
                    context_in: is_buffer.then_some(&mut context),
                    context_out: is_buffer.then_some(&mut after),
                    ..ProgramInput::default()
                };
                let output = program.test_run(input).map_err(refused)?;
                ran.result = output.return_value.into();
                ran.before.clone_from(bytes);
                ran.after = output.data.map_or(Vec::new(), |data| data.to_vec());
                ran.is_packet = true;
                if is_buffer {
                    let number = |name| {
                        let bytes = place(layout, name).map_or(&[][..], |place| &after[place]);
                        bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
                    };
                    ran.info.mark = number("mark") as u32;
                    ran.info.priority = number("priority") as u32;
                    ran.info.tstamp = number("tstamp");
                }
            }
            Input::Buffer(bytes) => {
                let mut context = bytes.clone();
                let input = ProgramInput { context_in: Some(&mut context), ..ProgramInput::default() };
                ran.result = program.test_run(input).map_err(refused)?.return_value.into();
                (ran.before, ran.after) = (bytes.clone(), context);
            }
            Input::Context(_) | Input::Nothing => {}
        }
        Ok(())
    }

    /// Collects the records of ring buffers.
    fn listen(&mut self) -> Result<(), String> {
        let mut builder = RingBufferBuilder::new();
        let rings = self.object.maps().filter(|map| map.map_type() == MapType::RingBuf && map.autocreate());
        let rings: Vec<_> = rings.collect();
        for map in &rings {
            let (events, name) = (Rc::clone(&self.events), map.name().to_string_lossy().into_owned());
            let note = move |bytes: &[u8]| {
                events.borrow_mut().push(Event::new(&name, 0, bytes));
                0
            };
            builder.add(map, note).map_err(|error| error.to_string())?;
        }
        if !rings.is_empty() {
            self.rings = Some(builder.build().map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    /// The maps that both have.
    fn both<'a>(&'a self, fixture: &'a Fixture) -> impl Iterator<Item = (libbpf_rs::Map<'a>, &'a Arc<Map>)> {
        let ours = |map: &libbpf_rs::Map<'_>| fixture.module.maps().iter().find(|our| same(map.name(), our));
        self.object.maps().filter_map(move |map| ours(&map).map(|our| (map, our)))
    }

    /// Copies the elements of skep's maps to the kernel's.
    fn give(&self, test: &Test, fixture: &Fixture) -> Result<(), String> {
        for (map, our) in self.both(fixture).filter(|(_, our)| !our.name().starts_with('.')) {
            let put = |key: &[u8], value: &[u8]| {
                let done = match our.kind().is_per_cpu() {
                    true => self
                        .values(&map, value)
                        .and_then(|values| map.update_percpu(key, &values, MapFlags::ANY)),
                    false => map.update(key, value, MapFlags::ANY),
                };
                done.map_err(|error| format!("map {}: {error:#}", our.name()))
            };
            match our.kind() {
                MapKind::ProgArray | MapKind::ArrayOfMaps | MapKind::HashOfMaps => {
                    for (key, to) in fixture::references(&fixture.module, test, our)? {
                        let number = self.number(&to).ok_or_else(|| format!("the kernel has no {to}"))?;
                        put(&key, &number.to_ne_bytes())?;
                    }
                }
                MapKind::Queue | MapKind::Stack => {
                    for value in drained(our)? {
                        put(&[], &value)?;
                        our.push(&value, UpdateFlags::Any).map_err(|error| error.to_string())?;
                    }
                }
                kind if is_copied(kind) => {
                    let zero = |value: &[u8]| value.iter().all(|byte| *byte == 0);
                    for (key, value) in our.entries().filter(|(_, value)| !kind.is_array() || !zero(value)) {
                        put(&key, &value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Copies the elements of the kernel's maps to skep's.
    fn take(&self, fixture: &Fixture) -> Result<(), String> {
        for (map, our) in self.both(fixture).filter(|(_, our)| !our.is_frozen()) {
            let name = our.name();
            let wrong = |error: libbpf_rs::Error| format!("map {name}: {error:#}");
            let put = |key: &[u8], value: &[u8]| {
                our.update(key, value, UpdateFlags::Any).map_err(|error| format!("map {name}: {error}"))
            };
            match our.kind() {
                MapKind::Queue | MapKind::Stack => {
                    drained(our)?;
                    let mut values = Vec::new();
                    while let Some(value) = map.lookup_and_delete(&[]).map_err(wrong)? {
                        values.push(value);
                    }
                    // A stack gives its last element first.
                    if our.kind() == MapKind::Stack {
                        values.reverse();
                    }
                    for value in values {
                        our.push(&value, UpdateFlags::Any).map_err(|error| format!("map {name}: {error}"))?;
                        map.update(&[], &value, MapFlags::ANY).map_err(wrong)?;
                    }
                }
                kind if is_copied(kind) => {
                    if !kind.is_array() {
                        let keys: Vec<_> = our.entries().map(|(key, _)| key).collect();
                        keys.iter().try_for_each(|key| our.delete(key)).map_err(|error| error.to_string())?;
                    }
                    for key in map.keys() {
                        let value = match kind.is_per_cpu() {
                            true => map
                                .lookup_percpu(&key, MapFlags::ANY)
                                .map_err(wrong)?
                                .and_then(|values| values.into_iter().nth(self.cpu)),
                            false => map.lookup(&key, MapFlags::ANY).map_err(wrong)?,
                        };
                        let Some(mut value) = value else { continue };
                        // The section of variables may end in padding that only one of them has.
                        value.resize(our.host_value_size(), 0);
                        put(&key, &value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A value for each CPU of the machine: this one, and zeroes for the others.
    fn values(&self, map: &libbpf_rs::Map<'_>, value: &[u8]) -> libbpf_rs::Result<Vec<Vec<u8>>> {
        let size = map.value_size() as usize;
        let of = |cpu| if cpu == self.cpu { value[..size.min(value.len())].to_vec() } else { vec![0; size] };
        Ok((0..libbpf_rs::num_possible_cpus()?).map(of).collect())
    }

    /// The descriptor of a program or map.
    fn number(&self, name: &str) -> Option<i32> {
        let program = self.object.progs().find(|program| program.name() == name);
        let map = || self.object.maps().find(|map| map.name() == name);
        program
            .map(|program| program.as_fd().as_raw_fd())
            .or_else(|| map().map(|map| map.as_fd().as_raw_fd()))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The thread is the caller's. If this fails, it merely stays where it is.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Opens and loads an object with the variables, capacities and programs of a fixture.
fn open(test: &Test, fixture: &Fixture, path: &Path) -> Result<libbpf_rs::Object, String> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line| {
        SAID.with_borrow_mut(|said| said.extend(line.lines().map(str::to_owned)));
    })));
    SAID.take();
    let said = |error: libbpf_rs::Error| {
        let lines = SAID.take();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        let hint = match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => ": it takes root, or the capability CAP_BPF",
            _ => "",
        };
        format!("the kernel refuses the object{hint}: {error:#}\n{}", last.join("\n"))
    };
    let mut open = ObjectBuilder::default().open_file(path).map_err(said)?;
    let module = &fixture.module;
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let wanted = module.program(&name);
        program.set_autoload(wanted.is_some());
        if let (Some(wanted), Some(_)) = (wanted, &test.program_type) {
            let kind = wanted.program_type();
            program.set_prog_type(kind.number.unwrap_or(0).into());
            program.set_attach_type(kind.attach.unwrap_or(0).into());
        }
    }
    for mut map in open.maps_mut() {
        let our = module.maps().iter().find(|our| same(map.name(), our));
        let Some(our) = our else {
            // Programs that are not loaded may need maps that this kernel does not have.
            if !map.name().to_string_lossy().contains('.') {
                map.set_autocreate(false).map_err(said)?;
            }
            continue;
        };
        if test.max_entries.iter().any(|(name, _)| name == our.name()) {
            map.set_max_entries(our.def().max_entries).map_err(said)?;
        }
        if our.name().starts_with('.')
            && let Some(value) = map.initial_value_mut()
            && let Ok(Some(bytes)) = our.lookup(&0u32.to_ne_bytes())
        {
            let len = value.len().min(bytes.len());
            value[..len].copy_from_slice(&bytes[..len]);
        }
    }
    open.load().map_err(said)
}

/// Whether a map of libbpf's is one of skep's: those of variables have the object's name before the section's.
fn same(name: &std::ffi::OsStr, our: &Map) -> bool {
    let name = name.to_string_lossy();
    name == our.name() || (our.name().starts_with('.') && name.ends_with(our.name()))
}

/// Whether elements are bytes alone.
fn is_copied(kind: MapKind) -> bool {
    use MapKind::{Array, Hash, LpmTrie, LruHash, LruPercpuHash, PercpuArray, PercpuHash};
    matches!(kind, Hash | Array | LruHash | LpmTrie | PercpuHash | PercpuArray | LruPercpuHash)
}

/// Takes all values out of a queue or stack, in the order in which they were put in.
fn drained(map: &Map) -> Result<Vec<Vec<u8>>, String> {
    let mut values = Vec::new();
    while let Some(value) = map.pop().map_err(|error| error.to_string())? {
        values.push(value);
    }
    if map.kind() == MapKind::Stack {
        values.reverse();
    }
    Ok(values)
}

/// Where a field is in a context.
fn place(layout: &skep::abi::ContextLayout, name: &str) -> Option<std::ops::Range<usize>> {
    let field = layout.fields.iter().find(|field| field.name == name)?;
    let start = field.offset as usize;
    Some(start..start + field.size.bytes() as usize)
}
