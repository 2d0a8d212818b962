//! A TOML document with the places of its parts, and readers that refuse what they do not know.
//!
//! Tables are read in two steps because cases of a parametrised test are put in between, and because an error must name
//! its line: serde knows types, but forgets where a value was once it is in a structure.

use crate::error::TableError;
use serde_json::Value as Json;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A file, and the lines of places in it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: Box<Path>,
    /// Where each line begins.
    lines: Vec<usize>,
}

/// A value and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) source: Arc<Source>,
    pub(crate) span: Range<usize>,
    pub(crate) value: Value,
}

/// A value of TOML. Dates are text.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Node>),
    Table(Vec<(String, Node)>),
}

/// A document's table.
pub(crate) fn parse(path: &Path, text: String) -> Result<Node, TableError> {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
    let source = Arc::new(Source { path: path.into(), lines: std::iter::once(0).chain(ends).collect() });
    let document = toml_edit::Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.error(at, error.message().to_owned())
    })?;
    Ok(of_table(&source, document.as_table(), 0..0))
}

fn of_table(source: &Arc<Source>, table: &dyn toml_edit::TableLike, span: Range<usize>) -> Node {
    let fields = table.iter().map(|(name, item)| {
        let key = table.key(name).and_then(toml_edit::Key::span);
        let mut node = of_item(source, item);
        // Errors about a value name the line of its key, which is the one that people look for.
        if let Some(key) = key {
            node.span = key;
        }
        (name.to_owned(), node)
    });
    Node { source: Arc::clone(source), span, value: Value::Table(fields.collect()) }
}

fn of_item(source: &Arc<Source>, item: &toml_edit::Item) -> Node {
    let span = item.span().unwrap_or(0..0);
    match item {
        toml_edit::Item::None => of_table(source, &toml_edit::Table::new(), span),
        toml_edit::Item::Value(value) => of_value(source, value),
        toml_edit::Item::Table(table) => of_table(source, table, span),
        toml_edit::Item::ArrayOfTables(tables) => {
            let tables = tables.iter().map(|table| of_table(source, table, table.span().unwrap_or(0..0)));
            Node { source: Arc::clone(source), span, value: Value::Array(tables.collect()) }
        }
    }
}

fn of_value(source: &Arc<Source>, value: &toml_edit::Value) -> Node {
    let span = value.span().unwrap_or(0..0);
    let value = match value {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::Integer(*number.value()),
        toml_edit::Value::Float(number) => Value::Float(*number.value()),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Datetime(time) => Value::Text(time.value().to_string()),
        toml_edit::Value::Array(values) => {
            Value::Array(values.iter().map(|value| of_value(source, value)).collect())
        }
        toml_edit::Value::InlineTable(table) => return of_table(source, table, span),
    };
    Node { source: Arc::clone(source), span, value }
}

impl Source {
    /// The line of a byte, from 1.
    pub(crate) fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|start| *start <= at)
    }

    fn error(&self, at: usize, text: String) -> TableError {
        TableError { path: self.path.to_path_buf(), line: self.line(at), text }
    }
}

impl Node {
    /// Its line, from 1.
    pub(crate) fn line(&self) -> usize {
        self.source.line(self.span.start)
    }

    /// Something is wrong here.
    pub(crate) fn error(&self, text: impl Into<String>) -> TableError {
        self.source.error(self.span.start, text.into())
    }

