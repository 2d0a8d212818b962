//! Loading allocates at most a multiple of the file's size, whatever sizes the file claims.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use skep_abi::RAW;
use skep_elf::Object;
use support::btf::{Types, lines};
use support::*;

/// The promised bound: bytes allocated at a time for each byte of the file. Real objects stay below 20; the worst
/// case is a name and a line of 512 bytes for each record of 16.
const FACTOR: usize = 100;
/// Bytes allocated regardless of the file's size.
const BASE: usize = 64 * 1024;

thread_local! {
    /// Bytes that this thread has allocated now, and their maximum.
    static LIVE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
    /// Total bytes that this thread has allocated.
    static EVER: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    EVER.set(EVER.get() + bytes.max(0));
    LIVE.with(|cell| {
        let (live, peak) = cell.get();
        let live = live + bytes;
        cell.set((live, peak.max(live)));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged, and counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise, passed on: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Loads the object and one program of it; returns the number of programs, or `None` if it is refused.
#[track_caller]
fn load_bounded(bytes: &[u8]) -> Option<usize> {
    let before = LIVE.with(|cell| {
        let (live, _) = cell.get();
        cell.set((live, live));
        live
    });
    let loaded = Object::parse(bytes).map(|object| {
        let source = object.programs().first().map(|program| program.source(Some(&RAW)));
        drop(source);
        object.programs().len()
    });
    let peak = LIVE.with(|cell| cell.get().1) - before;
    let bound = (FACTOR * bytes.len() + BASE) as isize;
    assert!(peak <= bound, "{peak} bytes for a file of {}", bytes.len());
    loaded.ok()
}

#[test]
fn real_objects_need_little_memory() {
    let bytes = include_bytes!("../../../examples/firewall.bpf.o");
    assert_eq!(load_bounded(bytes), Some(1));
    let peak = LIVE.with(|cell| cell.get().1);
    assert!(peak < 20 * bytes.len() as isize, "{peak}");
}

#[test]
fn objects_for_a_kernel_need_little_memory() {
    for bytes in [&include_bytes!("objects/core.bpf.o")[..], include_bytes!("objects/kernel.bpf.o")] {
        assert!(load_bounded(bytes).is_some());
    }
}

#[test]
fn many_functions_may_have_one_large_prototype() {
    let mut types = Types::new();
    let params: Vec<_> = (0..20_000).map(|_| ("", 0)).collect();
    let section = types.string("xdp");
    let function = types.function("f", 1, 0, &params);
    for index in 0..5 {
        types.add("arg:nonnull", 17, 0, function, &[index]);
    }
    let code = RETURN_0.repeat(1000);
    let mut ext = vec![0x9f, 0xeb, 1, 0];
    let length = 4 + 8 + 1000 * 8;
    for word in [24, 0, length, length, 0, 8, section, 1000] {
        ext.extend(u32::to_le_bytes(word));
    }
    let mut file = ObjectFile::new();
    let xdp = file.code("xdp", &code);
    for index in 0..1000 {
        file.function(&format!("f{index}"), xdp, index * 16, 16);
        ext.extend((index as u32 * 16).to_le_bytes());
        ext.extend(function.to_le_bytes());
    }
    file.info(".BTF", types.build());
    file.info(".BTF.ext", ext);
    assert_eq!(load_bounded(&file.build()), Some(1000));
}

#[test]
fn a_section_of_zeroes_costs_nothing_at_any_size() {
    let mut file = ObjectFile::with_program();
    let zeroes = file.zeroes(".bss", u32::MAX.into());
    file.variable("large", zeroes, 0, u32::MAX.into());
    assert_eq!(load_bounded(&file.build()), Some(1));
    let mut file = ObjectFile::with_program();
    file.zeroes(".bss", u64::MAX);
    assert_eq!(load_bounded(&file.build()), None);
}

#[test]
fn sections_cannot_share_bytes() {
    let mut file = ObjectFile::with_program();
    for _ in 0..500 {
        file.data(".data.x", &[0; 64]);
    }
    let mut bytes = file.build();
    let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    for section in 2..502 {
        let header = headers + 64 * section;
        bytes[header + 24..header + 32].copy_from_slice(&0u64.to_le_bytes());
        bytes[header + 32..header + 40].copy_from_slice(&(headers as u64).to_le_bytes());
    }
    assert_eq!(load_bounded(&bytes), None);
}

#[test]
fn many_symbols_may_share_one_long_name() {
    for (length, accepted) in [(1000, true), (100_000, false)] {
        let mut file = ObjectFile::new();
        let code = file.code("xdp", &RETURN_0.repeat(1000));
        let name = file.string(&"n".repeat(length));
        for index in 0..1000 {
            // No two programs may have the same name, but names may be suffixes of one string.
            file.symbol_named_at(name + index, 0x12, 1, u64::from(index) * 16, 16);
        }
        let data = file.data(".data", &[0; 16]);
        for _ in 0..2000 {
            file.symbol_named_at(name, 0x11, 2, 0, 16);
        }
        let _ = (code, data);
        assert_eq!(load_bounded(&file.build()), accepted.then_some(1000), "{length}");
    }
}

#[test]
fn functions_cannot_overlap() {
    let mut file = ObjectFile::new();
    let code = file.code("xdp", &RETURN_0.repeat(1000));
    for index in 0..1000 {
        file.function("f", code, index * 16, 16 * (1000 - index));
    }
    assert_eq!(load_bounded(&file.build()), None);
}

#[test]
fn many_line_records_may_name_parts_of_one_long_string() {
    let mut types = Types::new();
    let section = types.string("xdp");
    let text = types.string(&"t".repeat(50_000));
    let records: Vec<_> = (0..20_000).map(|i| [0, text + i * 2, text + i * 2 + 1, 1 << 10]).collect();
    let mut file = ObjectFile::with_program();
    file.info(".BTF", types.build());
    file.info(".BTF.ext", lines(section, &records));
    assert_eq!(load_bounded(&file.build()), Some(1));
}

#[test]
fn tables_that_claim_more_than_they_have_cost_nothing() {
    let object = include_bytes!("objects/linkage.bpf.o");
    let headers = u64::from_le_bytes(object[40..48].try_into().unwrap()) as usize;
    let mut bytes = object.to_vec();
    for at in (0..64).chain(headers..object.len() - 7).step_by(4) {
        for claim in [u64::from(u32::MAX), 1 << 40, u64::MAX >> 1] {
            let right: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
            bytes[at..at + 8].copy_from_slice(&claim.to_le_bytes());
            load_bounded(&bytes);
            bytes[at..at + 8].copy_from_slice(&right);
        }
    }
    assert!(load_bounded(&bytes).is_some());
}

#[test]
fn linking_one_program_allocates_nothing_for_the_others() {
    let taken = |count: u64| {
        let mut file = ObjectFile::new();
        let section = file.code("xdp", &RETURN_0.repeat(count as usize));
        for number in 0..count {
            file.function(&format!("program_{number}"), section, number * 16, 16);
        }
        let object = Object::parse(&file.build()).unwrap();
        let before = EVER.get();
        for program in object.programs() {
            program.source(None).unwrap();
        }
        EVER.get() - before
    };
    let (one, two) = (taken(1_000), taken(2_000));
    assert!(two < one * 5 / 2, "{one} bytes, and for twice as many programs {two}");
}
