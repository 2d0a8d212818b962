//! Hosts, programs, and handlers that interrupt them do not block each other where they must not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{create, def, inside, map};
use skep_abi::{MapDef, MapKind, SpecialField, SpecialKind};
use skep_maps::{Map, Options, UpdateFlags, lock};

/// A program holds the lock of a value and is interrupted by a signal, whose handler runs a program that takes no locks
/// but updates the same map. Meanwhile another thread updates the value with `BPF_F_LOCK`.
#[test]
fn a_handler_without_locks_is_not_blocked_by_a_lock_waiter() {
    let fields = vec![SpecialField { kind: SpecialKind::SpinLock, offset: 0, size: 4 }];
    let map = Arc::new(create(&MapDef { fields, ..def(MapKind::Hash, 4, 8, 1) }).unwrap());
    map.update(&[1; 4], &[0; 8], UpdateFlags::Any).unwrap();
    let waiting = Arc::new(AtomicBool::new(false));
    let (done, over) = mpsc::channel();
    std::thread::spawn(move || {
        inside(&map, 0, |cpu| {
            let (host_map, host_waits) = (Arc::clone(&map), Arc::clone(&waiting));
            // SAFETY: as a program does it.
            unsafe {
                let at = map.lookup_ptr([1_u8; 4].as_ptr(), cpu);
                lock::acquire(at); // the program
                std::thread::spawn(move || {
                    host_waits.store(true, Ordering::Relaxed);
                    host_map.update(&[1; 4], &[1; 8], UpdateFlags::Any.locked()).unwrap();
                });
                while !waiting.load(Ordering::Relaxed) {}
                std::thread::sleep(Duration::from_millis(100));
                // The handler. If it waited for the thread that waits for the lock, it would give up in the end.
                assert_eq!(map.update_ptr([1_u8; 4].as_ptr(), [2_u8; 8].as_ptr(), 0, cpu), 0);
                lock::release(at);
            }
        });
        done.send(()).unwrap();
    });
    assert!(over.recv_timeout(Duration::from_secs(60)).is_ok(), "both wait for each other");
}

/// A host thread that only reads a map does not take a virtual CPU away from threads that run programs.
#[test]
fn hosts_that_read_maps_do_not_use_up_virtual_cpus() {
    let map = Map::create(&def(MapKind::Hash, 4, 8, 4), &Options { cpus: 1, limit: 1 << 20 }).unwrap();
    let (looked, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            map.lookup(&[0; 4]).unwrap();
            looked.wait();
            go.wait();
        });
        looked.wait();
        let entered = map.reuse().domain.enter().is_ok();
        go.wait();
        assert!(entered, "a reader of statistics has the only virtual CPU");
    });
}

/// A program that holds everything it finds may find no memory for more; then no element is evicted for it.
#[test]
fn a_failed_insertion_evicts_nothing() {
    let map = map(MapKind::LruHash, 4, 4096, 4);
    inside(&map, 0, |cpu| {
        let mut failed = 0_u32;
        let mut least = u32::MAX;
        for key in 0..5000_u32 {
            let value = [0_u8; 4096];
            // SAFETY: as a program does it.
            let status = unsafe { map.update_ptr(key.to_ne_bytes().as_ptr(), value.as_ptr(), 0, cpu) };
            assert!(matches!(status, 0 | -12), "{status}");
            failed += u32::from(status != 0);
            // SAFETY: as above.
            assert!(status != 0 || !unsafe { map.lookup_ptr(key.to_ne_bytes().as_ptr(), cpu) }.is_null());
            if key >= 4 {
                least = least.min(map.len());
            }
        }
        assert_eq!(least, 4);
        assert!(failed > 0, "as much as it likes waits for one reader");
    });
}
