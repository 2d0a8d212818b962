//! System calls, and Linux's answers to each: `*.calls` files.
//!
//! ```text
//!   case a map is created            a new process as it were: descriptors and memory of the case before are gone
//!   room V 8                         eight bytes of memory, called V
//!   bytes K 01000000                 memory with these bytes
//!   text N "name"                    memory with a text and its end
//!   asm I r0 = 2; exit               memory with instructions
//!   poke I 4 4 $M                    writes a number of 4 bytes at offset 4: here a descriptor
//!   call MAP_CREATE 16 0:4=1 => M    bpf(BPF_MAP_CREATE, attributes of 16 bytes); a new descriptor is called M
//!   = 0                              Linux's answer: 0 or an error number
//!   show V 0 8                       bytes of memory
//!   = 0000000000000000
//!   attr 32 4                        bytes of the last call's attributes
//!   ids program V 0 2                identifiers in memory, of programs or of links, as the names of their descriptors
//!   = P -
//!   group C a/b                      makes a control group and opens it
//!   network N                        opens the network namespace, which is new in each case
//!   hide                             addresses of the kernel are hidden from now on (kptr_restrict), until `unhide`
//!   close M
//! ```
//!
//! Attributes and numbers are `OFFSET:WIDTH=VALUE`; a value is a number, a descriptor `$M`, the identifier of what it
//! refers to `#M`, or an address `&V`, `&V+4`.
//! A line `# differs: REASON` before a question says that skep answers something else, and why.

use skep_sys::Command;
use std::fmt::Write;

/// A line that asks a question has an answer behind it.
fn asks(line: &str) -> bool {
    ["call ", "show ", "attr ", "ids "].iter().any(|start| line.starts_with(start))
}

/// A file's lines for the one who makes the calls: texts and instructions are bytes.
///
/// # Errors
///
/// The place and what is wrong there.
pub fn script(text: &str) -> Result<String, String> {
    let mut script = String::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}: {line}", number + 1);
        let bytes = |words: &str, bytes: Vec<u8>| {
            let hex: String = bytes.iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            format!("bytes {words} {hex}")
        };
        let line = line.trim();
        let made = match line.split_once(' ') {
            _ if line.is_empty() || line.starts_with('#') || line.starts_with('=') => continue,
            Some(("text", rest)) => {
                let (name, text) = rest.split_once(' ').ok_or_else(|| wrong("no text"))?;
                let text = text.trim_matches('"');
                bytes(name, [text.as_bytes(), &[0]].concat())
            }
            Some(("asm", rest)) => {
                let (name, text) = rest.split_once(' ').ok_or_else(|| wrong("no instructions"))?;
                let insns = skep_isa::assemble(&text.replace(';', "\n"));
                let insns = insns.map_err(|error| wrong(&error.to_string()))?;
                bytes(name, skep_isa::encode_bytes(&insns).map_err(|error| wrong(&error.to_string()))?)
            }
            Some(("call", rest)) => {
                let (command, rest) = rest.split_once(' ').ok_or_else(|| wrong("no size"))?;
                let named = |known: &&Command| known.name().strip_prefix("BPF_") == Some(command);
                match (Command::ALL.iter().find(named), command.parse::<u32>()) {
                    (Some(command), _) => format!("call {} {rest}", *command as u32),
                    (None, Ok(number)) => format!("call {number} {rest}"),
                    (None, Err(_)) => return Err(wrong("no such command")),
                }
            }
            _ => line.to_owned(),
        };
        script.push_str(&made);
        script.push('\n');
    }
    Ok(script)
}

/// The file's text with a kernel's answers: each in a line behind its question.
///
/// # Errors
///
/// What the machine had trouble with; or answers are missing.
pub fn with_call_answers(text: &str, output: &str) -> Result<String, String> {
    let lines = || output.lines().map(|line| line.trim_end_matches('\r'));
    if let Some(trouble) = lines().find(|line| line.starts_with("T ")) {
        return Err(trouble.to_owned());
    }
    let mut answers = lines().filter_map(|line| line.strip_prefix("R "));
    let mut anew = String::new();
    for line in text.lines().filter(|line| !line.starts_with('=')) {
        anew.push_str(line);
        anew.push('\n');
        if asks(line) {
            let answer = answers.next().ok_or_else(|| format!("no answer to: {line}"))?;
            let _ = writeln!(anew, "= {answer}");
        }
    }
    match answers.next() {
        None => Ok(anew),
        Some(_) => Err("there are more answers than questions".to_owned()),
    }
}

/// A question of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Linux's answer.
    pub linux: String,
    /// Why skep answers something else, if it does.
    pub differs: Option<String>,
}

/// The questions of a file, in its order.
pub fn questions(text: &str) -> Vec<Question> {
    let mut found: Vec<Question> = Vec::new();
    let mut differs = None;
    for (number, line) in text.lines().enumerate() {
        if let Some(reason) = line.strip_prefix("# differs: ") {
            differs = Some(reason.to_owned());
        } else if asks(line) {
            found.push(Question { line: number + 1, linux: String::new(), differs: differs.take() });
        } else if let (Some(answer), Some(last)) = (line.strip_prefix("= "), found.last_mut()) {
            answer.clone_into(&mut last.linux);
        }
    }
    found
}
