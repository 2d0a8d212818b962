//! A range near the host's code, so that generated code calls it directly; and systems with fewer resources.

mod common;

use common::*;
use skep_text::{Arena, BRANCH_BYTES, Config, Error, PACK_BYTES, SystemCall};

extern "C" fn helper() -> u32 {
    4711
}

#[test]
fn generated_code_calls_the_hosts_functions_directly() {
    let helper = helper as *const () as usize;
    let arena = Arena::new(Config::new().reserve(NEAR_RANGE).limit(NEAR_RANGE).near(helper)).unwrap();
    assert_eq!(arena.range().len(), NEAR_RANGE);
    if !arena.reaches(helper) {
        // Two packs more than the range, for its guards and because the places tried here are multiples of a pack.
        let room = probe::there_is_room_near(helper, NEAR_RANGE + 2 * PACK_BYTES, NEAR_WINDOW);
        if !probe::shown(room, Hidden::RoomNearCode, "a range near the host's code") {
            return;
        }
    }
    assert!(arena.reaches(helper), "{:x?} is far from {helper:x}", arena.range());

    // From the first pack and from the last.
    let mut texts = Vec::new();
    for len in [64, PACK_BYTES, PACK_BYTES, 64] {
        let mut draft = arena.draft(len).unwrap();
        let jump = jump(draft.address(), helper);
        draft.bytes_mut()[..jump.len()].copy_from_slice(&jump);
        texts.push(draft.finalize().unwrap());
    }
    assert!(texts.iter().all(|text| call(text) == 4711));
}

#[test]
fn several_arenas_find_room_near_the_same_function() {
    let helper = helper as *const () as usize;
    let arenas: Vec<Arena> =
        (0..3).map(|_| Arena::new(Config::new().reserve(64 << 20).near(helper)).unwrap()).collect();
    if SEVERAL_ARE_NEAR {
        assert!(arenas.iter().all(|arena| arena.reaches(helper)));
    }
    let texts: Vec<_> = arenas.iter().map(|arena| place_returns(arena, 1)).collect();
    assert!(texts.iter().all(|text| call(text) == 1));
}

#[test]
fn arenas_of_the_default_size_become_smaller_where_they_would_be_far() {
    // Alone in its process: no other thread takes addresses between the question and the arena.
    if is_child() {
        let helper = helper as *const () as usize;
        let least = LEAST_NEAR;
        let mut arenas = Vec::new();
        for number in 0..5 {
            let room = probe::there_is_room_near(helper, least + 2 * PACK_BYTES, NEAR_WINDOW);
            let arena = Arena::new(Config::new().near(helper)).unwrap();
            let len = arena.range().len();
            assert!(!room || arena.reaches(helper), "arena {number} of {len} bytes is far");
            assert!(len >= least || !arena.reaches(helper), "arena {number} has {len} bytes");
            assert_eq!(call(&place_returns(&arena, number)), number);
            arenas.push(arena);
        }
        return;
    }
    let status = run_as_child();
    assert!(status.success(), "{status}");
}

#[test]
fn an_unreachable_near_address_is_reported_and_harmless() {
    // Not addresses that anything could be mapped at.
    for near in [usize::MAX, 1 << 63] {
        let arena = Arena::new(Config::new().near(near)).unwrap();
        assert!(!arena.reaches(near));
        assert_eq!(call(&place_returns(&arena, 2)), 2);
    }
}

#[test]
fn a_range_reaches_itself_but_not_far_addresses() {
    let arena = Arena::new(Config::new()).unwrap();
    let range = arena.range();
    assert!(arena.reaches(range.start) && arena.reaches(range.end - BRANCH_BYTES));
    assert!(!arena.reaches(range.end + (1 << 31)) && !arena.reaches(0));
}

#[test]
fn under_an_address_limit_the_range_is_smaller() {
    if is_child() {
        let used = rustix::process::Rlimit { current: Some(640 << 20), maximum: Some(640 << 20) };
        rustix::process::setrlimit(rustix::process::Resource::As, used).unwrap();
        if rustix::process::getrlimit(rustix::process::Resource::As).current != used.current {
            return hidden(Hidden::AddressSpaceLimit, "an arena where addresses are short");
        }
        let arena = Arena::new(Config::new()).unwrap();
        let len = arena.range().len();
        assert!((PACK_BYTES..640 << 20).contains(&len), "{len}");
        assert_eq!(call(&place_returns(&arena, 3)), 3);

        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(640 << 20) };
        rustix::process::setrlimit(rustix::process::Resource::As, none).unwrap();
        let refused = Arena::new(Config::new());
        rustix::process::setrlimit(rustix::process::Resource::As, used).unwrap();
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::System { .. } | Error::Readers(_)), "{error:?}");
        assert_eq!(call(&place_returns(&arena, 4)), 4, "the other arena does not care");
        return;
    }
    let status = run_as_child();
    assert!(status.success(), "{status}");
}

#[test]
fn under_a_file_limit_the_error_names_the_remedy() {
    if is_child() {
        let arena = Arena::new(Config::new()).unwrap();
        let few = rustix::process::Rlimit { current: Some(3), maximum: Some(1024) };
        let many = rustix::process::Rlimit { current: Some(1024), maximum: Some(1024) };
        // No descriptor left, then one: the file can be created and not be opened again.
        let mut before = None;
        for limit in [few, few, rustix::process::Rlimit { current: Some(first_free_descriptor() + 1), ..few }]
        {
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            let refused = arena.draft(PACK_BYTES + 1);
            rustix::process::setrlimit(rustix::process::Resource::Nofile, many).unwrap();
            let error = refused.unwrap_err();
            let call =
                matches!(error, Error::System { call: SystemCall::CreateFile | SystemCall::ReopenFile, .. });
            assert!(call && error.to_string().contains("ulimit -n"), "{error}");
            // After the first refusal: until then the test itself may need more memory.
            let now = (arena.occupancy(), mappings().len());
            assert_eq!(now, *before.get_or_insert(now.clone()));
        }
        assert_eq!(call(&place(&arena, &returns(6), PACK_BYTES + 1).unwrap()), 6);
        return;
    }
    let status = run_as_child();
    assert!(status.success(), "{status}");
}

fn first_free_descriptor() -> u64 {
    use std::os::fd::AsRawFd;
    std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64
}
