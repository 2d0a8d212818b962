//! Maps of targets, sockets, groups, events, programs and maps, and those without keys: the errors of operations of the
//! host are those that Linux gives to user space, recorded in `tests/data/linux/special.maps`.
//!
//! What the types of this interface rule out is not compared: flags without a name, values of another type,
//! descriptors.

use std::sync::Arc;

use skep_abi::{MapDef, MapKind};
use skep_maps::{Map, MapError, Member, Options, UpdateFlags};
use skep_verdicts::{Operated, Operation, operations};

use crate::data;

/// What Linux says of operations that a kind lacks; it is not in the interface of user space.
const ENOTSUPP: &str = "error 524";
const EOPNOTSUPP: &str = "error 95";

/// Compares every operation that can be said here.
pub(crate) fn check_here() {
    let text = std::fs::read_to_string(data("special.maps")).unwrap();
    let maps = operations(&text).unwrap_or_else(|trouble| panic!("{trouble}"));
    let (mut compared, mut wrong) = (0, Vec::new());
    for operated in &maps {
        let map = create(operated);
        for operation in &operated.operations {
            let Some(ours) = answer(&map, operation) else { continue };
            compared += 1;
            let Operation { line, words, linux, own } = operation;
            let expected = match own {
                Some((own, why)) => {
                    assert!(own != linux && !why.is_empty(), "line {line}: no difference, or no reason");
                    own
                }
                None if linux == ENOTSUPP && ours == EOPNOTSUPP => EOPNOTSUPP,
                None => linux,
            };
            if ours != *expected {
                wrong.push(format!(
                    "{} line {line}: {} -> {linux}, here {ours}",
                    map.kind(),
                    words.join(" ")
                ));
            }
        }
    }
    println!("{compared} operations compared");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 0);
}

fn create(operated: &Operated) -> Map {
    let inner = operated.inner.as_ref().map(|inner| Box::new(inner.def.clone()));
    let def = MapDef { inner, ..operated.map.def.clone() };
    Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).unwrap()
}

/// skep's answer; `None` where the interface cannot say this.
fn answer(map: &Map, operation: &Operation) -> Option<String> {
    let [name, key, value, flags] = &operation.words;
    let key = bytes(key)?;
    let number: u64 = flags.parse().unwrap();
    let by_reference = map.references().is_some();
    let keyless = map.def().key_size == 0;
    match name.as_str() {
        "lookup" | "take" if number != 0 => None,
        _ if keyless && !key.is_empty() => None,
        // Hosts read such maps by other functions.
        "lookup" | "take" | "next" if by_reference => None,
        "lookup" if keyless && key.is_empty() => Some(found(match map.kind() {
            MapKind::BloomFilter => map.contains(&[0; 8]).map(|found| found.then(Vec::new)),
            _ => map.peek(),
        })),
        "take" if keyless && key.is_empty() => Some(found(map.pop())),
        "lookup" => Some(found(map.lookup(&key))),
        "take" => Some(found(map.lookup_and_delete(&key))),
        "next" if key.is_empty() => Some(found(map.next_key(None))),
        "next" => Some(found(map.next_key(Some(&key)))),
        // SAFETY: no program has the map.
        "delete" if by_reference => Some(done(unsafe { map.clear_reference(&key) })),
        "delete" => Some(done(map.delete(&key))),
        "update" => {
            let flags = UpdateFlags::from_number(number)?;
            match (bytes(value), value.as_str()) {
                (Some(value), _) if keyless => Some(done(map.push(&value, flags))),
                (Some(value), _) => Some(done(map.update(&key, &value, flags))),
                (None, word) if members(map.kind()).contains(&word) => {
                    let member = Member::new(1, Arc::new(()));
                    Some(done(map.set_member(&key, member, flags).map(drop)))
                }
                (None, word) if references(map.kind()) == Some(word) && number == 0 => {
                    // SAFETY: no program has the map, so nothing follows the address.
                    Some(done(unsafe { map.set_reference(&key, 8) }))
                }
                _ => None,
            }
        }
        _ => panic!("{name}"),
    }
}

/// The descriptors whose objects are members of such a map.
fn members(kind: MapKind) -> &'static [&'static str] {
    match kind {
        MapKind::Sockmap | MapKind::Sockhash => &["connected", "listening", "udp", "grouped"],
        MapKind::ReuseportSockarray => &["grouped"],
        MapKind::CgroupArray => &["cgroup"],
        _ => &[],
    }
}

/// The same for maps of programs and maps.
fn references(kind: MapKind) -> Option<&'static str> {
    match kind {
        MapKind::ProgArray => Some("prog"),
        MapKind::ArrayOfMaps | MapKind::HashOfMaps => Some("map"),
        _ => None,
    }
}

fn done(result: Result<(), MapError>) -> String {
    result.map_or_else(|error| format!("error {}", error.errno()), |()| "ok".to_owned())
}

fn found(result: Result<Option<Vec<u8>>, MapError>) -> String {
    match result {
        Ok(Some(bytes)) if bytes.is_empty() => "ok".to_owned(),
        Ok(Some(bytes)) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Ok(None) => "error 2".to_owned(),
        Err(error) => format!("error {}", error.errno()),
    }
}

/// Bytes of hexadecimal digits, none of `-`; `None` for the name of a descriptor.
fn bytes(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}
