//! Draws the packs as a heat map in SVG (W3C, Scalable Vector Graphics 1.1).
//!
//! A chunk is one unit wide, a row has 1,024 of them, and a span is one path, however many rows it covers:
//!
//! ```text
//!    0 KiB |####|##..|####|~~##|#   8 pages of 4 KiB in a row, a line between each two
//!   32 KiB |##..|....|####|####|
//!          |____________________   without memory yet: a band of fixed height
//! ```
//!
//! Each span has a tooltip, unless there are too many: files stay below about a megabyte. Names come from objects,
//! so all names are written through [`escaped`].

use super::palette::Palette;
use super::snapshot::{PackMap, Snapshot, Span, State};
use super::text::{count, grouped, lines, story};
use crate::output::xml;
use skep::text::CHUNK_BYTES;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Chunks in a row and in a page.
const ROW: usize = 1024;
const ROW_BYTES: usize = ROW * CHUNK_BYTES;
const PAGE: usize = 4096 / CHUNK_BYTES;
/// In units: distance of rows, height of the drawing in a row, margins, a line of text, the band.
const PITCH: usize = 9;
const HEIGHT: usize = 8;
const LEFT: usize = 84;
const RIGHT: usize = 20;
const LINE: usize = 18;
const BAND: usize = 16;
const WIDTH: usize = LEFT + ROW + RIGHT;
/// Maximum number of spans with tooltips.
const MOST_TITLES: usize = 3500;
/// Packs beyond this file size are left out.
const MOST_BYTES: usize = 700_000;

const STYLE: &str = "\
text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#22201c}\
.h{font-size:17px;font-weight:bold}.s{font-size:11px;fill:#6b665c}\
.free{fill:#dfdace}.nobody{fill:#9a948a}.waiting{fill:url(#waiting)}.draft{fill:#fff;stroke:#22201c;stroke-dasharray:3 2}\
.none{fill:url(#none)}.grid{stroke:#22201c;stroke-opacity:.28;stroke-width:.6;fill:none}\
.frame{fill:none;stroke:#22201c}\
path:hover{stroke:#000;stroke-width:1.5}";

const PATTERNS: &str = "\
<pattern id=\"waiting\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"5\" height=\"5\" fill=\"#fff\"/>\
<path d=\"M-1 1L1 -1M0 5L5 0M4 6L6 4\" stroke=\"#b3001b\" stroke-width=\"1.6\"/></pattern>\
<pattern id=\"none\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
<rect width=\"6\" height=\"6\" fill=\"#4a4741\"/><circle cx=\"3\" cy=\"3\" r=\"1\" fill=\"#8f897c\"/></pattern>";

/// The picture as a whole document.
pub(crate) fn draw(snapshot: &Snapshot) -> Result<String, fmt::Error> {
    let palette = Palette::new(snapshot.programs.iter().map(|copies| copies.program.as_str()));
    let spans: usize = snapshot.packs.iter().map(|pack| pack.spans.len()).sum();
    let titles = spans <= MOST_TITLES;
    let mut body = String::new();
    let mut y = header(&mut body, snapshot, &palette, titles)?;
    let mut drawn = 0;
    for (number, pack) in snapshot.packs.iter().enumerate() {
        if body.len() > MOST_BYTES {
            break;
        }
        y = block(&mut body, y + 2 * LINE, number, pack, titles, &palette)?;
        drawn += 1;
    }
    let mut rest: Vec<String> = Vec::new();
    if drawn < snapshot.packs.len() {
        rest.push(format!("not drawn: {}", count(snapshot.packs.len() - drawn, "more pack")));
    }
    for long in snapshot.long_texts.iter().take(32) {
        rest.push(long.describe());
    }
    for line in rest {
        y += LINE;
        label(&mut body, LEFT, y, "", &line)?;
    }
    let height = y + 2 * LINE;
    let mut out = String::with_capacity(body.len() + 4096);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"Packs of code memory\">"
    )?;
    writeln!(out, "<style>{STYLE}{}</style>\n<defs>{PATTERNS}</defs>", palette.style()?)?;
    writeln!(out, "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fbfaf6\"/>")?;
    out.push_str(&body);
    out.push_str("</svg>\n");
    Ok(out)
}

