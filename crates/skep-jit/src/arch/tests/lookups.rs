//! Helpers that need no call, and the addresses of maps.

use skep_abi::{HelperFn, InlineArray, Linkage, MapLink, RunEnv};
use skep_verifier::CallFact;

use super::Program;

/// A look-up that must not be called.
unsafe extern "C" fn never(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0xdead
}

const HELPERS: [(u32, HelperFn); 2] = [(1, never), (8, never)];

fn linkage(arrays: &[InlineArray]) -> Linkage {
    let maps = arrays
        .iter()
        .map(|&inline| MapLink {
            handle: 0x1234,
            inline: Some(inline),
            value_base: None,
            programs: None,
            arena: None,
        })
        .collect();
    Linkage { maps, helpers: HELPERS.into(), inline_linux_helpers: true, ..Linkage::default() }
}

/// Looks up the index in `r1`; returns the address or 0.
const LOOKUP: &str = "*(u32 *)(r10 - 4) = r1
    r2 = r10
    r2 += -4
    r1 = map[0] ll
    call 1
    exit";

const LOOKUP_SLOT: usize = 5;

fn lookup(text: &str, array: InlineArray, fact: CallFact) -> Program {
    let mut program = Program::new(text).call_fact(LOOKUP_SLOT, fact);
    program.linkage = linkage(&[array]);
    program
}

const UNKNOWN_KEY: CallFact = CallFact { map: Some(0), key: None, in_bounds: false };

#[test]
fn look_ups_in_arrays_find_the_elements_that_are_there() {
    for stride in [1, 2, 3, 4, 8, 16, 24, 100, 4096, 1 << 31, u32::MAX] {
        for cpu_stride in [0, 8, 24, 4096, u32::MAX] {
            for base in [0x1000, 0x7fff_1234_5678, 0xffff_8000] {
                for max_entries in [1, 7, 128, 1000, 1 << 31, u32::MAX] {
                    let array = InlineArray { base, stride, cpu_stride, max_entries };
                    let program = lookup(LOOKUP, array, UNKNOWN_KEY).ready();
                    let mut env = RunEnv { cpu: 3, ..RunEnv::default() };
                    for index in [0, 1, 6, 7, 8, 127, 128, 1 << 31, u32::MAX - 1, u32::MAX] {
                        let expected = if index < max_entries {
                            base.wrapping_add(u64::from(index) * u64::from(stride))
                                .wrapping_add(3 * u64::from(cpu_stride))
                        } else {
                            0
                        };
                        let got = program.run_in(index.into(), 0, &mut env);
                        assert_eq!(got, expected, "{array:x?}[{index}]");
                    }
                }
            }
        }
    }
}

#[test]
fn look_ups_with_a_known_key_are_an_address() {
    let array = InlineArray { base: 0x10_0000, stride: 24, cpu_stride: 0, max_entries: 10 };
    let program = lookup(LOOKUP, array, CallFact { map: Some(0), key: Some(9), in_bounds: false });
    // The key in memory is not read: the verifier knows it.
    assert_eq!(program.run(77, 0), 0x10_0000 + 9 * 24);
    let per_cpu = InlineArray { cpu_stride: 240, ..array };
    let program = lookup(LOOKUP, per_cpu, CallFact { map: Some(0), key: Some(9), in_bounds: false });
    assert_eq!(program.run_in(77, 0, &mut RunEnv { cpu: 2, ..RunEnv::default() }), 0x10_0000 + 9 * 24 + 480);
}

#[test]
fn a_known_key_that_is_out_of_range_is_not_trusted() {
    let array = InlineArray { base: 0x10_0000, stride: 24, cpu_stride: 0, max_entries: 10 };
    let program = lookup(LOOKUP, array, CallFact { map: Some(0), key: Some(10), in_bounds: false });
    assert_eq!(program.run(10, 0), 0);
}

