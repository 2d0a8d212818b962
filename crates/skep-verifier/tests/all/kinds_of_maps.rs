//! Maps of all kinds as arguments, the results of look-ups in them, and constants.

use crate::common::{accepted, refused};
use skep_verifier::Code;

/// Looks up key 0 in a map; r0 is the element or null.
fn lookup(map: u32) -> String {
    format!("*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[{map}] ll\ncall 1\n")
}

const END: &str = "r0 = 0\nexit\n";

#[test]
fn a_map_of_maps_holds_maps_like_its_template() {
    let text = |use_: &str| {
        format!(
            "{}if r0 == 0 goto out\nr1 = r0\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto out\n{use_}\nout: {END}",
            lookup(19)
        )
    };
    accepted("xdp", &text("*(u64 *)(r0 + 0) = 1"));
    refused("xdp", &text("*(u64 *)(r0 + 1) = 1"), Code::OutOfBounds, "8-byte value of the map tables.inner");
    let unchecked = text("").replacen("if r0 == 0 goto out\n", "", 1);
    refused("xdp", &unchecked, Code::MaybeNull, "may be null");
    // The found map is not memory.
    let text = format!("{}if r0 == 0 goto out\nr1 = *(u64 *)(r0 + 0)\nout: {END}", lookup(19));
    refused("xdp", &text, Code::OutOfBounds, "pointer to memory");
    refused("xdp", &text.replace("r1 = *(u64 *)(r0 + 0)", "r0 += 8"), Code::PointerArithmetic, "map_ptr");
    // Programs may not replace inner maps.
    let text =
        "*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr3 = r2\nr4 = 0\nr1 = map[19] ll\ncall 2\nr0 = 0\nexit";
    refused("xdp", text, Code::Argument, "does not work on the map tables, which is a hash_of_maps");
}

#[test]
fn nothing_but_0_is_added_to_the_address_of_a_map() {
    let text = |number: u32| lookup(0).replace("call 1", &format!("r3 = {number}\nr1 += r3\ncall 1")) + END;
    accepted("xdp", &text(0));
    refused("xdp", &text(8), Code::PointerArithmetic, "map");
    refused("xdp", &text(0).replace("r1 += r3", "r1 -= r3"), Code::PointerArithmetic, "map");
}

#[test]
fn inner_maps_are_no_facts() {
    let text = format!("{}if r0 == 0 goto out\nr1 = r0\nr2 = r10\nr2 += -4\ncall 1\nout: {END}", lookup(10));
    let verified = accepted("xdp", &text);
    let facts: Vec<_> = verified.facts().iter().filter_map(|fact| fact.call).collect();
    assert_eq!(facts.len(), 2);
    assert_eq!(facts[0].map, Some(10));
    assert_eq!((facts[1].map, facts[1].key), (None, None));
}

#[test]
fn queues_and_filters_have_values_without_keys() {
    let with = |map: u32, call: u32, before: &str| {
        format!("{before}r2 = r10\nr2 += -8\nr1 = map[{map}] ll\nr3 = 0\ncall {call}\n")
    };
    let written = "*(u64 *)(r10 - 8) = 7\n";
    accepted("xdp", &format!("{}{END}", with(11, 87, written)));
    let left = "*(u64 *)(r10 - 8) = r1\n*(u8 *)(r10 - 8) = 0\n";
    refused("xdp", &format!("{}{END}", with(11, 87, left)), Code::Uninitialised, "stack bytes");
    for call in [88, 89] {
        accepted("xdp", &format!("{}r0 = *(u64 *)(r10 - 8)\nexit", with(11, call, "")));
    }
    accepted("xdp", &format!("{}{END}", with(12, 89, written)));
    // A queue writes a value to memory; a filter reads the value to look for.
    refused("xdp", &format!("{}{END}", with(12, 89, left)), Code::Uninitialised, "stack bytes");
    refused("xdp", &format!("{}{END}", with(12, 88, written)), Code::Argument, "bloom_filter");
    refused("xdp", &format!("{}{END}", with(0, 88, written)), Code::Argument, "which is a hash");
    refused("xdp", &format!("{}{END}", lookup(11)), Code::Argument, "which is a queue");
}

