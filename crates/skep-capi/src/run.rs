//! Packets, and programs run on them or on a host's own memory.

use crate::argument::{bytes, bytes_mut, exclusive, place, shared};
use crate::load::free;
use crate::status::guard;
use skep::{Packet, Program};
use std::ffi::{c_int, c_void};

/// Makes a packet with a copy of these bytes.
///
/// # Safety
///
/// `data` is null or readable for `len` bytes; `packet` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_new(data: *const c_void, len: usize, packet: *mut *mut Packet) -> c_int {
    guard(|| {
        let to = place(packet, "skep_packet_new: packet")?;
        // SAFETY: the caller's promise.
        let made = Packet::new(unsafe { bytes(data, len, "skep_packet_new: data")? });
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Puts other bytes into a packet; they may be bytes of the packet itself.
///
/// # Safety
///
/// `packet` is null or not freed and used by nobody else; `data` is null or readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_set(packet: *mut Packet, data: *const c_void, len: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; whether the bytes are the packet's own is looked at before it changes.
        let (packet, given) = unsafe {
            (exclusive(packet, "skep_packet_set: packet")?, bytes(data, len, "skep_packet_set: data")?)
        };
        let (own, given_at) = (packet.bytes().as_ptr_range(), given.as_ptr_range());
        if own.start < given_at.end && given_at.start < own.end {
            let copy = given.to_vec();
            packet.set(&copy);
        } else {
            packet.set(given);
        }
        Ok(())
    })
}

/// Where a packet's bytes are, and how many. Null and 0 for no packet.
///
/// # Safety
///
/// `packet` is null or not freed, and changed by nobody meanwhile; `len` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_bytes(packet: *const Packet, len: *mut usize) -> *const u8 {
    // SAFETY: the caller's promise.
    let bytes = unsafe { packet.as_ref() }.map(Packet::bytes);
    if !len.is_null() {
        // SAFETY: not null, and the caller's promise.
        unsafe { len.write(bytes.map_or(0, <[u8]>::len)) };
    }
    bytes.map_or(std::ptr::null(), <[u8]>::as_ptr)
}

/// Lets go of a packet.
///
/// # Safety
///
/// `packet` is null or not freed; this is its last use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_free(packet: *mut Packet) {
    // SAFETY: the caller's promise.
    unsafe { free(packet) };
}

/// Runs a program on a packet, which it may change.
///
/// # Safety
///
/// `program` is null or of a module that is not freed; `packet` is null or not freed and used by nobody else;
/// `verdict` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_run(
    program: *const Program,
    packet: *mut Packet,
    verdict: *mut u32,
) -> c_int {
    guard(|| {
        let to = place(verdict, "skep_program_run: verdict")?;
        // SAFETY: the caller's promise.
        let (program, packet) = unsafe {
            (shared(program, "skep_program_run: program")?, exclusive(packet, "skep_program_run: packet")?)
        };
        // The lower half is what counts: these programs return an int.
        let result = program.run(packet)? as u32;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(result) };
        Ok(())
    })
}

/// Runs a program of type `raw` on a buffer, which it may change.
///
/// # Safety
///
/// `program` is null or of a module that is not freed; `buffer` is null or initialised and writable for `len`
/// bytes and used by nobody else; `result` is null or writable and not in the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_run_raw(
    program: *const Program,
    buffer: *mut c_void,
    len: usize,
    result: *mut u64,
) -> c_int {
    guard(|| {
        let to = place(result, "skep_program_run_raw: result")?;
        // SAFETY: the caller's promise.
        let (program, buffer) = unsafe {
            let program = shared(program, "skep_program_run_raw: program")?;
            (program, bytes_mut(buffer, len, "skep_program_run_raw: buffer")?)
        };
        let returned = program.run_raw(buffer)?;
        // SAFETY: not null, and the caller's promise.
        unsafe { to.write(returned) };
        Ok(())
    })
}