/// Writes figures and legend. Returns the y coordinate of their end.
fn header(
    out: &mut String,
    snapshot: &Snapshot,
    palette: &Palette,
    titles: bool,
) -> Result<usize, fmt::Error> {
    let mut y = 30;
    label(out, RIGHT, y, "h", "skep pack show")?;
    for line in story(snapshot)?.lines() {
        y += LINE;
        label(out, RIGHT, y, "s", &cut(line, 160))?;
    }
    y += 6;
    for (name, value) in lines(snapshot) {
        y += LINE;
        label(out, RIGHT, y, "", &format!("{name:<11}"))?;
        label(out, RIGHT + 100, y, "", &cut(&value, 128))?;
    }
    y += LINE;
    let mut x = RIGHT;
    let mut entry = |out: &mut String, class: &str, words: &str| -> fmt::Result {
        let width = 32 + 8 * words.chars().count();
        if x > RIGHT && x + width > WIDTH - RIGHT {
            (x, y) = (RIGHT, y + LINE);
        }
        writeln!(out, "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"12\"/>", y + 2)?;
        label(out, x + 20, y + 13, "", words)?;
        x += width;
        Ok(())
    };
    for program in palette.programs() {
        entry(out, &palette.class(program, 1).unwrap_or_default(), &cut(program, 32))?;
    }
    for state in State::ALL.into_iter().filter(|state| *state != State::Text) {
        entry(out, class(state), state.name())?;
    }
    y += 2 * LINE;
    let hint = if titles { "; point at a piece for details" } else { "" };
    let scale =
        format!("a row is {} KiB, a line every 4 KiB, a unit {CHUNK_BYTES} bytes{hint}", ROW_BYTES >> 10);
    label(out, RIGHT, y, "s", &scale)?;
    Ok(y)
}

/// Writes one pack. Returns the y coordinate of its end.
fn block(
    out: &mut String,
    y: usize,
    number: usize,
    pack: &PackMap,
    titles: bool,
    palette: &Palette,
) -> Result<usize, fmt::Error> {
    let texts = pack.spans.iter().filter(|span| span.state == State::Text).count();
    let words = format!(
        "pack {number} at {:#x}: {} in {} bytes, {} free, {} waiting",
        pack.address,
        count(texts, "program"),
        grouped(pack.bytes_of(State::Text)),
        grouped(pack.bytes_of(State::Free)),
        grouped(pack.bytes_of(State::Waiting))
    );
    label(out, LEFT, y, "", &words)?;
    let top = y + 8;
    let rows = pack.mapped_bytes.div_ceil(ROW_BYTES).max(1);
    for row in (0..rows).step_by(4) {
        let words = format!("{:>5} KiB", (row * ROW_BYTES) >> 10);
        label(out, RIGHT, top + row * PITCH + HEIGHT, "s", &words)?;
    }
    let mut text = 0;
    let mut together: BTreeMap<String, String> = BTreeMap::new();
    for span in &pack.spans {
        let named = span.name.as_ref().filter(|_| span.state == State::Text);
        let class = named
            .and_then(|name| palette.class(&name.program, text))
            .unwrap_or_else(|| class(span.state).to_owned());
        text += usize::from(span.state == State::Text);
        let path = path(span, top, rows)?;
        if titles && !path.is_empty() {
            let title = xml(&title(pack, span));
            writeln!(out, "<path class=\"{class}\" d=\"{path}\"><title>{title}</title></path>")?;
        } else {
            together.entry(class).or_default().push_str(&path);
        }
    }
    for (class, path) in together.iter().filter(|(_, path)| !path.is_empty()) {
        writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>")?;
    }
    let height = rows * PITCH;
    let grid: String =
        (1..ROW / PAGE).map(|page| format!("M{} {top}v{height}", LEFT + page * PAGE)).collect();
    writeln!(out, "<path class=\"grid\" d=\"{grid}\"/>")?;
    let mut bottom = top + height;
    let beyond = pack.bytes.saturating_sub(rows * ROW_BYTES);
    if beyond > 0 {
        writeln!(
            out,
            "<rect class=\"none\" x=\"{LEFT}\" y=\"{bottom}\" width=\"{ROW}\" height=\"{BAND}\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" style=\"fill:#fff\">{} KiB more without memory</text>",
            LEFT + ROW / 2,
            bottom + 12,
            beyond >> 10
        )?;
        bottom += BAND;
    }
    writeln!(
        out,
        "<rect class=\"frame\" x=\"{LEFT}\" y=\"{top}\" width=\"{ROW}\" height=\"{}\"/>",
        bottom - top
    )?;
    Ok(bottom)
}