#[test]
fn look_ups_in_maps_of_host_objects_return_them() {
    // An XDP socket needs no release, a socket does.
    accepted("xdp", &format!("{}{END}", lookup(13)));
    refused("xdp", &format!("{}{END}", lookup(14)), Code::Resource, "the object acquired");
    accepted("xdp", &format!("{}if r0 == 0 goto out\nr1 = r0\ncall 86\nout: {END}", lookup(14)));
    // The entry of a device cannot be looked up as memory.
    accepted("xdp", &format!("{}if r0 == 0 goto out\nr0 = *(u32 *)(r0 + 0)\nout: {END}", lookup(15)));
    let text = format!("{}if r0 == 0 goto out\n*(u32 *)(r0 + 0) = 1\nout: {END}", lookup(15));
    refused("xdp", &text, Code::ReadOnly, "devices");
    accepted("xdp", &format!("r1 = map[15] ll\nr2 = 0\nr3 = 0\ncall 51\n{END}"));
    refused(
        "xdp",
        &format!("r1 = map[0] ll\nr2 = 0\nr3 = 0\ncall 51\n{END}"),
        Code::Argument,
        "redirect_map",
    );
}

#[test]
fn storage_maps_return_the_value_of_an_object() {
    let text = |socket: &str, value: &str| {
        format!(
            "{}if r0 == 0 goto out\nr6 = r0\nr1 = map[17] ll\nr2 = {socket}\nr3 = {value}\nr4 = 1\ncall 107\n\
             if r0 == 0 goto done\n*(u64 *)(r0 + 0) = 1\ndone: r1 = r6\ncall 86\nout: {END}",
            lookup(14)
        )
    };
    accepted("tc", &text("r6", "0"));
    refused("tc", &text("r10", "0"), Code::Argument, "sock_common or sock");
    refused("tc", &text("r6", "1"), Code::Argument, "expects memory in r3");
    let memory = text("r6", "r10").replace("r3 = r10", "*(u64 *)(r10 - 16) = 0\nr3 = r10\nr3 += -16");
    accepted("tc", &memory);
    refused(
        "tc",
        &memory.replace("*(u64 *)(r10 - 16) = 0\n", "*(u64 *)(r10 - 16) = r6\n"),
        Code::PointerLeak,
        "",
    );
    refused("tc", &text("r6", "0").replace("if r0 == 0 goto done\n", ""), Code::MaybeNull, "may be null");
}

#[test]
fn values_of_another_cpu_need_a_per_cpu_map() {
    let text = lookup(5).replace("call 1\n", "r3 = 1\ncall 195\n");
    let use_ = "if r0 == 0 goto out\n*(u64 *)(r0 + 0) = 1\nout: ";
    accepted("xdp", &format!("{text}{use_}{END}"));
    refused("xdp", &format!("{}{END}", text.replace("map[5]", "map[0]")), Code::Argument, "percpu");
}

#[test]
fn constants_are_known_numbers() {
    // "skep\0" and the numbers 1 to 11.
    let text = |size: &str, at: u32| {
        format!("r2 = map_value[16]+{at} ll\nr3 = *({size} *)(r2 + 0)\nr1 += r3\nr0 = *(u8 *)(r1 + 0)\nexit")
    };
    accepted("raw", &text("u8", 5));
    accepted("raw", &text("s8", 15));
    refused("raw", &text("u8", 0), Code::OutOfBounds, "bytes 115..116");
    refused("raw", &text("u16", 5), Code::OutOfBounds, "bytes 513..514");
    // At an unknown offset, or in a map that is not constant, the value is unknown.
    let unknown = "r4 = *(u8 *)(r1 + 0)\nr4 &= 1\nr2 = map_value[16]+5 ll\nr2 += r4\nr3 = *(u8 *)(r2 + 0)\nr1 += r3\n\
                   r0 = *(u8 *)(r1 + 0)\nexit";
    refused("raw", unknown, Code::OutOfBounds, "0..=255");
    refused("raw", &text("u8", 5).replace("map_value[16]", "map_value[2]"), Code::OutOfBounds, "0..=255");
    // A branch that a constant excludes is not walked.
    accepted(
        "xdp",
        "r2 = map_value[16]+5 ll\nr3 = *(u8 *)(r2 + 0)\nif r3 == 1 goto out\ncall 4\nout: r0 = 0\nexit",
    );
}

