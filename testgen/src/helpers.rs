//! The helpers of generated programs, with their prototypes: a few of Linux's, and some minimal ones that together
//! use every kind of argument.

use skep_abi::{
    Access, ArgKind, Callback, HelperFn, HelperProto, MAX_LOOPS, MapKind, RetKind, RunEnv, XdpContext,
    linux_helper,
};

use crate::host::Table;
use crate::program::TIMER_AT;

pub(crate) const LOOKUP: u32 = 1;
pub(crate) const CPU_NUMBER: u32 = 8;
pub(crate) const ADJUST_HEAD: u32 = 44;
pub(crate) const TIMER_INIT: u32 = 169;
/// Sets a timer's callback, and here calls it at once.
pub(crate) const TIMER_SET_CALLBACK: u32 = 170;
pub(crate) const TIMER_START: u32 = 171;
pub(crate) const TIMER_CANCEL: u32 = 172;
/// Mixes five numbers, and the run's CPU number.
pub(crate) const MIX: u32 = 1000;
/// Sums the bytes of memory.
pub(crate) const SUM: u32 = 1001;
/// Fills memory; returns nothing.
pub(crate) const FILL: u32 = 1002;
/// A number from 0 to 15.
pub(crate) const SMALL: u32 = 1003;
/// Reverses the bytes of memory.
pub(crate) const REVERSE: u32 = 1004;
/// Calls a function a number of times, as Linux's `bpf_loop` does.
pub(crate) const REPEAT: u32 = 1005;
/// Calls a function for each element of a map, as Linux's `bpf_for_each_map_elem` does.
pub(crate) const FOR_EACH: u32 = 1006;

/// The prototype of a helper of this crate's hosts.
pub fn helpers(id: u32) -> Option<&'static HelperProto> {
    match id {
        LOOKUP | CPU_NUMBER | ADJUST_HEAD | TIMER_INIT..=TIMER_CANCEL => linux_helper(id),
        _ => OWN.iter().find(|proto| proto.id == id),
    }
}

const fn own(id: u32, name: &'static str, args: [ArgKind; 5], ret: RetKind) -> HelperProto {
    HelperProto::new(id, name, args, ret)
}

const fn memory(access: Access) -> ArgKind {
    ArgKind::Memory { access, nullable: false }
}

static OWN: [HelperProto; 7] = [
    own(MIX, "mix", [ArgKind::Scalar; 5], RetKind::Scalar),
    own(
        SUM,
        "sum",
        [memory(Access::Read), ArgKind::Size { zero: true }, ArgKind::Scalar, ArgKind::None, ArgKind::None],
        RetKind::Scalar,
    ),
    own(
        FILL,
        "fill",
        [memory(Access::Write), ArgKind::Size { zero: false }, ArgKind::Scalar, ArgKind::None, ArgKind::None],
        RetKind::Void,
    ),
    own(
        SMALL,
        "small",
        [ArgKind::Scalar, ArgKind::None, ArgKind::None, ArgKind::None, ArgKind::None],
        RetKind::Range { min: 0, max: 15 },
    ),
    own(
        REVERSE,
        "reverse",
        [
            ArgKind::FixedMemory { access: Access::ReadWrite, bytes: 16 },
            ArgKind::None,
            ArgKind::None,
            ArgKind::None,
            ArgKind::None,
        ],
        RetKind::Scalar,
    ),
    own(
        REPEAT,
        "repeat",
        [
            ArgKind::Scalar,
            ArgKind::Callback(Callback::Loop),
            ArgKind::CallbackContext,
            ArgKind::Scalar,
            ArgKind::None,
        ],
        RetKind::Scalar,
    ),
    own(
        FOR_EACH,
        "for_each",
        [
            ArgKind::Map,
            ArgKind::Callback(Callback::ForEach),
            ArgKind::CallbackContext,
            ArgKind::Scalar,
            ArgKind::None,
        ],
        RetKind::Scalar,
    ),
];

/// The implementations, ascending.
pub(crate) fn implementations() -> Vec<(u32, HelperFn)> {
    vec![
        (LOOKUP, look_up),
        (CPU_NUMBER, cpu_number),
        (ADJUST_HEAD, adjust_head),
        (TIMER_INIT, set_timer),
        (TIMER_SET_CALLBACK, set_callback),
        (TIMER_START, set_timer),
        (TIMER_CANCEL, set_timer),
        (MIX, mix),
        (SUM, sum),
        (FILL, fill),
        (SMALL, small),
        (REVERSE, reverse),
        (REPEAT, repeat),
        (FOR_EACH, for_each),
    ]
}

