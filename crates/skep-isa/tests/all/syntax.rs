//! The syntax, form by form: a text, its bytes, and the text that they print as.

use skep_isa::{Insn, Symbol, assemble, disassemble, encode_bytes};

/// Text as printed, and the slots' bytes in hexadecimal, written down by hand from RFC 9669; for load-acquire,
/// store-release and `may_goto`, from the constants in Linux's `bpf.h`.
const FORMS: &[(&str, &str)] = &[
    ("r1 = 0x5", "b7 01 0000 05000000"),
    ("w1 = -0x5", "b4 01 0000 fbffffff"),
    ("r1 = r2", "bf 21 0000 00000000"),
    ("w1 = w2", "bc 21 0000 00000000"),
    ("r1 += r2", "0f 21 0000 00000000"),
    ("r1 -= 0x1", "17 01 0000 01000000"),
    ("w1 *= w2", "2c 21 0000 00000000"),
    ("r1 /= r2", "3f 21 0000 00000000"),
    ("r1 s/= r2", "3f 21 0100 00000000"),
    ("w1 s%= 0x3", "94 01 0100 03000000"),
    ("r1 %= r2", "9f 21 0000 00000000"),
    ("r1 |= 0x1", "47 01 0000 01000000"),
    ("r1 &= r10", "5f a1 0000 00000000"),
    ("r1 ^= r2", "af 21 0000 00000000"),
    ("r1 <<= 0x3", "67 01 0000 03000000"),
    ("r1 >>= r2", "7f 21 0000 00000000"),
    ("w1 s>>= w2", "cc 21 0000 00000000"),
    ("r1 = -r1", "87 01 0000 00000000"),
    ("w1 = -w1", "84 01 0000 00000000"),
    ("r1 = addr_space_cast(r2, 0x0, 0x1)", "bf 21 0100 01000000"),
    ("r3 = addr_space_cast(r10, 0x1, 0x0)", "bf a3 0100 00000100"),
    ("r1 = (s8)r2", "bf 21 0800 00000000"),
    ("w1 = (s16)w2", "bc 21 1000 00000000"),
    ("r1 = (s32)r2", "bf 21 2000 00000000"),
    ("r1 = le16 r1", "d4 01 0000 10000000"),
    ("r1 = be64 r1", "dc 01 0000 40000000"),
    ("r1 = bswap32 r1", "d7 01 0000 20000000"),
    ("r1 = 0x1122334455667788 ll", "18 01 0000 88776655 00 00 0000 44332211"),
    ("r1 = -0x1 ll", "18 01 0000 ffffffff 00 00 0000 ffffffff"),
    ("r1 = map_fd[3] ll", "18 11 0000 03000000 00 00 0000 00000000"),
    ("r1 = map_fd_value[3]+0x10 ll", "18 21 0000 03000000 00 00 0000 10000000"),
    ("r1 = var[7] ll", "18 31 0000 07000000 00 00 0000 00000000"),
    ("r1 = var[7, 1] ll", "18 31 0000 07000000 00 00 0000 01000000"),
    ("r1 = func[+0x5] ll", "18 41 0000 05000000 00 00 0000 00000000"),
    ("r1 = map[3] ll", "18 51 0000 03000000 00 00 0000 00000000"),
    ("r1 = map_value[3]+0x10 ll", "18 61 0000 03000000 00 00 0000 10000000"),
    ("r1 = *(u8 *)(r2 + 0x0)", "71 21 0000 00000000"),
    ("r1 = *(u64 *)(r10 - 0x8)", "79 a1 f8ff 00000000"),
    ("r1 = *(s32 *)(r2 + 0x4)", "81 21 0400 00000000"),
    ("*(u16 *)(r10 - 0x8) = r1", "6b 1a f8ff 00000000"),
    ("*(u32 *)(r10 - 0x8) = -0x1", "62 0a f8ff ffffffff"),
    ("lock *(u64 *)(r1 + 0x0) += r2", "db 21 0000 00000000"),
    ("lock *(u32 *)(r1 + 0x0) |= w2", "c3 21 0000 40000000"),
    ("r1 = atomic_fetch_and((u64 *)(r2 + 0x0), r1)", "db 12 0000 51000000"),
    ("w1 = atomic_fetch_xor((u32 *)(r2 + 0x0), w1)", "c3 12 0000 a1000000"),
    ("r1 = xchg_64(r2 + 0x8, r1)", "db 12 0800 e1000000"),
    ("w1 = xchg32_32(r2 + 0x8, w1)", "c3 12 0800 e1000000"),
    ("r0 = cmpxchg_64(r1 + 0x0, r0, r2)", "db 21 0000 f1000000"),
    ("w0 = cmpxchg32_32(r1 + 0x0, w0, w2)", "c3 21 0000 f1000000"),
    ("w1 = load_acquire((u8 *)(r2 + 0x0))", "d3 21 0000 00010000"),
    ("r1 = load_acquire((u64 *)(r2 + 0x0))", "db 21 0000 00010000"),
    ("store_release((u16 *)(r1 + 0x0), w2)", "cb 21 0000 10010000"),
    ("store_release((u64 *)(r1 + 0x0), r2)", "db 21 0000 10010000"),
    ("r0 = *(u8 *)skb[0x2a]", "30 00 0000 2a000000"),
    ("r0 = *(u32 *)skb[r3]", "40 30 0000 00000000"),
    ("r0 = *(u16 *)skb[r3 - 0x4]", "48 30 0000 fcffffff"),
    ("goto +0x5", "05 00 0500 00000000"),
    ("gotol -0x10000", "06 00 0000 0000ffff"),
    ("may_goto +0x3", "e5 00 0300 00000000"),
    ("if r1 == r2 goto -0x5", "1d 21 fbff 00000000"),
    ("if w1 & 0x5 goto +0x0", "46 01 0000 05000000"),
    ("if r1 s>= -0x1 goto +0x1", "75 01 0100 ffffffff"),
    ("call 0x1", "85 00 0000 01000000"),
    ("call -0x1", "85 00 0000 ffffffff"),
    ("call pc-0x2", "85 10 0000 feffffff"),
    ("call kfunc[1234]", "85 20 0000 d2040000"),
    ("call kfunc[1234, 1]", "85 20 0100 d2040000"),
    ("callx r3", "8d 03 0000 00000000"),
    ("exit", "95 00 0000 00000000"),
];

