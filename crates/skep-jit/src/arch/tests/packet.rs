//! Legacy packet loads.

use skep_abi::SkbContext;

use super::Program;

/// A program's result for a packet of the bytes 0 to 59.
fn on_packet(text: &str) -> u64 {
    let bytes: Vec<u8> = (0..60).collect();
    let data = bytes.as_ptr().expose_provenance() as u64;
    let skb = SkbContext { data, data_end: data + 60, data_meta: data, network: 14, ..SkbContext::default() };
    let mut program = Program::new(text);
    program.socket_buffer = true;
    program.run((&raw const skb).expose_provenance() as u64, 0)
}

#[test]
fn packet_bytes_are_loaded_in_network_order() {
    let load = |load: &str| on_packet(&format!("r6 = r1\nr7 = 7\nr2 = -3\nr0 = {load}\nexit"));
    assert_eq!(load("*(u8 *)skb[5]"), 5);
    assert_eq!(load("*(u16 *)skb[12]"), 0x0c0d);
    assert_eq!(load("*(u32 *)skb[56]"), 0x3839_3a3b);
    assert_eq!(load("*(u16 *)skb[r7 + 10]"), 0x1112);
    assert_eq!(load("*(u16 *)skb[r2 + 10]"), 0x0708);
    assert_eq!(load("*(u32 *)skb[-0x100000]"), 0x0e0f_1011);
    assert_eq!(load("*(u8 *)skb[-0x1ffffd]"), 3);
}

#[test]
fn a_load_beyond_the_packet_ends_the_function_with_0() {
    for (load, expected) in [
        ("*(u32 *)skb[56]", 9),
        ("*(u32 *)skb[57]", 0),
        ("*(u8 *)skb[-1]", 0),
        ("*(u16 *)skb[r7 + 0]", 9),
        ("*(u16 *)skb[r7 + 1]", 0),
        ("*(u16 *)skb[r7 + 0x7fffffff]", 0),
    ] {
        assert_eq!(on_packet(&format!("r6 = r1\nr7 = 58\nr0 = {load}\nr0 = 9\nexit")), expected, "{load}");
        let called = format!(
            "r9 = 5\ncall f\nr0 += r9\nexit
          f: r6 = r1\nr7 = 58\nr9 = 6\n*(u64 *)(r10 - 8) = r9\nr0 = {load}\nr0 = *(u64 *)(r10 - 8)\nr0 += 3\nexit"
        );
        assert_eq!(on_packet(&called), expected + 5, "{load}");
    }
}

#[test]
fn loaded_packet_bytes_reach_every_use() {
    let text = "r6 = r1
        r8 = 0
        r9 = 0
  next: r0 = *(u8 *)skb[r8 + 0]
        r9 += r0
        r8 += 1
        if r8 < 60 goto next
        r0 = *(u8 *)skb[1]
        if r0 != 1 goto out
        r0 += r9
   out: exit";
    assert_eq!(on_packet(text), (0..60).sum::<u64>() + 1);
}
