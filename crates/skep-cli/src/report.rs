//! What `skep run` prints: the same data as JSON or as text.

use crate::contents::{self, lossless};
use crate::failure::Failure;
use crate::output;
use crate::samples::Samples;
use crate::verify::hex;
use serde::{Serialize, Serializer};
use skep::{Engine, Map, Module, Object, Program, RunStats, Runtime};
use std::fmt::{self, Write};

/// Maximum number of map elements in the JSON and in the text.
const SHOWN_TEXT: usize = 8;
const SHOWN_JSON: usize = 256;
/// Maximum number of bytes of a value.
const SHOWN_BYTES: usize = 256;

/// A loaded program and the cost of loading it.
#[derive(Serialize)]
pub(crate) struct Loaded {
    program: String,
    #[serde(rename = "type")]
    program_type: &'static str,
    tag: String,
    engine: &'static str,
    /// Parsing, verification and compilation, in microseconds; `load_us` also includes linking and map creation.
    load_us: f64,
    parse_us: f64,
    verify_us: f64,
    jit_us: f64,
    insns: usize,
    code_bytes: usize,
    pack: Pack,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Stats>,
}

/// The runs of the program so far.
#[derive(Serialize)]
struct Stats {
    run_cnt: u64,
    run_time_ns: u64,
    misses: u64,
    /// Bounds in nanoseconds, both inclusive, and how many runs took that long; the last is open.
    histogram: Vec<(u64, u64, u64)>,
    #[serde(skip)]
    most: [u64; 2],
}

/// Occupancy of the executable memory.
#[derive(Serialize)]
struct Pack {
    backing: String,
    packs: usize,
    bytes: usize,
    used_bytes: usize,
    huge: bool,
    huge_bytes: u64,
}

/// The report of a run over a capture.
#[derive(Serialize)]
pub(crate) struct Capture {
    #[serde(flatten)]
    pub(crate) loaded: Loaded,
    pub(crate) packets: u64,
    #[serde(serialize_with = "as_object")]
    pub(crate) verdicts: Vec<(String, u64)>,
    /// Where packets ended in the world, the most frequent first.
    #[serde(serialize_with = "as_object", skip_serializing_if = "Vec::is_empty")]
    pub(crate) ends: Vec<(String, u64)>,
    pub(crate) interrupted: bool,
    /// For the engine that ran the capture.
    pub(crate) ns_per_packet: Option<f64>,
    pub(crate) ns_per_packet_jit: Option<f64>,
    pub(crate) ns_per_packet_interp: Option<f64>,
    pub(crate) maps: Vec<MapReport>,
}

/// The report of runs on given bytes.
#[derive(Serialize)]
pub(crate) struct Data {
    #[serde(flatten)]
    pub(crate) loaded: Loaded,
    #[serde(serialize_with = "lossless")]
    pub(crate) result: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<&'static str>,
    pub(crate) runs: u64,
    pub(crate) ns_best: Option<f64>,
    pub(crate) ns_median: Option<f64>,
    pub(crate) maps: Vec<MapReport>,
}

