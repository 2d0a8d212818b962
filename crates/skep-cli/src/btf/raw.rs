//! Types one by one, in bpftool's words: as text, or as the same fields in JSON.
//!
//! ```text
//! [7] STRUCT 'ring' size=16 vlen=2
//!     'type' type_id=1 bits_offset=0
//! ```

use serde::ser::{Serialize, SerializeMap, Serializer};
use skep_btf::{Btf, Error, Kind, Linkage, Type};
use std::fmt::Write;

/// A type: its fields, and those of its members under a name.
struct Entry {
    kind: &'static str,
    fields: Fields,
    members: Option<(&'static str, Vec<Fields>)>,
}

type Fields = Vec<(&'static str, Field)>;

enum Field {
    Name(String),
    Word(&'static str),
    Unsigned(u64),
    Signed(i64),
}

/// All types of the file itself, a line for each and for each of its members.
pub(super) fn text(types: &Btf) -> Result<String, Error> {
    let mut out = String::new();
    for ty in types.own_types() {
        let entry = entry(ty)?;
        // Writing to a string cannot fail.
        let _ = write!(out, "[{}] {}", ty.id, entry.kind);
        // As bpftool writes it.
        let comma = if ty.kind == Kind::Var { "," } else { "" };
        for (index, field) in entry.fields.iter().enumerate() {
            let _ = write!(out, "{} {}", if index == 2 { comma } else { "" }, word(field, ""));
        }
        out.push('\n');
        let suffix = match (ty.kind, ty.is_signed()) {
            (Kind::Enum64, true) => "LL",
            (Kind::Enum64, false) => "ULL",
            _ => "",
        };
        for member in entry.members.iter().flat_map(|(_, members)| members) {
            let words: Vec<String> = member.iter().map(|field| word(field, suffix)).collect();
            let _ = write!(out, "\t{}", words.join(" "));
            if let (Kind::Datasec, Some((_, Field::Unsigned(id)))) = (ty.kind, member.first()) {
                let variable = types.ty(*id as u32)?;
                let _ = write!(out, " ({} '{}')", variable.kind.name(), variable.name()?);
            }
            out.push('\n');
        }
    }
    Ok(out)
}

fn word((name, field): &(&'static str, Field), suffix: &str) -> String {
    match field {
        Field::Name(text) => format!("'{text}'"),
        Field::Word(text) => format!("{name}={text}"),
        Field::Unsigned(number) if *name == "val" => format!("{name}={number}{suffix}"),
        Field::Signed(number) if *name == "val" => format!("{name}={number}{suffix}"),
        Field::Unsigned(number) => format!("{name}={number}"),
        Field::Signed(number) => format!("{name}={number}"),
    }
}

/// `{"types": [...]}`
pub(super) fn document(types: &Btf) -> Result<impl Serialize, Error> {
    struct Numbered(u32, Entry);
    impl Serialize for Numbered {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("id", &self.0)?;
            map.serialize_entry("kind", self.1.kind)?;
            for (name, field) in &self.1.fields {
                map.serialize_entry(name, field)?;
            }
            if let Some((name, members)) = &self.1.members {
                let members: Vec<Members<'_>> = members.iter().map(Members).collect();
                map.serialize_entry(name, &members)?;
            }
            map.end()
        }
    }
    let entries: Result<Vec<Numbered>, Error> =
        types.own_types().map(|ty| Ok(Numbered(ty.id, entry(ty)?))).collect();
    #[derive(serde::Serialize)]
    struct All {
        types: Vec<Numbered>,
    }
    Ok(All { types: entries? })
}

struct Members<'a>(&'a Fields);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Name(text) => serializer.serialize_str(text),
            Self::Word(text) => serializer.serialize_str(text),
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
        }
    }
}

