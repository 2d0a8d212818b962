//! The entries of a file.

use std::fmt;

use crate::{FunctionLine, MapLine, StructLine};

/// An error in a file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub problem: String,
}

impl Trouble {
    pub(crate) fn new(line: usize, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for Trouble {}

/// A verifier's verdict on a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The program is accepted.
    Accept,
    /// The program is refused, with the reason: the last line of Linux's log, or skep's class of the refusal.
    Refuse(String),
    /// There is no verdict, because Linux does not have programs of this type.
    None,
}

impl Verdict {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "accept" => Some(Self::Accept),
            "none" => Some(Self::None),
            "refuse" => Some(Self::Refuse(String::new())),
            _ => Some(Self::Refuse(text.strip_prefix("refuse:")?.trim().to_owned())),
        }
    }

    /// Whether both accept or both refuse, for any reason.
    pub fn agrees_with(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Accept, Self::Accept) | (Self::Refuse(_), Self::Refuse(_)) | (Self::None, Self::None)
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::None => f.write_str("none"),
            Self::Refuse(why) if why.is_empty() => f.write_str("refuse"),
            Self::Refuse(why) => write!(f, "refuse: {why}"),
        }
    }
}

/// A program of a file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The line of its name, from 1.
    pub line: usize,
    /// Its type, as a section name of libbpf.
    pub section: String,
    /// The maps that it may name.
    pub maps: Vec<MapLine>,
    /// The structures of its own, for objects that it allocates.
    pub structs: Vec<StructLine>,
    /// The prototypes of its functions, if given.
    pub functions: Vec<FunctionLine>,
    /// Declaration tags: the function and the tag.
    pub tags: Vec<(String, String)>,
    /// Its licence.
    pub license: String,
    /// Flags of the load, with Linux's values.
    pub flags: u32,
    /// The expected attach type, if the section does not determine it.
    pub attach: Option<u32>,
    /// Whether it is loaded without the capabilities that let programs read the kernel's memory.
    pub unprivileged: bool,
    /// Linux's verdict.
    pub linux: Option<Verdict>,
    /// skep's expected verdict, if it differs from Linux's or is more precise.
    pub skep: Option<Verdict>,
    /// skep's expected verdict for privileged programs, which may let addresses out, if that is another one.
    pub privileged: Option<Verdict>,
    /// Why they differ.
    pub why: Option<String>,
    /// The packet that it is run on.
    pub packet: Option<String>,
    /// Fields of the context before the run.
    pub context: String,
    /// Linux's answer to the run.
    pub answer: Option<String>,
    /// skep's answer, if it differs.
    pub differs: Option<String>,
    /// Its instructions as text.
    pub text: String,
    /// The first line of the text, from 1.
    pub text_line: usize,
}

/// Names of flags of a load.
const FLAGS: [(&str, u32); 6] = [
    ("strict_alignment", 1),
    ("any_alignment", 2),
    ("test_state_freq", 8),
    ("sleepable", 16),
    ("xdp_has_frags", 32),
    ("test_reg_invariants", 128),
];

/// The entries of a file's text.
///
/// # Errors
///
/// The first invalid line, or the first incomplete entry.
pub fn entries(text: &str) -> Result<Vec<Entry>, Trouble> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut in_program = false;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(name) = line.strip_prefix("== ") {
            let name = name.trim();
            if let Some(twin) = entries.iter().find(|entry| entry.name == name) {
                return Err(Trouble::new(number, format!("{name} is already defined in line {}", twin.line)));
            }
            if let Some(last) = entries.last() {
                last.check()?;
            }
            entries.push(Entry::new(name, number));
            in_program = false;
        } else if let Some(entry) = entries.last_mut().filter(|_| in_program) {
            entry.text.push_str(line);
            entry.text.push('\n');
        } else if line.trim() == "insns:" {
            let Some(entry) = entries.last_mut() else {
                return Err(Trouble::new(number, "instructions before the first entry"));
            };
            entry.text_line = number + 1;
            in_program = true;
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            let Some((entry, (key, value))) = entries.last_mut().zip(line.split_once(':')) else {
                return Err(Trouble::new(number, "expected `== NAME`, `KEY: VALUE` or a comment"));
            };
            entry.set(key.trim(), value.trim()).map_err(|problem| Trouble::new(number, problem))?;
        }
    }
    if let Some(last) = entries.last() {
        last.check()?;
    }
    Ok(entries)
}

