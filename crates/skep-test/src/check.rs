//! What a step has left, compared with what its table expects.

use crate::compare::{self, Differences};
use crate::error::TableError;
use crate::node::{Node, Value, unknown};
use crate::outcome::{SeenStep, What};
use crate::ran::{INFO, Ran, info_field};
use crate::table::{self, Expect};
use serde_json::{Value as Json, json};
use skep::json::Shape;
use skep::{Event, Module};

/// Compares what a step has left with what is expected.
pub(crate) fn check(
    module: &Module,
    expect: &Expect,
    ran: &Ran,
    seen: &mut SeenStep,
    into: &mut Differences,
) -> Result<(), String> {
    let text = |error: TableError| error.to_string();
    let mut count = into.found.len();
    let mut noted = |key: &'static str, into: &Differences, seen: &mut SeenStep| {
        if into.found.len() > count {
            seen.wrong.push(key);
        }
        count = into.found.len();
    };
    if let Some(node) = &expect.verdict {
        verdict(node, ran, into)?;
        noted("verdict", into, seen);
    }
    if let Some(bytes) = &expect.bytes {
        if *bytes != ran.after {
            match ran.is_packet {
                true => into.add(What::Packet { expected: bytes.clone(), found: ran.after.clone() }),
                false => into.value(
                    "buffer".to_owned(),
                    Some(digits(bytes).into()),
                    Some(digits(&ran.after).into()),
                ),
            }
        }
        noted(if ran.is_packet { "packet" } else { "buffer" }, into, seen);
    }
    if let Some(lines) = &expect.printed {
        let of = |at| format!("printed line {}", at + 1);
        differ_in_order(lines, &seen.printed, of, into);
        noted("printed", into, seen);
    }
    if let Some(expected) = &expect.events {
        events(module, expected, &ran.events, into)?;
        noted("events", into, seen);
    }
    if let Some(expected) = &expect.redirect {
        if ran.redirect.as_ref() != Some(expected) {
            let found = ran.redirect.clone().map(Json::from);
            into.value("redirection".to_owned(), Some(expected.clone().into()), found);
        }
        noted("redirect", into, seen);
    }
    for (name, node) in &expect.metadata {
        let expected = node.number().map_err(text)?;
        let mut info = ran.info;
        let found = match (&ran.context, &**name) {
            (Some(context), name) => {
                context.field(name).map_err(|error| node.error(error.to_string()).to_string())?
            }
            (None, "tstamp") => info.tstamp,
            (None, name) => match info_field(&mut info, name) {
                Some(field) => (*field).into(),
                None => return Err(node.error(unknown("metadata", name, &INFO)).to_string()),
            },
        };
        if found != expected {
            into.value(name.clone(), Some(expected.into()), Some(found.into()));
        }
    }
    noted("metadata", into, seen);
    for (name, node) in &expect.variables {
        let shape = module.variable_json(name).map_err(|error| node.error(error.to_string()).to_string())?;
        let bytes = module.variable(name).map_err(|error| node.error(error.to_string()).to_string())?;
        seen.variables.push((name.clone(), shape.to_json(&bytes)));
        if let Some((expected, found)) = compare::value(&shape, name, node, &bytes)? {
            into.value(format!("variable {name}"), Some(expected), Some(found));
        }
    }
    noted("variables", into, seen);
    for (name, node) in &expect.maps {
        let before = into.found.len();
        compare::map(module, name, node, into)?;
        if into.found.len() > before {
            seen.wrong_maps.push(name.clone());
        }
    }
    Ok(())
}

