//! Types made by hand: look-ups by id, by name, and by offset.

use std::sync::Arc;

use crate::support::Types;
use skep_btf::{Btf, DeclTag, Error, Fault, Kind, Linkage, What};

fn parse(types: &Types) -> Btf {
    Btf::parse(types.build()).unwrap()
}

#[test]
fn types_are_found_by_name_and_kind() {
    let mut types = Types::new();
    let int = types.int("int", 4);
    let one = types.structure("pair", &[("a", int), ("b", int)]);
    let name = types.typedef("pair", one);
    let flavour = types.structure("pair___old", &[("a", int)]);
    let second = types.structure("pair", &[]);
    let btf = parse(&types);
    assert_eq!(btf.find("pair", Kind::Struct), Some(one));
    assert_eq!(btf.find("pair", Kind::Typedef), Some(name));
    assert_eq!(btf.find("pair___old", Kind::Struct), Some(flavour));
    assert_eq!(btf.find("pair", Kind::Union), None);
    assert_eq!(btf.find("pai", Kind::Struct), None);
    let flavours: Vec<_> = btf.flavours("pair___new").map(|ty| ty.id).collect();
    assert_eq!(flavours, [one, name, flavour, second]);
}

#[test]
fn functions_have_their_parameters_and_tags() {
    let mut types = Types::new();
    let int = types.signed("int", 4);
    let pointer = types.pointer(int);
    let function = types.function("f", 1, int, &[("p", pointer), ("", 0)]);
    types.add("arg:nonnull", 17, 0, function, &[0]);
    types.add("bpf_kfunc", 17, 0, function, &[u32::MAX]);
    types.add("an attribute", 17, 1 << 31, function, &[u32::MAX]);
    let behind = types.pointer(function - 1);
    let named = types.typedef("btf_trace_f", behind);
    let btf = parse(&types);
    let prototype = btf.prototype(function).unwrap();
    assert_eq!(prototype.target(), int);
    let params: Vec<_> = prototype.params().map(|param| (param.name().unwrap(), param.ty)).collect();
    assert_eq!(params, [("p", pointer), ("", 0)]);
    assert_eq!(btf.prototype(named).unwrap().id, prototype.id);
    assert_eq!(btf.prototype(int).unwrap_err(), Error::WrongKind { id: int, expected: "function" });
    assert_eq!(btf.ty(function).unwrap().linkage(), Some(Linkage::Global));
    let tags: Vec<_> = btf.decl_tags(function).collect();
    let expected =
        [DeclTag { name: "arg:nonnull", component: Some(0) }, DeclTag { name: "bpf_kfunc", component: None }];
    assert_eq!(tags, expected);
    assert_eq!(btf.decl_tags(int).count(), 0);
}

#[test]
fn values_of_signed_enumerations_are_sign_extended() {
    let mut types = Types::new();
    let signed = types.enumeration("e", &[("LESS", -1), ("MORE", 1)]);
    let unsigned = types.enumeration("f", &[("MANY", i32::MAX)]);
    let name = types.string("HUGE");
    let wide = types.add("g", 19, 1, 8, &[name, 2, 1]);
    let btf = parse(&types);
    let values = |id| -> Vec<_> {
        let ty = btf.ty(id).unwrap();
        ty.enumerators().map(|e| (e.name().unwrap(), e.value)).collect()
    };
    assert_eq!(values(signed), [("LESS", u64::MAX), ("MORE", 1)]);
    assert_eq!(values(unsigned), [("MANY", 0x7fff_ffff)]);
    assert_eq!(values(wide), [("HUGE", 0x1_0000_0002)]);
    assert!(btf.ty(signed).unwrap().is_signed() && !btf.ty(unsigned).unwrap().is_signed());
}

#[test]
fn a_pointer_has_the_tags_on_the_way_to_its_target() {
    let mut types = Types::new();
    let target = types.structure("task", &[]);
    let tagged = types.tag("rcu", target);
    let constant = types.constant(tagged);
    let outer = types.tag("user", constant);
    let attribute = types.add("unused", 18, 1 << 31, outer, &[]);
    let pointer = types.pointer(attribute);
    let named = types.typedef("task_ptr", pointer);
    let btf = parse(&types);
    let found = btf.pointer(named).unwrap().unwrap();
    assert_eq!((found.to, &*found.tags), (target, &["user", "rcu"][..]));
    assert!(found.is("rcu") && !found.is("unused"));
    assert_eq!(btf.pointer(target).unwrap(), None);
}