/// A map and its first elements: of arrays, those that are not zero; of queues, filters, ring buffers, and maps
/// that hold programs or maps, none.
#[derive(Serialize)]
pub(crate) struct MapReport {
    name: String,
    kind: &'static str,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    /// Whether it holds global variables; their names then take the place of keys.
    variables: bool,
    /// Number of elements; of arrays, those that are not zero; of ring buffers, bytes that wait for the host; of
    /// arrays of perf events, samples; unknown for bloom filters.
    entries: usize,
    elements: Vec<Element>,
    /// In JSON: the elements as `--map` takes them, by their types, and whether that is all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<Vec<serde_json::Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

#[derive(Serialize)]
struct Element {
    key: String,
    value: Value,
}

/// A value: a number if it has 1, 2, 4 or 8 bytes, otherwise bytes. For per-CPU maps, numbers are summed over the
/// CPUs, and so are structures of 64-bit numbers (in practice counters), word by word.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Number(#[serde(serialize_with = "lossless")] u64),
    Numbers(#[serde(serialize_with = "all_lossless")] Vec<u64>),
    Bytes(String),
    PerCpu(Vec<String>),
}

/// A report that can be printed as JSON and as text.
pub(crate) trait Report: Serialize {
    /// Writes the text.
    fn write_text(&self, out: &mut String) -> fmt::Result;
}

/// Prints a report.
pub(crate) fn print(report: &impl Report, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    let mut out = String::new();
    report.write_text(&mut out).map_err(|error| Failure::Refused(error.to_string()))?;
    output::text(&out)
}

impl Stats {
    fn of(stats: &RunStats) -> Self {
        let most = |share| stats.times.quantile(share).map_or(0, |bucket| bucket.to);
        Self {
            run_cnt: stats.run_cnt,
            run_time_ns: stats.run_time_ns,
            misses: stats.misses,
            histogram: stats.times.buckets().map(|bucket| (bucket.from, bucket.to, bucket.count)).collect(),
            most: [most(0.5), most(0.99)],
        }
    }
}

impl Loaded {
    pub(crate) fn new(object: &Object, runtime: &Runtime, program: &Program, engine: Engine) -> Self {
        let times = program.load_times();
        let us = |duration: std::time::Duration| duration.as_nanos() as f64 / 1e3;
        let pack = runtime.occupancy();
        let huge_bytes = pack.huge_bytes.unwrap_or(0);
        Self {
            program: program.name().to_owned(),
            program_type: program.program_type().name,
            tag: hex(&program.verified().tag()),
            engine: match engine {
                Engine::Jit => "jit",
                Engine::Interpreter => "interpreter",
            },
            load_us: us(object.parse_time() + times.link + times.verify + times.jit),
            parse_us: us(object.parse_time() + times.link),
            verify_us: us(times.verify),
            jit_us: us(times.jit),
            insns: program.verified().insns().len(),
            code_bytes: program.compiled().code_bytes(),
            pack: Pack {
                backing: pack.backing.to_string(),
                packs: pack.packs,
                bytes: pack.mapped_bytes,
                used_bytes: pack.used_bytes,
                huge: huge_bytes > 0,
                huge_bytes,
            },
            stats: runtime.stats_enabled().then(|| Stats::of(&program.stats())),
        }
    }

    pub(crate) fn write_text(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "{} ({}, tag {}), {}", self.program, self.program_type, self.tag, self.engine)?;
        writeln!(
            out,
            "  loaded in {:.0} us: parse {:.0}, verify {:.0}, compile {:.0}",
            self.load_us, self.parse_us, self.verify_us, self.jit_us
        )?;
        writeln!(
            out,
            "  {} instructions in {} bytes of code ({:.1} bytes each)",
            self.insns,
            self.code_bytes,
            self.code_bytes as f64 / self.insns.max(1) as f64
        )?;
        writeln!(
            out,
            "  pack: {} of {} bytes used ({:.2} %), {}, {}",
            self.pack.used_bytes,
            self.pack.bytes,
            100.0 * self.pack.used_bytes as f64 / self.pack.bytes.max(1) as f64,
            self.pack.backing,
            if self.pack.huge { "huge pages" } else { "4 KiB pages" }
        )?;
        let Some(Stats { run_cnt, run_time_ns, most: [half, most], .. }) = &self.stats else { return Ok(()) };
        writeln!(
            out,
            "  {run_cnt} runs in {:.0} us: half of them in at most {half} ns, 99 of 100 in at most {most} ns",
            *run_time_ns as f64 / 1e3
        )
    }
}

impl Report for Capture {
    fn write_text(&self, out: &mut String) -> fmt::Result {
        self.loaded.write_text(out)?;
        writeln!(out, "\n  {:<16}{:>12}{:>9}", "verdict", "packets", "share")?;
        for (name, count) in &self.verdicts {
            let share = 100.0 * *count as f64 / self.packets.max(1) as f64;
            writeln!(out, "  {name:<16}{count:>12}{share:>7.1} %")?;
        }
        writeln!(out, "  {:<16}{:>12}", "all", self.packets)?;
        if !self.ends.is_empty() {
            writeln!(out, "\n  {:<56}{:>12}", "end", "packets")?;
        }
        for (end, count) in &self.ends {
            writeln!(out, "  {end:<56}{count:>12}")?;
        }
        if self.interrupted {
            writeln!(out, "  interrupted: the counts are up to this point")?;
        }
        if let (Some(jit), Some(interpreter)) = (self.ns_per_packet_jit, self.ns_per_packet_interp) {
            writeln!(
                out,
                "\n  ns per packet: {jit:.1} compiled, {interpreter:.1} interpreted ({:.1} times as long)",
                interpreter / jit
            )?;
        }
        write_maps(out, &self.maps)
    }
}

