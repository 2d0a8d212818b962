//! Batches, as clients ask for them.

use super::tests::{Attr, Process};
use skep_sys::{Command, Errno};

const HASH: u32 = 1;

#[test]
fn batches_move_many_elements() {
    let mut process = Process::new();
    let map = process.map(HASH, 4, 4, 100).unwrap();
    let keys: Vec<u8> = (0..50u32).flat_map(u32::to_ne_bytes).collect();
    let (keys_at, values_at) = (process.put(&keys), process.put(&keys));
    let attr = Attr::default().u64(16, keys_at).u64(24, values_at).u32(32, 50).u32(36, map as u32);
    process.call(Command::MapUpdateBatch, &attr).unwrap();
    assert_eq!(process.answer(32), 50);
    let (out_keys, out_values, position) =
        (process.put(&[0; 400]), process.put(&[0; 400]), process.put(&[0; 4]));
    let (mut seen, mut from) = (Vec::new(), 0);
    loop {
        let attr = Attr::default().u64(0, from).u64(8, position).u64(16, out_keys).u64(24, out_values);
        let answer = process.call(Command::MapLookupBatch, &attr.u32(32, 20).u32(36, map as u32));
        let count = process.answer(32) as usize;
        assert_eq!(process.get(out_keys, count * 4), process.get(out_values, count * 4));
        let words = process.get(out_keys, count * 4).as_chunks::<4>().0;
        seen.extend(words.iter().map(|word| u32::from_ne_bytes(*word)));
        if answer == Err(Errno::ENOENT) {
            break;
        }
        answer.unwrap();
        from = position;
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
    let attr = Attr::default().u64(16, keys_at).u32(32, 50).u32(36, map as u32);
    process.call(Command::MapDeleteBatch, &attr).unwrap();
    assert_eq!(process.call(Command::MapDeleteBatch, &attr), Err(Errno::ENOENT));
    assert_eq!(process.answer(32), 0, "none of them were there");
}

#[test]
fn batches_take_the_maps_out_of_a_table_of_maps() {
    let mut process = Process::new();
    let inner = process.map(HASH, 4, 4, 8).unwrap();
    let outer = Attr::default().u32(0, 13).u32(4, 4).u32(8, 4).u32(12, 8).u32(20, inner as u32);
    let outer = process.call(Command::MapCreate, &outer).unwrap() as i32;
    for key in 0..5u32 {
        process.update(outer, &key.to_ne_bytes(), &inner.to_ne_bytes(), 0).unwrap();
    }
    let id = process.next_id(Command::MapGetNextId, 0).unwrap();
    let [keys, values, position] = [32, 32, 4].map(|size| process.put(&vec![0; size]));
    let take = |process: &mut Process, from, count| {
        let attr = Attr::default().u64(0, from).u64(8, position).u64(16, keys).u64(24, values);
        let attr = attr.u32(32, count).u32(36, outer as u32);
        let answer = process.call(Command::MapLookupAndDeleteBatch, &attr);
        let taken = process.answer(32) as usize;
        let (keys, values) = (process.get(keys, taken * 4), process.get(values, taken * 4));
        assert!(values.as_chunks::<4>().0.iter().all(|value| *value == id.to_ne_bytes()));
        let keys: Vec<u32> = keys.as_chunks::<4>().0.iter().map(|key| u32::from_ne_bytes(*key)).collect();
        (answer, keys)
    };
    assert_eq!(take(&mut process, 0, 2), (Ok(0), vec![0, 1]));
    assert_eq!(process.lookup(outer, &0u32.to_ne_bytes(), 4), Err(Errno::ENOENT), "it is gone");
    assert_eq!(take(&mut process, position, 2), (Ok(0), vec![2, 3]));
    assert_eq!(take(&mut process, position, 2), (Err(Errno::ENOENT), vec![4]), "the end");
    assert_eq!(take(&mut process, 0, 2), (Err(Errno::ENOENT), vec![]));
}
