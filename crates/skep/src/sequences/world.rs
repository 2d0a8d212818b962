//! What a host has in its hands while it goes through a case, and what it does next.
//!
//! Programs have the host do things in the middle of their runs, by a function of its own, on the same thread: so every
//! order of events is repeated by the case's number. The world is borrowed only between calls that run programs.

use super::case::{Action, Case, Load};
use super::fragments::ACT;
use super::guarded::Guarded;
use crate::context::Context;
use crate::{Error, Hook, Link, Map, MapArray, MapHash, MapOptions, Module, Object, Packet, Program};
use crate::{ProgramArray, RingBuffer, Runtime, UpdateFlags};
use skep_abi::Native;
use skep_interp::Reason;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// What programs may have the host do in one case.
const ACTS: u32 = 40;
/// Runs inside of runs.
const DEPTH: usize = 3;
/// Bytes that one map may take.
const MAP_MEMORY: u64 = 1 << 20;
const CPUS: u32 = 4;
/// Instructions that the verifier may walk for one program, in either runtime; most loads go into the first one. Few
/// accepted programs need more than a thousand. Those that are refused beyond that, mostly loops around a counter
/// without a bound, would take nearly all of the time.
const WALKED: [u64; 2] = [1_000, 4_000];
/// Instructions of a run in checking mode; programs that take more are not run.
const FUEL: u64 = 50_000;
/// Objects of clang's, with variables, and with programs that take more than the text here.
const EXAMPLES: &[&str] = &["flows", "balancer", "hello", "raw"];

/// The number of an object that means one of these.
pub(super) const EXAMPLE: u32 = u32::MAX;

/// How often what was tried came to something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) loaded: u64,
    pub(super) refused: u64,
    pub(super) done: u64,
    pub(super) not_done: u64,
    pub(super) runs: u64,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

struct World {
    runtimes: Rc<[Runtime; 2]>,
    /// With the lengths of the buffers that their programs are written for.
    objects: Rc<[(Object, u32)]>,
    examples: Rc<[Object]>,
    hooks: [Hook; 2],
    links: Vec<Arc<Link>>,
    modules: Vec<Module>,
    maps: Vec<Arc<Map>>,
    programs: Vec<Program>,
    during: Rc<[Option<Action>]>,
    /// What programs may still have the host do.
    acts: u32,
    counts: Counts,
    failure: Option<String>,
    depth: usize,
}

/// What cases share: two runtimes, and the objects of clang's.
pub(super) struct Ground {
    runtimes: Rc<[Runtime; 2]>,
    examples: Rc<[Object]>,
}

impl Ground {
    pub(super) fn new() -> Self {
        let runtime = |walked| {
            let builder =
                Runtime::builder().cpus(CPUS).map_memory(MAP_MEMORY).max_walked(walked).log(|_, _| ());
            builder.function(ACT, "act", act).build().expect("a runtime")
        };
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let open = |name: &&str| Object::open(format!("{folder}/{name}.bpf.o")).expect("an example");
        Self { runtimes: Rc::new(WALKED.map(runtime)), examples: EXAMPLES.iter().map(open).collect() }
    }

