//! Tests of internals: walkers of tries that are disturbed at chosen moments.

use super::*;
use skep_mem::Policy;
use skep_rcu::Domain;

/// Immediate reuse, so that a change can reuse the node on which a walker stands.
fn memory() -> Reclamation {
    Reclamation { policy: Policy::Immediate, ..Reclamation::new(Domain::new(1).unwrap()) }
}

fn trie() -> Trie {
    Trie::new(&Plan { key_size: 8, value_size: 8, max_entries: 50 }, usize::MAX, &memory()).unwrap()
}

fn key(len: u32, address: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&len.to_ne_bytes());
    key[4..].copy_from_slice(&address.to_be_bytes());
    key
}

/// Sets the value of a prefix to its length.
fn set(trie: &Trie, len: u32, address: u32) {
    let value = u64::from(len);
    // SAFETY: key and value have the trie's sizes.
    unsafe {
        trie.update(
            key(len, address).as_ptr(),
            Source::All((&raw const value).cast()),
            UpdateFlags::Any,
            Caller::Host,
        )
    }
    .unwrap();
}

fn delete(trie: &Trie, len: u32, address: u32) {
    // SAFETY: the key has the trie's size.
    unsafe { trie.delete(key(len, address).as_ptr(), Caller::Host) }.unwrap();
}

/// Looks an address up and runs `disturbance` when the walk has passed `hops` nodes; returns the length found.
fn look_up_disturbed(trie: &Trie, address: u32, hops: u32, disturbance: impl Fn()) -> Option<u32> {
    // SAFETY: the key has the trie's size.
    let key = unsafe { trie.load(key(32, address).as_ptr()) };
    let mut passed = 0;
    let found = trie.version.read(Caller::Host, |walk| {
        trie.walk(&key, || {
            passed += 1;
            if passed == hops {
                disturbance();
            }
            walk.is_astray()
        })
    });
    assert!(passed >= hops, "the walk was over after {passed} hops");
    found.map(Node::len)
}

/// A signal handler that interrupts its own thread while that holds the lock.
#[test]
fn a_handler_inside_a_change_reads_but_cannot_change() {
    let trie = trie();
    set(&trie, 8, 0x0a00_0000);
    set(&trie, 16, 0x0a01_0000);
    let section = trie.elements.domain().enter().unwrap();
    let (caller, value) = (Caller::Cpu(section.number()), 5_u64);
    let used = trie.elements.stats().in_use;
    let held = trie.version.lock(caller).unwrap();
    // SAFETY: keys and values have the trie's sizes, and the CPU is this thread's.
    unsafe {
        for (len, address) in [(8, 0x0a00_0000), (24, 0x0a01_0100), (32, 0xc0a8_0001)] {
            let (key, source) = (key(len, address), Source::All((&raw const value).cast()));
            assert_eq!(trie.update(key.as_ptr(), source, UpdateFlags::Any, caller), Err(OpError::Busy));
            assert_eq!(trie.delete(key.as_ptr(), caller), Err(OpError::Busy));
        }
        assert!(!trie.lookup(key(32, 0x0a01_0101).as_ptr(), section.number()).is_null());
        let (mut all, mut cursor) = (Batch::new(), Cursor::default());
        trie.batch(&mut cursor, 10, &mut all, caller);
        assert_eq!((all.len(), trie.len(), trie.elements.stats().in_use), (2, 2, used));
    }
    drop(held);
    // SAFETY: as above.
    assert_eq!(unsafe { trie.delete(key(8, 0x0a00_0000).as_ptr(), caller) }, Ok(()));
}

#[test]
fn a_walker_finds_nodes_below_a_replaced_and_reused_node() {
    let trie = trie();
    for len in [8, 16, 24, 32] {
        set(&trie, len, 0x0a01_0101);
    }
    let found = look_up_disturbed(&trie, 0x0a01_0101, 2, || {
        set(&trie, 16, 0x0a01_0101); // frees the node that the walker stands on
        set(&trie, 9, 0xc000_0000); // takes it
    });
    assert_eq!(found, Some(32));
}

#[test]
fn a_walker_finds_nodes_below_a_deleted_and_reused_node() {
    let trie = trie();
    for len in [8, 16, 24, 32] {
        set(&trie, len, 0x0a01_0101);
    }
    let found = look_up_disturbed(&trie, 0x0a01_0101, 3, || {
        delete(&trie, 24, 0x0a01_0101);
        set(&trie, 9, 0xc000_0000);
    });
    assert_eq!(found, Some(32));
}

#[test]
fn a_walker_on_a_removed_fork_finds_the_remaining_side() {
    let trie = trie();
    set(&trie, 32, 0x0a01_0101);
    set(&trie, 32, 0x0a01_0102);
    assert_eq!(trie.elements.stats().in_use, 3);
    let found = look_up_disturbed(&trie, 0x0a01_0101, 1, || {
        delete(&trie, 32, 0x0a01_0102);
        set(&trie, 9, 0xc000_0000);
        set(&trie, 9, 0xd000_0000);
    });
    assert_eq!(found, Some(32));
}

#[test]
fn forks_exist_exactly_where_prefixes_diverge() {
    let trie = trie();
    let nodes = |expected: usize| assert_eq!(trie.elements.stats().in_use, expected);
    set(&trie, 16, 0x0a01_0000);
    set(&trie, 16, 0x0a02_0000);
    nodes(3); // 10.1, 10.2, and a fork /14 above
    set(&trie, 14, 0x0a00_0000);
    nodes(3); // the fork got a value
    delete(&trie, 14, 0x0a00_0000);
    nodes(3); // and lost it
    set(&trie, 32, 0x0a01_ffff);
    nodes(4); // below 10.1
    delete(&trie, 16, 0x0a01_0000);
    nodes(3); // 10.1.255.255 took the place of 10.1
    delete(&trie, 16, 0x0a02_0000);
    nodes(1); // and of the fork
    delete(&trie, 32, 0x0a01_ffff);
    nodes(0);
}
