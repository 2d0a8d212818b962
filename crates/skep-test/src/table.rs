//! Table files: from TOML to tests.
//!
//! ```text
//!   defaults of the file --+
//!   [[test]] --------------+--> table with everything --cases--> one table per case --> Test
//! ```
//!
//! Nothing of an object is known here: values of maps and variables stay nodes of the document until the object is
//! loaded, and an error then names their line.

use crate::captures::Captures;
use crate::error::TableError;
use crate::node::{self, Fields, Node, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Keys that a file and a test have.
const SHARED: [&str; 11] = [
    "object",
    "program",
    "type",
    "maps",
    "variables",
    "max_entries",
    "world",
    "clock",
    "seed",
    "metadata",
    "interp",
];
/// Keys of a step; a test without steps is one.
const STEP: [&str; 10] =
    ["packet", "hex", "capture", "index", "buffer", "context", "metadata", "after", "repeat", "expect"];
const EXPECT: [&str; 9] =
    ["verdict", "packet", "buffer", "maps", "variables", "events", "printed", "metadata", "redirect"];
/// The most runs of a step. Nothing ends a test from outside, and events of all runs are kept.
const MOST_RUNS: u64 = 1_000_000;

/// A test of a table file.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Its number in the file's list.
    pub(crate) index: usize,
    /// Whether it is one of several cases.
    pub(crate) is_case: bool,
    pub(crate) object: (PathBuf, Node),
    pub(crate) program: Option<Node>,
    pub(crate) program_type: Option<Node>,
    pub(crate) maps: Vec<(String, Node)>,
    pub(crate) variables: Vec<(String, Node)>,
    pub(crate) max_entries: Vec<(String, Node)>,
    pub(crate) world: Option<Node>,
    pub(crate) clock: Option<Duration>,
    pub(crate) seed: Option<u64>,
    pub(crate) interp: bool,
    pub(crate) steps: Vec<Step>,
    /// What is expected after all steps.
    pub(crate) at_end: Option<Expect>,
}

#[cfg(feature = "kernel")]
impl Test {
    /// All that is expected, of each step and after them.
    pub(crate) fn expectations(&self) -> impl Iterator<Item = &Expect> {
        self.steps.iter().filter_map(|step| step.expect.as_ref()).chain(&self.at_end)
    }
}

/// A run, or several with the same input.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) input: Input,
    pub(crate) metadata: Vec<(String, Node)>,
    /// The time that passes before it.
    pub(crate) after: Duration,
    pub(crate) repeat: u64,
    pub(crate) expect: Option<Expect>,
}

/// What a program runs on.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Packet(Vec<u8>),
    Buffer(Vec<u8>),
    Context(Vec<(String, Node)>),
    /// Time passes, and no program runs.
    Nothing,
}

/// What is expected after a step.
#[derive(Clone, Debug)]
pub(crate) struct Expect {
    pub(crate) line: usize,
    pub(crate) verdict: Option<Node>,
    /// The bytes of the packet or buffer.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) maps: Vec<(String, Node)>,
    pub(crate) variables: Vec<(String, Node)>,
    pub(crate) events: Option<Vec<Node>>,
    pub(crate) printed: Option<Vec<String>>,
    pub(crate) metadata: Vec<(String, Node)>,
    pub(crate) redirect: Option<String>,
}

/// The tests of a table file's text.
pub(crate) fn tests(path: &Path, text: String, captures: &Captures) -> Result<Vec<Test>, TableError> {
    let document = node::parse(path, text)?;
    let keys = [&SHARED[..], &["test"]].concat();
    let file = document.fields(&keys)?;
    let mut tests = Vec::new();
    let listed = match file.named("test") {
        Some(node) => node.list()?,
        None => return Err(document.error("there are no tests: add a [[test]] with a name")),
    };
    for (index, test) in listed.iter().enumerate() {
        let own = [&SHARED[..], &STEP[..], &["name", "cases", "step"]].concat();
        let whole = merged(&document, test)?;
        let fields = whole.fields(&own)?;
        let Some(cases) = fields.named("cases") else {
            tests.push(test_of(path, &whole, &fields, index, None, captures)?);
            continue;
        };
        let whole = without(&whole, "cases");
        for case in cases.list()? {
            let case = case.table()?;
            let whole = whole.with_case(case);
            tests.push(test_of(path, &whole, &whole.fields(&own)?, index, Some((&fields, case)), captures)?);
        }
    }
    let mut names = std::collections::HashMap::new();
    for test in &tests {
        if let Some(first) = names.insert(test.name.clone(), test.line) {
            let text = format!("the test at line {first} is called {:?} too", test.name);
            return Err(TableError { path: path.to_owned(), line: test.line, text });
        }
    }
    Ok(tests)
}

