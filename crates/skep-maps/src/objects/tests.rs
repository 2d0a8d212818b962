//! Lists and trees against the standard library's, and counts of what is left.

use super::*;
use std::collections::{BTreeMap, VecDeque};

const LIST_NODE: u32 = 8;
const TREE_NODE: u32 = 32;
const COUNT: u32 = 64;
const POINTER: u32 = 72;
const HEAD: u32 = 80;
const BYTES: u32 = 96;

fn field(kind: SpecialKind, offset: u32) -> SpecialField {
    SpecialField { kind, offset, size: field_size(kind).unwrap().0 }
}

/// A key, a node of each kind, a count, a kept pointer and a list.
fn shape() -> Shape {
    let fields = vec![
        field(SpecialKind::ListNode, LIST_NODE),
        field(SpecialKind::RbNode, TREE_NODE),
        field(SpecialKind::Refcount, COUNT),
        field(SpecialKind::Kptr { to: 7 }, POINTER),
        field(SpecialKind::ListHead { holds: 7, node: 8 }, HEAD),
    ];
    Shape { bytes: BYTES, fields, per_cpu: false, contents: Contents::Program }
}

/// A layout, and a section that uses it.
fn with_layout(test: impl FnOnce(&Arc<Layout>, u32)) {
    let domain = Domain::new(4).unwrap();
    let objects = Objects::default();
    let layout = objects.layout(&Reclamation::new(domain.clone()), 64 << 20, &shape()).unwrap();
    let section = domain.enter().unwrap();
    test(&layout, section.number());
    assert_eq!(objects.live(), 0, "every test gives up what it made");
}

fn new(layout: &Arc<Layout>, cpu: u32, key: u64) -> u64 {
    // SAFETY: this thread's slot, inside its section; the first word is the object's data.
    unsafe {
        let at = layout.alloc(cpu);
        assert!(at != 0 && at.is_multiple_of(16));
        word(at).store(key, Ordering::Relaxed);
        at
    }
}

fn key(object: u64) -> u64 {
    // SAFETY: an object of these tests.
    unsafe { word(object) }.load(Ordering::Relaxed)
}

/// The same numbers each time.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn a_list_is_a_queue_with_two_ends() {
    with_layout(|layout, cpu| {
        let mut head = [0u64; 2];
        // SAFETY: the head is this thread's.
        let list = unsafe { List::at((&raw mut head).expose_provenance() as u64) };
        let (mut model, mut next) = (VecDeque::new(), numbers(1));
        for turn in 0..20_000 {
            let end = if next(2) == 0 { End::Front } else { End::Back };
            if next(100) < if turn / 2_000 % 2 == 0 { 60 } else { 40 } {
                let object = new(layout, cpu, turn);
                // SAFETY: a node of an object that this thread owns.
                assert!(unsafe { list.push(end, object + u64::from(LIST_NODE), cpu) });
                match end {
                    End::Front => model.push_front(turn),
                    End::Back => model.push_back(turn),
                }
            } else {
                let wanted = if end == End::Front { model.pop_front() } else { model.pop_back() };
                let node = list.pop(end);
                assert_eq!(wanted.is_some(), node != 0);
                if let Some(wanted) = wanted {
                    let object = node - u64::from(LIST_NODE);
                    assert_eq!(key(object), wanted);
                    // SAFETY: popped, so owned.
                    unsafe { release(object, cpu) };
                }
            }
            for (end, wanted) in [(End::Front, model.front()), (End::Back, model.back())] {
                let found = list.end(end);
                assert_eq!(wanted.copied(), (found != 0).then(|| key(found - u64::from(LIST_NODE))));
            }
        }
        assert!(!model.is_empty());
        let mut dead = Dead::default();
        // SAFETY: nobody else has the list.
        unsafe {
            list::give_up(list.detach(), &mut dead);
            dead.free(Caller::Cpu(cpu));
        }
        assert_eq!(head, [0; 2]);
    });
}

/// The number of black nodes on each path down, after checking order, colours and links.
fn check_tree(node: u64, above: u64, keys: &mut Vec<u64>) -> u32 {
    if node == 0 {
        return 1;
    }
    // SAFETY: a node of the tests' tree.
    let (left, right, parent) = unsafe {
        (
            word(node).load(Ordering::Relaxed),
            word(node + 8).load(Ordering::Relaxed),
            word(node + 16).load(Ordering::Relaxed),
        )
    };
    assert_eq!(parent & !1, above);
    let red = |node: u64| {
        // SAFETY: as above.
        node != 0 && unsafe { word(node + 16) }.load(Ordering::Relaxed) & 1 != 0
    };
    assert!(!red(node) || (!red(left) && !red(right)), "a red node has a red child");
    let black = check_tree(left, node, keys);
    keys.push(key(node - u64::from(TREE_NODE)));
    assert_eq!(check_tree(right, node, keys), black, "paths have different numbers of black nodes");
    black + u32::from(!red(node))
}

