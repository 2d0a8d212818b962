//! Makes `.BTF` sections by hand.

/// A BTF section under construction. Methods return the id of the type that they add.
#[derive(Default)]
pub struct Types {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    /// The offset of the first string, after those of the base.
    first_string: u32,
}

impl Types {
    pub fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    /// Types that extend those of `base`, which has that many bytes of strings.
    pub fn after(base: &Self) -> Self {
        Self { count: base.count, first_string: base.strings.len() as u32, ..Self::default() }
    }

    pub fn int(&mut self, name: &str, bytes: u32) -> u32 {
        self.add(name, 1, 0, bytes, &[bytes * 8])
    }

    pub fn signed(&mut self, name: &str, bytes: u32) -> u32 {
        self.add(name, 1, 0, bytes, &[(1 << 24) | (bytes * 8)])
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

    pub fn constant(&mut self, of: u32) -> u32 {
        self.add("", 10, 0, of, &[])
    }

    /// A type tag of a pointer's target.
    pub fn tag(&mut self, name: &str, of: u32) -> u32 {
        self.add(name, 18, 0, of, &[])
    }

    /// A structure with members one after the other, 8 bytes each.
    pub fn structure(&mut self, name: &str, members: &[(&str, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (index, (name, ty)) in members.iter().enumerate() {
            tail.extend([self.string(name), *ty, index as u32 * 64]);
        }
        self.add(name, 4, members.len() as u32, members.len() as u32 * 8, &tail)
    }

    /// A structure (kind 4) or union (kind 5) of that size; members with their offsets in bytes.
    pub fn composite(&mut self, kind: u32, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (name, ty, offset) in members {
            tail.extend([self.string(name), *ty, offset * 8]);
        }
        self.add(name, kind, members.len() as u32, size, &tail)
    }

    /// A structure with bit fields; members with their offsets and widths in bits (0: no bit field).
    pub fn bit_fields(&mut self, name: &str, size: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (name, ty, offset, bits) in members {
            tail.extend([self.string(name), *ty, bits << 24 | offset]);
        }
        self.add(name, 4, 1 << 31 | members.len() as u32, size, &tail)
    }

    /// An enumeration of 32-bit values.
    pub fn enumeration(&mut self, name: &str, values: &[(&str, i32)]) -> u32 {
        let mut tail = Vec::new();
        for (name, value) in values {
            tail.extend([self.string(name), value.cast_unsigned()]);
        }
        let signed = u32::from(values.iter().any(|(_, value)| *value < 0)) << 31;
        self.add(name, 6, signed | values.len() as u32, 4, &tail)
    }

    pub fn function_type(&mut self) -> u32 {
        self.add("", 13, 0, 0, &[])
    }

    /// A function with its prototype; `linkage` is 0 for static, 1 for global, 2 for extern.
    pub fn function(&mut self, name: &str, linkage: u32, result: u32, params: &[(&str, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (name, ty) in params {
            tail.extend([self.string(name), *ty]);
        }
        let prototype = self.add("", 13, params.len() as u32, result, &tail);
        self.add(name, 12, linkage, prototype, &[])
    }

    /// The type of a section's variables: name, type, offset, size of each.
    pub fn data_section(&mut self, name: &str, variables: &[(&str, u32, u32, u32)]) -> u32 {
        let mut tail = Vec::new();
        for (name, ty, offset, size) in variables {
            tail.extend([self.add(name, 14, 0, *ty, &[1]), *offset, *size]);
        }
        self.add(name, 15, variables.len() as u32, 0, &tail)
    }

    /// A type with all its fields given. The highest bit of `count` is the flag.
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
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend(string.as_bytes());
        self.strings.push(0);
        at
    }

    /// The section's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, self.types.len(), self.types.len(), self.strings.len()] {
            bytes.extend((word as u32).to_le_bytes());
        }
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }
}
