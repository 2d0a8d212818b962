//! Helpers that call functions of the program, and tail calls.

use super::errno::{E2BIG, EINVAL};
use super::map::map;
use super::sections::section;
use crate::ending;
use skep_abi::{HelperFn, MAX_LOOPS, RunEnv};

/// `bpf_tail_call`: engines implement it, since a called function cannot leave its caller. This entry says that the
/// runtime provides it.
#[inline]
pub(super) unsafe fn tail_call(_: *mut RunEnv) -> u64 {
    0
}

/// `bpf_loop`: calls `function(iteration, context)` until it returns something other than 0. Returns the number of
/// calls.
#[inline]
pub(super) unsafe fn bpf_loop(
    iterations: u64,
    function: u64,
    context: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    let iterations = iterations as u32;
    if flags != 0 {
        return EINVAL;
    }
    if iterations > MAX_LOOPS {
        return E2BIG;
    }
    for iteration in 0..u64::from(iterations) {
        // SAFETY: the verifier proved that `function` is one of the program's and takes these arguments; `env` is
        // this run's.
        if unsafe { call_back(function, [iteration, context, 0, 0, 0], env) } != 0 {
            return iteration + 1;
        }
    }
    iterations.into()
}

/// `bpf_for_each_map_elem`: calls `function(map, key, value, context)` for each element until it returns something
/// other than 0. Returns the number of elements visited.
///
/// A key that is in the map from the first call to the last is visited exactly once, whatever the function does to
/// the map.
#[inline]
pub(super) unsafe fn for_each_map_elem(
    handle: u64,
    function: u64,
    context: u64,
    flags: u64,
    env: *mut RunEnv,
) -> u64 {
    if flags != 0 {
        return EINVAL;
    }
    let mut seen = 0;
    let mut visit = |key: *const u8, value: *mut u8| {
        seen += 1;
        // SAFETY: as in `bpf_loop`; the key is a copy and the value is the map's.
        unsafe { call_back(function, [handle, key as u64, value as u64, context, 0], env) == 0 }
    };
    // SAFETY: the verifier proved that `handle` is a map; `env` is this run's.
    unsafe {
        let _section = section(env);
        map(handle).for_each_ptr((*env).cpu, &mut visit);
    }
    seen
}

/// What a callback returns that wants to be called no more. In a run that is over none is.
const STOP: u64 = 1;

/// Calls a function of the running program.
///
/// # Safety
///
/// The program passed `function` to the helper in progress, `args` match its parameters, and `env` is the
/// environment of the run.
pub(crate) unsafe fn call_back(function: u64, args: [u64; 5], env: *mut RunEnv) -> u64 {
    // SAFETY: the caller's promise. An engine without a callback of its own passes addresses of functions with the
    // signature of helpers.
    unsafe {
        if ending::charge_callback(env) {
            return STOP;
        }
        let result = match (*env).callback {
            Some(call) => call(function, &args, env),
            None => {
                let [a, b, c, d, e] = args;
                std::mem::transmute::<usize, HelperFn>(function as usize)(a, b, c, d, e, env)
            }
        };
        if (*env).thrown == RunEnv::ENDED { STOP } else { result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_abi::{MapDef, MapKind};
    use skep_maps::{Map, Options, UpdateFlags};

    /// Adds up the iteration numbers in its argument, or stops at the fourth.
    unsafe extern "C" fn add(iteration: u64, context: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
        // SAFETY: the test passes the address of a number.
        unsafe { *(context as *mut u64) += iteration };
        u64::from(iteration == 3)
    }

    /// Adds up the first four bytes of all values.
    unsafe extern "C" fn values(_: u64, key: u64, value: u64, sum: u64, _: u64, _: *mut RunEnv) -> u64 {
        // SAFETY: the tests' maps have such keys and values, and `sum` is the address of a number.
        unsafe {
            *(sum as *mut u64) += u64::from(*(value as *const u32)) + 1000 * u64::from(*(key as *const u32));
        }
        0
    }

    fn address(function: HelperFn) -> u64 {
        function as usize as u64
    }

    #[test]
    fn a_loop_ends_after_its_iterations_or_on_request() {
        let mut env = RunEnv::default();
        let mut run = |iterations: u64, flags: u64| {
            let mut sum = 0u64;
            // SAFETY: `add` gets the address of a number.
            let calls =
                unsafe { bpf_loop(iterations, address(add), &raw mut sum as u64, flags, &raw mut env) };
            (calls as i64, sum)
        };
        assert_eq!(run(0, 0), (0, 0));
        assert_eq!(run(3, 0), (3, 3));
        assert_eq!(run(10, 0), (4, 6));
        assert_eq!(run(1 << 32, 0), (0, 0), "32 bits count");
        assert_eq!(run(10, 1).0, -22);
        assert_eq!(run((8 << 20) + 1, 0).0, -7);
    }

    #[test]
    fn every_element_is_seen_once() {
        for (kind, keys) in [(MapKind::Array, 4), (MapKind::Hash, 3), (MapKind::PercpuArray, 4)] {
            let def = MapDef::new("m", kind, 4, 4, 4);
            let map = Map::create(&def, &Options { cpus: 1, limit: 1 << 20 }).expect("a map");
            let mut expected = 0;
            for key in 0..keys as u32 {
                let value = vec![key as u8 + 1; map.host_value_size()];
                map.update(&key.to_ne_bytes(), &value, UpdateFlags::Any).expect("an update");
                expected += u64::from(u32::from_ne_bytes([key as u8 + 1; 4])) + 1000 * u64::from(key);
            }
            let section = map.reuse().domain.enter().expect("a slot");
            let (mut env, mut sum) = (RunEnv { cpu: section.number(), ..RunEnv::default() }, 0u64);
            // SAFETY: the handle is that of a live map, and `values` gets the address of a number.
            let seen = unsafe {
                let sum = &raw mut sum as u64;
                for_each_map_elem(map.link().handle, address(values), sum, 0, &raw mut env)
            };
            assert_eq!((seen, sum), (keys, expected), "{kind}");
        }
    }
}
