//! Programs at functions of other programs, through the system call.

use super::tests::{Attr, Process, run};
use skep_sys::{Command, Errno};

const SOCKET_FILTER: u32 = 1;
const TRACING: u32 = 26;
const EXTENSION: u32 = 28;
const FENTRY: u32 = 24;
/// Numbers of the types of `whole` and `part`, which take nothing and return an `int`.
const WHOLE: u32 = 3;
const PART: u32 = 4;
const INT: u32 = 1;

fn types() -> Vec<u8> {
    let words: [u32; 13] = [
        1,
        1 << 24,
        4,
        32 | 1 << 24, // int, signed, 32 bits
        0,
        13 << 24,
        1, // the prototype
        5,
        12 << 24 | 1,
        2, // whole, exported
        11,
        12 << 24 | 1,
        2, // part, exported
    ];
    let records: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let strings = b"\0int\0whole\0part\0";
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, records.len() as u32, records.len() as u32, strings.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    [bytes, records, strings.to_vec()].concat()
}

impl Process {
    fn load_typed(
        &mut self,
        (program_type, attach_type): (u32, u32),
        text: &str,
        functions: &[(u32, u32)],
        (target, function): (i32, u32),
    ) -> Result<i32, Errno> {
        let types = types();
        let at = self.put(&types);
        let btf = self.call(Command::BtfLoad, &Attr::default().u64(0, at).u32(16, types.len() as u32))?;
        let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
        let records: Vec<u8> =
            functions.iter().flat_map(|(slot, ty)| [*slot, *ty]).flat_map(u32::to_ne_bytes).collect();
        let (insns_at, licence, info) = (self.put(&insns), self.put(b"GPL\0"), self.put(&records));
        let attr = Attr::default()
            .u32(0, program_type)
            .u32(4, insns.len() as u32 / 8)
            .u64(8, insns_at)
            .u64(16, licence)
            .u32(68, attach_type)
            .u32(72, btf as u32)
            .u32(76, 8)
            .u64(80, info)
            .u32(88, functions.len() as u32)
            .u32(108, function)
            .u32(112, target as u32);
        self.call(Command::ProgLoad, &attr).map(|program| program as i32)
    }

    fn open(&mut self, program: i32) -> Result<i32, Errno> {
        let attr = Attr::default().u64(0, 0).u32(8, program as u32);
        self.call(Command::RawTracepointOpen, &attr).map(|link| link as i32)
    }

    fn replace(&mut self, program: i32, target: i32, function: u32) -> Result<i32, Errno> {
        let attr = Attr::default().u32(0, program as u32).u32(4, target as u32).u32(8, 0).u32(12, 0);
        self.call(Command::LinkCreate, &attr.u32(16, function)).map(|link| link as i32)
    }

    fn result(&mut self, program: i32) -> u32 {
        run(self, program, &[0; 64]).0
    }
}

/// A program that returns what its function returns, 7, and an extension of that, which returns 9.
fn pair(process: &mut Process) -> (i32, i32) {
    let functions = [(0, WHOLE), (2, PART)];
    let target =
        process.load_typed((SOCKET_FILTER, 0), "call pc+1\nexit\nr0 = 7\nexit", &functions, (0, 0)).unwrap();
    let extension = process.load_typed((EXTENSION, 0), "r0 = 9\nexit", &[(0, PART)], (target, PART)).unwrap();
    (target, extension)
}