#[test]
fn a_file_continues_another() {
    let mut base = Types::new();
    let int = base.int("int", 4);
    let mut types = Types::after(&base);
    let count = types.typedef("count", int);
    let own = types.structure("own", &[("n", count)]);
    let base = Arc::new(parse(&base));
    let btf = Btf::parse_split(types.build(), base.clone()).unwrap();
    assert_eq!((btf.len(), own), (4, 3));
    assert_eq!(btf.find("int", Kind::Int), Some(int));
    assert_eq!(btf.find("own", Kind::Struct), Some(own));
    assert_eq!(btf.type_name(count).unwrap(), "count");
    assert_eq!((btf.resolve(count).unwrap().id, btf.size(count)), (int, Ok(4)));
    assert_eq!(btf.members(own).unwrap().next().unwrap().name(), Ok("n"));
    assert!(base.ty(own).is_err());
}

#[test]
fn modules_follow_each_other_behind_the_kernel() {
    let mut base = Types::new();
    let int = base.int("int", 4);
    let base_bytes = base.build();
    let base_btf = Arc::new(Btf::parse(base_bytes).unwrap());
    // Both begin with the same numbers; each has every kind of type that refers to others.
    let module = |prefix: &str| {
        let mut types = Types::after(&base);
        let named = |name: &str| format!("{prefix}_{name}");
        let own = types.structure(&named("struct"), &[(&named("member"), int)]);
        let pointer = types.pointer(own);
        let array = types.array(own, 3);
        types.structure(&named("outer"), &[(&named("array"), array), (&named("pointer"), pointer)]);
        types.enumeration(&named("enum"), &[(&named("value"), 7)]);
        types.typedef(&named("typedef"), own);
        let function = types.function(&named("function"), 1, pointer, &[(&named("param"), own)]);
        types.add(&named("tag"), 17, 0, function, &[u32::MAX]);
        Btf::parse_split(types.build(), base_btf.clone()).unwrap()
    };
    let modules = [module("a"), module("b"), module("c")];
    let joined = base_btf.join(&modules).unwrap();
    let own: u32 = modules.iter().map(|module| module.len() - base_btf.len()).sum();
    assert_eq!(joined.len(), base_btf.len() + own);
    assert_eq!(joined.find("int", Kind::Int), Some(int));
    for (prefix, module) in ["a", "b", "c"].iter().zip(&modules) {
        let named = |name: &str| format!("{prefix}_{name}");
        let id =
            |name: &str, kind| joined.find(&named(name), kind).unwrap_or_else(|| panic!("{prefix}_{name}"));
        let own = id("struct", Kind::Struct);
        let member = joined.members(own).unwrap().next().unwrap();
        assert_eq!((member.name().unwrap(), member.ty), (&*named("member"), int));
        assert_eq!(joined.resolve(id("typedef", Kind::Typedef)).unwrap().id, own);
        let outer: Vec<_> = joined.members(id("outer", Kind::Struct)).unwrap().collect();
        assert_eq!(joined.ty(outer[0].ty).unwrap().array().unwrap().element, own);
        assert_eq!(joined.pointer(outer[1].ty).unwrap().unwrap().to, own);
        let value = joined.ty(id("enum", Kind::Enum)).unwrap().enumerators().next().unwrap();
        assert_eq!((value.name().unwrap(), value.value), (&*named("value"), 7));
        let function = id("function", Kind::Func);
        let prototype = joined.prototype(function).unwrap();
        let param = prototype.params().next().unwrap();
        assert_eq!((param.name().unwrap(), param.ty), (&*named("param"), own));
        assert_eq!(prototype.target(), outer[1].ty);
        assert_eq!(joined.decl_tags(function).next().unwrap().name, named("tag"));
        // It says the same of each as the module's own file.
        for ty in module.own_types() {
            let name = ty.name().unwrap();
            let found = joined.find(name, ty.kind).filter(|_| !name.is_empty());
            assert!(name.is_empty() || found.is_some(), "{name}");
        }
    }
}

