//! A call of bpf(2): answered here, or passed on.

use crate::arch::{self, BPF, CLOSE, FSTAT, LSEEK, MMAP, MUNMAP};
use crate::cache::{self, Opening, Values};
use crate::copy;
use crate::pages;
use crate::protocol::{self, FROZEN, JOIN, OPEN, Opened, STATES, Token};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const LOOKUP: u32 = 1;
const UPDATE: u32 = 2;
/// `BPF_EXIST`; elements of arrays exist.
const EXIST: u64 = 2;
/// Where the attributes of both commands end, and those of all.
const FIELDS: usize = 32;
const ATTRIBUTES: u32 = 152;
/// `PR_SET_SECCOMP` of `linux/prctl.h`.
const SET_SECCOMP: i32 = 22;

const READ: u64 = 1;
const WRITE: u64 = 2;
const SHARED: u64 = 1;
const PRIVATE: u64 = 2;

/// Everything is passed on from now on.
static OFF: AtomicBool = AtomicBool::new(false);
/// The address of the states of maps; 0 before they are mapped.
static JOINED: AtomicUsize = AtomicUsize::new(0);

/// The system calls that `syscall()` does not pass on by itself: bpf(2) and seccomp(2).
///
/// # Safety
///
/// As for `syscall()`: the kernel or this function accesses what the arguments say.
#[cfg_attr(test, expect(dead_code, reason = "called by the library's `syscall()`"))]
pub(crate) unsafe extern "C" fn ours(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    if number != BPF {
        leave();
    } else if let Some(()) = answer(a as u32, b, c as u32) {
        return 0;
    }
    // SAFETY: by the caller's contract.
    let result = unsafe { arch::call(number, [a, b, c, d, e, f]) };
    if (-4095..0).contains(&result) { failed(result) } else { result }
}

/// The result of `syscall()` for an error of the kernel's.
pub(crate) extern "C" fn failed(result: i64) -> i64 {
    unsafe extern "C" {
        fn __errno_location() -> *mut core::ffi::c_int;
    }
    // SAFETY: libc's function; the number is this thread's own.
    unsafe { *__errno_location() = -result as core::ffi::c_int };
    -1
}

/// prctl(2), by which a process may forbid system calls.
///
/// # Safety
///
/// As for libc's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[cfg_attr(test, expect(dead_code, reason = "called by applications"))]
unsafe extern "C" fn prctl(option: i32, a: u64, b: u64, c: u64, d: u64) -> i32 {
    if option == SET_SECCOMP {
        leave();
    }
    // SAFETY: by the caller's contract.
    let result = unsafe { arch::call(arch::PRCTL, [option as u64, a, b, c, d, 0]) };
    (if (-4095..0).contains(&result) { failed(result) } else { result }) as i32
}

fn leave() {
    // Relaxed: a thread that still answers makes calls that were allowed when it began.
    OFF.store(true, Ordering::Relaxed);
}

/// Answers the call; `None` if the supervisor has to.
#[inline]
fn answer(command: u32, attributes: u64, size: u32) -> Option<()> {
    // Relaxed: see `leave`.
    if !matches!(command, LOOKUP | UPDATE) || OFF.load(Ordering::Relaxed) {
        return None;
    }
    if !(FIELDS as u32..=ATTRIBUTES).contains(&size) || !pages::may(attributes, size as usize, false) {
        return None;
    }
    let at = attributes as *const u8;
    // SAFETY: the attributes may be read, and have that many bytes. Another thread may write them: the values are
    // those of some moment, as for the kernel.
    let field = |offset: usize| unsafe { at.add(offset).cast::<u64>().read_unaligned() };
    let (descriptor, key, value, flags) = (field(0) as i32, field(8), field(16), field(24));
    // SAFETY: as above.
    let rest = (FIELDS..size as usize).all(|offset| unsafe { at.add(offset).read() } == 0);
    let plain = flags == 0 || flags == EXIST && command == UPDATE;
    if !rest || !plain {
        return None;
    }
    let token = token_of(descriptor)?;
    if !if command == LOOKUP { token.reads() } else { token.writes() } {
        return None;
    }
    let using = cache::find(token).or_else(|| open(token, descriptor))?;
    let values = using.values();
    if values.base == 0 || !pages::may(key, 4, false) {
        return None;
    }
    // SAFETY: it may be read.
    let index = unsafe { (key as *const u32).read_unaligned() };
    if index >= values.entries {
        return None;
    }
    // SAFETY: within the states, which stay mapped.
    let state = unsafe { &*(values.state as *const AtomicU64) };
    // Pairs with the supervisor's store before it answers that a map is frozen.
    let state = state.load(Ordering::Acquire);
    if protocol::map_of(state) != token.map() {
        return None;
    }
    let element = (values.base + index as usize * values.stride) as *mut u8;
    let size = values.value_size as usize;
    if command == UPDATE && (state & FROZEN != 0 || !values.writable) {
        return None;
    }
    let padded = size.next_multiple_of(8);
    let per_cpu = values.cpu_stride != 0;
    let all = if per_cpu { padded * values.cpus as usize } else { size };
    if !pages::may(value, all, command == LOOKUP) {
        return None;
    }
    for cpu in 0..if per_cpu { values.cpus as usize } else { 1 } {
        let (inside, outside) =
            (element.wrapping_add(cpu * values.cpu_stride), value as usize + cpu * padded);
        // SAFETY: the element is in the mapping, which stays while `using` does: the supervisor has said how large all
        // is. The other side may be accessed.
        unsafe {
            match command {
                LOOKUP => copy::read(inside, outside as *mut u8, if per_cpu { padded } else { size }),
                _ => copy::write(outside as *const u8, inside, size),
            }
        }
    }
    Some(())
}

