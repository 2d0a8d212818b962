//! In which order the blocks of a function with loops are, and that no round is lost there.

use super::Program;
use crate::options::{Options, Passes};
use crate::passes::rewrite;

const ONLY: Passes = Passes { order: true, ..Passes::NONE };

/// The instructions of the code in their order, added jumps left out; `None` if nothing changes.
fn order(text: &str) -> Option<Vec<usize>> {
    let options = Options { passes: ONLY, ..Options::default() };
    rewrite(Program::new(text).parts(), options).map(|rewritten| rewritten.shape().1)
}

#[test]
fn a_loop_with_its_condition_at_the_start_is_rotated() {
    let text = "r2 = 0\nhead: if r2 > 5 goto out\nr0 *= 3\nr2 += 1\ngoto head\nout: exit";
    assert_eq!(order(text), Some(vec![0, 2, 3, 1, 5]), "the jump back is gone");
}

#[test]
fn a_block_behind_its_loop_that_is_in_each_round_moves_into_it() {
    let text = "r2 = 9\nhead: r0 += r2\nif r2 != 3 goto more\nback: r2 -= 1\nif r2 != 0 goto head\nexit\n\
                more: r0 *= 3\ngoto back";
    assert_eq!(order(text), Some(vec![0, 6, 3, 4, 1, 2, 5]));
}

#[test]
fn what_is_in_order_stays_as_it_is() {
    for text in [
        "r2 = 9\nhead: r0 += r2\nr2 -= 1\nif r2 != 0 goto head\nexit",
        "r2 = 9\nhead: r0 += r2\nif r0 == 5 goto out\nr2 -= 1\nif r2 != 0 goto head\nout: exit",
        // Without a loop nothing is done often.
        "if r1 != 5 goto more\nback: r0 = 1\nexit\nmore: r0 *= 3\ngoto back",
    ] {
        assert_eq!(order(text), None, "{text}");
    }
}

#[test]
fn a_head_that_is_only_a_jump_is_kept_for_its_charge() {
    let text = "r2 = 9\ngoto test\nhead: goto work\ntest: r2 -= 1\nif r2 != 0 goto head\nexit\n\
                work: r0 *= 3\ngoto test";
    let slots = order(text).expect("is put in order");
    assert!(slots.contains(&2), "{slots:?}");
    assert!(!slots.contains(&7), "the jump behind it is gone: {slots:?}");
}

#[test]
fn programs_of_strangers_stay_in_order() {
    let text = "r2 = 0\nhead: if r2 > 5 goto out\nr0 *= 3\nr2 += 1\ngoto head\nout: exit";
    let options = Options { passes: ONLY, ..Options::default() }.untrusted();
    assert!(rewrite(Program::new(text).parts(), options).is_none());
}
