//! An entry as a question to a kernel: lines of text in the format that `guest/guest.c` reads and documents.

use std::fmt::Write;

use skep_abi::MapFlags;
use skep_isa::encode_bytes;

use crate::btf::describe;
use crate::entry::{Entry, Trouble};
use crate::program::Program;
use crate::run::Run;
use crate::section::{STRUCT, Section};

/// `CAP_PERFMON` and `CAP_SYS_ADMIN`.
const CAPABILITIES: u64 = 1 << 38 | 1 << 21;
const SLEEPABLE: u32 = 16;
const FRAGS: u32 = 32;

/// The question, or `None` if Linux has no programs of that type. `lines` is the number of the log's last lines in
/// the answer, 0 for all.
///
/// # Errors
///
/// The entry has an error.
pub fn request(entry: &Entry, lines: usize, level: u32) -> Result<Option<String>, Trouble> {
    let program = Program::of(entry)?;
    let Some(section) = Section::of(&entry.section) else { return Ok(None) };
    let trouble = |problem: String| Trouble::new(entry.line, problem);
    let btf = describe(entry, &program);
    let mut flags = entry.flags | if section.sleepable { SLEEPABLE } else { 0 };
    if entry.section.contains(".frags") {
        flags |= FRAGS;
    }
    let mut text = String::new();
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = text.write_fmt(arguments);
        text.push('\n');
    };
    line(format_args!("P {}", entry.name.replace(' ', "_")));
    line(format_args!("t {} {} {flags}", section.kind, entry.attach.unwrap_or(section.attach)));
    line(format_args!("l {}", entry.license));
    if let Some(target) = &section.target {
        match target.name.split_once('.').filter(|_| target.kind == STRUCT) {
            Some((of, member)) => line(format_args!("S {of} {member}")),
            None => line(format_args!("B {} {}", target.kind, target.name)),
        }
    }
    if entry.unprivileged {
        line(format_args!("c {CAPABILITIES:x}"));
    }
    if let Some(btf) = &btf {
        line(format_args!("T {}", hex(&btf.bytes)));
        if !btf.functions.is_empty() {
            let records: Vec<u8> = btf
                .functions
                .iter()
                .flat_map(|(slot, id)| [slot.to_le_bytes(), id.to_le_bytes()].concat())
                .collect();
            line(format_args!("F {}", hex(&records)));
        }
    }
    if entry.packet.is_some() {
        // What a run changes in a map must not be found by the next.
        line(format_args!("f"));
    }
    for (index, map) in entry.maps.iter().enumerate() {
        let position = |name: &str| entry.maps[..index].iter().position(|map| map.def.name == name);
        let inner = match &map.inner {
            None => -1,
            Some(name) => match position(name) {
                Some(at) => at as i64,
                None => {
                    return Err(trouble(format!(
                        "the template {name} must be defined before the map {}",
                        map.def.name
                    )));
                }
            },
        };
        let def = &map.def;
        let (key, value) = btf.as_ref().map_or((0, 0), |btf| btf.maps[index]);
        let MapFlags(flags) = def.flags;
        let data = map.data.as_deref().unwrap_or("");
        line(format_args!(
            "m {} {} {} {} {flags} {key} {value} {} {inner} {data}",
            def.kind.number(),
            def.key_size,
            def.value_size,
            def.max_entries,
            map.extra,
        ));
    }
    for symbol in &program.symbols {
        line(format_args!("k {symbol}"));
    }
    line(format_args!("v {level} {lines}"));
    let code = encode_bytes(&program.insns).map_err(|error| trouble(error.to_string()))?;
    if let Some(run) = Run::of(entry).map_err(trouble)? {
        line(format_args!("r {}", run.words(entry)));
    }
    line(format_args!("i {}\n.", hex(&code)));
    Ok(Some(text))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries;

    #[test]
    fn a_question_contains_the_whole_entry() {
        let entry = "== a b\ntype: fentry.s/f\nmap: m array 4 8 1 0x80 data=0102030405060708\nlicense: MIT\ncaps: bpf\n\
                     func: cb static int(u32)\ninsns:\nr1 = map[m] ll\nr2 = func[cb] ll\ncall kfunc[g]\nexit\ncb:\nexit\n";
        let text = request(&entries(entry).unwrap()[0], 5, 1).unwrap().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..5], ["P a_b", "t 26 24 16", "l MIT", "B 12 f", "c 4000200000"]);
        assert!(lines[5].starts_with("T 9feb0100") && lines[6].starts_with("F 00000000"));
        assert_eq!(lines[7..10], ["m 2 4 8 1 128 0 0 0 -1 0102030405060708", "k g", "v 1 5"]);
        assert!(lines[10].starts_with("i 18510000") && lines[11] == ".");
        let raw = entry.replace("fentry.s/f", "raw");
        assert_eq!(request(&entries(&raw).unwrap()[0], 5, 1), Ok(None));
    }
}
