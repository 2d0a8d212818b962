//! The allocator against a model, and the bins of its sizes.

use proptest::prelude::*;

use super::*;

const PLAIN: Fit = Fit { align: 1, random: None };

#[test]
fn bins_tile_the_sizes_and_rounding_reaches_the_next_one() {
    let mut before = (0, 0);
    for count in 1..=MAX_REGION {
        let here = bin(count);
        assert!(here.0 < ROWS && here.1 < COLUMNS, "{count}");
        assert!(here >= before, "{count}");
        let up = round_up(count);
        assert!(up >= count);
        assert!(up == 1 || bin(up) != bin(up - 1), "{count}: {up} does not begin a bin");
        assert!(up == count || bin(up - 1) == here, "{count}: a bin was passed over");
        before = here;
    }
}

#[test]
fn an_empty_allocator_has_nothing_to_give() {
    let mut chunks = Chunks::new();
    assert!(chunks.alloc(1, PLAIN).is_none());
    assert!(chunks.remove_empty_region(|_| true).is_none());
    assert_eq!((chunks.used(), chunks.free_count(), chunks.longest_free_run()), (0, 0, 0));
}

#[test]
fn runs_with_chunks_that_were_texts_say_so_and_others_do_not() {
    let mut chunks = Chunks::new();
    assert!(chunks.add_region(0, 100, 100, false).is_none());
    let draft = chunks.alloc(10, PLAIN).unwrap();
    assert!(!draft.reused);
    chunks.free(draft.block);
    let first = chunks.alloc(10, PLAIN).unwrap();
    assert!(!first.reused, "a draft that was dropped is nothing that ran");
    chunks.publish(&first.block);
    chunks.free(first.block);
    let second = chunks.alloc(4, PLAIN).unwrap();
    assert!(second.reused);
    let third = chunks.alloc(7, PLAIN).unwrap();
    assert!(third.reused, "its last chunk alone is fresh");
    let fourth = chunks.alloc(80, PLAIN).unwrap();
    assert!(!fourth.reused, "behind all that was ever used");
    chunks.publish(&third.block);
    chunks.free(third.block);
    chunks.free(fourth.block);
    assert_eq!(chunks.alloc(96, PLAIN).map(|found| found.reused), Some(true));

    let mut chunks = Chunks::new();
    assert!(chunks.add_region(0, 50, 100, true).is_some());
    assert!(chunks.alloc(10, PLAIN).unwrap().reused);
    assert!(chunks.alloc(40, PLAIN).unwrap().reused);
}

/// The specification of the allocator: a bool for each chunk.
#[derive(Default)]
struct Naive {
    /// Start and populated chunks.
    regions: Vec<(u32, u32)>,
    used: std::collections::BTreeMap<u32, bool>,
}

impl Naive {
    fn free_runs(&self) -> Vec<(u32, u32)> {
        let mut runs = Vec::new();
        for &(start, count) in &self.regions {
            let mut run: Option<(u32, u32)> = None;
            for chunk in start..start + count {
                if self.used[&chunk] {
                    runs.extend(run.take());
                } else {
                    run = Some(run.map_or((chunk, 1), |(start, length)| (start, length + 1)));
                }
            }
            runs.extend(run);
        }
        runs.sort_unstable();
        runs
    }

    fn set(&mut self, start: u32, count: u32, used: bool) {
        for chunk in start..start + count {
            let was = self.used.insert(chunk, used);
            assert_eq!(was, Some(!used), "chunk {chunk}");
        }
    }
}

/// The free runs in the allocator's bins, after a check of every link and bitmap bit.
fn checked_free_runs(chunks: &Chunks) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    for row in 0..ROWS {
        assert_eq!(chunks.rows >> row & 1 == 1, chunks.columns[row] != 0);
        for column in 0..COLUMNS {
            let mut index = chunks.bins[row][column];
            assert_eq!(chunks.columns[row] >> column & 1 == 1, index != NONE);
            let mut previous = NONE;
            while index != NONE {
                let node = chunks.nodes[index as usize];
                assert_eq!(node.state, RunState::Free);
                assert_eq!(node.previous, previous);
                assert_eq!(bin(node.count), (row, column));
                if node.after != NONE {
                    assert_eq!(chunks.nodes[node.after as usize].before, index);
                }
                if node.before != NONE {
                    assert_eq!(chunks.nodes[node.before as usize].after, index);
                }
                runs.push((node.start, node.count));
                (previous, index) = (index, node.next);
            }
        }
    }
    runs.sort_unstable();
    runs
}

#[derive(Clone, Debug)]
enum Action {
    AddRegion,
    RemoveEmptyRegion,
    Extend(usize, u32),
    Alloc(u32, Fit),
    Publish(usize),
    Free(usize),
    Shrink(usize, u32),
}