unsafe extern "C" fn look_up(map: u64, key: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the prototype requires a map and a key of its size; handles are addresses of tables of the host, which
    // outlives the run; there are no other references to its values.
    unsafe {
        let table = std::ptr::with_exposed_provenance_mut::<Table>(map as usize);
        let base = (*table).values.as_mut_ptr();
        let key = std::ptr::with_exposed_provenance::<u8>(key as usize);
        let index = if (*table).kind.is_array() {
            key.cast::<u32>().read_unaligned()
        } else {
            // A table contains every key whose lowest byte is small.
            (key.cast::<u64>().read_unaligned() & 0xff) as u32
        };
        if index >= (*table).entries {
            return 0;
        }
        let copy = if (*table).kind.is_per_cpu() { (*env).cpu } else { 0 };
        let cell = index as usize + (*table).entries as usize * copy as usize;
        let cell = base.add(cell * (*table).stride / 8);
        match (*table).kind {
            // A map, or none.
            MapKind::ArrayOfMaps => cell.read(),
            _ => cell.expose_provenance() as u64,
        }
    }
}

unsafe extern "C" fn cpu_number(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller passes the environment of the run.
    unsafe { (*env).cpu.into() }
}

unsafe extern "C" fn adjust_head(context: u64, delta: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let context = std::ptr::with_exposed_provenance_mut::<XdpContext>(context as usize);
    // SAFETY: the prototype requires the context of the run, which is the host's.
    let context = unsafe { &mut *context };
    let data = context.data.wrapping_add(i64::from(delta as i32) as u64);
    if data < context.buffer_start || data + 14 > context.data_end {
        return -22i64 as u64;
    }
    context.data = data;
    context.data_meta = data;
    0
}

unsafe extern "C" fn mix(a: u64, b: u64, c: u64, d: u64, e: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller passes the environment of the run.
    let cpu = unsafe {
        if (*env).run > 0 {
            (*env).run -= 1;
            if (*env).run == 0 {
                no_more(0, 0, 0, 0, 0, env);
            }
        }
        (*env).cpu
    };
    [a, b, c, d, e].iter().fold(cpu.into(), |sum: u64, x| sum.rotate_left(7).wrapping_mul(31) ^ x)
}

unsafe extern "C" fn sum(at: u64, bytes: u64, seed: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let at = std::ptr::with_exposed_provenance::<u8>(at as usize);
    // SAFETY: the prototype requires that much readable memory.
    (0..bytes as usize).fold(seed, |sum, i| sum.wrapping_mul(257).wrapping_add(unsafe { *at.add(i) }.into()))
}

unsafe extern "C" fn fill(at: u64, bytes: u64, value: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
    for i in 0..bytes as usize {
        // SAFETY: the prototype requires that much writable memory.
        unsafe { at.add(i).write((value as u8).wrapping_add(i as u8)) };
    }
    0xdead
}

unsafe extern "C" fn small(a: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    (a ^ a >> 32) & 15
}

unsafe extern "C" fn reverse(at: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    let at = std::ptr::with_exposed_provenance_mut::<[u8; 16]>(at as usize);
    // SAFETY: the prototype requires 16 bytes of readable and writable memory; bytes need no alignment.
    unsafe {
        let mut bytes = at.read();
        bytes.reverse();
        at.write(bytes);
        u64::from(bytes[0])
    }
}

unsafe extern "C" fn repeat(
    rounds: u64,
    function: u64,
    context: u64,
    _: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    if rounds as u32 > MAX_LOOPS {
        return -7i64 as u64;
    }
    for round in 0..rounds as u32 {
        // SAFETY: the prototype requires a function of the program.
        if unsafe { call_back(function, [round.into(), context, 0, 0, 0], env) } != 0 {
            return u64::from(round) + 1;
        }
    }
    u64::from(rounds as u32)
}

unsafe extern "C" fn for_each(
    map: u64,
    function: u64,
    context: u64,
    _: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the prototype requires a map: handles are addresses of tables of the host. No reference to one is held
    // while the program runs.
    let (kind, entries, stride, values, cpu, wide) = unsafe {
        let table = std::ptr::with_exposed_provenance_mut::<Table>(map as usize);
        let kind = (*table).kind;
        let copy = if kind.is_per_cpu() { (*env).cpu } else { 0 };
        (kind, (*table).entries, (*table).stride, (*table).values.as_mut_ptr(), copy, (*table).key_size == 8)
    };
    debug_assert!(kind.is_array() != wide, "keys of tables alone have 8 bytes");
    for index in 0..entries {
        let mut key = u64::from(index);
        let cell = index as usize + entries as usize * cpu as usize;
        // SAFETY: the cell is one of the table's.
        let value = unsafe { values.add(cell * stride / 8) }.expose_provenance() as u64;
        let key = (&raw mut key).expose_provenance() as u64;
        // SAFETY: as above; the key has 8 bytes.
        if unsafe { call_back(function, [map, key, value, context, 0], env) } != 0 {
            return u64::from(index) + 1;
        }
    }
    entries.into()
}

