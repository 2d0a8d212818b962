//! The cost of allocating an object and freeing it: `cargo run --release -p skep-mem --example pairs`.

use skep_mem::{Cache, CacheOptions, Policy};
use skep_rcu::Domain;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PAIRS: u32 = 4_000_000;
    let domain = Domain::new(8)?;
    for policy in Policy::ALL {
        let cache = Cache::new(&domain, &CacheOptions::new(24, 16 << 20).policy(policy))?;
        let best = (0..5)
            .map(|_| {
                let begin = Instant::now();
                for _ in 0..PAIRS / 1000 {
                    let section = domain.enter().expect("a slot");
                    for _ in 0..1000 {
                        // SAFETY: this thread's slot, inside a section; each object is freed once.
                        unsafe {
                            let object = cache.alloc(section.number()).expect("an object");
                            cache.free(section.number(), std::hint::black_box(object));
                        }
                    }
                }
                begin.elapsed().as_secs_f64() * 1e9 / f64::from(PAIRS)
            })
            .fold(f64::MAX, f64::min);
        println!("{policy:>16}: {best:6.2} ns for a pair, {} bytes at most", cache.stats().peak_bytes);
    }
    Ok(())
}