#[test]
fn only_modules_of_a_kernel_are_joined_with_it() {
    let mut base = Types::new();
    let int = base.int("int", 4);
    let btf = Arc::new(parse(&base));
    let other = Arc::new(parse(&base));
    let mut types = Types::after(&base);
    types.typedef("count", int);
    let module = Btf::parse_split(types.build(), other).unwrap();
    assert_eq!(btf.join(&[module]).unwrap_err(), Error::NoModule, "another kernel's");
    assert_eq!(btf.join(&[parse(&base)]).unwrap_err(), Error::NoModule, "a kernel");
    let anew = Btf::parse_split(base.build(), btf.clone()).unwrap();
    assert_eq!(btf.join(&[anew]).unwrap_err(), Error::NoModule, "a kernel read as a module");
    let mut types = Types::after(&base);
    types.typedef("count", 900);
    let module = Btf::parse_split(types.build(), btf.clone()).unwrap();
    assert_eq!(btf.join(&[module]).unwrap_err(), Error::TypeMissing { id: 900 });
    assert_eq!(btf.join(&[]).unwrap().len(), btf.len());
    let mut types = Types::after(&base);
    types.typedef("count", int);
    let alone = Btf::parse(types.build()).unwrap_err().to_string();
    assert!(alone.contains("need the kernel's first"), "{alone}");
}

/// A structure with a member of every kind.
fn everything() -> (Btf, Numbers) {
    let mut types = Types::new();
    let byte = types.int("char", 1);
    let int = types.int("int", 4);
    let long = types.int("long", 8);
    let name = types.array(byte, 16);
    let leaf = types.composite(4, "leaf", 16, &[("color", int, 0), ("left", 0, 8)]);
    let rcu = types.tag("rcu", leaf);
    let pointer = types.pointer(rcu);
    // The real structure, with the pointer that refers to the structure itself.
    let node = types.composite(4, "node", 16, &[("color", int, 0), ("left", pointer, 8)]);
    let nodes = types.array(node, 3);
    let either = types.composite(5, "", 8, &[("word", int, 0), ("link", pointer, 0), ("all", long, 0)]);
    let flags =
        types.bit_fields("flags", 4, &[("on", int, 0, 1), ("level", int, 1, 11), ("rest", int, 16, 16)]);
    let tail = types.array(int, 0);
    let root = types.composite(
        4,
        "root",
        112,
        &[
            ("first", byte, 0),
            ("n", int, 4),
            ("nodes", nodes, 8),
            ("", either, 56),
            ("flags", flags, 64),
            ("name", name, 72),
            ("long", long, 88),
            ("node", node, 96),
            ("tail", tail, 112),
        ],
    );
    (parse(&types), Numbers { int, byte, long, leaf, node, name, nodes, root })
}

struct Numbers {
    int: u32,
    byte: u32,
    long: u32,
    leaf: u32,
    node: u32,
    name: u32,
    nodes: u32,
    root: u32,
}

#[test]
fn a_walk_finds_the_member_at_an_offset() {
    let (btf, n) = everything();
    let found = |offset, size| btf.walk(n.root, offset, size).unwrap();
    let is = |offset, size, what: What<'_>, place: &str| {
        let found = found(offset, size);
        assert_eq!((found.what.clone(), &*found.place()), (what, place), "{size} bytes at {offset}");
    };
    let scalar = |id, size| What::Scalar { id, size };
    is(0, 1, scalar(n.byte, 1), "first");
    is(4, 4, scalar(n.int, 4), "n");
    is(5, 2, scalar(n.int, 4), "n");
    is(24, 4, scalar(n.int, 4), "nodes[1].color");
    is(56, 4, scalar(n.int, 4), "word");
    is(60, 2, scalar(n.long, 8), "all");
    is(72, 1, scalar(n.byte, 1), "name[0]");
    is(87, 1, scalar(n.byte, 1), "name[15]");
    is(72, 8, What::Array { id: n.name, element: n.byte }, "name");
    is(8, 48, What::Array { id: n.nodes, element: n.node }, "nodes");
    is(24, 16, What::Struct { id: n.node }, "nodes[1]");
    is(96, 16, What::Struct { id: n.node }, "node");
    is(112, 4, scalar(n.int, 4), "tail[0]");
    is(4000, 4, scalar(n.int, 4), "tail[972]");
    is(64, 4, What::BitField { id: n.int, first_bit: 0, bits: 1 }, "flags.on");
    is(66, 2, What::BitField { id: n.int, first_bit: 0, bits: 16 }, "flags.rest");
    for (offset, place, in_union) in
        [(32, "nodes[1].left", false), (56, "link", true), (104, "node.left", false)]
    {
        let found = found(offset, 8);
        let What::Pointer(pointer) = &found.what else { panic!("{offset}: {:?}", found.what) };
        assert_eq!((pointer.to, &*pointer.tags), (n.leaf, &["rcu"][..]));
        assert_eq!((&*found.place(), found.in_union), (place, in_union));
    }
    assert_eq!(found(6, 1).inner, 2);
}

