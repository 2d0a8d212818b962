//! Helpers of `syscall` programs that do something for the client whose test run it is: system calls, descriptors, its
//! memory, the kernel's types.
//!
//! The client is the thread's for the time of the run ([`during`]). Without one, nothing can be done.

use super::errno::{EFAULT, EINVAL, ENOENT, EPERM};
use super::probe;
use crate::image::Image;
use skep_abi::{MapKind, RunEnv};
use skep_maps::Map;
use std::cell::Cell;
use std::ptr::NonNull;

/// Copies memory of the program: whether all of it is there.
pub(crate) type Memory<'a> = dyn Fn(u64, &mut [u8]) -> bool + 'a;

/// What a program asks of a client. Results are those of the helpers.
pub(crate) trait Client {
    /// `bpf_sys_bpf`: the command, its attributes, and the memory that these may point to.
    fn call(&mut self, command: u32, attributes: &[u8], memory: &Memory<'_>) -> i64;
    /// `bpf_sys_close`.
    fn close(&mut self, descriptor: i32) -> i64;
    /// Copies memory of the client: whether all of it is there.
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool;
    /// The number of a type of the kernel, or a negated error.
    fn find_type(&mut self, name: &[u8], kind: u32) -> i64;
}

thread_local! {
    static CLIENT: Cell<Option<NonNull<dyn Client>>> = const { Cell::new(None) };
    static TASK: Cell<Option<(u32, u32)>> = const { Cell::new(None) };
}

/// The process and the thread whose test run is in progress on this thread, if they are known.
pub(super) fn task() -> Option<(u32, u32)> {
    TASK.get()
}

/// Does something that may run a program for a process's thread.
#[cfg(feature = "sys")]
pub(crate) fn as_task<T>(task: Option<(u32, u32)>, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there.
    struct Back(Option<(u32, u32)>);
    impl Drop for Back {
        fn drop(&mut self) {
            TASK.set(self.0);
        }
    }
    let _back = Back(TASK.replace(task));
    work()
}

/// Does something that may run a program for a client.
#[cfg(feature = "sys")]
pub(crate) fn during<T>(client: &mut dyn Client, work: impl FnOnce() -> T) -> T {
    /// Puts back what was there.
    struct Back(Option<NonNull<dyn Client>>);
    impl Drop for Back {
        fn drop(&mut self) {
            CLIENT.set(self.0);
        }
    }
    // SAFETY: only the lifetime changes. The pointer is taken back before this returns, and `client` is borrowed until
    // then.
    let pointer = unsafe {
        std::mem::transmute::<NonNull<dyn Client + '_>, NonNull<dyn Client>>(NonNull::from(client))
    };
    let _back = Back(CLIENT.replace(Some(pointer)));
    work()
}

/// The client of this thread's run, for one helper. Meanwhile there is none, so no other helper can borrow it.
fn client<T>(work: impl FnOnce(&mut dyn Client) -> T) -> Option<T> {
    let mut pointer = CLIENT.take()?;
    // SAFETY: `during` is in progress on this thread, and has borrowed the client exclusively; it was taken out, so
    // this is the only reference.
    let done = work(unsafe { pointer.as_mut() });
    CLIENT.set(Some(pointer));
    Some(done)
}

/// Memory that a program reads for a call.
///
/// # Safety
///
/// `from` is readable for `len` bytes. Other threads may write there, so they are copied one by one.
unsafe fn copy(from: u64, len: u64) -> Vec<u8> {
    // SAFETY: the caller's promise.
    (0..len).map(|at| unsafe { ((from + at) as *const u8).read_volatile() }).collect()
}

/// Copies bytes of the values of a program's arrays: an address that it knows leads there, or to nothing that a call
/// may read.
fn values<'a>(maps: impl Iterator<Item = &'a std::sync::Arc<Map>>, address: u64, into: &mut [u8]) -> bool {
    for map in maps.filter(|map| map.kind() == MapKind::Array) {
        let (Some(base), def) = (map.link().value_base, map.def()) else { continue };
        let stride = u64::from(def.value_size).next_multiple_of(8);
        let Some(distance) = address.checked_sub(base) else { continue };
        let (index, offset) = (distance / stride, (distance % stride) as usize);
        let Some(index) = u32::try_from(index).ok().filter(|index| *index < def.max_entries) else {
            continue;
        };
        let Ok(Some(value)) = map.lookup(&index.to_ne_bytes()) else { return false };
        let found = offset.checked_add(into.len()).and_then(|end| value.get(offset..end));
        return found.map(|bytes| into.copy_from_slice(bytes)).is_some();
    }
    false
}

#[inline]
pub(super) unsafe fn sys_bpf(command: u64, attributes: u64, size: u64, env: *mut RunEnv) -> u64 {
    // SAFETY: the verifier proved that the attributes are readable for their size; `env` is the environment of the run.
    let (attributes, image) = unsafe { (copy(attributes, u64::from(size as u32)), Image::of_run(env)) };
    let memory = |address: u64, into: &mut [u8]| values(image.maps(), address, into);
    client(|client| client.call(command as u32, &attributes, &memory) as u64).unwrap_or(EPERM)
}

#[inline]
pub(super) unsafe fn sys_close(descriptor: u64, _: *mut RunEnv) -> u64 {
    client(|client| client.close(descriptor as i32) as u64).unwrap_or(EPERM)
}

#[inline]
pub(super) unsafe fn btf_find_by_name_kind(
    name: u64,
    size: u64,
    kind: u64,
    flags: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved that the name is readable for its size.
    let name = unsafe { copy(name, u64::from(size as u32)) };
    match name.split_last() {
        Some((0, name)) if flags == 0 && !name.is_empty() => {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            client(|client| client.find_type(name, kind as u32) as u64).unwrap_or(EINVAL)
        }
        _ => EINVAL,
    }
}

/// `bpf_kallsyms_lookup_name`: there is no symbol, as `/proc/kallsyms` says.
#[inline]
pub(super) unsafe fn kallsyms_lookup_name(
    name: u64,
    size: u64,
    flags: u64,
    result: u64,
    _: *mut RunEnv,
) -> u64 {
    // SAFETY: the verifier proved that the result is writable for 8 bytes, and the name readable for its size.
    let name = unsafe {
        (result as *mut u64).write_unaligned(0);
        copy(name, u64::from(size as u32))
    };
    let is_name = flags == 0 && name.len() > 1 && name.last() == Some(&0);
    if is_name { ENOENT } else { EINVAL }
}

/// `bpf_copy_from_user`: memory of the client, or of the world's process.
#[inline]
pub(super) unsafe fn copy_from_user(to: u64, len: u64, from: u64, env: *mut RunEnv) -> u64 {
    let read = client(|client| {
        let mut bytes = vec![0; len as u32 as usize];
        let there = client.read(from, &mut bytes);
        (bytes, there)
    });
    let Some((mut bytes, there)) = read else {
        // SAFETY: as for this function.
        return unsafe { probe::read_user(to, len, from, env) };
    };
    if !there {
        bytes.fill(0);
    }
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: the verifier proved that `to` is writable for `len` bytes, as many as there are.
        unsafe { (to as *mut u8).add(at).write_volatile(*byte) };
    }
    if there { 0 } else { EFAULT }
}