impl Entry {
    fn new(name: &str, line: usize) -> Self {
        Self {
            name: name.to_owned(),
            line,
            section: String::new(),
            maps: Vec::new(),
            structs: Vec::new(),
            functions: Vec::new(),
            tags: Vec::new(),
            license: "GPL".to_owned(),
            flags: 0,
            attach: None,
            unprivileged: false,
            linux: None,
            skep: None,
            privileged: None,
            why: None,
            packet: None,
            context: String::new(),
            answer: None,
            differs: None,
            text: String::new(),
            text_line: 0,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let verdict = || Verdict::parse(value).ok_or("expected `accept`, `refuse: WHY` or `none`".to_owned());
        match key {
            "type" => self.section = value.to_owned(),
            "map" => self.maps.push(MapLine::parse(value)?),
            "struct" => self.structs.push(StructLine::parse(value)?),
            "func" => self.functions.push(FunctionLine::parse(value)?),
            "tag" => {
                let (function, text) = value.split_once(' ').ok_or("expected `FUNCTION TEXT`")?;
                self.tags.push((function.to_owned(), text.trim().to_owned()));
            }
            "license" => self.license = value.to_owned(),
            "flags" => self.flags = flags(value)?,
            "attach" => {
                self.attach = Some(value.parse().map_err(|_| format!("{value} is not an attach type"))?)
            }
            "caps" if value == "bpf" => self.unprivileged = true,
            "caps" => return Err(format!("{value}: expected `bpf`")),
            "linux" => self.linux = Some(verdict()?),
            "skep" => self.skep = Some(verdict()?),
            "privileged" => self.privileged = Some(verdict()?),
            "packet" => self.packet = Some(value.to_owned()),
            "context" => self.context = value.to_owned(),
            "answer" => self.answer = Some(value.to_owned()),
            "differs" => self.differs = Some(value.to_owned()),
            "why" => self.why = Some(value.to_owned()),
            _ => return Err(format!("{key} is not a key of an entry")),
        }
        Ok(())
    }

    /// Checks that the entry is complete.
    fn check(&self) -> Result<(), Trouble> {
        let trouble = |problem: &str| Err(Trouble::new(self.line, format!("{}: {problem}", self.name)));
        if self.section.is_empty() {
            return trouble("no type");
        }
        if self.text.trim().is_empty() {
            return trouble("no instructions");
        }
        if self.differs.is_some() && self.why.is_none() {
            return trouble("skep's answer differs from Linux's, but no line `why:` says why");
        }
        match (&self.linux, &self.skep, &self.why) {
            (Some(linux), Some(skep), None) if !skep.agrees_with(linux) => {
                trouble("skep differs from Linux, but no line `why:` says why")
            }
            (Some(linux), _, None) if self.privileged.as_ref().is_some_and(|own| !own.agrees_with(linux)) => {
                trouble("privileged differs from Linux, but no line `why:` says why")
            }
            (Some(Verdict::None), None, _) => trouble("Linux says nothing, so a line `skep:` must"),
            _ => Ok(()),
        }
    }

    /// skep's expected verdict: its own line if there is one, otherwise Linux's.
    pub fn expected(&self) -> Option<&Verdict> {
        self.skep.as_ref().or(self.linux.as_ref())
    }

    /// The same for privileged programs.
    pub fn expected_privileged(&self) -> Option<&Verdict> {
        self.privileged.as_ref().or_else(|| self.expected())
    }
}

fn flags(value: &str) -> Result<u32, String> {
    value.split([' ', ',']).filter(|word| !word.is_empty()).try_fold(0, |flags, word| {
        let named = FLAGS.iter().find(|(name, _)| *name == word).map(|(_, flag)| *flag);
        let flag = named.or_else(|| number(word)).ok_or_else(|| format!("{word} is not a flag"))?;
        Ok(flags | flag)
    })
}

/// A decimal number, or a hexadecimal one after `0x`.
pub(crate) fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# two of them
== first
type: xdp
map: m hash 4 8 16
linux: refuse: R1 !read_ok
insns:
  r0 = r1

  exit
== second
type: tc
flags: strict_alignment 0x10
linux: accept
skep: refuse: limit
why: It is long.
insns:
  exit
";

    #[test]
    fn entries_are_read_completely() {
        let entries = entries(TEXT).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].linux, Some(Verdict::Refuse("R1 !read_ok".to_owned())));
        assert_eq!((entries[0].text_line, entries[0].text.lines().count()), (7, 3));
        assert_eq!(entries[1].flags, 0x11);
        assert_eq!(entries[1].expected(), Some(&Verdict::Refuse("limit".to_owned())));
        assert_eq!(entries[0].expected(), entries[0].linux.as_ref());
    }

    #[test]
    fn missing_and_unknown_keys_are_refused_with_their_line() {
        let line = |text: &str| entries(text).unwrap_err().line;
        assert_eq!(line(&TEXT.replace("why: It is long.\n", "")), 10);
        assert_eq!(line(&TEXT.replace("type: tc", "typo: tc")), 11);
        assert_eq!(line(&TEXT.replace("second", "first")), 10);
        assert_eq!(line(&TEXT.replace("type: xdp\n", "")), 2);
        assert_eq!(line("type: xdp"), 1);
    }
}
