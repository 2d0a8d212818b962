//! A proof lists exactly the facts about maps that it relies on.

use crate::common::{accepted, check, maps, program};
use skep_abi::{MapDef, MapFlags, MapKind, RAW};
use skep_verifier::{Assumed, Code, Config, Unverified, Verified, verify};
use std::path::Path;

/// The list in short form: the map's index, `i` for inner maps, and the facts.
fn list(verified: &Verified) -> String {
    let mut text = String::new();
    for assumption in verified.assumptions() {
        let fact = match assumption.what {
            Assumed::Kind(kind) => format!("kind {kind}"),
            Assumed::KeySize(bytes) => format!("key {bytes}"),
            Assumed::ValueSize(bytes) => format!("value {bytes}"),
            Assumed::Flags(flags) => format!("flags {:#x}", flags.0),
            Assumed::Fields(def) => format!("fields {}", def.fields.len()),
            Assumed::AtMost(most) => format!("<= {most}"),
            Assumed::AtLeast(least) => format!(">= {least}"),
            Assumed::Contents(bytes) => format!("contents {bytes:?}"),
            Assumed::HoldsMaps => "maps".to_owned(),
            Assumed::Programs(kind, entry, sleepable) => {
                format!("programs {} {entry:?} {sleepable}", kind.name)
            }
        };
        let inner = if assumption.inner { "i" } else { "" };
        text += &format!("{}{inner} {fact}; ", assumption.map);
    }
    text
}

fn with(text: &str, maps: Vec<MapDef>) -> Result<Verified, String> {
    let program = Unverified { maps: maps.into(), ..program(&RAW, text) };
    verify(program, &Config::default()).map_err(|refusal| refusal.reason)
}

/// Looks up key 0 of a map; the key is a known number.
fn lookup(map: &str) -> String {
    format!("*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\n{map}\ncall 1\nif r0 == 0 goto out\n")
}

/// Calls a function for each element; each call moves 8 bytes further into 32 bytes.
fn each(map: &str) -> String {
    format!(
        "{map}
         r3 = 0
         *(u64 *)(r10 - 40) = r3
         *(u64 *)(r10 - 32) = r3
         r2 = func[body] ll
         r3 = r10
         r3 += -40
         r4 = 0
         call 164
         out: r0 = 0
         exit
         body:
         r1 = *(u64 *)(r4 + 0)
         r2 = r4
         r2 += 8
         r2 += r1
         *(u8 *)(r2 + 0) = 1
         r1 += 8
         *(u64 *)(r4 + 0) = r1
         r0 = 0
         exit"
    )
}

fn array(entries: u32, flags: MapFlags) -> MapDef {
    MapDef { flags, ..MapDef::new("array", MapKind::Array, 4, 8, entries) }
}

fn outer(inner: MapDef) -> MapDef {
    MapDef { inner: Some(Box::new(inner)), ..MapDef::new("outer", MapKind::ArrayOfMaps, 4, 4, 2) }
}

#[test]
fn what_is_read_is_assumed_and_nothing_else() {
    let out = "out: r0 = 0\nexit";
    assert_eq!(list(&accepted("raw", "r0 = 0\nexit")), "");
    // Names a map and does nothing with it.
    let own = with("r1 = map[1] ll\nr0 = 0\nexit", vec![array(1, MapFlags(0)), array(4, MapFlags(0))]);
    assert_eq!(list(&own.unwrap()), "1 fields 0; ");
    let text = format!("{}r0 = *(u64 *)(r0 + 0)\n{out}", lookup("r1 = map[0] ll"));
    let found = with(&text, vec![array(4, MapFlags(0))]).unwrap();
    assert_eq!(list(&found), "0 kind array; 0 key 4; 0 value 8; 0 flags 0x0; 0 fields 0; 0 >= 4; ");
    let hash = with(&text, vec![MapDef::new("h", MapKind::Hash, 4, 8, 4)]).unwrap();
    assert_eq!(list(&hash), "0 kind hash; 0 key 4; 0 value 8; 0 flags 0x0; 0 fields 0; ");
    let each_own = with(&each("r1 = map[0] ll"), vec![array(4, MapFlags(0))]).unwrap();
    assert!(list(&each_own).contains("0 <= 4; "), "{}", list(&each_own));
    let tail = with(
        "r2 = map[0] ll\nr3 = 0\ncall 12\nr0 = 0\nexit",
        vec![MapDef::new("p", MapKind::ProgArray, 4, 4, 4)],
    );
    assert!(list(&tail.unwrap()).contains("0 programs raw Buffer { len: 16 } false; "));
}

#[test]
fn contents_are_assumed_where_they_cannot_change() {
    let constants =
        |flags, entries, contents: &[u8]| MapDef { frozen: Some(contents.into()), ..array(entries, flags) };
    let text = "r1 = map_value[0]+0 ll\nr0 = *(u8 *)(r1 + 0)\nexit";
    let list = |def| list(&with(text, vec![def]).unwrap());
    let read = constants(MapFlags::RDONLY_PROG, 1, &[7; 8]);
    assert!(list(read).contains("0 <= 1; 0 >= 1; 0 contents [7, 7, 7, 7, 7, 7, 7, 7]; "));
    for def in [
        constants(MapFlags(0), 1, &[7; 8]),
        constants(MapFlags::RDONLY_PROG, 2, &[7; 8]),
        constants(MapFlags::RDONLY_PROG, 1, &[7; 7]),
    ] {
        assert!(!list(def).contains("contents"));
    }
}

#[test]
fn the_capacity_of_inner_maps_is_assumed_of_plain_arrays_alone() {
    let text = each(&(lookup("r1 = map[0] ll") + "r1 = r0"));
    let plain = with(&text, vec![outer(array(4, MapFlags(0)))]).unwrap();
    let text_of = list(&plain);
    for part in ["0 maps; ", "0i kind array; ", "0i flags 0x0; ", "0i <= 4; "] {
        assert!(text_of.contains(part), "{part} in {text_of}");
    }
    assert!(!text_of.contains("0i >="), "{text_of}");
    for inner in [
        array(5, MapFlags(0)),
        array(4, MapFlags::INNER_MAP),
        MapDef { kind: MapKind::PercpuArray, ..array(4, MapFlags(0)) },
        MapDef { kind: MapKind::Hash, ..array(4, MapFlags(0)) },
    ] {
        let refusal = with(&text, vec![outer(inner)]).expect_err("refused");
        assert!(refusal.contains("r2"), "{refusal}");
    }
}

#[test]
fn invalid_map_definitions_are_refused() {
    let nested = outer(outer(array(4, MapFlags(0))));
    let refusal = with("r1 = map[0] ll\nr0 = 0\nexit", vec![nested]).expect_err("refused");
    assert!(refusal.contains("hold maps themselves"), "{refusal}");
    assert_eq!(
        check("raw", "r1 = map[9999] ll\nr0 = 0\nexit").err().map(|refusal| refusal.code),
        Some(Code::Structure)
    );
    assert!(maps().iter().all(|def| def.defect().is_none()), "those of the tests are all right");
}

/// Rules read definitions through views that record what was read. No other code of the crate can reach a definition.
#[test]
fn definitions_are_private_to_the_module_that_records_reads() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut named = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read_to_string(&path).unwrap().contains("MapDef") {
                named.push(path.file_name().unwrap().to_string_lossy().into_owned());
            }
        }
    }
    named.sort();
    assert_eq!(named, ["assumed.rs", "program.rs"]);
}
