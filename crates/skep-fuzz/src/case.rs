//! What was found, as tests of `skep test`.

use crate::setup::{Element, Setup};
use skep::{Module, Object};
use std::fmt::Write;

/// An input, and why it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Case {
    /// What maps and variables have before.
    pub setup: Setup,
    /// Inputs before it that are needed.
    pub before: Vec<Vec<u8>>,
    /// The packet, or the buffer.
    pub input: Vec<u8>,
    /// Why.
    pub why: Why,
}

/// Why an input was kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Why {
    /// It reaches code that no input before it reached.
    Reaches {
        /// The verdict.
        verdict: String,
    },
    /// Another version of the program does something else.
    Differs {
        /// What that one does.
        old: String,
        /// What this one does.
        new: String,
        /// Whether the verdicts are the same, and the packets are not.
        packet: bool,
    },
    /// The verdict is one that there should never be.
    Never {
        /// That verdict.
        verdict: String,
    },
    /// The check refuses what the program did.
    Violates {
        /// The program's verdict.
        verdict: String,
        /// What the check returned.
        check: String,
    },
    /// The run failed: it did not end in time, for example.
    Fails {
        /// The error.
        error: String,
    },
    /// It took the most work of all.
    Slowest {
        /// How many runs of instructions were entered.
        blocks: u64,
    },
}

impl Why {
    /// In a few words, for people and for the names of tests.
    pub fn words(&self) -> String {
        match self {
            Self::Reaches { verdict } => format!("reaches new code, {verdict}"),
            Self::Differs { packet: true, new, .. } => format!("leaves another packet, {new}"),
            Self::Differs { old, new, .. } => format!("is {new} and was {old}"),
            Self::Never { verdict } => format!("is {verdict}, which it never should be"),
            Self::Violates { verdict, check } => format!("is {verdict}, and the check returns {check}"),
            Self::Fails { error } => format!("fails: {error}"),
            Self::Slowest { blocks } => format!("takes the most work, {blocks} blocks"),
        }
    }
}

/// Cases as a table of `skep test`. `expected` says what a case should do, as the version before does it or as it is
/// wanted: keys of `expect`. A case of which nothing is expected fails as long as it is in the table.
pub fn table(
    object: &str,
    program: &str,
    cases: &[Case],
    buffer: bool,
    (elf, module): (&Object, &Module),
    expected: impl Fn(&Case) -> Vec<String>,
) -> String {
    let mut out = format!("object = {}\nprogram = {}\n", quoted(object), quoted(program));
    // A string takes everything.
    for (number, case) in (1..).zip(cases) {
        let name = format!("{number}: {}", case.why.words());
        let _ = writeln!(out, "\n[[test]]\nname = {}", quoted(&name));
        setup(&mut out, &case.setup, elf, module);
        let input = |bytes: &[u8]| match buffer {
            true => format!("buffer = \"{}\"", hex(bytes)),
            false => format!("packet = {}", quoted(&skep_frames::text(bytes))),
        };
        for before in &case.before {
            let _ = writeln!(out, "\n[[test.step]]\n{}", input(before));
        }
        if !case.before.is_empty() {
            let _ = writeln!(out, "\n[[test.step]]");
        }
        let _ = writeln!(out, "{}", input(&case.input));
        for line in expected(case) {
            let _ = writeln!(out, "expect.{line}");
        }
    }
    out
}

/// Elements by their types if the object has them.
fn setup(out: &mut String, setup: &Setup, elf: &Object, module: &Module) {
    let mut names: Vec<&str> = setup.elements.iter().map(|element| &*element.map).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mut elements = setup.elements.iter().filter(|element| element.map == name);
        if name.starts_with('.') {
            let Some(last) = elements.next_back() else { continue };
            variables(out, last, elf);
            continue;
        }
        let list: Vec<String> = elements.filter_map(|element| written(element, module)).collect();
        let _ = writeln!(out, "maps.{name} = [{}]", list.join(", ")); // a string takes everything
    }
}

fn variables(out: &mut String, section: &Element, elf: &Object) {
    for variable in elf.variables() {
        let of = elf.maps().get(variable.map).map(|def| &*def.name) == Some(&*section.map);
        let range = variable.offset..variable.offset + variable.size;
        let (Some(bytes), true) = (section.value.get(range), of) else { continue };
        if let Ok(shape) = elf.variable_json(&variable.name) {
            let value = toml(&shape.to_json(bytes));
            let _ = writeln!(out, "variables.{} = {value}", quoted(&variable.name));
        }
    }
}

/// An element in TOML.
fn written(element: &Element, module: &Module) -> Option<String> {
    let json = module.map_json(&element.map).ok()?;
    let value = json.element(&element.key, &element.value);
    let key = toml(value.get("key")?);
    let value = toml(value.get("value").or_else(|| value.get("values")?.get(0)?.get("value"))?);
    Some(format!("{{ key = {key}, value = {value} }}"))
}

/// A JSON value as TOML writes it inline.
fn toml(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        // Numbers beyond 63 bits are text in tables.
        Value::Number(number) if number.as_i64().is_none() => format!("\"{number}\""),
        Value::Null => "0".to_owned(),
        Value::Array(values) => format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{} = {}", quoted(name), toml(value)));
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A basic string of TOML.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter)); // a string takes everything
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
