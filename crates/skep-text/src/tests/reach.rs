//! Every branch within an arena reaches its target, even from the first chunk of the largest range to its last, and
//! back.

use super::*;
use crate::state::Slot;
use crate::{BRANCH_BYTES, BRANCH_OFFSET, Branch, CHUNK_BYTES, Draft};

#[test]
fn a_branch_reaches_across_the_largest_range_and_back() {
    let arena = Arena::new(Config { reserve: usize::MAX, ..keeperless(Backing::Memfd) }).unwrap();
    assert_eq!(arena.range().len(), Config::MAX_RESERVE, "more than that is not reserved");
    let mut first = arena.draft(2 * CHUNK_BYTES).unwrap();
    assert_eq!(first.address(), arena.range().start);

    // The middle is never allocated, so it needs no memory.
    let between = |what: fn() -> Slot| {
        let mut state = arena.shared().lock_state();
        let end = state.slots.len() - 1;
        state.slots[1..end].fill_with(what);
    };
    between(|| Slot::Busy);
    let mut last = arena.draft(PACK_BYTES).unwrap();
    let end = arena.range().end;
    assert_eq!(last.address() + last.len(), end);

    // From the first possible branch to a function in the last chunk, and from the last possible branch to a
    // function in the first.
    let start = first.address();
    let (very_first, very_last) = (start + BRANCH_OFFSET, end - BRANCH_BYTES);
    let put = |draft: &mut Draft, at: usize, bytes: &[u8]| {
        let at = at - draft.address();
        draft.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(&mut first, very_first, &Branch::To(end - CHUNK_BYTES).encode(very_first).unwrap());
    put(&mut first, start + CHUNK_BYTES, &returns(11));
    put(&mut last, end - CHUNK_BYTES, &returns(12));
    put(&mut last, very_last, &Branch::To(start + CHUNK_BYTES).encode(very_last).unwrap());
    assert!(Branch::To(very_last).encode(very_first).is_ok(), "the longest way there");
    assert!(Branch::To(start).encode(very_last).is_ok(), "and back");

    let (_first, _last) = (first.finalize().unwrap(), last.finalize().unwrap());
    assert_eq!(call_at(very_first), 12);
    assert_eq!(call_at(very_last), 11);
    between(|| Slot::Free);
}
