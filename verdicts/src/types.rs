//! A part of a kernel's BTF: the types that programs of verdict files name, and the types that those consist of.
//!
//! A kernel has a hundred thousand types, and a test needs a few hundred of them. The part contains the wanted names
//! with their types across one pointer: a function with its arguments, and the structures that they point to with
//! their members. Types behind a second pointer are only declared.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// Number of pointers to follow from a wanted type.
const HOPS: u32 = 1;
const HEADER: usize = 24;
const MAGIC: u16 = 0xeb9f;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FWD: u32 = 7;
#[cfg(test)]
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// A type in its encoded form.
#[derive(Clone, Debug)]
struct Record {
    name: u32,
    info: u32,
    /// The size in bytes or another type, by kind.
    size_or_type: u32,
    /// The data after the header, by kind.
    tail: Vec<u32>,
}

/// The part of the kernel's types that these names need. A name selects all functions, variables, types and
/// structures that have it.
///
/// # Errors
///
/// The bytes are invalid, or no type has one of the names.
pub fn part(btf: &[u8], names: &BTreeSet<String>) -> Result<Vec<u8>, String> {
    let (records, strings) = read(btf)?;
    // The number of pointers between a wanted type and each type; type 0 is void.
    let mut hops: Vec<Option<u32>> = vec![None; records.len()];
    let mut missing = names.clone();
    let mut waiting = VecDeque::new();
    for (id, record) in records.iter().enumerate().skip(1) {
        if record.kind() != FWD && names.contains(string(strings, record.name)) {
            missing.remove(string(strings, record.name));
            hops[id] = Some(0);
            waiting.push_back(id);
        }
    }
    if let Some(name) = missing.first() {
        return Err(format!("the kernel has no {name}"));
    }
    while let Some(id) = waiting.pop_front() {
        let record = &records[id];
        let near = hops[id].unwrap_or(0);
        let cost = u32::from(record.kind() == PTR);
        if near > HOPS && record.ends_here() {
            continue;
        }
        for target in record.references() {
            let known =
                hops.get_mut(target as usize).ok_or_else(|| format!("type {target} does not exist"))?;
            if known.is_none_or(|known| known > near + cost) {
                *known = Some(near + cost);
                // Breadth first, so that few types are visited twice.
                if cost == 0 {
                    waiting.push_front(target as usize)
                } else {
                    waiting.push_back(target as usize)
                }
            }
        }
    }
    let mut records = records;
    for (id, record) in records.iter_mut().enumerate().filter(|(_, record)| record.kind() == DATASEC) {
        // Sections contain the kept variables. A variable's section tells whether it is per-CPU.
        let kept = |variable: &&[u32]| hops.get(variable[0] as usize).is_some_and(Option::is_some);
        record.tail = record.tail.chunks(3).filter(kept).flatten().copied().collect();
        record.info = (DATASEC << 24) | (record.tail.len() / 3) as u32;
        hops[id] = (!record.tail.is_empty()).then_some(0);
    }
    Ok(write(&records, &hops, strings))
}

impl Record {
    fn kind(&self) -> u32 {
        (self.info >> 24) & 31
    }

    /// Whether it is only declared when it is far away.
    fn ends_here(&self) -> bool {
        matches!(self.kind(), STRUCT | UNION | FUNC_PROTO)
    }

    /// The positions of type ids in the tail: the first, and the stride.
    fn types_in_tail(&self) -> Option<(usize, usize)> {
        match self.kind() {
            STRUCT | UNION => Some((1, 3)),
            FUNC_PROTO => Some((1, 2)),
            DATASEC => Some((0, 3)),
            _ => None,
        }
    }

    /// The positions of names in the tail.
    fn names_in_tail(&self) -> Option<usize> {
        match self.kind() {
            STRUCT | UNION | ENUM64 => Some(3),
            FUNC_PROTO | ENUM => Some(2),
            _ => None,
        }
    }

