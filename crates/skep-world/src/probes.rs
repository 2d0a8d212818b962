//! What programs may probe: functions of a kernel that only exists as a list, tracepoints with the layout of their
//! records, binaries of processes, and events that happen at these.
//!
//! Nothing here is the machine's own kernel or its processes. What is not declared cannot be probed, so that a program
//! which waits for something that never happens is refused when it is attached.

use crate::error::Error;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where functions begin whose address nobody has chosen: as the text of Linux on x86-64.
const TEXT: u64 = 0xffff_ffff_8100_0000;
/// The bytes of a function of which nobody said how many it has.
const SIZE: u64 = 256;
/// What each record begins with: the tracepoint's number, flags, the process.
const COMMON: usize = 8;
/// The most bytes of a record that programs can read.
const MOST: usize = 8192;
/// The number of the first tracepoint of a machine; the others follow it.
pub const FIRST_TRACEPOINT: u32 = 1000;

/// What a machine has that can be probed, and the events that somebody wrote down for it.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    functions: BTreeMap<String, Function>,
    tracepoints: Vec<Tracepoint>,
    binaries: Vec<PathBuf>,
    events: BTreeMap<String, Event>,
}

/// A function of the machine's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its address; 0 for one of the machine's choice.
    pub address: u64,
    /// Its bytes; 0 for 256.
    pub size: u64,
}

/// A tracepoint of the machine's kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    group: String,
    name: String,
    id: u32,
    fields: Vec<RecordField>,
}

/// A field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// As in C, like `char comm[16]`.
    pub declaration: String,
    /// Its name.
    pub name: String,
    /// Where it begins in the record, in bytes. The first 8 bytes belong to no field.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
    /// Whether its numbers have a sign.
    pub signed: bool,
}

/// A place in code.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbePoint {
    /// In a function of the kernel, so many bytes behind its start.
    Function {
        /// Its name.
        name: String,
        /// The bytes.
        offset: u64,
    },
    /// In a binary, so many bytes behind the start of the file.
    Binary {
        /// The file.
        path: PathBuf,
        /// The bytes.
        offset: u64,
    },
}

impl fmt::Display for ProbePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = match self {
            Self::Function { name, offset } => {
                f.write_str(name)?;
                offset
            }
            Self::Binary { path, offset } => {
                write!(f, "{}", path.display())?;
                offset
            }
        };
        if *offset == 0 { Ok(()) } else { write!(f, "+{offset:#x}") }
    }
}

/// Something that happens in the machine, once or as often as somebody lets it happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name, by which it is let happen.
    pub name: String,
    /// What happens.
    pub what: Happening,
    /// The system call of an application with which it happens, by its name.
    pub system_call: Option<String>,
    /// How long after the start of an application it happens by itself.
    pub after: Option<Duration>,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Code is reached.
    Call {
        /// Where.
        point: ProbePoint,
        /// The arguments of a function there.
        arguments: Vec<u64>,
        /// What the function returns, if it does.
        result: Option<u64>,
    },
    /// A tracepoint is passed.
    Trace {
        /// Its group.
        group: String,
        /// Its name.
        name: String,
        /// Its record with the first 8 bytes; shorter ones end with zeroes.
        record: Vec<u8>,
        /// The arguments, as raw tracepoints have them.
        arguments: Vec<u64>,
    },
}

/// A value of a field in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValue {
    /// A number.
    Number(i64),
    /// Bytes of a text, with zeroes behind them.
    Text(String),
}

impl Probes {
    /// Whether there is a tracepoint of that name in any group: raw tracepoints have no groups.
    pub fn has_raw_tracepoint(&self, name: &str) -> bool {
        self.tracepoints.iter().any(|known| known.name == name)
    }

