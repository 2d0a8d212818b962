//! Bytes as JSON and back, by their type in the object (BTF).
//!
//! ```text
//!   struct { __u16 port; char name[6]; }   50 00 65 74 68 30 00 00   <->   { "port": 80, "name": "eth0" }
//! ```
//!
//! The invariant: what [`Shape::to_json`] makes of bytes, [`Shape::from_json`] makes the same bytes of. Where a type
//! cannot say it (padding that is not zero, text that is none, a `bool` that is 2), the bytes themselves stand there:
//! `["0x50", "0x00"]`.
//!
//! Numbers beyond 2^53, of which many readers of JSON lose digits, are decimal strings. Members that are not given are
//! zero.
//!
//! ```
//! use serde_json::json;
//! # use skep::{Object, Runtime};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/objects/typed/typed.bpf.o");
//! # let module = Runtime::new()?.load(&Object::open(path)?)?;
//! let flows = module.map_json("flows")?;
//! let key = json!({ "source": 1, "port": 80, "protocol": 6, "local": false });
//! flows.insert("element", &json!({ "key": key, "value": { "state": "STATE_OPEN", "name": "eth0" } }))?;
//! assert_eq!(flows.to_json()[0]["value"]["state"], "STATE_OPEN");
//!
//! let error = flows.value_from_json("value", &json!({ "directions": [{ "packets": -1 }] })).unwrap_err();
//! assert!(error.to_string().starts_with("value.directions[0].packets: -1 does not fit"));
//! # Ok(())
//! # }
//! ```

mod shape;
mod writer;

pub use shape::{Shape, number};

use crate::error::Error;
use crate::module::Module;
use crate::object::Object;
use serde_json::{Map as Fields, Value, json};
use skep_abi::MapKind;
use skep_btf::Btf;
use skep_maps::{Map, UpdateFlags};
use std::fmt;
use std::sync::Arc;

/// Why a JSON value cannot be the bytes: where in it, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The place: `value.directions[0].packets`.
    pub path: String,
    /// What was expected there, and what was found.
    pub text: String,
    /// What it is about.
    pub kind: MismatchKind,
}

/// What a [`Mismatch`] is about: languages with exceptions have one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MismatchKind {
    /// The value is of another JSON type: text where a number belongs.
    Type,
    /// The number does not fit.
    Range,
    /// Anything else: unknown members, too many elements, a map that is full.
    Other,
}

/// The elements of a map as JSON: [`Module::map_json`].
#[derive(Clone, Debug)]
pub struct MapJson<'a> {
    map: Arc<Map>,
    key: Shape<'a>,
    value: Shape<'a>,
}

/// Data as JSON.
impl Module {
    /// A map's elements as JSON, by the object's types.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`].
    pub fn map_json(&self, name: &str) -> Result<MapJson<'_>, Error> {
        let map = self.map_named(name)?;
        let (key, value) = self.map_types(name)?;
        let def = map.def();
        Ok(MapJson {
            key: Shape::new(self.types(), key, def.key_size as usize),
            value: Shape::new(self.types(), value, def.value_size as usize),
            map,
        })
    }

    /// How the bytes of a variable are read.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`].
    pub fn variable_json(&self, name: &str) -> Result<Shape<'_>, Error> {
        Ok(variable_shape(self.types(), name, self.variable_named(name)?.size))
    }
}