    fn refers(&self) -> bool {
        !matches!(self.kind(), INT | ARRAY | STRUCT | UNION | ENUM | ENUM64 | FWD | DATASEC | FLOAT)
    }

    fn references(&self) -> Vec<u32> {
        let mut found = Vec::new();
        if self.refers() {
            found.push(self.size_or_type);
        }
        if self.kind() == ARRAY {
            found.extend(&self.tail[..2]);
        }
        if let Some((first, step)) = self.types_in_tail() {
            found.extend(self.tail.iter().skip(first).step_by(step));
        }
        found
    }

    /// The same type with other ids.
    fn renumbered(&self, new: impl Fn(u32) -> u32) -> Self {
        let mut record = self.clone();
        if record.refers() {
            record.size_or_type = new(record.size_or_type);
        }
        if record.kind() == ARRAY {
            record.tail[..2].iter_mut().for_each(|id| *id = new(*id));
        }
        if let Some((first, step)) = record.types_in_tail() {
            record.tail.iter_mut().skip(first).step_by(step).for_each(|id| *id = new(*id));
        }
        record
    }
}

/// The types, with an empty one for number 0, and the strings.
fn read(btf: &[u8]) -> Result<(Vec<Record>, &[u8]), String> {
    let cut = || "the types are cut short".to_owned();
    let word = |at: usize| -> Option<u32> { Some(u32::from_le_bytes(btf.get(at..at + 4)?.try_into().ok()?)) };
    let header: Option<Vec<u32>> = (0..HEADER / 4).map(|index| word(4 * index)).collect();
    let header = header.ok_or_else(cut)?;
    if header[0] as u16 != MAGIC {
        return Err("the bytes are not BTF".to_owned());
    }
    let [body, from, size, strings, length] = [1, 2, 3, 4, 5].map(|index| header[index] as usize);
    let (from, to) = (body + from, body + from + size);
    let strings = btf.get(body + strings..body + strings + length).ok_or_else(cut)?;
    let mut records = vec![Record { name: 0, info: 0, size_or_type: 0, tail: Vec::new() }];
    let mut at = from;
    while at < to {
        let mut next = || {
            at += 4;
            word(at - 4).ok_or_else(cut)
        };
        let mut record = Record { name: next()?, info: next()?, size_or_type: next()?, tail: Vec::new() };
        let count = (record.info & 0xffff) as usize;
        let words = match record.kind() {
            INT | VAR | DECL_TAG => 1,
            ARRAY => 3,
            ENUM | FUNC_PROTO => 2 * count,
            STRUCT | UNION | DATASEC | ENUM64 => 3 * count,
            _ => 0,
        };
        record.tail = (0..words).map(|_| next()).collect::<Result<_, _>>()?;
        records.push(record);
    }
    Ok((records, strings))
}

/// The string at that offset.
fn string(strings: &[u8], offset: u32) -> &str {
    let bytes = strings.get(offset as usize..).unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or("")
}

