//! What clients are told of machine code.

use super::tests::{Attr, Process, types_of_a_function};
use skep_sys::{Command, Errno, Object};

/// Offsets in `struct bpf_prog_info`, which is so long.
const INFO: usize = 232;
const CODE_LEN: usize = 16;
const CODE: usize = 24;
const SYMBOLS: usize = 104;
const LENS: usize = 108;
const SYMBOLS_AT: usize = 112;
const LENS_AT: usize = 120;
const LINES_AT: usize = 160;
const LINES: usize = 168;

/// A program of two functions, with a line at the beginning of each and one in the second.
fn with_lines(process: &mut Process) -> i32 {
    let types = types_of_a_function();
    let at = process.put(&types);
    let load = Attr::default().u64(0, at).u32(16, types.len() as u32);
    let btf = process.call(Command::BtfLoad, &load).unwrap() as u32;
    let text = "call pc+1\nexit\nr0 = 7\nr0 += 1\nexit";
    let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    let words = |words: &[u32]| words.iter().copied().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>();
    let functions = words(&[0, 3, 2, 3]);
    let lines = words(&[0, 1, 1, 1 << 10, 2, 1, 1, 2 << 10, 4, 1, 1, 3 << 10]);
    let [insns_at, licence, functions, lines] =
        [&insns[..], b"GPL\0", &functions, &lines].map(|bytes| process.put(bytes));
    let attr = Attr::default().u32(0, 1).u32(4, 5).u64(8, insns_at).u64(16, licence).u32(72, btf);
    let attr = attr.u32(76, 8).u64(80, functions).u32(88, 2).u32(92, 16).u64(96, lines).u32(104, 3);
    process.call(Command::ProgLoad, &attr).unwrap() as i32
}

/// Asks for information with numbers at offsets.
fn ask(process: &mut Process, program: i32, fields: &Attr) -> Result<u64, Errno> {
    let mut info = fields.0.clone();
    info.resize(INFO, 0);
    let room = process.put(&info);
    let attr = Attr::default().u32(0, program as u32).u32(4, INFO as u32).u64(8, room);
    process.call(Command::ObjGetInfoByFd, &attr).map(|_| room)
}

fn word(process: &Process, info: u64, at: usize) -> u32 {
    u32::from_ne_bytes(process.get(info + at as u64, 4).try_into().unwrap())
}

fn addresses(process: &Process, at: u64, count: usize) -> Vec<u64> {
    process.get(at, 8 * count).as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect()
}

#[test]
fn machine_code_is_told_with_its_functions_and_lines() {
    let mut process = Process::new();
    let program = with_lines(&mut process);
    let info = ask(&mut process, program, &Attr::default()).unwrap();
    let counts = [SYMBOLS, LENS, LINES].map(|at| word(&process, info, at));
    assert_eq!(counts, [2, 2, 3]);
    let len = word(&process, info, CODE_LEN);
    let code = process.put(&vec![0; len as usize + 8]);
    let [symbols, lens, lines] = [16, 8, 24].map(|bytes| process.put(&vec![0; bytes]));
    let fields = Attr::default().u32(CODE_LEN, len).u64(CODE, code).u32(SYMBOLS, 2).u64(SYMBOLS_AT, symbols);
    let fields = fields.u32(LENS, 2).u64(LENS_AT, lens).u32(LINES, 3).u64(LINES_AT, lines);
    let info = ask(&mut process, program, &fields).unwrap();
    let (symbols, lines) = (addresses(&process, symbols, 2), addresses(&process, lines, 3));
    let [first, second] = [0, 4].map(|at| u64::from(word(&process, lens, at)));
    assert_eq!(first + second, u64::from(len), "the functions are all of the code");
    assert_eq!(symbols[1], symbols[0] + first, "one after the other");
    assert!(second > 0);
    assert!((symbols[0]..symbols[0] + first).contains(&lines[0]));
    assert!(lines[1..].iter().all(|line| (symbols[1]..symbols[1] + second).contains(line)), "{lines:x?}");
    assert!(lines[1] < lines[2]);
    // The code itself, as it is in memory.
    let Object::Program(loaded) = process.descriptors[&program].object().clone() else { panic!() };
    let text = loaded.program().program().compiled().text();
    assert_eq!(symbols[0], text.address() as u64);
    assert_eq!(process.get(code, len as usize), &text.bytes()[..len as usize]);
    assert_eq!(process.get(code + u64::from(len), 8), [0; 8], "and nothing behind it");
    assert_eq!(word(&process, info, CODE), code as u32, "addresses stay");
}

#[test]
fn a_client_without_the_right_learns_sizes_alone() {
    let mut process = Process::new();
    process.sees_addresses = false;
    let program = with_lines(&mut process);
    let room = process.put(&[0; 4096]);
    let fields = Attr::default().u32(CODE_LEN, 512).u64(CODE, room).u32(SYMBOLS, 8).u64(SYMBOLS_AT, room);
    let fields = fields.u32(LENS, 8).u64(LENS_AT, room).u32(LINES, 8).u64(LINES_AT, room);
    let info = ask(&mut process, program, &fields).unwrap();
    assert!(process.get(room, 4096).iter().all(|byte| *byte == 0), "nothing is copied");
    assert!(word(&process, info, CODE_LEN) > 0);
    assert_eq!([SYMBOLS, LENS, LINES].map(|at| word(&process, info, at)), [2, 2, 0]);
    for at in [CODE, SYMBOLS_AT, LENS_AT] {
        assert_eq!(word(&process, info, at), 0, "no address was filled");
    }
}

#[test]
fn rooms_for_machine_code_that_are_too_small_or_nowhere_are_no_harm() {
    let mut process = Process::new();
    let program = with_lines(&mut process);
    let room = process.put(&[0; 64]);
    let small = Attr::default().u32(CODE_LEN, 4).u64(CODE, room).u32(SYMBOLS, 1).u64(SYMBOLS_AT, room + 8);
    let info = ask(&mut process, program, &small).unwrap();
    assert_eq!(process.get(room + 4, 4), [0; 4]);
    assert_ne!(process.get(room + 8, 8), [0; 8]);
    assert_eq!(process.get(room + 16, 48), [0; 48]);
    assert_eq!(word(&process, info, SYMBOLS), 2);
    for at in [CODE_LEN, SYMBOLS, LENS, LINES] {
        assert_eq!(ask(&mut process, program, &Attr::default().u32(at, 1)), Err(Errno::EFAULT), "{at}");
    }
}