fn entry(ty: Type<'_>) -> Result<Entry, Error> {
    let number = |name, number: u32| (name, Field::Unsigned(number.into()));
    let mut fields = vec![("name", name(ty.name()?))];
    let mut members = None;
    match ty.kind {
        Kind::Int => {
            let int = ty.int().ok_or(Error::WrongKind { id: ty.id, expected: "integer" })?;
            let encoding = match int {
                _ if int.is_bool => "BOOL",
                _ if int.is_char => "CHAR",
                _ if int.signed => "SIGNED",
                _ => "(none)",
            };
            fields.push(number("size", size(ty)));
            fields.push(number("bits_offset", int.offset));
            fields.push(number("nr_bits", int.bits));
            fields.push(("encoding", Field::Word(encoding)));
        }
        Kind::Array => {
            let array = ty.array().ok_or(Error::Unsized { id: ty.id })?;
            fields.push(number("type_id", array.element));
            fields.push(number("index_type_id", array.index));
            fields.push(number("nr_elems", array.count));
        }
        Kind::Struct | Kind::Union => {
            let mut all = Vec::new();
            for member in ty.members() {
                let mut one = vec![("name", name(member.name()?)), number("type_id", member.ty)];
                one.push(number("bits_offset", member.bit_offset));
                if member.bits > 0 {
                    one.push(number("bitfield_size", member.bits));
                }
                all.push(one);
            }
            fields.push(number("size", size(ty)));
            fields.push(number("vlen", all.len() as u32));
            members = Some(("members", all));
        }
        Kind::Enum | Kind::Enum64 => {
            let mut all = Vec::new();
            for enumerator in ty.enumerators() {
                let value = match ty.is_signed() {
                    true => Field::Signed(enumerator.value.cast_signed()),
                    false => Field::Unsigned(enumerator.value),
                };
                all.push(vec![("name", name(enumerator.name()?)), ("val", value)]);
            }
            fields.push(("encoding", Field::Word(if ty.is_signed() { "SIGNED" } else { "UNSIGNED" })));
            fields.push(number("size", size(ty)));
            fields.push(number("vlen", all.len() as u32));
            members = Some(("values", all));
        }
        Kind::Fwd => {
            let what = if ty.is_union_declaration() { "union" } else { "struct" };
            fields.push(("fwd_kind", Field::Word(what)));
        }
        Kind::FuncProto => {
            let mut all = Vec::new();
            for param in ty.params() {
                all.push(vec![("name", name(param.name()?)), number("type_id", param.ty)]);
            }
            fields.push(number("ret_type_id", ty.target()));
            fields.push(number("vlen", all.len() as u32));
            members = Some(("params", all));
        }
        Kind::Func | Kind::Var => {
            let linkage = match ty.linkage() {
                Some(Linkage::Static) => "static",
                Some(Linkage::Global) => "global",
                Some(Linkage::Extern) => "extern",
                None => "(unknown)",
            };
            fields.push(number("type_id", ty.target()));
            fields.push(("linkage", Field::Word(linkage)));
        }
        Kind::Datasec => {
            let variables = ty.variables();
            let place = |at: skep_btf::Variable<'_>| {
                vec![number("type_id", at.var.id), number("offset", at.offset), number("size", at.size)]
            };
            let all: Vec<Fields> = variables.map(place).collect();
            fields.push(number("size", size(ty)));
            fields.push(number("vlen", all.len() as u32));
            members = Some(("vars", all));
        }
        Kind::Float => fields.push(number("size", size(ty))),
        Kind::DeclTag => {
            let component = ty.component().map_or(-1, i64::from);
            fields.push(number("type_id", ty.target()));
            fields.push(("component_idx", Field::Signed(component)));
        }
        _ => fields.push(number("type_id", ty.target())),
    }
    Ok(Entry { kind: ty.kind.name(), fields, members })
}

fn size(ty: Type<'_>) -> u32 {
    ty.size().unwrap_or_default()
}

fn name(name: &str) -> Field {
    Field::Name(if name.is_empty() { "(anon)" } else { name }.to_owned())
}
