//! Calls: their order, the code that runs between them, and their time.
//!
//! A *turn* is a list of places to call, thousands of them, fixed beforehand: the loop that is timed reads the
//! next address and calls it, like a host that runs hooks. A turn in random order is made of several
//! permutations of all programs, one after the other, and every layout gets the same; a predictor of branches cannot
//! learn that, nor can a prefetcher. Between the calls there may be a walk through the *footprint*: small native
//! functions on pages of their own, many more of them than a first-level TLB has entries, called in a random order of
//! their own that goes on where the last walk ended. It models the rest of a large process.
//!
//! Before a turn is timed it is made once untimed, so that it replaces the cache contents of other layouts.

use super::layout::{self, Layout, Placed};
use super::programs::{self, buffer};
use crate::Result;
use crate::random::Random;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Functions of the footprint, each on a page of its own: twice as many as the second level of Zen's instruction TLB
/// has entries. With just as many, whether they fit would be a matter of luck with their physical addresses.
pub(crate) const FOOTPRINT_PAGES: usize = 1024;
/// The same with `--quick`: an emulator needs a second or two to list a thousand mappings.
pub(crate) const QUICK_FOOTPRINT_PAGES: usize = 128;
/// How many of them are called between two programs.
pub(crate) const STEPS: usize = 4;
/// Calls in a turn, at least.
const TURN: usize = 2048;
/// A turn that makes fewer rounds than this through the programs is made of several.
const TURNS: usize = 4;

/// The order of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    Random,
    RoundRobin,
}

/// Indices of programs in the order of their calls, several turns of them.
pub(crate) fn turns(programs: usize, order: Order) -> Vec<Vec<u32>> {
    let rounds = TURN.div_ceil(programs);
    let mut random = Random(programs as u64);
    let mut all: Vec<u32> = (0..programs as u32).collect();
    let mut turn = || {
        let mut calls = Vec::with_capacity(rounds * programs);
        for _ in 0..rounds {
            if order == Order::Random {
                random.shuffle(&mut all);
            }
            calls.extend_from_slice(&all);
        }
        calls
    };
    match order {
        Order::Random => (0..TURNS).map(|_| turn()).collect(),
        Order::RoundRobin => vec![turn()],
    }
}

/// A large native footprint, and the empty program.
pub(crate) struct Footprint {
    _functions: Placed,
    _empty: Placed,
    /// Addresses of the functions in the order of the walk.
    walk: Vec<usize>,
    empty: usize,
}

impl Footprint {
    /// # Errors
    ///
    /// What the system or the runtime refuses.
    pub(crate) fn new(pages: usize) -> Result<Self> {
        let codes = programs::compile(pages, 100)?;
        let functions = layout::place(&codes, Layout::Coloured, 0)?;
        let empty = layout::place(&[programs::empty()?], Layout::Page, 0)?;
        let mut random = Random(1024);
        let mut walk = Vec::new();
        for _ in 0..8 {
            let mut once = functions.addresses.clone();
            random.shuffle(&mut once);
            walk.append(&mut once);
        }
        Ok(Self { walk, empty: empty.addresses[0], _functions: functions, _empty: empty })
    }
}

/// One layout at one placement, ready to be timed: best times so far.
pub(crate) struct Runner {
    pub(crate) placed: Placed,
    /// Nanoseconds a call, by turn.
    best: Vec<f64>,
}

impl Runner {
    pub(crate) fn new(placed: Placed, turns: usize) -> Self {
        Self { placed, best: vec![f64::INFINITY; turns] }
    }

    /// Times a turn and keeps the time if it is the best.
    pub(crate) fn turn(&mut self, number: usize, calls: &[u32], footprint: Option<&Footprint>) {
        self.best[number] = self.best[number].min(timed(&self.addresses(calls), footprint));
    }

    /// The mean over turns of the best time of each, nanoseconds a call.
    pub(crate) fn ns(&self) -> f64 {
        // Fewer rounds than turns leave some turns out.
        let made = self.best.iter().filter(|best| best.is_finite());
        made.clone().sum::<f64>() / made.count() as f64
    }

    /// Makes a turn for its effects only.
    pub(crate) fn walk(&self, calls: &[u32], footprint: Option<&Footprint>) {
        once(&self.addresses(calls), footprint);
    }

    fn addresses(&self, calls: &[u32]) -> Vec<usize> {
        calls.iter().map(|&index| self.placed.addresses[index as usize]).collect()
    }
}

/// Nanoseconds a call of the same walks with the empty program instead of all others.
pub(crate) fn without_programs(calls: usize, footprint: &Footprint) -> f64 {
    timed(&vec![footprint.empty; calls], Some(footprint))
}

fn timed(addresses: &[usize], footprint: Option<&Footprint>) -> f64 {
    once(addresses, footprint);
    once(addresses, footprint).as_nanos() as f64 / addresses.len() as f64
}

fn once(addresses: &[usize], footprint: Option<&Footprint>) -> Duration {
    let mut memory = buffer();
    let memory = memory.as_mut_ptr() as u64;
    let mut sum = 0u64;
    let mut call = |address: usize| {
        // SAFETY: the caller holds what every address is of, and the footprint; `memory` is the buffer.
        sum = sum.wrapping_add(unsafe { layout::call(address, memory) });
    };
    let started = Instant::now();
    match footprint {
        None => addresses.iter().for_each(|&address| call(address)),
        Some(footprint) => {
            let mut walk = footprint.walk.chunks_exact(STEPS).cycle();
            for &address in addresses {
                walk.next().unwrap_or_default().iter().for_each(|&function| call(function));
                call(address);
            }
        }
    }
    let elapsed = started.elapsed();
    std::hint::black_box(sum);
    elapsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_calls_every_program_equally_often() {
        for order in [Order::Random, Order::RoundRobin] {
            for turn in turns(160, order) {
                let mut counts = vec![0; 160];
                turn.iter().for_each(|&index| counts[index as usize] += 1);
                assert!(counts.iter().all(|&count| count == counts[0]) && turn.len() >= TURN);
            }
        }
    }

    #[test]
    fn random_turns_differ_from_each_other_and_are_the_same_in_every_run() {
        let random = turns(160, Order::Random);
        assert!(random.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(random, turns(160, Order::Random));
    }
}
