//! The kernel's types: clients find them, and leave it to the kernel to make programs fit them.

use super::SysEngine;
use super::tests::{Attr, Process};
use crate::Runtime;
use skep_btf::Btf;
use skep_sys::{Command, Errno, System};
use std::sync::Arc;

/// Numbers of `enum bpf_core_relo_kind`.
const FIELD_OFFSET: u32 = 0;
const FIELD_SIZE: u32 = 1;
const FIELD_EXISTS: u32 = 2;
const LOCAL_ID: u32 = 6;
const TYPE_EXISTS: u32 = 8;
const TYPE_SIZE: u32 = 9;

/// Types as bytes: an `int` (1), a structure `pair` (2) of members that are such, at these bytes, a prototype (3) and a
/// function (4). Further `strings` follow the names; the list has their offsets.
fn types(members: &[(&str, u32)], size: u32, strings: &[&str]) -> (Vec<u8>, Vec<u32>) {
    let mut text = vec![0];
    let mut place = |name: &str| {
        let at = text.len() as u32;
        text.extend(name.bytes().chain([0]));
        at
    };
    let (int, pair, function) = (place("int"), place("pair"), place("f"));
    let mut words = vec![int, 1 << 24, 4, 32 | 1 << 24, pair, 4 << 24 | members.len() as u32, size];
    for (name, offset) in members {
        words.extend([place(name), 1, offset * 8]);
    }
    words.extend([0, 13 << 24, 1, function, 12 << 24, 3]);
    let strings = strings.iter().map(|text| place(text)).collect();
    let records: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, records.len() as u32, records.len() as u32, text.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    ([bytes, records, text].concat(), strings)
}

fn kernel() -> Vec<u8> {
    types(&[("other", 0), ("first", 4), ("second", 12)], 24, &[]).0
}

fn with_kernel_types() -> Process {
    let runtime = Runtime::builder().cpus(2).privileged(true).build().unwrap();
    let engine = SysEngine::new(runtime, None).host_types(Arc::new(Btf::parse(kernel()).unwrap()));
    Process::of(System::new(engine))
}

/// Loads a program with types and relocations: the byte of the instruction, the type, the string's offset, the kind.
fn load(
    process: &mut Process,
    text: &str,
    (types, records, size): (&[u8], &[[u32; 4]], u32),
) -> (Result<i32, Errno>, String) {
    let at = process.put(types);
    let own =
        process.call(Command::BtfLoad, &Attr::default().u64(0, at).u32(16, types.len() as u32)).unwrap();
    let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    let functions: Vec<u8> = [0u32, 4].into_iter().flat_map(u32::to_ne_bytes).collect();
    let bytes: Vec<u8> = records.iter().flatten().copied().flat_map(u32::to_ne_bytes).collect();
    let room = vec![0; 4096];
    let parts: [&[u8]; 5] = [&insns, b"GPL\0", &functions, &bytes, &room];
    let [insns_at, licence, functions, records_at, log] = parts.map(|bytes| process.put(bytes));
    let attr = Attr::default().u32(0, 1).u32(4, insns.len() as u32 / 8).u64(8, insns_at).u64(16, licence);
    let attr = attr.u32(24, 1).u32(28, 4096).u64(32, log).u32(72, own as u32).u32(76, 8).u64(80, functions);
    let attr = attr.u32(88, 1).u32(116, records.len() as u32).u64(128, records_at).u32(136, size).u32(144, 0);
    let loaded = process.call(Command::ProgLoad, &attr).map(|program| program as i32);
    process.descriptors.remove(&(own as i32));
    let said = process.get(log, 4096);
    let end = said.iter().position(|byte| *byte == 0).unwrap();
    (loaded, String::from_utf8_lossy(&said[..end]).into_owned())
}

fn run(process: &mut Process, program: i32) -> u32 {
    let data = process.put(&[0; 64]);
    let attr = Attr::default().u32(0, program as u32).u32(8, 64).u64(16, data).u32(76, 0);
    process.call(Command::ProgTestRun, &attr).unwrap();
    process.answer(4)
}

