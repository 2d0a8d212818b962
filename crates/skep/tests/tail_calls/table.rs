//! Named cases with their results. Each runs in the interpreter and as machine code. With a known index, machine
//! code uses patched branches and also the map's table.

use crate::kit::{BYTES, Kit, counts_and_goes_to, object, returns, run, run_on, to};
use skep::abi::{MapDef, MapKind};
use std::fmt::Write;
use std::sync::Arc;

/// Both ways to compile a call with a known index.
fn kits(entries: u32) -> [Kit; 2] {
    [Kit::new(entries), Kit::fixed(entries)]
}

/// The first eight bytes of the buffer afterwards.
fn count(program: &skep::Program) -> u64 {
    let (_, buffer) = run_on(program, &[0; BYTES]);
    u64::from_ne_bytes(buffer[..8].try_into().unwrap())
}

#[test]
fn an_empty_element_falls_through() {
    for kit in kits(4) {
        let program = kit.load("main", &format!("{}r0 = 7\nexit", to(1)));
        assert_eq!(run(&program), 7);
    }
}

#[test]
fn elements_are_filled_replaced_emptied_and_filled_again_between_runs() {
    for kit in kits(4) {
        let program = kit.load("main", &format!("{}r0 = 7\nexit", to(1)));
        kit.install(1, &returns(5));
        assert_eq!(run(&program), 5);
        let five = kit.array.set(1, &kit.load("six", &returns(6))).unwrap().unwrap();
        assert_eq!((run(&program), run(&five)), (6, 5));
        let six = kit.array.remove(1).unwrap().unwrap();
        assert_eq!((run(&program), six.name()), (7, "six"));
        assert!(kit.array.remove(1).unwrap().is_none() && kit.array.get(1).is_none());
        kit.array.set(1, &six).unwrap();
        assert_eq!((run(&program), kit.array.get(1).unwrap().name()), (6, "six"));
    }
}

#[test]
fn a_newly_loaded_program_finds_existing_elements() {
    for kit in kits(4) {
        kit.install(1, &returns(5));
        let program = kit.load("main", &format!("{}r0 = 7\nexit", to(1)));
        assert_eq!(run(&program), 5);
    }
}

#[test]
fn a_chain_has_33_calls_and_the_34th_falls_through() {
    for kit in kits(64) {
        for index in 0..40 {
            kit.install(index, &counts_and_goes_to(index + 1));
        }
        let first = kit.array.get(0).unwrap();
        assert_eq!(run_on(&first, &[0; BYTES]).0, 34, "the first, and 33 by tail calls");
        let seventh = kit.array.get(7).unwrap();
        assert_eq!(run(&seventh), 33, "the last of the chain finds nothing");
    }
}

#[test]
fn a_program_that_calls_itself_ends() {
    for kit in kits(1) {
        let ring = kit.install(0, &counts_and_goes_to(0));
        assert_eq!(run(&ring), 34);
        assert_eq!(run(&ring), 34, "each run counts for itself");
    }
}

#[test]
fn programs_that_call_each_other_end() {
    for kit in kits(2) {
        kit.install(0, &counts_and_goes_to(1));
        let other = kit.install(1, &counts_and_goes_to(0));
        assert_eq!(run(&other), 34);
    }
}

#[test]
fn an_empty_element_costs_no_count() {
    for kit in kits(2) {
        // Each iteration first makes a tail call to an empty element.
        let text = format!(
            "r6 = r1
             {}
             r1 = r6
             r4 = *(u64 *)(r1 + 0)
             r4 += 1
             *(u64 *)(r1 + 0) = r4
             {}
             r0 = *(u64 *)(r6 + 0)
             exit",
            to(1),
            to(0)
        );
        let ring = kit.install(0, &text);
        assert_eq!(run(&ring), 34);
    }
}