    /// Goes through a case; what failed, if anything did.
    pub(super) fn go_through(&self, case: &Case) -> (Counts, Result<(), String>) {
        let objects = case.subjects.iter().map(|subject| {
            let text = subject.text();
            let insns = skep_isa::assemble(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let bytes = skep_isa::encode_bytes(&insns).expect("what was assembled can be encoded");
            let maps = subject.maps.clone();
            let object = Object::from_bytecode_and_maps("main", subject.program_type, &bytes, maps);
            (object.expect("instructions"), subject.buffer)
        });
        let world = World {
            runtimes: Rc::clone(&self.runtimes),
            objects: objects.collect(),
            examples: Rc::clone(&self.examples),
            hooks: [self.runtimes[0].hook(), self.runtimes[1].hook()],
            links: Vec::new(),
            modules: Vec::new(),
            maps: Vec::new(),
            programs: Vec::new(),
            during: case.during.clone().into(),
            acts: ACTS,
            counts: Counts::default(),
            failure: None,
            depth: 0,
        };
        WORLD.set(Some(world));
        for (number, action) in case.actions.iter().enumerate() {
            if let Some(action) = action {
                perform(action);
            }
            if let Some(failure) = with(|world| world.failure.take()) {
                return (with(|world| world.counts), Err(format!("action {number}: {failure}")));
            }
        }
        let world = WORLD.take().expect("it was put there");
        (world.counts, Ok(()))
    }
}

/// The function by which programs have the host do something.
fn act(number: u32) -> u32 {
    let action = with(|world| {
        let left = world.acts.checked_sub(1)?;
        world.acts = left;
        pick(&world.during, number)?.clone()
    });
    if let Some(action) = action {
        perform(&action);
    }
    number
}

/// Uses the world. Nothing in `f` runs a program.
fn with<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| f(world.as_mut().expect("a case is gone through")))
}

/// One of several, modulo how many there are.
fn pick<T>(of: &[T], number: u32) -> Option<&T> {
    of.get((number as usize).checked_rem(of.len())?)
}

impl World {
    fn all_programs(&self) -> Vec<Program> {
        let loaded = self.modules.iter().flat_map(|module| module.programs());
        self.programs.iter().chain(loaded).cloned().collect()
    }

    fn all_maps(&self) -> Vec<Arc<Map>> {
        let loaded = self.modules.iter().flat_map(|module| module.maps());
        self.maps.iter().chain(loaded).cloned().collect()
    }

    fn program(&self, number: u32) -> Option<Program> {
        pick(&self.all_programs(), number).cloned()
    }

    fn map(&self, number: u32) -> Option<Arc<Map>> {
        pick(&self.all_maps(), number).cloned()
    }

    /// The handles that modules give of their maps, by a question that has an answer for some of them.
    fn handles<T>(&self, of: impl Fn(&Module, &str) -> Option<T>) -> Vec<T> {
        let of = &of;
        let named = |module| move |map: &Arc<Map>| of(module, map.name());
        self.modules.iter().flat_map(|module| module.maps().iter().filter_map(named(module))).collect()
    }

    fn outer(&self, number: u32) -> Option<Outer> {
        let array = |module: &Module, name: &str| module.map_array(name).cloned().map(Outer::Array);
        let hash = |module: &Module, name: &str| module.map_hash(name).cloned().map(Outer::Hash);
        let mut all = self.handles(|module, name| array(module, name).or_else(|| hash(module, name)));
        let at = (number as usize).checked_rem(all.len())?;
        Some(all.swap_remove(at))
    }

    /// A map to be put into `outer`: mostly one of the kind that it holds, if there is one.
    fn inner(&self, outer: &Map, number: u32) -> Option<Arc<Map>> {
        let wanted = outer.def().inner.as_deref().map(|template| template.kind);
        let mut maps = self.all_maps();
        if !number.is_multiple_of(8) && maps.iter().any(|map| Some(map.kind()) == wanted) {
            maps.retain(|map| Some(map.kind()) == wanted);
        }
        pick(&maps, number / 8).cloned()
    }

    fn array(&self, number: u32) -> Option<ProgramArray> {
        pick(&self.handles(|module, name| module.program_array(name).cloned()), number).cloned()
    }
}

enum Outer {
    Array(MapArray),
    Hash(MapHash),
}

impl Outer {
    fn map(&self) -> &Map {
        match self {
            Self::Array(array) => array.map(),
            Self::Hash(hash) => hash.map(),
        }
    }
}

/// Why something was not done.
enum Not {
    /// There is nothing to do it with.
    Here,
    Done(String),
}

impl<E: std::error::Error> From<E> for Not {
    fn from(error: E) -> Self {
        Self::Done(error.to_string())
    }
}

