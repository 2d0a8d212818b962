//! Operations of user space on maps, with Linux's answers: `*.maps`.
//!
//! ```text
//! # a comment
//! map sockmap 4 4 4                    as after `map:` in a program's entry, without a name
//! inner array 4 8 4                    the template of a map of maps
//! update 00000000 listening 1 -> ok    update KEY VALUE FLAGS, lookup KEY FLAGS, delete KEY, next KEY, take KEY FLAGS;
//! lookup 04000000 0 -> error 2         a value in hexadecimal digits or something that has a descriptor
//! delete - -> error 95 | error 22: y   `-` for no key; after the bar skep's answer, if it is another, and why
//! ```

use std::fmt::Write;

use skep_abi::MapFlags;

use crate::entry::Trouble;
use crate::map::MapLine;

/// An operation and the answers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The operation's words: its name, the key, the value, the flags.
    pub words: [String; 4],
    /// Linux's answer: `ok`, what was found, or `error N`.
    pub linux: String,
    /// skep's answer, if it is another one, and why.
    pub own: Option<(String, String)>,
}

/// A map and what is done to it.
#[derive(Clone, Debug)]
pub struct Operated {
    /// The map.
    pub map: MapLine,
    /// The template, of a map of maps.
    pub inner: Option<MapLine>,
    /// The operations, in order.
    pub operations: Vec<Operation>,
}

/// The maps and operations of a file.
///
/// # Errors
///
/// The first invalid line.
pub fn operations(text: &str) -> Result<Vec<Operated>, Trouble> {
    let mut maps: Vec<Operated> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let bad = |problem: String| Trouble::new(index + 1, problem);
        let map = |rest: &str| MapLine::parse(&format!("m {rest}")).map_err(bad);
        if line.is_empty() || line.starts_with('#') {
            continue;
        } else if let Some(rest) = line.strip_prefix("map ") {
            maps.push(Operated { map: map(rest)?, inner: None, operations: Vec::new() });
        } else if let (Some(rest), Some(last)) = (line.strip_prefix("inner "), maps.last_mut()) {
            last.inner = Some(map(rest)?);
        } else {
            let Some(last) = maps.last_mut() else {
                return Err(bad("an operation before the first map".into()));
            };
            last.operations.push(operation(index + 1, line).map_err(bad)?);
        }
    }
    Ok(maps)
}

fn operation(line: usize, text: &str) -> Result<Operation, String> {
    let (done, answers) = text.split_once(" ->").ok_or("expected `OPERATION -> ANSWER`")?;
    let (linux, own) = match answers.split_once(" | ") {
        None => (answers, None),
        Some((linux, own)) => {
            (linux, Some(own.split_once(": ").ok_or("expected `ANSWER: WHY` after the bar")?))
        }
    };
    let words: Vec<&str> = done.split(' ').collect();
    let words = match words[..] {
        ["update", key, value, flags] => ["update", key, value, flags],
        [name @ ("lookup" | "take"), key, flags] => [name, key, "-", flags],
        [name @ ("delete" | "next"), key] => [name, key, "-", "0"],
        _ => return Err(format!("{done} is not an operation")),
    };
    let own = own.map(|(answer, why)| (answer.to_owned(), why.to_owned()));
    Ok(Operation { line, words: words.map(str::to_owned), linux: linux.trim().to_owned(), own })
}

/// The questions to a kernel, in the format that `guest/guest.c` reads.
pub fn operation_requests(maps: &[Operated]) -> String {
    let mut text = String::new();
    for operated in maps {
        text.push_str("P map\nf\n");
        for (map, inner) in operated
            .inner
            .iter()
            .map(|map| (map, -1))
            .chain([(&operated.map, operated.inner.as_ref().map_or(-1, |_| 0))])
        {
            let (def, MapFlags(flags)) = (&map.def, map.def.flags);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "m {} {} {} {} {flags} 0 0 {} {inner} ",
                def.kind.number(),
                def.key_size,
                def.value_size,
                def.max_entries,
                map.extra,
            );
        }
        for operation in &operated.operations {
            let _ = writeln!(text, "o {}", operation.words.join(" "));
        }
    }
    text
}

/// The file with the answers of a guest's output.
///
/// # Errors
///
/// An answer is missing, or the guest could not do an operation.
pub fn with_operation_answers(text: &str, maps: &[Operated], output: &str) -> Result<String, String> {
    let mut answers = output.lines().filter_map(|line| line.trim_end().strip_prefix("O "));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for operation in maps.iter().flat_map(|map| &map.operations) {
        let answer = answers.next().ok_or_else(|| format!("line {}: no answer", operation.line))?;
        let answer = match answer.split_once(' ') {
            Some(("0", "-")) => "ok".to_owned(),
            Some(("0", found)) => found.to_owned(),
            Some(("-1", trouble)) => return Err(format!("line {}: {trouble}", operation.line)),
            Some((number, _)) => format!("error {number}"),
            None => return Err(format!("line {}: not an answer: {answer}", operation.line)),
        };
        let line = &mut lines[operation.line - 1];
        let done = line.split(" ->").next().unwrap_or("");
        let own =
            operation.own.as_ref().map_or_else(String::new, |(answer, why)| format!(" | {answer}: {why}"));
        *line = format!("{done} -> {answer}{own}");
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# c\nmap hash_of_maps 4 4 2\ninner array 4 8 4\nupdate 00000000 map 1 ->\nlookup - 0 -> error 2 | ok: so\n";

    #[test]
    fn answers_are_written_behind_their_operations() {
        let maps = operations(TEXT).unwrap();
        let requests = operation_requests(&maps);
        let lines: Vec<&str> = requests.lines().collect();
        assert_eq!(lines[2..4], ["m 2 4 8 4 0 0 0 0 -1 ", "m 13 4 4 2 0 0 0 0 0 "]);
        assert_eq!(lines[4..], ["o update 00000000 map 1", "o lookup - - 0"]);
        let anew = with_operation_answers(TEXT, &maps, "boot\nO 0 -\r\nO 0 0a\n").unwrap();
        assert!(anew.ends_with("update 00000000 map 1 -> ok\nlookup - 0 -> 0a | ok: so\n"), "{anew}");
        assert!(with_operation_answers(TEXT, &maps, "O 0 -\n").is_err());
    }

    #[test]
    fn wrong_lines_are_refused() {
        for text in
            ["lookup - 0 ->", "map hash 4 4\n", "map hash 4 4 4\nlookup ->", "map hash 4 4 4\nlookup - 0"]
        {
            assert!(operations(text).is_err(), "{text}");
        }
    }
}
