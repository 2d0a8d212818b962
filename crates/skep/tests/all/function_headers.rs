//! Headers of a host's functions, and prototypes that are read from what a compiler makes of them.

use skep::abi::{Access, ArgKind, HelperProto, RAW, RetKind, XDP};
use skep::function::{Callback, Errno, MemoryViewMut, Out, PacketView, Prototypes};
use skep::isa::assemble;
use skep::{Engine, Error, Map, Object, Runtime, RuntimeBuilder, VerifyOptions};
use skep_testkit::skip;
use std::io::Write;
use std::process::{Command, Stdio};

/// The object that clang makes of declarations; `None` without clang.
fn compiled(header: &str) -> Option<Object> {
    let flags = ["-target", "bpf", "-g", "-O0", "-Dstatic=", "-Werror", "-c", "-o", "-", "-xc", "-"];
    let warnings = ["-Wno-pragma-once-outside-header", "-Wno-visibility"];
    let clang = Command::new("clang-19")
        .args(warnings)
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut clang) = clang else {
        skip("a header of a host", "clang-19 not found");
        return None;
    };
    clang.stdin.take().unwrap().write_all(header.as_bytes()).unwrap();
    let output = clang.wait_with_output().unwrap();
    assert!(output.status.success(), "{header}");
    Some(Object::parse(&output.stdout).unwrap())
}