fn perform(action: &Action) {
    let result = try_to(action);
    with(|world| match result {
        Ok(()) => world.counts.done += 1,
        Err(Not::Here) => {}
        Err(Not::Done(error)) => {
            world.counts.not_done += 1;
            if error.is_empty() {
                world.failure = Some(format!("{action:?} fails without a reason"));
            }
        }
    });
}

fn try_to(action: &Action) -> Result<(), Not> {
    let map = |number: u32| with(|world| world.map(number)).ok_or(Not::Here);
    let program = |number: u32| with(|world| world.program(number)).ok_or(Not::Here);
    let runtimes = with(|world| Rc::clone(&world.runtimes));
    let hook = |number: u32| with(|world| world.hooks[number as usize % 2].clone());
    match action {
        Action::Load(how) => load(how)?,
        Action::Create { runtime, def } => {
            let options = MapOptions { cpus: CPUS, limit: MAP_MEMORY };
            let map = match runtime {
                Some(runtime) => Map::create_in(&runtimes[*runtime as usize % 2].memory(), def, &options)?,
                None => Map::create(def, &options)?,
            };
            with(|world| world.maps.push(Arc::new(map)));
        }
        Action::Run { program: number, byte } => run(&program(*number)?, *byte)?,
        Action::SetMap { outer, key, inner } => {
            let outer = with(|world| world.outer(*outer)).ok_or(Not::Here)?;
            let inner = with(|world| world.inner(outer.map(), *inner)).ok_or(Not::Here)?;
            drop(match &outer {
                Outer::Array(array) => array.set(*key, &inner)?,
                Outer::Hash(hash) => hash.set(&key_of(outer.map(), *key), &inner)?,
            });
        }
        Action::RemoveMap { outer, key } => {
            let outer = with(|world| world.outer(*outer)).ok_or(Not::Here)?;
            drop(match &outer {
                Outer::Array(array) => array.remove(*key)?,
                Outer::Hash(hash) => hash.remove(&key_of(outer.map(), *key))?,
            });
        }
        Action::SetProgram { array, index, program: number } => {
            let array = with(|world| world.array(*array)).ok_or(Not::Here)?;
            drop(array.set(*index, &program(*number)?)?);
        }
        Action::RemoveProgram { array, index } => {
            let array = with(|world| world.array(*array)).ok_or(Not::Here)?;
            drop(array.remove(*index)?);
        }
        Action::Update { map: number, key, byte, flags } => {
            let map = map(*number)?;
            let flags = UpdateFlags::from_number((*flags).into()).unwrap_or_default();
            map.update(&key_of(&map, *key), &vec![*byte; map.host_value_size()], flags)?;
        }
        Action::Delete { map: number, key } => {
            let map = map(*number)?;
            map.delete(&key_of(&map, *key))?;
        }
        Action::Read { map: number, key } => {
            let map = map(*number)?;
            let entries = map.entries().take(100).count();
            let _ = (entries, map.len(), map.memory(), map.stats(), map.is_frozen());
            map.next_key(Some(&key_of(&map, *key)))?;
            map.lookup_locked(&key_of(&map, *key))?;
            map.lookup(&key_of(&map, *key))?;
        }
        Action::Batch { map: number, what } => batch(&*map(*number)?, *what)?,
        Action::Queue { map: number, what, byte } => {
            let map = map(*number)?;
            match what % 4 {
                0 => drop(map.pop()?),
                1 => drop(map.peek()?),
                2 => drop(map.contains(&vec![*byte; map.host_value_size()])?),
                _ => map.push(&vec![*byte; map.host_value_size()], UpdateFlags::Any)?,
            }
            RingBuffer::new(&map)?.for_each(|_| ());
        }
        Action::Freeze { map: number } => map(*number)?.freeze().expect("nobody has mapped it"),
        Action::Attach { hook: number, program: of } => {
            let link = hook(*number).attach(&program(*of)?)?;
            with(|world| world.links.push(Arc::new(link)));
        }
        Action::Replace { link, program: of } => {
            let link = with(|world| pick(&world.links, *link).cloned()).ok_or(Not::Here)?;
            drop(link.replace(&program(*of)?)?);
        }
        Action::Detach { link } => drop(with(|world| take(&mut world.links, *link))),
        Action::RunHook { hook: number, byte } => run_hook(&hook(*number), *byte)?,
        Action::KeepMap { map: number } => {
            let map = map(*number)?;
            with(|world| world.maps.push(map));
        }
        Action::KeepProgram { program: number } => {
            let program = program(*number)?;
            with(|world| world.programs.push(program));
        }
        Action::DropModule { module } => drop(with(|world| take(&mut world.modules, *module))),
        Action::DropMap { map } => drop(with(|world| take(&mut world.maps, *map))),
        Action::DropProgram { program } => drop(with(|world| take(&mut world.programs, *program))),
        Action::Synchronize { runtime } => runtimes[*runtime as usize % 2].synchronize()?,
        Action::ReleaseCpu { runtime } => drop(runtimes[*runtime as usize % 2].release_cpu()),
    }
    Ok(())
}

