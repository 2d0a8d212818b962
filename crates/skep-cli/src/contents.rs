//! The contents of maps as JSON: `--map MAP=FILE` fills a map before the run, and `--json` prints what can be given.
//!
//! ```text
//!   [ { "key": { "port": 80 }, "value": 7 },              hash tables, arrays, tries, targets of redirections
//!     { "key": 3, "values": [1, 2] },                      a value for each CPU; "value" sets all of them
//!     { "value": "text" },                                 queues, stacks, bloom filters
//!     { "key": 0, "value": "name of a program or map" } ]  arrays of programs, maps of maps
//! ```
//!
//! A file holds this list, or the JSON report of a map or of a whole run, in which the map's list is found.

use crate::failure::Failure;
use serde_json::Value;
use skep::abi::{MapDef, MapKind};
pub(crate) use skep::json::number;
use skep::{Linker, Map, Module, Object};
use std::collections::HashMap;

/// The most elements that are listed of a map, and the most bytes of their keys and values.
const LISTED: usize = 4096;
const LISTED_BYTES: usize = 1 << 20;

/// What `--map` asks for.
pub(crate) struct Contents {
    maps: Vec<Given>,
}

/// The elements for one map.
struct Given {
    map: String,
    file: String,
    elements: Vec<Value>,
}

impl Contents {
    /// Reads the files.
    pub(crate) fn read(options: &[String], object: &Object) -> Result<Self, Failure> {
        let maps = options.iter().map(|option| Given::read(option, object)).collect::<Result<_, _>>()?;
        Ok(Self { maps })
    }

    /// Lets a load create the maps and load the programs that are to be put into maps.
    pub(crate) fn prepare<'a>(&self, object: &Object, mut linker: Linker<'a>) -> Linker<'a> {
        for given in &self.maps {
            let Some(kind) = given.def(object).map(|def| def.kind) else { continue };
            for name in given.elements.iter().filter_map(|element| element.get("value")?.as_str()) {
                if kind == MapKind::ProgArray && object.programs().contains(&name) {
                    linker = linker.and(name);
                } else if kind.holds_maps()
                    && let Some(inner) = object.maps().iter().find(|def| def.name == name)
                {
                    linker = linker.max_entries(name, inner.max_entries);
                }
            }
        }
        linker
    }

    /// Fills the maps.
    pub(crate) fn fill(&self, module: &Module) -> Result<(), Failure> {
        self.maps.iter().try_for_each(|given| given.fill(module))
    }
}

impl Given {
    fn read(option: &str, object: &Object) -> Result<Self, Failure> {
        let usage = |text: String| Failure::Usage(format!("--map {option}: {text}"));
        let (map, file) = option.split_once('=').ok_or_else(|| usage("expected MAP=FILE".to_owned()))?;
        let Some(index) = object.maps().iter().position(|def| def.name == map) else {
            let known: Vec<_> = object.maps().iter().map(|def| &*def.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(usage(format!("unknown map {map}; there are {known}")));
        };
        if object.variables().iter().any(|variable| variable.map == index) {
            return Err(usage(format!("map {map} holds global variables: set them with --set")));
        }
        let refused = |text: String| Failure::Refused(format!("{file}: {text}"));
        let text = std::fs::read(file).map_err(|error| refused(format!("cannot be read: {error}")))?;
        let document =
            serde_json::from_slice(&text).map_err(|error| refused(format!("is no JSON: {error}")))?;
        let elements = list_in(document, map).map_err(refused)?;
        Ok(Self { map: map.to_owned(), file: file.to_owned(), elements })
    }

    fn def<'a>(&self, object: &'a Object) -> Option<&'a MapDef> {
        object.maps().iter().find(|def| def.name == self.map)
    }

    fn fill(&self, module: &Module) -> Result<(), Failure> {
        let Some(map) = module.map(&self.map) else {
            return Err(Failure::Refused(format!(
                "--map {}={}: the program does not use this map, so it was not created",
                self.map, self.file
            )));
        };
        let mut seen: HashMap<Vec<u8>, usize> = HashMap::new();
        for (index, element) in self.elements.iter().enumerate() {
            let at = format!("[{index}]");
            let filled = put(module, map, &at, element).and_then(|key| match key {
                Some(key) => match seen.insert(key, index) {
                    Some(first) => Err(format!("{at}.key: element [{first}] has the same key")),
                    None => Ok(()),
                },
                None => Ok(()),
            });
            filled.map_err(|text| Failure::Refused(format!("{}: {text}", self.file)))?;
        }
        Ok(())
    }
}

