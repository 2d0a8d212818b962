//! The header that C compilers read, with clang as the judge: it compiles the header, and the types that it leaves in
//! its object are those of the header's source.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::{Command, Stdio};

use skep_btf::{Btf, Error, Kind};
use skep_testkit::{answer, skip};

use crate::system::systems;

/// What compilers do with members that C programmers rarely write.
const ODD: &str = r"
enum small { S_A, S_B = 200 } __attribute__((mode(byte)));
enum negative { N_A = -5, N_B = 7 };
enum wide { W_A = 1ULL << 40, W_B = 3 };
struct bits { unsigned int a : 3; unsigned int : 5; unsigned int b : 9; int c : 20; long long d : 40; char e; int f : 4; };
struct packed_bits { unsigned char a : 7; unsigned int b : 30; unsigned short c; } __attribute__((packed));
struct tail { long long a; char b; } __attribute__((aligned(32)));
struct odd { char a; int b; short c; } __attribute__((packed));
struct hole { char a; struct tail t; struct odd o; long double_hole[0]; };
struct late { char a; int b __attribute__((aligned(64))); };
union either { char bytes[13]; int number; struct { short low, high; }; };
union longer { char a; } __attribute__((aligned(16)));
struct next; typedef struct next next_t;
struct next { next_t *next; struct { int x; union { int y; long long z; }; } in; enum { IN_A = 4, IN_B } kind; };
typedef int (*call_t)(struct next *, const char *name, ...);
typedef struct { int counter; } atomic;
struct functions { call_t calls[3]; void (*none)(void); int (*(*twice)(int))[4]; const char *const *names; };
struct flexible { int len; atomic count; volatile long last; char data[]; };
typedef unsigned __int128 big_t;
struct wide_numbers { big_t big; _Bool yes; double real; enum small small; enum negative negative; enum wide wide; };
struct empty {};
struct self { struct self *me; struct peer *peer; struct empty nothing; };
struct peer { struct self self[2]; };

struct bits u1; struct packed_bits u2; struct hole u3; struct late u4; union either u5; union longer u6; struct next u7;
struct functions u8; struct flexible u9; struct wide_numbers u10; struct peer u11;
";

/// Compiles to an object with types; `None` if there is no clang and tests may be skipped.
fn compiled(what: &str, source: &str) -> Option<Btf> {
    let clang = ["clang-19", "clang"];
    let place = std::env::temp_dir().join(format!("skep-c-header-{}-{what}.o", std::process::id()));
    let object = place.to_str().unwrap();
    let arguments = [
        "-x",
        "c",
        "-O1",
        "-g",
        "-target",
        "bpf",
        "-Wall",
        "-Wno-unused",
        "-Wno-visibility",
        "-c",
        "-o",
        object,
        "-",
    ];
    answer(what, &clang, &arguments, source)?;
    let bytes = std::fs::read(&place).unwrap();
    std::fs::remove_file(&place).unwrap();
    Some(Btf::parse(bytes).unwrap())
}

/// Each structure and union by its name: its size, and its members' names, offsets, widths and types.
fn structures(btf: &Btf) -> BTreeMap<String, (u32, Vec<String>)> {
    let composites = btf.own_types().filter(|ty| ty.kind.is_composite() && !ty.is_anonymous());
    composites
        .map(|ty| {
            let mut members = Vec::new();
            flat(btf, ty.id, 0, &mut members);
            (ty.name().unwrap().to_owned(), (ty.size().unwrap(), members))
        })
        .collect()
}

/// The members, and those of members without a name; padding is left out.
fn flat(btf: &Btf, id: u32, start: u32, into: &mut Vec<String>) {
    for member in btf.members(id).unwrap() {
        let (name, at) = (member.name().unwrap(), start + member.bit_offset);
        if name.is_empty() && btf.resolve(member.ty).unwrap().kind.is_composite() {
            flat(btf, member.ty, at, into);
        } else if !name.is_empty() && !name.starts_with("__padding_") {
            let ty = btf.type_name(member.ty).unwrap();
            into.push(format!("{name} at {at}, {} bits, {ty}", member.bits));
        }
    }
}

/// A source that uses all structures of a header, since clang leaves out what nothing uses.
fn user(header: &str, btf: &Btf) -> String {
    let mut source = header.to_owned();
    for (index, ty) in btf.own_types().filter(|ty| ty.kind.is_composite() && !ty.is_anonymous()).enumerate() {
        let word = if ty.kind == Kind::Union { "union" } else { "struct" };
        writeln!(source, "{word} {} *use_{index};", ty.name().unwrap()).unwrap();
    }
    source
}

#[track_caller]
fn survives_clang(what: &str, btf: &Btf) {
    let header = btf.c_header().unwrap();
    let Some(back) = compiled(what, &user(&header, btf)) else { return };
    let (expected, found) = (structures(btf), structures(&back));
    for (name, layout) in &expected {
        assert_eq!(found.get(name), Some(layout), "{name} in\n{header:.20000}");
    }
}