    /// Whether nothing can be probed.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.tracepoints.is_empty() && self.binaries.is_empty()
    }

    /// Adds a function, and returns its address.
    ///
    /// # Errors
    ///
    /// [`Error::ProbeTaken`] if the name is taken or the function overlaps another; [`Error::BadProbe`] for a name that
    /// no function has, and for an address outside of a kernel.
    pub fn add_function(&mut self, mut function: Function) -> Result<u64, Error> {
        let bad = |why| Error::BadProbe { name: function.name.clone(), why };
        if !is_symbol(&function.name) {
            return Err(bad("letters, digits, underscores and dots make a function's name"));
        }
        if function.size == 0 {
            function.size = SIZE;
        }
        if function.address == 0 {
            let end = |known: &Function| known.address + known.size;
            let end = self.functions.values().map(end).max().unwrap_or(TEXT).max(TEXT);
            // 0 behind the last address is refused below.
            function.address = end.checked_next_multiple_of(16).unwrap_or(0);
        }
        if function.address >> 63 == 0 || function.address.checked_add(function.size).is_none() {
            return Err(Error::BadProbe {
                name: function.name,
                why: "a kernel's addresses have the highest bit set",
            });
        }
        let overlaps = |known: &&Function| {
            known.name == function.name
                || known.address < function.address + function.size
                    && function.address < known.address + known.size
        };
        if let Some(taken) = self.functions.values().find(overlaps) {
            return Err(Error::ProbeTaken { name: function.name, by: taken.name.clone() });
        }
        let address = function.address;
        self.functions.insert(function.name.clone(), function);
        Ok(address)
    }

    /// Adds a tracepoint. Its fields are declared as in C, like `char comm[16]` or `u64 bytes`, and lie behind the
    /// 8 bytes that all records begin with, as a compiler places them. Returns its number.
    ///
    /// # Errors
    ///
    /// [`Error::ProbeTaken`], [`Error::BadProbe`].
    pub fn add_tracepoint<'a>(
        &mut self,
        group: &str,
        name: &str,
        fields: impl IntoIterator<Item = &'a str>,
    ) -> Result<u32, Error> {
        let full = || format!("{group}/{name}");
        if !is_word(group) || !is_word(name) {
            return Err(Error::BadProbe {
                name: full(),
                why: "letters, digits and underscores make the names",
            });
        }
        if self.tracepoint(group, name).is_some() {
            return Err(Error::ProbeTaken { name: full(), by: full() });
        }
        let (mut end, mut all) = (COMMON, Vec::new());
        for declaration in fields {
            let field = RecordField::parse(declaration, end).ok_or_else(|| Error::BadProbe {
                name: declaration.to_owned(),
                why: "a field is a type of C, a name, and maybe a number of elements, like \"char comm[16]\"",
            })?;
            end = field.offset + field.size;
            all.push(field);
        }
        if end > MOST {
            return Err(Error::BadProbe { name: full(), why: "a record has at most 8,192 bytes" });
        }
        let id = FIRST_TRACEPOINT + self.tracepoints.len() as u32;
        let (group, name) = (group.to_owned(), name.to_owned());
        self.tracepoints.push(Tracepoint { group, name, id, fields: all });
        Ok(id)
    }

    /// Adds a binary, by the path of its file: all places in it can be probed.
    pub fn add_binary(&mut self, path: impl Into<PathBuf>) {
        let path = path.into();
        if !self.binaries.contains(&path) {
            self.binaries.push(path);
        }
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// [`Error::NoProbe`] if it happens somewhere that was not added; [`Error::BadProbe`] for a name that no file can
    /// have; [`Error::ProbeTaken`].
    pub fn add_event(&mut self, event: Event) -> Result<(), Error> {
        if !is_symbol(&event.name) {
            let why = "letters, digits, underscores and dots make an event's name";
            return Err(Error::BadProbe { name: event.name, why });
        }
        match &event.what {
            Happening::Call { point, .. } => self.check(point)?,
            Happening::Trace { group, name, .. } => {
                self.tracepoint(group, name)
                    .ok_or_else(|| Error::NoProbe { name: format!("{group}/{name}") })?;
            }
        }
        if self.events.contains_key(&event.name) {
            return Err(Error::ProbeTaken { by: event.name.clone(), name: event.name });
        }
        self.events.insert(event.name.clone(), event);
        Ok(())
    }

    /// Whether there is such a place.
    ///
    /// # Errors
    ///
    /// [`Error::NoProbe`] if there is not; [`Error::BadProbe`] if the function ends before it.
    pub fn check(&self, point: &ProbePoint) -> Result<(), Error> {
        match point {
            ProbePoint::Function { name, offset } => {
                let function = self.function(name).ok_or_else(|| Error::NoProbe { name: name.clone() })?;
                if *offset >= function.size {
                    return Err(Error::BadProbe { name: name.clone(), why: "the function ends before that" });
                }
                Ok(())
            }
            ProbePoint::Binary { path, .. } if self.binaries.contains(path) => Ok(()),
            ProbePoint::Binary { path, .. } => Err(Error::NoProbe { name: path.display().to_string() }),
        }
    }

    /// The address of a place in the kernel; 0 for others.
    pub fn address(&self, point: &ProbePoint) -> u64 {
        match point {
            ProbePoint::Function { name, offset } => {
                self.function(name).map_or(0, |function| function.address.saturating_add(*offset))
            }
            ProbePoint::Binary { .. } => 0,
        }
    }

    /// The function of that name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// The functions, by name.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// The tracepoint of that name.
    pub fn tracepoint(&self, group: &str, name: &str) -> Option<&Tracepoint> {
        self.tracepoints.iter().find(|known| known.group == group && known.name == name)
    }

    /// The tracepoints.
    pub fn tracepoints(&self) -> &[Tracepoint] {
        &self.tracepoints
    }

    /// The files of the binaries.
    pub fn binaries(&self) -> &[PathBuf] {
        &self.binaries
    }

    /// The event of that name.
    pub fn event(&self, name: &str) -> Option<&Event> {
        self.events.get(name)
    }

    /// The events, by name.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.values()
    }
}

