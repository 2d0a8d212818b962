//! `map:` lines.

use std::sync::Arc;

use skep_abi::{MapDef, MapFlags, MapKind, SpecialField, SpecialKind};

use crate::entry::number;

/// A special field of a map's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its kind, a name of `FIELDS`.
    pub what: String,
    /// Its offset in the value.
    pub offset: u32,
    /// What a pointer points to, or a list or tree holds: `TYPE`, or `TYPE:MEMBER`.
    pub of: Option<String>,
}

/// A map that a program may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapLine {
    /// Its definition, except the special fields of its values and its template.
    pub def: MapDef,
    /// Special fields of its values.
    pub fields: Vec<Field>,
    /// The name of its template, if it is a map of maps.
    pub inner: Option<String>,
    /// `map_extra`.
    pub extra: u64,
    /// The value at key 0 of a frozen map, in hexadecimal digits.
    pub data: Option<String>,
}

/// Names of flags.
const FLAGS: [(&str, MapFlags); 4] = [
    ("no_prealloc", MapFlags::NO_PREALLOC),
    ("rdonly_prog", MapFlags::RDONLY_PROG),
    ("wronly_prog", MapFlags::WRONLY_PROG),
    ("mmapable", MapFlags::MMAPABLE),
];

/// Kinds of special fields, their sizes, and whether they are of a type.
const FIELDS: [(&str, u32, bool); 12] = [
    ("lock", 4, false),
    ("timer", 16, false),
    ("wq", 16, false),
    ("refcount", 4, false),
    ("lnode", 24, false),
    ("rnode", 32, false),
    ("kptr", 8, true),
    ("pkptr", 8, true),
    ("ukptr", 8, true),
    ("list", 16, true),
    ("tree", 16, true),
    ("ptr", 8, false),
];

impl MapLine {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut word = |what: &str| words.next().ok_or_else(|| format!("the map has no {what}"));
        let name = word("name")?.to_owned();
        let kind = word("kind")?;
        let kind = MapKind::ALL
            .iter()
            .copied()
            .find(|known| known.name() == kind)
            .ok_or_else(|| format!("{kind} is not a kind of map"))?;
        let mut count =
            |what| word(what).and_then(|word| number(word).ok_or_else(|| format!("{word} is not a {what}")));
        let (key_size, value_size) = (count("key size")?, count("value size")?);
        let def = MapDef::new(name, kind, key_size, value_size, count("number of elements")?);
        let mut map = Self { def, fields: Vec::new(), inner: None, extra: 0, data: None };
        words.try_for_each(|word| map.add(word))?;
        map.fields.sort_by_key(|field| field.offset);
        map.def.fields = map.fields.iter().map(Field::special).collect();
        map.def.frozen = map.data.as_deref().map(bytes);
        Ok(map)
    }

    /// Parses one of the words after the sizes.
    fn add(&mut self, word: &str) -> Result<(), String> {
        let unknown = || format!("{word} is not a property of a map");
        let flag = FLAGS.iter().find(|(name, _)| *name == word).map(|(_, flag)| *flag);
        if let Some(flag) = flag.or_else(|| number(word).map(MapFlags)) {
            self.def.flags = self.def.flags.union(flag);
        } else if let Some(name) = word.strip_prefix("inner=") {
            self.inner = Some(name.to_owned());
        } else if let Some(extra) = word.strip_prefix("extra=") {
            self.extra = extra.parse().map_err(|_| unknown())?;
        } else if let Some(data) = word.strip_prefix("data=") {
            let digits = data.len() == 2 * self.def.value_size as usize;
            if !digits || !data.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
                return Err(format!(
                    "data must be {} hexadecimal digits in lower case",
                    2 * self.def.value_size
                ));
            }
            self.data = Some(data.to_owned());
        } else {
            self.fields.push(Field::parse(word, self.def.value_size)?.ok_or_else(unknown)?);
        }
        Ok(())
    }
}

