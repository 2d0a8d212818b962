//! Program types of a host's own: what programs may do with a context, and what hosts get back.
//!
//! Programs in text know the layout of the C structure, which is pinned here:
//!
//! ```text
//!   0 id  4 small  5 (padding)  8 mark  16 path 24 path_end  32 body 40 body_end
//!   48 peer (may be null)  56 key (32 bytes)  64 words[3]  80 own (never null)
//! ```

use skep::abi::{MapDef, MapKind, RAW};
use skep::function::{Host, PacketView};
use skep::host::{FieldType, HostContext, HostStruct, Lending, StructType, TakingBack, VerdictType};
use skep::isa::{Size, assemble, encode_bytes};
use skep::{Context, Engine, Error, HostType, Module, Object, Packet, ProgramOptions, Runtime, Verdict};
use std::path::Path;

#[derive(Context)]
#[context(section = "request_filter", verdict = Decision)]
struct Request<'a> {
    id: u32,
    small: u8,
    #[context(write)]
    mark: u64,
    path: &'a [u8],
    body: &'a mut [u8],
    peer: Option<&'a Peer>,
    key: &'a [u8; 32],
    words: [u32; 3],
    own: &'a mut Own,
    #[context(host)]
    notes: Vec<String>,
    #[context(skip)]
    _secret: u64,
}

#[derive(Context)]
struct Peer {
    port: u16,
    #[context(write)]
    seen: u32,
}

#[derive(Context)]
struct Own {
    #[context(write)]
    count: u32,
    limit: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Verdict)]
enum Decision {
    Refuse = -1,
    Pass,
    Hold,
}

/// What a test leaves of a request: mark, body, count, notes.
type Left = (u64, Vec<u8>, u32, Vec<String>);

fn note(mut notes: Host<'_, Vec<String>>, text: &[u8]) -> i32 {
    notes.push(String::from_utf8_lossy(text).into_owned());
    notes.len() as i32
}

fn runtime() -> Runtime {
    Runtime::builder().cpus(4).method::<Request<'_>, _, _>("note", note).build().unwrap()
}

fn kind() -> &'static skep::abi::ProgramType {
    HostType::of::<Request<'_>>().unwrap().program_type()
}

fn load(text: &str) -> Result<Module, Error> {
    let insns = assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let maps = [MapDef::new("cells", MapKind::Array, 4, 8, 1)];
    let object =
        Object::from_bytecode_and_maps("filter", kind(), &encode_bytes(&insns).unwrap(), maps).unwrap();
    runtime().load(&object)
}

/// The class of the refusal, and its text.
#[track_caller]
fn refused(text: &str) -> (&'static str, String) {
    match load(text) {
        Err(Error::Refused(refusal)) => (refusal.code.name(), refusal.to_string()),
        other => panic!("{other:?}\n{text}"),
    }
}

/// Runs it over a request with and without a peer, compiled and interpreted.
fn run_both(module: &Module, engine: Engine, with_peer: bool) -> (Result<Decision, Error>, Left) {
    let (mut body, mut own) = (*b"0123456789", Own { count: 3, limit: 9 });
    let peer = Peer { port: 443, seen: 0 };
    let mut request = Request {
        id: 0x1122_3344,
        small: 0x55,
        mark: 0,
        path: b"/index.html",
        body: &mut body,
        peer: with_peer.then_some(&peer),
        key: &std::array::from_fn(|at| at as u8),
        words: [10, 20, 30],
        own: &mut own,
        notes: Vec::new(),
        _secret: 0x5ec2e7,
    };
    let result = module.typed::<Request<'_>>("filter").unwrap().run_with(engine, &mut request);
    let (mark, notes) = (request.mark, request.notes);
    (result, (mark, body.to_vec(), own.count, notes))
}

/// The verdict, and what is left, if both engines agree.
#[track_caller]
fn run(text: &str) -> (Decision, Left) {
    let module = load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let compiled = run_both(&module, Engine::Jit, true);
    let interpreted = run_both(&module, Engine::Interpreter, true);
    let decision = compiled.0.unwrap();
    assert_eq!((decision, &compiled.1), (interpreted.0.unwrap(), &interpreted.1), "{text}");
    (decision, compiled.1)
}