#[test]
fn a_tree_is_ordered_and_balanced_after_every_change() {
    with_layout(|layout, cpu| {
        let mut root = [0u64; 2];
        // SAFETY: the root is this thread's.
        let tree = unsafe { Tree::at((&raw mut root).expose_provenance() as u64) };
        let (mut model, mut next) = (BTreeMap::<(u64, u64), u64>::new(), numbers(2));
        let node_of = |object| object + u64::from(TREE_NODE);
        let of_node = |node| node - u64::from(TREE_NODE);
        for turn in 0..6_000 {
            if next(100) < if turn / 1_000 % 2 == 0 { 65 } else { 35 } {
                let number = next(500);
                let object = new(layout, cpu, number);
                let less = |a, b| key(of_node(a)) < key(of_node(b));
                // SAFETY: a node of an object that this thread owns.
                assert!(unsafe { tree.add(node_of(object), cpu, less) });
                model.insert((number, turn), object);
            } else if !model.is_empty() {
                let at = next(model.len() as u64) as usize;
                let &wanted = model.keys().nth(at).unwrap();
                let object = model.remove(&wanted).unwrap();
                // SAFETY: a node of an object that the tree owns, and then this thread.
                unsafe {
                    assert!(tree.remove(node_of(object)));
                    assert!(!tree.remove(node_of(object)), "it is not there any more");
                    release(object, cpu);
                }
            }
            if turn % 16 == 0 {
                let mut keys = Vec::new();
                check_tree(tree.top(), 0, &mut keys);
                assert_eq!(keys, model.keys().map(|&(number, _)| number).collect::<Vec<_>>());
            }
            // Of equal ones the oldest is the first.
            let first = model.values().next().copied();
            assert_eq!(first, (tree.first() != 0).then(|| of_node(tree.first())));
        }
        assert!(!model.is_empty());
        let mut dead = Dead::default();
        // SAFETY: nobody else has the tree.
        unsafe {
            tree::give_up(tree.detach(), &mut dead);
            dead.free(Caller::Cpu(cpu));
        }
    });
}

#[test]
fn an_order_that_contradicts_itself_still_gives_a_tree() {
    with_layout(|layout, cpu| {
        let mut root = [0u64; 2];
        // SAFETY: the root is this thread's.
        let tree = unsafe { Tree::at((&raw mut root).expose_provenance() as u64) };
        let mut next = numbers(3);
        let objects: Vec<_> = (0..500).map(|number| new(layout, cpu, number)).collect();
        for object in &objects {
            // SAFETY: a node of an object that this thread owns.
            assert!(unsafe { tree.add(object + u64::from(TREE_NODE), cpu, |_, _| next(2) == 0) });
        }
        let mut keys = Vec::new();
        check_tree(tree.top(), 0, &mut keys);
        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..500));
        for object in objects {
            // SAFETY: a node of an object that the tree owns, and then this thread.
            unsafe {
                assert!(tree.remove(object + u64::from(TREE_NODE)));
                release(object, cpu);
            }
        }
        assert_eq!(tree.first(), 0);
    });
}

#[test]
fn an_object_in_a_list_is_put_into_no_other_and_its_count_falls() {
    with_layout(|layout, cpu| {
        let mut heads = [[0u64; 2]; 2];
        // SAFETY: the heads are this thread's, as are the objects.
        unsafe {
            let [one, other] =
                heads.each_mut().map(|head| List::at((&raw mut *head).expose_provenance() as u64));
            let object = new(layout, cpu, 5);
            assert!(acquire(object) && acquire(object));
            let node = object + u64::from(LIST_NODE);
            assert!(one.push(End::Back, node, cpu));
            assert!(!other.push(End::Back, node, cpu));
            assert!(!one.push(End::Front, node, cpu), "nor into the same one again");
            assert_eq!((one.end(End::Front), other.end(End::Front)), (node, 0));
            assert_eq!(layout.live(), 1);
            // The list's reference is the last one: three were given to lists, and two of them given up.
            assert_eq!(one.pop(End::Front), node);
            assert!(other.push(End::Front, node, cpu), "it is free again");
            assert_eq!(other.pop(End::Back), node);
            release(object, cpu);
            assert!(!acquire(object), "nobody owns it");
        }
    });
}

#[test]
fn a_chain_of_a_hundred_thousand_owners_is_freed_by_a_loop() {
    with_layout(|layout, cpu| {
        // Each owns the next one, by its pointer or by its list.
        let mut object = new(layout, cpu, 0);
        for number in 1..100_000 {
            let owner = new(layout, cpu, number);
            // SAFETY: this thread owns both.
            unsafe {
                if number % 2 == 0 {
                    assert_eq!(exchange(owner + u64::from(POINTER), object), 0);
                } else {
                    assert!(List::at(owner + u64::from(HEAD)).push(
                        End::Front,
                        object + u64::from(LIST_NODE),
                        cpu
                    ));
                }
            }
            object = owner;
        }
        assert_eq!(layout.live(), 100_000);
        // SAFETY: this thread owns it.
        unsafe { release(object, cpu) };
    });
}