/// The list of a map's elements in a document.
fn list_in(document: Value, map: &str) -> Result<Vec<Value>, String> {
    match document {
        Value::Array(elements) => Ok(elements),
        Value::Object(mut fields) => {
            if let Some(Value::Array(maps)) = fields.remove("maps") {
                let found = maps.into_iter().find(|found| found["name"] == map);
                return list_in(found.ok_or_else(|| format!("the report has no map {map}"))?, map);
            }
            match (fields.remove("contents"), fields.get("complete")) {
                (Some(Value::Array(elements)), None | Some(Value::Bool(true))) => Ok(elements),
                (Some(_), _) => Err(format!(
                    "the report has only the first {LISTED} elements of the map, or {LISTED_BYTES} bytes of them"
                )),
                (None, _) => {
                    Err("expected a list of elements, or a report with the field contents".to_owned())
                }
            }
        }
        _ => Err("expected a list of elements: [{\"key\": ..., \"value\": ...}, ...]".to_owned()),
    }
}

/// Puts an element into a map. Returns its key, if it has one.
fn put(module: &Module, map: &Map, at: &str, element: &Value) -> Result<Option<Vec<u8>>, String> {
    let json = module.map_json(map.name()).map_err(|error| error.to_string())?;
    if map.references().is_none() {
        return json.insert(at, element).map_err(|error| error.to_string());
    }
    let fields = json.fields(at, element).map_err(|error| error.to_string())?;
    let field = |name: &str| fields.get(name).ok_or_else(|| format!("{at}: has no {name}"));
    let key = json.key_from_json(&format!("{at}.key"), field("key")?).map_err(|error| error.to_string())?;
    let name = field("value")?.as_str();
    let name = name.ok_or_else(|| format!("{at}.value: expected the name of a program or map"))?;
    refer(module, map, &key, name).map_err(|text| format!("{at}.value: {text}"))?;
    Ok(Some(key))
}

/// Puts a program or map into a map, by its name.
fn refer(module: &Module, map: &Map, key: &[u8], name: &str) -> Result<(), String> {
    let explain = |error: skep::Error| error.to_string();
    let index = || key.try_into().map(u32::from_ne_bytes).map_err(|_| "the key is no index".to_owned());
    if let Some(array) = module.program_array(map.name()) {
        let program = module.program(name).ok_or_else(|| format!("the object has no program {name}"))?;
        return array.set(index()?, program).map(drop).map_err(explain);
    }
    let inner = || module.map(name).ok_or_else(|| format!("the object has no map {name}"));
    if let Some(array) = module.map_array(map.name()) {
        return array.set(index()?, inner()?).map(drop).map_err(explain);
    }
    if let Some(table) = module.map_hash(map.name()) {
        return table.set(key, inner()?).map(drop).map_err(explain);
    }
    Err(format!("what a {} holds has no name", map.kind()))
}

/// A map's elements as `--map` takes them, and whether that is all of them. Elements of arrays that are zero are left
/// out. `None` for kinds whose elements the host does not read.
pub(crate) fn list(module: &Module, map: &Map) -> Option<(Vec<Value>, bool)> {
    let def = map.def();
    let json = module.map_json(&def.name).ok()?;
    if map.references().is_some() {
        let named = |key: &[u8], name: Option<String>| {
            Some(serde_json::json!({ "key": json.key().to_json(key), "value": name? }))
        };
        let all: Vec<Value> = if let Some(array) = module.program_array(&def.name) {
            let name = |index| array.get(index).map(|program| program.name().to_owned());
            (0..array.len()).filter_map(|index| named(&index.to_ne_bytes(), name(index))).collect()
        } else if let Some(array) = module.map_array(&def.name) {
            let name = |index| array.get(index).map(|map| map.name().to_owned());
            (0..array.len()).filter_map(|index| named(&index.to_ne_bytes(), name(index))).collect()
        } else {
            let table = module.map_hash(&def.name)?;
            let name = |key: &[u8]| table.get(key).map(|map| map.name().to_owned());
            table.keys().iter().filter_map(|key| named(key, name(key))).collect()
        };
        let complete = all.len() <= LISTED;
        return Some((all.into_iter().take(LISTED).collect(), complete));
    }
    // Of kinds without keys or elements for the host there is nothing to list.
    map.next_key(None).ok()?;
    let most = LISTED.min(LISTED_BYTES / (def.key_size as usize + map.host_value_size()).max(1));
    let is_listed = |value: &[u8]| !def.kind.is_array() || value.iter().any(|byte| *byte != 0);
    let mut all = Vec::new();
    for (key, value) in map.entries().filter(|(_, value)| is_listed(value)) {
        if all.len() == most {
            return Some((all, false));
        }
        all.push(json.element(&key, &value));
    }
    Some((all, true))
}

/// Serializes a number so that no reader loses digits of it.
pub(crate) fn lossless<S: serde::Serializer>(n: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&number(*n), serializer)
}