#[test]
fn numbers_are_read_and_writable_ones_are_written() {
    let text = "r2 = *(u32 *)(r1 + 0)\nr3 = *(u8 *)(r1 + 4)\nr2 += r3\nr4 = *(u32 *)(r1 + 72)\nr2 += r4\n\
                *(u64 *)(r1 + 8) = r2\n*(u8 *)(r1 + 15) = 1\nr0 = 1\nexit";
    let (decision, left) = run(text);
    assert_eq!(decision, Decision::Hold);
    assert_eq!(left.0, (0x1122_3344 + 0x55 + 30) | 1 << 56);
}

#[test]
fn a_read_only_number_cannot_be_written() {
    for write in ["*(u32 *)(r1 + 0) = r0", "*(u8 *)(r1 + 4) = 1", "*(u32 *)(r1 + 64) = 1"] {
        let (code, text) = refused(&format!("r0 = 0\n{write}\nexit"));
        assert_eq!(code, "read-only", "{text}");
        assert!(text.contains("programs of type request_filter may not write"), "{text}");
    }
}

#[test]
fn padding_and_the_bytes_around_a_context_cannot_be_read() {
    for offset in [5, 6, 76, 88, -8] {
        let (code, text) = refused(&format!("r0 = *(u8 *)(r1 {offset:+})\nr0 = 0\nexit"));
        assert_eq!(code, "context", "offset {offset}: {text}");
    }
    assert_eq!(refused("r0 = *(u64 *)(r1 + 0)\nr0 = 0\nexit").0, "context", "a field with its padding");
}

#[test]
fn no_address_in_a_context_can_be_written() {
    for offset in [16, 24, 32, 40, 48, 56, 80] {
        let (code, text) = refused(&format!("r0 = 0\n*(u64 *)(r1 + {offset}) = r0\nexit"));
        assert_eq!(code, "read-only", "{text}");
    }
    let half = refused("r0 = 0\n*(u32 *)(r1 + 20) = r0\nexit");
    assert_eq!(half.0, "read-only", "{}", half.1);
    let copied = refused("r0 = 0\nr2 = *(u64 *)(r1 + 32)\n*(u64 *)(r1 + 8) = r2\nexit");
    assert_eq!(copied.0, "pointer-leak", "{}", copied.1);
    assert_eq!(refused("r0 = *(u32 *)(r1 + 16)\nr0 = 0\nexit").0, "context", "half an address");
}

/// A program that reads `size` bits of `path` after a comparison of `checked` bytes with the end in `end`.
fn reading(end: u32, checked: u32, at: u32) -> String {
    format!(
        "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + {end})\nr4 = r2\nr4 += {checked}\nr0 = 0\nif r4 > r3 goto +3\n\
         r5 = *(u8 *)(r2 + {at})\n*(u64 *)(r1 + 8) = r5\nr0 = 1\nexit"
    )
}

#[test]
fn bytes_are_read_up_to_what_was_compared_with_their_end() {
    assert_eq!(run(&reading(24, 11, 10)), (Decision::Hold, (b'l'.into(), b"0123456789".to_vec(), 3, vec![])));
    assert_eq!(run(&reading(24, 12, 11)).0, Decision::Pass, "the path has 11 bytes");
    assert_eq!(refused(&reading(24, 11, 11)).0, "out-of-bounds");
    let (code, text) = refused("r2 = *(u64 *)(r1 + 16)\nr0 = *(u8 *)(r2 + 0)\nr0 = 0\nexit");
    assert_eq!(code, "out-of-bounds");
    assert!(text.contains("checked against path_end"), "{text}");
    let before = refused(&reading(24, 11, 0).replace("r2 + 0", "r2 - 1"));
    assert_eq!(before.0, "out-of-bounds", "{}", before.1);
}

#[test]
fn the_end_of_other_bytes_proves_nothing() {
    let (code, text) = refused(&reading(40, 11, 10));
    assert_eq!(code, "pointer-leak", "{text}");
    // Equality may be asked, and says nothing either.
    let equal = "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 40)\nr4 = r2\nr4 += 4\nr0 = 0\nif r4 == r3 goto +2\nexit\nexit\n\
                 r5 = *(u8 *)(r2 + 0)\nexit";
    assert_eq!(refused(equal).0, "out-of-bounds");
    // A copy that was compared, moved to the other bytes by the distance, is no pointer any more.
    let moved = "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 32)\nr4 = r3\nr4 -= r2\nr2 += r4\nr0 = *(u8 *)(r2 + 0)\nr0 = 0\nexit";
    assert_ne!(refused(moved).0, "unsupported");
}

