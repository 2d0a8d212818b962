//! The system call bpf(2): just enough to have programs verified, and to run some.
//!
//! Layouts and numbers are those of `union bpf_attr` in Linux's `<linux/bpf.h>`.

mod child;
mod objects;

pub(crate) use child::ask;
pub(crate) use objects::{Map, Program};

use skep::isa::{Insn, encode_bytes};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
/// `BPF_MAP_TYPE_ARRAY`
const ARRAY: u32 = 2;
/// `BPF_PROG_TYPE_SOCKET_FILTER`: may return any number.
const SOCKET_FILTER: u32 = 1;
/// `BPF_LOG_STATS`: how long it took, and how far it was walked.
const STATS: u32 = 4;

#[repr(C)]
#[derive(Default)]
struct MapAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
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

/// An array of the kernel with one element; it is gone with this.
pub(crate) struct ArrayMap(OwnedFd);

impl ArrayMap {
    /// With a value of so many bytes.
    pub(crate) fn new(value_size: u32) -> io::Result<Self> {
        let mut attr =
            MapAttr { map_type: ARRAY, key_size: 4, value_size, max_entries: 1, ..MapAttr::default() };
        created(MAP_CREATE, &mut attr).map(Self)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// What the kernel's verifier says of a program that it accepts.
pub(crate) struct Stats {
    /// Microseconds that it took.
    pub(crate) us: f64,
    /// Instructions that it walked.
    pub(crate) walked: u64,
}

/// The running kernel.
pub(crate) struct Kernel;

impl Kernel {
    /// Has a program verified. It is gone again afterwards. A program that is refused is no error: the end of the
    /// kernel's log is returned.
    pub(crate) fn verify(insns: &[Insn]) -> io::Result<Result<Stats, String>> {
        let code = encode_bytes(insns).map_err(io::Error::other)?;
        let mut log = Buffer::new();
        let mut attr = LoadAttr {
            prog_type: SOCKET_FILTER,
            insn_cnt: (code.len() / 8) as u32,
            insns: code.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            ..log.attr()
        };
        let loaded = created(PROG_LOAD, &mut attr);
        let log = log.text();
        match loaded {
            Ok(_) => stats(&log).map(Ok).ok_or_else(|| io::Error::other(format!("says {log:?}"))),
            Err(error) if log.is_empty() => Err(error),
            Err(_) => Ok(Err(reason(&log))),
        }
    }
}

/// Where the kernel's verifier writes its log: what it says at last, and [`STATS`].
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> Self {
        Self(vec![0; 1 << 16])
    }

    /// To be loaded with this log.
    fn attr(&mut self) -> LoadAttr {
        let (log_size, log_buf) = (self.0.len() as u32, self.0.as_mut_ptr() as u64);
        LoadAttr { log_level: STATS, log_size, log_buf, ..LoadAttr::default() }
    }

    fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

fn stats(log: &str) -> Option<Stats> {
    let number = |before: &str| {
        let rest = log.lines().find_map(|line| line.strip_prefix(before))?;
        rest.split(' ').next()?.parse::<u64>().ok()
    };
    Some(Stats { us: number("verification time ")? as f64, walked: number("processed ")? })
}

/// The last line that is no figure.
fn reason(log: &str) -> String {
    let figures = ["verification time", "stack depth", "processed"];
    let reasons = log.lines().rev().find(|line| !figures.iter().any(|figure| line.starts_with(figure)));
    reasons.unwrap_or_default().to_owned()
}

/// A command that returns a descriptor.
fn created<T>(number: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    let descriptor = command(number, attr)?;
    // SAFETY: both commands that create return a descriptor that is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn command<T>(number: libc::c_long, attr: &mut T) -> io::Result<RawFd> {
    // SAFETY: `attr` is laid out as the command asks, what lies behind its size counts as zero (bpf(2)), and the
    // addresses in it are of memory that outlives the call and is as large as the command takes it for.
    let result = unsafe { libc::syscall(libc::SYS_bpf, number, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result as RawFd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_the_log() {
        let log = "verification time 27 usec\nstack depth 8+0\nprocessed 1300 insns (limit 1000000) max_states_per_insn 4\n";
        let found = stats(log).unwrap();
        assert_eq!((found.us, found.walked), (27.0, 1300));
        assert!(stats("").is_none());
    }

    #[test]
    fn the_reason_is_the_last_line_that_is_no_figure() {
        let log = "R1 min value is negative\nverification time 3 usec\nstack depth 0\nprocessed 4 insns\n";
        assert_eq!(reason(log), "R1 min value is negative");
    }
}
