//! A call of bpf(2): answered here, or passed on.

use crate::arch::{self, BPF, CLOSE, FSTAT, LSEEK, MMAP, MUNMAP};
use crate::cache::{self, Opening, Values};
use crate::copy;
use crate::pages;
use crate::protocol::{self, FROZEN, JOIN, OPEN, Opened, Part, STATES, Token};
use crate::table::{BUCKET, MAX_KEY, Table};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const LOOKUP: u32 = 1;
const UPDATE: u32 = 2;
/// `BPF_EXIST`; elements of arrays exist.
const EXIST: u64 = 2;
/// `-ENOENT`
const MISSING: i64 = -2;
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
    let answer = if number == BPF { answer(a as u32, b, c as u32) } else { None };
    if number != BPF {
        leave();
    }
    let result = match answer {
        Some(result) => result,
        // SAFETY: by the caller's contract.
        None => unsafe { arch::call(number, [a, b, c, d, e, f]) },
    };
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

/// The result of the call; `None` if the supervisor has to answer.
#[inline]
fn answer(command: u32, attributes: u64, size: u32) -> Option<i64> {
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
    if values.base == 0 {
        return None;
    }
    // SAFETY: within the states, which stay mapped.
    let state = unsafe { &*(values.state as *const AtomicU64) };
    // Pairs with the supervisor's store before it answers that a map is frozen.
    let state = state.load(Ordering::Acquire);
    if protocol::map_of(state) != token.map() {
        return None;
    }
    let call = Call { key, value, update: command == UPDATE };
    if values.table.key_size != 0 {
        return call.in_table(&values);
    }
    if call.update && (state & FROZEN != 0 || values.writable == 0) {
        return None;
    }
    call.in_array(&values)
}

/// A look-up or an update that is allowed.
struct Call {
    key: u64,
    value: u64,
    update: bool,
}

impl Call {
    #[inline]
    fn in_array(&self, values: &Values) -> Option<i64> {
        if !pages::may(self.key, 4, false) {
            return None;
        }
        // SAFETY: it may be read.
        let index = unsafe { (self.key as *const u32).read_unaligned() } as usize;
        if index >= values.entries || !pages::may(self.value, self.bytes(values), !self.update) {
            return None;
        }
        let element = (values.base + index * values.stride) as *mut u8;
        // SAFETY: the element is in the mapping, which stays while the caller uses the values: the supervisor has said
        // how large all is. The other side may be accessed.
        unsafe { self.copy(values, element) };
        Some(0)
    }

    /// Updates are the supervisor's.
    #[inline(never)]
    fn in_table(&self, values: &Values) -> Option<i64> {
        let size = values.table.key_size;
        if self.update
            || !pages::may(self.key, size, false)
            || !pages::may(self.value, self.bytes(values), true)
        {
            return None;
        }
        let mut words = [0; MAX_KEY / 8];
        let words = words.get_mut(..size.div_ceil(8))?;
        // SAFETY: the key may be read, and there is room for it.
        unsafe { copy::key(self.key as *const u8, size, words) };
        // SAFETY: the mappings stay while the caller uses the values, and the elements of a table are in them; the
        // value may be written.
        let found = unsafe {
            values.table.look_up(values.base, words, |element| self.copy(values, element.cast_mut()))
        };
        Some(if found? { 0 } else { MISSING })
    }

    /// Bytes of the value on the application's side.
    #[inline]
    fn bytes(&self, values: &Values) -> usize {
        let size = values.value_size;
        if values.cpu_stride == 0 { size } else { size.next_multiple_of(8) * values.cpus }
    }