#[test]
fn a_freed_object_is_the_same_until_its_readers_have_left() {
    let domain = Domain::new(4).unwrap();
    for policy in Policy::ALL {
        let objects = Objects::default();
        let layout = objects
            .layout(&Reclamation { policy, ..Reclamation::new(domain.clone()) }, 1 << 20, &shape())
            .unwrap();
        let section = domain.enter().unwrap();
        let cpu = section.number();
        let freed: Vec<_> = (0..200).map(|number| new(&layout, cpu, number)).collect();
        for &object in &freed {
            // SAFETY: this thread owns it.
            unsafe { release(object, cpu) };
        }
        let others: Vec<_> = (0..200).map(|_| new(&layout, cpu, u64::MAX)).collect();
        for (number, object) in freed.iter().enumerate() {
            assert!(!others.contains(object), "{policy}");
            if policy != Policy::None {
                assert_eq!(key(*object), number as u64, "{policy}");
            }
        }
        for object in others {
            // SAFETY: this thread owns it.
            unsafe { release(object, cpu) };
        }
        assert_eq!(objects.live(), 0);
    }
}

#[test]
fn objects_per_cpu_have_a_copy_for_each() {
    let domain = Domain::new(4).unwrap();
    let objects = Objects::default();
    let shape = Shape { bytes: 20, fields: Vec::new(), per_cpu: true, contents: Contents::Program };
    let layout = objects.layout(&Reclamation::new(domain.clone()), 1 << 20, &shape).unwrap();
    let section = domain.enter().unwrap();
    // SAFETY: this thread's slot and its object.
    unsafe {
        let object = layout.alloc(section.number());
        let copies: Vec<_> = (0..6).map(|cpu| of_cpu(object, cpu)).collect();
        assert_eq!(copies[0], object);
        assert!(object.is_multiple_of(64));
        assert!(copies[..4].windows(2).all(|pair| pair[1] == pair[0] + 64), "{copies:x?}");
        assert_eq!(copies[4..], [0, 0]);
        assert_eq!(of_cpu(object, u32::MAX), 0);
        release(object, section.number());
    }
    assert_eq!(objects.live(), 0);
}

#[test]
fn the_limit_bounds_the_objects_of_a_layout() {
    let domain = Domain::new(2).unwrap();
    let objects = Objects::default();
    let layout = objects.layout(&Reclamation::new(domain.clone()), 1 << 20, &shape()).unwrap();
    let section = domain.enter().unwrap();
    let cpu = section.number();
    // SAFETY: this thread's slot and its objects.
    unsafe {
        let made: Vec<_> = std::iter::from_fn(|| Some(layout.alloc(cpu)).filter(|at| *at != 0)).collect();
        assert!((4_000..10_000).contains(&made.len()), "{}", made.len());
        made.into_iter().for_each(|object| release(object, cpu));
    }
    assert_eq!(objects.live(), 0);
}

#[test]
fn shapes_of_strangers_are_refused_before_anything_relies_on_them() {
    let domain = Domain::new(1).unwrap();
    let objects = Objects::default();
    let refused = |bytes, fields: Vec<SpecialField>| {
        let shape = Shape { bytes, fields, per_cpu: false, contents: Contents::Program };
        objects.layout(&Reclamation::new(domain.clone()), 1 << 20, &shape).unwrap_err().to_string()
    };
    assert!(refused(0, vec![]).contains("0 bytes"));
    assert!(refused(4097, vec![]).contains("4097 bytes"));
    let node = |offset, size| SpecialField { kind: SpecialKind::ListNode, offset, size };
    assert!(refused(64, vec![node(0, 16)]).contains("expected 24"));
    assert!(refused(64, vec![node(48, 24)]).contains("at 48"));
    assert!(refused(64, vec![node(4, 24)]).contains("at 4"));
    assert!(refused(64, vec![node(u32::MAX - 7, 24)]).contains("expected 24"));
}

#[test]
fn layouts_are_shared_by_shape_and_forgotten_with_their_programs() {
    let domain = Domain::new(1).unwrap();
    let objects = Objects::default();
    let of = |shape: &Shape| objects.layout(&Reclamation::new(domain.clone()), 1 << 20, shape).unwrap();
    let (one, mut renumbered) = (of(&shape()), shape());
    renumbered.fields[3].kind = SpecialKind::Kptr { to: 99 };
    assert!(Arc::ptr_eq(&one, &of(&renumbered)), "types have other numbers in other files");
    let section = domain.enter().unwrap();
    let object = new(&one, section.number(), 0);
    drop(one);
    let other = of(&Shape { bytes: 8, fields: Vec::new(), per_cpu: false, contents: Contents::Program });
    assert_eq!(objects.layouts.lock().unwrap().len(), 2, "an object needs its layout");
    // SAFETY: this thread owns it.
    unsafe { release(object, section.number()) };
    drop(other);
    drop(of(&Shape { bytes: 16, fields: Vec::new(), per_cpu: false, contents: Contents::Program }));
    assert_eq!(objects.layouts.lock().unwrap().len(), 1);
}