#[test]
fn an_extension_is_attached_to_the_function_of_its_load_once_and_then_by_name() {
    let mut process = Process::new();
    let (target, extension) = pair(&mut process);
    assert_eq!(process.result(target), 7);
    let link = process.open(extension).unwrap();
    assert_eq!(process.result(target), 9);
    // Kind, number, program; then the type of attachment, the program with the function, the function.
    let info = process.info(link, 32);
    let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(16), word(24)), (2, 0, PART));
    let known = process.info(target, 8);
    assert_eq!(info[20..24], known[4..8], "the target's number");
    // It is attached there already, and a link to a function is neither changed nor detached.
    assert_eq!(process.open(extension), Err(Errno::EINVAL));
    assert_eq!(process.replace(extension, target, PART), Err(Errno::EBUSY));
    let attr = Attr::default().u32(0, link as u32).u32(4, 0);
    assert_eq!(process.call(Command::LinkDetach, &attr), Err(Errno::EOPNOTSUPP));
    let attr = Attr::default().u32(0, link as u32).u32(4, extension as u32).u32(8, 0);
    assert_eq!(process.call(Command::LinkUpdate, &attr), Err(Errno::EINVAL));
    process.descriptors.remove(&link);
    assert_eq!(process.result(target), 7);
    // From now on the function is named.
    assert_eq!(process.open(extension), Err(Errno::EINVAL));
    assert_eq!(process.replace(extension, target, 0), Err(Errno::EINVAL));
    assert_eq!(process.replace(extension, 0, PART), Err(Errno::EINVAL));
    assert_eq!(process.replace(extension, target, INT), Err(Errno::EINVAL));
    let link = process.replace(extension, target, PART).unwrap();
    assert_eq!(process.result(target), 9);
    // The whole program, while its function stays replaced.
    let whole = process.replace(extension, target, WHOLE).unwrap();
    assert_eq!(process.result(target), 9);
    // The program outlives its last descriptor while it is extended.
    process.descriptors.remove(&target);
    process.descriptors.remove(&extension);
    process.descriptors.remove(&whole);
    process.descriptors.remove(&link);
}

#[test]
fn a_load_for_a_function_that_is_not_there_is_refused() {
    let mut process = Process::new();
    let (target, extension) = pair(&mut process);
    let bare = process.load_with(SOCKET_FILTER, "r0 = 1\nexit", 0, 0).0.unwrap() as i32;
    let of_part: &[(u32, u32)] = &[(0, PART)];
    for (kind, functions, to) in [
        ((EXTENSION, 0), of_part, (target, INT)),
        ((EXTENSION, 0), of_part, (target, 77)),
        ((EXTENSION, 0), of_part, (target, 0)),
        ((EXTENSION, 0), of_part, (bare, PART)),
        // Without types of its own.
        ((EXTENSION, 0), &[], (target, PART)),
        ((EXTENSION, 0), of_part, (extension, PART)),
        ((EXTENSION, 0), of_part, (0, PART)),
    ] {
        let loaded = process.load_typed(kind, "r0 = 9\nexit", functions, to);
        assert_eq!(loaded, Err(Errno::EINVAL), "{kind:?} {to:?}");
    }
    // Other programs have no function of a program.
    let loaded = process.load_typed((SOCKET_FILTER, 0), "r0 = 9\nexit", of_part, (target, PART));
    assert_eq!(loaded, Err(Errno::EINVAL));
    let attr = Attr::default().u32(0, extension as u32).u32(4, 0);
    assert!(process.call(Command::ProgTestRun, &attr).is_err(), "only its target runs it");
}

#[test]
fn programs_that_watch_a_function_do_not_change_it() {
    let mut process = Process::new();
    let (target, extension) = pair(&mut process);
    let watcher =
        process.load_typed((TRACING, FENTRY), "r0 = 0\nexit", &[(0, WHOLE)], (target, PART)).unwrap();
    let link = process.open(watcher).unwrap();
    assert_eq!(process.result(target), 7);
    assert_eq!(process.replace(extension, target, PART), Err(Errno::EBUSY), "one or the other");
    assert_eq!(process.replace(watcher, target, PART), Err(Errno::EINVAL), "extensions alone move");
    process.descriptors.remove(&link);
    process.replace(extension, target, PART).unwrap();
    assert_eq!(process.result(target), 9);
    let recursive = process.load_typed((TRACING, FENTRY), "r0 = 0\nexit", &[(0, WHOLE)], (watcher, WHOLE));
    assert_eq!(recursive, Err(Errno::EINVAL));
}