impl Report for Data {
    fn write_text(&self, out: &mut String) -> fmt::Result {
        self.loaded.write_text(out)?;
        match self.verdict {
            Some(verdict) => writeln!(out, "\n  result: {} ({verdict})", self.result)?,
            None => writeln!(out, "\n  result: {} ({:#x})", self.result, self.result)?,
        }
        if let (Some(best), Some(median)) = (self.ns_best, self.ns_median) {
            writeln!(out, "  ns per run: {best:.1} best, {median:.1} median, {} runs", self.runs)?;
        }
        write_maps(out, &self.maps)
    }
}

pub(crate) fn write_maps(out: &mut String, maps: &[MapReport]) -> fmt::Result {
    for map in maps {
        let MapReport { name, kind, entries, max_entries, .. } = map;
        if *kind == "arena" {
            writeln!(out, "\n  map {name}: {kind}, {entries} of {max_entries} pages")?;
        } else if map.variables {
            writeln!(out, "\n  map {name}: {entries} variables")?;
        } else if *kind == "ringbuf" {
            writeln!(out, "\n  map {name}: {kind}, {entries} of {max_entries} bytes")?;
        } else if *kind == "bloom_filter" {
            writeln!(out, "\n  map {name}: {kind} for {max_entries} values")?;
        } else if *kind == "perf_event_array" {
            writeln!(out, "\n  map {name}: {kind}, {entries} samples")?;
        } else if map.kind.ends_with("array") {
            writeln!(out, "\n  map {name}: {kind}, {entries} of {max_entries} entries not zero")?;
        } else {
            writeln!(out, "\n  map {name}: {kind}, {entries} of {max_entries} entries")?;
        }
        for Element { key, value } in map.elements.iter().take(SHOWN_TEXT) {
            writeln!(out, "    {key:<24} {value}")?;
        }
        let listed = if *kind == "arena" { map.elements.len() } else { map.entries };
        if listed > SHOWN_TEXT.min(map.elements.len()) && !map.elements.is_empty() {
            writeln!(out, "    ... (--json shows up to {SHOWN_JSON})")?;
        }
    }
    Ok(())
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Numbers(numbers) => {
                f.write_str(&numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
            }
            Self::Bytes(bytes) => f.write_str(bytes),
            Self::PerCpu(values) => f.write_str(values.first().map_or("", |value| value)),
        }
    }
}

/// The current contents of a module's maps. `typed` adds what only JSON shows.
pub(crate) fn maps(module: &Module, samples: &Samples, typed: bool) -> Result<Vec<MapReport>, Failure> {
    let of = |(index, map)| -> Result<MapReport, Failure> {
        let mut report = report(module, samples, index, map)?;
        if let Some((elements, complete)) = contents::list(module, map).filter(|_| typed && !report.variables)
        {
            (report.contents, report.complete) = (Some(elements), Some(complete));
        }
        Ok(report)
    };
    let maps = module.maps().iter().map(|map| &**map);
    maps.enumerate().map(of).collect()
}

