//! Kernel functions with arguments, and violations with iterators that a broken verifier could accept.

use super::*;
use crate::watch::Checking;
use crate::{Reason, Regions, Violation};
use skep_abi::{HelperFn, OWN_KFUNCS, own_kfunc_number};
use skep_isa::assemble;

/// An iterator over 5, 4, 3, 2, 1; the number is in its lower half.
unsafe extern "C" fn down_new(it: u64, a: u64, b: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the program passes eight bytes of its stack.
    unsafe { (it as *mut u64).write(6) };
    a * 10 + b
}

unsafe extern "C" fn down_next(it: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    let left = unsafe { &mut *(it as *mut u64) };
    *left -= 1;
    if *left > 0 { it } else { 0 }
}

unsafe extern "C" fn down_destroy(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0xbad
}

fn linkage() -> Linkage {
    let functions: [(&str, HelperFn); 3] = [
        ("bpf_iter_num_new", down_new),
        ("bpf_iter_num_next", down_next),
        ("bpf_iter_num_destroy", down_destroy),
    ];
    let functions = functions.map(|(name, call)| (own_kfunc_number(name).unwrap(), call));
    Linkage { functions: functions.into(), ..Linkage::default() }
}

/// `new 8`, `next 8` and `destroy 8` call the functions with the iterator at `r10 - 8`.
fn program(text: &str, functions: &[u32]) -> Parts {
    let mut insns = String::new();
    for line in text.lines() {
        let (label, rest) = line.split_once(':').map_or(("", line), |(label, rest)| (label, rest));
        let mut words = rest.split_whitespace();
        let own = words.next().and_then(|word| own_kfunc_number(&format!("bpf_iter_num_{word}")));
        if !label.is_empty() {
            insns += &format!("{label}:\n");
        }
        insns += &match (own, words.next()) {
            (Some(number), Some(at)) => format!("r1 = r10\nr1 += -{at}\ncall kfunc[{number}]\n"),
            _ => format!("{rest}\n"),
        };
    }
    let insns = assemble(&insns).unwrap_or_else(|error| panic!("{error}\n{insns}"));
    let ends = functions.iter().skip(1).copied().chain([insns.len() as u32]);
    let functions = functions.iter().zip(ends).map(|(start, end)| function("f", *start, end)).collect();
    Parts { functions, ..parts(&insns) }
}

fn checked(parts: &Parts) -> Result<u64, Violation> {
    let code = Code::new(parts.clone(), &linkage()).unwrap();
    let none = |_| None;
    let regions = Regions::new(&none).with_fuel(1000);
    let mut env = RunEnv::default();
    let mut watch = Checking::new(&code, 0, 0, &regions);
    // SAFETY: the watch allows only accesses to the stack.
    unsafe { exec::run(&code, 0, 0, &mut env, &mut watch) }
}

fn reason(text: &str) -> Reason {
    checked(&program(text, &[0])).expect_err(text).reason
}

const SUM: &str = "r6 = 0
    r2 = 3
    r3 = 7
    new 8
    r7 = r0
    again:
    next 8
    if r0 == 0 goto out
    r1 = *(u32 *)(r0 + 0)
    r6 += r1
    goto again
    out:
    destroy 8
    r0 = r6
    r0 *= 1000
    r0 += r7
    exit";

#[test]
fn functions_get_their_arguments_and_give_their_results() {
    let program = program(SUM, &[0]);
    assert_eq!(run(&program, &linkage(), 0, 0), 15_037);
    assert_eq!(checked(&program), Ok(15_037));
}

#[test]
fn parameters_must_be_initialised_and_calls_clobber_registers() {
    assert_eq!(reason("r2 = 3\nnew 8\nexit"), Reason::UninitialisedRegister(R::R3));
    assert_eq!(reason("r2 = 3\nr3 = 4\nnew 8\nr0 = r2\nexit"), Reason::UninitialisedRegister(R::R2));
    // `destroy` returns nothing.
    assert_eq!(reason("r2 = 3\nr3 = 4\nnew 8\ndestroy 8\nexit"), Reason::UninitialisedRegister(R::R0));
}