#[test]
fn the_null_check_after_a_look_up_sees_its_result() {
    let array = InlineArray { base: 0x10_0000, stride: 8, cpu_stride: 0, max_entries: 10 };
    for (test, null, found) in [
        ("if r0 == 0 goto out\nr0 = 1\nout: exit", 0, 1),
        ("if r0 != 0 goto out\nr0 = 5\nout: exit", 5, 0x10_0010),
        ("if r0 == 0 goto +1\ngoto out\nr0 = 5\nout: exit", 5, 0x10_0010),
        ("if r0 != 0 goto +1\ngoto out\nr0 = 5\nout: exit", 0, 5),
        ("if r0 s> 0 goto out\nr0 = 5\nout: exit", 5, 0x10_0010),
    ] {
        let text = LOOKUP.replace("exit", test);
        let program = lookup(&text, array, UNKNOWN_KEY);
        assert_eq!((program.run(10, 0), program.run(2, 0)), (null, found), "{test}");
        let known = lookup(&text, array, CallFact { map: Some(0), key: Some(2), in_bounds: false });
        assert_eq!(known.run(0, 0), found, "{test}");
    }
}

#[test]
fn a_null_check_that_is_a_branch_target_stays() {
    let text = "if r2 == 1 goto test
        *(u32 *)(r10 - 4) = r1
        r2 = r10
        r2 += -4
        call 1
        test: if r0 == 0 goto out
        r0 = 1
        out: exit";
    let array = InlineArray { base: 0x10_0000, stride: 8, cpu_stride: 0, max_entries: 10 };
    let mut program = Program::new(&format!("r0 = 0\n{text}")).call_fact(5, UNKNOWN_KEY);
    program.linkage = linkage(&[array]);
    assert_eq!([program.run(2, 1), program.run(2, 0), program.run(20, 0)], [0, 1, 0]);
}

#[test]
fn helpers_are_inlined_only_if_marked_as_linux_s() {
    let array = InlineArray { base: 0x10_0000, stride: 8, cpu_stride: 0, max_entries: 10 };
    let mut program = lookup(LOOKUP, array, UNKNOWN_KEY);
    program.linkage.inline_linux_helpers = false;
    assert_eq!(program.run(1, 0), 0xdead);
    let mut program = lookup(LOOKUP, array, CallFact::default());
    assert_eq!(program.run(1, 0), 0xdead, "the map is not known");
    program.linkage.maps[0].inline = None;
    program.facts[LOOKUP_SLOT].call = Some(UNKNOWN_KEY);
    assert_eq!(program.run(1, 0), 0xdead, "the map has no such look-up");
}

#[test]
fn the_cpu_number_is_read_from_the_environment() {
    let mut program = Program::new("r6 = 1\ncall 8\nr0 += r6\nexit");
    program.linkage = linkage(&[]);
    assert_eq!(program.run_in(0, 0, &mut RunEnv { cpu: 41, ..RunEnv::default() }), 42);
    program.linkage.inline_linux_helpers = false;
    assert_eq!(program.run_in(0, 0, &mut RunEnv { cpu: 41, ..RunEnv::default() }), 0xdead + 1);
}

#[test]
fn maps_are_their_handles_and_values_their_addresses() {
    static HERE: u64 = 0;
    let here = &raw const HERE as u64;
    for address in [0x1234, 0xffff_fff0, 0x1_0000_0000, 0x7fff_ffff_f000, here] {
        let mut program = Program::new("r0 = map[1] ll\nexit");
        let link = MapLink {
            handle: address,
            value_base: Some(address + 1),
            inline: None,
            programs: None,
            arena: None,
        };
        program.linkage.maps = vec![MapLink::default(), link];
        assert_eq!(program.run(0, 0), address);
        let mut program = Program::new("r0 = map_value[1]+16 ll\nexit");
        program.linkage.maps = vec![MapLink::default(), link];
        assert_eq!(program.run(0, 0), address + 17);
    }
}
