//! Any number of threads run programs, on fewer virtual CPUs.

use skep::abi::{MapDef, MapKind, RAW};
use skep::function::Errno;
use skep::isa::{assemble, encode_bytes};
use skep::{Error, Module, Object, Runtime, RuntimeBuilder};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

const THREADS: usize = 200;

/// Adds 1 to an element of a per-CPU array by a load and a store; the result is the virtual CPU.
const COUNTS: &str = "*(u32 *)(r10 - 4) = 0
    r1 = map[0] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem#1
    if r0 == 0 goto +3
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r0 + 0) = r1
    call get_smp_processor_id#8
    exit";

fn counting(builder: RuntimeBuilder, before: &str) -> Module {
    let runtime = builder.build().unwrap();
    let bytes = encode_bytes(&assemble(&format!("{before}\n{COUNTS}")).unwrap()).unwrap();
    let counts = MapDef::new("counts", MapKind::PercpuArray, 4, 8, 1);
    let object = Object::from_bytecode_and_maps("counts", &RAW, &bytes, [counts]).unwrap();
    runtime.linker(&object).buffer_len(8).load().unwrap()
}

/// What all virtual CPUs have counted.
fn counted(module: &Module) -> Vec<u64> {
    let values = module.maps()[0].lookup(&[0; 4]).unwrap().unwrap();
    values.chunks_exact(8).map(|value| u64::from_ne_bytes(value.try_into().unwrap())).collect()
}

#[test]
fn two_hundred_threads_that_stay_run_programs_and_per_cpu_counters_lose_nothing() {
    for builder in [Runtime::builder(), Runtime::builder().cpus(1), Runtime::builder().cpus(6)] {
        let module = counting(builder, "");
        let program = &module.programs()[0];
        let together = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    // All threads have run before any of them ends.
                    let _ = program.run_raw(&mut [0; 8]).unwrap();
                    together.wait();
                    for _ in 0..50 {
                        let _ = program.run_raw(&mut [0; 8]).unwrap();
                    }
                    together.wait();
                });
            }
        });
        assert_eq!(counted(&module).iter().sum::<u64>(), THREADS as u64 * 51);
    }
}

#[test]
fn a_run_inside_of_a_run_has_its_virtual_cpu() {
    let inner: Arc<OnceLock<Module>> = Arc::default();
    let there = Arc::clone(&inner);
    let nested = move || -> Result<u32, Errno> {
        let module = there.get().ok_or(Errno::ENOENT)?;
        let cpu = || module.programs()[0].run_raw(&mut [0; 8]).map_err(|_| Errno::EAGAIN);
        // The lower half is of the first run, the upper one of the second.
        Ok((cpu()? | cpu()? << 16) as u32)
    };
    let runtime = Runtime::builder().cpus(4).function(1000, "nested", nested).build().unwrap();
    let load = |text: &str| {
        let object = Object::from_insns("main", &RAW, assemble(text).unwrap());
        runtime.linker(&object).buffer_len(8).load().unwrap()
    };
    inner.set(load("call get_smp_processor_id#8\nexit")).unwrap();
    let outer = load("call get_smp_processor_id#8\nr6 = r0\nr6 *= 0x10001\ncall 1000\nr0 ^= r6\nexit");
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                together.wait();
                for _ in 0..50 {
                    assert_eq!(outer.programs()[0].run_raw(&mut [0; 8]).unwrap(), 0);
                }
            });
        }
    });
}

#[test]
fn a_thread_waits_while_all_virtual_cpus_are_in_runs() {
    let (inside, go_on) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let stop = {
        let (inside, go_on) = (Arc::clone(&inside), Arc::clone(&go_on));
        move |waits: bool| {
            if waits {
                inside.wait();
                go_on.wait();
            }
        }
    };
    let builder = Runtime::builder().cpus(2).function(1000, "stop", stop);
    let module = counting(builder, "r1 = *(u8 *)(r1 + 0)\ncall 1000");
    let program = &module.programs()[0];
    thread::scope(|scope| {
        let stopped = [(); 2].map(|()| scope.spawn(|| program.run_raw(&mut [1; 8]).unwrap()));
        inside.wait();
        let waits = scope.spawn(|| program.run_raw(&mut [0; 8]).unwrap());
        for _ in 0..100 {
            thread::yield_now();
        }
        assert_eq!(counted(&module), [0, 0], "it has not begun");
        go_on.wait();
        let mut cpus = stopped.map(|thread| thread.join().unwrap());
        cpus.sort_unstable();
        assert_eq!(cpus, [0, 1]);
        assert!(waits.join().unwrap() < 2);
    });
    assert_eq!(counted(&module).iter().sum::<u64>(), 3);
}

#[test]
fn runs_in_two_runtimes_do_not_wait_for_each_other() {
    let other: Arc<OnceLock<Module>> = Arc::default();
    let there = Arc::clone(&other);
    let (inside, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let stop = {
        let (inside, go_on) = (Arc::clone(&inside), Arc::clone(&go_on));
        move || {
            inside.wait();
            go_on.wait();
        }
    };
    other.set(counting(Runtime::builder().cpus(1).function(1000, "stop", stop), "call 1000")).unwrap();
    let nested = move || -> Result<u32, Errno> {
        match there.get().ok_or(Errno::ENOENT)?.programs()[0].run_raw(&mut [0; 8]) {
            Err(Error::Slots(_)) => Ok(1),
            _ => Ok(0),
        }
    };
    let module = counting(Runtime::builder().cpus(1).function(1000, "nested", nested), "call 1000\nexit");
    thread::scope(|scope| {
        scope.spawn(|| other.get().unwrap().programs()[0].run_raw(&mut [0; 8]).unwrap());
        inside.wait();
        // The other runtime's one virtual CPU is in a run, and this thread is in a run of this one.
        assert_eq!(module.programs()[0].run_raw(&mut [0; 8]).unwrap(), 1);
        go_on.wait();
    });
}