/// `bpf_timer_init`, `bpf_timer_start` and `bpf_timer_cancel`: the time is always now.
unsafe extern "C" fn set_timer(_: u64, _: u64, _: u64, _: u64, _: u64, _: *mut RunEnv) -> u64 {
    0
}

/// `bpf_timer_set_callback`: the timer expires at once.
unsafe extern "C" fn set_callback(
    timer: u64,
    function: u64,
    _: u64,
    _: u64,
    _: u64,
    env: *mut RunEnv,
) -> u64 {
    // SAFETY: the environment is that of a run of the host, in which `host` is the address of the table with timers. No
    // reference to it is held while the program runs.
    let (table, base, stride, busy) = unsafe {
        let table = (*env).host;
        let timed = std::ptr::with_exposed_provenance_mut::<Table>(table as usize);
        let busy = std::mem::replace(&mut (*env).program, 1) == 1;
        (table, (*timed).values.as_mut_ptr().expose_provenance() as u64, (*timed).stride as u64, busy)
    };
    // A callback may not start another one: that might never end.
    if busy {
        return -16i64 as u64;
    }
    let value = timer - TIMER_AT as u64;
    let mut key = ((value - base) / stride) as u32;
    let key = (&raw mut key).expose_provenance() as u64;
    // SAFETY: the prototype requires a function of the program and a timer, which only values of that table contain;
    // keys have four bytes.
    unsafe {
        call_back(function, [table, key, value, 0, 0], env);
        (*env).program = 0;
    }
    0
}

/// Calls a function of the running program.
///
/// # Safety
///
/// The program passed the function to the helper in progress, and `env` is the environment of the run.
unsafe fn call_back(function: u64, args: [u64; 5], env: *mut RunEnv) -> u64 {
    let [a, b, c, d, e] = args;
    // SAFETY: the caller's promise; the engine defines the number, and in compiled code it is the address of a
    // function with the signature of helpers.
    unsafe {
        let result = match (*env).callback {
            Some(call) => call(function, &args, env),
            None => std::mem::transmute::<usize, HelperFn>(function as usize)(a, b, c, d, e, env),
        };
        if (*env).thrown == RunEnv::ENDED { 1 } else { result }
    }
}

/// The helpers after which a run may be over, ascending.
pub(crate) const AFTER: [u32; 4] = [TIMER_SET_CALLBACK, MIX, REPEAT, FOR_EACH];

/// The most units at a time, so that most programs ask for more.
const SLICE: i32 = 50;

/// The first units of a run; the environment keeps the others in a field that this host has no other use for.
pub(crate) fn begin(env: &mut RunEnv, units: i32) {
    env.units = units.min(SLICE);
    env.sections = (units - env.units).cast_unsigned();
}

/// More units, or the end.
pub(crate) unsafe extern "C" fn more(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller passes the environment of the run.
    unsafe {
        while (*env).units < 0 {
            let slice = (*env).sections.min(SLICE.cast_unsigned());
            if slice == 0 {
                return no_more(0, 0, 0, 0, 0, env);
            }
            (*env).sections -= slice;
            (*env).units += slice.cast_signed();
        }
    }
    0
}

/// Ends the run.
pub(crate) unsafe extern "C" fn no_more(_: u64, _: u64, _: u64, _: u64, _: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the caller passes the environment of the run.
    unsafe { (*env).thrown = RunEnv::ENDED };
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_abi::XDP;

    #[test]
    fn implementations_and_prototypes_correspond() {
        let implemented = implementations();
        assert!(implemented.is_sorted_by_key(|(id, _)| *id));
        for (id, _) in &implemented {
            assert_eq!(helpers(*id).map(|proto| proto.id), Some(*id));
        }
        for proto in &OWN {
            assert!(implemented.iter().any(|(id, _)| *id == proto.id), "{}", proto.name);
        }
        assert!(XDP.helpers.contains(LOOKUP) && XDP.helpers.contains(ADJUST_HEAD));
    }
}
