//! The BTF for the load of an entry: its functions' prototypes, and its maps' value types.

use std::collections::HashMap;

use skep_abi::{Function, MapKind};
use skep_isa::{Imm64, Insn};

use crate::entry::Entry;
use crate::function::Argument;
use crate::map::{Field, MapLine};
use crate::program::Program;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;

/// BTF, and the ids in it that a load names.
#[derive(Clone, Debug)]
pub struct Described {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// For each map, the types of its key and value, or zeroes.
    pub maps: Vec<(u32, u32)>,
    /// The first slot and the type of each function.
    pub functions: Vec<(u32, u32)>,
}

/// BTF for an entry, if it needs any.
pub fn describe(entry: &Entry, program: &Program) -> Option<Described> {
    let callback = |insn: &Insn| matches!(insn, Insn::LoadImm64 { value: Imm64::Function(_), .. });
    let callbacks = program.insns.iter().any(callback);
    // Linux takes types of a program's own only with those of its functions.
    let own = !entry.structs.is_empty();
    let of_functions = callbacks || own || !entry.functions.is_empty() || !entry.tags.is_empty();
    if !of_functions && !entry.maps.iter().any(needs_types) {
        return None;
    }
    let mut types = Types::default();
    types.own(entry);
    let maps = entry.maps.iter().map(|map| if needs_types(map) { types.map(map) } else { (0, 0) }).collect();
    let mut described = Vec::new();
    if of_functions {
        for function in &program.functions {
            described.push((function.start, types.function(entry, function)));
        }
    }
    Some(Described { bytes: types.bytes(), maps, functions: described })
}

/// The structures of the program's own, with their numbers.
pub(crate) fn own_types(entry: &Entry) -> HashMap<String, u32> {
    let mut types = Types::default();
    types.own(entry);
    types.own
}

/// Kinds of maps that Linux creates only with types.
fn needs_types(map: &MapLine) -> bool {
    use MapKind::{CgrpStorage, InodeStorage, SkStorage, TaskStorage};
    !map.fields.is_empty() || matches!(map.def.kind, SkStorage | InodeStorage | TaskStorage | CgrpStorage)
}

/// Writes types, and remembers those already written.
#[derive(Default)]
struct Types {
    records: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    known: HashMap<Vec<u8>, u32>,
    /// The structures of the program's own.
    own: HashMap<String, u32>,
}

