//! In which order hash tables are walked.

use super::tests::{Attr, Process, walk};
use skep_sys::{Command, Errno};

const HASH: u32 = 1;

#[test]
fn tables_without_a_seed_are_walked_in_the_same_order() {
    const KEYS: u32 = 64;
    // Hash tables, those of each CPU, and those that forget.
    for (kind, value) in [(HASH, 8), (5, 16), (9, 8), (10, 16)] {
        let walked = |flags: u32| {
            let mut process = Process::new();
            let attr = Attr::default().u32(0, kind).u32(4, 4).u32(8, 8).u32(12, 2 * KEYS).u32(16, flags);
            let map = process.call(Command::MapCreate, &attr).unwrap() as i32;
            for key in 0..KEYS {
                process.update(map, &key.to_ne_bytes(), &vec![0; value], 0).unwrap();
            }
            let order = walk(&mut process, map);
            // A batch walks buckets in the same order.
            let (keys, values) = (process.put(&[0; 4 * 64]), process.put(&[0; 16 * 64]));
            let (next, zero) = (process.put(&[0; 8]), 0);
            let attr = Attr::default().u64(0, zero).u64(8, next).u64(16, keys).u64(24, values);
            let attr = attr.u32(32, KEYS).u32(36, map as u32).u64(40, 0).u64(48, 0);
            let ended = process.call(Command::MapLookupBatch, &attr);
            assert!(matches!(ended, Ok(0) | Err(Errno::ENOENT)), "{ended:?}");
            let batch: Vec<u32> =
                process.get(keys, 256).as_chunks::<4>().0.iter().copied().map(u32::from_ne_bytes).collect();
            (order, batch)
        };
        const ZERO_SEED: u32 = 1 << 6;
        assert_eq!(walked(ZERO_SEED), walked(ZERO_SEED), "kind {kind}");
        assert_ne!(walked(0), walked(0), "kind {kind}: a seed of its own");
    }
}
