//! Iterators through the system call.

use super::SysEngine;
use super::tests::{Attr, Process};
use crate::Runtime;
use skep_btf::{Btf, Kind};
use skep_sys::{Command, Errno, System};
use std::sync::Arc;

const TRACING: u32 = 26;
const TRACE_ITER: u32 = 28;
/// Writes each key.
const KEYS: &str = "r2 = *(u64 *)(r1 + 16)
    r3 = *(u64 *)(r1 + 0)
    if r2 == 0 goto out
    r1 = *(u64 *)(r3 + 0)
    r3 = 4
    call 127
    out:
    r0 = 0
    exit";
/// Writes the last byte of a value of eight bytes.
const VALUES: &str = "r2 = *(u64 *)(r1 + 24)
    r3 = *(u64 *)(r1 + 0)
    if r2 == 0 goto out
    r1 = *(u64 *)(r3 + 0)
    r2 += 7
    r3 = 1
    call 127
    out:
    r0 = 0
    exit";
const AGAIN: &str = "r0 = 1\nexit";
const NOTHING: &str = "r0 = 0\nexit";

fn types() -> Arc<Btf> {
    let types: &[u8] = include_bytes!("../../../skep-verifier/verdicts/linux.btf");
    Arc::new(Btf::parse(types).expect("types"))
}

fn process() -> Process {
    let engine = SysEngine::new(Runtime::new().expect("a runtime"), None).host_types(types());
    Process::of(System::new(engine))
}

fn load(process: &mut Process, text: &str, target: &str) -> Result<i64, Errno> {
    let id = types().find(target, Kind::Func).expect("a function");
    load_for(process, text, id).0
}

fn load_for(process: &mut Process, text: &str, id: u32) -> (Result<i64, Errno>, String) {
    let insns = skep_isa::encode_bytes(&skep_isa::assemble(text).unwrap()).unwrap();
    let (at, licence, log) = (process.put(&insns), process.put(b"GPL\0"), process.put(&[0; 4096]));
    let attr = Attr::default().u32(0, TRACING).u32(4, insns.len() as u32 / 8).u64(8, at).u64(16, licence);
    let attr = attr.u32(24, 1).u32(28, 4096).u64(32, log).bytes(48, b"shows").u32(68, TRACE_ITER);
    let answer = process.call(Command::ProgLoad, &attr.u32(108, id));
    let text = process.get(log, 4096);
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    (answer, String::from_utf8_lossy(text).into_owned())
}

fn link(process: &mut Process, program: i64, map: i32) -> Result<i64, Errno> {
    let info = process.put(&[&map.to_ne_bytes()[..], &[0; 12]].concat());
    let attr = Attr::default().u32(0, program as u32).u32(8, TRACE_ITER).u64(16, info).u32(24, 16);
    process.call(Command::LinkCreate, &attr)
}

fn read(process: &mut Process, link: i64) -> Result<Vec<u8>, Errno> {
    process.call(Command::IterCreate, &Attr::default().u32(0, link as u32))?;
    Ok(process.outputs.last().expect("an output").clone())
}

#[test]
fn what_an_iterators_program_writes_is_read_from_a_descriptor() {
    let mut process = process();
    let map = process.map(1, 4, 8, 8).unwrap();
    for key in [7u32, 9] {
        process.update(map, &key.to_ne_bytes(), &[key as u8; 8], 0).unwrap();
    }
    let keys = load(&mut process, KEYS, "bpf_iter_bpf_map_elem").unwrap();
    let link = link(&mut process, keys, map).unwrap();
    // The link holds the map.
    process.descriptors.remove(&map).unwrap();
    let mut found: Vec<_> = read(&mut process, link).unwrap().chunks(4).map(<[u8]>::to_vec).collect();
    found.sort();
    assert_eq!(found, [7u32, 9].map(|key| key.to_ne_bytes().to_vec()));
    let flags = Attr::default().u32(0, link as u32).u32(4, 1);
    assert_eq!(process.call(Command::IterCreate, &flags), Err(Errno::EINVAL));
    assert_eq!(process.call(Command::IterCreate, &Attr::default().u32(0, keys as u32)), Err(Errno::EINVAL));
    process.descriptors.remove(&(link as i32)).unwrap();
    assert_eq!(process.next_id(Command::MapGetNextId, 0), Err(Errno::ENOENT), "nobody holds the map");
}

#[test]
fn a_link_is_made_only_for_a_map_that_the_program_fits() {
    let mut process = process();
    let small = process.map(1, 4, 4, 8).unwrap();
    let queue = process.map(22, 0, 8, 8).unwrap();
    let fits = process.map(2, 4, 8, 8).unwrap();
    let values = load(&mut process, VALUES, "bpf_iter_bpf_map_elem").unwrap();
    assert_eq!(link(&mut process, values, small), Err(Errno::EACCES));
    assert_eq!(link(&mut process, values, queue), Err(Errno::EINVAL));
    assert_eq!(link(&mut process, values, 0), Err(Errno::EBADF));
    assert_eq!(link(&mut process, values, 99), Err(Errno::EBADF));
    assert_eq!(link(&mut process, values, values as i32), Err(Errno::EINVAL));
    let made = link(&mut process, values, fits).unwrap();
    assert_eq!(read(&mut process, made).unwrap(), [0; 8]);

    let info = process.put(&[0; 16]);
    let create = |at: &[(usize, u32)]| {
        let attr = Attr::default().u32(0, values as u32).u32(8, TRACE_ITER).u64(16, info).u32(24, 16);
        at.iter().fold(attr, |attr, (at, number)| attr.u32(*at, *number))
    };
    // A target, flags, an address without a length, another type of attachment.
    for wrong in [(4, 1), (12, 1), (24, 0), (8, 24)] {
        assert_eq!(process.call(Command::LinkCreate, &create(&[wrong])), Err(Errno::EINVAL), "{wrong:?}");
    }
    let beyond = process.put(&[&fits.to_ne_bytes()[..], &[0; 12], &[1]].concat());
    let attr = create(&[]).u64(16, beyond).u32(24, 17);
    assert_eq!(process.call(Command::LinkCreate, &attr), Err(Errno::E2BIG));
}