/// What a descriptor's file says of itself.
#[inline]
fn token_of(descriptor: i32) -> Option<Token> {
    /// `SEEK_CUR`.
    const CURRENT: u64 = 1;
    // SAFETY: asks for a number, and changes nothing.
    let position = unsafe { arch::call(LSEEK, [descriptor as u64, 0, CURRENT, 0, 0, 0]) };
    Token::from_position(position)
}

/// Makes a map known.
#[cold]
fn open(token: Token, descriptor: i32) -> Option<cache::Using> {
    let opening = Opening::begin()?;
    let states = join()?;
    // SAFETY: within the states, which stay mapped.
    let state_at = |address: usize| unsafe { &*(address as *const AtomicU64) }.load(Ordering::Acquire);
    let ended = |token: Token, values: &Values| {
        values.base != 0 && protocol::map_of(state_at(values.state)) != token.map()
    };
    let place = opening.place(token, ended, unmap)?;
    let values = values_of(descriptor, states);
    opening.fill(place, token, &values);
    drop(opening);
    cache::find(token)
}

/// Maps the states of maps.
fn join() -> Option<usize> {
    // Relaxed: written by who is opening, which one thread does at a time.
    let joined = JOINED.load(Ordering::Relaxed);
    if joined != 0 {
        return Some(joined);
    }
    if !pages::can_tell() {
        leave();
        return None;
    }
    // SAFETY: a command without attributes.
    let states = unsafe { arch::call(BPF, [JOIN.into(), 0, 0, 0, 0, 0]) };
    let len = STATES * size_of::<u64>();
    let mapped = if states < 0 { None } else { map(states, len, READ, SHARED) };
    if states >= 0 {
        close(states);
    }
    let Some(base) = mapped else {
        // Nobody is there who knows the command, or not for this process.
        leave();
        return None;
    };
    JOINED.store(base, Ordering::Relaxed);
    Some(base)
}

/// Maps the values of a map.
fn values_of(descriptor: i32, states: usize) -> Values {
    let mut refused = Values {
        base: 0,
        len: 0,
        stride: 0,
        cpu_stride: 0,
        state: states,
        entries: 0,
        value_size: 0,
        cpus: 0,
        writable: false,
    };
    let mut opened = Opened { values: descriptor, ..Opened::default() };
    let attributes = (&raw mut opened) as u64;
    // SAFETY: the supervisor writes the structure alone.
    let done = unsafe { arch::call(BPF, [OPEN.into(), attributes, Opened::BYTES as u64, 0, 0, 0]) };
    if done != 0 {
        return refused;
    }
    let file = i64::from(opened.values);
    let len = opened.len as usize;
    let writable = opened.writable != 0;
    let base = if writable { map(file, len, READ | WRITE, SHARED) } else { map(file, len, READ, PRIVATE) };
    // Another thread may have closed the descriptor, which it does not know, and opened something else.
    let right = identity(file) == Some((opened.device, opened.file));
    if right {
        close(file);
    }
    let Some(base) = base else { return refused };
    refused.base = base;
    refused.len = len;
    let place = opened.place as usize;
    if !right || place >= STATES {
        unmap(&refused);
        return Values { base: 0, ..refused };
    }
    Values {
        base,
        len,
        stride: opened.stride as usize,
        cpu_stride: opened.cpu_stride as usize,
        state: states + place * size_of::<u64>(),
        entries: opened.entries,
        value_size: opened.value_size,
        cpus: opened.cpus,
        writable,
    }
}

/// The device and the number of a descriptor's file.
fn identity(descriptor: i64) -> Option<(u64, u64)> {
    // Larger than the kernel's structure, which begins with these two.
    let mut status = [0u64; 32];
    let at = status.as_mut_ptr() as u64;
    // SAFETY: the kernel writes the structure alone.
    let done = unsafe { arch::call(FSTAT, [descriptor as u64, at, 0, 0, 0, 0]) };
    let [device, file, ..] = status;
    (done == 0).then_some((device, file))
}

fn map(file: i64, len: usize, protection: u64, kind: u64) -> Option<usize> {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let base = unsafe { arch::call(MMAP, [0, len as u64, protection, kind, file as u64, 0]) };
    (base > 0).then_some(base as usize)
}

fn unmap(values: &Values) {
    // SAFETY: a mapping of `map`, with its length; nobody uses it.
    unsafe { arch::call(MUNMAP, [values.base as u64, values.len as u64, 0, 0, 0, 0]) };
}

fn close(file: i64) {
    // SAFETY: a descriptor that the supervisor has made for this library.
    unsafe { arch::call(CLOSE, [file as u64, 0, 0, 0, 0, 0]) };
}
