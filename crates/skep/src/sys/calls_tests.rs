//! Each system call of `tests/calls/*.calls` has the answer that Linux 6.12 gave.

use super::tests::{Attr, BASE, Process, Seen};
use skep_sys::Errno;
use skep_verdicts::calls::{questions, script};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// Makes the calls of a script, as the guest in the virtual machine does.
struct Script {
    process: Process,
    blocks: HashMap<String, (u64, usize)>,
    descriptors: HashMap<String, i64>,
    answers: Vec<String>,
}

impl Script {
    fn new() -> Self {
        Self {
            process: Process::new(),
            blocks: HashMap::new(),
            descriptors: HashMap::new(),
            answers: Vec::new(),
        }
    }

    fn value(&self, text: &str) -> u64 {
        if let Some(name) = text.strip_prefix('$') {
            return self.descriptors[name] as u64;
        }
        if let Some(place) = text.strip_prefix('&') {
            let (name, offset) = place.split_once('+').unwrap_or((place, "0"));
            return self.blocks[name].0 + offset.parse::<u64>().unwrap();
        }
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text.parse().unwrap_or_else(|_| text.parse::<i64>().unwrap() as u64),
        }
    }

    fn block(&mut self, name: &str, bytes: &[u8]) {
        let address = self.process.put(bytes);
        self.blocks.insert(name.to_owned(), (address, bytes.len()));
    }

    fn call(&mut self, rest: &str) {
        let (rest, result) = rest.split_once(" => ").map_or((rest, None), |(rest, name)| (rest, Some(name)));
        let mut words = rest.split(' ');
        let mut number = || words.next().unwrap().parse::<u32>().unwrap();
        let (command, size) = (number(), number());
        let mut attr = Attr::default();
        for word in words {
            let (place, value) = word.split_once('=').unwrap();
            let (offset, width) = place.split_once(':').unwrap();
            let bytes = self.value(value).to_ne_bytes();
            attr = attr.bytes(offset.parse().unwrap(), &bytes[..width.parse().unwrap()]);
        }
        self.process.memory[..8192].fill(0);
        self.process.memory[..attr.0.len()].copy_from_slice(&attr.0);
        let system = self.process.system.clone();
        let answer = system.call(&mut Seen(&mut self.process), command, BASE, size);
        // A name's descriptor before it is closed, and one without a name.
        const MAKES: [u32; 13] = [0, 5, 7, 13, 14, 17, 18, 19, 28, 30, 32, 33, 36];
        match result {
            Some(name) => {
                let old = self.descriptors.insert(name.to_owned(), *answer.as_ref().unwrap_or(&-1));
                old.and_then(|old| self.process.descriptors.remove(&(old as i32)));
            }
            None if MAKES.contains(&command) => {
                answer.as_ref().ok().and_then(|made| self.process.descriptors.remove(&(*made as i32)));
            }
            None => {}
        }
        self.answers.push(answer.err().map_or(0, |Errno(number)| number).to_string());
    }

    fn show(&mut self, address: u64, len: usize) {
        let bytes = self.process.get(address, len);
        self.answers.push(bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        }));
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0] {
            "case" => {
                self.process.descriptors.clear();
                self.process.free = 8192;
                self.blocks.clear();
                self.descriptors.clear();
            }
            "call" => self.call(&line[5..]),
            "room" => self.block(words[1], &vec![0; number(2)]),
            "bytes" => {
                let digits = words[2].as_bytes().chunks(2);
                let bytes = digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap());
                self.block(words[1], &bytes.collect::<Vec<_>>());
            }
            "poke" => {
                let at = (self.blocks[words[1]].0 - BASE) as usize + number(2);
                let bytes = self.value(words[4]).to_ne_bytes();
                self.process.memory[at..at + number(3)].copy_from_slice(&bytes[..number(3)]);
            }
            "show" => self.show(self.blocks[words[1]].0 + number(2) as u64, number(3)),
            "attr" => self.show(BASE + number(1) as u64, number(2)),
            "close" => {
                let descriptor = self.descriptors.insert(words[1].to_owned(), -1).unwrap();
                self.process.descriptors.remove(&(descriptor as i32));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn calls_are_answered_as_linux_answers_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls");
    let (mut asked, mut wrong, mut alike) = (0, Vec::new(), Vec::new());
    for file in ["maps.calls", "objects.calls"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut script_of_file = Script::new();
        script(&text).unwrap().lines().for_each(|line| script_of_file.line(line));
        let questions = questions(&text);
        assert_eq!(questions.len(), script_of_file.answers.len());
        for (question, answer) in questions.iter().zip(&script_of_file.answers) {
            asked += 1;
            let said = || {
                format!(
                    "{file}:{}: {}: Linux {}, skep {answer}",
                    question.line,
                    lines[question.line - 1],
                    question.linux
                )
            };
            match (question.linux == *answer, &question.differs) {
                (true, Some(_)) => alike.push(said()),
                (false, None) => wrong.push(said()),
                _ => {}
            }
        }
    }
    assert!(asked > 4000, "{asked}");
    assert!(wrong.is_empty(), "{} differ without a reason:\n{}", wrong.len(), wrong.join("\n"));
    assert!(alike.is_empty(), "these do not differ any more:\n{}", alike.join("\n"));
}