#[test]
fn a_member_is_found_by_the_names_that_lead_to_it() {
    let (btf, n) = everything();
    let bytes = |path| btf.member_bytes(n.root, path).unwrap();
    assert_eq!((bytes("first"), bytes("n"), bytes("nodes")), (Some(0..1), Some(4..8), Some(8..56)));
    assert_eq!((bytes("node.left"), bytes("tail")), (Some(104..112), Some(112..112)));
    // In a union without a name.
    assert_eq!((bytes("word"), bytes("all")), (Some(56..60), Some(56..64)));
    for path in ["", "lef", "left", "node.", "node.node", "nodes.left", "first.first", "flags.on", "n.color"]
    {
        assert_eq!(bytes(path), None, "{path}");
    }
    assert_eq!(btf.member_bytes(n.int, "n").unwrap(), None);
}

#[test]
fn a_walk_that_finds_nothing_names_the_member() {
    let (btf, n) = everything();
    let fault = |offset, size| match btf.walk(n.root, offset, size).unwrap_err() {
        Error::Walk { path, fault, .. } => (path, fault),
        other => panic!("{other}"),
    };
    assert_eq!(fault(1, 1), ("struct root".into(), Fault::Padding));
    assert_eq!(fault(2, 4), ("n".into(), Fault::Crosses));
    assert_eq!(fault(4, 8), ("n".into(), Fault::Crosses));
    assert_eq!(fault(16, 4), ("nodes[0].left".into(), Fault::PartOfPointer));
    assert_eq!(fault(12, 4), ("nodes[0]".into(), Fault::Padding));
    assert_eq!(fault(65, 1), ("flags.level".into(), Fault::PartOfBitField));
    assert_eq!(fault(90, 8), ("long".into(), Fault::Crosses));
    let leaf = btf.walk(n.node, 16, 4).unwrap_err().to_string();
    assert_eq!(leaf, "4 bytes at offset 16 of struct node: struct node ends after 16 bytes");
    assert!(matches!(btf.walk(n.int, 0, 4), Err(Error::WrongKind { .. })));
}

#[test]
fn a_structure_contains_structures_at_its_start() {
    let (btf, n) = everything();
    let contains = |offset, id| btf.contains(n.root, offset, id).unwrap();
    assert!(contains(0, n.root) && contains(96, n.node) && contains(24, n.node));
    assert!(!contains(0, n.node) && !contains(28, n.node) && !contains(97, n.node) && !contains(96, n.leaf));
    assert!(!contains(100_000, n.node));
}

#[test]
fn nested_unions_cannot_make_a_walk_long() {
    let mut types = Types::new();
    let int = types.int("int", 4);
    let mut inner = types.composite(4, "s", 8, &[("x", int, 0)]);
    for _ in 0..30 {
        let members: Vec<_> = (0..20).map(|_| ("u", inner, 0)).collect();
        inner = types.composite(5, "", 8, &members);
    }
    let btf = parse(&types);
    let started = std::time::Instant::now();
    let error = btf.walk(inner, 4, 4).unwrap_err();
    assert!(matches!(error, Error::Walk { fault: Fault::TooLarge, .. }), "{error}");
    assert_eq!(btf.member_bytes(inner, "y"), Ok(None));
    assert!(started.elapsed().as_secs() < 20);
    // No compiler emits a structure that contains itself, but a file may.
    let mut types = Types::new();
    let own = types.composite(4, "s", 8, &[("again", 1, 0)]);
    assert!(parse(&types).walk(own, 0, 4).is_err());
    assert_eq!(parse(&types).contains(own, 0, 0), Ok(false));
    let mut types = Types::new();
    let own = types.composite(4, "s", 8, &[("", 1, 0), ("", 1, 4)]);
    assert_eq!(parse(&types).member_bytes(own, "x"), Ok(None));
}

#[test]
fn an_elf_file_is_searched_for_its_types() {
    let object = include_bytes!("../../../../examples/firewall.bpf.o");
    let btf = Btf::parse(&object[..]).unwrap();
    let context = btf.find("xdp_md", Kind::Struct).unwrap();
    assert_eq!(btf.size(context), Ok(24));
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(Btf::parse(own).unwrap_err(), Error::Elf { reason: "no section .BTF".into() });
}