impl ProbePoint {
    /// The start of a function of the kernel.
    pub fn function(name: impl Into<String>) -> Self {
        Self::Function { name: name.into(), offset: 0 }
    }

    /// A place in a binary, in bytes from the start of its file.
    pub fn binary(path: impl AsRef<Path>, offset: u64) -> Self {
        Self::Binary { path: path.as_ref().to_owned(), offset }
    }
}

impl Tracepoint {
    /// Its group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The fields of its record.
    pub fn fields(&self) -> &[RecordField] {
        &self.fields
    }

    /// The bytes of a record, in whole words of eight bytes.
    pub fn record_size(&self) -> usize {
        let end = self.fields.last().map_or(COMMON, |field| field.offset + field.size);
        end.next_multiple_of(8)
    }

    /// A record with these values; the other fields are zero.
    ///
    /// # Errors
    ///
    /// [`Error::BadProbe`] for a field that it does not have, and for a value that does not fit.
    pub fn record<'a>(
        &self,
        values: impl IntoIterator<Item = (&'a str, &'a FieldValue)>,
    ) -> Result<Vec<u8>, Error> {
        let mut record = vec![0; self.record_size()];
        record[..2].copy_from_slice(&(self.id as u16).to_ne_bytes());
        for (name, value) in values {
            let bad = |why| Error::BadProbe { name: format!("{}/{}: {name}", self.group, self.name), why };
            let field = self.fields.iter().find(|field| field.name == name);
            let field = field.ok_or_else(|| bad("the tracepoint has no such field"))?;
            let into = &mut record[field.offset..field.offset + field.size];
            match value {
                FieldValue::Number(number) => {
                    let fits = match into.len() {
                        bytes @ (1 | 2 | 4) => {
                            let bits = 8 * bytes as u32;
                            (-(1 << (bits - 1))..1 << bits).contains(number)
                        }
                        bytes => bytes == 8,
                    };
                    if !fits {
                        return Err(bad("the number does not fit"));
                    }
                    let bytes = number.to_ne_bytes();
                    let start = if cfg!(target_endian = "big") { 8 - into.len() } else { 0 };
                    into.copy_from_slice(&bytes[start..start + into.len()]);
                }
                FieldValue::Text(text) => {
                    let into = into.get_mut(..text.len()).ok_or_else(|| bad("the text is too long"))?;
                    into.copy_from_slice(text.as_bytes());
                }
            }
        }
        Ok(record)
    }

    /// What Linux's tracefs says of it in its file `format`.
    pub fn format(&self) -> String {
        let mut text = format!("name: {}\nID: {}\nformat:\n", self.name, self.id);
        let line = |declaration: &str, offset: usize, size: usize, signed: bool| {
            let signed = u8::from(signed);
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
        };
        text += &line("unsigned short common_type", 0, 2, false);
        text += &line("unsigned char common_flags", 2, 1, false);
        text += &line("unsigned char common_preempt_count", 3, 1, false);
        text += &line("int common_pid", 4, 4, true);
        text.push('\n');
        for field in &self.fields {
            text += &line(&field.declaration, field.offset, field.size, field.signed);
        }
        text
    }
}

