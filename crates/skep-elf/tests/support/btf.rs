//! Makes `.BTF` and `.BTF.ext` sections by hand.

#[path = "../../../skep-btf/tests/support/types.rs"]
mod types;

pub use types::Types;

use super::ObjectFile;

/// An attribute of a map.
pub enum Attribute {
    /// `__uint(name, number)`
    Number(&'static str, u32),
    /// `__type(name, type)`
    Type(&'static str, u32),
    /// A member of that exact type.
    Member(&'static str, u32),
}

impl Types {
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
}

/// An object with a program and one map `m` with these attributes; `types` contains the types that they refer to.
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
