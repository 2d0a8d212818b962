//! Iterators as applications use them: descriptors and pins, and readers of all sorts.

use crate::{bpf, hash, supervised, update};
use skep_testkit::skip;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::Arc;

/// Types of a kernel, with the functions of iterators.
const TYPES: &[u8] = include_bytes!("../../../skep-verifier/verdicts/linux.btf");
/// Elements of the map.
const KEYS: u32 = 5;
/// Writes each key.
const PROGRAM: &str = "r2 = *(u64 *)(r1 + 16)
    r3 = *(u64 *)(r1 + 0)
    if r2 == 0 goto out
    r1 = *(u64 *)(r3 + 0)
    r3 = 4
    call 127
    out:
    r0 = 0
    exit";

/// The kernel's types that the application of a scenario sees.
pub(super) fn types(scenario: &str) -> Option<Arc<skep::Btf>> {
    (scenario == "iterators").then(|| Arc::new(skep::Btf::parse(TYPES).unwrap()))
}

fn link(map: i32) -> i32 {
    let insns = skep::isa::encode_bytes(&skep::isa::assemble(PROGRAM).unwrap()).unwrap();
    let types = skep::Btf::parse(TYPES).unwrap();
    let target = (1..100_000u32).find(|id| types.name(*id).is_ok_and(|name| name == "bpf_iter_bpf_map_elem"));
    let target = target.unwrap();
    let (at, licence) = (insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
    let count = insns.len() as u64 / 8;
    let load =
        [(0, 26, 4), (4, count, 4), (8, at, 8), (16, licence, 8), (68, 28, 4), (108, target.into(), 4)];
    let program = bpf(5, &load).unwrap() as u64;
    let info = [map, 0, 0, 0];
    let create = [(0, program, 4), (8, 28, 4), (16, info.as_ptr() as u64, 8), (24, 16, 4)];
    bpf(28, &create).unwrap() as i32
}

fn created(link: i32) -> File {
    let descriptor = bpf(33, &[(0, link as u64, 4)]).unwrap() as i32;
    // SAFETY: the call has given this process the descriptor.
    unsafe { File::from_raw_fd(descriptor) }
}

/// The keys in what was read, in order.
fn keys(bytes: &[u8]) -> Vec<u32> {
    let mut keys: Vec<_> = bytes.chunks(4).map(|key| u32::from_ne_bytes(key.try_into().unwrap())).collect();
    keys.sort_unstable();
    keys
}

pub(super) fn application(scenario: &str) -> bool {
    if scenario != "iterators" {
        return false;
    }
    let map = hash();
    (0..KEYS).for_each(|key| assert_eq!(update(map, key, 1), Ok(0)));
    let (link, all) = (link(map), (0..KEYS).collect::<Vec<_>>());
    let mut bytes = Vec::new();
    created(link).read_to_end(&mut bytes).unwrap();
    assert_eq!(keys(&bytes), all);

    // Never read, read byte by byte, closed in the middle, read after its map has changed.
    let (unread, mut slow, mut half, mut late) = (created(link), created(link), created(link), created(link));
    let mut one = [0];
    let mut slowly = Vec::new();
    while slow.read(&mut one).unwrap() == 1 {
        slowly.push(one[0]);
    }
    assert_eq!(keys(&slowly), all);
    half.read_exact(&mut one).unwrap();
    drop((unread, half));
    assert!(late.write(&[0]).is_err() && late.set_len(0).is_err(), "nobody changes what others read");
    update(map, 7, 7).unwrap();
    bytes.clear();
    late.read_to_end(&mut bytes).unwrap();
    assert_eq!(keys(&bytes), all, "what there was");

    // Each opening of a pin is a walk.
    let path = "/sys/fs/bpf/keys";
    if bpf(6, &[(0, c"/sys/fs/bpf/keys".as_ptr() as u64, 8), (8, link as u64, 4)]).is_ok() {
        let more = [&all[..], &[7]].concat();
        assert_eq!(keys(&std::fs::read(path).unwrap()), more);
        update(map, 6, 6).unwrap();
        std::env::set_current_dir("/sys/fs/bpf").unwrap();
        assert_eq!(keys(&std::fs::read("keys").unwrap()), [&all[..], &[6, 7]].concat());
        // SAFETY: descriptors of this test.
        unsafe { (libc::close(map), libc::close(link)) };
        assert_eq!(std::fs::read(path).unwrap().len(), 7 * 4, "the pin holds the map");
        std::fs::remove_file(path).unwrap();
        assert!(std::fs::read(path).is_err());
    }
    true
}

#[test]
fn what_an_iterators_program_writes_is_read_by_descriptors_and_pins() {
    let Some((status, traced, missing)) = supervised("iterators") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    if !missing.is_empty() {
        skip("pins of iterators", &missing.join("\n"));
    }
}
