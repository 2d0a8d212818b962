//! The few programs of the kernel's own that an AF_XDP socket needs: a map with the socket, and a program that
//! redirects to it.
//!
//! Frames reach such a socket only by a program of the kernel (`bpf_redirect_map` into a map of kind xskmap). This is
//! the smallest one: frames of the queue go to the socket, those of others pass. It is attached by a link, in the
//! generic mode that every driver has. The kernel detaches it when the link's descriptor is closed, even if this
//! process is killed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;

const XSKMAP: u32 = 17;
const XDP: u32 = 6;
/// Where it is attached, `BPF_XDP`.
const AT_XDP: u32 = 37;
const GENERIC_MODE: u32 = 1 << 1;

/// `bpf_redirect_map`, and what it answers if the queue has no socket.
const REDIRECT_MAP: i32 = 51;
const PASS: i32 = 2;

#[repr(C)]
#[derive(Default)]
struct Create {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Update {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    code: u64,
    license: u64,
    log: [u64; 2],
    version: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Attach {
    program: u32,
    interface: u32,
    kind: u32,
    flags: u32,
}

/// What gives a socket the frames of one queue. When it is dropped, the kernel has them again.
pub(crate) struct Redirection {
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Redirection {
    pub(crate) fn attach(interface: u32, queue: u32, socket: BorrowedFd<'_>) -> io::Result<Self> {
        let entries = queue.checked_add(1).ok_or(io::ErrorKind::InvalidInput)?;
        let mut create = Create { kind: XSKMAP, key_size: 4, value_size: 4, max_entries: entries, flags: 0 };
        // SAFETY: the command's structure, without addresses.
        let map = unsafe { created(MAP_CREATE, &mut create) }?;
        let value = socket.as_raw_fd() as u32;
        let mut update = Update {
            map: map.as_raw_fd() as u32,
            key: (&raw const queue).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            ..Update::default()
        };
        // SAFETY: the command's structure; key and value have four bytes, as the map says, and live through the call.
        unsafe { command(MAP_UPDATE, &mut update) }?;
        let code = code(map.as_raw_fd());
        let mut load = Load {
            kind: XDP,
            count: code.len() as u32,
            code: code.as_ptr().expose_provenance() as u64,
            license: c"Dual MIT/GPL".as_ptr().expose_provenance() as u64,
            ..Load::default()
        };
        // SAFETY: the command's structure; code and licence live through the call, and the code has that many
        // instructions.
        let program = unsafe { created(PROG_LOAD, &mut load) }?;
        let mut attach =
            Attach { program: program.as_raw_fd() as u32, interface, kind: AT_XDP, flags: GENERIC_MODE };
        // SAFETY: the command's structure, without addresses.
        let link = unsafe { created(LINK_CREATE, &mut attach) }?;
        Ok(Self { _link: link, _program: program, _map: map })
    }
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS);`
fn code(map: i32) -> [u64; 6] {
    let insn = |op: u8, dst: u8, src: u8, offset: i16, number: i32| {
        let (offset, number) = (offset.to_le_bytes(), number.to_le_bytes());
        let [a, b, c, d] = number;
        u64::from_ne_bytes([op, dst | src << 4, offset[0], offset[1], a, b, c, d])
    };
    const RX_QUEUE_INDEX: i16 = 16;
    const MAP_BY_DESCRIPTOR: u8 = 1;
    [
        insn(0x61, 2, 1, RX_QUEUE_INDEX, 0),
        insn(0x18, 1, MAP_BY_DESCRIPTOR, 0, map),
        insn(0, 0, 0, 0, 0),
        insn(0xb7, 3, 0, 0, PASS),
        insn(0x85, 0, 0, 0, REDIRECT_MAP),
        insn(0x95, 0, 0, 0, 0),
    ]
}

/// Executes a command of bpf(2).
///
/// # Safety
///
/// `attr` is the structure of that command, and what its addresses lead to lives through the call and is as large as
/// the command assumes.
unsafe fn command<T>(number: libc::c_long, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the caller's promise; bytes beyond the structure count as zero (bpf(2)).
    let result = unsafe { libc::syscall(libc::SYS_bpf, number, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// The same for commands that return a descriptor.
///
/// # Safety
///
/// As [`command`].
unsafe fn created<T>(number: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let descriptor = unsafe { command(number, attr) }?;
    // SAFETY: the kernel has just made it, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_what_its_source_says() {
        let bytes = code(7).map(u64::to_ne_bytes);
        let expected = [
            [0x61, 0x12, 16, 0, 0, 0, 0, 0], // r2 = *(u32 *)(r1 + 16)
            [0x18, 0x11, 0, 0, 7, 0, 0, 0],  // r1 = the map of descriptor 7
            [0; 8],                          // its second half
            [0xb7, 0x03, 0, 0, 2, 0, 0, 0],  // r3 = 2
            [0x85, 0x00, 0, 0, 51, 0, 0, 0], // call bpf_redirect_map
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],  // exit
        ];
        assert_eq!(bytes, expected);
        skep::isa::decode_bytes(bytes.as_flattened()).unwrap();
    }
}
