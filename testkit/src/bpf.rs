//! The system call bpf(2): its attribute structures, for all tests and benchmarks that use the running kernel.
//!
//! Layouts and numbers are those of `union bpf_attr` in Linux's `<linux/bpf.h>`. A structure may be shorter than the
//! union: the kernel treats missing bytes as zero. Creating maps, loading programs and running them are safe
//! functions; commands with addresses of the caller's memory go through [`command`].

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;

/// Commands that take addresses of the caller's memory.
#[allow(missing_docs)]
pub mod commands {
    pub const MAP_LOOKUP: libc::c_long = 1;
    pub const MAP_UPDATE: libc::c_long = 2;
    pub const MAP_DELETE: libc::c_long = 3;
    pub const MAP_NEXT_KEY: libc::c_long = 4;
    pub const OBJECT_INFO: libc::c_long = 15;
    pub const MAP_LOOKUP_AND_DELETE: libc::c_long = 21;
    pub const MAP_FREEZE: libc::c_long = 22;
    pub const MAP_LOOKUP_BATCH: libc::c_long = 24;
    pub const MAP_LOOKUP_AND_DELETE_BATCH: libc::c_long = 25;
    pub const MAP_UPDATE_BATCH: libc::c_long = 26;
    pub const MAP_DELETE_BATCH: libc::c_long = 27;
}

/// `BPF_LOG_STATS`: the verifier's log has its reasons, time and counts, but no instructions.
pub const LOG_STATS: u32 = 4;

/// Attributes of `BPF_MAP_CREATE`.
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MapAttr {
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
    pub map_flags: u32,
    pub inner_map_fd: u32,
    pub numa_node: u32,
    pub map_name: [u8; 16],
    pub map_ifindex: u32,
    pub btf_fd: u32,
    pub btf_key_type_id: u32,
    pub btf_value_type_id: u32,
    pub btf_vmlinux_value_type_id: u32,
    pub map_extra: u64,
}

/// Attributes of the commands for one element, and of [`MAP_FREEZE`](commands::MAP_FREEZE), which reads only the
/// descriptor.
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ElementAttr {
    pub map_fd: u32,
    pub unused: u32,
    pub key: u64,
    /// The address of the value or of the next key.
    pub value: u64,
    pub flags: u64,
}

/// Attributes of the commands for several elements.
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchAttr {
    pub in_batch: u64,
    pub out_batch: u64,
    pub keys: u64,
    pub values: u64,
    pub count: u32,
    pub map_fd: u32,
    pub elem_flags: u64,
    pub flags: u64,
}

/// Attributes of [`OBJECT_INFO`](commands::OBJECT_INFO).
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct InfoAttr {
    pub fd: u32,
    pub len: u32,
    pub info: u64,
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RunAttr {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

/// Executes a command and returns its result: 0, or a new descriptor.
///
/// # Errors
///
/// The kernel's.
///
/// # Safety
///
/// `attr` is the structure of that command. Each address in it is 0 or points to memory that lives through the call
/// and is as large as the command assumes: by a map's sizes of keys and values, or by the sizes in `attr`.
pub unsafe fn command<T>(number: libc::c_long, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the caller's promise; bytes of the union beyond `attr` count as zero (bpf(2)).
    let result = unsafe { libc::syscall(libc::SYS_bpf, number, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// As [`command`], for commands that return a descriptor.
unsafe fn created<T>(number: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { command(number, attr) }?;
    // SAFETY: the kernel has just created this descriptor, and only this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Creates a map, which exists until its descriptor is dropped.
///
/// # Errors
///
/// The kernel's.
pub fn create_map(mut attr: MapAttr) -> io::Result<OwnedFd> {
    // SAFETY: the command's structure, which has no addresses.
    unsafe { created(MAP_CREATE, &mut attr) }
}

/// A program to load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// `BPF_PROG_TYPE_..`
    pub kind: u32,
    /// `BPF_F_..`
    pub flags: u32,
    /// Instructions as bytes, which name maps by their descriptors.
    pub code: &'a [u8],
    /// The log level of the verifier: [`LOG_STATS`], or 1 for everything.
    pub log_level: u32,
    /// Maximum length of the log in bytes. A program with a longer log is refused.
    pub log_size: usize,
}

/// Lets the kernel verify and load a program under the licence `GPL`; returns its descriptor and the verifier's log.
///
/// # Errors
///
/// The kernel's, with the verifier's log.
pub fn load(program: &Load<'_>) -> Result<(OwnedFd, String), (io::Error, String)> {
    let mut log = vec![0_u8; program.log_size];
    let mut attr = LoadAttr {
        prog_type: program.kind,
        insn_cnt: (program.code.len() / 8) as u32,
        insns: program.code.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: program.log_level,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr() as u64,
        prog_flags: program.flags,
        ..LoadAttr::default()
    };
    // SAFETY: the command's structure; code, licence and log outlive the call and are as large as it says.
    let loaded = unsafe { created(PROG_LOAD, &mut attr) };
    log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(log.len()));
    let log = String::from_utf8_lossy(&log).into_owned();
    match loaded {
        Ok(descriptor) => Ok((descriptor, log)),
        Err(error) => Err((error, log)),
    }
}

/// Runs a program `repeat` times over a packet without leaving the kernel. Returns the last result and how many bytes
/// of `out` the kernel wrote: the packet as the program left it. Without a packet the program receives no context.
///
/// # Errors
///
/// The kernel's.
pub fn test_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> io::Result<(u32, usize)> {
    let mut attr = RunAttr {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_size_out: out.len() as u32,
        data_in: if packet.is_empty() { 0 } else { packet.as_ptr() as u64 },
        data_out: if out.is_empty() { 0 } else { out.as_mut_ptr() as u64 },
        repeat,
        ..RunAttr::default()
    };
    // SAFETY: the command's structure; packet and output outlive the call and are as large as it says.
    unsafe { command(PROG_TEST_RUN, &mut attr) }?;
    Ok((attr.retval, attr.data_size_out as usize))
}
