//! Maps of sockets and control groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{OWN, create, def, inside, map, program_delete, program_lookup, program_update};
use skep_abi::{MapDef, MapFlags, MapKind, SpecialField, SpecialKind};
use skep_maps::{Map, MapError, Member, Options, UpdateFlags};

const ALL: [MapKind; 4] =
    [MapKind::Sockmap, MapKind::Sockhash, MapKind::ReuseportSockarray, MapKind::CgroupArray];

fn key(number: u32) -> [u8; 4] {
    number.to_ne_bytes()
}

fn of(kind: MapKind) -> Map {
    map(kind, 4, 4, 4)
}

fn some(id: u64) -> Member {
    Member::new(id, Arc::new(()))
}

fn errno<T: std::fmt::Debug>(result: Result<T, MapError>) -> i32 {
    result.map_or_else(|error| error.errno(), |_| 0)
}

#[test]
fn definitions_are_checked_as_in_linux() {
    for kind in ALL {
        for (key_size, value_size, entries, flags, fits) in [
            (4, 4, 1, 0, true),
            (4, 8, 1, 0, kind != MapKind::CgroupArray),
            (4, 0, 1, 0, false),
            (4, 5, 1, 0, false),
            (4, 16, 1, 0, false),
            (4, u32::MAX, 1, 0, false),
            (8, 4, 1, 0, kind == MapKind::Sockhash),
            (513, 4, 1, 0, false),
            (0, 4, 1, 0, false),
            (u32::MAX, 4, 1, 0, false),
            (4, 4, 0, 0, false),
            (4, 4, 1, 1, false),
            (4, 4, 1, 0x80, kind == MapKind::ReuseportSockarray),
            (4, 4, 1, 0x180, false),
            (4, 4, 1, 0x400, false),
            (4, 4, 1, 1 << 31, false),
            (4, 4, u32::MAX, 0, false),
        ] {
            let def = MapDef { flags: MapFlags(flags), ..def(kind, key_size, value_size, entries) };
            let created = create(&def);
            assert_eq!(created.is_ok(), fits, "{def:?}: {created:?}");
        }
        let fields = vec![SpecialField { kind: SpecialKind::SpinLock, offset: 0, size: 4 }];
        let locked = MapDef { fields, ..def(kind, 4, 4, 1) };
        assert_eq!(errno(create(&locked)), 95, "{kind}");
        let frozen = MapDef { frozen: Some(vec![0; 4].into()), ..def(kind, 4, 4, 1) };
        assert_eq!(errno(create(&frozen)), 22, "{kind}");
    }
}

#[test]
fn programs_and_hosts_find_what_was_set() {
    for kind in ALL {
        let map = of(kind);
        assert_eq!((map.len(), map.member(&key(2)).unwrap().is_none()), (0, true));
        assert!(map.set_member(&key(2), some(5), UpdateFlags::Any).unwrap().is_none());
        assert_eq!((map.len(), map.member(&key(2)).unwrap().unwrap().id()), (1, 5));
        assert_eq!(map.members().len(), 1);
        // SAFETY: the keys have 4 bytes, and the CPU is the thread's.
        inside(&map, OWN, |cpu| unsafe {
            assert_eq!(map.member_ptr(key(2).as_ptr(), cpu).unwrap().id(), 5);
            for none in [0, 3, 4, u32::MAX] {
                assert!(map.member_ptr(key(none).as_ptr(), cpu).is_none(), "{kind} {none}");
            }
        });
        assert_eq!(map.set_member(&key(2), some(6), UpdateFlags::Any).unwrap().unwrap().id(), 5);
        map.delete(&key(2)).unwrap();
        assert_eq!((map.len(), map.member(&key(2)).unwrap().is_none()), (0, true));
    }
}

#[test]
fn a_program_s_look_up_gives_the_address_that_belongs_to_the_object_and_no_other() {
    for kind in ALL {
        let (map, socket) = (of(kind), Arc::new([7_u8; 80]));
        map.set_member(&key(1), Member::new(1, socket.clone()), UpdateFlags::Any).unwrap();
        assert_eq!(program_lookup(&map, &key(1), 0), None, "{kind}: no address was given");
        let at = socket.as_ptr().expose_provenance() as u64;
        // SAFETY: the object is the memory at the address.
        let member = unsafe { Member::new(1, socket).at(at) };
        map.set_member(&key(1), member, UpdateFlags::Any).unwrap();
        let seen = matches!(kind, MapKind::Sockmap | MapKind::Sockhash);
        assert_eq!(program_lookup(&map, &key(1), 0), seen.then(|| vec![7; 4]), "{kind}");
        assert_eq!(program_lookup(&map, &key(2), 0), None);
    }
}

