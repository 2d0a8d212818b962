//! Iterators over numbers, in both engines: programs in C compared with a model of the iterator, and edge cases in
//! assembler. Checking mode runs the same object (`src/checking.rs`).

use skep::abi::{MAX_LOOPS, RAW, own_kfunc_number};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Module, Object, Packet, Runtime};

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
const OBJECT: &[u8] = include_bytes!("../objects/iterators/iterators.bpf.o");

const EINVAL: i32 = -22;
const E2BIG: i32 = -7;

/// Parameters of a program.
#[derive(Clone, Copy, Debug)]
struct Given {
    first: i32,
    end: i32,
    stop: i32,
}

const GIVEN: [Given; 9] = [
    Given { first: 0, end: 10, stop: -1 },
    Given { first: 0, end: 10, stop: 4 },
    Given { first: -3, end: 7, stop: 5 },
    Given { first: 5, end: 5, stop: 0 },
    Given { first: 6, end: 5, stop: 0 },
    Given { first: 0, end: 1, stop: 0 },
    Given { first: 0, end: i32::MAX, stop: 3 },
    Given { first: i32::MIN, end: i32::MIN + 4, stop: 1 },
    Given { first: i32::MAX - 3, end: i32::MAX, stop: 9 },
];

/// Results of a program: `sum`, `rounds`, `error`.
type Done = (i64, u64, i32);

/// The numbers of an iterator, as Linux documents it.
fn numbers(first: i32, end: i32) -> Result<std::ops::Range<i64>, i32> {
    let (first, end) = (i64::from(first), i64::from(end));
    match end - first {
        count if count < 0 => Err(EINVAL),
        count if count > i64::from(MAX_LOOPS) => Err(E2BIG),
        _ => Ok(first..end),
    }
}

/// A failed iterator gives no numbers.
fn each(first: i32, end: i32) -> std::ops::Range<i64> {
    numbers(first, end).unwrap_or(0..0)
}

fn model(program: &str, Given { first, end, stop }: Given) -> Done {
    let stop = i64::from(stop);
    let (mut sum, mut rounds, mut error) = (0i64, 0, 0);
    match program {
        "sums" => {
            error = numbers(first, end).err().unwrap_or(0);
            each(first, end).for_each(|i| (sum, rounds) = (sum + i, rounds + 1));
        }
        "stops" => {
            for i in each(first, end) {
                rounds += 1;
                if i == stop {
                    break;
                }
                sum += i;
            }
        }
        "nested" => {
            for i in each(first, end) {
                for j in each(0, i as i32).take_while(|j| *j != stop) {
                    (sum, rounds) =
                        (sum + i64::from((i as i32).wrapping_mul(100).wrapping_add(j as i32)), rounds + 1);
                }
            }
        }
        "in_functions" => {
            for i in each(first, end) {
                (sum, rounds) = (sum + each(0, i as i32).sum::<i64>(), rounds + 1);
            }
        }
        "by_a_function" => {
            let mut each = each(first, end);
            let mut take = || each.next().unwrap_or(-1) as i32;
            let (one, other) = (take(), take());
            sum = i64::from(one) + i64::from(other.wrapping_mul(1000));
        }
        "in_callbacks" => {
            for i in 0..2 {
                for index in 0..(end & 15) + i {
                    for i in each(0, index).take_while(|i| *i != stop) {
                        (sum, rounds) = (sum + i, rounds + 1);
                    }
                }
            }
        }
        other => unreachable!("no model of {other}"),
    }
    (sum, rounds, error)
}

fn variable<const N: usize>(module: &Module, name: &str) -> [u8; N] {
    module.variable(name).unwrap().try_into().unwrap()
}

fn run(program: &str, given: Given, engine: Engine) -> Done {
    let object = Object::parse(OBJECT).unwrap();
    let runtime = Runtime::new().unwrap();
    let module = runtime
        .linker(&object)
        .variable("first", &given.first.to_ne_bytes())
        .variable("end", &given.end.to_ne_bytes())
        .variable("stop", &given.stop.to_ne_bytes())
        .load()
        .unwrap();
    let result = module.program(program).unwrap().run_with(engine, &mut Packet::new(&[0; 64])).unwrap();
    assert_eq!(result, 2, "{program}");
    let (sum, rounds) = (variable(&module, "sum"), variable(&module, "rounds"));
    let error = i32::from_ne_bytes(variable(&module, "error"));
    (i64::from_ne_bytes(sum), u64::from_ne_bytes(rounds), error)
}