fn actions(region: u32) -> impl Strategy<Value = Vec<Action>> {
    let size = prop_oneof![6 => 1..40u32, 3 => 1..=region / 2, 1 => region / 2..=region + 1];
    let align = prop_oneof![3 => Just(1u32), 1 => Just(2), 1 => Just(8)];
    let fit = (align, proptest::option::of(any::<u32>())).prop_map(|(align, random)| Fit { align, random });
    let step = prop_oneof![
        1 => Just(Action::AddRegion),
        1 => Just(Action::RemoveEmptyRegion),
        3 => (any::<usize>(), 1..60u32).prop_map(|(which, count)| Action::Extend(which, count)),
        12 => (size, fit).prop_map(|(count, fit)| Action::Alloc(count, fit)),
        2 => any::<usize>().prop_map(Action::Publish),
        10 => any::<usize>().prop_map(Action::Free),
        3 => (any::<usize>(), 1..40u32).prop_map(|(which, count)| Action::Shrink(which, count)),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_agrees_with_a_table_of_bools(region in 8..700u32, steps in actions(200)) {
        let mut chunks = Chunks::new();
        let mut naive = Naive::default();
        let mut live: Vec<(Block, u32, u32, bool)> = Vec::new();
        let mut were_texts = std::collections::BTreeSet::new();
        let mut added = 0;
        let mut beyond: std::collections::BTreeMap<u32, Block> = std::collections::BTreeMap::new();
        for step in steps {
            match step {
                Action::AddRegion => {
                    // Regions are adjacent, so a defect could produce a run across the border.
                    let start = added * region;
                    added += 1;
                    let first = if added % 3 == 0 { region } else { region.div_ceil(8) };
                    beyond.extend(chunks.add_region(start, first, region, false).map(|block| (start, block)));
                    naive.regions.push((start, first));
                    naive.used.extend((start..start + first).map(|chunk| (chunk, false)));
                }
                Action::Extend(which, count) if !naive.regions.is_empty() => {
                    let which = which % naive.regions.len();
                    let (start, has) = naive.regions[which];
                    let Some(block) = beyond.remove(&start) else { continue };
                    let count = count.min(region - has);
                    beyond.extend(chunks.extend(block, count).map(|block| (start, block)));
                    prop_assert_eq!(beyond.contains_key(&start), has + count < region);
                    naive.regions[which].1 += count;
                    naive.used.extend((start + has..start + has + count).map(|chunk| (chunk, false)));
                }
                Action::RemoveEmptyRegion => {
                    let empty = |&(start, count): &(u32, u32)| {
                        (start..start + count).all(|chunk| !naive.used[&chunk])
                    };
                    let expected = naive.regions.iter().any(empty);
                    let removed = chunks.remove_empty_region(|_| true);
                    prop_assert_eq!(removed.is_some(), expected);
                    if let Some(start) = removed {
                        let place = naive.regions.iter().position(|region| region.0 == start).unwrap();
                        prop_assert!(empty(&naive.regions[place]));
                        naive.regions.swap_remove(place);
                        beyond.remove(&start);
                        naive.used.retain(|&chunk, _| !(start..start + region).contains(&chunk));
                    }
                }
                Action::Alloc(count, fit) => {
                    let fits = |run: &(u32, u32)| run.0.next_multiple_of(fit.align) + count <= run.0 + run.1;
                    let fits = naive.free_runs().iter().any(fits);
                    let found = chunks.alloc(count, fit);
                    prop_assert_eq!(found.is_some(), fits, "for {} chunks", count);
                    if let Some(found) = found {
                        prop_assert!(found.start.is_multiple_of(fit.align));
                        naive.set(found.start, count, true);
                        // `reused` may be true for a run that was never a text, if a later chunk was one.
                        let run = found.start..found.start + count;
                        prop_assert!(found.reused || were_texts.range(run).next().is_none());
                        prop_assert!(!found.reused || were_texts.range(found.start..).next().is_some());
                        live.push((found.block, found.start, count, false));
                    }
                }
                Action::Free(which) if !live.is_empty() => {
                    let (block, start, count, text) = live.swap_remove(which % live.len());
                    chunks.free(block);
                    were_texts.extend((start..start + count).filter(|_| text));
                    naive.set(start, count, false);
                }
                Action::Shrink(which, to) if !live.is_empty() => {
                    let which = which % live.len();
                    let (block, start, count, text) = &mut live[which];
                    if *text {
                        continue;
                    }
                    let to = to.min(*count);
                    chunks.shrink(block, to);
                    naive.set(*start + to, *count - to, false);
                    *count = to;
                }
                Action::Publish(which) if !live.is_empty() => {
                    let which = which % live.len();
                    if !std::mem::replace(&mut live[which].3, true) {
                        chunks.publish(&live[which].0);
                    }
                }
                Action::Free(_) | Action::Shrink(..) | Action::Extend(..) | Action::Publish(_) => {}
            }
            let runs = naive.free_runs();
            prop_assert_eq!(&checked_free_runs(&chunks), &runs);
            let used = naive.used.values().filter(|&&used| used).count() as u32;
            prop_assert_eq!(chunks.used(), used);
            prop_assert_eq!(chunks.free_count(), naive.used.len() as u32 - used);
            prop_assert_eq!(chunks.longest_free_run(), runs.iter().map(|run| run.1).max().unwrap_or(0));
            let empty = runs.iter().filter(|run| naive.regions.contains(run)).count() as u32;
            prop_assert_eq!(chunks.empty_regions(), empty);
            let state = |text: bool| if text { RunState::Text } else { RunState::Draft };
            let mut blocks: Vec<_> =
                live.iter().map(|&(_, start, count, text)| (start, count, state(text))).collect();
            let taken = |run: &(u32, u32, RunState)| !matches!(run.2, RunState::Free | RunState::Beyond);
            let mut taken: Vec<_> = chunks.runs().filter(taken).collect();
            blocks.sort_unstable_by_key(|run| run.0);
            taken.sort_unstable_by_key(|run| run.0);
            prop_assert_eq!(taken, blocks, "the list of runs is not what was dealt out");
        }
        for (block, ..) in live.drain(..) {
            chunks.free(block);
        }
        let mut whole = naive.regions.clone();
        whole.sort_unstable();
        prop_assert_eq!(checked_free_runs(&chunks), whole, "not everything was merged");
        while chunks.remove_empty_region(|_| true).is_some() {}
        let listed = |index: u32| (index != NONE).then_some(index);
        let next = |&index: &u32| listed(chunks.nodes[index as usize].next);
        let vacant = std::iter::successors(listed(chunks.vacant), next).count();
        prop_assert_eq!(vacant, chunks.nodes.len(), "a node was lost");
    }
}
