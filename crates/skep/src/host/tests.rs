//! Programs over contexts of a host's own, compiled, interpreted, and interpreted in checking mode, which compares
//! every register with the verifier's states and knows itself what was lent.

use crate::function::Host;
use crate::typed_program::CheckedRun;
use crate::{Engine, HostType, Object, Runtime, TypedProgram};
use skep_abi::{MapDef, MapKind};
use skep_isa::{assemble, encode_bytes};

#[derive(skep_derive::Context)]
#[context(section = "probe", verdict = u32)]
struct Probe<'a> {
    number: u32, // 0
    #[context(write)]
    out: u64, // 8
    first: &'a [u8], // 16, 24
    second: &'a mut [u8], // 32, 40
    inner: Option<&'a mut Inner<'a>>, // 48
    table: &'a mut [u8; 16], // 56
    wide: [u64; 60], // 64; too large for the usual place
    #[context(host)]
    heard: Vec<u8>,
}

#[derive(skep_derive::Context)]
struct Inner<'a> {
    #[context(write)]
    number: u16, // 0
    bytes: &'a mut [u8],        // 8, 16
    table: Option<&'a [u8; 4]>, // 24
}

fn hear(mut heard: Host<'_, Vec<u8>>, bytes: &[u8]) -> u32 {
    heard.extend(bytes);
    heard.len() as u32
}

/// Programs that the verifier takes.
const PROGRAMS: &[&str] = &[
    "r0 = *(u32 *)(r1 + 0)\nr2 = *(u64 *)(r1 + 536)\n*(u64 *)(r1 + 8) = r2\nexit",
    // Bytes, compared with their end.
    "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 24)\nr4 = r2\nr4 += 3\nr0 = 0\nif r4 > r3 goto +1\nr0 = *(u8 *)(r2 + 2)\nexit",
    "r2 = *(u64 *)(r1 + 32)\nr3 = *(u64 *)(r1 + 40)\nr4 = r2\nr4 += 5\nr0 = 0\nif r4 > r3 goto +3\n*(u32 *)(r2 + 1) = 7\nr0 = *(u16 *)(r2 + 0)\n*(u8 *)(r1 + 9) = 3\nexit",
    // A loop over all bytes.
    "r2 = *(u64 *)(r1 + 16)\nr3 = *(u64 *)(r1 + 24)\nr0 = 0\nr5 = 0\nagain:\nr4 = r2\nr4 += 1\nif r4 > r3 goto end\n\
     r6 = *(u8 *)(r2 + 0)\nr0 += r6\nr2 = r4\nr5 += 1\nif r5 < 20 goto again\nend:\nexit",
    // The pointer in the stack while a helper runs, and a length.
    "r6 = r1\nr2 = *(u64 *)(r6 + 32)\n*(u64 *)(r10 - 8) = r2\ncall ktime_get_ns#5\nr2 = *(u64 *)(r10 - 8)\nr3 = *(u64 *)(r6 + 40)\n\
     r0 = r3\nr0 -= r2\nr4 = r2\nr4 += 1\nif r4 > r3 goto +1\n*(u8 *)(r2 + 0) = 9\nexit",
    // What may be null, and what is behind it.
    "r6 = *(u64 *)(r1 + 48)\nr0 = 0\nif r6 == 0 goto end\n*(u16 *)(r6 + 0) = 77\nr0 = *(u16 *)(r6 + 0)\nr2 = *(u64 *)(r6 + 8)\n\
     r3 = *(u64 *)(r6 + 16)\nr4 = r2\nr4 += 2\nif r4 > r3 goto +2\n*(u8 *)(r2 + 1) = 5\nr0 = *(u8 *)(r2 + 0)\n\
     r5 = *(u64 *)(r6 + 24)\nif r5 == 0 goto end\nr0 = *(u32 *)(r5 + 0)\nend:\nexit",
    // An array behind a pointer, at an index of the run.
    "r2 = *(u64 *)(r1 + 56)\nr3 = *(u32 *)(r1 + 0)\nr3 &= 15\nr2 += r3\nr0 = *(u8 *)(r2 + 0)\n*(u8 *)(r2 + 0) = 1\nexit",
    // Bytes as the argument of the type's function, and as a value to store.
    "r6 = r1\nr2 = *(u64 *)(r6 + 16)\nr7 = *(u64 *)(r6 + 24)\nr4 = r2\nr4 += 8\nr0 = 0\nif r4 > r7 goto end\nr8 = r2\nr1 = r6\nr3 = 8\n\
     call 0x20000000\nr9 = r0\n*(u32 *)(r10 - 4) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\nr3 = r8\nr4 = 0\n\
     call map_update_elem#2\nr0 = r9\nend:\nexit",
];

