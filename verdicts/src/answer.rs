//! A kernel's answers.

use crate::entry::Verdict;

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The entry's name, with `_` for spaces.
    pub name: String,
    /// 0, an error number, or -1 if the guest could not ask the question.
    pub error: i32,
    /// The last lines of the log.
    pub log: Vec<String>,
    /// What its run left: errno, result, packet, context.
    pub run: Option<String>,
}

/// Maximum length of a reason.
const LONGEST: usize = 120;

/// The answers in a guest's output, without other lines.
pub fn answers(text: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut open: Option<Answer> = None;
    for line in text.lines().map(|line| line.trim_end_matches('\r')) {
        if let Some((name, error)) = line.strip_prefix("P ").and_then(|rest| rest.rsplit_once(' ')) {
            let error = error.parse().unwrap_or(-1);
            open = Some(Answer { name: name.to_owned(), error, log: Vec::new(), run: None });
        } else if line == "." {
            answers.extend(open.take());
        } else if let (Some(answer), Some(log)) = (&mut open, line.strip_prefix("L ")) {
            answer.log.push(log.to_owned());
        } else if let (Some(answer), Some(run)) = (&mut open, line.strip_prefix("R ")) {
            answer.run = Some(run.to_owned());
        }
    }
    answers
}

impl Answer {
    /// The verdict, or the failure before the kernel's verifier ran.
    ///
    /// # Errors
    ///
    /// The message of the guest or the kernel.
    pub fn verdict(&self) -> Result<Verdict, String> {
        if self.error == 0 {
            return Ok(Verdict::Accept);
        }
        let reason = self.log.iter().rev().find(|line| !is_statistics(line));
        match reason {
            _ if self.error == -1 => Err(self.log.join(" ")),
            None => Err(format!("error {} and no log", self.error)),
            Some(reason) => {
                let end = reason.char_indices().nth(LONGEST).map_or(reason.len(), |(at, _)| at);
                Ok(Verdict::Refuse(reason[..end].trim().to_owned()))
            }
        }
    }

    /// Instructions walked.
    pub fn walked(&self) -> Option<u64> {
        let line = self.log.iter().find_map(|line| line.strip_prefix("processed "))?;
        line.split(' ').next()?.parse().ok()
    }
}

/// Beginnings of lines at the end of a log that do not state a reason.
const NO_REASON: [&str; 5] = ["processed ", "verification time ", "stack depth ", "cur state:", "old state:"];

fn is_statistics(line: &str) -> bool {
    NO_REASON.iter().any(|start| line.starts_with(start)) || line.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_among_other_lines() {
        let text = "boot\r\nP one 0\r\nL processed 2 insns (limit 1000000)\r\n.\r\nP two 13\nL 0: (bf) r0 = r9\n\
                    L R9 !read_ok\nL processed 1 insns\n.\nP three -1\nL oracle: no kernel type x\n.\nP four 22\n.\nP f";
        let answers = answers(text);
        let verdicts: Vec<_> = answers.iter().map(Answer::verdict).collect();
        assert_eq!(verdicts[0], Ok(Verdict::Accept));
        assert_eq!(verdicts[1], Ok(Verdict::Refuse("R9 !read_ok".to_owned())));
        assert_eq!(verdicts[2], Err("oracle: no kernel type x".to_owned()));
        assert!(verdicts[3].is_err());
        assert_eq!((verdicts.len(), answers[0].walked()), (4, Some(2)));
    }
}