/// The types that have a distance; those that are too far away are only declared.
fn write(records: &[Record], hops: &[Option<u32>], strings: &[u8]) -> Vec<u8> {
    let far = |id: usize| hops[id].is_some_and(|hops| hops > HOPS) && records[id].ends_here();
    let mut numbers = vec![0; records.len()];
    let mut count = 0;
    for id in 1..records.len() {
        // Prototypes of functions that are far away become void.
        if hops[id].is_some() && !(far(id) && records[id].kind() == FUNC_PROTO) {
            count += 1;
            numbers[id] = count;
        }
    }
    let mut texts = vec![0];
    let mut places = HashMap::from([("", 0)]);
    let mut place = |offset: u32| {
        let text = string(strings, offset);
        *places.entry(text).or_insert_with(|| {
            let place = texts.len() as u32;
            texts.extend(text.as_bytes());
            texts.push(0);
            place
        })
    };
    let mut types = Vec::new();
    for (id, old) in records.iter().enumerate().filter(|(id, _)| numbers[*id] != 0) {
        let mut record = old.renumbered(|id| numbers.get(id as usize).copied().unwrap_or(0));
        record.name = place(record.name);
        if far(id) {
            let is_union = u32::from(old.kind() == UNION);
            record.info = (FWD << 24) | (is_union << 31);
            record.size_or_type = 0;
            record.tail.clear();
        }
        if let Some(step) = record.names_in_tail() {
            record.tail.iter_mut().step_by(step).for_each(|name| *name = place(*name));
        }
        for word in [record.name, record.info, record.size_or_type].iter().chain(&record.tail) {
            types.extend(word.to_le_bytes());
        }
    }
    let (types_size, texts_size) = (types.len() as u32, texts.len() as u32);
    let header = [u32::from(MAGIC) | 1 << 16, HEADER as u32, 0, types_size, types_size, texts_size];
    let header = header.iter().flat_map(|word| word.to_le_bytes());
    header.chain(types).chain(texts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct far { int n; }; struct near { struct far *far; }; int f(struct near *); int g(void); int v, w;`, the
    /// variables in a section.
    fn whole() -> Vec<u8> {
        let strings = b"\0int\0far\0near\0n\0f\0g\0v\0w\0.data\0";
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let types = [
            vec![1, kind(INT, 0), 4, 1 << 24 | 32],
            vec![5, kind(STRUCT, 1), 4, 14, 1, 0],
            vec![0, kind(PTR, 0), 2],
            vec![9, kind(STRUCT, 1), 8, 5, 3, 0],
            vec![0, kind(PTR, 0), 4],
            vec![0, kind(FUNC_PROTO, 1), 1, 0, 5],
            vec![16, kind(FUNC, 1), 6],
            vec![0, kind(FUNC_PROTO, 0), 1],
            vec![18, kind(FUNC, 1), 8],
            vec![20, kind(VAR, 0), 1, 1],
            vec![22, kind(VAR, 0), 1, 1],
            vec![24, kind(DATASEC, 2), 8, 10, 0, 4, 11, 4, 4],
        ]
        .concat();
        let size = 4 * types.len() as u32;
        let header = [u32::from(MAGIC) | 1 << 16, HEADER as u32, 0, size, size, strings.len() as u32];
        let words = header.iter().chain(&types).flat_map(|word| word.to_le_bytes());
        words.chain(strings.iter().copied()).collect()
    }

    #[test]
    fn types_are_kept_across_one_pointer_and_declared_beyond() {
        let part = part(&whole(), &BTreeSet::from(["f".to_owned()])).unwrap();
        let (records, strings) = read(&part).unwrap();
        let found: Vec<_> = records[1..].iter().map(|r| (r.kind(), string(strings, r.name))).collect();
        let expected = [
            (INT, "int"),
            (FWD, "far"),
            (PTR, ""),
            (STRUCT, "near"),
            (PTR, ""),
            (FUNC_PROTO, ""),
            (FUNC, "f"),
        ];
        assert_eq!(found, expected);
        assert_eq!(records[4].tail[1], 3);
        assert_eq!(string(strings, records[4].tail[0]), "far");
    }

    #[test]
    fn sections_contain_the_wanted_variables() {
        let part = part(&whole(), &BTreeSet::from(["w".to_owned()])).unwrap();
        let (records, strings) = read(&part).unwrap();
        let found: Vec<_> = records[1..].iter().map(|r| (r.kind(), string(strings, r.name))).collect();
        assert_eq!(found, [(INT, "int"), (VAR, "w"), (DATASEC, ".data")]);
        assert_eq!(records[3].tail, [2, 4, 4]);
    }

    #[test]
    fn invalid_btf_and_missing_names_are_refused() {
        let names = BTreeSet::from(["f".to_owned()]);
        let whole = whole();
        for length in 0..whole.len() {
            // A wrong length may at most give an error.
            let _ = part(&whole[..length], &names);
        }
        assert!(part(&[0; 64], &names).is_err());
        assert!(part(&whole, &BTreeSet::from(["h".to_owned()])).unwrap_err().contains('h'));
    }
}
