//! Random programs about lifetimes: a grammar of events that begin, use and end an object's life, in programs of many
//! types. Linux's verdicts on them show where skep and Linux disagree.
//!
//! ```text
//!   seed --> Maker: prologue, events, a use, releases of all objects --> an entry of a verdict file
//! ```
//!
//! A program is mostly valid: the maker tracks what it holds, checks for null, and releases everything. Sometimes it
//! omits a step, so about half of the programs are invalid. The same seed makes the same programs.
//!
//! ```text
//!   r6: the context   r7, r8, r9: objects   r10 - 8: a key   r10 - 48: an iterator   r10 - 64: a dynptr
//!   r10 - 80: a buffer   r10 - 88: a callback's context   r10 - 104, ...: objects to be released
//! ```

mod events;
mod sample;
mod tables;

pub use sample::sample;

use skep_btf::{Btf, Kind};
use tables::{MAPS, STAGES, Stage, Thing};

/// `count` entries of a verdict file. Offsets of members are those of `types`, a kernel's.
///
/// # Errors
///
/// A member is missing in the types.
pub fn lifetimes(types: &Btf, seed: u64, count: u64) -> Result<String, String> {
    let mut text = String::from("# Lifetimes: made by `cargo xtask verdicts --lifetimes`.\n");
    for names in tables::kernel_names().chunks(8) {
        text.push_str(&format!("# types: {}\n", names.join(" ")));
    }
    for at in 0..count {
        let chance =
            Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.wrapping_mul(0xd134_2543_de82_ef95));
        text.push('\n');
        text.push_str(&Maker::new(types, chance).program(&format!("{seed}-{at}"))?);
    }
    Ok(text)
}

/// A source of numbers (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True in `percent` of a hundred cases.
    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len()))
    }
}

/// The content of a register.
#[derive(Clone, Copy)]
struct Object {
    thing: Thing,
    /// It may be null: no check yet.
    unchecked: bool,
}

/// A reference to release.
#[derive(Clone, Copy)]
struct Reference {
    /// Bytes below `r10` of the slot with the pointer.
    slot: usize,
    release: &'static str,
}

/// A program under construction.
struct Maker<'a> {
    types: &'a Btf,
    chance: Chance,
    stage: &'static Stage,
    lines: Vec<String>,
    /// Functions after the program: declaration, if needed, and lines.
    functions: Vec<(Option<String>, String)>,
    objects: [Option<Object>; 3],
    references: Vec<Reference>,
    slots: usize,
    labels: usize,
    /// Whether it is in a read section, and whether preemption is disabled.
    sections: [bool; 2],
    /// The iterator, as an index of the table.
    iterator: Option<usize>,
    /// The call that releases the dynptr, if it needs one.
    dynptr: Option<Option<&'static str>>,
    names: Vec<String>,
}

/// The name of object register number `at`.
fn register(at: usize) -> &'static str {
    ["r7", "r8", "r9"][at % 3]
}

impl<'a> Maker<'a> {
    fn new(types: &'a Btf, mut chance: Chance) -> Self {
        let stage = &STAGES[chance.below(STAGES.len())];
        Self {
            types,
            chance,
            stage,
            lines: Vec::new(),
            functions: Vec::new(),
            objects: [None; 3],
            references: Vec::new(),
            slots: 104,
            labels: 0,
            sections: [false; 2],
            iterator: None,
            dynptr: None,
            names: Vec::new(),
        }
    }

    fn program(mut self, number: &str) -> Result<String, String> {
        self.emit("r6 = r1; *(u64 *)(r10 - 8) = 0; *(u64 *)(r10 - 80) = 0; *(u64 *)(r10 - 72) = 0");
        self.emit("*(u64 *)(r10 - 88) = 0; r7 = 0; r8 = 0; r9 = 0");
        self.argument();
        let events = 2 + self.chance.below(4);
        for _ in 0..events {
            self.event()?;
        }
        self.use_object()?;
        if self.chance.percent(93) {
            self.give_back();
        }
        if self.chance.percent(8) {
            self.use_object()?;
        }
        self.emit("r0 = 0; exit");
        Ok(self.entry(number))
    }

    /// The entry's text.
    fn entry(self, number: &str) -> String {
        let mut code: String = self.lines.iter().map(|line| format!("  {line}\n")).collect();
        for (_, body) in &self.functions {
            code.push_str(body);
        }
        let mut wanted: Vec<&str> = MAPS.iter().map(|map| map.0).collect();
        wanted.retain(|name| {
            code.contains(&format!("map[{name}]")) || *name == "inner" && code.contains("map[outer]")
        });
        let mut text = format!("== {number}-{}\ntype: {}\n", self.names.join("-"), self.stage.section);
        for (name, line) in MAPS.iter().filter(|map| wanted.contains(&map.0)) {
            // A program array is bound to one program type: a different size makes it another map.
            let own = STAGES.iter().position(|stage| stage.section == self.stage.section).unwrap_or(0);
            let line = line.replace("prog_array 4 4 4", &format!("prog_array 4 4 {}", 4 + own));
            text.push_str(&format!("map: {name} {line}\n"));
        }
        for declared in self.functions.iter().filter_map(|function| function.0.as_ref()) {
            text.push_str(&format!("func: {declared}\n"));
        }
        text.push_str("insns:\n");
        text.push_str(&code);
        text
    }

