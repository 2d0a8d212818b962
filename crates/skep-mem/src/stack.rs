//! Lock-free stacks of numbers (Treiber stacks with tags). A signal handler may interrupt a push or pop and push or
//! pop itself.
//!
//! ```text
//!   top: | tag | number + 1 |        next[number] = the number below it + 1, or 0
//! ```
//!
//! The numbers name records that never move, so a pop can still read the link of a record that another thread has
//! popped meanwhile. The tag, which every change increments, shows that the link is out of date (ABA). It has 32
//! bits: a pop is fooled only if exactly four thousand million changes interrupt it and leave its number on top.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A stack of numbers. All zeroes are an empty one.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Stack(AtomicU64);

/// For each number the place of its link to the number below it.
pub(crate) trait Links {
    fn link(&self, number: u32) -> &AtomicU32;
}

impl Stack {
    pub(crate) fn push(&self, links: &impl Links, number: u32) {
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            links.link(number).store(top as u32, Ordering::Relaxed);
            // Release: pairs with the Acquire in `pop` and `take`, for the link and for the record that the number
            // names.
            match self.0.compare_exchange_weak(
                top,
                tagged(top, number + 1),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    pub(crate) fn pop(&self, links: &impl Links) -> Option<u32> {
        // Acquire, both: pairs with the Release in `push`.
        let mut top = self.0.load(Ordering::Acquire);
        loop {
            let number = (top as u32).checked_sub(1)?;
            // May be out of date; then the exchange fails.
            let below = links.link(number).load(Ordering::Relaxed);
            match self.0.compare_exchange_weak(top, tagged(top, below), Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(number),
                Err(now) => top = now,
            }
        }
    }

    /// Removes all numbers. Returns the topmost; the links lead to the others.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut top = self.0.load(Ordering::Relaxed);
        loop {
            let number = (top as u32).checked_sub(1)?;
            // Acquire: pairs with the Release in `push`.
            match self.0.compare_exchange_weak(top, tagged(top, 0), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(number),
                Err(now) => top = now,
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) as u32 == 0
    }
}

/// The next tag, with the given number.
fn tagged(top: u64, number: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(number)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    impl Links for Vec<AtomicU32> {
        fn link(&self, number: u32) -> &AtomicU32 {
            &self[number as usize]
        }
    }

    #[test]
    fn numbers_come_back_last_first() {
        let links: Vec<AtomicU32> = (0..4).map(|_| AtomicU32::new(0)).collect();
        let stack = Stack::default();
        assert_eq!(stack.pop(&links), None);
        (0..4).for_each(|number| stack.push(&links, number));
        assert_eq!(stack.pop(&links), Some(3));
        stack.push(&links, 3);
        assert_eq!(stack.take(), Some(3));
        assert!(stack.is_empty() && stack.pop(&links).is_none());
        let rest: Vec<u32> = (1..4).rev().map(|number| links[number].load(Ordering::Relaxed) - 1).collect();
        assert_eq!(rest, [2, 1, 0]);
    }

    #[test]
    fn many_threads_neither_lose_nor_double_a_number() {
        let links: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        let held: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        let stack = Stack::default();
        (0..64).for_each(|number| stack.push(&links, number));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(number) = stack.pop(&links) else { continue };
                        assert_eq!(held[number as usize].swap(1, Ordering::AcqRel), 0, "two have {number}");
                        held[number as usize].store(0, Ordering::Release);
                        stack.push(&links, number);
                    }
                });
            }
        });
        let mut left: Vec<u32> = std::iter::from_fn(|| stack.pop(&links)).collect();
        left.sort_unstable();
        assert_eq!(left, (0..64).collect::<Vec<_>>());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::model::Model;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Two([AtomicU32; 2]);

    impl Links for Two {
        fn link(&self, number: u32) -> &AtomicU32 {
            &self.0[number as usize]
        }
    }

    /// A stack, and the numbers that were popped; the latter are not part of the model.
    struct World {
        stack: Stack,
        links: Two,
        push: fn(&Stack, &Two, u32),
        pop: fn(&Stack, &Two) -> Option<u32>,
        taken: Mutex<Vec<u32>>,
    }

    impl World {
        fn new(push: fn(&Stack, &Two, u32), pop: fn(&Stack, &Two) -> Option<u32>) -> Self {
            let world =
                Self { stack: Stack::default(), links: Two::default(), push, pop, taken: Mutex::default() };
            world.push(0);
            world.push(1);
            world
        }

        fn push(&self, number: u32) {
            (self.push)(&self.stack, &self.links, number);
        }

        fn pop(&self) -> Option<u32> {
            (self.pop)(&self.stack, &self.links)
        }

        fn keep(&self, number: Option<u32>) {
            self.taken.lock().unwrap().extend(number);
        }
    }

    /// One thread pops; the other pops both numbers and pushes the first again. The first must not be popped twice.
    fn popped_twice(begin: fn() -> World) -> Model<World> {
        let one = |world: &World| world.keep(world.pop());
        let both = |world: &World| {
            let (first, second) = (world.pop(), world.pop());
            if let Some(first) = first {
                world.push(first);
            }
            world.keep(second);
        };
        let end = |world: World| {
            // Bounded: wrong links may form a cycle.
            let left: Vec<u32> = std::iter::from_fn(|| world.pop()).take(4).collect();
            let mut all = world.taken.into_inner().unwrap();
            all.extend(left);
            all.sort_unstable();
            assert_eq!(all, [0, 1], "lost or doubled");
        };
        Model { begin, parts: vec![one, both], end }
    }

    #[test]
    fn loom_no_number_is_lost_or_doubled() {
        popped_twice(|| World::new(Stack::push, Stack::pop)).explore();
    }

    #[test]
    fn loom_rejects_a_stack_without_tags() {
        fn pop(stack: &Stack, links: &Two) -> Option<u32> {
            let mut top = stack.0.load(Ordering::Acquire);
            loop {
                let number = (top as u32).checked_sub(1)?;
                let below = u64::from(links.link(number).load(Ordering::Relaxed));
                let tag = top >> 32 << 32;
                match stack.0.compare_exchange(top, tag | below, Ordering::Acquire, Ordering::Acquire) {
                    Ok(_) => return Some(number),
                    Err(now) => top = now,
                }
            }
        }
        // Pushes change the tag as well, so the wrong stack also pushes without one.
        fn push(stack: &Stack, links: &Two, number: u32) {
            let mut top = stack.0.load(Ordering::Relaxed);
            loop {
                links.link(number).store(top as u32, Ordering::Relaxed);
                let new = top >> 32 << 32 | u64::from(number + 1);
                match stack.0.compare_exchange(top, new, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(now) => top = now,
                }
            }
        }
        popped_twice(|| World::new(push, pop)).must_fail("lost or doubled");
    }
}