fn report(module: &Module, samples: &Samples, index: usize, map: &Map) -> Result<MapReport, skep::Error> {
    let def = map.def();
    let mut report = MapReport {
        name: def.name.clone(),
        kind: def.kind.name(),
        key_size: def.key_size,
        value_size: def.value_size,
        max_entries: def.max_entries,
        variables: false,
        entries: 0,
        elements: Vec::new(),
        contents: None,
        complete: None,
    };
    let globals: Vec<_> = module.variables().iter().filter(|variable| variable.map == index).collect();
    if !globals.is_empty() {
        report.variables = true;
        report.entries = globals.len();
        let value = match map.arena() {
            // They are at its start; its other bytes are not listed.
            Some(arena) => {
                report.entries = arena.pages() as usize;
                let ends = globals.iter().map(|variable| variable.offset + variable.size);
                let mut bytes = vec![0; ends.max().unwrap_or(0)];
                arena.read(arena.start(), &mut bytes)?;
                bytes
            }
            None => map.lookup(&0u32.to_ne_bytes())?.unwrap_or_default(),
        };
        report.elements = globals
            .iter()
            .filter_map(|variable| {
                let bytes = value.get(variable.offset..variable.offset + variable.size)?;
                Some(Element { key: variable.name.clone(), value: global(bytes) })
            })
            .take(SHOWN_JSON)
            .collect();
        return Ok(report);
    }
    if let Some(count) = samples.count(&def.name) {
        report.entries = count as usize;
        return Ok(report);
    }
    if def.key_size == 0 || map.references().is_some() {
        // `BPF_RB_AVAIL_DATA`; 0 for other kinds.
        report.entries = map.len() as usize + map.ring_query(0) as usize;
        return Ok(report);
    }
    let mut key = map.next_key(None)?;
    while let Some(found) = key {
        if let Some(value) = map.lookup(&found)? {
            // Every element of an array exists; zero elements are left out.
            if !def.kind.is_array() || value.iter().any(|byte| *byte != 0) {
                report.entries += 1;
                if report.elements.len() < SHOWN_JSON {
                    let shown = if def.kind.is_array() { index_of(&found) } else { spaced(&found) };
                    report.elements.push(Element { key: shown, value: value_of(map, &value) });
                }
            }
        }
        key = map.next_key(Some(&found))?;
    }
    Ok(report)
}

fn index_of(key: &[u8]) -> String {
    key.try_into().map_or_else(|_| spaced(key), |key| u32::from_ne_bytes(key).to_string())
}

fn global(bytes: &[u8]) -> Value {
    match number(bytes) {
        Some(number) => Value::Number(number),
        None => Value::Bytes(cut(bytes, 32)),
    }
}

fn value_of(map: &Map, bytes: &[u8]) -> Value {
    let def = map.def();
    if !def.kind.is_per_cpu() {
        return number(bytes).map_or_else(|| Value::Bytes(cut(bytes, SHOWN_BYTES)), Value::Number);
    }
    // The values of all CPUs follow one another, each rounded up to eight bytes.
    let size = def.value_size as usize;
    let values: Vec<&[u8]> = bytes.chunks(size.next_multiple_of(8)).map(|value| &value[..size]).collect();
    if let Some(numbers) = values.iter().map(|value| number(value)).collect::<Option<Vec<_>>>() {
        return Value::Number(numbers.into_iter().fold(0, u64::wrapping_add));
    }
    if size.is_multiple_of(8) && size <= SHOWN_BYTES {
        let words = values.iter().fold(vec![0u64; size / 8], |mut sums, value| {
            for (sum, word) in sums.iter_mut().zip(value.chunks_exact(8)) {
                *sum = sum.wrapping_add(number(word).unwrap_or(0));
            }
            sums
        });
        return Value::Numbers(words);
    }
    let used = values.iter().filter(|value| value.iter().any(|byte| *byte != 0));
    Value::PerCpu(used.map(|value| cut(value, SHOWN_BYTES)).collect())
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

/// Bytes in hexadecimal with spaces, as bpftool prints keys and values.
fn spaced(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// The same, limited to a number of bytes: a value may have gigabytes.
fn cut(bytes: &[u8], shown: usize) -> String {
    match bytes.get(..shown) {
        Some(first) if bytes.len() > shown => format!("{} ... ({} bytes)", spaced(first), bytes.len()),
        _ => spaced(bytes),
    }
}

fn all_lossless<S: Serializer>(numbers: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(numbers.iter().map(|number| contents::number(*number)))
}

fn as_object<S: Serializer>(verdicts: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(verdicts.iter().map(|(name, count)| (name, count)))
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn long_values_are_truncated_and_give_their_length() {
        assert_eq!(cut(&[1, 2, 3], 3), "01 02 03");
        assert_eq!(cut(&[1, 2, 3, 4], 3), "01 02 03 ... (4 bytes)");
        assert_eq!(cut(&[], 3), "");
    }
}