#[test]
fn distances_and_orders_of_different_bytes_are_secret() {
    let distance =
        "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 32)\nr3 -= r2\n*(u64 *)(r1 + 8) = r3\nr0 = 0\nexit";
    let (code, text) = refused(distance);
    assert!(["pointer-arithmetic", "pointer-leak"].contains(&code), "{code} {text}");
    let order = "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 32)\nr0 = 0\nif r2 > r3 goto +1\nr0 = 1\nexit";
    assert_eq!(refused(order).0, "pointer-leak");
    // The length of one is no secret.
    let length = distance.replace("r1 + 32", "r1 + 24");
    assert_eq!(run(&length).1.0, 11);
}

/// A program that does that with the body, after a comparison of four bytes.
fn with_body(what: &str) -> String {
    let skipped = 2 + what.matches('\n').count();
    format!(
        "r2 = *(u64 *)(r1 + 32)\nr3 = *(u64 *)(r1 + 40)\nr4 = r2\nr4 += 4\nr0 = 0\nif r4 > r3 goto +{skipped}\n{what}\nr0 = 1\nexit"
    )
}

#[test]
fn writable_bytes_are_written_in_place_and_others_are_not() {
    assert_eq!(run(&with_body("*(u32 *)(r2 + 0) = 0x21212121")).1.1, b"!!!!456789");
    assert_eq!(refused(&with_body("*(u8 *)(r2 + 4) = 1")).0, "out-of-bounds");
    let path = with_body("*(u8 *)(r2 + 0) = 1").replace("r1 + 32", "r1 + 16").replace("r1 + 40", "r1 + 24");
    assert_eq!(refused(&path).0, "read-only");
    assert_eq!(refused(&with_body("r5 = 1\nlock *(u32 *)(r2 + 0) += r5")).0, "misaligned");
    assert_eq!(refused(&with_body("*(u32 *)(r2 + 0) = r1")).0, "pointer-leak");
}

#[test]
fn a_variable_offset_is_bounded_by_a_comparison_too() {
    let sum = "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 24)\nr0 = 0\nr5 = 0\n\
               again:\nr4 = r2\nr4 += 1\nif r4 > r3 goto end\nr6 = *(u8 *)(r2 + 0)\nr5 += r6\nr2 = r4\nr0 += 1\nif r0 < 64 goto again\n\
               end:\n*(u64 *)(r1 + 8) = r5\nr0 = 0\nexit";
    assert_eq!(run(sum).1.0, b"/index.html".iter().map(|byte| u64::from(*byte)).sum::<u64>());
    let unbounded = "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 24)\nr5 = *(u32 *)(r1 + 0)\nr2 += r5\nr4 = r2\nr4 += 1\n\
                     r0 = 0\nif r4 > r3 goto +1\nr6 = *(u8 *)(r2 + 0)\nexit";
    assert_eq!(refused(unbounded).0, "pointer-arithmetic");
    let bounded = unbounded.replace("r2 += r5\n", "r5 &= 7\nr2 += r5\n");
    assert_eq!(run(&bounded).0, Decision::Pass);
}

#[test]
fn a_nullable_structure_is_compared_with_null_first() {
    let text = "r2 = *(u64 *)(r1 + 48)\nr0 = 0\nr3 = *(u16 *)(r2 + 0)\nexit";
    assert_eq!(refused(text).0, "maybe-null");
    let text = "r2 = *(u64 *)(r1 + 48)\nr0 = 0\nif r2 == 0 goto +3\nr3 = *(u16 *)(r2 + 0)\n*(u64 *)(r1 + 8) = r3\nr0 = 1\nexit";
    assert_eq!(run(text).1.0, 443);
    let module = load(text).unwrap();
    for engine in [Engine::Jit, Engine::Interpreter] {
        assert_eq!(run_both(&module, engine, false).0.unwrap(), Decision::Pass);
    }
    for offset in [2, 8, -2] {
        let outside = text.replace("r2 + 0", &format!("r2 {offset:+}"));
        assert_eq!(refused(&outside).0, "context", "{offset}");
    }
}

