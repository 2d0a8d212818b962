//! Who calls whom: programs on the left, their functions and maps on the right.
//!
//! ```text
//!   program ----calls----> function
//!           ----uses-----> map
//!           --tail calls-> array of programs - - its first elements - -> program
//! ```

use super::program::{Part, Verdict};
use crate::output::xml;
use skep::abi::MapKind;
use skep::isa::{Imm64, Insn};
use skep_elf::{EntryTarget, MapEntry, Object as Parsed};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Sizes in pixels.
const ROW: usize = 26;
const BOX: usize = 20;
const WIDTH: usize = 300;
const BETWEEN: usize = 260;
const MARGIN: usize = 14;
/// The most boxes of a side: more cannot be read.
const MOST: usize = 400;

const STYLE: &str = "\
svg{background:#fff}text{font:12px ui-monospace,monospace;fill:#1b1f24}rect{fill:#f6f8fa;stroke:#8c959f}\
path{fill:none;stroke-width:1.3}.calls{stroke:#8250df}.tail{stroke:#bc4c00}.uses{stroke:#8c959f}\
.first{stroke:#bc4c00;stroke-dasharray:4 3}\
@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}rect{fill:#161b22;stroke:#484f58}\
.calls{stroke:#a371f7}.tail,.first{stroke:#db6d28}.uses{stroke:#6e7681}}";

/// The drawing; `None` if no program leads anywhere, or there is too much to draw.
pub(super) fn draw(parsed: &Parsed, parts: &[Part]) -> Option<String> {
    let mut right: Vec<String> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    let mut edges: BTreeSet<(usize, usize, &'static str)> = BTreeSet::new();
    for (from, part) in parts.iter().enumerate() {
        let Verdict::Accepted(program) = &part.verdict else { continue };
        let mut lead = |name: String, class| {
            let at = *index.entry(name.clone()).or_insert_with(|| {
                right.push(name);
                right.len() - 1
            });
            edges.insert((from, at, class));
        };
        // The first function is the program itself.
        for function in program.functions().iter().skip(1) {
            lead(format!("{}()", function.name), "calls");
        }
        for insn in program.insns() {
            let Insn::LoadImm64 { value: Imm64::Map(map) | Imm64::MapValue { map, .. }, .. } = insn else {
                continue;
            };
            let Some(def) = program.maps().get(*map as usize) else { continue };
            lead(def.name.clone(), if def.kind == MapKind::ProgArray { "tail" } else { "uses" });
        }
    }
    if edges.is_empty() || parts.len().max(right.len()) > MOST {
        return None;
    }
    let mut out = String::new();
    let high = 2 * MARGIN + ROW * parts.len().max(right.len());
    let wide = 2 * MARGIN + 2 * WIDTH + BETWEEN;
    // A string takes everything.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\"><style>{STYLE}</style>"
    );
    let (left, second) = (MARGIN, MARGIN + WIDTH + BETWEEN);
    let middle = |row: usize| MARGIN + ROW * row + BOX / 2;
    let mut curve = |from: usize, to: usize, class: &str| {
        let (start, end) = (left + WIDTH, second);
        let (y, to) = (middle(from), middle(to));
        let (near, far) = (start + BETWEEN / 2, end - BETWEEN / 2);
        let _ =
            writeln!(out, "<path class=\"{class}\" d=\"M{start} {y}C{near} {y} {far} {to} {end} {to}\"/>");
    };
    for (from, to, class) in &edges {
        curve(*from, *to, class);
    }
    for map in parsed.maps() {
        let Some(array) = index.get(&map.def.name) else { continue };
        for entry in &map.entries {
            let EntryTarget::Program(name) = &entry.target else { continue };
            if let Some(program) = parsed.programs().iter().position(|program| program.name() == name) {
                curve(program, *array, "first");
            }
        }
    }
    let names = parts.iter().map(|part| part.name.clone()).zip(std::iter::repeat(left));
    let others = right.iter().cloned().zip(std::iter::repeat(second));
    for (row, (name, x)) in names.enumerate().chain(others.enumerate()) {
        let (top, x_text, y) = (MARGIN + ROW * row, x + 7, MARGIN + ROW * row + 14);
        let name: String = name.chars().take(40).collect();
        let name = xml(&skep::escaped(&name));
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{BOX}\" rx=\"4\"/><text x=\"{x_text}\" y=\"{y}\">{name}</text>"
        );
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// The name of what an element of a map holds.
pub(super) fn target(parsed: &Parsed, entry: &MapEntry) -> String {
    match &entry.target {
        EntryTarget::Program(name) => skep::escaped(name),
        EntryTarget::Map(map) => {
            parsed.maps().get(*map as usize).map_or("?".to_owned(), |map| skep::escaped(&map.def.name))
        }
    }
}
