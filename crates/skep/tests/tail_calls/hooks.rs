//! Programs that are attached, replaced and detached while threads run them.

use crate::kit::{BYTES, Kit, returns, to};
use skep::{Hook, Program};
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

fn results(hook: &Hook) -> Vec<u64> {
    let mut results = Vec::new();
    let each = |_: &Program, result| {
        results.push(result);
        ControlFlow::Continue(())
    };
    hook.run_raw(&mut [0; BYTES], each).unwrap();
    results
}

#[test]
fn programs_run_in_order_of_attachment_until_one_stops() {
    let kit = Kit::new(1);
    let hook = kit.runtime.hook();
    let links: Vec<_> =
        (0..4).map(|number| hook.attach(&kit.load("any", &returns(number))).unwrap()).collect();
    assert_eq!(results(&hook), [0, 1, 2, 3]);
    let mut first = Vec::new();
    let each = |program: &Program, result| {
        first.push((program.name().to_owned(), result));
        if result == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    hook.run_raw(&mut [0; BYTES], each).unwrap();
    assert_eq!(first, [("any".to_owned(), 0), ("any".to_owned(), 1)]);
    let old = links[2].replace(&kit.load("new", &returns(22))).unwrap();
    assert_eq!((results(&hook), old.name()), (vec![0, 1, 22, 3], "any"));
    drop(links);
    assert!(results(&hook).is_empty() && hook.programs().unwrap().is_empty());
}

#[test]
fn programs_that_do_not_fit_are_refused() {
    let kit = Kit::new(1);
    let hook = kit.runtime.hook();
    let link = hook.attach(&kit.load("one", &returns(1))).unwrap();
    let foreign = Kit::new(1).load("foreign", &returns(1));
    let error = link.replace(&foreign).unwrap_err().to_string();
    assert!(error.contains("foreign") && error.contains("different runtimes"), "{error}");
    let def = skep::abi::MapDef::new("programs", skep::abi::MapKind::ProgArray, 4, 4, 1);
    let shorter = kit.runtime.linker(&crate::kit::object("short", &returns(1), &def)).buffer_len(8).load();
    let error = hook.attach(&shorter.unwrap().programs()[0]).unwrap_err().to_string();
    assert!(error.contains("short") && error.contains("64 bytes") && error.contains("8 bytes"), "{error}");
    assert_eq!(results(&hook), [1]);
}

#[test]
fn replacing_under_load_neither_skips_nor_repeats_a_program() {
    let kit = Kit::new(1);
    let hook = kit.runtime.hook();
    // Two links are replaced in turn: each run meets both, once.
    let programs: Vec<_> =
        (0..4).map(|number| kit.load("any", &format!("{}r0 = {number}\nexit", to(0)))).collect();
    let links = [hook.attach(&programs[0]).unwrap(), hook.attach(&programs[2]).unwrap()];
    let (over, begun) = (AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            results(&hook);
            begun.wait();
            let mut runs = 0;
            while !over.load(Ordering::Relaxed) {
                let results = results(&hook);
                assert!(results.len() == 2 && results[0] < 2 && results[1] >= 2, "{results:?}");
                runs += 1;
            }
            runs
        });
        begun.wait();
        for round in 0..3000 {
            links[0].replace(&programs[round % 2]).unwrap();
            links[1].replace(&programs[2 + round / 2 % 2]).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        println!("{} runs beside 6000 replacements", runs.join().unwrap());
    });
    links[0].replace(&programs[1]).unwrap();
    links[1].replace(&programs[3]).unwrap();
    kit.runtime.synchronize().unwrap();
    assert_eq!(results(&hook), [1, 3]);
}

#[test]
fn after_synchronize_no_thread_is_in_the_old_program() {
    static INSIDE: AtomicBool = AtomicBool::new(false);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    fn stay(_: skep::function::Caller<'_>) -> u32 {
        INSIDE.store(true, Ordering::SeqCst);
        while !GO_ON.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        INSIDE.store(false, Ordering::SeqCst);
        0
    }
    let kit = Kit::with(skep::Runtime::builder().function(1000, "stay", stay), 1);
    let hook = kit.runtime.hook();
    let link = hook.attach(&kit.load("old", "call 1000\nr0 = 1\nexit")).unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| results(&hook));
        while !INSIDE.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        link.replace(&kit.load("new", &returns(2))).unwrap();
        assert_eq!(results(&hook), [2], "the new one runs while a thread is in the old one");
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            GO_ON.store(true, Ordering::SeqCst);
        });
        kit.runtime.synchronize().unwrap();
        assert!(!INSIDE.load(Ordering::SeqCst));
        assert_eq!(run.join().unwrap(), [1]);
    });
}