#[test]
fn what_a_shared_reference_leads_to_is_read_only() {
    let seen = "r2 = *(u64 *)(r1 + 48)\nr0 = 0\nif r2 == 0 goto +1\n*(u32 *)(r2 + 4) = 1\nexit";
    assert_eq!(refused(seen).0, "read-only", "Peer::seen is writable, but the request has a `&Peer`");
    let own = "r2 = *(u64 *)(r1 + 80)\nr3 = *(u32 *)(r2 + 4)\n*(u32 *)(r2 + 0) = r3\nr0 = 0\nexit";
    assert_eq!(run(own).1.2, 9);
    assert_eq!(refused(&own.replace("*(u32 *)(r2 + 0) = r3", "*(u32 *)(r2 + 4) = r3")).0, "read-only");
}

#[test]
fn an_array_behind_a_pointer_takes_any_index() {
    let text = "r2 = *(u64 *)(r1 + 56)\nr3 = *(u8 *)(r1 + 4)\nr3 &= 31\nr2 += r3\nr4 = *(u8 *)(r2 + 0)\n*(u64 *)(r1 + 8) = r4\nr0 = 0\nexit";
    assert_eq!(run(text).1.0, 0x55 & 31);
    assert_eq!(refused(&text.replace("31", "63")).0, "out-of-bounds");
    assert_eq!(refused("r2 = *(u64 *)(r1 + 56)\n*(u8 *)(r2 + 0) = 1\nr0 = 0\nexit").0, "read-only");
}

#[test]
fn no_address_leaves_a_program() {
    for offset in [16, 24, 32, 40, 48, 56, 80] {
        let result = refused(&format!("r0 = *(u64 *)(r1 + {offset})\nexit"));
        assert!(["pointer-leak", "return"].contains(&result.0), "{offset}: {} {}", result.0, result.1);
    }
    for value in ["r6 = r1", "r6 = *(u64 *)(r1 + 32)", "r6 = *(u64 *)(r1 + 40)", "r6 = *(u64 *)(r1 + 80)"] {
        let text = format!(
            "{value}\n*(u32 *)(r10 - 4) = 0\nr2 = r10\nr2 += -4\nr1 = map[0] ll\ncall map_lookup_elem#1\n\
             if r0 == 0 goto +1\n*(u64 *)(r0 + 0) = r6\nr0 = 0\nexit"
        );
        assert_eq!(refused(&text).0, "pointer-leak", "{value}");
        let copied = format!(
            "{value}\n*(u32 *)(r10 - 4) = 0\n*(u64 *)(r10 - 16) = r6\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\n\
             r1 = map[0] ll\nr4 = 0\ncall map_update_elem#2\nr0 = 0\nexit"
        );
        assert!(load(&copied).is_err(), "{value} in a value that is stored");
    }
}

#[test]
fn results_are_between_the_verdicts() {
    assert_eq!(run("r0 = -1\nexit").0, Decision::Refuse);
    for result in ["2", "-2"] {
        let (code, text) = refused(&format!("r0 = {result}\nexit"));
        assert_eq!(code, "return", "{text}");
    }
    assert_eq!(refused("r0 = *(u32 *)(r1 + 0)\nexit").0, "return");
}

#[derive(Context)]
#[context(section = "sparse", verdict = Sparse)]
struct Gaps {
    result: u32,
}

#[derive(Debug, PartialEq, Verdict)]
enum Sparse {
    None = 0,
    Some = 5,
}

#[test]
fn a_result_in_a_gap_between_the_verdicts_is_an_error() {
    let kind = HostType::of::<Gaps>().unwrap().program_type();
    let insns = assemble("r0 = *(u32 *)(r1 + 0)\nif r0 < 6 goto +1\nr0 = 0\nexit").unwrap();
    let module = runtime().load(&Object::from_insns("gaps", kind, insns)).unwrap();
    let program = module.typed::<Gaps>("gaps").unwrap();
    assert_eq!(program.run(&mut Gaps { result: 5 }).unwrap(), Sparse::Some);
    assert!(matches!(program.run(&mut Gaps { result: 3 }), Err(Error::Verdict { result: 3, .. })));
}