    /// Emits instructions separated by `;`. `L` is a label local to this text.
    fn emit(&mut self, text: &str) {
        let lines = self.labelled(text);
        self.lines.extend(lines);
    }

    fn labelled(&mut self, text: &str) -> Vec<String> {
        self.labels += 1;
        let label = format!("l{}", self.labels);
        let line = |line: &str| {
            let line = line.trim();
            match line {
                "L:" => format!("{label}:"),
                _ => line.replace("goto L", &format!("goto {label}")),
            }
        };
        text.split(';').map(line).collect()
    }

    /// Loads the program's argument that is an object.
    fn argument(&mut self) {
        let Some((at, thing, nullable)) = self.stage.argument else { return };
        self.emit(&format!("r7 = *(u64 *)(r6 + {})", 8 * at));
        self.objects[0] = Some(Object { thing, unchecked: nullable });
        if nullable && self.chance.percent(90) {
            self.check(0);
        }
    }

    /// Keeps the result of a call.
    fn keep(&mut self, thing: Thing, maybe_null: bool) -> usize {
        let at = self.chance.below(3);
        self.emit(&format!("{} = r0", register(at)));
        self.objects[at] = Some(Object { thing, unchecked: maybe_null });
        if maybe_null && self.chance.percent(92) {
            self.check(at);
        }
        at
    }

    /// Continues if the object is not null.
    fn check(&mut self, at: usize) {
        self.check_or_leave(register(at), None);
        if let Some(object) = &mut self.objects[at] {
            object.unchecked = false;
        }
    }

    /// Continues if the register is not null, and ends the program otherwise; `but` is not held there.
    fn check_or_leave(&mut self, reg: &str, but: Option<usize>) {
        self.labels += 1;
        let label = format!("ok{}", self.labels);
        self.lines.push(format!("if {reg} != 0 goto {label}"));
        for line in self.cleanup(but) {
            self.lines.push(line);
        }
        self.emit("r0 = 0; exit");
        self.lines.push(format!("{label}:"));
    }

    /// Releases everything held, in order; `but` is the slot of the reference that is not held.
    fn cleanup(&self, but: Option<usize>) -> Vec<String> {
        let mut lines = Vec::new();
        let mut say = |text: &str| lines.extend(text.split(';').map(|line| line.trim().to_owned()));
        if let Some(at) = self.iterator {
            say(&format!("r1 = r10; r1 += -48; call kfunc[bpf_iter_{}_destroy]", tables::ITERATORS[at].0));
        }
        if let Some(Some(text)) = self.dynptr {
            say(text);
        }
        for reference in self.references.iter().filter(|reference| Some(reference.slot) != but) {
            say(&format!("r1 = *(u64 *)(r10 - {}); call {}", reference.slot, reference.release));
        }
        if self.sections[1] {
            say("call kfunc[bpf_preempt_enable]");
        }
        if self.sections[0] {
            say("call kfunc[bpf_rcu_read_unlock]");
        }
        lines
    }

    fn give_back(&mut self) {
        let lines = self.cleanup(None);
        self.lines.extend(lines);
        (self.iterator, self.dynptr, self.sections) = (None, None, [false; 2]);
        self.references.clear();
    }

    /// The offset of a member in a structure of the kernel; names are separated by dots.
    fn offset(&self, of: &str, path: &str) -> Result<u32, String> {
        let missing = || format!("the types have no {of}.{path}");
        let mut ty = self.types.find(of, Kind::Struct).ok_or_else(missing)?;
        let mut bits = 0;
        for name in path.split('.') {
            let (at, to) = find_member(self.types, ty, name, 0).ok_or_else(missing)?;
            bits += at;
            ty = to;
        }
        Ok(bits / 8)
    }
}

/// The bit offset of a member and its type; members of anonymous members are found, too.
fn find_member(types: &Btf, ty: u32, name: &str, depth: u32) -> Option<(u32, u32)> {
    for member in types.members(ty).ok()? {
        let named = member.name().ok()?;
        if named == name {
            return Some((member.bit_offset, member.ty));
        }
        if named.is_empty()
            && depth < 8
            && let Some((at, ty)) = find_member(types, member.ty, name, depth + 1)
        {
            return Some((member.bit_offset + at, ty));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, entries};

    #[test]
    fn every_seed_makes_valid_entries() {
        let types = include_bytes!("../../crates/skep-verifier/verdicts/linux.btf");
        let types = Btf::parse(&types[..]).unwrap();
        let text = lifetimes(&types, 7, 400).unwrap();
        assert_eq!(lifetimes(&types, 7, 400).unwrap(), text);
        assert_ne!(lifetimes(&types, 8, 400).unwrap(), text);
        let entries = entries(&text).unwrap();
        assert_eq!(entries.len(), 400);
        for entry in &entries {
            Program::of(entry).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        }
    }
}