#[test]
fn relocations_that_are_left_to_the_kernel_fit_its_types() {
    let members = [("first", 0), ("second", 4), ("gone", 8)];
    let (own, strings) = types(&members, 12, &["0:0", "0:1", "0:2", "0"]);
    let [first, second, gone, whole] = strings[..] else { panic!() };
    for (kind, ty, path, text, wanted) in [
        (FIELD_OFFSET, 2, first, "r0 = 0\nexit", Ok(4)),
        (FIELD_OFFSET, 2, second, "r0 = 4\nexit", Ok(12)),
        (FIELD_SIZE, 2, second, "r0 = 4\nexit", Ok(4)),
        (FIELD_EXISTS, 2, second, "r0 = 7\nexit", Ok(1)),
        (FIELD_EXISTS, 2, gone, "r0 = 7\nexit", Ok(0)),
        (TYPE_EXISTS, 2, whole, "r0 = 7\nexit", Ok(1)),
        (TYPE_SIZE, 2, whole, "r0 = 12\nexit", Ok(24)),
        (LOCAL_ID, 2, whole, "r0 = 9 ll\nexit", Ok(2)),
        (FIELD_OFFSET, 2, second, "r0 = 4 ll\nexit", Ok(12)),
        // What does not exist must not be reached.
        (FIELD_OFFSET, 2, gone, "r0 = 8\nexit", Err("195896080")),
        // What the instruction holds is not what the types say.
        (FIELD_OFFSET, 2, second, "r0 = 5\nexit", Err("relo #0")),
        (FIELD_OFFSET, 2, second, "r0 = r1\nexit", Err("relo #0")),
        (99, 2, second, "r0 = 4\nexit", Err("relo #0")),
        (FIELD_OFFSET, 77, second, "r0 = 4\nexit", Err("relo #0")),
        (FIELD_OFFSET, 2, u32::MAX, "r0 = 4\nexit", Err("relo #0")),
    ] {
        let mut process = with_kernel_types();
        let (loaded, said) = load(&mut process, text, (&own, &[[0, ty, path, kind]], 16));
        let found = match loaded {
            Ok(program) => Ok(run(&mut process, program)),
            Err(error) => {
                assert_eq!(error, Errno::EINVAL, "{said}");
                Err(&*said)
            }
        };
        match (found, wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{kind} {text}"),
            (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{kind} {text}: {said}"),
            (found, wanted) => panic!("{kind} {text}: {found:?} and not {wanted:?}: {said}"),
        }
    }
}

#[test]
fn records_of_relocations_are_checked_as_linux_checks_them() {
    let (own, strings) = types(&[("first", 0)], 4, &["0:0"]);
    let record = [0, 2, strings[0], FIELD_EXISTS];
    let mut process = with_kernel_types();
    let mut answer =
        |record: &[[u32; 4]], size: u32| load(&mut process, "r0 = 0\nexit", (&own, record, size));
    assert!(answer(&[record], 16).0.is_ok());
    for size in [0, 12, 15, 18, 256] {
        assert_eq!(answer(&[record], size).0, Err(Errno::EINVAL), "{size}");
    }
    for offset in [1, 16, u32::MAX] {
        let (loaded, said) = answer(&[[offset, 2, strings[0], FIELD_EXISTS]], 16);
        assert_eq!(loaded, Err(Errno::EINVAL));
        assert!(said.starts_with(&format!("Invalid core_relo[0].insn_off:{offset} prog->len:2")), "{said}");
    }
    // Without the kernel's types nothing can be found.
    let mut process = Process::new();
    let (loaded, said) = load(&mut process, "r0 = 0\nexit", (&own, &[record], 16));
    assert_eq!(loaded, Err(Errno::EINVAL));
    assert!(said.contains("--btf"), "{said}");
}

#[test]
fn the_types_of_the_kernel_are_found_by_their_identifier() {
    let mut process = with_kernel_types();
    let id = process.next_id(Command::BtfGetNextId, 0).unwrap();
    assert_eq!(process.next_id(Command::BtfGetNextId, id), Err(Errno::ENOENT));
    let types = process.call(Command::BtfGetFdById, &Attr::default().u32(0, id)).unwrap() as i32;
    let [bytes, name] = [kernel().len(), 8].map(|size| process.put(&vec![0; size]));
    let size = kernel().len() as u32;
    let mut ask = |name_room: u32| {
        let info = Attr::default().u64(0, bytes).u32(8, size).u64(16, name).u32(24, name_room);
        let room = process.put(&info.u32(28, 0).0);
        let attr = Attr::default().u32(0, types as u32).u32(4, 32).u64(8, room);
        let answer = process.call(Command::ObjGetInfoByFd, &attr);
        let word = |at: u64| u32::from_ne_bytes(process.get(room + at, 4).try_into().unwrap());
        (answer, [word(8), word(12), word(24), word(28)], process.get(name, 8).to_vec())
    };
    assert_eq!(ask(8), (Ok(0), [size, id, 7, 1], b"vmlinux\0".to_vec()));
    assert_eq!(ask(4), (Err(Errno::ENOSPC), [size, id, 7, 1], b"vml\0nux\0".to_vec()));
    assert_eq!(process.get(bytes, kernel().len()), kernel());
    // They are no program's.
    let function = process.put(&[0; 8]);
    let insns = process.put(&skep_isa::encode_bytes(&skep_isa::assemble("r0 = 0\nexit").unwrap()).unwrap());
    let licence = process.put(b"GPL\0");
    let load = Attr::default().u32(0, 1).u32(4, 2).u64(8, insns).u64(16, licence).u32(72, types as u32);
    let load = load.u32(76, 8).u64(80, function).u32(88, 1);
    assert_eq!(process.call(Command::ProgLoad, &load), Err(Errno::EACCES));
    let map = Attr::default().u32(0, 2).u32(4, 4).u32(8, 4).u32(12, 1);
    let map = map.u32(48, types as u32).u32(52, 1).u32(56, 1);
    assert_eq!(process.call(Command::MapCreate, &map), Err(Errno::EACCES));
    process.descriptors.clear();
    assert_eq!(process.next_id(Command::BtfGetNextId, 0), Ok(id), "they stay");
    assert_eq!(
        Process::new().next_id(Command::BtfGetNextId, 0),
        Err(Errno::ENOENT),
        "without types there are none"
    );
}
