//! What is expected, compared with what is there.
//!
//! Values are compared as JSON, by the object's types. The expectation is made bytes and JSON again first, so that
//! `80`, `"0x50"` and the name of an enumerator are the same value. Members of structures that the expectation leaves
//! out are not compared; elements of arrays that it leaves out are zero.

use crate::error::TableError;
use crate::fixture;
use crate::node::{Node, Value};
use crate::outcome::{Difference, What};
use serde_json::{Value as Json, json};
use skep::abi::MapKind;
use skep::json::{MapJson, Shape};
use skep::{Map, Module};
use std::collections::BTreeSet;

/// The most elements of a map that are looked at.
pub(crate) const LISTED: usize = 4096;

/// Collects the differences of a step.
pub(crate) struct Differences {
    pub(crate) step: usize,
    pub(crate) line: usize,
    pub(crate) found: Vec<Difference>,
}

impl Differences {
    pub(crate) fn add(&mut self, what: What) {
        self.found.push(Difference { step: self.step, line: self.line, what });
    }

    pub(crate) fn value(&mut self, of: String, expected: Option<Json>, found: Option<Json>) {
        self.add(What::Value { of, expected, found });
    }
}

/// Whether a value is as expected. `raw` is what the table says, `normal` the same as the types write it.
pub(crate) fn matches(raw: &Json, normal: &Json, found: &Json) -> bool {
    match (raw, normal, found) {
        (Json::Object(raw), Json::Object(normal), Json::Object(found)) => raw.iter().all(|(name, raw)| {
            let both = normal.get(name).zip(found.get(name));
            both.is_some_and(|(normal, found)| matches(raw, normal, found))
        }),
        (Json::Array(raw), Json::Array(normal), Json::Array(found)) => {
            normal.len() == found.len()
                && normal.iter().zip(found).enumerate().all(|(at, (normal, found))| match raw.get(at) {
                    Some(raw) => matches(raw, normal, found),
                    None => normal == found,
                })
        }
        _ => normal == found,
    }
}

/// Compares the bytes of a value with what a table says of it. `None` if they match, otherwise both as JSON.
pub(crate) fn value(
    shape: &Shape<'_>,
    name: &str,
    node: &Node,
    bytes: &[u8],
) -> Result<Option<(Json, Json)>, String> {
    let raw = node.json().map_err(|error| error.to_string())?;
    let made = shape.from_json(name, &raw).map_err(|error| node.error(error.to_string()).to_string())?;
    let (normal, found) = (shape.to_json(&made), shape.to_json(bytes));
    Ok((!matches(&raw, &normal, &found)).then(|| (only_given(&raw, &normal), found)))
}

/// What is expected, without the members that were left out.
fn only_given(raw: &Json, normal: &Json) -> Json {
    match (raw, normal) {
        (Json::Object(raw), Json::Object(normal)) => {
            let given = raw.iter().filter_map(|(name, raw)| Some((name, raw, normal.get(name)?)));
            Json::Object(given.map(|(name, raw, normal)| (name.clone(), only_given(raw, normal))).collect())
        }
        _ => normal.clone(),
    }
}

/// Compares a map with what a table says of it: a list of elements that it has, or a table with `has`, `only`, `absent`
/// and `len`.
pub(crate) fn map(module: &Module, name: &str, node: &Node, into: &mut Differences) -> Result<(), String> {
    let map = fixture::map(module, name, node)?;
    let json = module.map_json(name).map_err(|error| node.error(error.to_string()).to_string())?;
    let text = |error: TableError| error.to_string();
    if let Value::Array(elements) = &node.value {
        return has(map, &json, elements, into).map(drop);
    }
    let fields = node.fields(&["has", "only", "absent", "len"]).map_err(text)?;
    if let Some(elements) = fields.named("has") {
        has(map, &json, elements.list().map_err(text)?, into)?;
    }
    if let Some(elements) = fields.named("only") {
        let keys = has(map, &json, elements.list().map_err(text)?, into)?;
        for (key, bytes) in elements_of(map) {
            if !keys.contains(&key) {
                let element = json.element(&key, &bytes);
                into.value(
                    format!("map {name}, key {}", json.key().to_json(&key)),
                    None,
                    Some(shown(&element)),
                );
            }
        }
    }
    for key in fields.named("absent").map_or(Ok(&[][..]), Node::list).map_err(text)? {
        let bytes = json.key_from_json("key", &key.json().map_err(text)?);
        let bytes = bytes.map_err(|error| key.error(error.to_string()).to_string())?;
        let found = map.lookup(&bytes).map_err(|error| key.error(error.to_string()).to_string())?;
        if let Some(found) = found {
            let element = json.element(&bytes, &found);
            into.value(
                format!("map {name}, key {}", json.key().to_json(&bytes)),
                None,
                Some(shown(&element)),
            );
        }
    }
    if let Some(len) = fields.number("len").map_err(text)? {
        let found = if map.kind().is_array() { elements_of(map).len() as u64 } else { map.len().into() };
        if found != len {
            into.value(format!("map {name}, number of elements"), Some(len.into()), Some(found.into()));
        }
    }
    Ok(())
}