/// Data as JSON.
impl Object {
    /// How the bytes of a variable are read: what a load sets it to ([`Linker::variable`](crate::Linker::variable)).
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`].
    pub fn variable_json(&self, name: &str) -> Result<Shape<'_>, Error> {
        let variables = self.variables();
        match variables.iter().find(|variable| variable.name == name) {
            Some(variable) => Ok(variable_shape(self.types().map(|types| &**types), name, variable.size)),
            None => {
                let known = variables.into_iter().map(|variable| variable.name).collect();
                Err(Error::Unknown { what: "variable", name: name.to_owned(), known })
            }
        }
    }
}

fn variable_shape<'a>(types: Option<&'a Btf>, name: &str, size: usize) -> Shape<'a> {
    Shape::new(types, types.and_then(|btf| btf.variable(name)), size)
}

impl<'a> MapJson<'a> {
    /// The map.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// How keys are read.
    pub fn key(&self) -> &Shape<'a> {
        &self.key
    }

    /// How values are read; for per-CPU kinds, that of one CPU.
    pub fn value(&self) -> &Shape<'a> {
        &self.value
    }

    /// The bytes of a key. `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`Mismatch`].
    pub fn key_from_json(&self, name: &str, key: &Value) -> Result<Vec<u8>, Mismatch> {
        self.key.from_json(name, key)
    }

    /// The bytes of a value, for per-CPU kinds that of one CPU. `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`Mismatch`].
    pub fn value_from_json(&self, name: &str, value: &Value) -> Result<Vec<u8>, Mismatch> {
        self.value.from_json(name, value)
    }

    /// An element, by the bytes that the map has: `{"key": ..., "value": ...}`, for per-CPU kinds
    /// `{"key": ..., "values": [...]}`.
    pub fn element(&self, key: &[u8], value: &[u8]) -> Value {
        let key = self.key.to_json(key);
        if !self.map.kind().is_per_cpu() {
            return json!({ "key": key, "value": self.value.to_json(value) });
        }
        let of_cpus = value.chunks_exact(self.padded());
        let of_cpus = of_cpus.map(|value| self.value.to_json(&value[..self.value.size()]));
        json!({ "key": key, "values": of_cpus.collect::<Value>() })
    }

    /// All elements, as a list. Empty for kinds whose elements have no keys, or are programs or maps.
    pub fn to_json(&self) -> Value {
        self.map.entries().map(|(key, value)| self.element(&key, &value)).collect()
    }

    /// Adds or replaces an element, as [`element`](Self::element) writes it. For per-CPU kinds, `value` instead of
    /// `values` sets those of all CPUs. Elements of queues, stacks and bloom filters have no key. Returns the bytes of
    /// the key, if there is one. `at` is what errors call the element.
    ///
    /// # Errors
    ///
    /// [`Mismatch`]; errors of the map as its text.
    pub fn insert(&self, at: &str, element: &Value) -> Result<Option<Vec<u8>>, Mismatch> {
        let def = self.map.def();
        let has_key = !matches!(def.kind, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter);
        let failed = |error: skep_maps::MapError| Mismatch::new(at, error.to_string());
        let fields = self.fields(at, element)?;
        let field = |name: &str| fields.get(name).ok_or_else(|| Mismatch::new(at, format!("has no {name}")));
        let shared = || self.value_from_json(&format!("{at}.value"), field("value")?);
        if !has_key {
            self.map.push(&shared()?, UpdateFlags::Any).map_err(failed)?;
            return Ok(None);
        }
        let key = self.key_from_json(&format!("{at}.key"), field("key")?)?;
        let value = if def.kind.is_per_cpu() { self.per_cpu(at, fields)? } else { shared()? };
        self.map.update(&key, &value, UpdateFlags::Any).map_err(failed)?;
        Ok(Some(key))
    }

    /// The fields of an element, if the kind has them all.
    ///
    /// # Errors
    ///
    /// [`Mismatch`].
    pub fn fields<'v>(&self, at: &str, element: &'v Value) -> Result<&'v Fields<String, Value>, Mismatch> {
        let def = self.map.def();
        let has_key = !matches!(def.kind, MapKind::Queue | MapKind::Stack | MapKind::BloomFilter);
        if has_key && def.key_size == 0 {
            let text = format!("map {} is a {}, which takes no elements from the host", def.name, def.kind);
            return Err(Mismatch::new(at, text));
        }
        let Some(fields) = element.as_object() else {
            let key = if has_key { "\"key\": ..., " } else { "" };
            return Err(Mismatch::new(at, format!("expected an object: {{{key}\"value\": ...}}")));
        };
        let allowed = |name: &str| match name {
            "key" => has_key,
            "values" => def.kind.is_per_cpu(),
            name => name == "value",
        };
        match fields.keys().find(|name| !allowed(name)) {
            Some(stranger) => {
                Err(Mismatch::new(at, format!("elements of a {} have no field {stranger}", def.kind)))
            }
            None => Ok(fields),
        }
    }

    /// The values of all CPUs, each padded to eight bytes.
    fn per_cpu(&self, at: &str, fields: &Fields<String, Value>) -> Result<Vec<u8>, Mismatch> {
        let padded = self.padded();
        let cpus = self.map.host_value_size() / padded;
        let mut all = vec![0; self.map.host_value_size()];
        match (fields.get("value"), fields.get("values")) {
            (Some(value), None) => {
                let value = self.value.from_json(&format!("{at}.value"), value)?;
                all.chunks_exact_mut(padded).for_each(|slot| slot[..value.len()].copy_from_slice(&value));
            }
            (None, Some(Value::Array(values))) if values.len() <= cpus => {
                for (cpu, (value, slot)) in values.iter().zip(all.chunks_exact_mut(padded)).enumerate() {
                    let value = self.value.from_json(&format!("{at}.values[{cpu}]"), value)?;
                    slot[..value.len()].copy_from_slice(&value);
                }
            }
            (None, Some(Value::Array(values))) => {
                let text = format!("has {} values, but there are {cpus} CPUs", values.len());
                return Err(Mismatch::new(&format!("{at}.values"), text));
            }
            (None, Some(_)) => {
                let text = "expected a list with a value for each CPU".to_owned();
                return Err(Mismatch::new(&format!("{at}.values"), text));
            }
            (Some(_), Some(_)) => {
                return Err(Mismatch::new(
                    at,
                    "give value, for all CPUs, or values, but not both".to_owned(),
                ));
            }
            (None, None) => {
                return Err(Mismatch::new(at, "has no value, for all CPUs, and no values".to_owned()));
            }
        }
        Ok(all)
    }

    fn padded(&self) -> usize {
        self.value.size().next_multiple_of(8).max(8)
    }
}

impl Mismatch {
    fn new(path: &str, text: String) -> Self {
        Self { path: path.to_owned(), text, kind: MismatchKind::Other }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl std::error::Error for Mismatch {}