fn take<T>(from: &mut Vec<T>, number: u32) -> Option<T> {
    let at = (number as usize).checked_rem(from.len())?;
    Some(from.swap_remove(at))
}

/// The bytes of a key; a byte too few for one number.
fn key_of(map: &Map, number: u32) -> Vec<u8> {
    let mut key = vec![0; map.def().key_size as usize];
    for (to, from) in key.iter_mut().zip(number.to_ne_bytes()) {
        *to = from;
    }
    if number == 99 {
        key.pop();
    }
    key
}

fn load(how: &Load) -> Result<(), Not> {
    let (runtimes, objects, examples) =
        with(|world| (Rc::clone(&world.runtimes), Rc::clone(&world.objects), Rc::clone(&world.examples)));
    let example = || Some((pick(&examples, how.entries.len() as u32 + how.runtime)?, 64));
    let (object, buffer) = match how.object {
        EXAMPLE => example(),
        number => pick(&objects, number).map(|(object, buffer)| (object, *buffer)),
    }
    .ok_or(Not::Here)?;
    let runtime = &runtimes[how.runtime as usize % 2];
    let mut linker = runtime.linker(object).buffer_len(how.buffer.unwrap_or(buffer)).sleepable(how.sleepable);
    if let Some(program_type) = how.program_type {
        linker = linker.program_type(program_type);
    }
    let name = |number: u32| pick(object.maps(), number).map(|def| def.name.clone());
    for (map, entries) in &how.entries {
        linker = linker.max_entries(&name(*map).ok_or(Not::Here)?, *entries);
    }
    for (map, given) in &how.given {
        if let (Some(name), Some(given)) = (name(*map), with(|world| world.map(*given))) {
            linker = linker.map(&name, given);
        }
    }
    if let (Some((number, bytes)), Some(elf)) = (&how.variable, object.elf()) {
        let names: Vec<&str> = elf.maps().iter().flat_map(|map| &map.variables).map(|of| &*of.name).collect();
        linker = linker.variable(pick(&names, *number).ok_or(Not::Here)?, bytes);
    }
    let loaded = linker.load();
    with(|world| match loaded {
        Ok(module) => {
            world.counts.loaded += 1;
            world.modules.push(module);
            Ok(())
        }
        Err(error) => {
            world.counts.refused += 1;
            if std::env::var_os("SKEP_SHOW_REFUSED").is_some() {
                println!("{error}");
            }
            Err(error.into())
        }
    })
}