impl RecordField {
    /// A field behind so many bytes.
    fn parse(declaration: &str, behind: usize) -> Option<Self> {
        let declaration = declaration.trim().trim_end_matches(';');
        let (front, elements) = match declaration.split_once('[') {
            Some((front, count)) => (front, count.strip_suffix(']')?.trim().parse::<usize>().ok()?),
            None => (declaration, 1),
        };
        let front = front.trim_end();
        let name = front.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        let kind = front.strip_suffix(name)?;
        if !is_word(name) || elements == 0 {
            return None;
        }
        let kind = kind.trim_start_matches("const ").trim();
        let (size, signed) = match kind {
            kind if kind.ends_with('*') => (8, false),
            "char" | "s8" | "__s8" => (1, true),
            "unsigned char" | "u8" | "__u8" | "bool" => (1, false),
            "short" | "s16" | "__s16" => (2, true),
            "unsigned short" | "u16" | "__u16" => (2, false),
            "int" | "s32" | "__s32" | "pid_t" => (4, true),
            "unsigned int" | "unsigned" | "u32" | "__u32" => (4, false),
            "long" | "long long" | "s64" | "__s64" => (8, true),
            "unsigned long" | "unsigned long long" | "u64" | "__u64" | "size_t" => (8, false),
            _ => return None,
        };
        let (offset, size) = (behind.next_multiple_of(size), size.checked_mul(elements)?);
        if size > MOST {
            return None;
        }
        Some(Self { declaration: declaration.to_owned(), name: name.to_owned(), offset, size, signed })
    }
}

fn is_word(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(rest) && name.starts_with(|c: char| !c.is_ascii_digit())
}

fn is_symbol(name: &str) -> bool {
    let rest = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    name.chars().all(rest) && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, address: u64, size: u64) -> Function {
        Function { name: name.to_owned(), address, size }
    }

    #[test]
    fn functions_have_addresses_of_their_own() {
        let mut probes = Probes::default();
        let first = probes.add_function(function("vprintk", 0, 10)).unwrap();
        let second = probes.add_function(function("echo_char.isra.0", 0, 0)).unwrap();
        assert_eq!((first, second), (TEXT, TEXT + 16));
        for bad in [function("vprintk", 0, 0), function("other", TEXT + 4, 4)] {
            assert!(matches!(probes.add_function(bad), Err(Error::ProbeTaken { .. })));
        }
        for bad in [function("a b", 0, 0), function("user", 0x1000, 4), function("end", u64::MAX, 4)] {
            assert!(matches!(probes.add_function(bad), Err(Error::BadProbe { .. })));
        }
        let mut full = Probes::default();
        full.add_function(function("last", u64::MAX - 20, 20)).unwrap();
        assert!(matches!(full.add_function(function("behind", 0, 4)), Err(Error::BadProbe { .. })));
        let at = |offset| ProbePoint::Function { name: "vprintk".to_owned(), offset };
        assert!(probes.check(&at(9)).is_ok());
        assert!(matches!(probes.check(&at(10)), Err(Error::BadProbe { .. })));
        assert!(matches!(probes.check(&ProbePoint::function("bogus")), Err(Error::NoProbe { .. })));
        assert!(matches!(probes.check(&ProbePoint::binary("/bin/sh", 0)), Err(Error::NoProbe { .. })));
    }

    #[test]
    fn fields_lie_where_a_compiler_places_them() {
        let mut probes = Probes::default();
        let fields = ["char comm[16]", "pid_t pid", "u64 bytes", "const char * name", "u8 last"];
        probes.add_tracepoint("sched", "x", fields).unwrap();
        let tracepoint = probes.tracepoint("sched", "x").unwrap();
        let places: Vec<_> = tracepoint.fields().iter().map(|field| (field.offset, field.size)).collect();
        assert_eq!(places, [(8, 16), (24, 4), (32, 8), (40, 8), (48, 1)]);
        assert_eq!(tracepoint.record_size(), 56);
        assert!(tracepoint.format().contains("\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n"));
        for bad in ["struct x y", "int", "int a[0]", "int a[x]", "char a[99999999]", "u64 4", "int é", "é"]
        {
            assert!(matches!(probes.add_tracepoint("a", "b", [bad]), Err(Error::BadProbe { .. })), "{bad}");
        }
        assert!(matches!(probes.add_tracepoint("sched", "x", []), Err(Error::ProbeTaken { .. })));
    }

    #[test]
    fn values_that_do_not_fit_a_record_are_refused() {
        let mut probes = Probes::default();
        probes.add_tracepoint("a", "b", ["char comm[4]", "s16 small"]).unwrap();
        let tracepoint = &probes.tracepoints()[0];
        let text = FieldValue::Text("abcd".to_owned());
        let record = tracepoint.record([("comm", &text), ("small", &FieldValue::Number(-2))]).unwrap();
        assert_eq!(record, [232, 3, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'd', 0xfe, 0xff, 0, 0]);
        let long = FieldValue::Text("abcde".to_owned());
        for (name, value) in
            [("comm", &long), ("small", &FieldValue::Number(1 << 16)), ("other", &FieldValue::Number(0))]
        {
            assert!(matches!(tracepoint.record([(name, value)]), Err(Error::BadProbe { .. })), "{name}");
        }
    }
}