#[test]
fn only_its_functions_access_the_bytes_of_an_iterator() {
    let made =
        |rest: &str| reason(&format!("*(u64 *)(r10 - 8) = 0\nr2 = 3\nr3 = 4\nnew 8\n{rest}\nr0 = 0\nexit"));
    for rest in ["r1 = *(u32 *)(r10 - 8)", "*(u8 *)(r10 - 1) = 0", "*(u64 *)(r10 - 12) = 0"] {
        assert!(matches!(made(rest), Reason::Iterator(_)), "{rest}");
    }
    // An element may be read but not written, and only if `next` returned it.
    let found = "next 8\nif r0 == 0 goto out\n";
    for rest in ["*(u32 *)(r0 + 0) = 1", "r1 = *(u32 *)(r0 + 4)", "r1 = *(u64 *)(r0 + 0)"] {
        assert!(matches!(made(&format!("{found}{rest}\nout:")), Reason::Iterator(_)), "{rest}");
    }
    // After `destroy` the bytes are stack again, and uninitialised.
    let rest = "next 8\nr6 = r0\ndestroy 8\nr1 = *(u32 *)(r6 + 0)";
    assert!(matches!(made(rest), Reason::UninitialisedStack(_)));
    assert!(matches!(made("destroy 8\nr1 = *(u8 *)(r10 - 1)"), Reason::UninitialisedStack(_)));
}

#[test]
fn functions_receive_live_iterators_of_their_kind() {
    let argument = |text: &str| {
        let reason = reason(text);
        assert!(matches!(reason, Reason::Argument { number: 1, .. }), "{text}: {reason:?}");
    };
    argument("next 8\nr0 = 0\nexit");
    argument("destroy 8\nr0 = 0\nexit");
    let new = "r2 = 3\nr3 = 4\nnew";
    argument(&format!("{new} 8\nnext 16\nr0 = 0\nexit"));
    argument(&format!("{new} 8\ndestroy 8\nnext 8\nr0 = 0\nexit"));
    argument(&format!("{new} 8\n{new} 8\nr0 = 0\nexit"));
    argument(&format!("{new} 12\nr0 = 0\nexit"));
    argument(&format!("{new} 520\nr0 = 0\nexit"));
}

#[test]
fn iterators_are_destroyed_before_the_function_ends() {
    let new = "r2 = 3\nr3 = 4\nnew 8\n";
    assert!(matches!(reason(&format!("{new}r0 = 0\nexit")), Reason::IteratorLeft { .. }));
    // A called function may use its caller's iterator, but must destroy its own.
    let text = |own: &str| format!("{new}r6 = r10\ncall f\ndestroy 8\nr0 = 0\nexit\nf:\n{own}r0 = 0\nexit");
    let with = |own: &str| {
        let text = text(own);
        let function = assemble_len(&text);
        checked(&program(&text, &[0, function]))
    };
    assert_eq!(with(&format!("{new}destroy 8\n")), Ok(0));
    assert!(matches!(with(new), Err(Violation { reason: Reason::IteratorLeft { .. }, .. })));
}

/// The start slot of the function after the first `exit`.
fn assemble_len(text: &str) -> u32 {
    let end = text.find("exit\n").expect("an exit") + "exit\n".len();
    let calls = ["new", "next", "destroy"];
    let lines = text[..end].lines();
    lines.map(|line| if calls.iter().any(|call| line.starts_with(call)) { 3 } else { 1 }).sum()
}

#[test]
fn every_kernel_function_of_the_table_is_known_to_the_checks() {
    // Checking mode would ignore parameters of a kind that it does not know.
    for own in &OWN_KFUNCS {
        for param in own.params {
            use skep_abi::OwnParam as P;
            let known =
                matches!(param, P::Number | P::Iterator(_) | P::Ignored | P::Type | P::Owned | P::Counted)
                    || matches!(param, P::List | P::Tree | P::Node | P::Less | P::Mask | P::Machine(_))
                    || matches!(param, P::Context | P::Dynptr | P::Buffer | P::Size)
                    || matches!(param, P::Work | P::Later | P::Words { .. } | P::Count | P::Out(_) | P::Map);
            assert!(known, "{}", own.name);
        }
    }
}
