//! Compares interpreter and compiled code with the running Linux kernel on the same programs.
//!
//! Loading programs burdens the whole machine: the number of loads is bounded, they are paced, and they happen in one
//! child process with a time limit of a minute. If bpf(2) is refused, as it is to ordinary users and in most
//! containers, the test says so and checks nothing.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::bpf::{KernelProgram, Rejected};
use crate::common::{Lab, first_seed, verified};
use skep_testgen::{Flavour, Host, Options, Source, structured};
use skep_testkit::Hidden;

/// The maximum number of programs that a run of this test loads.
const LOADS: u64 = 40;
/// Number of packets for each of them.
const INPUTS: u64 = 16;
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);
/// Set in the child.
const CHILD: &str = "SKEP_LINUX_CHILD";
/// The child's message if the kernel refused it bpf(2).
const REFUSED: i32 = 77;

#[test]
fn interpreter_and_jit_agree_with_the_running_kernel() {
    if std::env::var_os(CHILD).is_some() {
        compare_with_the_kernel();
        return;
    }
    let _turn = skep_testkit::turn_to_ask();
    let mut child =
        skep_testkit::this_test().env(CHILD, "1").stdin(Stdio::null()).spawn().expect("the test runs itself");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the kernel did not finish {LOADS} small programs within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if status.code() == Some(REFUSED) {
        let what = "comparison with the kernel";
        if skep_testkit::is_emulated() {
            skep_testkit::hidden(Hidden::KernelPrograms, what);
        } else {
            skep_testkit::skip(what, "bpf(2) is refused here; run as root to compare");
        }
        return;
    }
    assert!(status.success(), "the child that compares with the kernel failed: {status}");
}

fn compare_with_the_kernel() {
    let mut lab = Lab::new(Host::new(Flavour::Xdp));
    let (mut seed, mut loaded, mut compared, mut rejected) = (first_seed(), 0, 0, 0);
    while loaded < LOADS {
        let mut source = Source::from_seed(seed);
        let statements = 20 + source.below(100);
        // No helpers and maps, because those of this crate are not the kernel's. In the kernel eight frames share 512
        // bytes.
        let options = Options {
            statements,
            max_frame: 32,
            linux: true,
            helpers: false,
            maps: false,
            calls: loaded % 2 == 1,
            ..Options::all(Flavour::Xdp)
        };
        let program = structured(&mut source, &options);
        seed += 1;
        let Ok(verified) = verified(&program) else { continue };
        loaded += 1;
        std::thread::sleep(PAUSE);
        let kernel = match KernelProgram::load(&program.insns) {
            Ok(kernel) => kernel,
            Err(Rejected { error, log }) if is_refusal(&error) && log.is_empty() => {
                println!("bpf(2) refuses to load programs: {error}");
                std::process::exit(REFUSED);
            }
            Err(Rejected { error, log }) => {
                // The kernel's verifier has rules that skep's has not, and its own limits.
                let reason = log.lines().rev().nth(1).unwrap_or_default();
                println!("seed {}: the kernel rejects it: {error}, {reason}", seed - 1);
                rejected += 1;
                continue;
            }
        };
        let interpreter = lab.interpreter(&verified).unwrap();
        let compiled = lab.compiled(&verified).unwrap();
        for input in 0..INPUTS {
            lab.reset(input);
            let packet = lab.host.packet().to_vec();
            let (retval, packet) = match kernel.run(&packet) {
                Ok(outcome) => outcome,
                Err(error) if is_refusal(&error) => {
                    println!("bpf(2) refuses to run programs: {error}");
                    std::process::exit(REFUSED);
                }
                Err(error) => panic!("the kernel does not run the program: {error}"),
            };
            for (who, outcome) in [
                ("the interpreter", lab.interpret(&interpreter, input)),
                ("compiled code", lab.execute(&compiled, input)),
            ] {
                let here = (outcome.0 as u32, lab.host.packet().to_vec());
                assert!(
                    here == (retval, packet.clone()),
                    "SKEP_SEED={}, input {input}: the kernel's result is {retval:#x}, {who}'s {:#x}\n\
                     the kernel's packet: {packet:02x?}\n{who}'s: {:02x?}\n{program}",
                    seed - 1,
                    here.0,
                    here.1,
                );
                compared += 1;
            }
        }
    }
    println!("{loaded} programs loaded, {rejected} of them rejected, {compared} runs compared");
    assert!(rejected * 2 < LOADS, "the kernel rejected {rejected} of {LOADS}: too little was compared");
}

/// Whether the kernel refuses bpf(2) altogether.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS))
}