#[test]
fn constant_strings_are_found_in_constant_memory() {
    let text = |string: &str| {
        format!("*(u64 *)(r10 - 8) = 0\nr1 = r10\nr1 += -8\nr2 = 8\nr3 = {string}\ncall 182\nr0 = 0\nexit")
    };
    accepted("tc", &text("map_value[16] ll"));
    refused("tc", &text("map_value[16]+6 ll"), Code::Argument, "no zero byte terminates it");
    refused("tc", &text("map_value[2] ll"), Code::Argument, "may change");
    refused("tc", &text("map_value[1] ll"), Code::Argument, "the contents of the map bss may change");
    refused("tc", &text("r10"), Code::Argument, "it is not a value of a read-only map");
    let unknown = text("map_value[16] ll").replace("call 182", "r4 = *(u64 *)(r10 - 8)\ncall 7\ncall 182");
    refused("tc", &unknown, Code::Uninitialised, "");
}

#[test]
fn memory_arguments_match_their_sizes() {
    // snprintf(buffer, size, format, data, size): both may be null with size 0.
    let text = |buffer: &str, size: u32, data: &str, bytes: u32| {
        format!(
            "*(u64 *)(r10 - 8) = 0\nr1 = {buffer}\nr2 = {size}\nr3 = map_value[16] ll\nr4 = {data}\nr5 = {bytes}\ncall 165\n{END}"
        )
    };
    accepted("tc", &text("0", 0, "0", 0));
    refused("tc", &text("0", 8, "0", 0), Code::Argument, "null in r1 with a size that is not 0");
    refused("tc", &text("0", 0, "0", 8), Code::Argument, "null in r4 with a size that is not 0");
    accepted("tc", &text("r10\nr1 += -32", 32, "r10\nr4 += -8", 8));
    refused("tc", &text("r10\nr1 += -32", 33, "r10\nr4 += -8", 8), Code::OutOfBounds, "stack");
    accepted("tc", &text("r10\nr1 += -32", 32, "r10\nr4 += -16", 16));
    refused("tc", &text("1", 1, "0", 0), Code::Argument, "memory in r1");
    // If only a part is surely filled, only that part is initialised afterwards.
    let text = |read: &str| {
        format!(
            "r6 = *(u32 *)(r1 + 0)\nr6 &= 7\nr1 = r10\nr1 += -16\nr2 = r6\nr3 = map_value[16] ll\nr4 = 0\nr5 = 0\ncall 165\n{read}\n{END}"
        )
    };
    accepted("tc", &text(""));
    assert!(!accepted("tc", &text("")).functions()[0].zeroed);
    assert!(accepted("tc", &text("r0 = *(u8 *)(r10 - 16)")).functions()[0].zeroed);
}

#[test]
fn results_in_memory_of_the_program_are_initialised() {
    let text = |place: &str, read: &str| {
        format!(
            "*(u64 *)(r10 - 8) = 0x37\nr1 = r10\nr1 += -8\nr2 = 8\nr3 = 10\nr4 = r10\nr4 += {place}\ncall 105\n{read}\nr0 = 0\nexit"
        )
    };
    accepted("tc", &text("-16", "r1 = *(u64 *)(r10 - 16)"));
    assert!(accepted("tc", &text("-24", "r1 = *(u64 *)(r10 - 16)")).functions()[0].zeroed);
    refused("tc", &text("-4", ""), Code::OutOfBounds, "bytes -4..4");
}