/// Result and all that a run may change: number, first slice, inner structure, table, what the function heard.
type Left = (u32, u64, Vec<u8>, Option<(u16, Vec<u8>)>, [u8; 16], Vec<u8>);

fn run(number: u32, length: usize, inner: bool, run: impl FnOnce(&mut Probe<'_>) -> u32) -> Left {
    let bytes: Vec<u8> = (0..length as u8).map(|at| at.wrapping_mul(37)).collect();
    let (mut second, mut behind, mut table) = (bytes.clone(), bytes.clone(), [4; 16]);
    let array = [1, 2, 3, 4];
    let found = length.is_multiple_of(2).then_some(&array);
    let mut value = Inner { number: 5, bytes: &mut behind, table: found };
    // The structure's borrow is as long as its bytes'.
    let (result, out, heard) = {
        let mut probe = Probe {
            number,
            out: 1,
            first: &bytes,
            second: &mut second,
            inner: inner.then_some(&mut value),
            table: &mut table,
            wide: std::array::from_fn(|at| at as u64),
            heard: vec![0xee],
        };
        let result = run(&mut probe);
        (result, probe.out, probe.heard)
    };
    let left = inner.then_some(()).map(|()| behind.clone());
    (result, out, second, left.map(|bytes| (0, bytes)), table, heard)
}

fn program(text: &str) -> TypedProgram<Probe<'static>> {
    let runtime = Runtime::builder().cpus(4).method::<Probe<'_>, _, _>("hear", hear).build().unwrap();
    let insns = encode_bytes(&assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap();
    let kind = HostType::of::<Probe<'_>>().unwrap().program_type();
    let maps = [MapDef::new("cells", MapKind::Array, 4, 8, 1)];
    let object = Object::from_bytecode_and_maps("probe", kind, &insns, maps).unwrap();
    let module = runtime.load(&object).unwrap_or_else(|error| panic!("{error}\n{text}"));
    module.typed::<Probe<'_>>("probe").unwrap()
}

#[test]
fn engines_agree_over_contexts_of_the_host_and_the_checks_find_nothing() {
    for text in PROGRAMS {
        let program = program(text);
        let mut results = std::collections::BTreeSet::new();
        for length in [0, 1, 2, 3, 5, 8, 19, 40] {
            for (number, inner) in [(3, true), (0xffff_fff9, false)] {
                let compiled = run(number, length, inner, |probe| program.run(probe).unwrap());
                let interpreted =
                    run(number, length, inner, |probe| program.run_with(Engine::Interpreter, probe).unwrap());
                let checked = run(number, length, inner, |probe| match program.run_checked(probe) {
                    Ok(result) => result,
                    Err(CheckedRun::Violation(violation)) => panic!("{violation}\n{text}"),
                    Err(CheckedRun::Error(error)) => panic!("{error}\n{text}"),
                });
                assert_eq!(compiled, interpreted, "{text}");
                assert_eq!(compiled, checked, "{text}");
                results.insert(compiled);
            }
        }
        assert!(results.len() > 1, "the context makes no difference to\n{text}");
    }
}
