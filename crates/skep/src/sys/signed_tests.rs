//! Programs that clients sign, as for Linux 6.18.

use super::SysEngine;
use super::tests::{Attr, BASE, Process};
use crate::Runtime;
use crate::signature::Certificates;
use skep_sys::{ATTRIBUTE_SIZE, Command, Errno, System};

const XDP: u32 = 6;
const ARRAY: u32 = 2;
/// Offsets in the attributes of a load.
const FD_ARRAY: usize = 120;
const FD_ARRAY_CNT: usize = 148;
const SIGNATURE: usize = 152;
const SIGNATURE_SIZE: usize = 160;
const KEYRING: usize = 164;
/// Keyrings: Linux's built-in one, the session's.
const BUILT_IN: i32 = 0;
const SESSION: i32 = -3;

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/signatures/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn keys(name: &str) -> Certificates {
    let mut keys = Certificates::new();
    keys.add(&file(name)).unwrap();
    keys
}

/// A client of a runtime that trusts these keys.
fn trusting(name: &str) -> Process {
    let runtime = Runtime::builder().privileged(true).build().unwrap();
    Process::of(System::new(SysEngine::new(runtime, None).trusted(keys(name))))
}

/// A client of a runtime that loads only what these keys have signed.
fn requiring(name: &str) -> Process {
    let runtime = Runtime::builder().privileged(true).require_signatures(keys(name)).build().unwrap();
    Process::of(System::new(SysEngine::new(runtime, None)))
}

fn program(process: &mut Process, insns: &[u8]) -> Attr {
    let (at, licence) = (process.put(insns), process.put(b"GPL\0"));
    Attr::default().u32(0, XDP).u32(4, insns.len() as u32 / 8).u64(8, at).u64(16, licence)
}

/// A load of these instructions with that signature by keys of that keyring, and what the log says.
fn load(process: &mut Process, insns: &[u8], message: &[u8], keyring: i32) -> (Result<i64, Errno>, String) {
    let (at, log) = (process.put(message), process.put(&[0; 512]));
    let attr = program(process, insns).u64(SIGNATURE, at).u32(SIGNATURE_SIZE, message.len() as u32);
    let attr = attr.u32(24, 1).u32(28, 512).u64(32, log).u32(KEYRING, keyring.cast_unsigned());
    let answer = process.call(Command::ProgLoad, &attr);
    let text = String::from_utf8_lossy(process.get(log, 512)).trim_end_matches('\0').to_owned();
    (answer, text)
}

#[test]
fn a_program_that_a_trusted_key_signed_is_loaded() {
    for keyring in [BUILT_IN, 1, 2, SESSION, -1, -5] {
        for mut process in [trusting("rsa.cert"), requiring("rsa.cert")] {
            let (answer, log) =
                load(&mut process, &file("instructions"), &file("instructions-as-bpftool"), keyring);
            assert!(answer.is_ok(), "{keyring}: {answer:?}: {log}");
        }
    }
}

#[test]
fn each_fault_of_a_signature_has_linuxs_number_and_a_line_in_the_log() {
    let (insns, right) = (file("instructions"), file("instructions-as-bpftool"));
    let mut other = insns.clone();
    other[4] = 3;
    for mut process in [trusting("rsa.cert"), requiring("rsa.cert")] {
        let refused = |(answer, log): (Result<i64, Errno>, String), number: Errno, words: &str| {
            assert_eq!(answer, Err(number), "{log}");
            assert!(log.contains(words), "{log}");
        };
        refused(load(&mut process, &other, &right, SESSION), Errno::EKEYREJECTED, "CN=rsa");
        refused(load(&mut process, &insns, &right[..100], SESSION), Errno::EBADMSG, "not CMS");
        refused(load(&mut process, &insns, b"", SESSION), Errno::EBADMSG, "not CMS");
        refused(load(&mut process, &insns, &file("p256-sha256"), SESSION), Errno::ENOKEY, "not trusted");
        // Over other content, and by an algorithm that is not accepted.
        refused(load(&mut process, &insns, &file("rsa-sha256"), SESSION), Errno::EKEYREJECTED, "differs");
        refused(load(&mut process, &insns, &file("rsa-sha1"), SESSION), Errno::ENOPKG, "SHA");
    }
    let mut process = trusting("rsa-other.cert");
    refused_without_a_key(&mut process);
    // A runtime without keys trusts nobody: no signature passes for right because nobody can check it.
    refused_without_a_key(&mut Process::new());
}

fn refused_without_a_key(process: &mut Process) {
    let (answer, log) = load(process, &file("instructions"), &file("instructions-as-bpftool"), SESSION);
    assert_eq!(answer, Err(Errno::ENOKEY));
    assert!(log.contains("trusted"), "{log}");
}

#[test]
fn a_runtime_that_requires_signatures_refuses_programs_without_one() {
    let mut process = requiring("rsa.cert");
    let (answer, log) = process.load_bytes(XDP, &file("instructions"), 1, 512);
    assert_eq!(answer, Err(Errno::EPERM));
    assert!(log.contains("not signed"), "{log}");
    // The size and the keyring alone are no signature.
    let attr = program(&mut process, &file("instructions")).u32(SIGNATURE_SIZE, 100).u32(KEYRING, 1);
    assert_eq!(process.call(Command::ProgLoad, &attr), Err(Errno::EPERM));
    // Others load them.
    let mut process = trusting("rsa.cert");
    let attr = program(&mut process, &file("instructions")).u32(KEYRING, 1);
    assert!(process.call(Command::ProgLoad, &attr).is_ok());
}