/// A table without one of its fields.
fn without(node: &Node, name: &str) -> Node {
    let mut node = node.clone();
    if let Value::Table(fields) = &mut node.value {
        fields.retain(|(known, _)| known != name);
    }
    node
}

/// A test with what the file says for all. Of tables, its own fields count first.
fn merged(file: &Node, test: &Node) -> Result<Node, TableError> {
    let mut fields = test.table()?.to_vec();
    for (name, default) in file.table()?.iter().filter(|(name, _)| *name != "test") {
        match fields.iter_mut().find(|(own, _)| own == name) {
            None => fields.push((name.clone(), default.clone())),
            Some((_, own)) if matches!(&**name, "maps" | "variables" | "max_entries" | "metadata") => {
                let (mut both, defaults) = (own.table()?.to_vec(), default.table()?);
                let missing = defaults.iter().filter(|(name, _)| both.iter().all(|(own, _)| own != name));
                let missing: Vec<_> = missing.cloned().collect();
                both.extend(missing);
                own.value = Value::Table(both);
            }
            Some(_) => {}
        }
    }
    Ok(Node { value: Value::Table(fields), ..test.clone() })
}

type Case<'a> = (&'a Fields<'a>, &'a [(String, Node)]);

fn test_of(
    path: &Path,
    whole: &Node,
    fields: &Fields<'_>,
    index: usize,
    case: Option<Case<'_>>,
    captures: &Captures,
) -> Result<Test, TableError> {
    let mut name = fields
        .text("name")?
        .ok_or_else(|| whole.error("the test has no name: add name = \"...\""))?
        .to_owned();
    if let Some((before, case)) = case
        && before.text("name")? == Some(&name)
    {
        let values: Vec<_> = case.iter().map(|(name, node)| format!("{name}={}", node.plain())).collect();
        name = format!("{name} ({})", values.join(", "));
    }
    let object = fields.named("object");
    let object =
        object.ok_or_else(|| whole.error("no object: add object = \"FILE.bpf.o\", here or for the file"))?;
    let beside = |file: &str| path.parent().unwrap_or(Path::new("")).join(file);
    let read = Reader { beside: &beside, captures };
    let (steps, at_end) = match fields.named("step") {
        None => (vec![read.step(whole, fields)?], None),
        Some(steps) => {
            let alone = STEP.iter().filter(|key| !matches!(**key, "expect" | "metadata"));
            if let Some(key) = alone.into_iter().find(|key| fields.named(key).is_some()) {
                let node = fields.named(key).unwrap_or(whole);
                return Err(
                    node.error(format!("a test with steps has no {key}: put it into a [[test.step]]"))
                );
            }
            let at_end = fields.named("expect").map(|node| read.expect(node)).transpose()?;
            if let Some(expect) = at_end.as_ref().filter(|expect| {
                expect.verdict.is_some() || expect.bytes.is_some() || expect.redirect.is_some()
            }) {
                let text = "a verdict or packet is of one step: put it into that one's expect";
                return Err(TableError { path: path.to_owned(), line: expect.line, text: text.to_owned() });
            }
            let mut list = Vec::new();
            for step in steps.list()? {
                let mut step_fields = step.table()?.to_vec();
                if let (Some(metadata), None) =
                    (fields.named("metadata"), step_fields.iter().find(|(name, _)| name == "metadata"))
                {
                    step_fields.push(("metadata".to_owned(), metadata.clone()));
                }
                let step = Node { value: Value::Table(step_fields), ..step.clone() };
                list.push(read.step(&step, &step.fields(&STEP)?)?);
            }
            (list, at_end)
        }
    };
    Ok(Test {
        name,
        line: whole.line(),
        index,
        is_case: case.is_some(),
        object: (beside(object.text()?), object.clone()),
        program: fields.named("program").cloned(),
        program_type: fields.named("type").cloned(),
        maps: table(fields, "maps")?,
        variables: table(fields, "variables")?,
        max_entries: table(fields, "max_entries")?,
        world: fields.named("world").cloned(),
        clock: fields.named("clock").map(duration).transpose()?,
        seed: fields.number("seed")?,
        interp: fields.named("interp").is_some_and(|node| matches!(node.value, Value::Bool(true))),
        steps,
        at_end,
    })
}

/// A table of a table; empty if it is not given.
fn table(fields: &Fields<'_>, name: &str) -> Result<Vec<(String, Node)>, TableError> {
    fields.named(name).map_or(Ok(Vec::new()), |node| node.table().map(<[_]>::to_vec))
}

