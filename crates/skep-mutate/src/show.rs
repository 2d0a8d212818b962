//! Scores and lists of mutants as text and as JSON.

use crate::mutants::Mutant;
use crate::score::{Fate, Judged, Score};
use serde_json::{Value as Json, json};
use std::fmt::Write;

/// Mutants, one a line: number, place, change.
pub fn listed<'a>(mutants: impl IntoIterator<Item = &'a Mutant>) -> String {
    mutants.into_iter().map(|mutant| format!("{}\n", line(mutant))).collect()
}

/// Mutants as a JSON array.
pub fn listed_json<'a>(mutants: impl IntoIterator<Item = &'a Mutant>) -> Json {
    mutants.into_iter().map(about).collect()
}

/// The mutants that survived by source line, and a summary. With `all` also the others, with what became of them.
pub fn text(score: &Score, all: bool) -> String {
    let mut out = String::new();
    let mut before = None;
    for Judged { mutant, fate } in &score.judged {
        if !all && *fate != Fate::Survived {
            continue;
        }
        let place = &mutant.place;
        let here = (&place.file, place.line, &place.function);
        if before.replace(here) != Some(here) {
            // Writing to a string cannot fail.
            let _ = match place.line {
                0 => writeln!(out, "{}", place.function),
                number => writeln!(out, "{}:{number}: {}", place.file, place.text),
            };
        }
        let _ = write!(out, "  {:>5}  {}", mutant.number, mutant.change);
        let _ = match fate {
            Fate::Noticed { file, test } => writeln!(out, " (noticed by {file}: {test})"),
            Fate::Survived => writeln!(out, ": no test notices"),
            Fate::Refused => writeln!(out, " (refused by the verifier)"),
            Fate::Equivalent => writeln!(out, " (the same machine code)"),
            Fate::Dead => writeln!(out, " (dead code)"),
        };
    }
    if !out.is_empty() {
        out.push('\n');
    }
    let (noticed, survived) = (score.noticed(), score.survived());
    let _ = match score.percent() {
        Some(percent) => {
            write!(out, "{noticed} of {} changes noticed ({percent:.1} %)", noticed + survived)
        }
        None => write!(out, "no change could be noticed"),
    };
    let others = [
        (score.count(|fate| *fate == Fate::Refused), "refused by the verifier"),
        (score.count(|fate| *fate == Fate::Equivalent), "equivalent"),
        (score.count(|fate| *fate == Fate::Dead), "in dead code"),
    ];
    let others = others.iter().filter(|(count, _)| *count > 0);
    let others: Vec<String> = others.map(|(count, what)| format!("{count} {what}")).collect();
    if !others.is_empty() {
        let _ = write!(out, "; not counted: {}", others.join(", "));
    }
    out.push('\n');
    out
}

/// The score as one document: counts, and each mutant with its fate.
pub fn json(score: &Score) -> Json {
    let mutants = score.judged.iter().map(|Judged { mutant, fate }| {
        let mut about = about(mutant);
        let (name, by) = match fate {
            Fate::Noticed { file, test } => ("noticed", Some(json!({ "file": file, "test": test }))),
            Fate::Survived => ("survived", None),
            Fate::Refused => ("refused", None),
            Fate::Equivalent => ("equivalent", None),
            Fate::Dead => ("dead", None),
        };
        about["fate"] = name.into();
        if let Some(by) = by {
            about["noticed_by"] = by;
        }
        about
    });
    json!({
        "noticed": score.noticed(),
        "survived": score.survived(),
        "refused": score.count(|fate| *fate == Fate::Refused),
        "equivalent": score.count(|fate| *fate == Fate::Equivalent),
        "dead": score.count(|fate| *fate == Fate::Dead),
        "percent": score.percent(),
        "changes": mutants.collect::<Vec<_>>(),
    })
}

fn about(mutant: &Mutant) -> Json {
    let place = &mutant.place;
    json!({
        "number": mutant.number,
        "function": place.function,
        "slot": place.slot,
        "file": &*place.file,
        "line": place.line,
        "text": &*place.text,
        "change": mutant.change.to_string(),
    })
}

fn line(mutant: &Mutant) -> String {
    let place = &mutant.place;
    let at = match place.line {
        0 => format!("{}+{}", place.function, place.slot),
        number => format!("{}:{number}", place.file),
    };
    format!("{:>5}  {at}: {}: {}", mutant.number, mutant.change, place.text)
}