#[test]
fn the_index_may_be_computed_at_run_time() {
    let kit = Kit::new(4);
    let text = "r3 = *(u64 *)(r1 + 0)\nr2 = map[0] ll\ncall 12\nr0 = 99\nexit";
    let program = kit.load("main", text);
    for index in 0..3 {
        kit.install(index, &returns(10 + index as i32));
    }
    let with = |index: u64| {
        let mut buffer = [0; BYTES];
        buffer[..8].copy_from_slice(&index.to_ne_bytes());
        run_on(&program, &buffer).0
    };
    assert_eq!([0, 1, 2].map(with), [10, 11, 12]);
    assert_eq!([3, 4, 5, u32::MAX.into()].map(with), [99; 4], "empty, and beyond the end");
    assert_eq!(with(1 << 32 | 2), 12, "32 bits of it count");
    kit.array.remove(1).unwrap();
    assert_eq!([0, 1, 2].map(with), [10, 99, 12]);
}

#[test]
fn a_known_index_may_be_out_of_range() {
    for kit in kits(4) {
        let program = kit.load("main", &format!("{}r0 = 7\nexit", to(4)));
        assert_eq!(run(&program), 7);
    }
}

#[test]
fn a_program_may_use_two_arrays() {
    let kit = Kit::new(4);
    let defs = ["programs", "others"].map(|name| MapDef::new(name, MapKind::ProgArray, 4, 4, 4));
    let text = format!("r6 = r1\n{}r1 = r6\nr2 = map[1] ll\nr3 = 1\ncall 12\nr0 = 7\nexit", to(1));
    let insns = skep::isa::assemble(&text).unwrap();
    let bytes = skep::isa::encode_bytes(&insns).unwrap();
    let object =
        skep::Object::from_bytecode_and_maps("main", &skep::abi::RAW, &bytes, defs.to_vec()).unwrap();
    let linker = kit.runtime.linker(&object).buffer_len(BYTES as u32);
    let module = linker.map("programs", Arc::clone(kit.array.map())).load().unwrap();
    let (program, others) = (&module.programs()[0], module.program_array("others").unwrap());
    assert_eq!(run(program), 7);
    let two = kit.load("two", &returns(2));
    others.set(1, &two).unwrap();
    assert_eq!(run(program), 2);
    kit.install(1, &returns(1));
    assert_eq!(run(program), 1);
    kit.array.remove(1).unwrap();
    others.remove(1).unwrap();
    assert_eq!(run(program), 7);
}

#[test]
fn a_target_receives_the_buffer_and_its_length() {
    for kit in kits(1) {
        kit.install(0, "*(u64 *)(r1 + 8) = 5\nr0 = r2\nexit");
        let program = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
        let (result, buffer) = run_on(&program, &[0; BYTES]);
        assert_eq!((result, buffer[8]), (BYTES as u64, 5));
    }
}

/// A chain of functions, the last of which makes a tail call with its own stack and all registers in use. Each
/// caller keeps numbers in registers and stack over the call, and adds up the ones preserved.
fn from_depth(depth: usize, callers: u32, last: u32, index: u32) -> String {
    let mut text = String::new();
    for level in 0..=depth {
        if level > 0 {
            let _ = writeln!(text, "f{level}:");
        }
        let stack = if level == depth { last } else { callers };
        let mark = 1 + level as u64;
        for at in (8..=stack).step_by(8) {
            let _ = writeln!(text, "*(u64 *)(r10 - {at}) = {}", mark * 1000 + u64::from(at));
        }
        for reg in 6..=9 {
            let _ = writeln!(text, "r{reg} = {}", mark * 100 + reg);
        }
        if level == depth {
            text.push_str(&to(index));
            text.push_str("r0 = 0\nexit\n");
            continue;
        }
        let _ = writeln!(text, "call f{}", level + 1);
        for reg in 6..=9 {
            let _ = writeln!(text, "if r{reg} != {} goto bad{level}", mark * 100 + reg);
        }
        for at in (8..=stack).step_by(8) {
            let _ = writeln!(text, "r1 = *(u64 *)(r10 - {at})");
            let _ = writeln!(text, "if r1 != {} goto bad{level}", mark * 1000 + u64::from(at));
        }
        let _ = writeln!(text, "r0 += 1\nexit\nbad{level}:\nr0 = -1000000\nexit");
    }
    text
}

