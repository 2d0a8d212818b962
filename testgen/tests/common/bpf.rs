//! The system call bpf(2): just enough to load a program and run it over a packet.
//!
//! Layouts are those of `union bpf_attr` in Linux's `<linux/bpf.h>`.
#![allow(dead_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use skep_isa::{Insn, encode_bytes};

const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
/// `BPF_PROG_TYPE_XDP`
const XDP: u32 = 6;

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
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
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
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

/// A program in the running kernel.
pub(crate) struct KernelProgram(OwnedFd);

/// Why the kernel did not load a program.
pub(crate) struct Rejected {
    pub(crate) error: io::Error,
    /// What its verifier said.
    pub(crate) log: String,
}

impl KernelProgram {
    /// Loads an XDP program. It is gone again once the result is dropped.
    pub(crate) fn load(insns: &[Insn]) -> Result<Self, Rejected> {
        let code = encode_bytes(insns).expect("generated programs can be encoded");
        let mut log = vec![0u8; 1 << 20];
        let mut attr = LoadAttr {
            prog_type: XDP,
            insn_cnt: (code.len() / 8) as u32,
            insns: code.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            log_level: 1,
            log_size: log.len() as u32,
            log_buf: log.as_mut_ptr() as u64,
            ..LoadAttr::default()
        };
        bpf(PROG_LOAD, &mut attr)
            .map(|fd| {
                // SAFETY: the kernel just made this descriptor for us alone.
                Self(unsafe { OwnedFd::from_raw_fd(fd) })
            })
            .map_err(|error| {
                log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(0));
                Rejected { error, log: String::from_utf8_lossy(&log).into_owned() }
            })
    }

    /// Runs it once over a packet; returns its 32-bit result and the packet afterwards.
    pub(crate) fn run(&self, packet: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0u8; packet.len() + 256];
        let mut attr = RunAttr {
            prog_fd: self.0.as_raw_fd() as u32,
            data_size_in: packet.len() as u32,
            data_size_out: out.len() as u32,
            data_in: packet.as_ptr() as u64,
            data_out: out.as_mut_ptr() as u64,
            repeat: 1,
            ..RunAttr::default()
        };
        bpf(PROG_TEST_RUN, &mut attr)?;
        out.truncate(attr.data_size_out as usize);
        Ok((attr.retval, out))
    }
}

fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<i32> {
    // SAFETY: `attr` is laid out as the command asks, and the addresses in it are of memory that outlives the
    // call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
