//! The host's kfuncs: iterators over numbers, which store the last number and the end, and `bpf_throw`.

use skep_abi::{HelperFn, MAX_LOOPS, RunEnv, own_kfunc_number};

/// The implementations by number, ascending.
pub(crate) fn implementations() -> Vec<(u32, HelperFn)> {
    let all: [(&str, HelperFn); 4] = [
        ("bpf_throw", throw),
        ("bpf_iter_num_new", new),
        ("bpf_iter_num_next", next),
        ("bpf_iter_num_destroy", destroy),
    ];
    all.into_iter().filter_map(|(name, call)| Some((own_kfunc_number(name)?, call))).collect()
}

/// Engines implement `bpf_throw`; this entry declares that the host provides it.
unsafe extern "C" fn throw(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0
}

/// The last number and the end.
fn halves(it: u64) -> *mut [i32; 2] {
    std::ptr::with_exposed_provenance_mut(it as usize)
}

unsafe extern "C" fn new(it: u64, start: u64, end: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let (start, end) = (start as i32, end as i32);
    let (bounds, result) = match i64::from(end) - i64::from(start) {
        ..0 => ([-1, 0], -22i64),
        count if count > i64::from(MAX_LOOPS) => ([-1, 0], -7),
        _ => ([start.wrapping_sub(1), end], 0),
    };
    // SAFETY: the table of these functions requires eight bytes of the program's stack.
    unsafe { halves(it).write(bounds) };
    result as u64
}

unsafe extern "C" fn next(it: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above; `new` wrote both halves.
    let [number, end] = unsafe { &mut *halves(it) };
    let next = number.wrapping_add(1);
    if next == *end {
        return 0;
    }
    *number = next;
    it
}

unsafe extern "C" fn destroy(it: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above. What the program finds there later is anything but a number that it knows.
    unsafe { halves(it).write([0x5eed, 0x0bad]) };
    0
}