fn verdict(node: &Node, ran: &Ran, into: &mut Differences) -> Result<(), String> {
    let found = ran.verdict.map_or_else(|| (ran.result as u32 as i32).to_string(), str::to_owned);
    let same = match &node.value {
        Value::Text(name) if name.starts_with("0x") => {
            node.number().map_err(|error| error.to_string())? == ran.result
        }
        Value::Text(name) => {
            if !ran.names.contains(&&**name) {
                return Err(node.error(unknown("verdict", name, &ran.names)).to_string());
            }
            ran.verdict == Some(name)
        }
        Value::Integer(number) => {
            i64::from(ran.result as u32 as i32) == *number || ran.result.cast_signed() == *number
        }
        _ => return Err(node.error("expected the name of a verdict, or a number").to_string()),
    };
    if !same || !ran.ran {
        let found = if ran.ran { found } else { "no run".to_owned() };
        into.add(What::Verdict { expected: node.plain(), found });
    }
    Ok(())
}

fn differ_in_order(
    expected: &[String],
    found: &[String],
    of: impl Fn(usize) -> String,
    into: &mut Differences,
) {
    for at in 0..expected.len().max(found.len()) {
        let (expected, found) = (expected.get(at), found.get(at));
        if expected != found {
            into.value(of(at), expected.cloned().map(Json::from), found.cloned().map(Json::from));
        }
    }
}

/// Compares events one by one.
fn events(module: &Module, expected: &[Node], found: &[Event], into: &mut Differences) -> Result<(), String> {
    let text = |error: TableError| error.to_string();
    for at in 0..expected.len().max(found.len()) {
        let of = format!("event {}", at + 1);
        let (Some(node), event) = (expected.get(at), found.get(at)) else {
            into.value(of, None, found.get(at).map(raw_event));
            continue;
        };
        let fields = node.fields(&["map", "type", "value", "hex", "packet"]).map_err(text)?;
        let Some(event) = event else {
            into.value(of, Some(node.json().map_err(text)?), None);
            continue;
        };
        if let Some(map) = fields.text("map").map_err(text)?
            && map != event.map
        {
            into.value(format!("{of}, map"), Some(map.into()), Some(event.map.clone().into()));
        }
        if let Some(hex) = fields.named("hex") {
            let bytes = table::hex(hex).map_err(text)?;
            if bytes != event.bytes {
                into.value(of.clone(), Some(digits(&bytes).into()), Some(digits(&event.bytes).into()));
            }
        }
        if let Some(packet) = fields.named("packet") {
            let bytes = table::packet(packet).map_err(text)?;
            if bytes != event.bytes {
                into.add(What::Packet { expected: bytes, found: event.bytes.clone() });
            }
        }
        if let Some(value) = fields.named("value") {
            let shape = event_shape(module, fields.named("type"), &event.bytes)?;
            let bytes = event.bytes.get(..shape.size()).unwrap_or(&event.bytes);
            if let Some((expected, found)) = compare::value(&shape, &of, value, bytes)? {
                into.value(of, Some(expected), Some(found));
            }
        }
    }
    Ok(())
}

/// How the bytes of an event are read: by the type that is named, whose size may be less.
fn event_shape<'a>(module: &'a Module, name: Option<&Node>, bytes: &[u8]) -> Result<Shape<'a>, String> {
    let Some(node) = name else { return Ok(Shape::new(module.types(), None, bytes.len())) };
    let name = node.text().map_err(|error| error.to_string())?;
    let types = module.types();
    let ids = || {
        let types = types?;
        let own = types.own_types().map(|ty| ty.id);
        own.filter_map(|id| Some((id, types.type_name(id).ok()?))).find(|(_, known)| known == name)
    };
    let (types, (id, _)) = types.zip(ids()).ok_or_else(|| {
        node.error(format!("the object has no type {name:?}: expected one like \"struct event\"")).to_string()
    })?;
    let size = types.size(id).map_err(|error| node.error(error.to_string()).to_string())? as usize;
    if size > bytes.len() {
        let text = format!("{name} has {size} bytes, and the event {}", bytes.len());
        return Err(node.error(text).to_string());
    }
    Ok(Shape::new(Some(types), Some(id), size))
}

pub(crate) fn raw_event(event: &Event) -> Json {
    json!({ "map": event.map, "hex": digits(&event.bytes) })
}

pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