impl Field {
    /// `KIND@OFFSET` or `KIND@OFFSET=TYPE`, in something of that many bytes; `None` if it is something else.
    pub(crate) fn parse(word: &str, bytes: u32) -> Result<Option<Self>, String> {
        let Some((what, place)) = word.split_once('@') else { return Ok(None) };
        let (offset, of) = match place.split_once('=') {
            Some((offset, of)) => (offset, Some(of.to_owned())),
            None => (place, None),
        };
        let known = FIELDS.iter().find(|(name, ..)| *name == what);
        let Some((offset, &(_, size, typed))) = number(offset).zip(known) else { return Ok(None) };
        if offset.checked_add(size).is_none_or(|end| end > bytes) {
            return Err(format!("{what} is outside of the value"));
        }
        if typed != of.is_some() {
            return Err(format!(
                "expected a type after kptr, pkptr, ukptr, list and tree alone, found {word}"
            ));
        }
        Ok(Some(Self { what: what.to_owned(), offset, of }))
    }

    /// The type that it is of, without the member.
    pub(crate) fn target(&self) -> Option<&str> {
        self.of.as_deref().map(|of| of.split(':').next().unwrap_or(of))
    }

    /// The definition for a verifier. The type of a `kptr` has no BTF id here.
    fn special(&self) -> SpecialField {
        let kind = match self.what.as_str() {
            "lock" => SpecialKind::SpinLock,
            "timer" => SpecialKind::Timer,
            "wq" => SpecialKind::Workqueue,
            "refcount" => SpecialKind::Refcount,
            "lnode" => SpecialKind::ListNode,
            "rnode" => SpecialKind::RbNode,
            "list" => SpecialKind::ListHead { holds: 0, node: 0 },
            "tree" => SpecialKind::RbRoot { holds: 0, node: 0 },
            "pkptr" => SpecialKind::KptrPercpu { to: 0 },
            "ukptr" => SpecialKind::KptrUntrusted { to: 0 },
            _ => SpecialKind::Kptr { to: 0 },
        };
        SpecialField { kind, offset: self.offset, size: self.size() }
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> u32 {
        FIELDS.iter().find(|(name, ..)| *name == self.what).map_or(0, |(_, size, _)| *size)
    }
}

/// A structure of the program's own, for the objects that it allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StructLine {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u32,
    /// Its special fields, ascending; the rest of it is numbers. A field's member is called by its kind and offset.
    pub fields: Vec<Field>,
}

impl StructLine {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("the structure has no name")?.to_owned();
        let bytes = words.next().and_then(number).ok_or("the structure has no size")?;
        let field = |word| Field::parse(word, bytes)?.ok_or_else(|| format!("{word} is not a field"));
        let mut fields = words.map(field).collect::<Result<Vec<_>, _>>()?;
        fields.sort_by_key(|field| field.offset);
        Ok(Self { name, bytes, fields })
    }
}

/// The bytes that pairs of hexadecimal digits encode.
fn bytes(digits: &str) -> Arc<[u8]> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
    digits.as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |byte, c| byte << 4 | digit(*c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_line_gives_the_definition_and_special_fields() {
        let map =
            MapLine::parse("m hash 4 64 8 no_prealloc 0x80 timer@16 lock@0 kptr@8=task_struct").unwrap();
        assert_eq!((map.def.kind, map.def.value_size, map.def.flags), (MapKind::Hash, 64, MapFlags(0x81)));
        let places: Vec<_> = map.fields.iter().map(|field| (field.what.as_str(), field.offset)).collect();
        assert_eq!(places, [("lock", 0), ("kptr", 8), ("timer", 16)]);
        assert_eq!(MapLine::parse("o array_of_maps 4 4 2 inner=m").unwrap().inner.as_deref(), Some("m"));
    }

    #[test]
    fn invalid_map_lines_are_refused() {
        for line in [
            "m",
            "m hush 4 4 4",
            "m hash 4 4",
            "m hash 4 8 8 lock@6",
            "m hash 4 8 8 kptr@0",
            "m hash 4 8 8 x",
        ] {
            assert!(MapLine::parse(line).is_err(), "{line}");
        }
    }
}