#[test]
fn another_program_for_the_same_objects_takes_a_place_and_is_measured_anew() {
    let mut process = process();
    let small = process.map(1, 4, 4, 8).unwrap();
    process.update(small, &[1, 0, 0, 0], &[0; 4], 0).unwrap();
    let keys = load(&mut process, KEYS, "bpf_iter_bpf_map_elem").unwrap();
    let values = load(&mut process, VALUES, "bpf_iter_bpf_map_elem").unwrap();
    let maps = load(&mut process, NOTHING, "bpf_iter_bpf_map").unwrap();
    let again = load(&mut process, AGAIN, "bpf_iter_bpf_map_elem").unwrap();
    let link = link(&mut process, keys, small).unwrap();
    let update = |program: i64| Attr::default().u32(0, link as u32).u32(4, program as u32);
    assert_eq!(process.call(Command::LinkUpdate, &update(maps)), Err(Errno::EINVAL));
    assert_eq!(read(&mut process, link).unwrap(), [1, 0, 0, 0]);
    // Linux does not look at sizes here; the walk does.
    process.call(Command::LinkUpdate, &update(values)).unwrap();
    assert_eq!(read(&mut process, link), Err(Errno::EACCES));
    process.call(Command::LinkUpdate, &update(again)).unwrap();
    assert_eq!(read(&mut process, link), Err(Errno::EAGAIN));
    assert_eq!(
        process.call(Command::LinkDetach, &Attr::default().u32(0, link as u32)),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn information_of_a_link_names_its_target_and_map() {
    let mut process = process();
    let map = process.map(1, 4, 8, 8).unwrap();
    let keys = load(&mut process, KEYS, "bpf_iter_bpf_map_elem").unwrap();
    let link = link(&mut process, keys, map).unwrap();
    let name = process.put(&[0xff; 16]);
    let mut info = |address: u64, room: u32| {
        let mut given = vec![0; 64];
        given[16..24].copy_from_slice(&address.to_ne_bytes());
        given[24..28].copy_from_slice(&room.to_ne_bytes());
        let at = process.put(&given);
        let attr = Attr::default().u32(0, link as u32).u32(4, 64).u64(8, at);
        let answer = process.call(Command::ObjGetInfoByFd, &attr).map(|_| process.get(at, 64).to_vec());
        (answer, process.get(name, 16).to_vec())
    };
    let word = |info: &[u8], at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
    let (found, text) = info(name, 16);
    let found = found.unwrap();
    assert_eq!((word(&found, 0), word(&found, 24), word(&found, 28)), (4, 13, 1));
    assert_eq!(&text[..13], b"bpf_map_elem\0");
    let (found, text) = info(name, 5);
    assert_eq!((found, &text[..5]), (Err(Errno::ENOSPC), &b"bpf_\0"[..]));
    assert_eq!(info(name, 0).0, Err(Errno::EINVAL));
    assert_eq!(word(&info(0, 0).0.unwrap(), 24), 13);
}

#[test]
fn what_cannot_be_shown_is_refused_by_name() {
    let mut process = process();
    let (answer, log) = load_for(&mut process, NOTHING, 0);
    assert_eq!(answer, Err(Errno::EINVAL));
    assert!(log.contains("must provide btf_id"), "{log}");
    let other = types().find("bpf_iter_bits_new", Kind::Func).unwrap();
    assert_eq!(load_for(&mut process, NOTHING, other).0, Err(Errno::EINVAL));
    let task = types().find("bpf_iter_task", Kind::Func).unwrap();
    let (answer, log) = load_for(&mut process, NOTHING, task);
    assert_eq!(answer, Err(Errno::EINVAL));
    assert!(log.contains("not over task"), "{log}");
    let lacking = process.system.engine().lacking();
    assert!(lacking.iter().any(|(lack, _)| (lack.what, &*lack.name) == ("iterator", "task")), "{lacking:?}");
    let operations = "r2 = *(u64 *)(r1 + 8)\nif r2 == 0 goto +1\nr2 = *(u64 *)(r2 + 0)\nr0 = 0\nexit";
    let map = types().find("bpf_iter_bpf_map", Kind::Func).unwrap();
    let (answer, log) = load_for(&mut process, operations, map);
    assert_eq!(answer, Err(Errno::EINVAL));
    assert!(log.contains("no member ops"), "{log}");

    let mut without = Process::new();
    let (answer, log) = load_for(&mut without, NOTHING, 7);
    assert_eq!(answer, Err(Errno::EINVAL));
    assert!(log.contains("--btf"), "{log}");
}
