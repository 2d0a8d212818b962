//! Facts of a proof that compilers use.

use crate::common::{accepted, kind, maps, program};
use skep_abi::{MapDef, MapKind};
use skep_verifier::{CallFact, Config, Unverified, verify};

/// A look-up in map 5, an array of 16 elements, with the key that `key` leaves in `r6`.
fn lookup(key: &str) -> CallFact {
    let text = format!(
        "r6 = *(u32 *)(r1 + 12)
         {key}
         *(u32 *)(r10 - 4) = r6
         r2 = r10
         r2 += -4
         r1 = map[5] ll
         call 1
         r0 = 0
         exit"
    );
    let mut unverified = program(kind("xdp"), &text);
    unverified.maps = maps();
    let verified =
        verify(unverified, &Config::default()).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
    verified.facts().iter().find_map(|fact| fact.call).expect("a call")
}

#[test]
fn a_key_that_is_always_an_index_is_a_fact() {
    assert!(lookup("r6 &= 15").in_bounds);
    assert!(lookup("if r6 > 15 goto +6").in_bounds);
    assert!(lookup("r6 = 15").in_bounds);
    assert!(!lookup("r6 &= 31").in_bounds);
    assert!(!lookup("r6 = 16").in_bounds);
    assert!(!lookup("").in_bounds);
    // On one path of two.
    assert!(!lookup("if r6 > 5 goto +1\nr6 = 3").in_bounds);
}

/// The slots of loads that find in the stack what is known to be there.
fn reloads(text: &str) -> Vec<usize> {
    let verified = accepted("xdp", text);
    (0..verified.facts().len()).filter(|&slot| verified.facts()[slot].reload).collect()
}

#[test]
fn loads_of_what_is_known_to_be_in_the_stack_are_facts() {
    // A pointer, and a number with bounds.
    assert_eq!(reloads("*(u64 *)(r10 - 8) = r1\nr1 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r1 + 12)\nexit"), [1]);
    let bounded = "r2 = *(u32 *)(r1 + 12)\nr2 &= 7\n*(u64 *)(r10 - 8) = r2\nr0 = *(u64 *)(r10 - 8)\nexit";
    assert_eq!(reloads(bounded), [3]);
    assert_eq!(reloads("*(u64 *)(r10 - 8) = 5\nr0 = *(u64 *)(r10 - 8)\nexit"), [1]);
    // Through another register, on one path of two.
    let copy = "r2 = r10\nr2 += -8\nr3 = *(u32 *)(r1 + 12)\n*(u64 *)(r2 + 0) = r1\nif r3 == 0 goto +1\nr2 = r10\nr0 = 0\nif \
                r3 != 0 goto +1\nr1 = *(u64 *)(r2 + 0)\nexit";
    assert_eq!(reloads(copy), [8]);
    // Not from the stack.
    assert_eq!(reloads("r0 = *(u32 *)(r1 + 12)\nexit"), []);
}

#[test]
fn one_call_with_two_maps_has_no_bounds() {
    let text = "r6 = *(u32 *)(r1 + 12)
                *(u32 *)(r10 - 4) = 0
                r2 = r10
                r2 += -4
                r1 = map[5] ll
                if r6 == 0 goto +2
                r1 = map[1] ll
                call 1
                r0 = 0
                exit";
    let mut unverified = program(kind("xdp"), text);
    unverified.maps = maps();
    let verified = verify(unverified, &Config::default()).expect("it is safe");
    let fact = verified.facts().iter().find_map(|fact| fact.call).expect("a call");
    assert_eq!(fact, CallFact { map: None, key: Some(0), in_bounds: false });
}

/// The slots of 32-bit operations whose result needs no zero-extension.
fn narrow(text: &str) -> Vec<usize> {
    let verified = accepted("raw", text);
    let slots = verified.without_extension().into_iter().enumerate();
    slots.filter_map(|(slot, dead)| dead.then_some(slot)).collect()
}

#[test]
fn unread_upper_halves_need_no_extension() {
    let start = "r6 = *(u64 *)(r1 + 0)\n";
    let of = |text: &str| narrow(&format!("{start}{text}"));
    assert_eq!(of("w6 += 1\nr0 = r6\nexit"), [] as [usize; 0], "the result is read whole");
    assert_eq!(of("w6 += 1\n*(u32 *)(r1 + 0) = r6\nr0 = 0\nexit"), [1]);
    assert_eq!(of("w6 += 1\n*(u64 *)(r1 + 0) = r6\nr0 = 0\nexit"), [] as [usize; 0]);
    assert_eq!(of("w6 += 1\nw6 *= 3\nr0 = r6\nexit"), [1], "the second one clears it");
    assert_eq!(of("w6 += 1\nr6 >>= 4\nr0 = 0\nw0 = w6\nexit"), [] as [usize; 0], "bits come down");
    assert_eq!(of("w6 += 1\nr6 += 4\nw0 = w6\nexit"), [1], "an addition carries upwards alone");
    assert_eq!(of("w6 += 1\nif w6 > 4 goto +0\nr0 = 0\nexit"), [1]);
    assert_eq!(of("w6 += 1\nif r6 > 4 goto +0\nr0 = 0\nexit"), [] as [usize; 0]);
    // In a loop, the next iteration reads it.
    assert_eq!(
        of("r7 = 0\nw6 += 1\nr7 += 1\nif r7 < 3 goto -3\nr0 = 0\nexit"),
        [2],
        "the loop reads the lower half alone"
    );
    assert_eq!(
        of("r7 = 0\nr8 = r6\nr8 >>= 1\nw6 += 1\nr7 += 1\nif r7 < 3 goto -5\nr0 = 0\nexit"),
        [] as [usize; 0]
    );
}

/// A program of type tc that may use the arena at index 0.
fn with_arena(text: &str) -> Unverified {
    let mut unverified = program(kind("tc"), &format!("r9 = map[0] ll\n{text}"));
    unverified.maps = [MapDef::new("ar", MapKind::Arena, 0, 0, 10)].into();
    unverified
}

#[test]
fn accesses_to_an_arena_are_facts() {
    let text = "r1 = 64
                r1 = addr_space_cast(r1, 0x0, 0x1)
                r2 = *(u64 *)(r1 + 0)
                *(u32 *)(r1 + 8) = r2
                lock *(u64 *)(r1 + 16) += r2
                *(u64 *)(r10 - 8) = r2
                r0 = 0
                exit";
    let verified = verify(with_arena(text), &Config::default()).expect("it is safe");
    let slots: Vec<_> =
        (0..).zip(verified.facts()).filter(|(_, fact)| fact.arena).map(|(at, _)| at).collect();
    assert_eq!(slots, [4, 5, 6]);
}

#[test]
fn one_instruction_accesses_an_arena_or_other_memory() {
    let text = "call 7
                r1 = addr_space_cast(r0, 0x0, 0x1)
                *(u64 *)(r10 - 8) = 0
                if r0 == 0 goto +2
                r1 = r10
                r1 += -8
                r2 = *(u64 *)(r1 + 0)
                r0 = 0
                exit";
    let refusal = verify(with_arena(text), &Config::default()).expect_err("two kinds");
    assert!(refusal.reason.contains("an arena on one path and other memory on another"), "{refusal}");
}