impl Types {
    fn bytes(self) -> Vec<u8> {
        let strings = [&[0], &self.strings[..]].concat();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, self.records.len(), self.records.len(), strings.len()] {
            bytes.extend((word as u32).to_le_bytes());
        }
        bytes.extend(self.records);
        bytes.extend(strings);
        bytes
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let offset = self.strings.len() as u32 + 1;
        self.strings.extend(text.bytes());
        self.strings.push(0);
        offset
    }

    /// The id of a type with that name; equal types are written once.
    fn add(&mut self, kind: u32, name: &str, count: usize, size_or_type: u32, rest: &[u32]) -> u32 {
        let words = [kind << 24 | count as u32, size_or_type];
        let record: Vec<u8> = words.iter().chain(rest).flat_map(|word| word.to_le_bytes()).collect();
        let key = [name.as_bytes(), &[0], &record].concat();
        if let Some(id) = self.known.get(&key) {
            return *id;
        }
        let name = self.string(name);
        self.records.extend(name.to_le_bytes());
        self.records.extend(record);
        self.count += 1;
        self.known.insert(key, self.count);
        self.count
    }

    fn number(&mut self, name: &str, bytes: u32, signed: bool) -> u32 {
        self.add(INT, name, 0, bytes, &[(u32::from(signed) << 24) | (bytes * 8)])
    }

    fn int(&mut self) -> u32 {
        self.number("int", 4, true)
    }

    /// An array of `bytes` bytes.
    fn filler(&mut self, bytes: u32) -> u32 {
        let (char, index) = (self.number("char", 1, true), self.number("unsigned int", 4, false));
        self.add(ARRAY, "", 0, 0, &[char, index, bytes])
    }

    /// A structure of these members: name, type, offset in bytes.
    fn structure(&mut self, name: &str, size: u32, members: &[(String, u32, u32)]) -> u32 {
        let rest: Vec<u32> =
            members.iter().flat_map(|(name, kind, offset)| [self.string(name), *kind, offset * 8]).collect();
        self.add(STRUCT, name, members.len(), size, &rest)
    }

    /// A structure of the kernel, by name; Linux looks up the rest itself.
    fn foreign(&mut self, name: &str) -> u32 {
        let int = self.int();
        self.structure(name, 4, &[("opaque".to_owned(), int, 0)])
    }

    fn map(&mut self, map: &MapLine) -> (u32, u32) {
        let key = if map.def.key_size == 4 { self.int() } else { self.filler(map.def.key_size) };
        let name = format!("value_of_{}", map.def.name);
        (key, self.with_fields(&name, map.def.value_size, &map.fields))
    }

    /// The structures of the program's own.
    fn own(&mut self, entry: &Entry) {
        for own in &entry.structs {
            let id = self.with_fields(&own.name, own.bytes, &own.fields);
            self.own.insert(own.name.clone(), id);
        }
    }

    /// A structure with these special fields, and numbers between them.
    fn with_fields(&mut self, name: &str, bytes: u32, fields: &[Field]) -> u32 {
        let mut members = Vec::new();
        let mut end = 0;
        let pad = |types: &mut Self, from: u32, to: u32, members: &mut Vec<_>| {
            if to > from {
                members.push((format!("pad{from}"), types.filler(to - from), from));
            }
        };
        let mut tags = Vec::new();
        for field in fields {
            pad(self, end, field.offset, &mut members);
            if let (true, Some(of)) = (matches!(field.what.as_str(), "list" | "tree"), &field.of) {
                tags.push((members.len() as u32, format!("contains:{of}")));
            }
            members.push((format!("{}{}", field.what, field.offset), self.field(field), field.offset));
            end = field.offset + field.size();
        }
        pad(self, end, bytes, &mut members);
        let id = self.structure(name, bytes, &members);
        for (member, tag) in tags {
            self.add(DECL_TAG, &tag, 0, id, &[member]);
        }
        id
    }

    fn field(&mut self, field: &Field) -> u32 {
        let opaque = |types: &mut Self, name: &str, bytes| {
            let inside = types.filler(bytes);
            types.structure(name, bytes, &[("opaque".to_owned(), inside, 0)])
        };
        match (field.what.as_str(), &field.of) {
            ("lock", _) => opaque(self, "bpf_spin_lock", 4),
            ("timer", _) => opaque(self, "bpf_timer", 16),
            ("wq", _) => opaque(self, "bpf_wq", 16),
            ("refcount", _) => opaque(self, "bpf_refcount", 4),
            ("lnode", _) => opaque(self, "bpf_list_node", 24),
            ("rnode", _) => opaque(self, "bpf_rb_node", 32),
            ("list", _) => opaque(self, "bpf_list_head", 16),
            ("tree", _) => opaque(self, "bpf_rb_root", 16),
            ("ptr", _) => {
                let target = self.int();
                self.add(PTR, "", 0, target, &[])
            }
            (what, of) => {
                let of = of.as_deref().unwrap_or("");
                let target = self.own.get(of).copied().unwrap_or_else(|| self.foreign(of));
                let tag = match what {
                    "pkptr" => "percpu_kptr",
                    "ukptr" => "kptr_untrusted",
                    _ => "kptr",
                };
                let tagged = self.add(TYPE_TAG, tag, 0, target, &[]);
                self.add(PTR, "", 0, tagged, &[])
            }
        }
    }

    fn argument(&mut self, entry: &Entry, argument: &Argument) -> u32 {
        let target = match argument {
            Argument::Void => return 0,
            Argument::Number(name, bytes, signed) => return self.number(name, *bytes, *signed),
            Argument::NumberAt(name, bytes, signed) => self.number(name, *bytes, *signed),
            Argument::Struct(name) => self.foreign(name),
            Argument::Memory(bytes) => {
                let inside = self.filler(*bytes);
                self.structure(&format!("mem{bytes}"), *bytes, &[("bytes".to_owned(), inside, 0)])
            }
            Argument::Context => match crate::Section::of(&entry.section).and_then(|section| section.context)
            {
                Some(name) => self.foreign(name),
                None => 0,
            },
        };
        self.add(PTR, "", 0, target, &[])
    }

    fn function(&mut self, entry: &Entry, function: &Function) -> u32 {
        let line = entry.functions.iter().find(|line| line.name == function.name);
        let none = Vec::new();
        let main = vec![(Argument::Context, Vec::new())];
        let (result, arguments) = match line {
            Some(line) => (&line.result, &line.arguments),
            None if function.start == 0 => (&Argument::Number("int", 4, true), &main),
            None => (&Argument::Number("int", 4, true), &none),
        };
        let result = self.argument(entry, result);
        let mut rest = Vec::new();
        for (index, (argument, _)) in arguments.iter().enumerate() {
            rest.extend([self.string(&format!("a{index}")), self.argument(entry, argument)]);
        }
        let proto = self.add(FUNC_PROTO, "", arguments.len(), result, &rest);
        let linkage = usize::from(function.global);
        let id = self.add(FUNC, &function.name, linkage, proto, &[]);
        for (index, (_, tags)) in arguments.iter().enumerate() {
            for tag in tags {
                self.add(DECL_TAG, &format!("arg:{tag}"), 0, id, &[index as u32]);
            }
        }
        for (_, text) in entry.tags.iter().filter(|(tagged, _)| *tagged == function.name) {
            self.add(DECL_TAG, text, 0, id, &[u32::MAX]);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries;

    #[test]
    fn btf_is_made_only_if_needed_with_the_right_sizes() {
        let text = "== x\ntype: xdp\nmap: m array 4 64 1 lock@0 timer@16\nmap: n array 4 8 1\ninsns:\nr0 = 0\nexit\n";
        let described = |text: &str| {
            let entry = &entries(text).unwrap()[0];
            describe(entry, &Program::of(entry).unwrap())
        };
        assert!(described(&text.replace("lock@0 timer@16", "")).is_none());
        let described = described(text).unwrap();
        assert!(described.maps[0].1 > 0 && described.maps[1] == (0, 0));
        let word = |at: usize| u32::from_le_bytes(described.bytes[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(described.bytes.len(), 24 + word(12) + word(20));
        assert_eq!(word(16), word(12));
    }
}
