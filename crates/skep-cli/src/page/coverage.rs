//! `skep test --html`: which lines of the programs' sources the tests executed.
//!
//! ```text
//!   DIR/index.html     files, with the shares of lines and branches
//!   DIR/N-FILE.html    functions, and the source: each line with its count; behind it branches, tests, instructions
//! ```

use super::look::{count, document, place};
use super::proved::Proved;
use crate::failure::Failure;
use crate::{arch, dump, output};
use maud::{Markup, html};
use skep::jit::Target;
use skep::{Object, ProgramOptions, Runtime, VerifyOptions};
use skep_test::{Coverage, FileCoverage, LineCoverage, Share};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tests that are named at a line.
const NAMED: usize = 40;

/// A program as it is compiled without counting: by slot its instruction, what the verifier proved, and machine code.
#[derive(Default)]
struct Detail {
    name: String,
    /// The name of the object's file: several may have a program of one name.
    object: String,
    instructions: BTreeMap<u32, String>,
    proved: Proved,
    code: BTreeMap<u32, Vec<String>>,
}

/// Writes the pages.
pub(crate) fn coverage(
    coverage: &Coverage,
    programs: &[(PathBuf, String)],
    folder: &Path,
) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::Refused(format!("cannot make the folder {}: {error}", folder.display())))?;
    let details: Vec<Detail> = programs.iter().map(|(object, name)| Detail::of(object, name)).collect();
    let mut names = Vec::new();
    for (number, (path, file)) in (1..).zip(&coverage.files) {
        let kept = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '-' };
        let last = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{number}-{}.html", last.chars().map(kept).take(64).collect::<String>());
        let title = place(&path.display().to_string());
        let page = document(&title, &source(&title, path, file, coverage, &details));
        output::file(&folder.join(&name), page.into_string())?;
        names.push(name);
    }
    output::file(&folder.join("index.html"), document("Coverage", &index(coverage, &names)).into_string())
}

fn index(coverage: &Coverage, names: &[String]) -> Markup {
    html! {
        h1 { "Coverage" }
        p { (count(coverage.tests.len(), "test", "tests")) }
        div.wide { table {
            thead { tr {
                th { "source" } th.n { "lines" } th.n { "branches" } th.n { "functions" } th.n { "dead lines" }
            } }
            tbody {
                @for ((path, file), name) in coverage.files.iter().zip(names) { tr {
                    td { a href=(name) { (place(&path.display().to_string())) } }
                    td.n { (share(file.line_share())) }
                    td.n { (share(file.branch_share())) }
                    td.n {
                        (file.functions.values().filter(|(_, entered)| *entered > 0).count())
                        "/" (file.functions.len())
                    }
                    td.n { (file.dead()) }
                } }
                tr {
                    th { "all" }
                    th.n { (share(coverage.lines())) }
                    th.n { (share(coverage.branches())) }
                    th.n {} th.n {}
                }
            }
        } }
        p.dim { "The verifier found no path to dead lines: they cannot be executed, and are not counted." }
        @for program in &coverage.without_lines {
            p.bad { "No lines are known of " (place(program)) ": compile it with -g." }
        }
    }
}

fn share(share: Share) -> Markup {
    html! {
        @if share.all == 0 { "-" } @else {
            span.bad[share.covered < share.all].good[share.covered == share.all] {
                (format!("{:.1} %", 100.0 * share.rate()))
            }
            " (" (share.covered) "/" (share.all) ")"
        }
    }
}

fn source(title: &str, path: &Path, file: &FileCoverage, coverage: &Coverage, details: &[Detail]) -> Markup {
    let text = std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mut rows: BTreeMap<u32, &str> = file.lines.iter().map(|(line, of)| (*line, &*of.text)).collect();
    if let Ok(text) = &text {
        rows.extend((1..).zip(text.lines()));
    }
    html! {
        p { a href="index.html" { "Coverage" } }
        h1 { (title) }
        p { "Lines " (share(file.line_share())) ", branches " (share(file.branch_share())) "." }
        @if text.is_err() {
            p.dim { "The source is not there: these are the lines that the object knows." }
        }
        @if !file.functions.is_empty() {
            h2 { "Functions" }
            div.wide { table {
                thead { tr { th { "function" } th.n { "line" } th.n { "entered" } } }
                tbody { @for (name, (line, entered)) in &file.functions { tr {
                    td { a href={ "#" (line) } { code { (place(name)) } } }
                    td.n { (line) }
                    td.n { span.bad[*entered == 0] { (entered) } }
                } } }
            } }
        }
        h2 { "Source" }
        p.dim { "Open a line for its branches, the tests that executed it, its instructions with what the verifier knew, and machine code." }
        div.wide { table.source { tbody {
            @for (number, text) in &rows {
                (row(*number, text, file.lines.get(number), coverage, details))
            }
        } } }
    }
}

