//! What a world's file says of probes.
//!
//! ```toml
//! [[probes.function]]
//! name = "tcp_connect"
//!
//! [[probes.tracepoint]]
//! group = "sock"
//! name = "inet_sock_set_state"
//! fields = ["int oldstate", "int newstate"]
//!
//! [[probes.binary]]
//! path = "/usr/bin/true"
//!
//! [[probes.event]]
//! name = "connect"
//! function = "tcp_connect"
//! arguments = ["0xffff888000001000"]
//! result = 0
//! after = "10ms"
//!
//! [[probes.event]]
//! name = "established"
//! tracepoint = "sock/inet_sock_set_state"
//! values = { oldstate = 2, newstate = 1 }
//! ```

use super::{Address, FileError, Span};
use crate::{Event, FieldValue, Function, Happening, ProbePoint, Probes};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbesOf {
    #[serde(default)]
    function: Vec<FunctionOf>,
    #[serde(default)]
    tracepoint: Vec<TracepointOf>,
    #[serde(default)]
    binary: Vec<BinaryOf>,
    #[serde(default)]
    event: Vec<EventOf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FunctionOf {
    name: String,
    address: Option<Address>,
    #[serde(default)]
    size: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TracepointOf {
    group: String,
    name: String,
    #[serde(default)]
    fields: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BinaryOf {
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventOf {
    name: String,
    function: Option<String>,
    tracepoint: Option<String>,
    binary: Option<PathBuf>,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    arguments: Vec<Word>,
    result: Option<Word>,
    #[serde(default)]
    values: BTreeMap<String, Value>,
    system_call: Option<String>,
    after: Option<Span>,
}

/// A number, or as text one that TOML has no number for.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Number(i64),
    Text(Address),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Number(i64),
    Text(String),
}

impl Word {
    fn word(&self) -> u64 {
        match self {
            Self::Number(number) => *number as u64,
            Self::Text(address) => address.0,
        }
    }
}

/// Adds what a file says.
pub(super) fn add(of: ProbesOf, probes: &mut Probes) -> Result<(), FileError> {
    let at = |what, number: usize| move |source| FileError::Part { what, number: number + 1, source };
    for (number, of) in of.function.into_iter().enumerate() {
        let FunctionOf { name, address, size } = of;
        let address = address.map_or(0, |address| address.0);
        probes.add_function(Function { name, address, size }).map_err(at("probes.function", number))?;
    }
    for (number, of) in of.tracepoint.iter().enumerate() {
        let fields = of.fields.iter().map(String::as_str);
        probes.add_tracepoint(&of.group, &of.name, fields).map_err(at("probes.tracepoint", number))?;
    }
    for of in of.binary {
        probes.add_binary(of.path);
    }
    for (number, of) in of.event.into_iter().enumerate() {
        let added = event(of, probes).and_then(|event| probes.add_event(event));
        added.map_err(at("probes.event", number))?;
    }
    Ok(())
}

fn event(of: EventOf, probes: &Probes) -> Result<Event, crate::Error> {
    let bad = |why| crate::Error::BadProbe { name: of.name.clone(), why };
    let words = |words: &[Word]| words.iter().map(Word::word).collect::<Vec<_>>();
    let result = of.result.as_ref().map(Word::word);
    let what = match (&of.function, &of.tracepoint, &of.binary) {
        (None, Some(tracepoint), None) => {
            if of.offset != 0 || result.is_some() {
                return Err(bad("a tracepoint has no offset and no result"));
            }
            let (group, name) =
                tracepoint.split_once('/').ok_or_else(|| bad("a tracepoint is named as GROUP/NAME"))?;
            let found = probes.tracepoint(group, name);
            let found = found.ok_or_else(|| crate::Error::NoProbe { name: tracepoint.clone() })?;
            let values: Vec<_> = of.values.iter().map(|(name, value)| (name, value.as_field())).collect();
            let record = found.record(values.iter().map(|(name, value)| (name.as_str(), value)))?;
            let (group, name) = (group.to_owned(), name.to_owned());
            Happening::Trace { group, name, record, arguments: words(&of.arguments) }
        }
        (function, None, binary) if of.values.is_empty() => {
            let point = match (function, binary) {
                (Some(name), None) => ProbePoint::Function { name: name.clone(), offset: of.offset },
                (None, Some(path)) => ProbePoint::binary(path, of.offset),
                _ => return Err(bad("an event is of one function, tracepoint or binary")),
            };
            Happening::Call { point, arguments: words(&of.arguments), result }
        }
        _ => {
            return Err(bad(
                "an event is of one function, tracepoint or binary; a tracepoint's alone has values",
            ));
        }
    };
    let (system_call, after) = (of.system_call, of.after.map(|span| span.0));
    Ok(Event { name: of.name, what, system_call, after })
}

impl Value {
    fn as_field(&self) -> FieldValue {
        match self {
            Self::Number(number) => FieldValue::Number(*number),
            Self::Text(text) => FieldValue::Text(text.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Described;
    use crate::{Happening, ProbePoint};

    fn example() -> String {
        let lines =
            include_str!("probes.rs").lines().map(|line| line.strip_prefix("//!").unwrap_or_default());
        let inside = lines.skip_while(|line| !line.contains("```toml")).skip(1);
        inside.take_while(|line| !line.contains("```")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_documented_probes_are_read() {
        let probes = Described::parse(&example()).unwrap().machine.probes;
        let connect = probes.event("connect").unwrap();
        assert_eq!(connect.after, Some(std::time::Duration::from_millis(10)));
        let point = ProbePoint::function("tcp_connect");
        let arguments = vec![0xffff_8880_0000_1000];
        assert_eq!(connect.what, Happening::Call { point, arguments, result: Some(0) });
        let Happening::Trace { record, .. } = &probes.event("established").unwrap().what else { panic!() };
        assert_eq!(record[8..], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert!(probes.check(&ProbePoint::binary("/usr/bin/true", 7)).is_ok());
    }

    #[test]
    fn an_event_happens_where_something_is() {
        for (text, word) in [
            ("name = 'x'\nfunction = 'bogus'", "nothing of the name bogus"),
            ("name = 'x'", "one function, tracepoint or binary"),
            ("name = 'x'\nfunction = 'f'\nbinary = '/bin/sh'", "one function, tracepoint or binary"),
            ("name = 'x'\nfunction = 'f'\nvalues = { a = 1 }", "alone has values"),
            ("name = 'x'\ntracepoint = 'g'", "GROUP/NAME"),
            ("name = 'x'\ntracepoint = 'g/t'\nvalues = { b = 1 }", "no such field"),
            ("name = 'x/y'\nfunction = 'f'", "an event's name"),
        ] {
            let text = format!(
                "[[probes.function]]\nname = 'f'\n[[probes.tracepoint]]\ngroup = 'g'\nname = 't'\n\
                 fields = ['int a']\n[[probes.event]]\n{text}\n"
            );
            let error = Described::parse(&text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("probes.event 1"), "{text}: {error}");
        }
    }
}