fn batch(map: &Map, what: u8) -> Result<(), Not> {
    let key = |number| key_of(map, number);
    let pairs: Vec<(Vec<u8>, Vec<u8>)> =
        (0..4).map(|n| (key(n), vec![what; map.host_value_size()])).collect();
    let mut cursor = skep_maps::BatchCursor::default();
    match what % 4 {
        0 => drop(map.lookup_batch(&mut cursor, 3)?),
        1 => drop(map.lookup_and_delete_batch(&mut cursor, 3)?),
        2 => drop(map.delete_batch(&[key(0), key(1), key(7)])?),
        _ => drop(map.update_batch(pairs, UpdateFlags::Any)?),
    }
    drop(map.lookup_and_delete(&key(0))?);
    Ok(())
}

/// Runs a program in checking mode, and as machine code when that found nothing.
fn run(program: &Program, byte: u8) -> Result<(), Error> {
    let deep = with(|world| {
        world.depth += 1;
        world.depth > DEPTH
    });
    let result = match deep {
        true => Ok(()),
        false => run_here(program, byte),
    };
    with(|world| world.depth -= 1);
    result
}

fn run_here(program: &Program, byte: u8) -> Result<(), Error> {
    let mut packet = Packet::new(&[byte; 64]);
    match program.program_type().native {
        Some(Native::Struct | Native::Bytes) => return run_on_context(program),
        // Nothing here calls the members of tables, nor iterates.
        Some(Native::Arguments | Native::Iterator) => return program.run(&mut packet).map(drop),
        _ => {}
    }
    let mut room = Guarded::new(program.buffer_len());
    room.fill(byte);
    match program.run_checked(&mut packet, room.bytes(), FUEL)? {
        Ok(_) => {}
        Err(violation) if matches!(violation.reason, Reason::OutOfFuel { .. }) => return Ok(()),
        Err(violation) => return failed(format!("checking mode of {}: {violation}", program.name())),
    }
    if !room.is_whole() {
        return failed("a program that was tail-called in checking mode wrote before its buffer".into());
    }
    if with(|world| world.failure.is_some()) {
        return Ok(());
    }
    with(|world| world.counts.runs += 1);
    room.fill(byte);
    match program.buffer_len() {
        _ if program.program_type().context != skep_abi::Context::Buffer => {
            program.run(&mut Packet::new(&[byte; 64]))?;
        }
        _ => {
            program.run_raw(room.bytes())?;
        }
    }
    if !room.is_whole() {
        return failed("compiled code wrote before its buffer".into());
    }
    Ok(())
}

fn run_on_context(program: &Program) -> Result<(), Error> {
    match program.run_context_checked(&mut Context::of(program)?)? {
        Ok(_) => {}
        Err(violation) if matches!(violation.reason, Reason::OutOfFuel { .. }) => return Ok(()),
        Err(violation) => return failed(format!("checking mode of {}: {violation}", program.name())),
    }
    with(|world| world.counts.runs += 1);
    program.run_context(&mut Context::of(program)?).map(drop)
}

fn failed(failure: String) -> Result<(), Error> {
    with(|world| {
        world.failure.get_or_insert(failure);
    });
    Ok(())
}

fn run_hook(hook: &Hook, byte: u8) -> Result<(), Not> {
    let programs = hook.programs()?;
    if with(|world| world.depth) >= DEPTH || with(|world| world.failure.is_some()) {
        return Ok(());
    }
    with(|world| world.depth += 1);
    let on = |_: &Program, _: u64| ControlFlow::Continue(());
    let buffers =
        programs.first().is_some_and(|program| program.program_type().context == skep_abi::Context::Buffer);
    let len = programs.first().map_or(0, Program::buffer_len);
    let mut room = Guarded::new(len);
    room.fill(byte);
    let result = match buffers {
        true => hook.run_raw(room.bytes(), on),
        false => hook.run(&mut Packet::new(&[byte; 64]), on),
    };
    with(|world| world.depth -= 1);
    if !room.is_whole() {
        failed("a hook's program wrote before its buffer".into())?;
    }
    result?;
    Ok(())
}
