//! Torn or stale: a thread calls a function while another pokes its branch.
//!
//! ```text
//!   poker   started = n | pokes | barrier | finished = n |  a while of nothing  | started = n + 1 ...
//!   caller       before = finished | call | after = started
//! ```
//!
//! *Torn* is a call that came out anywhere but at one of the two targets. *Stale* is a call during which no batch was
//! under way (`before` equals `after`) and which nevertheless came out elsewhere than the batch had sent it: all such
//! calls are judged, and the poker leaves a while between batches, of changing length, so that there are many. A batch
//! pokes the branch to and fro a changing number of times, so that calls meet as many pokes as barriers allow.

use super::site::{Site, VALUES};
use crate::Result;
use crate::random::Random;
use crate::timing::beside;
use serde_json::{Value, json};
use skep_text::Arena;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A batch makes at most twice as many pokes.
const MOST: usize = 64;

/// Makes that many calls against pokes.
pub(super) fn run(arena: &Arena, backing: &str, calls: u64) -> Result<Value> {
    let site = Site::large(arena)?;
    let started = AtomicU64::new(0);
    let finished = AtomicU64::new(0);
    let clock = Instant::now();
    let poker = |go: &dyn Fn() -> bool| {
        let mut random = Random(1);
        let (mut number, mut made) = (0u64, 0u64);
        while go() {
            number += 1;
            // Before the poke: a caller that came out where it leads finds this number. Pairs with `after`.
            started.store(number, Ordering::SeqCst);
            let mut pokes = arena.pokes()?;
            let times = 1 + 2 * random.below(MOST) as u64;
            for time in 0..times {
                // An odd number of times, so that the last one is the batch's own.
                site.poke(&mut pokes, ((number + time) % 2) as usize)?;
            }
            made += times;
            pokes.finish()?;
            // After the barrier: a caller that finds this number must see the poke. Pairs with `before`.
            finished.store(number, Ordering::SeqCst);
            for _ in 0..random.below(256) {
                std::hint::spin_loop();
            }
        }
        Ok((made, number))
    };
    // The calls begin after the first batch: before it there is nothing to meet.
    let ((pokes, batches), (judged, torn, stale)) =
        beside(poker, || Ok(call(&site, calls, &started, &finished)))?;
    Ok(json!({
        "backing": backing, "calls": calls,
        // Calls with no batch under way: exactly one result is right.
        "judged": judged,
        // Pokes made meanwhile, and the batches that they were made in, each finished by a barrier.
        "pokes": pokes, "batches": batches,
        // Calls that led to neither target, and calls that led where an older batch had sent them. Both must be 0.
        "torn": torn, "stale": stale,
        "seconds": clock.elapsed().as_secs_f64(),
    }))
}

/// Calls judged, torn and stale.
fn call(site: &Site, calls: u64, started: &AtomicU64, finished: &AtomicU64) -> (u64, u64, u64) {
    let (mut judged, mut torn, mut stale) = (0, 0, 0);
    for _ in 0..calls {
        let before = finished.load(Ordering::SeqCst);
        let result = site.call();
        let after = started.load(Ordering::SeqCst);
        torn += u64::from(!VALUES.contains(&result));
        if before == after {
            judged += 1;
            stale += u64::from(result != VALUES[(before % 2) as usize] && VALUES.contains(&result));
        }
    }
    (judged, torn, stale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_text::Config;

    #[test]
    fn calls_against_pokes_are_never_torn_nor_stale() {
        let arena = Arena::new(Config::new()).unwrap();
        let check = run(&arena, "default", 300_000).unwrap();
        assert_eq!((&check["torn"], &check["stale"]), (&0.into(), &0.into()));
        let count = |key: &str| check[key].as_u64().unwrap();
        assert!(count("pokes") >= count("batches") && count("batches") > 0);
    }

    #[test]
    fn a_call_that_comes_out_elsewhere_than_it_was_sent_is_counted() {
        let arena = Arena::new(Config::new()).unwrap();
        let site = Site::large(&arena).unwrap();
        // The site is in its first state; a batch that would have sent it to the second counts as finished.
        let (before, after) = (AtomicU64::new(1), AtomicU64::new(1));
        assert_eq!(call(&site, 10, &after, &before), (10, 0, 10));
        // While one is under way both are right.
        assert_eq!(call(&site, 10, &AtomicU64::new(2), &before), (0, 0, 0));
    }
}