#[test]
fn odd_structures_keep_their_sizes_and_members() {
    let Some(btf) = compiled("odd", ODD) else { return };
    survives_clang("odd-again", &btf);
    let header = btf.c_header().unwrap();
    for line in ["S_B = 200,", "N_A = -5,", "W_A = 1099511627776ULL,", "IN_A = 4,"] {
        assert!(header.contains(line), "{line} in {header}");
    }
}

#[test]
fn our_examples_keep_their_sizes_and_members() {
    for name in ["firewall", "flows", "dissector", "balancer", "contacts"] {
        let path = format!("{}/../../examples/{name}.bpf.o", env!("CARGO_MANIFEST_DIR"));
        survives_clang(name, &Btf::parse(std::fs::read(path).unwrap()).unwrap());
    }
}

/// A kernel has structures of the same name: only the header itself is compiled.
#[test]
fn headers_of_whole_systems_compile() {
    for (index, bytes) in systems().into_iter().enumerate() {
        let header = Btf::parse(bytes).unwrap().c_header().unwrap();
        assert!(header.contains("struct task_struct {\n"));
        let what = format!("system-{index}");
        if compiled(&what, &format!("{header}\nstruct task_struct *task;\n")).is_none() {
            return;
        }
    }
}

/// bpftool is asked about sizes: its header of the same types, compiled, has the same structures.
#[test]
fn structures_are_those_of_bpftools_header() {
    let path = format!("{}/../../examples/dissector.bpf.o", env!("CARGO_MANIFEST_DIR"));
    let btf = Btf::parse(std::fs::read(&path).unwrap()).unwrap();
    let mut bpftool = Command::new("bpftool");
    bpftool.args(["btf", "dump", "file", &path, "format", "c"]).stderr(Stdio::null());
    let Ok(output) = bpftool.output() else { return skip("bpftool's header", "bpftool not found") };
    let theirs = String::from_utf8(output.stdout).unwrap();
    let Some(theirs) = compiled("bpftools", &user(&theirs, &btf)) else { return };
    let Some(ours) = compiled("ours", &user(&btf.c_header().unwrap(), &btf)) else { return };
    assert_eq!(structures(&ours), structures(&theirs));
}

/// Types by hand: a count of members, and for each its name, type and offset in bits.
struct Hand {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Hand {
    fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0] }
    }

    fn name(&mut self, name: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend([name.as_bytes(), &[0]].concat());
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn structure(&mut self, name: u32, size: u32, members: &[[u32; 3]]) {
        self.words(&[name, 4 << 24 | members.len() as u32, size]);
        self.words(&members.concat());
    }

    fn parse(&self) -> Btf {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let lengths = [24, 0, self.types.len() as u32, self.types.len() as u32, self.strings.len() as u32];
        bytes.extend(lengths.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        Btf::parse(bytes).unwrap()
    }
}

#[test]
fn names_that_c_lacks_are_replaced_and_doubles_become_flavours() {
    let mut hand = Hand::new();
    let (int, generic, double, keyword) =
        (hand.name("u32"), hand.name("Option<u32>"), hand.name("double_"), hand.name("while"));
    hand.words(&[int, 1 << 24, 4, 32]);
    hand.structure(generic, 4, &[[keyword, 1, 0]]);
    hand.structure(double, 4, &[[int, 1, 0]]);
    hand.structure(double, 8, &[[int, 1, 32]]);
    let header = hand.parse().c_header().unwrap();
    assert!(header.contains("struct Option_u32_ {\n\tunsigned int while_;\n};"), "{header}");
    assert!(header.contains("struct double_ {") && header.contains("struct double____2 {"), "{header}");
    compiled("names", &format!("{header}\nstruct Option_u32_ used;\n"));
}

#[test]
fn members_that_overlap_are_written_as_bytes() {
    let mut hand = Hand::new();
    let (int, name) = (hand.name("int"), hand.name("overlap"));
    hand.words(&[int, 1 << 24, 4, 32 | 1 << 24]);
    hand.structure(name, 8, &[[int, 1, 0], [name, 1, 16]]);
    let header = hand.parse().c_header().unwrap();
    assert!(header.contains("struct overlap {\n\tunsigned char __bytes[8];\n};"), "{header}");
}

#[test]
fn a_structure_within_itself_is_refused() {
    let mut hand = Hand::new();
    let name = hand.name("itself");
    hand.structure(name, 8, &[[name, 1, 0]]);
    assert_eq!(hand.parse().c_header(), Err(Error::Endless { id: 1 }));
}

/// Each structure has the one before it twice: 2^24 members, were all of them written.
#[test]
fn types_without_names_that_double_at_each_step_are_refused() {
    let mut hand = Hand::new();
    let (int, name) = (hand.name("int"), hand.name("top"));
    hand.words(&[int, 1 << 24, 4, 32 | 1 << 24]);
    for id in 1..24 {
        // Sizes are made up: no more than 32 bits.
        hand.structure(0, 0, &[[int, id, 0], [name, id, 0]]);
    }
    hand.structure(name, 0, &[[int, 24, 0]]);
    assert!(matches!(hand.parse().c_header(), Err(Error::Expands { .. })));
}
