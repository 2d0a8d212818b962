//! What a test has of its own: a world whose clock it moves, a runtime, a module with filled maps.

use crate::node::{Node, Value, unknown};
use crate::options::Options;
use crate::table::Test;
use serde_json::Value as Json;
use skep::abi::{MapKind, ProgramType};
use skep::world::file::Described;
use skep::world::{Clock, Machine, Random};
use skep::{Map, Module, Object, PerfReader, Runtime, World};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where the clock of a test begins, if it does not say.
const START: Duration = Duration::from_secs(1);
/// Room for samples of each array of perf events, in bytes.
const ROOM: u32 = 64 << 10;

/// Lines that programs printed.
pub(crate) type Lines = Arc<Mutex<Vec<String>>>;

/// The surroundings of a test.
pub(crate) struct Fixture {
    pub(crate) world: World,
    pub(crate) module: Module,
    pub(crate) lines: Lines,
    /// Arrays of perf events take samples only if somebody reads them.
    readers: Vec<PerfReader>,
}

/// A runtime with one virtual CPU, so that a map has one value per CPU.
pub(crate) fn runtime(world: &World, lines: &Lines, options: &Options) -> Result<Runtime, String> {
    let lines = Arc::clone(lines);
    let log =
        move |_: &str, line: &str| lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    let builder = Runtime::builder().cpus(1).world(world).log(log).coverage(options.coverage);
    let builder = match options.budget {
        Some(budget) => builder.budget(budget),
        None => builder,
    };
    builder.build().map_err(|error| error.to_string())
}

/// An empty machine with a clock that only the test moves, and numbers that follow from a seed.
pub(crate) fn plain_world() -> World {
    World::with(Machine::new(), Clock::stepped(START), Random::seeded(0))
}

impl Fixture {
    /// Loads a test's program for a buffer of that length.
    pub(crate) fn load(
        test: &Test,
        object: &Object,
        program: &str,
        buffer: u32,
        options: &Options,
    ) -> Result<Self, String> {
        let world = world(test)?;
        let lines = Lines::default();
        let runtime = runtime(&world, &lines, options)?;
        let mut linker = runtime.linker(object).only(program).buffer_len(buffer);
        if let Some(node) = &test.program_type {
            linker = linker.program_type(program_type(node)?);
        }
        for (name, node) in &test.max_entries {
            known_map(object, name, node)?;
            let entries = node.number().map_err(|error| error.to_string())?;
            let entries = u32::try_from(entries).map_err(|_| node.error("too many").to_string())?;
            linker = linker.max_entries(name, entries);
        }
        for (name, node) in &test.variables {
            known_variable(object, name, node)?;
            let shape =
                object.variable_json(name).map_err(|error| node.error(error.to_string()).to_string())?;
            let json = node.json().map_err(|error| error.to_string())?;
            let bytes =
                shape.from_json(name, &json).map_err(|error| node.error(error.to_string()).to_string())?;
            linker = linker.variable(name, &bytes);
        }
        for (name, node) in &test.maps {
            let def = known_map(object, name, node)?;
            if def.kind != MapKind::ProgArray {
                continue;
            }
            for element in node.list().map_err(|error| error.to_string())? {
                if let Some(Value::Text(other)) = element
                    .fields(&["key", "value"])
                    .ok()
                    .and_then(|fields| Some(&fields.named("value")?.value))
                    && object.programs().contains(&&**other)
                {
                    linker = linker.and(other);
                }
            }
        }
        let module = linker.load().map_err(|error| test.object.1.error(error.to_string()).to_string())?;
        for (name, node) in &test.maps {
            fill(&module, name, node)?;
        }
        let arrays = module.maps().iter().filter(|map| map.kind() == MapKind::PerfEventArray);
        let readers = arrays.map(|map| PerfReader::new(map, ROOM).map_err(|error| error.to_string()));
        let readers = readers.collect::<Result<_, _>>()?;
        Ok(Self { world, module, lines, readers })
    }

    /// Takes samples out of their buffers, so that there is room for more. Events of a run are in its outcome.
    pub(crate) fn drain(&mut self) {
        for reader in &mut self.readers {
            reader.for_each(|_, _| ());
        }
    }

    /// The number of lines that were printed so far.
    pub(crate) fn printed(&self) -> usize {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The lines that were printed since then.
    pub(crate) fn printed_since(&self, start: usize) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)[start..].to_vec()
    }
}

/// The world that a test describes: in a file, in the table, or none.
fn world(test: &Test) -> Result<World, String> {
    let (machine, mut clock, mut random) = match &test.world {
        None => (Machine::new(), Clock::stepped(START), Random::seeded(0)),
        Some(node) => {
            let (text, path) = match &node.value {
                Value::Text(file) => {
                    let path = node.source.path.parent().unwrap_or(Path::new("")).join(file);
                    let text = std::fs::read_to_string(&path).map_err(|error| {
                        node.error(format!("cannot read {}: {error}", path.display())).to_string()
                    })?;
                    (text, Some(path))
                }
                _ => (node.document().map_err(|error| error.to_string())?, None),
            };
            let Described { machine, clock, random, .. } = Described::parse(&text).map_err(|error| {
                let at = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
                node.error(format!("world: {at}{error}")).to_string()
            })?;
            let is_virtual = clock.is_virtual();
            let seeded = random.is_seeded();
            let clock = if is_virtual { clock } else { Clock::stepped(START) };
            (machine, clock, if seeded { random } else { Random::seeded(0) })
        }
    };
    if let Some(start) = test.clock {
        clock = Clock::stepped(start);
    }
    if let Some(seed) = test.seed {
        random = Random::seeded(seed);
    }
    Ok(World::with(machine, clock, random))
}