fn every_kind() -> RuntimeBuilder {
    Runtime::builder()
        .function(1000, "nothing", || {})
        .function(1001, "count", |_: &[u8], _: u8| -> u32 { 0 })
        .function(1002, "change", |_: &mut [u8], _: &mut u16| -> i8 { 0 })
        .function(1003, "fill", |_: Out<'_, [u8; 24]>, _: &u64, _: bool| -> bool { true })
        .function(1004, "maybe", |_: Option<&[u8]>, _: Option<&mut [u8]>| -> i64 { 0 })
        .function(1005, "look", |_: &Map, _: PacketView<'_>, _: MemoryViewMut<'_>| -> u64 { 0 })
        .function(1006, "each", |_: Callback<'_>, _: i32| -> Result<(), Errno> { Ok(()) })
        .function_for(&[&XDP, &RAW], 1007, "some", |_: u64| -> Result<u32, Errno> { Ok(1) })
}

fn proto(name: &str, id: u32, args: &[ArgKind], ret: RetKind) -> HelperProto {
    let mut all = [ArgKind::None; 5];
    all[..args.len()].copy_from_slice(args);
    let mut proto = HelperProto::new(id, "", all, ret);
    proto.name = name.to_owned().into();
    proto
}

fn memory(access: Access, nullable: bool) -> [ArgKind; 2] {
    [ArgKind::Memory { access, nullable }, ArgKind::Size { zero: true }]
}

#[test]
fn a_header_says_what_the_functions_take_and_return() {
    let header = every_kind().build().unwrap().header();
    let expected = [
        "static void (*const nothing)(void) = (void *) 1000;",
        "static unsigned int (*const count)(const void *a1, unsigned long long a2_size, unsigned long long a3) = (void *) 1001;",
        "static signed char (*const change)(void *a1, unsigned long long a2_size, void host_bytes(2) *a3) = (void *) 1002;",
        "(void host_bytes(24) host_out *a1, const void host_bytes(8) *a2, unsigned long long a3) = (void *) 1003;",
        "(const void host_or_null *a1, unsigned long long a2_size, void host_or_null *a3, unsigned long long a4_size)",
        "static unsigned long long (*const look)(void host_map *a1, void host_context *a2, void *a3, ",
        "static int (*const each)(int (*a1)(unsigned long long value, void *context), void *a2_context, unsigned",
        "/* For programs of type xdp, raw. */\n/* Returns a number up to 4294967295, or a negated error number. */\nstatic long long (*const some)",
    ];
    for line in expected {
        assert!(header.contains(line), "{line}\nis missing in\n{header}");
    }
    assert!(!header.contains("map_lookup_elem"), "only the host's own");
    let none = Runtime::new().unwrap().header();
    assert!(!none.contains("static"), "{none}");
}

#[test]
fn prototypes_of_a_compiled_header_are_those_of_the_functions() {
    let runtime = every_kind().build().unwrap();
    let Some(object) = compiled(&runtime.header()) else { return };
    let read = Prototypes::of_object(&object).unwrap();
    let fixed = |access, bytes| ArgKind::FixedMemory { access, bytes };
    let (scalar, long) = (ArgKind::Scalar, RetKind::Scalar);
    let range = |min, max| RetKind::Range { min, max };
    let [change, change_size] = memory(Access::ReadWrite, false);
    let [bytes, bytes_size] = memory(Access::Read, false);
    let [some, some_size] = memory(Access::Read, true);
    let [any, any_size] = memory(Access::ReadWrite, true);
    let callback = ArgKind::Callback(skep::abi::Callback::Host);
    let mut expected = [
        proto("nothing", 1000, &[], RetKind::Void),
        proto("count", 1001, &[bytes, bytes_size, scalar], range(0, u32::MAX.into())),
        proto("change", 1002, &[change, change_size, fixed(Access::ReadWrite, 2)], range(-128, 127)),
        proto("fill", 1003, &[fixed(Access::Write, 24), fixed(Access::Read, 8), scalar], range(0, 1)),
        proto("maybe", 1004, &[some, some_size, any, any_size], long),
        proto("look", 1005, &[ArgKind::Map, ArgKind::Context, change, change_size], long),
        proto(
            "each",
            1006,
            &[callback, ArgKind::CallbackContext, scalar],
            range(i32::MIN.into(), i32::MAX.into()),
        ),
        // C has no type for these results.
        proto("some", 1007, &[scalar], long),
    ];
    expected[6].moves_packet = true;
    let mut read = read.to_vec();
    read.sort_by_key(|proto| proto.id);
    assert_eq!(read, expected);
}

#[test]
fn declarations_in_the_style_of_libbpf_are_read() {
    let header = "struct xdp_md; struct bpf_map; struct point { int x, y; }; enum side { LEFT, RIGHT };
        static long (*const places)(struct xdp_md *, struct bpf_map *, const struct point *, struct point *) = (void *) 2000;
        static enum side (*side)(const char (*name)[16], short) = (void *) 2001;
        int other = 5;";
    let Some(object) = compiled(header) else { return };
    let read = Prototypes::of_object(&object).unwrap();
    let fixed = |access, bytes| ArgKind::FixedMemory { access, bytes };
    let point = [fixed(Access::Read, 8), fixed(Access::ReadWrite, 8)];
    let places =
        proto("places", 2000, &[ArgKind::Context, ArgKind::Map, point[0], point[1]], RetKind::Scalar);
    assert_eq!(read.iter().find(|proto| proto.id == 2000), Some(&places));
    let side = read.iter().find(|proto| proto.id == 2001).unwrap();
    assert_eq!(side.args[..2], [fixed(Access::Read, 16), ArgKind::Scalar]);
    assert_eq!(read.len(), 2, "other variables are none of the host's functions");
}

#[test]
fn declarations_that_say_too_little_are_refused_with_their_place() {
    let tag = |text: &str| format!("__attribute__((btf_type_tag(\"{text}\")))");
    let cases = [
        ("static int (*f)(void *) = (void *) 7;".to_owned(), "f: argument 1: a void pointer needs a size"),
        (
            "static int (*f)(int, void *, char *) = (void *) 7;".into(),
            "f: argument 2: a void pointer needs a size",
        ),
        ("static int (*f)(int, int, int, int, int, int) = (void *) 7;".into(), "takes at most five"),
        (
            "struct s { int a[8]; }; static int (*f)(struct s) = (void *) 7;".into(),
            "neither a number nor an address",
        ),
        ("static void *(*f)(int) = (void *) 7;".into(), "returns neither a number nor nothing"),
        ("static int (*f)(int) = (void *) 0x123456789;".into(), "its value is no number of a function"),
        ("static int (*f)(int);".into(), "its value is no number of a function"),
        ("static int (*f)(int (*)(int)) = (void *) 7;".into(), "followed by its context"),
        (format!("static int (*f)(const int {} *) = (void *) 7;", tag("out")), "what is filled is not const"),
        (format!("static int (*f)(void {} *) = (void *) 7;", tag("bytes:x")), "x is no number of bytes"),
        (format!("static int (*f)(void {} *) = (void *) 7;", tag("bytes:0")), "memory of 0 bytes"),
        ("struct s; static int (*f)(struct s *) = (void *) 7;".into(), "f: argument 1"),
        ("int x = 1;".into(), "declares no function"),
    ];
    for (header, expected) in cases {
        let Some(object) = compiled(&header) else { return };
        let error = Prototypes::of_object(&object).unwrap_err().to_string();
        assert!(error.contains(expected), "{header}: {error}");
    }
    let without = Prototypes::of_object(&Object::from_insns("none", &RAW, assemble("r0 = 0\nexit").unwrap()));
    assert!(without.unwrap_err().to_string().contains("no types"));
}

#[test]
fn declared_functions_are_verified_alike_and_return_what_is_asked_and_zeroes() {
    let runtime = every_kind().build().unwrap();
    let Some(object) = compiled(&runtime.header()) else { return };
    let prototypes = Prototypes::of_object(&object).unwrap();
    let text = "r1 = r10
                r1 += -24
                *(u64 *)(r10 - 32) = 5
                r2 = r10
                r2 += -32
                r3 = 0
                call 1003
                r6 = r0
                r0 = *(u64 *)(r10 - 8)
                r0 += r6
                exit";
    let program = Object::from_insns("fills", &RAW, assemble(text).unwrap());
    let alone = program.verify_with("fills", Default::default(), VerifyOptions::default());
    assert!(matches!(alone, Err(Error::Refused(_))), "{alone:?}");
    let how = VerifyOptions { host: &prototypes, ..VerifyOptions::default() };
    assert!(program.verify_with("fills", Default::default(), how).is_ok());
    let results = [("fill".to_owned(), 1)];
    let runtime = Runtime::builder().declare(&prototypes, &results).unwrap().build().unwrap();
    let module = runtime.linker(&program).buffer_len(8).load().unwrap();
    for engine in [Engine::Jit, Engine::Interpreter] {
        assert_eq!(module.programs()[0].run_raw_with(engine, &mut [0; 8]).unwrap(), 1);
    }
    assert_eq!(runtime.header().matches("(void *) 100").count(), 8, "declared functions are in the header");
    for (wrong, expected) in
        [(("fill", 2), "does not allow the result 2"), (("nobody", 1), "it is not declared")]
    {
        let results = [(wrong.0.to_owned(), wrong.1)];
        let error = Runtime::builder().declare(&prototypes, &results).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