    fn expected(&self, expected: &str) -> TableError {
        let found = match &self.value {
            Value::Text(text) => format!("the text {text:?}"),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Array(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
        };
        self.error(format!("expected {expected}, found {found}"))
    }

    pub(crate) fn text(&self) -> Result<&str, TableError> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.expected("text in quotes")),
        }
    }

    /// A whole number, in hexadecimal also as text.
    pub(crate) fn number(&self) -> Result<u64, TableError> {
        let number = match &self.value {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::Text(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
            _ => None,
        };
        number.ok_or_else(|| self.expected("a number from 0 on"))
    }

    pub(crate) fn list(&self) -> Result<&[Self], TableError> {
        match &self.value {
            Value::Array(nodes) => Ok(nodes),
            _ => Err(self.expected("a list: [...]")),
        }
    }

    pub(crate) fn table(&self) -> Result<&[(String, Self)], TableError> {
        match &self.value {
            Value::Table(fields) => Ok(fields),
            _ => Err(self.expected("a table: { name = value }")),
        }
    }

    /// A table with these fields and no others.
    pub(crate) fn fields(&self, known: &[&str]) -> Result<Fields<'_>, TableError> {
        let fields = self.table()?;
        match fields.iter().find(|(name, _)| !known.contains(&&**name)) {
            Some((name, node)) => Err(node.error(unknown("key", name, known))),
            None => Ok(Fields(fields)),
        }
    }

    /// The same value as JSON, with text that stands for bytes in network order replaced by these.
    pub(crate) fn json(&self) -> Result<Json, TableError> {
        Ok(match &self.value {
            Value::Text(text) => match text.split_once(':') {
                Some((order @ ("be16" | "be32" | "be64" | "ip4" | "ip6" | "mac"), rest)) => {
                    network(order, rest).ok_or_else(|| {
                        self.error(format!("{text:?}: expected {order}: and {}", network_form(order)))
                    })?
                }
                _ => text.clone().into(),
            },
            Value::Integer(number) => (*number).into(),
            Value::Float(number) => (*number).into(),
            Value::Bool(truth) => (*truth).into(),
            Value::Array(nodes) => nodes.iter().map(Self::json).collect::<Result<Vec<_>, _>>()?.into(),
            Value::Table(fields) => {
                let field = |(name, node): &(String, Self)| Ok((name.clone(), node.json()?));
                Json::Object(fields.iter().map(field).collect::<Result<_, TableError>>()?)
            }
        })
    }

    /// The same table as a document.
    pub(crate) fn document(&self) -> Result<String, TableError> {
        let mut text = String::new();
        for (name, node) in self.table()? {
            let _ = writeln!(text, "{} = {}", Json::from(name.as_str()), node.inline()); // a string takes everything
        }
        Ok(text)
    }

    fn inline(&self) -> String {
        match &self.value {
            Value::Text(text) => Json::from(text.as_str()).to_string(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => format!("{number:?}"),
            Value::Bool(truth) => truth.to_string(),
            Value::Array(nodes) => {
                format!("[{}]", nodes.iter().map(Self::inline).collect::<Vec<_>>().join(", "))
            }
            Value::Table(fields) => {
                let field = |(name, node): &(String, Self)| {
                    format!("{} = {}", Json::from(name.as_str()), node.inline())
                };
                format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The same with `{name}` replaced by what a case has under that name.
    pub(crate) fn with_case(&self, case: &[(String, Self)]) -> Self {
        let value = match &self.value {
            Value::Text(text) => {
                let whole = case.iter().find(|(name, _)| *text == format!("{{{name}}}"));
                match whole {
                    Some((_, node)) => node.value.clone(),
                    None => Value::Text(case.iter().fold(text.clone(), |text, (name, node)| {
                        text.replace(&format!("{{{name}}}"), &node.plain())
                    })),
                }
            }
            Value::Array(nodes) => Value::Array(nodes.iter().map(|node| node.with_case(case)).collect()),
            Value::Table(fields) => {
                let field = |(name, node): &(String, Self)| (name.clone(), node.with_case(case));
                Value::Table(fields.iter().map(field).collect())
            }
            other => other.clone(),
        };
        Self { value, ..self.clone() }
    }

    /// As it is put into text.
    pub(crate) fn plain(&self) -> String {
        match &self.value {
            Value::Text(text) => text.clone(),
            _ => self.inline(),
        }
    }
}

/// The fields of a table, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [(String, Node)]);

impl<'a> Fields<'a> {
    pub(crate) fn named(&self, name: &str) -> Option<&'a Node> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, node)| node)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, TableError> {
        self.named(name).map(Node::text).transpose()
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, TableError> {
        self.named(name).map(Node::number).transpose()
    }
}

/// Says that a name is unknown, and which one may be meant.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let distance = |known: &&str| strsim::osa_distance(name, known);
    let near = known.iter().min_by_key(|known| distance(known));
    match near.filter(|near| distance(near) <= name.chars().count().div_ceil(3)) {
        Some(near) => format!("unknown {what} {name:?}; did you mean {near:?}?"),
        None if known.is_empty() => format!("unknown {what} {name:?}; there are none"),
        None => format!("unknown {what} {name:?}; there are {}", known.join(", ")),
    }
}

/// What follows the name of an order of bytes.
fn network_form(order: &str) -> &'static str {
    match order {
        "ip4" => "an address like 10.0.0.1",
        "ip6" => "an address like 2001:db8::1",
        "mac" => "an address like 02:00:00:00:00:01",
        _ => "a number that fits",
    }
}

/// The number, or numbers, whose bytes in memory are these.
fn network(order: &str, text: &str) -> Option<Json> {
    let number = || match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    Some(match order {
        "be16" => u16::try_from(number()?).ok()?.to_be().into(),
        "be32" => u32::try_from(number()?).ok()?.to_be().into(),
        "be64" => skep::json::number(number()?.to_be()),
        "ip4" => u32::from_ne_bytes(text.parse::<Ipv4Addr>().ok()?.octets()).into(),
        "ip6" => {
            let octets = text.parse::<Ipv6Addr>().ok()?.octets();
            octets.as_chunks::<4>().0.iter().map(|word| Json::from(u32::from_ne_bytes(*word))).collect()
        }
        _ => {
            let bytes: Vec<u8> =
                text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
            if bytes.len() != 6 {
                return None;
            }
            bytes.into()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Node {
        parse(Path::new("x.test.toml"), text.to_owned()).unwrap()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
        let node = node("a = 1\n\n[b]\nverdcit = 2\n");
        let Value::Table(fields) = &node.value else { panic!() };
        let error = fields[1].1.fields(&["verdict", "packet"]).unwrap_err();
        assert_eq!(error.to_string(), "x.test.toml:4: unknown key \"verdcit\"; did you mean \"verdict\"?");
    }

    #[test]
    fn text_with_an_order_of_bytes_is_a_number() {
        let json = node("a = 'be16:80'\nb = 'ip4:10.0.0.1'\nc = 'ip6:::1'\nd = 'mac:02:00:00:00:00:01'")
            .json()
            .unwrap();
        assert_eq!(json["a"], 80u16.to_be());
        assert_eq!(json["b"], u32::from_ne_bytes([10, 0, 0, 1]));
        assert_eq!(json["c"][3], u32::from_ne_bytes([0, 0, 0, 1]));
        assert_eq!(json["d"], serde_json::json!([2, 0, 0, 0, 0, 1]));
        assert!(node("a = 'be16:70000'").json().is_err());
    }

    #[test]
    fn a_case_replaces_names_in_braces() {
        let test = node("a = 'tcp(dport={port})'\nb = '{port}'\nc = '{other}'");
        let case = node("port = 23");
        let json = test.with_case(case.table().unwrap()).json().unwrap();
        assert_eq!(json, serde_json::json!({ "a": "tcp(dport=23)", "b": 23, "c": "{other}" }));
    }

    #[test]
    fn a_table_is_a_document_again() {
        let text = "seed = 7\n[[device]]\nname = \"a\\\"b\"\nup = true\nmtu = 1500\n";
        let again = node(&node(text).document().unwrap());
        assert_eq!(again.json().unwrap(), node(text).json().unwrap());
    }
}
