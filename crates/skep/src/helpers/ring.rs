//! Records of ring buffers.

use super::map::map;
use crate::image::Image;
use crate::packet::{Effects, Event};
use skep_abi::RunEnv;
use skep_maps::Map;

#[inline]
pub(super) unsafe fn output(handle: u64, data: u64, bytes: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map, and `data` is readable for `bytes`; `env` is the environment
    // of the run in progress.
    unsafe {
        let map = map(handle);
        let status = map.ring_output_ptr(data as *const u8, bytes, flags);
        if status == 0
            && let Some(events) = wanted(env)
        {
            let bytes = copy(data as *const u8, bytes as usize);
            events.push(Event { map: map.name().to_owned(), cpu: (*env).cpu, bytes });
        }
        status as u64
    }
}

/// The run's events, if somebody wants them.
///
/// # Safety
///
/// `env` is the environment of the run in progress, and no other reference to its effects exists.
unsafe fn wanted<'a>(env: *mut RunEnv) -> Option<&'a mut Vec<Event>> {
    // SAFETY: the caller's promise.
    unsafe { Effects::of_run(env)?.events.as_mut() }
}

/// # Safety
///
/// `from` is readable for `len` bytes. Other threads may write there, so they are copied one by one.
unsafe fn copy(from: *const u8, len: usize) -> Vec<u8> {
    // SAFETY: the caller's promise.
    (0..len).map(|at| unsafe { from.add(at).read_volatile() }).collect()
}

/// Keeps a copy of a record that is about to be submitted, if somebody wants it.
///
/// # Safety
///
/// `record` is a record that the program reserved and has not released; `env` is the environment of its run.
pub(super) unsafe fn keep(record: *const u8, env: *mut RunEnv) {
    // SAFETY: the caller's promise. A map lives as long as the run.
    unsafe {
        let Some(events) = wanted(env) else { return };
        let of = |map: &std::sync::Arc<Map>| Some((map.ring_record_len(record)?, map.name().to_owned()));
        // The record of a ring that was found in a map of maps has no name here, and so is not kept.
        let Some((len, map)) = Image::of_run(env).maps().find_map(of) else { return };
        let bytes = copy(record, len as usize);
        events.push(Event { map, cpu: (*env).cpu, bytes });
    }
}

#[inline]
pub(super) unsafe fn reserve(handle: u64, bytes: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle).ring_reserve_ptr(bytes, flags).expose_provenance() as u64 }
}

#[inline]
pub(super) unsafe fn submit(record: u64, flags: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that it comes from `reserve`, is released once and not accessed afterwards; its
    // map lives as long as the run.
    unsafe {
        keep(record as *const u8, env);
        Map::ring_submit_ptr(record as *mut u8, flags);
    }
    0
}

#[inline]
pub(super) unsafe fn discard(record: u64, flags: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: as above.
    unsafe { Map::ring_discard_ptr(record as *mut u8, flags) };
    0
}

#[inline]
pub(super) unsafe fn query(handle: u64, what: u64, _: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that `handle` is a map.
    unsafe { map(handle).ring_query(what) }
}
