//! Verdicts as text: a line for each program, a column for each release, and below it what stands in the way.

use super::{Cell, Kernel, Report, Row};
use crate::output::Piece;
use skep_kernels::Verdict;

const GREEN: Option<u8> = Some(32);
const RED: Option<u8> = Some(31);
const YELLOW: Option<u8> = Some(33);

/// Width of a column: the longest verdict, and a gap.
const COLUMN: usize = 13;

pub(super) fn text(reports: &[Report], kernels: &[Kernel]) -> Vec<Piece> {
    let names = reports.iter().flat_map(|report| &report.programs).map(|row| row.program.chars().count());
    let width = names.max().unwrap_or(0).clamp(8, 40) + 2;
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, report) in reports.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        pieces.push((None, format!("{gap}{}\n", report.object)));
        if let Some(error) = &report.error {
            pieces.push((RED, "  not read".to_owned()));
            pieces.push((None, format!(": {error}\n")));
            continue;
        }
        let heads = kernels.iter().map(|kernel| format!("{:<COLUMN$}", kernel.version));
        let heads = format!("  {:<width$}{}", "", heads.collect::<String>());
        pieces.push((None, format!("{}\n", heads.trim_end())));
        report.programs.iter().for_each(|row| program(row, width, &mut pieces));
    }
    pieces
}

fn program(row: &Row, width: usize, pieces: &mut Vec<Piece>) {
    pieces.push((None, format!("  {:<width$}", row.program)));
    for (index, cell) in row.kernels.iter().enumerate() {
        pieces.push((colour(cell), cell.verdict.to_owned()));
        let last = index + 1 == row.kernels.len();
        let gap = if last { 0 } else { COLUMN.saturating_sub(cell.verdict.len()) };
        pieces.push((None, " ".repeat(gap)));
    }
    pieces.push((None, "\n".to_owned()));
    for (cell, kernels) in row.groups() {
        let Some(reason) = &cell.reason else { continue };
        pieces.push((None, format!("    {}: {reason}{}\n", kernels.join(", "), place(cell))));
    }
}

fn colour(cell: &Cell) -> Option<u8> {
    match cell.verdict {
        verdict if verdict == Verdict::Accepted.name() => GREEN,
        verdict if verdict == Verdict::Refused.name() => RED,
        _ => YELLOW,
    }
}

fn place(cell: &Cell) -> String {
    let (Some(insn), Some(text)) = (cell.insn, &cell.text) else { return String::new() };
    let line = match (&cell.file, cell.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", file.rsplit('/').next().unwrap_or_default()),
        _ => String::new(),
    };
    format!(", at instruction {insn} `{text}`{line}")
}
