//! Programs are loaded, run on several threads, replaced and dropped for a while: every verdict is right, memory is
//! bounded, and nothing leaks. Runs for four seconds, or `SKEP_SOAK_SECONDS`.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skep::abi::RAW;
use skep::isa::assemble;
use skep::text::{Backing, Config};
use skep::{Engine, Module, Object, Packet, Program, Runtime};

const LIMIT: usize = 16 << 20;
const PLACES: usize = 32;
const LOADERS: usize = 2;
const RUNNERS: usize = 3;

/// No progress for this long is a deadlock, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

const DROP: u64 = 1;
const PASS: u64 = 2;

/// A frame with UDP from `source` to `port`.
fn udp(source: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[8, 0]);
    // Version and length of the header, total length, time to live, protocol.
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&46u16.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&[10, 0, 0, 1]);
    frame[34..36].copy_from_slice(&5000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    frame
}

/// A program that sums a buffer of 64 bytes, calls a function with the sum, and adds `version`. Its length depends
/// on `version`.
fn summing(version: u32) -> Object {
    let mut text = format!("r6 = {version}\nr7 = 0\n");
    for offset in (0..64).step_by(8) {
        text += &format!("r2 = *(u64 *)(r1 + {offset})\nr7 += r2\n");
    }
    for _ in 0..version % 150 {
        text += "r7 ^= r6\nr7 ^= r6\n";
    }
    text += &format!("r1 = r7\ncall pc+3\nr0 += r6\nr6 ^= {version}\nexit\nr0 = r1\nr0 *= 3\nexit\n");
    Object::from_insns("summing", &RAW, assemble(&text).unwrap())
}

fn expected(version: u32, buffer: &[u8; 64]) -> u64 {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let sum = buffer.chunks(8).map(word).fold(0, u64::wrapping_add);
    sum.wrapping_mul(3).wrapping_add(version.into())
}

struct Counts {
    loads: AtomicU64,
    runs: AtomicU64,
}

fn soak(backing: Backing, time: Duration) {
    let runtime =
        Runtime::builder().cpus(16).code(Config::new().backing(backing).limit(LIMIT)).build().unwrap();
    let before = runtime.occupancy();
    let firewall_object =
        Object::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/firewall.bpf.o")).unwrap();
    let load = |version: u32| -> Program {
        let module = runtime.linker(&summing(version)).buffer_len(64).load().unwrap();
        module.programs()[0].clone()
    };
    let places: Vec<RwLock<(u32, Program)>> = (0..PLACES).map(|_| RwLock::new((1, load(1)))).collect();
    let firewall: RwLock<Module> = RwLock::new(runtime.load(&firewall_object).unwrap());
    let counts = Counts { loads: AtomicU64::new(0), runs: AtomicU64::new(0) };
    let (over, all_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let progress = || counts.loads.load(Ordering::Relaxed) + counts.runs.load(Ordering::Relaxed);

    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = (progress(), Instant::now());
            while !all_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                if progress() != last.0 {
                    last = (progress(), Instant::now());
                } else if last.1.elapsed() > PATIENCE {
                    eprintln!("a deadlock: nothing happened for {PATIENCE:?}");
                    std::process::abort();
                }
            }
        });
        let mut threads = Vec::new();
        for mine in 0..LOADERS {
            let (places, firewall, runtime, counts, over, load, object) =
                (&places, &firewall, &runtime, &counts, &over, &load, &firewall_object);
            threads.push(scope.spawn(move || {
                let mut version = 1;
                while !over.load(Ordering::Relaxed) {
                    version += 1;
                    let place = &places[version as usize % (PLACES / LOADERS) * LOADERS + mine];
                    let program = load(version);
                    // The old module is dropped while other threads run clones of it, or immediately.
                    *place.write().unwrap() = (version, program);
                    if mine == 0 && version % 16 == 0 {
                        *firewall.write().unwrap() = runtime.load(object).unwrap();
                    }
                    counts.loads.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        for mine in 0..RUNNERS {
            let (places, firewall, counts, over) = (&places, &firewall, &counts, &over);
            threads.push(scope.spawn(move || {
                let mut round = mine as u64;
                let mut packet = Packet::new(&[]);
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    let (version, program) = places[round as usize * 7 % PLACES].read().unwrap().clone();
                    let mut buffer = [0; 64];
                    for (at, byte) in buffer.iter_mut().enumerate() {
                        *byte = (round as usize * 31 + at * 17) as u8;
                    }
                    for _ in 0..20 {
                        assert_eq!(program.run_raw(&mut buffer).unwrap(), expected(version, &buffer));
                    }
                    if round.is_multiple_of(50) {
                        let interpreted = program.run_raw_with(Engine::Interpreter, &mut buffer).unwrap();
                        assert_eq!(interpreted, expected(version, &buffer));
                    }
                    let filter = firewall.read().unwrap().program("firewall").unwrap().clone();
                    // A blocked port, a blocked prefix, and neither.
                    for (source, port, verdict) in
                        [([10, 1, 0, 1], 1900, DROP), ([10, 66, 0, 1], 53, DROP), ([10, 1, 0, 1], 53, PASS)]
                    {
                        packet.set(&udp(source, port));
                        assert_eq!(filter.run(&mut packet).unwrap() & 0xffff_ffff, verdict);
                    }
                    counts.runs.fetch_add(23, Ordering::Relaxed);
                }
            }));
        }
        let (observed, limit) = (&runtime, LIMIT);
        let watching = &over;
        threads.push(scope.spawn(move || {
            while !watching.load(Ordering::Relaxed) {
                let occupancy = observed.occupancy();
                assert!(occupancy.mapped_bytes <= limit, "{occupancy:?}");
                thread::sleep(Duration::from_millis(25));
            }
        }));
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        all_over.store(true, Ordering::Relaxed);
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let (loads, runs) = (counts.loads.into_inner(), counts.runs.into_inner());
    assert!(loads > 0 && runs > 0);
    drop((places, firewall));
    runtime.arena().flush().unwrap();
    let after = runtime.occupancy();
    let what_is_used = |occupancy: &skep::text::Occupancy| {
        (
            occupancy.texts,
            occupancy.drafts,
            occupancy.chunks_used,
            occupancy.code_bytes,
            occupancy.waiting_bytes,
        )
    };
    assert_eq!(what_is_used(&after), what_is_used(&before), "{backing}: {after:?}");
    eprintln!("MEASURED: {backing}: {loads} loads and {runs} runs in {time:?}");
}

#[test]
fn every_verdict_is_right_while_programs_are_replaced() {
    let seconds = std::env::var("SKEP_SOAK_SECONDS").map_or(4, |seconds| seconds.parse().unwrap());
    for backing in [Backing::Memfd, Backing::Hardened] {
        soak(backing, Duration::from_secs(seconds) / 2);
    }
}