/// The elements of a map; of arrays those that are not zero.
pub(crate) fn elements_of(map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
    if map.references().is_some() || map.next_key(None).is_err() {
        return Vec::new();
    }
    let listed =
        |(_, value): &(Vec<u8>, Vec<u8>)| !map.kind().is_array() || value.iter().any(|byte| *byte != 0);
    map.entries().filter(listed).take(LISTED).collect()
}

/// An element's value.
fn shown(element: &Json) -> Json {
    element.get("value").or_else(|| element.get("values")).cloned().unwrap_or(Json::Null)
}

/// Compares elements with those of the map. Returns their keys.
fn has(
    map: &Map,
    json: &MapJson<'_>,
    elements: &[Node],
    into: &mut Differences,
) -> Result<BTreeSet<Vec<u8>>, String> {
    let name = map.name();
    let mut keys = BTreeSet::new();
    if matches!(map.kind(), MapKind::Queue | MapKind::Stack) {
        queue(map, json, elements, into)?;
        return Ok(keys);
    }
    for (index, node) in elements.iter().enumerate() {
        let wrong = |text: String| node.error(format!("map {name}: {text}")).to_string();
        let raw = node.json().map_err(|error| error.to_string())?;
        let at = format!("[{index}]");
        json.fields(&at, &raw).map_err(|error| wrong(error.to_string()))?;
        let key = raw.get("key").ok_or_else(|| wrong(format!("{at} has no key")))?;
        let key = json.key_from_json(&format!("{at}.key"), key).map_err(|error| wrong(error.to_string()))?;
        let found = map.lookup(&key).map_err(|error| wrong(error.to_string()))?;
        let of = format!("map {name}, key {}", json.key().to_json(&key));
        let values = match (raw.get("value"), raw.get("values")) {
            (Some(value), None) if map.kind().is_per_cpu() => json!([value]),
            (Some(value), None) => value.clone(),
            (None, Some(Json::Array(values))) => Json::Array(values.clone()),
            _ => return Err(wrong(format!("{at}: expected a value, or values of CPUs as a list"))),
        };
        let normal = |value: &Json| {
            let bytes = json.value_from_json(&format!("{at}.value"), value);
            bytes.map(|bytes| json.value().to_json(&bytes)).map_err(|error| wrong(error.to_string()))
        };
        let normal = match (&values, map.kind().is_per_cpu()) {
            (Json::Array(values), true) => values.iter().map(normal).collect::<Result<Vec<_>, _>>()?.into(),
            (value, _) => normal(value)?,
        };
        let found = found.map(|bytes| shown(&json.element(&key, &bytes)));
        keys.insert(key);
        if found.as_ref().is_none_or(|found| !matches(&values, &normal, found)) {
            into.value(of, Some(only_given(&values, &normal)), found);
        }
    }
    Ok(keys)
}

/// Takes all elements of a queue or stack and compares them, in the order in which they come.
fn queue(map: &Map, json: &MapJson<'_>, elements: &[Node], into: &mut Differences) -> Result<(), String> {
    let mut found = Vec::new();
    while let Ok(Some(bytes)) = map.pop() {
        found.push(bytes);
    }
    for (index, node) in elements.iter().enumerate() {
        let wrong = |text: String| node.error(format!("map {}: {text}", map.name())).to_string();
        let raw = node.json().map_err(|error| error.to_string())?;
        let raw = raw.get("value").ok_or_else(|| wrong(format!("[{index}] has no value")))?;
        let made = json.value_from_json(&format!("[{index}].value"), raw);
        let normal = json.value().to_json(&made.map_err(|error| wrong(error.to_string()))?);
        let there = found.get(index).map(|bytes| json.value().to_json(bytes));
        if there.as_ref().is_none_or(|there| !matches(raw, &normal, there)) {
            into.value(format!("map {}, element {index}", map.name()), Some(only_given(raw, &normal)), there);
        }
    }
    for (index, bytes) in found.iter().enumerate().skip(elements.len()) {
        into.value(format!("map {}, element {index}", map.name()), None, Some(json.value().to_json(bytes)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_left_out_are_not_compared_and_elements_are() {
        let (normal, found) = (json!({ "a": 80, "b": 0 }), json!({ "a": 80, "b": 7 }));
        assert!(matches(&json!({ "a": "0x50" }), &normal, &found));
        assert!(!matches(&json!({ "a": "0x50", "b": 0 }), &normal, &found));
        assert!(!matches(&json!([1]), &json!([1, 0]), &json!([1, 2])));
        assert!(matches(&json!([1]), &json!([1, 0]), &json!([1, 0])));
        assert_eq!(only_given(&json!({ "a": "0x50" }), &normal), json!({ "a": 80 }));
    }
}