fn program_type(node: &Node) -> Result<&'static ProgramType, String> {
    let name = node.text().map_err(|error| error.to_string())?;
    ProgramType::from_name(name).ok_or_else(|| {
        let mut names: Vec<_> = skep::abi::TYPES.iter().map(|kind| kind.name).collect();
        names.dedup();
        node.error(unknown("program type", name, &names)).to_string()
    })
}

/// The definition of a map of the object.
fn known_map<'a>(object: &'a Object, name: &str, node: &Node) -> Result<&'a skep::abi::MapDef, String> {
    object.maps().iter().find(|def| def.name == name).ok_or_else(|| {
        let names: Vec<_> = object.maps().iter().map(|def| &*def.name).collect();
        node.error(unknown("map", name, &names)).to_string()
    })
}

fn known_variable(object: &Object, name: &str, node: &Node) -> Result<(), String> {
    let variables = object.variables();
    if variables.iter().any(|variable| variable.name == name) {
        return Ok(());
    }
    let names: Vec<_> = variables.iter().map(|variable| &*variable.name).collect();
    Err(node.error(unknown("variable", name, &names)).to_string())
}

/// The map of a module with this name.
pub(crate) fn map<'a>(module: &'a Module, name: &str, node: &Node) -> Result<&'a Arc<Map>, String> {
    module.map(name).ok_or_else(|| {
        let names: Vec<_> = module.maps().iter().map(|map| map.name()).collect();
        node.error(match module.unused_maps().iter().any(|map| map.name == name) {
            true => format!("the program does not use the map {name}, so it was not created"),
            false => unknown("map", name, &names),
        })
        .to_string()
    })
}

/// Puts elements into a map.
fn fill(module: &Module, name: &str, node: &Node) -> Result<(), String> {
    let map = map(module, name, node)?;
    if map.references().is_some() {
        return named(module, name, node)?.into_iter().try_for_each(|(element, at, key, to)| {
            let wrong = |text: String| element.error(format!("map {name}: {at}.value: {text}")).to_string();
            refer(module, map, &key, &to).map_err(wrong)
        });
    }
    let json = module.map_json(name).map_err(|error| node.error(error.to_string()).to_string())?;
    for (index, element) in node.list().map_err(|error| error.to_string())?.iter().enumerate() {
        let value = element.json().map_err(|error| error.to_string())?;
        let wrong = |text: String| element.error(format!("map {name}: {text}")).to_string();
        json.insert(&format!("[{index}]"), &value).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

/// The elements of a map of programs or maps that a table gives: the node, its place, the key, and the name of what
/// it holds.
type Named<'a> = (&'a Node, String, Vec<u8>, String);

fn named<'a>(module: &Module, name: &str, node: &'a Node) -> Result<Vec<Named<'a>>, String> {
    let json = module.map_json(name).map_err(|error| node.error(error.to_string()).to_string())?;
    let elements = node.list().map_err(|error| error.to_string())?.iter().enumerate();
    let of = |(index, element): (usize, &'a Node)| {
        let wrong = |text: String| element.error(format!("map {name}: {text}")).to_string();
        let at = format!("[{index}]");
        let value = element.json().map_err(|error| error.to_string())?;
        let key = value.get("key").ok_or_else(|| wrong(format!("{at} has no key")))?;
        let key = json.key_from_json(&format!("{at}.key"), key).map_err(|error| wrong(error.to_string()))?;
        let to = value.get("value").and_then(Json::as_str);
        let to = to.ok_or_else(|| wrong(format!("{at}.value: expected the name of a program or map")))?;
        Ok((element, at, key, to.to_owned()))
    };
    elements.map(of).collect()
}

/// What a test puts into a map of programs or maps: keys and names.
#[cfg(feature = "kernel")]
pub(crate) fn references(module: &Module, test: &Test, map: &Map) -> Result<Vec<(Vec<u8>, String)>, String> {
    let node = test.maps.iter().find(|(name, _)| name == map.name());
    let elements = node.map_or(Ok(Vec::new()), |(name, node)| named(module, name, node))?;
    Ok(elements.into_iter().map(|(_, _, key, to)| (key, to)).collect())
}

/// Puts a program or map into a map, by its name.
fn refer(module: &Module, map: &Map, key: &[u8], name: &str) -> Result<(), String> {
    let index = || key.try_into().map(u32::from_ne_bytes).map_err(|_| "the key is no index".to_owned());
    let inner = || module.map(name).ok_or_else(|| format!("the object has no map {name}"));
    let done = if let Some(array) = module.program_array(map.name()) {
        let program = module.program(name).ok_or_else(|| format!("the object has no program {name}"))?;
        array.set(index()?, program).map(drop)
    } else if let Some(array) = module.map_array(map.name()) {
        array.set(index()?, inner()?).map(drop)
    } else if let Some(table) = module.map_hash(map.name()) {
        table.set(key, inner()?).map(drop)
    } else {
        return Err(format!("what a {} holds has no name", map.kind()));
    };
    done.map_err(|error| error.to_string())
}
