//! The cost of sections and grace periods on this machine. Run it with `--release`.
//!
//! Prints nanoseconds: the best of several runs for short operations, percentiles for those that wait.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep_rcu::{Domain, Error, Grace};

fn main() -> Result<(), Error> {
    for membarrier in [true, false] {
        let domain = Domain::builder().membarrier(membarrier).build()?;
        if domain.stats().membarrier != membarrier {
            println!("the system has no membarrier: readers fence\n");
            continue;
        }
        println!("{}", if membarrier { "with membarrier" } else { "without membarrier: readers fence" });
        sections(&domain)?;
        updates(&domain);
        println!("  synchronize, nobody inside");
        waits(&domain)?;
        println!("  synchronize, a reader inside nearly all the time, sections of about 1 us");
        with_a_busy_reader(&domain, || waits(&domain))?;
        println!();
    }
    Ok(())
}

fn sections(domain: &Domain) -> Result<(), Error> {
    // Once with hardly anything inside, and once around a call through a pointer, as of compiled code.
    let word = AtomicU64::new(1);
    let called: fn(&AtomicU64) -> u64 = black_box(callee);
    measure("nothing inside", domain, || {})?;
    measure("around a call", domain, || {
        called(&word);
    })
}

#[inline(never)]
fn callee(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn measure(what: &str, domain: &Domain, inside: impl Fn()) -> Result<(), Error> {
    const TIMES: u32 = 50_000_000;
    let reader = domain.reader()?;
    let bare = best(TIMES, &inside);
    let closure = best(TIMES, || reader.read(&inside));
    let guard = best(TIMES, || {
        let section = reader.enter();
        inside();
        drop(section);
    });
    let lookup = best(TIMES, || {
        let section = domain.enter();
        inside();
        drop(section);
    });
    let outer = reader.enter();
    let nested = best(TIMES, || reader.read(&inside));
    drop(outer);
    println!("  sections, {what} ({bare:.2} ns without any): ns with, and the difference");
    let row = |name: &str, with: f64| println!("    {name:28}{with:8.2} {:8.2}", with - bare);
    row("reader.read(closure)", closure);
    row("reader.enter()", guard);
    row("domain.enter(), looked up", lookup);
    row("reader.read(closure), nested", nested);
    Ok(())
}

fn updates(domain: &Domain) {
    let cookie = best(10_000_000, || {
        black_box(domain.cookie());
    });
    let old = domain.cookie();
    domain.try_pass(old, Grace::Both);
    let passed = best(10_000_000, || {
        black_box(domain.passed(old, Grace::Both));
    });
    let pass = best(1_000_000, || {
        let cookie = domain.cookie();
        assert!(domain.try_pass(cookie, Grace::Both));
    });
    let call = best(1_000_000, || domain.call(Grace::Both, || ()));
    let original = best(100_000_000, || {
        black_box(domain.is_original());
    });
    println!("  cookie                      {cookie:8.2} ns");
    println!("  passed                      {passed:8.2} ns");
    println!("  cookie + try_pass           {pass:8.2} ns");
    println!("  call, the keeper busy       {call:8.2} ns");
    println!("  is_original                 {original:8.2} ns");
}

fn waits(domain: &Domain) -> Result<(), Error> {
    let normal = percentiles(2000, || domain.synchronize(Grace::Normal))?;
    let expedited = percentiles(2000, || domain.synchronize_expedited(Grace::Normal))?;
    println!("    by the keeper             p50 {:8} ns, p99 {:8} ns", normal.0, normal.1);
    println!("    expedited                 p50 {:8} ns, p99 {:8} ns", expedited.0, expedited.1);
    Ok(())
}

fn with_a_busy_reader(domain: &Domain, f: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let reader = domain.reader()?;
            while running.load(Ordering::Relaxed) {
                reader.read(|| {
                    for number in 0..1000 {
                        black_box(number);
                    }
                });
            }
            Ok(())
        });
        thread::sleep(Duration::from_millis(20));
        let outcome = f();
        running.store(false, Ordering::Relaxed);
        busy.join().unwrap_or(Ok(())).and(outcome)
    })
}

/// Nanoseconds for each of `times`, the best of 21 runs.
#[inline(always)]
fn best(times: u32, mut f: impl FnMut()) -> f64 {
    let rounds = 21;
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..times / rounds {
            f();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(times / rounds));
    }
    best
}

/// The median and the 99th percentile, in nanoseconds.
fn percentiles(times: usize, mut f: impl FnMut() -> Result<(), Error>) -> Result<(u128, u128), Error> {
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let start = Instant::now();
        f()?;
        took.push(start.elapsed().as_nanos());
    }
    took.sort_unstable();
    Ok((took[times / 2], took[times * 99 / 100]))
}
