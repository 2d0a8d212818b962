//! Writes verdicts back into a file and leaves everything else unchanged.

use std::collections::HashMap;

use crate::entry::Verdict;

/// The text with the `linux:` line of each entry named in `verdicts` replaced; a missing one is inserted before
/// `skep:`, `why:` or `insns:`.
pub fn with_verdicts(text: &str, verdicts: &HashMap<String, Verdict>) -> String {
    let mut out = String::new();
    let mut waiting: Option<&Verdict> = None;
    let mut in_program = false;
    for line in text.split_inclusive('\n') {
        if let Some(name) = line.strip_prefix("== ") {
            waiting = verdicts.get(name.trim());
            in_program = false;
        }
        let key = line.split(':').next().unwrap_or("");
        if in_program || !matches!(key, "linux" | "skep" | "why" | "insns") {
            out.push_str(line);
            continue;
        }
        in_program = key == "insns";
        let replaced = waiting.take();
        if let Some(verdict) = replaced {
            out.push_str(&format!("linux: {verdict}\n"));
        }
        if key != "linux" || replaced.is_none() {
            out.push_str(line);
        }
    }
    out
}

/// The text with the `answer:` line of each entry named in `answers` replaced where it is; a missing one is inserted
/// before `insns:`.
pub fn with_answers(text: &str, answers: &HashMap<String, String>) -> String {
    let mut out = String::new();
    let mut waiting: Option<&String> = None;
    let mut in_program = false;
    for line in text.split_inclusive('\n') {
        if let Some(name) = line.strip_prefix("== ") {
            waiting = answers.get(name.trim());
            in_program = false;
        }
        let said = !in_program && line.starts_with("answer:");
        in_program |= line.starts_with("insns:");
        let answer = if said || in_program { waiting.take() } else { None };
        if let Some(answer) = answer {
            out.push_str(&format!("answer: {answer}\n"));
        }
        if !said || answer.is_none() {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_replaced_or_inserted() {
        let text =
            "== a\nanswer: 1\nwhy: so\ninsns:\nanswer: exit\n== b\ninsns:\nexit\n== c\nanswer: 7\ninsns:\n";
        let answers =
            HashMap::from([("a".to_owned(), "2 mark=3".to_owned()), ("b".to_owned(), "errno 22".to_owned())]);
        let anew = text.replace("answer: 1", "answer: 2 mark=3").replace("b\n", "b\nanswer: errno 22\n");
        assert_eq!(with_answers(text, &answers), anew);
    }

    #[test]
    fn lines_are_replaced_or_inserted_and_nothing_else_changes() {
        let text = "# c\n== a\ntype: xdp\nlinux: accept\nskep: accept\ninsns:\n  linux:\n  exit\n\n== b\ntype: tc\nwhy: so\ninsns:\n  exit\n\
                    == c\ninsns:\n exit";
        let refuse = Verdict::Refuse("R1".to_owned());
        let verdicts = HashMap::from([("a".to_owned(), refuse), ("b".to_owned(), Verdict::Accept)]);
        let expected = text
            .replace("linux: accept\nskep", "linux: refuse: R1\nskep")
            .replace("why", "linux: accept\nwhy");
        assert_eq!(with_verdicts(text, &verdicts), expected);
        assert_eq!(with_verdicts(text, &HashMap::new()), text);
    }
}