fn row(
    number: u32,
    text: &str,
    line: Option<&LineCoverage>,
    coverage: &Coverage,
    details: &[Detail],
) -> Markup {
    let Some(line) = line else {
        return html! { tr id=(number) { td.n { (number) } td.n {} td { pre { (place(text)) } } } };
    };
    let sides = line.branch_share();
    let class = match line.executions {
        None => "dead",
        Some(0) => "missed",
        Some(_) if sides.covered < sides.all => "partly",
        Some(_) => "hit",
    };
    html! {
        tr id=(number) class=(class) {
            td.n { (number) }
            td.n { @match line.executions { Some(count) => (count), None => "dead" } }
            td { details {
                summary { pre { (place(text)) } }
                @if line.executions.is_none() { p { "The verifier found no path to this line." } }
                @if !line.branches.is_empty() {
                    p { "Conditions, held and not:" }
                    ul { @for ((program, slot), (taken, passed)) in &line.branches { li {
                        (taken) " and " (passed)
                        @if let Some(detail) = details.get(*program) { " in " (detail.name) ", instruction " (slot) }
                    } } }
                }
                @if !line.tests.is_empty() {
                    p { "Executed by " (count(line.tests.len(), "test", "tests")) ":" }
                    ul { @for test in line.tests.iter().take(NAMED) { li { (place(&coverage.tests[*test])) } } }
                    @if line.tests.len() > NAMED { p { "and " (line.tests.len() - NAMED) " more" } }
                }
                @for (program, start, end) in &line.slots {
                    @if let Some(detail) = details.get(*program) { (instructions(detail, *start, *end)) }
                }
            } }
        }
    }
}

fn instructions(detail: &Detail, start: u32, end: u32) -> Markup {
    html! {
        @if detail.instructions.range(start..end).next().is_some() {
            p { "In " (detail.name) " of " (detail.object) ", as verified, what holds behind each instruction, and its machine code:" }
            pre { @for (slot, text) in detail.instructions.range(start..end) {
                (format!("{slot:>5}: {}\n", place(text)))
                @if let Some(states) = detail.proved.of(*slot) {
                    @for state in &states.some { span.proved { (format!("       {}\n", place(state))) } }
                    @if states.more { span.proved { "       and others on other paths\n" } }
                }
                @for code in detail.code.get(slot).into_iter().flatten() {
                    span.dim { (format!("         {}\n", place(code))) }
                }
            } }
        }
    }
}

impl Detail {
    /// Nothing but the name if the program cannot be loaded by itself: what was executed is known nevertheless.
    fn of(object: &Path, name: &str) -> Self {
        let empty = || Self { name: place(name), ..Self::default() };
        Self::loaded(object, name).unwrap_or_else(empty)
    }

    fn loaded(path: &Path, name: &str) -> Option<Self> {
        let object = Object::open(path).ok()?;
        let runtime = Runtime::new().ok()?;
        let module = runtime.linker(&object).only(name).load().ok()?;
        let program = module.program(name)?;
        let before = object.linked(name, ProgramOptions::default()).ok()?.insns;
        let mut proved = Proved::default();
        let mut log = |line: &str| proved.line(line);
        let how = VerifyOptions { log: Some(&mut log), ..VerifyOptions::default() };
        // What is proved of a program that is refused here, without the host's values, is not shown.
        let accepted = object.verify_with(name, ProgramOptions::default(), how).is_ok();
        let proved = if accepted { proved } else { Proved::default() };
        let lines = dump::xlated(program.verified(), &before);
        let instructions = lines.into_iter().map(|line| (line.at as u32, line.text)).collect();
        Some(Self {
            name: place(name),
            object: place(&path.file_name()?.to_string_lossy()),
            instructions,
            proved,
            code: code(program).unwrap_or_default(),
        })
    }
}

/// The machine code of each slot.
fn code(program: &skep::Program) -> Option<BTreeMap<u32, Vec<String>>> {
    let target = Target::host()?;
    let emitted = program.emit(target).ok()?;
    let places: Vec<(u32, u32)> = match emitted.pieces.is_empty() {
        true => emitted.offsets.iter().copied().zip(0..).collect(),
        false => emitted.pieces.to_vec(),
    };
    let mut code: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for insn in arch::disassembler(target.name())?(&emitted.bytes, 0) {
        // Slots without code of their own begin where the next one's does.
        let after = places.partition_point(|(at, _)| u64::from(*at) <= insn.at);
        let Some((_, slot)) = places[..after].last() else { continue };
        code.entry(*slot).or_default().push(insn.text);
    }
    Some(code)
}