/// A target that uses as many resources as possible.
fn spoils_everything(result: i32) -> String {
    let mut text = String::new();
    for at in (8..=512).step_by(8) {
        let _ = writeln!(text, "*(u64 *)(r10 - {at}) = -1");
    }
    for reg in 6..=9 {
        let _ = writeln!(text, "r{reg} = -{reg}");
    }
    let _ = writeln!(
        text,
        "call inner\nr0 = {result}\nexit\ninner:\nr6 = 5\nr7 = 6\nr8 = 7\nr9 = 8\nr0 = 0\nexit"
    );
    text
}

#[test]
fn a_tail_call_in_a_subprogram_returns_to_its_caller() {
    for kit in kits(1) {
        for depth in 0..=7 {
            // Callers of a function that makes tail calls may use less than 256 bytes of stack.
            let callers = if depth == 0 { 0 } else { 240 / depth as u32 / 16 * 16 };
            for (callers, last) in [(0, 0), (callers, 0), (0, 256), (callers, 256)] {
                let program = kit.load("main", &from_depth(depth, callers, last, 0));
                assert_eq!(run(&program), depth as u64, "empty, at depth {depth}");
                kit.install(0, &spoils_everything(1000));
                assert_eq!(run(&program), 1000 + depth as u64, "depth {depth}, {callers}, {last}");
                kit.array.remove(0).unwrap();
            }
        }
    }
}

#[test]
fn a_subprogram_called_twice_starts_no_new_count() {
    for kit in kits(2) {
        // Both calls enter a cycle: the first one uses up the count.
        kit.install(0, &counts_and_goes_to(0));
        let text = format!(
            "r6 = r1
             call enter
             r7 = r0
             r1 = r6
             call enter
             r0 += r7
             exit
             enter:
             {}
             r0 = 1000
             exit",
            to(0)
        );
        let program = kit.load("main", &text);
        assert_eq!(count(&program), 33);
        assert_eq!(run(&program), 33 + 1000, "the second call falls through at once");
    }
}

#[test]
fn a_tree_of_subprograms_has_one_count() {
    for kit in kits(2) {
        // A program whose subprogram calls it again, twice: without one count for all, 2^33 runs.
        let text = format!(
            "r6 = r1
             r4 = *(u64 *)(r1 + 0)
             r4 += 1
             *(u64 *)(r1 + 0) = r4
             call enter
             r1 = r6
             call enter
             r0 = 0
             exit
             enter:
             {}
             r0 = 0
             exit",
            to(0)
        );
        let program = kit.install(0, &text);
        assert_eq!(count(&program), 34);
    }
}

#[test]
fn a_subprogram_called_in_a_loop_starts_no_new_count() {
    for kit in kits(2) {
        kit.install(0, "r4 = *(u64 *)(r1 + 0)\nr4 += 1\n*(u64 *)(r1 + 0) = r4\nr0 = 1\nexit");
        let text = format!(
            "r6 = r1
             r7 = 0
             r8 = 0
             again:
             r1 = r6
             call enter
             r8 += r0
             r7 += 1
             if r7 != 50 goto again
             r0 = r8
             exit
             enter:
             {}
             r0 = 1000
             exit",
            to(0)
        );
        let program = kit.load("main", &text);
        assert_eq!(run(&program), 33 + 17 * 1000);
    }
}

#[test]
fn callbacks_and_their_callees_make_no_tail_calls() {
    let kit = Kit::new(1);
    let text = format!(
        "*(u64 *)(r10 - 8) = r1
         r1 = 3
         r2 = func[round] ll
         r3 = r10
         r3 += -8
         r4 = 0
         call 181
         r0 = 0
         exit
         round:
         r1 = *(u64 *)(r2 + 0)
         {}
         r0 = 0
         exit",
        to(0)
    );
    let error = kit.try_load("main", &text).unwrap_err().to_string();
    assert!(error.contains("a callback may not make tail calls"), "{error}");
}

