//! Each system call of `tests/calls/*.calls` has the answer that Linux 6.12 gave.

use super::tests::{Attr, BASE, File, Process, Seen};
use skep_sys::{ControlGroup, Errno, Object};
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
    /// The paths of control groups: the place in the list is the number. The first is the root.
    groups: Vec<String>,
}

impl Script {
    fn new() -> Self {
        Self {
            process: Process::new(),
            blocks: HashMap::new(),
            descriptors: HashMap::new(),
            answers: Vec::new(),
            groups: vec![String::new()],
        }
    }

    fn value(&self, text: &str) -> u64 {
        if let Some(name) = text.strip_prefix('$') {
            return self.descriptors[name] as u64;
        }
        if let Some(name) = text.strip_prefix('#') {
            return self.id(self.descriptors[name]).unwrap_or(0).into();
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

    /// The identifier of what a descriptor refers to.
    fn id(&self, descriptor: i64) -> Option<u32> {
        let handle = self.process.descriptors.get(&i32::try_from(descriptor).ok()?)?;
        matches!(handle.object(), Object::Program(_) | Object::Link(_)).then(|| handle.object().id())
    }

    /// Identifiers as the names of descriptors.
    fn identifiers(&mut self, kind: &str, address: u64, count: usize) {
        let bytes = self.process.get(address, 4 * count);
        let ids = bytes.chunks_exact(4).map(|id| u32::from_ne_bytes(id.try_into().unwrap()));
        let is_kind = |object: &Object<_>| match object {
            Object::Program(_) => kind == "program",
            Object::Link(_) => kind == "link",
            _ => false,
        };
        let name = |id: u32| {
            let mut found = self.descriptors.iter().filter(|(_, descriptor)| {
                let handle = self.process.descriptors.get(&(**descriptor as i32));
                handle.is_some_and(|handle| is_kind(handle.object()) && handle.object().id() == id)
            });
            let found = found.next().map_or("?", |(name, _)| name);
            if id == 0 { "-".to_owned() } else { found.to_owned() }
        };
        let names: Vec<String> = ids.map(name).collect();
        self.answers.push(names.join(" "));
    }

    /// Opens a file under a name.
    fn open(&mut self, name: &str, file: File) {
        let descriptor = self.process.free_descriptor();
        self.process.files.insert(descriptor, file);
        self.descriptors.insert(name.to_owned(), descriptor.into());
    }

    /// Detaches what a case has left on the device, which is new in each case for Linux.
    fn clear_device(&mut self) {
        const DETACH: u32 = 9;
        let system = self.process.system.clone();
        for attach_type in [46, 47] {
            let attr = Attr::default().bytes(0, &[1]).bytes(8, &[attach_type]).bytes(31, &[0]);
            self.process.memory[..attr.0.len()].copy_from_slice(&attr.0);
            let mut detach = || system.call(&mut Seen(&mut self.process), DETACH, BASE, 32);
            while detach().is_ok() {}
        }
    }

    /// The control group of that path, which is new if it is not there.
    fn group(&mut self, path: &str) -> ControlGroup {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        let mut numbers = vec![1];
        for end in ends {
            let known = self.groups.iter().position(|group| *group == path[..end]);
            let place = known.unwrap_or_else(|| {
                self.groups.push(path[..end].to_owned());
                self.groups.len() - 1
            });
            numbers.push(place as u64 + 1);
        }
        let (id, outer) = numbers.split_last().unwrap();
        ControlGroup::new(outer, *id)
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
                self.process.files.clear();
                // A new namespace and new groups; the world's device is the same.
                self.process.network += 1;
                self.groups.iter_mut().skip(1).for_each(|path| path.push('~'));
                let (system, groups) = (self.process.system.clone(), self.process.system.control_groups());
                groups.into_iter().for_each(|id| system.end_control_group(id));
                self.clear_device();
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
            "ids" => self.identifiers(words[1], self.blocks[words[2]].0 + number(3) as u64, number(4)),
            "group" => {
                let group = self.group(words[2]);
                self.open(words[1], File::Group(group));
            }
            "hide" => self.process.sees_addresses = false,
            "unhide" => self.process.sees_addresses = true,
            "network" => self.open(words[1], File::Network(self.process.network)),
            "attr" => self.show(BASE + number(1) as u64, number(2)),
            "close" => {
                // What was never opened is nothing to close.
                let open = self.descriptors.get_mut(words[1]).map(|open| std::mem::replace(open, -1));
                open.and_then(|open| self.process.descriptors.remove(&(open as i32)));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn calls_are_answered_as_linux_answers_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls");
    let (mut asked, mut wrong, mut alike) = (0, Vec::new(), Vec::new());
    let files = [
        "maps.calls",
        "objects.calls",
        "attach.calls",
        "info.calls",
        "code.calls",
        "types.calls",
        "storages.calls",
    ];
    for file in files {
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
    assert!(asked > 9000, "{asked}");
    assert!(wrong.is_empty(), "{} differ without a reason:\n{}", wrong.len(), wrong.join("\n"));
    assert!(alike.is_empty(), "these do not differ any more:\n{}", alike.join("\n"));
}