#[test]
fn functions_of_the_type_get_what_programs_do_not_see() {
    let object = Object::open(objects().join("calls.bpf.o")).unwrap();
    let runtime = Runtime::builder().method::<Request<'_>, _, _>("request_note", note).build().unwrap();
    let module = runtime.load(&object).unwrap();
    for (name, said, engine) in [
        ("notes", "seen", Engine::Jit),
        ("notes_inside", "inner", Engine::Jit),
        ("notes", "seen", Engine::Interpreter),
        ("notes_inside", "inner", Engine::Interpreter),
    ] {
        let (mut body, mut own) = ([0; 1], Own { count: 0, limit: 0 });
        let mut request = request(&mut body, &mut own);
        let result = module.typed::<Request<'_>>(name).unwrap().run_with(engine, &mut request).unwrap();
        assert_eq!((result, request.notes), (Decision::Hold, vec![said.to_owned()]));
    }
}

fn request<'a>(body: &'a mut [u8], own: &'a mut Own) -> Request<'a> {
    let (path, key, words) = (&b"/"[..], &[0; 32], [0; 3]);
    let (peer, notes) = (None, Vec::new());
    Request { id: 0, small: 0, mark: 0, path, body, peer, key, words, own, notes, _secret: 0 }
}

#[test]
fn a_function_of_a_type_is_for_its_programs_alone() {
    let first = format!(
        "r0 = 0\nr2 = r10\nr2 += -8\n*(u64 *)(r10 - 8) = 0\nr3 = 8\ncall {}\nr0 = 0\nexit",
        0x2000_0000
    );
    assert!(load(&first).is_ok());
    let gaps = HostType::of::<Gaps>().unwrap().program_type();
    for other in [gaps, &skep::abi::XDP, &RAW] {
        let object = Object::from_insns("other", other, assemble(&first).unwrap());
        match runtime().linker(&object).buffer_len(8).load() {
            Err(Error::Refused(refusal)) => {
                assert_eq!(refusal.code.name(), "helper");
                assert!(
                    refusal.to_string().contains("works on the context of programs of type request_filter")
                );
            }
            loaded => panic!("{loaded:?}"),
        }
    }
    for context in ["r1 = 0", "r1 = r10", "r1 += 8", "r1 = *(u64 *)(r1 + 80)"] {
        assert_eq!(refused(&format!("{context}\n{first}")).0, "argument", "{context}");
    }
}

#[test]
fn nobody_replaces_or_watches_functions_over_a_context() {
    let object = Object::open(objects().join("calls.bpf.o")).unwrap();
    let runtime = Runtime::builder().method::<Request<'_>, _, _>("request_note", note).build().unwrap();
    let module = runtime.linker(&object).patchable(true).load().unwrap();
    for (program, function) in [("notes", "notes"), ("notes_inside", "inner")] {
        let target = module.program(program).unwrap().function(function);
        let error = target.unwrap_err();
        assert!(error.to_string().contains("over a host's own context"), "{error}");
    }
}

#[test]
fn a_function_of_no_type_cannot_ask_for_a_part() {
    // It compiles, and no program can call it: also not with two parts, which would be the same.
    let twice = |a: Host<'_, Vec<String>>, b: Host<'_, Vec<String>>| -> u32 { (a.len() + b.len()) as u32 };
    let runtime = Runtime::builder().function(1000, "twice", twice).build().unwrap();
    let insns = assemble("r2 = r1\ncall 1000\nr0 = 0\nexit").unwrap();
    let error = runtime.load(&Object::from_insns("twice", kind(), insns)).unwrap_err();
    assert!(matches!(&error, Error::Refused(refusal) if refusal.code.name() == "argument"), "{error}");
}

/// Its first two fields could be taken for the start and end of a packet.
#[derive(Context)]
#[context(section = "forged_packet")]
struct ForgedPacket {
    #[context(write)]
    data: u64,
    #[context(write)]
    data_end: u64,
}

#[test]
fn a_context_is_not_taken_for_a_packet() {
    let first_byte = |packet: PacketView<'_>| -> i32 {
        let mut byte = [0];
        if packet.read(0, &mut byte) { byte[0].into() } else { -1 }
    };
    let runtime = Runtime::builder().function(1000, "first_byte", first_byte).build().unwrap();
    let secret = [0x42u8; 8];
    let text = "call first_byte#1000\nexit";
    let own = HostType::of::<ForgedPacket>().unwrap().program_type();
    let system_call = skep::abi::ProgramType::from_name("syscall").unwrap();
    let load = |kind| runtime.load(&Object::from_insns("forger", kind, assemble(text).unwrap())).unwrap();
    let (data, data_end) = (secret.as_ptr().addr() as u64, secret.as_ptr().addr() as u64 + 8);
    let forger = load(own).typed::<ForgedPacket>("forger").unwrap();
    assert_eq!(forger.run(&mut ForgedPacket { data, data_end }).unwrap(), -1);
    let module = load(system_call);
    let mut context = skep::Context::new(system_call).unwrap();
    context.set_bytes(&[data.to_ne_bytes(), data_end.to_ne_bytes()].concat()).unwrap();
    let result = module.programs()[0].run_context(&mut context).unwrap();
    assert_eq!(result as i32, -1, "a program of type syscall reads any memory of the host");
}