#[test]
fn flags_and_missing_elements_give_linux_s_errors() {
    use MapKind as K;
    // Beyond the end; BPF_NOEXIST of an empty and of a used element; BPF_EXIST of an empty one; BPF_F_LOCK; deleting
    // beyond the end and of an empty element.
    for (kind, expected) in [
        (K::Sockmap, [7, 0, 17, 2, 22, 22, 22]),
        (K::Sockhash, [0, 0, 17, 2, 22, 2, 2]),
        (K::ReuseportSockarray, [7, 0, 17, 2, 22, 7, 2]),
        (K::CgroupArray, [7, 22, 22, 22, 22, 7, 2]),
    ] {
        let set = |map: &Map, at: u32, flags| errno(map.set_member(&key(at), some(1), flags));
        let used = of(kind);
        assert_eq!(set(&used, 1, UpdateFlags::Any), 0);
        let found = [
            set(&of(kind), 4, UpdateFlags::Any),
            set(&of(kind), 1, UpdateFlags::NoExist),
            set(&used, 1, UpdateFlags::NoExist),
            set(&of(kind), 1, UpdateFlags::Exist),
            set(&used, 1, UpdateFlags::AnyLocked),
            errno(of(kind).delete(&key(4))),
            errno(of(kind).delete(&key(3))),
        ];
        assert_eq!(found, expected, "{kind}");
        // Programs get the same.
        let other = of(kind);
        // SAFETY: the keys have 4 bytes, and the CPU is the thread's.
        inside(&other, OWN, |cpu| unsafe {
            let set = |at: u32, flags| other.set_member_ptr(key(at).as_ptr(), some(1), flags, cpu);
            let [beyond, new, ..] = expected.map(i64::from);
            assert_eq!([set(4, 0), set(1, 1), set(1, 3), set(1, 0)], [-beyond, -new, -22, 0], "{kind}");
        });
    }
    let full = of(K::Sockhash);
    for at in 0..4 {
        full.set_member(&key(at * 1000), some(1), UpdateFlags::Any).unwrap();
    }
    assert_eq!(errno(full.set_member(&key(1), some(1), UpdateFlags::Any)), 7);
    assert_eq!(errno(full.set_member(&key(1000), some(1), UpdateFlags::Any)), 0, "it replaces one");
}

#[test]
fn hosts_read_cookies_of_sockets_where_values_have_room() {
    for kind in [MapKind::Sockmap, MapKind::Sockhash, MapKind::ReuseportSockarray] {
        let wide = map(kind, 4, 8, 4);
        wide.set_member(&key(1), some(1 << 40), UpdateFlags::Any).unwrap();
        let cookie = (1_u64 << 40).to_ne_bytes().to_vec();
        assert_eq!(wide.lookup(&key(1)).unwrap(), Some(cookie.clone()));
        assert_eq!(wide.lookup(&key(2)).unwrap(), None);
        assert_eq!(wide.entries().collect::<Vec<_>>(), [(key(1).to_vec(), cookie)]);
        assert_eq!(wide.lookup_batch(&mut Default::default(), 10).unwrap().len(), 1);
        assert_eq!(errno(wide.update(&key(1), &[1; 8], UpdateFlags::Any)), 22, "{kind}");
        let narrow = of(kind);
        narrow.set_member(&key(1), some(3), UpdateFlags::Any).unwrap();
        assert_eq!((errno(narrow.lookup(&key(1))), narrow.entries().count()), (28, 0));
    }
    assert_eq!(errno(of(MapKind::CgroupArray).lookup(&key(1))), 524);
    let error = of(MapKind::CgroupArray).update(&key(1), &[1; 4], UpdateFlags::Any).unwrap_err();
    assert_eq!(error.to_string(), "map `m` holds control groups, not bytes: insert control groups instead");
}

#[test]
fn a_walk_over_an_array_counts_empty_elements_and_one_over_a_hash_table_does_not() {
    for kind in ALL {
        let map = of(kind);
        for at in [3, 1] {
            map.set_member(&key(at), some(1), UpdateFlags::Any).unwrap();
        }
        let (mut keys, mut last) = (Vec::new(), None);
        while let Some(next) = map.next_key(last.as_deref()).unwrap() {
            keys.push(next.clone());
            last = Some(next);
        }
        keys.sort();
        assert_eq!(keys.len(), if kind == MapKind::Sockhash { 2 } else { 4 }, "{kind}");
        assert!(map.next_key(Some(&key(99))).unwrap().is_some(), "it starts over");
    }
}

