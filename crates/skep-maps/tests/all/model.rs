//! Compares every kind with a plain model on random operations, through the host's interface and the programs'.

use std::collections::BTreeSet;

use crate::common::{CPUS, def, map, prefix};
use crate::oracle::{Op, check, map_of, numbered_keys, play, with_lock};
use proptest::prelude::*;
use skep_abi::MapKind;
use skep_maps::{Policy, UpdateFlags};

fn ops(keys: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0..keys, 0..CPUS).prop_map(|(key, cpu)| Op::Lookup { key, cpu }),
        6 => (0..keys, any::<u8>(), prop_oneof![4 => Just(0_u64), 1 => 0_u64..9], proptest::option::of(0..CPUS))
            .prop_map(|(key, value, flags, program)| Op::Update { key, value, flags, program }),
        3 => (0..keys, any::<bool>()).prop_map(|(key, program)| Op::Delete { key, program }),
        1 => (0..keys).prop_map(|key| Op::Take { key }),
        1 => Just(Op::Walk),
        1 => (1..30_usize).prop_map(|count| Op::Batches { count }),
    ];
    proptest::collection::vec(op, 1..200)
}

fn policies() -> impl Strategy<Value = Policy> {
    proptest::sample::select(&Policy::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn arrays_do_what_a_vector_would(ops in ops(12), value_size in 1_u32..40, lock in 0_u32..20) {
        let policy = Policy::default();
        // Keys 8 and up are beyond the end.
        let keys: Vec<_> = (0..12_u32).map(|index| if index == 11 { u32::MAX } else { index })
            .map(|index| index.to_ne_bytes().to_vec()).collect();
        for kind in [MapKind::Array, MapKind::PercpuArray] {
            play(&map_of(policy, kind, 4, value_size, 8), &keys, &ops);
        }
        play(&with_lock(&def(MapKind::Array, 4, value_size, 8), lock), &keys, &ops);
    }

    #[test]
    fn any_bytes_are_operations_that_agree(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        check(&data);
    }

    #[test]
    fn hash_tables_do_what_a_tree_would(
        ops in ops(24),
        key_size in prop_oneof![4 => 1_u32..24, 1 => Just(4), 1 => Just(8), 1 => Just(16), 1 => 24_u32..=512],
        value_size in 1_u32..40,
        max_entries in 1_u32..24,
        lock in 0_u32..20,
        policy in policies(),
    ) {
        let keys = numbered_keys(24, key_size as usize);
        for kind in [MapKind::Hash, MapKind::PercpuHash, MapKind::LruHash, MapKind::LruPercpuHash] {
            play(&map_of(policy, kind, key_size, value_size, max_entries), &keys, &ops);
        }
        play(&with_lock(&def(MapKind::Hash, key_size, value_size, max_entries), lock), &keys, &ops);
    }

    #[test]
    fn tries_do_what_a_list_of_prefixes_would(
        ops in ops(32),
        data in proptest::collection::vec((0_u32..=33, prop_oneof![0_u8..4, any::<u8>()], any::<u8>()), 32),
        value_size in 1_u32..40,
        max_entries in 1_u32..32,
        data_size in prop_oneof![2 => Just(4_usize), 1 => Just(1), 1 => Just(8), 1 => Just(16), 1 => Just(19)],
        policy in policies(),
    ) {
        // Few distinct bits, so that prefixes contain each other; one length in thirty is too long.
        let bits = data_size as u32 * 8;
        let keys: Vec<_> = data.iter().map(|&(len, first, last)| {
            let mut bytes = vec![0x55; data_size];
            bytes[0] = first;
            bytes[data_size - 1] ^= last & 0x81;
            let len = if len == 33 { bits + 1 } else { len * bits / 32 };
            prefix(len, &bytes)
        }).collect();
        play(&map_of(policy, MapKind::LpmTrie, 4 + data_size as u32, value_size, max_entries), &keys, &ops);
    }
}

#[test]
fn a_trie_of_all_short_prefixes_agrees_with_counting_bits() {
    // All 511 prefixes of one byte, inserted and deleted in different orders.
    let map = map(MapKind::LpmTrie, 5, 4, 511);
    let all: Vec<(u32, u8)> = (0..=8_u32)
        .flat_map(|len| (0..1_u16 << len).map(move |top| (len, (top << (8 - len)) as u8)))
        .collect();
    assert_eq!(all.len(), 511);
    let mut present = BTreeSet::new();
    let check = |present: &BTreeSet<(u32, u8)>| {
        for address in 0..=255_u8 {
            let expected = (0..=8_u32)
                .rev()
                .map(|len| (len, address & !(0xff_u16 >> len) as u8))
                .find(|prefix| present.contains(prefix))
                .map(|(len, bits)| vec![len as u8, bits, 0, 0]);
            assert_eq!(map.lookup(&prefix(8, &[address])).unwrap(), expected, "{address:#010b}");
        }
    };
    for step in [3, 100, 509] {
        // The strides, also plus three, have no common factor with 511 = 7 * 73, so they reach all prefixes.
        for i in 0..511 {
            let (len, bits) = all[i * step % 511];
            map.update(&prefix(len, &[bits]), &[len as u8, bits, 0, 0], UpdateFlags::NoExist).unwrap();
            present.insert((len, bits));
            if i % 73 == 0 {
                check(&present);
            }
        }
        assert_eq!(map.len(), 511);
        for i in 0..511 {
            let (len, bits) = all[i * (step + 3) % 511];
            map.delete(&prefix(len, &[bits])).unwrap();
            present.remove(&(len, bits));
            if i % 73 == 0 {
                check(&present);
            }
        }
        assert_eq!(map.len(), 0);
        assert_eq!(map.next_key(None).unwrap(), None);
    }
}
