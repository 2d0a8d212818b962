//! Draws the packs as text: figures, and a character for each half page.

use super::snapshot::{PackMap, Snapshot, State};
use std::fmt::{self, Write};

/// Bytes per character, and characters per line.
const CELL: usize = 2 << 10;
const COLUMNS: usize = 64;
const LINE: usize = CELL * COLUMNS;
/// Maximum number of programs listed and packs drawn.
const PROGRAMS: usize = 24;
const PACKS: usize = 16;

/// The whole text.
pub(crate) fn render(snapshot: &Snapshot) -> Result<String, fmt::Error> {
    let mut out = story(snapshot)?;
    figures(&mut out, snapshot)?;
    programs(&mut out, snapshot)?;
    writeln!(
        out,
        "\na character is {} KiB: # full  + half or more  : less  . free  w some of it waits for readers\n\
         {:25}d some of it is a draft  _ no memory yet",
        CELL >> 10,
        ""
    )?;
    for (number, pack) in snapshot.packs.iter().take(PACKS).enumerate() {
        map(&mut out, number, pack)?;
    }
    if snapshot.packs.len() > PACKS {
        let more = count(snapshot.packs.len() - PACKS, "more pack");
        writeln!(out, "\n{more} (--json and --svg have them)")?;
    }
    for long in &snapshot.long_texts {
        writeln!(out, "\n{}", long.describe())?;
    }
    Ok(out)
}

/// Describes the example in one to three sentences.
pub(crate) fn story(snapshot: &Snapshot) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let example = &snapshot.example;
    let objects = match example.objects.as_slice() {
        [only] => only.clone(),
        several if several.len() <= 8 => several.join(", "),
        several => format!("{} objects", several.len()),
    };
    writeln!(out, "{objects}")?;
    writeln!(
        out,
        "each loaded {}; {} on {}",
        count(example.copies as usize, "time"),
        count(example.runs as usize, "run"),
        count(example.threads, "thread")
    )?;
    if example.churn > 0 {
        writeln!(
            out,
            "{} freed in {} of churn and after; then {} more while a reader was in a read-side critical section,\n\
             which it has not left: these wait",
            count(example.freed, "program"),
            count(example.churn as usize, "round"),
            grouped(example.waiting)
        )?;
    }
    if example.promoted == Some(false) {
        writeln!(out, "not all packs could be made huge pages, although --promote was given")?;
    }
    Ok(out)
}

/// The figures as pairs of name and value.
pub(crate) fn lines(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let backing = match &snapshot.backing_refused {
        Some(why) => format!("{}, since the preferred kind was refused: {why}", snapshot.backing),
        None => snapshot.backing.to_owned(),
    };
    let huge = match snapshot.huge_bytes {
        Some(bytes) => format!("{} bytes as reported by the kernel", grouped(bytes as usize)),
        None => "not reported by the kernel".to_owned(),
    };
    let refused = snapshot.huge_refused.as_ref().map_or_else(String::new, |why| format!("; refused: {why}"));
    let each = snapshot.bytes_per_program.map_or_else(String::new, |bytes| {
        let code = snapshot.code_bytes as f64 / snapshot.texts.max(1) as f64;
        format!(
            ", {} bytes of memory for {} bytes of code on average",
            grouped(bytes.round() as usize),
            grouped(code.round() as usize)
        )
    });
    vec![
        ("backing", backing),
        (
            "packs",
            format!(
                "{}, {} of them empty, {} sealed",
                snapshot.pack_count, snapshot.empty_packs, snapshot.sealed_packs
            ),
        ),
        ("memory", format!("{} bytes", grouped(snapshot.mapped_bytes))),
        ("huge pages", format!("{}, {huge}{refused}", count(snapshot.huge_packs, "pack"))),
        ("programs", format!("{}{each}; {}", grouped(snapshot.texts), count(snapshot.drafts, "draft"))),
        (
            "code",
            format!(
                "{} bytes, {:.1} % of the memory; {} with rounding to chunks",
                grouped(snapshot.code_bytes),
                100.0 * snapshot.utilisation,
                grouped(snapshot.used_bytes)
            ),
        ),
        (
            "free",
            format!(
                "{} bytes, {} of them in one run (fragmentation {:.2})",
                grouped(snapshot.free_bytes),
                grouped(snapshot.largest_free_run),
                snapshot.fragmentation
            ),
        ),
        ("waiting", format!("{} bytes that readers may still be in", grouped(snapshot.waiting_bytes))),
    ]
}