#[test]
fn callbacks_between_tail_calls_keep_the_count() {
    for kit in kits(1) {
        let text = format!(
            "r6 = r1
             r4 = *(u64 *)(r1 + 0)
             r4 += 1
             *(u64 *)(r1 + 0) = r4
             r1 = 3
             r2 = func[round] ll
             r3 = 0
             r4 = 0
             call 181
             r1 = r6
             {}
             r0 = *(u64 *)(r6 + 0)
             exit
             round:
             r0 = 0
             exit",
            to(0)
        );
        let ring = kit.install(0, &text);
        assert_eq!(run(&ring), 34);
    }
}

#[test]
fn many_sites_lead_to_one_element() {
    for kit in kits(2) {
        let program = |number: i32| {
            // Two sites for one element, and one in a subprogram.
            let text = format!(
                "r6 = r1
                 r4 = *(u64 *)(r1 + 0)
                 if r4 == 1 goto one
                 if r4 == 2 goto two
                 call three
                 r0 += {number}
                 exit
                 one: {to} r0 = -1
                 exit
                 two: {to} r0 = -2
                 exit
                 three: {to} r0 = -3
                 exit",
                to = to(1)
            );
            kit.load("main", &text)
        };
        let programs: Vec<_> = (0..20).map(program).collect();
        for target in [5, 6] {
            kit.install(1, &returns(target));
            for (number, program) in programs.iter().enumerate() {
                let with = |first: u8| {
                    let mut buffer = [0; BYTES];
                    buffer[0] = first;
                    run_on(program, &buffer).0
                };
                let target = target as u64;
                assert_eq!([0, 1, 2].map(with), [target + number as u64, target, target]);
            }
        }
        kit.array.remove(1).unwrap();
        assert_eq!(run(&programs[3]), 0, "-3, and its number");
    }
}

#[test]
fn only_programs_with_the_same_contract_fit() {
    let kit = Kit::new(2);
    let def = MapDef::new("programs", MapKind::ProgArray, 4, 4, 2);
    let shorter = kit.runtime.linker(&object("shorter", &returns(1), &def)).buffer_len(8).load().unwrap();
    // The first program fixes the contract, whether it is in the array or makes tail calls through it.
    let main = kit.load("main", &format!("{}r0 = 7\nexit", to(1)));
    let error = kit.array.set(0, &shorter.programs()[0]).unwrap_err().to_string();
    assert!(error.contains("shorter") && error.contains("64 bytes") && error.contains("8 bytes"), "{error}");

    let error = kit.array.set(2, &kit.load("late", &returns(1))).unwrap_err().to_string();
    assert!(error.contains("2 elements") && error.contains("index 2 is out of range"), "{error}");

    // When nothing refers to it and no run is in it, another contract is possible.
    drop(main);
    kit.array.remove(0).unwrap();
    crate::lifetime::settled(&kit.runtime);
    assert!(kit.array.set(0, &shorter.programs()[0]).unwrap().is_none());

    let elsewhere = Kit::new(2);
    let error = kit.array.set(0, &elsewhere.load("foreign", &returns(1))).unwrap_err().to_string();
    assert!(error.contains("one runtime"), "{error}");
    let given = object("main", &returns(1), &def);
    let linker = elsewhere.runtime.linker(&given).buffer_len(64).map("programs", Arc::clone(kit.array.map()));
    let error = linker.load().unwrap_err().to_string();
    assert!(error.contains("one runtime"), "{error}");
}

#[test]
fn the_host_cannot_write_program_arrays_as_bytes() {
    let kit = Kit::new(2);
    let map = kit.array.map();
    for error in [
        map.update(&[0; 4], &[1; 4], skep::UpdateFlags::Any).unwrap_err(),
        map.delete(&[0; 4]).unwrap_err(),
        map.lookup(&[0; 4]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("holds programs"), "{error}");
    }
    assert_eq!((map.len(), map.entries().count(), kit.array.len()), (0, 0, 2));
    kit.install(1, &returns(1));
    assert_eq!(map.len(), 1);
}