/// A time like `20ms`.
pub(crate) fn duration(node: &Node) -> Result<Duration, TableError> {
    let text = node.text()?;
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let of: Option<fn(u64) -> Duration> = match unit {
        "ns" => Some(Duration::from_nanos),
        "us" => Some(Duration::from_micros),
        "ms" => Some(Duration::from_millis),
        "s" => Some(Duration::from_secs),
        _ => None,
    };
    of.zip(number.parse().ok()).map(|(of, number)| of(number)).ok_or_else(|| {
        node.error(format!("{text:?} is no time: expected a number with ns, us, ms or s, like \"20ms\""))
    })
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(node: &Node) -> Result<Vec<u8>, TableError> {
    let text: String = node.text()?.chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(pair).collect();
    bytes.ok_or_else(|| node.error("expected an even number of hexadecimal digits"))
}

/// The bytes of a packet's text.
pub(crate) fn packet(node: &Node) -> Result<Vec<u8>, TableError> {
    skep_frames::build(node.text()?).map_err(|error| node.error(format!("packet: {error}")))
}

/// What reading a step needs.
struct Reader<'a> {
    beside: &'a dyn Fn(&str) -> PathBuf,
    captures: &'a Captures,
}

impl Reader<'_> {
    fn step(&self, node: &Node, fields: &Fields<'_>) -> Result<Step, TableError> {
        let given: Vec<&str> = ["packet", "hex", "capture", "buffer", "context"]
            .into_iter()
            .filter(|name| fields.named(name).is_some())
            .collect();
        let after = fields.named("after").map(duration).transpose()?;
        let input = match given[..] {
            ["packet"] => Input::Packet(fields.named("packet").map(packet).transpose()?.unwrap_or_default()),
            ["hex"] => Input::Packet(fields.named("hex").map(hex).transpose()?.unwrap_or_default()),
            ["buffer"] => Input::Buffer(fields.named("buffer").map(hex).transpose()?.unwrap_or_default()),
            ["context"] => Input::Context(table(fields, "context")?),
            [_] => self.captured(node, fields)?,
            [] if after.is_some() => Input::Nothing,
            [] => return Err(node.error("nothing to run on: add a packet, hex, capture, buffer or context")),
            [first, second, ..] => {
                let node = fields.named(second).unwrap_or(node);
                return Err(node.error(format!("{first} is given too; remove one of them")));
            }
        };
        if let (Some(index), false) = (fields.named("index"), given == ["capture"]) {
            return Err(index.error("an index is of a packet in a capture: add capture = \"FILE\""));
        }
        let repeat = fields.number("repeat")?.unwrap_or(1);
        if let Some(node) = fields.named("repeat").filter(|_| repeat > MOST_RUNS) {
            return Err(node.error(format!("{repeat} runs are too many: at most {MOST_RUNS}")));
        }
        Ok(Step {
            line: node.line(),
            input,
            metadata: table(fields, "metadata")?,
            after: after.unwrap_or_default(),
            repeat,
            expect: fields.named("expect").map(|node| self.expect(node)).transpose()?,
        })
    }

    fn captured(&self, node: &Node, fields: &Fields<'_>) -> Result<Input, TableError> {
        let capture = fields.named("capture").unwrap_or(node);
        let packets = (self.captures)(&(self.beside)(capture.text()?)).map_err(|text| capture.error(text))?;
        let index = fields.number("index")?.unwrap_or(0);
        let packet = usize::try_from(index).ok().and_then(|index| packets.get(index));
        let count = packets.len();
        packet.map(|packet| Input::Packet(packet.clone())).ok_or_else(|| {
            let node = fields.named("index").unwrap_or(capture);
            node.error(format!("index {index} is out of range: the capture has {count} packets, from 0 on"))
        })
    }

    fn expect(&self, node: &Node) -> Result<Expect, TableError> {
        let fields = node.fields(&EXPECT)?;
        let bytes = match (fields.named("packet"), fields.named("buffer")) {
            (Some(node), None) => Some(packet(node)?),
            (None, buffer) => buffer.map(hex).transpose()?,
            (Some(_), Some(buffer)) => {
                return Err(buffer.error("packet is given too; remove one of them"));
            }
        };
        let events = fields.named("events").map(|node| node.list().map(<[_]>::to_vec)).transpose()?;
        let printed = fields.named("printed").map(|node| {
            node.list()?.iter().map(|line| line.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()
        });
        Ok(Expect {
            line: node.line(),
            verdict: fields.named("verdict").cloned(),
            bytes,
            maps: table(&fields, "maps")?,
            variables: table(&fields, "variables")?,
            events,
            printed: printed.transpose()?,
            metadata: table(&fields, "metadata")?,
            redirect: fields.text("redirect")?.map(str::to_owned),
        })
    }
}

/// Reads any text as a table file, for fuzzers: no text may panic.
pub fn check_text(text: &str) -> Result<usize, TableError> {
    let none: Captures = Arc::new(|_| Err("there are no captures".to_owned()));
    tests(Path::new("fuzz.test.toml"), text.to_owned(), &none).map(|tests| tests.len())
}