#[test]
fn programs_write_no_bytes_and_delete_elements() {
    for kind in ALL {
        let map = of(kind);
        map.set_member(&key(1), some(1), UpdateFlags::Any).unwrap();
        // Nobody has said how programs store sockets here, and the other kinds take nothing from programs.
        assert_eq!(program_update(&map, &key(1), &key(3), 0, 0), -95, "{kind}");
        assert_eq!(map.member(&key(1)).unwrap().unwrap().id(), 1);
        assert_eq!(program_delete(&map, &key(1)), 0);
        assert!(map.member(&key(1)).unwrap().is_none());
    }
}

#[test]
fn a_frozen_map_and_other_kinds_take_no_elements() {
    for kind in ALL {
        let map = of(kind);
        map.freeze().unwrap();
        assert!(matches!(map.set_member(&key(1), some(1), UpdateFlags::Any), Err(MapError::Frozen { .. })));
        assert!(matches!(map.delete(&key(1)), Err(MapError::Frozen { .. })));
        let wrong = of(kind).set_member(&[0; 5], some(1), UpdateFlags::Any);
        assert!(matches!(wrong, Err(MapError::KeyLength { .. })));
    }
    for kind in [MapKind::Hash, MapKind::Devmap] {
        let refused = of(kind).set_member(&key(1), some(1), UpdateFlags::Any);
        assert!(matches!(refused, Err(MapError::NoReferences { .. })), "{refused:?}");
        assert!(of(kind).members().is_empty());
    }
}

/// An object that says when it is dropped.
struct Canary(Arc<AtomicBool>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_element_lives_until_no_program_can_use_it() {
    for kind in ALL {
        let (map, dropped) = (of(kind), Arc::new(AtomicBool::new(false)));
        let member = Member::new(1, Arc::new(Canary(Arc::clone(&dropped))));
        map.set_member(&key(1), member, UpdateFlags::Any).unwrap();
        // SAFETY: the key has 4 bytes, the CPU is the thread's, and the element is used in the section.
        inside(&map, OWN, |cpu| unsafe {
            let found = map.member_ptr(key(1).as_ptr(), cpu).unwrap();
            thread::scope(|scope| scope.spawn(|| map.delete(&key(1)).unwrap()).join().unwrap());
            assert!(map.member_ptr(key(1).as_ptr(), cpu).is_none());
            assert!(!dropped.load(Ordering::SeqCst), "{kind}");
            assert_eq!(found.id(), 1);
        });
        map.reuse().domain.barrier().unwrap();
        assert!(dropped.load(Ordering::SeqCst), "{kind}");
        let again = Arc::new(AtomicBool::new(false));
        let member = Member::new(1, Arc::new(Canary(Arc::clone(&again))));
        map.set_member(&key(1), member, UpdateFlags::Any).unwrap();
        drop(map);
        assert!(again.load(Ordering::SeqCst), "the map drops its elements");
    }
}

/// An object whose number is overwritten when it is dropped.
struct Numbered(AtomicU64);

impl Drop for Numbered {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::SeqCst);
    }
}

#[test]
fn readers_never_see_a_dropped_or_mixed_element() {
    const ROUNDS: u64 = 3000;
    for kind in [MapKind::Sockmap, MapKind::Sockhash] {
        let (map, done) = (&of(kind), &AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let (mut found, mut turn) = (0_u64, 0);
                    while !done.load(Ordering::Relaxed) || found == 0 {
                        turn += 1;
                        // SAFETY: the key has 4 bytes, the CPU is the thread's, and the element is used in the section.
                        inside(map, OWN, |cpu| unsafe {
                            let Some(member) = map.member_ptr(key(turn % 4).as_ptr(), cpu) else { return };
                            let held = member.object().downcast_ref::<Numbered>().unwrap();
                            assert_eq!(held.0.load(Ordering::SeqCst), member.id());
                            found += 1;
                        });
                    }
                });
            }
            for round in 1..=ROUNDS {
                let member = Member::new(round, Arc::new(Numbered(AtomicU64::new(round))));
                map.set_member(&key(round as u32 % 4), member, UpdateFlags::Any).unwrap();
                if round % 7 == 0 {
                    map.delete(&key(round as u32 % 4)).unwrap();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(map.len() > 0);
    }
}

#[test]
fn a_map_belongs_to_its_domain() {
    let other = skep_rcu::Domain::new(2).unwrap();
    for kind in ALL {
        let map = Map::create(&def(kind, 4, 4, 1), &Options { cpus: 2, limit: 1 << 20 }).unwrap();
        assert!(map.fits(&map.reuse().domain.clone()) && !map.fits(&other), "{kind}");
    }
}