#[test]
fn every_form_has_its_bytes_and_prints_as_itself() {
    for (text, hex) in FORMS {
        let program = assemble(text).expect(text);
        let bytes = encode_bytes(&program).expect(text);
        let printed: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(printed, hex.replace(' ', ""), "{text}");
        assert_eq!(program[0].to_string(), *text);
    }
}

#[test]
fn the_assembler_accepts_alternative_spellings() {
    let same = [
        ("w1 = *(u32 *)(r2 + 0)", "r1 = *(u32 *)(r2 + 0x0)"),
        ("r1 = *(u32 *)(r2)", "r1 = *(u32 *)(r2 + 0x0)"),
        ("r1=*(u32*)(r2+176)", "r1 = *(u32 *)(r2 + 0xb0)"),
        ("*(u8 *)(r2 - 1) = w3", "*(u8 *)(r2 - 0x1) = r3"),
        ("r1 = load_acquire((u64 *)(r2))", "r1 = load_acquire((u64 *)(r2 + 0x0))"),
        ("call bpf_ktime_get_ns#5", "call 0x5"),
        ("call kfunc[bpf_rcu_read_lock#9]", "call kfunc[9]"),
        ("r1 = map[.rodata#3] ll", "r1 = map[3] ll"),
        ("r1 = map_value[3] ll", "r1 = map_value[3]+0x0 ll"),
        ("goto +5 <.text+0x158>", "goto +0x5"),
        ("   0: exit   // comment", "exit"),
        ("exit ; comment", "exit"),
        ("exit# comment", "exit"),
        ("exit #1 comment", "exit"),
        ("r1 = -9223372036854775808 ll", "r1 = -0x8000000000000000 ll"),
        ("r1 = 0xffffffffffffffff ll", "r1 = -0x1 ll"),
        ("call 0xffffffff", "call -0x1"),
    ];
    for (text, canonical) in same {
        assert_eq!(assemble(text).expect(text)[0].to_string(), canonical, "{text}");
    }
}

#[test]
fn labels_stand_for_distances_in_jumps_calls_and_function_addresses() {
    let program = assemble(
        "entry:
         r1 = func[callback] ll
         call helper_function
         if r0 == 0 goto out
         gotol entry
         out: exit

         helper_function: callback:
         may_goto done
         goto entry
         done: r0 = 0 ; two labels above name this function
         exit",
    )
    .expect("assembles");
    let printed: Vec<_> = program.iter().map(Insn::to_string).collect();
    let expected = [
        "r1 = func[+0x5] ll",
        "// second slot of the 64-bit immediate load",
        "call pc+0x3",
        "if r0 == 0x0 goto +0x1",
        "gotol -0x5",
        "exit",
        "may_goto +0x1",
        "goto -0x8",
        "r0 = 0x0",
        "exit",
    ];
    assert_eq!(printed, expected);
    // A list of single instructions assembles, too.
    assert_eq!(assemble(&printed.join("\n")).as_ref(), Ok(&program));
}

#[test]
fn a_listing_prints_given_names_and_assembles_again() {
    let text = "r1 = map[3] ll\nr2 = map_value[3]+8 ll\nr3 = map_fd[4] ll\nr4 = func[+3] ll\ncall 1\ncall pc+1\n\
                exit\ncall kfunc[5]\ncall kfunc[5, 1]\ncall pc+7\nexit";
    let program = assemble(text).expect("assembles");
    let names = |symbol| {
        let name = match symbol {
            Symbol::Helper(1) => "bpf_map_lookup_elem",
            Symbol::Map(3) => "flows",
            Symbol::MapFd(4) => ".rodata",
            Symbol::Kfunc { id: 5, object: 0 } => "bpf_rcu_read_lock",
            Symbol::Function(0) => "main",
            Symbol::Function(11) => "parse",
            _ => return None,
        };
        Some(name.to_owned())
    };
    let listing = disassemble(&program).names(&names).to_string();
    let expected = "main:
       0:\tr1 = map[flows#3] ll
       2:\tr2 = map_value[flows#3]+0x8 ll
       4:\tr3 = map_fd[.rodata#4] ll
       6:\tr4 = func[+0x3] ll
       8:\tcall bpf_map_lookup_elem#1
       9:\tcall parse
      10:\texit
parse:
      11:\tcall kfunc[bpf_rcu_read_lock#5]
      12:\tcall kfunc[5, 1]
      13:\tcall pc+0x7
      14:\texit
";
    assert_eq!(listing, expected);
    assert_eq!(assemble(&listing), Ok(program));
}
