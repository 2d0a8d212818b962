//! Makes `.BTF` sections by hand.

use super::ObjectFile;

/// Types in the making. Methods return the number of the type they add.
#[derive(Default)]
pub struct Types {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

/// An attribute of a map.
pub enum Attribute {
    /// `__uint(name, number)`
    Number(&'static str, u32),
    /// `__type(name, type)`
    Type(&'static str, u32),
    /// A member of that very type.
    Member(&'static str, u32),
}

impl Types {
    pub fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    pub fn int(&mut self, name: &str, bytes: u32) -> u32 {
        self.add(name, 1, 0, bytes, &[bytes * 8])
    }

    pub fn pointer(&mut self, to: u32) -> u32 {
        self.add("", 2, 0, to, &[])
    }

    pub fn array(&mut self, of: u32, count: u32) -> u32 {
        self.add("", 3, 0, 0, &[of, of, count])
    }

    pub fn typedef(&mut self, name: &str, of: u32) -> u32 {
        self.add(name, 8, 0, of, &[])
    }

    /// Members lie one after the other, 8 bytes each.
    pub fn structure(&mut self, name: &str, members: &[(&str, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (index, (name, ty)) in members.iter().enumerate() {
            tail.extend([self.string(name), *ty, index as u32 * 64]);
        }
        self.add(name, 4, members.len() as u32, members.len() as u32 * 8, &tail)
    }

    pub fn function_type(&mut self) -> u32 {
        self.add("", 13, 0, 0, &[])
    }

    /// The type of a section's variables: name, type, offset, size of each.
    pub fn data_section(&mut self, name: &str, variables: &[(&str, u32, u32, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (name, ty, offset, size) in variables {
            tail.extend([self.add(name, 14, 0, *ty, &[1]), *offset, *size]);
        }
        self.add(name, 15, variables.len() as u32, 0, &tail)
    }

    /// A type with every field of it.
    pub fn add(&mut self, name: &str, kind: u32, count: u32, word: u32, tail: &[u32]) -> u32 {
        let name = self.string(name);
        for word in [name, kind << 24 | count, word].iter().chain(tail) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    pub fn string(&mut self, string: &str) -> u32 {
        if string.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(string.as_bytes());
        self.strings.push(0);
        at
    }

    /// A structure with the attributes of a map.
    pub fn map(&mut self, attributes: &[Attribute]) -> u32 {
        let int = self.int("int", 4);
        let members: Vec<_> = attributes
            .iter()
            .map(|attribute| match *attribute {
                Attribute::Number(name, number) => {
                    let array = self.array(int, number);
                    (name, self.pointer(array))
                }
                Attribute::Type(name, ty) => (name, self.pointer(ty)),
                Attribute::Member(name, ty) => (name, ty),
            })
            .collect();
        self.structure("", &members)
    }

    /// The section's bytes.
    pub fn build(self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, self.types.len(), self.types.len(), self.strings.len()] {
            bytes.extend((word as u32).to_le_bytes());
        }
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}

/// An object with a program and one map `m` of these attributes; `types` may hold what they refer to.
pub fn object_with_map(mut types: Types, attributes: &[Attribute]) -> Vec<u8> {
    let map = types.map(attributes);
    let size = attributes.len() as u32 * 8;
    types.data_section(".maps", &[("m", map, 0, size)]);
    let mut file = ObjectFile::with_program();
    let maps = file.data(".maps", &vec![0; size as usize]);
    file.variable("m", maps, 0, size.into());
    file.info(".BTF", types.build());
    file.build()
}

/// `.BTF.ext` with line records about one section: offset, file, text, line << 10 | column. Names are
/// offsets into the strings of `.BTF`.
pub fn lines(section: u32, records: &[[u32; 4]]) -> Vec<u8> {
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let length = 4 + 8 + records.len() as u32 * 16;
    for word in
        [24, 0, 0, 0, length, 16, section, records.len() as u32].iter().chain(records.iter().flatten())
    {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}
