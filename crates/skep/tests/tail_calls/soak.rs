//! Threads run chains while others install, replace and remove programs as fast as they can.
//!
//! ```text
//!   main --0--> element 0 --1--> element 1 --2--> element 2 --> ...       each adds its digit to the result in the buffer
//! ```
//!
//! A result shows the path of a run. Legal paths have, in each element, a program that was in it at some time, or
//! nothing; then the run ends there with its result so far. A frame unwound without a jump, a stub or program
//! reclaimed during a run, or a half-replaced branch would crash, or leave a digit that no program writes.

use crate::kit::{BYTES, Kit, to};
use skep::{Engine, Program};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Elements of the chain.
const ELEMENTS: u32 = 6;
/// Programs for each element.
const CHOICES: u32 = 3;

/// Writes `1 + choice` into the byte of its element and makes the next tail call; if the choice is odd, from a
/// subprogram with a stack and live registers. The result must be what the next program returned, or the mark of
/// its own end.
fn link(element: u32, choice: u32) -> String {
    let mark = 1 + choice;
    let own = 1000 + 10 * element + choice;
    let next = to(element + 1);
    if choice.is_multiple_of(2) {
        return format!("*(u8 *)(r1 + {element}) = {mark}\n{next}r0 = {own}\nexit");
    }
    format!(
        "*(u8 *)(r1 + {element}) = {mark}
         r6 = 11
         r7 = 12
         r8 = 13
         r9 = 14
         *(u64 *)(r10 - 8) = {own}
         call inner
         if r6 != 11 goto bad
         if r7 != 12 goto bad
         if r8 != 13 goto bad
         if r9 != 14 goto bad
         r1 = *(u64 *)(r10 - 8)
         if r1 != {own} goto bad
         exit
         bad:
         r0 = -1
         exit
         inner:
         r6 = -1
         r7 = -1
         r8 = -1
         r9 = -1
         *(u64 *)(r10 - 8) = 77
         {next}r0 = {own}
         exit"
    )
}

/// Whether some legal order explains a run: a prefix of the elements has marks, the result is that of the last of
/// them, and nothing after it was touched.
fn is_explained(result: u64, buffer: &[u8; BYTES]) -> bool {
    let marks = &buffer[..ELEMENTS as usize];
    let run = marks.iter().take_while(|mark| **mark != 0).count();
    let known = marks[..run].iter().all(|mark| u32::from(*mark) <= CHOICES);
    let rest = buffer[run..].iter().all(|byte| *byte == 0);
    let expected = match run {
        0 => 7,
        run => 1000 + 10 * (run as u64 - 1) + u64::from(marks[run - 1]) - 1,
    };
    known && rest && result == expected
}

fn soak(kit: &Kit, engine: Engine, time: Duration) -> (u64, u64) {
    let main = kit.load("main", &format!("{}r0 = 7\nexit", to(0)));
    let programs: Vec<Vec<Program>> = (0..ELEMENTS)
        .map(|element| (0..CHOICES).map(|choice| kit.load("link", &link(element, choice))).collect())
        .collect();
    let over = AtomicBool::new(false);
    let (runs, updates) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    let mut buffer = [0; BYTES];
                    let result = main.run_raw_with(engine, &mut buffer).unwrap();
                    assert!(is_explained(result, &buffer), "{result} and {buffer:?}");
                    count += 1;
                }
                runs.fetch_add(count, Ordering::Relaxed);
            });
        }
        for seed in 1..=2u64 {
            let (programs, over, updates) = (&programs, &over, &updates);
            scope.spawn(move || {
                let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed);
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let element = (random >> 8) as u32 % ELEMENTS;
                    match (random >> 32) as u32 % (CHOICES + 1) {
                        CHOICES => drop(kit.array.remove(element).unwrap()),
                        choice => {
                            let program = &programs[element as usize][choice as usize];
                            kit.array.set(element, program).unwrap();
                        }
                    }
                    count += 1;
                    // Other threads load and drop programs meanwhile: their sites appear and disappear.
                    if count % 64 == 0 {
                        let late = kit.load("late", &format!("{}r0 = 7\nexit", to(0)));
                        let mut buffer = [0; BYTES];
                        let result = late.run_raw_with(engine, &mut buffer).unwrap();
                        assert!(is_explained(result, &buffer), "{result} and {buffer:?}");
                    }
                }
                updates.fetch_add(count, Ordering::Relaxed);
            });
        }
        let start = Instant::now();
        while start.elapsed() < time {
            std::thread::sleep(Duration::from_millis(10));
            let waiting = kit.runtime.occupancy().waiting_bytes;
            assert!(waiting <= 64 << 20, "{waiting} bytes of stubs wait");
        }
        over.store(true, Ordering::Relaxed);
    });
    (runs.into_inner(), updates.into_inner())
}

/// Duration of each soak; `SKEP_SOAK` sets the seconds.
fn time() -> Duration {
    let seconds = std::env::var("SKEP_SOAK").ok().and_then(|seconds| seconds.parse().ok());
    seconds.map_or(Duration::from_millis(700), Duration::from_secs)
}

#[test]
fn some_order_explains_every_result() {
    let kits = [(Kit::new(8), Engine::Jit), (Kit::fixed(8), Engine::Jit), (Kit::new(8), Engine::Interpreter)];
    for (kit, engine) in kits {
        let before = crate::lifetime::settled(&kit.runtime);
        let (runs, updates) = soak(&kit, engine, time());
        println!("{engine:?}: {runs} runs, {updates} updates");
        assert!(runs > 100 && updates > 100, "{engine:?}: {runs} runs, {updates} updates");
        for element in 0..ELEMENTS {
            kit.array.remove(element).unwrap();
        }
        assert_eq!(crate::lifetime::settled(&kit.runtime), before, "{engine:?}: something stayed");
    }
}
