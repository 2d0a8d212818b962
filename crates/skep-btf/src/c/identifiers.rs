//! Names that C allows, each for one type.

use crate::error::Error;
use crate::types::{Kind, Type};
use std::collections::{HashMap, HashSet};

/// Keywords of C11 and of GNU C. Later ones (`bool`, `true`) are names in kernels' types.
const RESERVED: &[&str] = &[
    "asm", "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum",
    "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return",
    "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "typeof", "union", "unsigned",
    "void", "volatile", "while",
];

/// The spaces of names of a header. A second type of a name gets a flavour.
#[derive(Default)]
pub(super) struct Identifiers {
    tags: Space,
    ordinary: Space,
    declared: HashSet<String>,
}

#[derive(Default)]
struct Space {
    /// By type, and number of an enumerator.
    of: HashMap<(u32, usize), String>,
    /// How often a name was wanted.
    taken: HashMap<String, u32>,
}

impl Space {
    fn name(&mut self, key: (u32, usize), name: &str) -> String {
        if let Some(known) = self.of.get(&key) {
            return known.clone();
        }
        let wanted = name.to_owned();
        let mut given = wanted.clone();
        loop {
            let count = self.taken.entry(wanted.clone()).or_insert(0);
            *count += 1;
            if *count > 1 {
                given = format!("{wanted}___{count}");
            }
            // A file may have a type of that very flavour.
            if given == wanted || !self.taken.contains_key(&given) {
                break;
            }
        }
        if given != wanted {
            self.taken.insert(given.clone(), 1);
        }
        self.of.insert(key, given.clone());
        given
    }
}

impl Identifiers {
    /// The name of a structure, union or enumeration.
    pub(super) fn tag(&mut self, id: u32, name: &str) -> String {
        self.tags.name((id, 0), &Self::allowed(name))
    }

    /// The name of a type name.
    pub(super) fn ordinary(&mut self, id: u32, name: &str) -> String {
        self.ordinary.name((id, 0), &Self::allowed(name))
    }

    /// The name of an enumerator.
    pub(super) fn enumerator(&mut self, id: u32, index: usize, name: &str) -> String {
        // A type name has no enumerators.
        self.ordinary.name((id, index + 1), &Self::allowed(name))
    }

    /// Whether this declaration (`struct peer`) is the first.
    pub(super) fn declare(&mut self, head: &str) -> bool {
        self.declared.insert(head.to_owned())
    }

    /// The name with what C does not allow replaced.
    pub(super) fn allowed(name: &str) -> String {
        let mut allowed: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        if allowed.starts_with(|c: char| c.is_ascii_digit()) {
            allowed.insert(0, '_');
        }
        if RESERVED.contains(&allowed.as_str()) {
            allowed.push('_');
        }
        allowed
    }
}

/// The words of an integer's type.
pub(super) fn integer(ty: Type<'_>) -> Result<String, Error> {
    let words = ["char", "short", "int", "long", "signed", "unsigned", "_Bool", "__int128"];
    let name = ty.name()?;
    let size = ty.size().unwrap_or(4);
    // `__int128 unsigned` of GCC, `unsigned __int128` of clang.
    if !name.is_empty() && name.split(' ').all(|word| words.contains(&word)) {
        return Ok(name.to_owned());
    }
    let int = ty.int().ok_or(Error::WrongKind { id: ty.id, expected: "integer" })?;
    Ok(if int.is_bool && size == 1 { "_Bool" } else { number(size, int.signed) }.to_owned())
}

/// C's words for a number of that many bytes.
pub(super) fn number(bytes: u32, signed: bool) -> &'static str {
    match (bytes, signed) {
        (1, true) => "signed char",
        (1, false) => "unsigned char",
        (2, true) => "short",
        (2, false) => "unsigned short",
        (8, true) => "long long",
        (8, false) => "unsigned long long",
        (16, true) => "__int128",
        (16, false) => "unsigned __int128",
        (_, true) => "int",
        (_, false) => "unsigned int",
    }
}

/// C's word for a floating-point number.
pub(super) fn float(ty: Type<'_>) -> &'static str {
    match (ty.kind, ty.size()) {
        (Kind::Float, Some(2)) => "_Float16",
        (Kind::Float, Some(4)) => "float",
        (Kind::Float, Some(16)) => "long double",
        _ => "double",
    }
}