/// A number with its noun.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn figures(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    writeln!(out)?;
    for (name, value) in lines(snapshot) {
        writeln!(out, "  {name:<11} {value}")?;
    }
    Ok(())
}

fn programs(out: &mut String, snapshot: &Snapshot) -> fmt::Result {
    writeln!(out, "\n  {:<20}{:<18}{:>7}{:>12}{:>9}", "program", "tag", "copies", "code bytes", "waiting")?;
    for copies in snapshot.programs.iter().take(PROGRAMS) {
        writeln!(
            out,
            "  {:<20}{:<18}{:>7}{:>12}{:>9}",
            copies.program,
            copies.tag,
            copies.copies,
            grouped(copies.code_bytes),
            copies.waiting
        )?;
    }
    if snapshot.programs.len() > PROGRAMS {
        writeln!(out, "  ... and {} more (--json has them)", snapshot.programs.len() - PROGRAMS)?;
    }
    Ok(())
}

fn map(out: &mut String, number: usize, pack: &PackMap) -> fmt::Result {
    writeln!(out, "\npack {number} at {:#x}, {} KiB of memory", pack.address, pack.mapped_bytes >> 10)?;
    let cells = cells(pack);
    let lines = pack.mapped_bytes.div_ceil(LINE).max(1);
    let mut before = String::new();
    let mut left_out = false;
    for (number, line) in cells.chunks(COLUMNS).take(lines).enumerate() {
        let line: String = line.iter().collect();
        if number + 1 < lines && line == before {
            if !left_out {
                writeln!(out, "          *")?; // as hexdump does
            }
            left_out = true;
            continue;
        }
        writeln!(out, "{:>5} KiB |{line}|", (number * LINE) >> 10)?;
        (before, left_out) = (line, false);
    }
    let rest = pack.bytes.saturating_sub(lines * LINE);
    if rest > 0 {
        writeln!(out, "          |{:_^COLUMNS$}|", format!(" and {} KiB more without memory ", rest >> 10))?;
    }
    Ok(())
}

/// A character for each cell of a pack.
fn cells(pack: &PackMap) -> Vec<char> {
    let mut bytes = vec![[0usize; State::ALL.len()]; pack.bytes / CELL];
    for span in &pack.spans {
        let mut at = span.offset;
        let end = span.offset + span.bytes;
        while at < end {
            let next = ((at / CELL + 1) * CELL).min(end);
            bytes[at / CELL][span.state as usize] += next - at;
            at = next;
        }
    }
    let glyph = |cell: &[usize; State::ALL.len()]| {
        let of = |state: State| cell[state as usize];
        match of(State::Text) {
            _ if of(State::Draft) > 0 => 'd',
            _ if of(State::Waiting) > 0 => 'w',
            CELL => '#',
            text if text >= CELL / 2 => '+',
            0 if of(State::NoMemory) > 0 => '_',
            0 => '.',
            _ => ':',
        }
    };
    bytes.iter().map(glyph).collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::Span;
    use super::*;

    #[test]
    fn a_cell_shows_the_most_urgent_state_in_it() {
        let span = |offset: usize, bytes: usize, state| Span { offset, bytes, state, name: None };
        let spans = vec![
            span(0, CELL, State::Text),
            span(CELL, CELL - 32, State::Text),
            span(2 * CELL - 32, 64, State::Free),
            span(2 * CELL + 32, 32, State::Text),
            span(2 * CELL + 64, 2 * CELL - 64, State::Free),
            span(4 * CELL, CELL - 64, State::Text),
            span(5 * CELL - 64, 32, State::Waiting),
            span(5 * CELL - 32, 64, State::Draft),
            span(5 * CELL + 32, CELL - 32, State::Free),
            span(6 * CELL, CELL, State::NoMemory),
        ];
        let pack = PackMap { address: 0, bytes: 7 * CELL, mapped_bytes: 6 * CELL, spans };
        assert_eq!(cells(&pack).iter().collect::<String>(), "#+:.dd_");
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        let numbers = [0, 999, 1000, 65_536, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "999", "1,000", "65,536", "1,234,567"]);
    }
}