    /// Copies an element's values.
    ///
    /// # Safety
    ///
    /// `element` is the address of the values of an element, and the application's side may be accessed.
    #[inline]
    unsafe fn copy(&self, values: &Values, element: *mut u8) {
        let size = values.value_size;
        let padded = size.next_multiple_of(8);
        let per_cpu = values.cpu_stride != 0;
        for cpu in 0..if per_cpu { values.cpus } else { 1 } {
            let inside = element.wrapping_add(cpu * values.cpu_stride);
            let outside = self.value as usize + cpu * padded;
            // SAFETY: by the caller's contract.
            unsafe {
                if self.update {
                    copy::write(outside as *const u8, inside, size);
                } else {
                    copy::read(inside, outside as *mut u8, if per_cpu { padded } else { size });
                }
            }
        }
    }
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
    let mapped = if states < 0 { None } else { map(states, len, READ, SHARED, 0) };
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
    let refused = Values { state: states, ..Values::default() };
    let mut opened = Opened { map: descriptor as u32 as u64, ..Opened::default() };
    let attributes = (&raw mut opened) as u64;
    // SAFETY: the supervisor writes the structure alone.
    let done = unsafe { arch::call(BPF, [OPEN.into(), attributes, Opened::BYTES as u64, 0, 0, 0]) };
    if done != 0 {
        return refused;
    }
    let of_array = opened.key_size == 0;
    let base = map_part(&opened.values, opened.writable != 0);
    let buckets = if of_array { None } else { map_part(&opened.buckets, false) };
    let values = Values {
        base: base.unwrap_or(0),
        len: opened.values.len as usize,
        state: states + opened.place as usize * size_of::<u64>(),
        entries: opened.entries as usize,
        stride: opened.stride as usize,
        value_size: opened.value_size as usize,
        cpus: opened.cpus as usize,
        cpu_stride: opened.cpu_stride as usize,
        writable: opened.writable as usize,
        table: if of_array { Table::default() } else { table_of(&opened, buckets.unwrap_or(0)) },
    };
    let whole = base.is_some() && (of_array || buckets.is_some() && values.table.key_size != 0);
    if !whole || opened.place as usize >= STATES {
        unmap(&values);
        return refused;
    }
    values
}

/// A table with those buckets; one without keys if what the supervisor says cannot be.
fn table_of(opened: &Opened, buckets: usize) -> Table {
    let [key_size, values_at, mask] =
        [opened.key_size, opened.values_at, opened.entries.wrapping_sub(1)].map(|number| number as usize);
    let values = if opened.cpu_stride == 0 {
        opened.value_size.next_multiple_of(8)
    } else {
        opened.cpu_stride.saturating_mul(opened.cpus)
    };
    let last = opened.values.len.checked_sub(opened.values_at.saturating_add(values));
    let possible = key_size <= MAX_KEY
        && values_at >= 8 + key_size.next_multiple_of(8)
        && opened.entries.is_power_of_two()
        && opened.entries.saturating_mul(BUCKET as u64) <= opened.buckets.len;
    Table {
        key_size: if possible && last.is_some() { key_size } else { 0 },
        buckets,
        buckets_len: opened.buckets.len as usize,
        mask,
        address: opened.address as usize,
        last: last.unwrap_or(0) as usize,
        values_at,
        seed: opened.seed.map(|number| number as usize),
    }
}

/// Maps a part of a file, whose descriptor is closed then.
fn map_part(part: &Part, writable: bool) -> Option<usize> {
    let file = part.file as i32 as i64;
    let (protection, kind) = if writable { (READ | WRITE, SHARED) } else { (READ, PRIVATE) };
    let base = map(file, part.len as usize, protection, kind, part.offset);
    // Another thread may have closed the descriptor, which it does not know, and opened something else.
    if identity(file) == Some((part.device, part.number)) {
        close(file);
        return base;
    }
    unmap_part(base?, part.len as usize);
    None
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

fn map(file: i64, len: usize, protection: u64, kind: u64, offset: u64) -> Option<usize> {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let base = unsafe { arch::call(MMAP, [0, len as u64, protection, kind, file as u64, offset]) };
    (base > 0).then_some(base as usize)
}

fn unmap(values: &Values) {
    unmap_part(values.base, values.len);
    unmap_part(values.table.buckets, values.table.buckets_len);
}

fn unmap_part(base: usize, len: usize) {
    if base != 0 {
        // SAFETY: a mapping of `map`, with its length; nobody uses it.
        unsafe { arch::call(MUNMAP, [base as u64, len as u64, 0, 0, 0, 0]) };
    }
}

fn close(file: i64) {
    // SAFETY: a descriptor that the supervisor has made for this library.
    unsafe { arch::call(CLOSE, [file as u64, 0, 0, 0, 0, 0]) };
}