#[test]
fn programs_run_over_their_own_context_alone() {
    let module = load("r0 = 0\nexit").unwrap();
    let program = module.program("filter").unwrap();
    assert!(matches!(program.typed::<Gaps>(), Err(Error::WrongInput { .. })));
    assert!(matches!(program.run(&mut Packet::new(&[0; 64])), Err(Error::WrongInput { .. })));
    assert!(matches!(program.run_raw(&mut []), Err(Error::WrongInput { .. })));
    assert!(matches!(skep::Context::of(program), Err(Error::ForeignType { .. })));
    let raw = runtime().load(&Object::from_insns("raw", &RAW, assemble("r0 = 0\nexit").unwrap())).unwrap();
    assert!(matches!(raw.typed::<Request<'_>>("raw"), Err(Error::WrongInput { .. })));
    assert!(matches!(raw.typed::<Request<'_>>("row"), Err(Error::Unknown { .. })));
}

#[test]
fn a_type_that_was_copied_by_hand_is_none() {
    let real = kind();
    let forged = skep::abi::ProgramType { helpers: skep::abi::XDP.helpers, ..clone_of(real) };
    let forged: &'static skep::abi::ProgramType = Box::leak(Box::new(forged));
    let object = Object::from_insns("forged", forged, assemble("r0 = 0\nexit").unwrap());
    assert!(matches!(runtime().load(&object), Err(Error::ForeignType { .. })));
}

fn clone_of(kind: &skep::abi::ProgramType) -> skep::abi::ProgramType {
    skep::abi::ProgramType {
        name: kind.name,
        sections: kind.sections,
        context: kind.context,
        structs: kind.structs,
        native: kind.native,
        results: kind.results,
        verdicts: kind.verdicts,
        ..skep::abi::ProgramType::PLAIN
    }
}

#[test]
fn arrays_of_programs_keep_types_of_one_name_apart() {
    let describe = || {
        let number = FieldType::Number { size: Size::B4, signed: false, writable: false };
        HostType::new(StructType::new("twin").field("a", number), "twins", VerdictType::default()).unwrap()
    };
    let (first, second) = (describe().program_type(), describe().program_type());
    let text = "r2 = map[0] ll\nr3 = 0\ncall tail_call#12\nr0 = 0\nexit";
    let runtime = runtime();
    let program = |kind| {
        let maps = [MapDef::new("next", MapKind::ProgArray, 4, 4, 1)];
        let object = Object::from_bytecode_and_maps(
            "twin",
            kind,
            &encode_bytes(&assemble(text).unwrap()).unwrap(),
            maps,
        )
        .unwrap();
        runtime.load(&object).unwrap()
    };
    let (one, other) = (program(first), program(second));
    let array = one.program_array("next").unwrap();
    assert!(array.set(0, one.program("twin").unwrap()).is_ok());
    assert!(matches!(array.set(0, other.program("twin").unwrap()), Err(Error::WrongProgram { .. })));
}

/// Lends two fields in the wrong order, or another number of bytes, or too little.
struct Liar(u8);

impl HostStruct for Liar {
    const NAME: &'static str = "liar";
    fn describe(empty: StructType) -> StructType {
        let bytes = FieldType::Bytes { bytes: 8, writable: false, nullable: false };
        empty.field("bytes", bytes).field("slice", FieldType::Slice { writable: false })
    }
    fn lend<'r>(&'r mut self, to: &mut Lending<'r>) {
        match self.0 {
            0 => {
                to.bytes(Some(&[0; 8]));
                to.slice(&[]);
            }
            1 => {
                to.slice(&[]);
                to.bytes(Some(&[0; 8]));
            }
            2 => {
                to.bytes(Some(&[0; 7]));
                to.slice(&[]);
            }
            3 => {
                to.bytes(None);
                to.slice(&[]);
            }
            4 => to.bytes(Some(&[0; 8])),
            5 => {
                to.number(0x1000_u64);
                to.number(0x1000_u64);
            }
            _ => {
                to.bytes(Some(&[0; 8]));
                to.slice(&[]);
                to.slice(&[]);
            }
        }
    }
    fn lend_shared<'r>(&'r self, _: &mut Lending<'r>) {}
    fn take_back(&mut self, _: &mut TakingBack<'_>) {}
}

impl HostContext for Liar {
    const SECTION: &'static str = "liars";
    type Kind = Self;
    type Verdict = u32;
    type Host = ();
    fn lend_with_host<'r>(&'r mut self, to: &mut Lending<'r>) -> &'r mut () {
        self.lend(to);
        skep::host::nothing()
    }
}

#[test]
fn what_is_lent_is_what_was_described_or_nothing_runs() {
    let kind = HostType::of::<Liar>().unwrap().program_type();
    let insns = assemble("r1 = *(u64 *)(r1 + 0)\nr0 = *(u8 *)(r1 + 7)\nexit").unwrap();
    let module = runtime().load(&Object::from_insns("trusting", kind, insns)).unwrap();
    let program = module.typed::<Liar>("trusting").unwrap();
    assert_eq!(program.run(&mut Liar(0)).unwrap(), 0);
    for lie in 1..=6 {
        let result = program.run(&mut Liar(lie));
        assert!(matches!(result, Err(Error::Lent { .. })), "lie {lie}: {result:?}");
    }
}

/// The host of `old_plugin.bpf.c`, some versions later.
#[derive(Context)]
#[context(name = "request", section = "request_filter")]
struct NewerRequest<'a> {
    trace: u64,
    path: &'a [u8],
    peer: Option<&'a NewerPeer>,
    #[context(write)]
    mark: u32,
    flags: [u8; 3],
    status: u32,
}

#[derive(Context)]
#[context(name = "peer")]
struct NewerPeer {
    address: [u8; 16],
    verified: bool,
    port: u16,
}

fn objects() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/objects/hosts")
}

#[test]
fn an_old_plugin_finds_fields_that_have_moved() {
    let object = Object::open(objects().join("old_plugin.bpf.o")).unwrap();
    let runtime = Runtime::builder().context::<NewerRequest<'_>>().build().unwrap();
    let peer = NewerPeer { address: [0xff; 16], verified: true, port: 8443 };
    for program in ["reads", "asks"] {
        let module = runtime.linker(&object).only(program).load().unwrap();
        for engine in [Engine::Jit, Engine::Interpreter] {
            let mut request = NewerRequest {
                trace: u64::MAX,
                path: b"a",
                peer: Some(&peer),
                mark: 0,
                flags: [0xff; 3],
                status: 418,
            };
            let typed = module.typed::<NewerRequest<'_>>(program).unwrap();
            let result = typed.run_with(engine, &mut request).unwrap();
            let (expected, mark) = match program {
                "reads" => (9_700_000 + 8443, 418),
                _ => (7, 0),
            };
            assert_eq!((result, request.mark), (expected, mark), "{program}");
        }
    }
}

#[test]
fn an_old_plugin_that_needs_a_field_that_is_gone_is_refused() {
    let object = Object::open(objects().join("old_plugin.bpf.o")).unwrap();
    let runtime = Runtime::builder().context::<NewerRequest<'_>>().build().unwrap();
    let Err(Error::Refused(refusal)) = runtime.linker(&object).only("needs").load() else {
        panic!("accepted")
    };
    let text = refusal.to_string();
    assert_eq!(refusal.code.name(), "types");
    assert!(text.contains("needs struct request.gone"), "{text}");
    assert!(text.contains("bpf_core_*_exists"), "the remedy: {text}");
}

#[test]
fn descriptions_survive_the_way_through_types_and_headers() {
    for host in [HostType::of::<Request<'_>>(), HostType::of::<NewerRequest<'_>>(), HostType::of::<Gaps>()] {
        let host = host.unwrap();
        let read = HostType::from_btf(host.btf()).unwrap();
        assert_eq!(read.section(), host.section());
        assert_eq!(read.verdict(), host.verdict());
        let shared = |host: &HostType| host.header();
        assert_eq!(shared(read), shared(host));
        assert_eq!(read.program_type().context, host.program_type().context);
        assert_eq!(read.program_type().structs, host.program_type().structs);
    }
}

#[test]
fn tools_verify_plugins_of_a_host_by_its_types() {
    // What `skep header` gives; the host itself is elsewhere.
    let types = HostType::of::<NewerRequest<'_>>().unwrap().btf().bytes().to_vec();
    let host = HostType::from_btf(&skep::Btf::parse(types).unwrap()).unwrap();
    let mut object = Object::open(objects().join("old_plugin.bpf.o")).unwrap();
    let options = ProgramOptions::default();
    assert!(matches!(object.verify("reads", options), Err(Error::Object(_))), "nobody knows the section");
    object.set_context(host);
    assert!(object.verify("reads", options).is_ok());
    assert!(object.verify("asks", options).is_ok());
    assert!(matches!(object.verify("needs", options), Err(Error::Refused(_))));
}

#[test]
fn the_example_s_header_is_that_of_its_plugin() {
    // The object was compiled with the header, so it carries the whole description.
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let object = Object::open(examples.join("http_filter.bpf.o")).unwrap();
    let host = HostType::from_btf(object.types().unwrap()).unwrap();
    assert_eq!(host.section(), "http_filter");
    let header = std::fs::read_to_string(examples.join("http_filter.h")).unwrap();
    let own = host.header();
    let body =
        |text: &str| text.split("extern").next().unwrap().split("#endif /*").next().unwrap().to_owned();
    assert_eq!(body(&header), body(&own), "cargo run --example http_filter -- --header writes it");
}

#[test]
fn descriptions_that_c_cannot_have_are_refused() {
    let number = || FieldType::Number { size: Size::B4, signed: false, writable: false };
    let one = |name: &str| StructType::new(name).field("a", number());
    let cases = [
        (one("x"), "xdp", "one of Linux's"),
        (one("x"), "a b", "no identifier"),
        (one("struct x"), "own", "no identifier"),
        (StructType::new("x"), "own", "no fields"),
        (one("x").field("a", number()), "own", "two fields a"),
        (one("x").field("b", FieldType::Slice { writable: false }).field("b_end", number()), "own", "b_end"),
        (one("x").field("int main(", number()), "own", "no identifier"),
        (
            one("x").field(
                "b",
                FieldType::Numbers { size: Size::B8, signed: false, count: u32::MAX, writable: false },
            ),
            "own",
            "bytes",
        ),
        (
            one("x").field("b", FieldType::Bytes { bytes: 0, writable: false, nullable: true }),
            "own",
            "0 bytes",
        ),
    ];
    for (description, section, why) in cases {
        let error = HostType::new(description.clone(), section, VerdictType::default()).unwrap_err();
        assert!(matches!(error, Error::HostType { .. }));
        assert!(error.to_string().contains(why), "{error}");
    }
    let twice = VerdictType { name: "v".into(), values: vec![("a".into(), 1), ("b".into(), 1)] };
    assert!(HostType::new(one("x"), "own", twice).unwrap_err().to_string().contains("number 1"));
}

#[derive(Context)]
#[context(section = "endless")]
struct Endless<'a> {
    #[allow(dead_code)]
    next: Option<&'a Endless<'a>>,
}

#[test]
fn a_structure_that_contains_itself_is_refused() {
    let error = HostType::of::<Endless<'_>>().unwrap_err();
    assert!(error.to_string().contains("contains itself"), "{error}");
    assert!(matches!(Runtime::builder().context::<Endless<'_>>().build(), Err(Error::HostType { .. })));
}

#[test]
fn two_contexts_in_one_section_are_refused() {
    let both = Runtime::builder().context::<Request<'_>>().context::<NewerRequest<'_>>().build();
    assert!(both.unwrap_err().to_string().contains("already"));
}

#[test]
fn the_offsets_are_those_of_c() {
    let skep::abi::Context::Struct(layout) = kind().context else { panic!("a structure") };
    let of = |name: &str| layout.fields.iter().find(|field| field.name == name).map(|field| field.offset);
    let names =
        ["id", "small", "mark", "path", "path_end", "body", "body_end", "peer", "key", "words", "own"];
    assert_eq!(names.map(|name| of(name).unwrap()), [0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80]);
    assert_eq!(layout.size, 88);
}
