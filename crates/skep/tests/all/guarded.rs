//! Guarded memory and programs that read it by a wild address. Tests that need protection keys are ignored here; `cargo
//! xtask pkeys --vm VMLINUZ` runs them in a virtual machine.
//!
//! The wild address comes from a function of the host, which says that there is an object. Programs read such objects
//! by loads that give 0 where they fault, so a test survives what would end the process elsewhere.

use super::objects_of_the_host::{READER, functions, load, made_up, run};
use skep::abi::RAW;
use skep::guard::{Guarded, check};
use skep::isa::{assemble, encode_bytes};
use skep::{Engine, Error, Object, Runtime};
use std::sync::Arc;

const PID: u32 = 7;
const STARTED: u64 = 1000;

/// A fake task where only a closure may read.
fn secret() -> Guarded<[u64; 8192]> {
    Guarded::new(made_up(PID, STARTED, 0).try_into().unwrap()).unwrap()
}

#[test]
fn a_runtime_that_cannot_guard_says_so() {
    let guarding = Runtime::builder().guard_host_memory().build();
    match check() {
        Ok(()) => drop(guarding.unwrap()),
        Err(_) => {
            let Err(error @ Error::Guard(_)) = guarding else { panic!("{:?}", guarding.is_ok()) };
            assert!(error.to_string().contains("pku in /proc/cpuinfo"), "{error}");
        }
    }
    // With everything for strangers, keys are used where there are some.
    Runtime::builder().untrusted().build().unwrap();
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn a_program_reads_nothing_of_guarded_memory() {
    let secret = secret();
    let open = made_up(PID, STARTED, 0);
    let (open, address) =
        (open.as_ptr().expose_provenance() as u64, secret.address().expose_provenance() as u64);
    let read = u64::from(PID) + STARTED;
    for engine in [Engine::Jit, Engine::Interpreter] {
        let plain = load(&functions(Runtime::builder()).build().unwrap(), READER).unwrap();
        assert_eq!(run(&plain, engine, open, open), read, "{engine:?}");
        assert_eq!(run(&plain, engine, address, address), 0, "{engine:?}: closed without any setting");
        let within = secret.open(|_| run(&plain, engine, address, address));
        assert_eq!(within, read, "{engine:?}: a run within the closure, of a runtime that does not guard");
        for builder in [Runtime::builder().guard_host_memory(), Runtime::builder().untrusted()] {
            let guarding = load(&functions(builder).build().unwrap(), READER).unwrap();
            let (within, after) = secret.open(|task| {
                let within = run(&guarding, engine, address, address);
                (within, task.iter().filter(|word| **word != 0).count())
            });
            assert_eq!((within, after), (0, 2), "{engine:?}: closed for the run, and open again after it");
            assert_eq!(run(&guarding, engine, open, open), read);
        }
    }
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn counted_runs_are_closed_too_and_functions_of_the_host_open_for_themselves() {
    let secret = Arc::new(secret());
    let address = secret.address().expose_provenance() as u64;
    let opened = Arc::clone(&secret);
    let sum_up = move |_: u64| -> u64 { opened.open(|task| task.iter().sum()) };
    let builder = Runtime::builder().guard_host_memory().function(1000, "sum_up", sum_up);
    let runtime = functions(builder).build().unwrap();
    runtime.enable_stats(true);
    let module = load(&runtime, READER).unwrap();
    assert_eq!(secret.open(|_| run(&module, Engine::Jit, address, address)), 0);
    let asking = load(&runtime, "r1 = 0\ncall 1000\nexit").unwrap();
    let sum: u64 = made_up(PID, STARTED, 0).iter().sum();
    assert_eq!(run(&asking, Engine::Jit, 0, 0), sum);
}

#[test]
#[ignore = "needs protection keys: cargo xtask pkeys --vm"]
fn code_that_would_open_guarded_memory_is_not_loaded() {
    // A constant with the bytes of WRPKRU.
    let bytes = encode_bytes(&assemble("r0 = 0xef010f\nexit").unwrap()).unwrap();
    let object = Object::from_bytecode("opener", &RAW, &bytes).unwrap();
    assert!(Runtime::new().unwrap().load(&object).is_ok());
    let refused = Runtime::builder().guard_host_memory().build().unwrap().load(&object);
    let Err(error @ Error::OpensGuard { .. }) = refused else { panic!("{:?}", refused.is_ok()) };
    assert!(error.to_string().contains("program opener"), "{error}");
    // Hidden, it is another number.
    let module = Runtime::builder().untrusted().build().unwrap().load(&object).unwrap();
    assert_eq!(module.programs()[0].run_raw(&mut []).unwrap(), 0xef_010f);
}
