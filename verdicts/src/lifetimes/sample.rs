//! A sample of programs with verdicts: few and short, with both verdicts for every event.

use std::collections::HashMap;

use crate::entry::{Entry, Trouble, Verdict, entries};

/// The text of a selection of entries: at most `most` for each reason of a refusal, and as many accepted ones for
/// each event, preferring the shortest.
///
/// # Errors
///
/// The file has an error.
pub fn sample(text: &str, most: usize) -> Result<String, Trouble> {
    let all = entries(text)?;
    let mut order: Vec<&Entry> = all.iter().collect();
    order.sort_by_key(|entry| (entry.text.lines().count(), entry.line));
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut chosen: Vec<&Entry> = Vec::new();
    for entry in order {
        let keys = keys(entry);
        if chosen.iter().any(|other| (&other.section, &other.text) == (&entry.section, &entry.text)) {
            continue;
        }
        let wanted = keys.iter().any(|key| seen.get(key).is_none_or(|count| *count < most));
        if wanted {
            keys.into_iter().for_each(|key| *seen.entry(key).or_default() += 1);
            chosen.push(entry);
        }
    }
    chosen.sort_by_key(|entry| entry.line);
    let lines: Vec<&str> = text.lines().collect();
    let head = all.first().map_or(lines.len(), |entry| entry.line - 1);
    let mut kept = lines[..head].join("\n").trim_end().to_owned();
    for entry in chosen {
        let end = entry.text_line - 1 + entry.text.lines().count();
        kept.push_str("\n\n");
        kept.push_str(lines[entry.line - 1..end].join("\n").trim_end());
    }
    kept.push('\n');
    Ok(kept)
}

/// The property that an entry exemplifies.
fn keys(entry: &Entry) -> Vec<String> {
    match &entry.linux {
        Some(Verdict::Refuse(why)) => vec![why.chars().filter(|c| !c.is_ascii_digit()).collect()],
        Some(Verdict::Accept) => entry.name.split('-').skip(2).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}
