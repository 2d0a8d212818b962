//! `skep cfg`: the control flow of a verified program, as a graph of basic blocks.
//!
//! ```text
//!   [ 0: r6 = r1        ]           an edge is green where a condition holds, red where it does not;
//!   [ 1: if r2 > r3 ... ]           calls of functions are dashed
//!      | else      | then
//! ```
//!
//! In SVG, blocks stand below one another in the program's order, and jumps take lanes beside them; in DOT, Graphviz
//! places them. Instructions are those that are compiled: jumps that the verifier decided are decided here.

mod svg;

use crate::dump;
use crate::facts;
use crate::failure::Failure;
use crate::object::{ProgramArgs, is_stdin};
use crate::output;
use skep::isa::Insn;
use skep::{Verified, VerifyOptions};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// The longest line of source in a block, in characters.
const LINE: usize = 80;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    program: ProgramArgs,
    /// The types of the kernel or host that the program is for.
    #[arg(long, value_name = "FILE")]
    btf: Vec<PathBuf>,
    /// Draw the graph into this file as SVG, instead of printing it in DOT; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Instructions that are always executed one after another.
#[derive(Debug, PartialEq)]
struct Block {
    /// The first slot, and the one behind the last.
    start: usize,
    end: usize,
    edges: Vec<(usize, Edge)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Edge {
    /// The only way on.
    Next,
    Then,
    Else,
    /// A function of the program that it calls, or whose address it takes.
    Call,
}

/// Runs the command.
pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let mut object = args.program.open()?;
    crate::target::set(&mut object, &args.btf, None, None)?;
    let name = args.program.choose(&object)?;
    let options = args.program.options();
    let program = object.verify_with(&name, options, VerifyOptions::default())?;
    let before = object.linked(&name, options)?.insns;
    let (blocks, labels) = graph(&program, &before);
    match &args.svg {
        None => output::text(&dot(&name, &labels, &blocks)),
        Some(path) if is_stdin(path) => output::text(&svg::picture(&name, &labels, &blocks)),
        Some(path) => output::file(path, svg::picture(&name, &labels, &blocks)),
    }
}

/// The drawing of a program that had those instructions before it was verified.
pub(crate) fn drawing(program: &Verified, before: &[Insn]) -> String {
    let (blocks, labels) = graph(program, before);
    svg::picture(program.name(), &labels, &blocks)
}

/// The lines of a block, and whether a path reaches it.
type Label = (Vec<String>, bool);

fn graph(program: &Verified, before: &[Insn]) -> (Vec<Block>, Vec<Label>) {
    let blocks = blocks(program.insns());
    let facts = facts::of(program, before);
    let sources = dump::sources(program);
    let labels = blocks.iter().map(|block| label(program, &facts, &sources, block)).collect();
    (blocks, labels)
}

/// The slots that follow an instruction in a run of its function.
fn successors(insns: &[Insn], slot: usize) -> Vec<(usize, Edge)> {
    let insn = &insns[slot];
    match (insn.jump_target(slot), insn.falls_through()) {
        (Some(to), true) => vec![(to, Edge::Then), (slot + 1, Edge::Else)],
        (Some(to), false) => vec![(to, Edge::Next)],
        (None, true) => vec![(slot + 1, Edge::Next)],
        (None, false) => Vec::new(),
    }
}

fn blocks(insns: &[Insn]) -> Vec<Block> {
    let mut heads = BTreeSet::from([0]);
    for (slot, insn) in insns.iter().enumerate() {
        let next = successors(insns, slot);
        if !matches!(next.as_slice(), [(next, _)] if *next == slot + 1) {
            heads.insert(slot + 1);
            heads.extend(next.iter().map(|(next, _)| *next));
        }
        heads.extend(insn.function_target(slot));
    }
    heads.retain(|head| *head < insns.len());
    let ends = heads.iter().skip(1).copied().chain([insns.len()]);
    heads
        .iter()
        .zip(ends)
        .map(|(&start, end)| {
            let mut edges = successors(insns, end - 1);
            edges.retain(|(next, _)| *next < insns.len());
            let called =
                (start..end).filter_map(|slot| Some((insns[slot].function_target(slot)?, Edge::Call)));
            edges.extend(called);
            Block { start, end, edges }
        })
        .collect()
}

fn label(program: &Verified, facts: &[facts::Line], sources: &[Option<String>], block: &Block) -> Label {
    let mut label = Vec::new();
    if let Some(function) = program.functions().iter().find(|it| it.start as usize == block.start) {
        label.push(format!("{}:", function.name));
    }
    for (slot, source) in sources.iter().enumerate().take(block.end).skip(block.start) {
        label.extend(source.iter().map(|text| format!("; {}", cut(text))));
        if matches!(program.insns()[slot], Insn::LoadImm64Tail) {
            continue;
        }
        let text = dump::symbolic(program, &program.insns()[slot]);
        let fact = facts.binary_search_by_key(&slot, |fact| fact.insn as usize);
        label.push(match fact {
            Ok(at) => format!("{slot:>4}: {text}    ; {}", facts[at].words().join(", ")),
            Err(_) => format!("{slot:>4}: {text}"),
        });
    }
    let reached = program.facts().get(block.start).is_none_or(|fact| fact.reached);
    (label, reached)
}

/// The graph in Graphviz's language.
fn dot(name: &str, labels: &[Label], blocks: &[Block]) -> String {
    let mut out = format!("digraph \"{}\" {{\n", escaped(name));
    out.push_str("  node [shape=box, fontname=\"monospace\", fontsize=10];\n");
    for (block, (lines, reached)) in blocks.iter().zip(labels) {
        let label: String = lines.iter().map(|line| format!("{}\\l", escaped(line))).collect();
        let dim = if *reached { "" } else { ", color=gray, fontcolor=gray" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  b{} [label=\"{label}\"{dim}];", block.start);
    }
    for block in blocks {
        for (to, edge) in &block.edges {
            let style = match edge {
                Edge::Next => "",
                Edge::Then => " [label=\"then\", color=green]",
                Edge::Else => " [label=\"else\", color=red]",
                Edge::Call => " [label=\"calls\", style=dashed]",
            };
            let _ = writeln!(out, "  b{} -> b{to}{style};", block.start);
        }
    }
    out.push_str("}\n");
    out
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LINE) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// Text within quotes of the language.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
