//! Test runs that take long: signals end them, and meanwhile everybody else is served.

use super::{bpf, first_map, forked, hash, lookup, raw, soon, supervised, update, wait};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// More test runs at once than the supervisor has threads at first, and than most machines have CPUs.
const THREADS: usize = 6;

/// A socket filter that returns 0.
fn program() -> i32 {
    let insns: [u64; 2] = [0xb7, 0x95];
    let (insns, licence) = (insns.as_ptr() as u64, c"GPL".as_ptr() as u64);
    bpf(5, &[(0, 1, 4), (4, 2, 4), (8, insns, 8), (16, licence, 8)]).unwrap() as i32
}

/// Runs it so often on a packet.
fn run(program: i32, repeat: u32) -> Result<i64, i32> {
    let packet = [0u8; 64];
    bpf(10, &[(0, program as u64, 4), (8, 64, 4), (16, packet.as_ptr() as u64, 8), (32, repeat.into(), 4)])
}

/// Signals that were handled.
static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handle(_: i32) {
    // Only counted.
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Handles a signal, restarting interrupted calls where the kernel would.
fn handled(signal: i32) {
    // SAFETY: zero is valid for the structure; the handler makes no calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

fn tell(thread: &AtomicI32, signal: i32) {
    // Pairs with nothing: a number that is there before the barrier.
    let thread = thread.load(Ordering::Relaxed);
    // SAFETY: numbers; a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}

/// The first program's identifier.
fn first_program() -> Result<u32, i32> {
    let mut attributes = [0u32; 2];
    raw(11, attributes.as_mut_ptr() as u64, 8).map(|_| attributes[1])
}

pub(super) fn application(scenario: &str) -> bool {
    match scenario {
        "runs for long" => {
            handled(libc::SIGUSR1);
            let (program, map) = (program(), hash());
            let threads: [AtomicI32; THREADS] = Default::default();
            let begun = Barrier::new(THREADS + 1);
            std::thread::scope(|scope| {
                let runs: Vec<_> = threads
                    .iter()
                    .map(|thread| {
                        let begun = &begun;
                        scope.spawn(move || {
                            // SAFETY: a number.
                            thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
                            begun.wait();
                            run(program, u32::MAX)
                        })
                    })
                    .collect();
                begun.wait();
                std::thread::sleep(Duration::from_millis(300));
                let started = Instant::now();
                for number in 0..100 {
                    update(map, 1, number).unwrap();
                    assert_eq!(lookup(map, 1), Ok(number));
                    assert_eq!(run(program, 2), Ok(0), "another run");
                }
                println!("100 rounds beside {THREADS} runs took {:?}", started.elapsed());
                assert!(runs.iter().all(|run| !run.is_finished()));
                for (thread, run) in threads.iter().zip(runs) {
                    tell(thread, libc::SIGUSR1);
                    assert_eq!(run.join().unwrap(), Err(libc::EINTR));
                }
            });
            assert_eq!(HANDLED.load(Ordering::Relaxed), THREADS as u32);
            // One run is never interrupted, as on Linux.
            assert_eq!(run(program, 1), Ok(0));
        }
        "runs with blocked signals" => {
            let program = program();
            let thread = AtomicI32::new(0);
            std::thread::scope(|scope| {
                let run = scope.spawn(|| {
                    // SAFETY: a set of this frame.
                    unsafe {
                        let mut set: libc::sigset_t = std::mem::zeroed();
                        libc::sigaddset(&raw mut set, libc::SIGUSR1);
                        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                        thread.store(libc::gettid(), Ordering::Relaxed);
                    }
                    run(program, 3_000_000)
                });
                while thread.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                tell(&thread, libc::SIGUSR1);
                assert_eq!(run.join().unwrap(), Ok(0), "it is not for now");
            });
        }
        "dies during a run" => {
            let child = forked(|| {
                let program = program();
                let _never = run(program, u32::MAX);
            });
            assert!(soon(|| first_program().is_ok()));
            std::thread::sleep(Duration::from_millis(100));
            // SAFETY: a child of this process.
            unsafe { libc::kill(child, libc::SIGKILL) };
            wait(child);
            assert!(soon(|| first_program() == Err(libc::ENOENT)), "nothing runs it any more");
            assert_eq!(first_map(), Err(libc::ENOENT));
        }
        _ => return false,
    }
    true
}

#[test]
fn a_signal_ends_a_test_run_and_others_are_served_meanwhile() {
    let Some((status, traced, _)) = supervised("runs for long") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
    let ended = traced.iter().filter(|line| line.contains("BPF_PROG_TEST_RUN") && line.contains("EINTR"));
    assert_eq!(ended.count(), THREADS);
}

#[test]
fn a_blocked_signal_ends_no_test_run() {
    let Some((status, traced, _)) = supervised("runs with blocked signals") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}

#[test]
fn a_test_run_ends_with_the_process_that_asked_for_it() {
    let Some((status, traced, _)) = supervised("dies during a run") else { return };
    assert!(status.success(), "{status}\n{}", traced.join("\n"));
}