#[test]
fn programs_see_the_same_numbers_as_the_model() {
    for program in ["sums", "stops", "nested", "in_functions", "by_a_function", "in_callbacks"] {
        for given in GIVEN {
            // The nested iterator goes from 0 to each number.
            let long = given.end > 1000 && ["nested", "in_functions"].contains(&program);
            if long && !each(given.first, given.end).is_empty() {
                continue;
            }
            for engine in ENGINES {
                let done = run(program, given, engine);
                assert_eq!(done, model(program, given), "{program}, {given:?}, {engine:?}");
            }
        }
    }
}

/// A program over a buffer of eight bytes.
fn raw(text: &str) -> Module {
    let mut text = text.to_owned();
    for name in ["new", "next", "destroy"] {
        let call = format!("call kfunc[{}]", own_kfunc_number(&format!("bpf_iter_num_{name}")).unwrap());
        text = text.replace(&format!("call {name}"), &call);
    }
    let bytes = encode_bytes(&assemble(&text).unwrap()).unwrap();
    let object = Object::from_bytecode("program", &RAW, &bytes).unwrap();
    Runtime::new().unwrap().linker(&object).buffer_len(8).load().unwrap()
}

fn result(module: &Module, engine: Engine, buffer: u64) -> u64 {
    module.programs()[0].run_raw_with(engine, &mut buffer.to_ne_bytes()).unwrap()
}

#[test]
fn a_call_preserves_callee_saved_registers_and_other_stack() {
    let module = raw("
        r6 = 6
        r7 = 7
        r8 = 8
        r9 = *(u64 *)(r1 + 0)
        *(u64 *)(r10 - 8) = 11
        *(u64 *)(r10 - 24) = 13
        r1 = r10
        r1 += -16
        r2 = 3
        r3 = 5
        call new
        if r0 != 0 goto out
        r1 = r10
        r1 += -16
        call next
        if r0 == 0 goto out
        r2 = *(s32 *)(r0 + 0)
        r9 += r2
        r1 = r10
        r1 += -16
        call next
        if r0 == 0 goto out
        r2 = *(s32 *)(r0 + 0)
        r9 *= 10
        r9 += r2
   out: r1 = r10
        r1 += -16
        call destroy
        r0 = *(u64 *)(r10 - 8)
        r2 = *(u64 *)(r10 - 24)
        r0 *= r2
        r0 += r6
        r0 += r7
        r0 += r8
        r0 += r9
        exit");
    for engine in ENGINES {
        for given in [0, 1000] {
            assert_eq!(result(&module, engine, given), 11 * 13 + 21 + (given + 3) * 10 + 4, "{engine:?}");
        }
    }
}

#[test]
fn an_iterators_error_is_negative_in_all_64_bits() {
    // The bounds are the halves of the buffer.
    let module = raw("
        r2 = *(s32 *)(r1 + 0)
        r3 = *(s32 *)(r1 + 4)
        r1 = r10
        r1 += -8
        call new
        r6 = r0
        r1 = r10
        r1 += -8
        call destroy
        r0 = r6
        exit");
    for (first, end) in [(1, 0), (0, 0), (0, MAX_LOOPS as i32), (-1, MAX_LOOPS as i32), (i32::MIN, i32::MAX)]
    {
        let buffer = u64::from(first as u32) | u64::from(end as u32) << 32;
        let expected = numbers(first, end).err().unwrap_or(0);
        for engine in ENGINES {
            assert_eq!(
                result(&module, engine, buffer) as i64,
                i64::from(expected),
                "{first} to {end}, {engine:?}"
            );
        }
    }
}

#[test]
fn the_longest_iterator_gives_all_numbers_in_order() {
    let module = raw("
        r6 = 0
        r7 = 0
        r1 = r10
        r1 += -8
        r2 = 0
        r3 = 8388608
        call new
 again: r1 = r10
        r1 += -8
        call next
        if r0 == 0 goto out
        r1 = *(u32 *)(r0 + 0)
        r1 ^= r6
        r7 |= r1
        r6 += 1
        goto again
   out: r1 = r10
        r1 += -8
        call destroy
        r0 = r7
        r0 <<= 32
        r0 |= r6
        exit");
    assert_eq!(result(&module, Engine::Jit, 0), u64::from(MAX_LOOPS));
}