#[test]
fn keyrings_that_stand_for_no_keys_and_addresses_that_are_none_are_errors() {
    let mut process = trusting("rsa.cert");
    let (insns, right) = (file("instructions"), file("instructions-as-bpftool"));
    for keyring in [3, 1000, -6, i32::MIN, i32::MAX] {
        assert_eq!(load(&mut process, &insns, &right, keyring).0, Err(Errno::EINVAL), "{keyring}");
    }
    let mut with = |signature: u64, size: u32, keyring: i32| {
        let attr = program(&mut process, &insns).u64(SIGNATURE, signature).u32(SIGNATURE_SIZE, size);
        process.call(Command::ProgLoad, &attr.u32(KEYRING, keyring.cast_unsigned()))
    };
    assert_eq!(with(8, 100, SESSION), Err(Errno::ENOMEM));
    assert_eq!(with(BASE, (16 << 10) + 1, SESSION), Err(Errno::EINVAL));
    assert_eq!(with(BASE, u32::MAX, SESSION), Err(Errno::EINVAL));
    assert_eq!(with(8, 100, 7), Err(Errno::EINVAL), "the keyring comes first");
}

#[test]
fn a_wrong_licence_is_told_after_a_wrong_signature_and_instructions_before() {
    let mut process = trusting("rsa.cert");
    let insns = process.put(&file("instructions"));
    let wrong = process.put(b"no signature");
    let attr = |insns: u64, signature: u64| {
        Attr::default()
            .u32(0, XDP)
            .u32(4, 2)
            .u64(8, insns)
            .u64(16, 8)
            .u64(SIGNATURE, signature)
            .u32(SIGNATURE_SIZE, 12)
    };
    assert_eq!(process.call(Command::ProgLoad, &attr(insns, wrong).u32(KEYRING, 0)), Err(Errno::EBADMSG));
    assert_eq!(process.call(Command::ProgLoad, &attr(8, wrong).u32(KEYRING, 0)), Err(Errno::EFAULT));
}

#[test]
fn structures_of_older_and_newer_callers_are_understood() {
    let mut process = trusting("rsa.cert");
    let insns = file("instructions");
    for size in [148, 152, 160, 164, ATTRIBUTE_SIZE, ATTRIBUTE_SIZE + 8, 4096] {
        let attr = program(&mut process, &insns).bytes(size - 1, &[0]);
        process.free = process.free.max(4096);
        assert!(process.call(Command::ProgLoad, &attr).is_ok(), "{size}");
    }
    // A field that only a newer system has.
    let attr = program(&mut process, &insns).bytes(ATTRIBUTE_SIZE, &[1]);
    assert_eq!(process.call(Command::ProgLoad, &attr), Err(Errno::E2BIG));
    // The last field may be cut: its rest is zero.
    let (message, at) = (file("instructions-as-bpftool"), process.put(&file("instructions-as-bpftool")));
    let attr = program(&mut process, &insns).u64(SIGNATURE, at).u32(SIGNATURE_SIZE, message.len() as u32);
    assert_eq!(attr.0.len(), KEYRING);
    assert!(process.call(Command::ProgLoad, &attr).is_ok());
}

#[test]
fn maps_of_the_descriptor_array_belong_to_the_program() {
    let mut process = trusting("rsa.cert");
    let maps = [8, 4].map(|size| process.map(ARRAY, 4, size, 1).unwrap());
    let array = process.put(&[maps[1], maps[0], maps[1]].map(i32::to_ne_bytes).concat());
    let attr = program(&mut process, &file("instructions")).u64(FD_ARRAY, array).u32(FD_ARRAY_CNT, 3);
    let loaded = process.call(Command::ProgLoad, &attr).unwrap() as i32;
    // `nr_map_ids` of struct bpf_prog_info.
    assert_eq!(process.info(loaded, 232)[52..56], 2u32.to_ne_bytes());
    let array = process.put(&[maps[0], 0].map(i32::to_ne_bytes).concat());
    let attr = program(&mut process, &file("instructions")).u64(FD_ARRAY, array);
    assert!(
        process.call(Command::ProgLoad, &attr).is_ok(),
        "without a count it is used where a program names it"
    );
    let attr = program(&mut process, &file("instructions")).u64(FD_ARRAY, array).u32(FD_ARRAY_CNT, 2);
    assert_eq!(process.call(Command::ProgLoad, &attr), Err(Errno::EINVAL), "no map");
    let attr = program(&mut process, &file("instructions")).u64(FD_ARRAY, 8).u32(FD_ARRAY_CNT, 1);
    assert_eq!(process.call(Command::ProgLoad, &attr), Err(Errno::EFAULT));
    let attr = program(&mut process, &file("instructions")).u64(FD_ARRAY, array).u32(FD_ARRAY_CNT, u32::MAX);
    assert_eq!(process.call(Command::ProgLoad, &attr), Err(Errno::E2BIG));
}
