//! Where to stop.

use crate::recording::Recording;
use skep::abi::linux_helper;
use skep::interp::Callee;

/// A place at which [`Cursor::proceed`](crate::Cursor::proceed) stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Breakpoint {
    /// Where control comes to a line, of any file or of those whose path ends like this.
    Line {
        /// `None` for any.
        file: Option<String>,
        /// From 1.
        line: u32,
    },
    /// The first instruction of a function.
    Function {
        /// Its index in [`skep::Verified::functions`].
        function: usize,
    },
    /// An instruction.
    Slot(u32),
    /// A call of a helper.
    Helper(u32),
    /// A call of a helper that always gets this map.
    Map {
        /// Its index in [`skep::Verified::maps`].
        map: u32,
    },
}

impl Breakpoint {
    /// The place that a text names: `LINE`, `FILE:LINE`, `*SLOT`, or the name of a function, helper or map.
    ///
    /// # Errors
    ///
    /// What is wrong, and what there is.
    pub fn parse(text: &str, of: &Recording) -> Result<Self, String> {
        let program = of.verified();
        if let Some(slot) = text.strip_prefix('*') {
            return match slot.parse() {
                Ok(slot) if (slot as usize) < program.insns().len() => Ok(Self::Slot(slot)),
                _ => Err(format!("no instruction {slot}: expected a number below {}", program.insns().len())),
            };
        }
        let (file, line) = match text.rsplit_once(':') {
            Some((file, line)) => (Some(file.to_owned()), line),
            None => (None, text),
        };
        if let Ok(line) = line.parse::<u32>() {
            let breakpoint = Self::Line { file, line };
            let known = program.lines().iter();
            let known = known.filter(|known| breakpoint.is_in_file(&known.file)).map(|known| known.line);
            if !known.clone().any(|known| known == line) {
                let nearest = known.clone().filter(|known| *known > line).min().or_else(|| known.max());
                let hint = nearest.map_or_else(
                    || "the object has no lines of it: was it compiled with -g?".to_owned(),
                    |nearest| format!("the nearest line with code is {nearest}"),
                );
                return Err(format!("no code at line {line}; {hint}"));
            }
            return Ok(breakpoint);
        }
        if let Some(function) = program.functions().iter().position(|function| function.name == text) {
            return Ok(Self::Function { function });
        }
        if let Some(map) = program.maps().iter().position(|map| map.name == text) {
            return Ok(Self::Map { map: map as u32 });
        }
        let mut helpers = (1..MOST_HELPERS).filter_map(linux_helper);
        let short = text.strip_prefix("bpf_").unwrap_or(text);
        let matches = |name: &str| name == text || name.strip_prefix("bpf_").unwrap_or(name) == short;
        if let Some(helper) = helpers.find(|helper| matches(&helper.name)) {
            return Ok(Self::Helper(helper.id));
        }
        let functions: Vec<&str> = program.functions().iter().map(|function| &*function.name).collect();
        Err(format!("nothing is called {text:?}; the functions are {}", functions.join(", ")))
    }

    /// Whether the recording stops here at a step.
    pub(crate) fn hits(&self, of: &Recording, at: usize) -> bool {
        let step = &of.steps[at];
        match self {
            Self::Slot(slot) => step.slot == *slot,
            Self::Function { function } => of.verified().functions()[*function].start == step.slot,
            Self::Helper(id) => step.called.is_some_and(|called| called.callee == Callee::Helper(*id)),
            Self::Map { map } => {
                let fact = of.verified().facts().get(step.slot as usize);
                step.called.is_some() && fact.and_then(|fact| fact.call?.map) == Some(*map)
            }
            Self::Line { line, .. } => {
                let index = line_of(of, at);
                let is_here = |index: usize| {
                    let known = &of.verified().lines()[index];
                    known.line == *line && self.is_in_file(&known.file)
                };
                let comes = at == 0
                    || line_of(of, at - 1) != index
                    || of.steps[at - 1].frames.len() != step.frames.len()
                    || of.steps[at - 1].slot >= step.slot;
                comes && index.is_some_and(is_here)
            }
        }
    }

    fn is_in_file(&self, path: &str) -> bool {
        match self {
            Self::Line { file: Some(file), .. } => path.ends_with(&**file),
            _ => true,
        }
    }
}

/// Numbers of Linux's helpers are below this.
const MOST_HELPERS: u32 = 300;

/// The record of the source line that a step's instruction is of, by its index in [`skep::Verified::lines`].
pub(crate) fn line_of(of: &Recording, at: usize) -> Option<usize> {
    let slot = of.steps[at].slot;
    of.verified().lines().partition_point(|line| line.slot <= slot).checked_sub(1)
}