/// The outline of a span: a rectangle in each row that it covers.
fn path(span: &Span, top: usize, rows: usize) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let mut at = span.offset / CHUNK_BYTES;
    let end = at + span.bytes / CHUNK_BYTES;
    while at < end && at / ROW < rows {
        let next = ((at / ROW + 1) * ROW).min(end);
        let width = next - at;
        write!(out, "M{} {}h{width}v{HEIGHT}h-{width}z", LEFT + at % ROW, top + at / ROW * PITCH)?;
        at = next;
    }
    Ok(out)
}

fn title(pack: &PackMap, span: &Span) -> String {
    let at = pack.address + span.offset;
    match &span.name {
        Some(name) => format!(
            "{}{}\ntag {}\nat {at:#x}\n{} bytes",
            name.program,
            if span.state == State::Waiting { " (freed, waits for readers)" } else { "" },
            name.tag,
            grouped(name.code_bytes)
        ),
        None => format!("{}\nat {at:#x}\n{} bytes", span.state.name(), grouped(span.bytes)),
    }
}

fn label(out: &mut String, x: usize, y: usize, class: &str, words: &str) -> fmt::Result {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    writeln!(out, "<text x=\"{x}\" y=\"{y}\"{class}>{}</text>", xml(words))
}

fn class(state: State) -> &'static str {
    match state {
        State::Free => "free",
        State::Waiting => "waiting",
        State::Draft => "draft",
        State::NoMemory => "none",
        // The owner is not known any more.
        State::Text => "nobody",
    }
}

fn cut(words: &str, most: usize) -> String {
    if words.chars().count() <= most {
        return words.to_owned();
    }
    words.chars().take(most - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::{Example, Name};
    use super::*;
    use skep::Occupancy;
    use skep::text::{self, PACK_BYTES, SpanState};

    fn snapshot(name: &str, texts: usize) -> Snapshot {
        let (base, len) = (16 * PACK_BYTES, 4096);
        let mut spans = Vec::new();
        let mut names = BTreeMap::new();
        let own = |program: &str| Name {
            program: program.to_owned(),
            tag: "0123456789abcdef".into(),
            code_bytes: len,
            freed: false,
        };
        for text in 0..texts {
            let address = base + text * len;
            spans.push(text::Span { address, len, state: SpanState::Text });
            names.insert(address, own(name));
        }
        names.insert(8 * PACK_BYTES, Name { freed: true, ..own("long<&>") });
        Snapshot::new(Example::default(), &Occupancy::default(), &spans, &names)
    }

    #[test]
    fn names_from_objects_cannot_break_the_document() {
        let name = "</title><script>\u{1}\u{1b}[2J\u{ffff}&amp;\"'";
        let picture = draw(&snapshot(name, 3)).unwrap();
        let document = roxmltree::Document::parse(&picture).unwrap();
        assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
        let title = document.descendants().find(|node| node.tag_name().name() == "title").unwrap();
        let shown = "</title><script>\u{fffd}\u{fffd}[2J\u{fffd}&amp;\"'\n";
        assert!(title.text().unwrap().starts_with(shown), "{title:?}");
    }

    #[test]
    fn texts_in_no_pack_are_listed() {
        let picture = draw(&snapshot("firewall", 1)).unwrap();
        let document = roxmltree::Document::parse(&picture).unwrap();
        let listed = |node: roxmltree::Node<'_, '_>| {
            node.is_text()
                && node.text().is_some_and(|text| text.contains("long<&> (freed, waits for readers), tag"))
        };
        assert_eq!(document.descendants().filter(|node| listed(*node)).count(), 1);
    }

    #[test]
    fn a_text_that_wraps_is_one_path_of_several_rectangles() {
        let span =
            Span { offset: 1000 * CHUNK_BYTES, bytes: 2000 * CHUNK_BYTES, state: State::Free, name: None };
        let pieces = path(&span, 0, 64).unwrap();
        assert_eq!(pieces, "M1084 0h24v8h-24zM84 9h1024v8h-1024zM84 18h952v8h-952z");
        assert_eq!(
            path(&span, 0, 1).unwrap(),
            "M1084 0h24v8h-24z",
            "the spans in the band are not drawn twice"
        );
    }

    #[test]
    fn packs_beyond_the_size_limit_are_left_out_and_counted() {
        let pages = PACK_BYTES / 4096;
        let picture = draw(&snapshot("firewall", 100 * pages)).unwrap();
        assert!(picture.len() < 1 << 20, "{}", picture.len());
        assert!(picture.contains("not drawn: "));
        roxmltree::Document::parse(&picture).unwrap();
    }
}
