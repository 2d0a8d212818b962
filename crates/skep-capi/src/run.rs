//! Packets, and runs of programs on packets or on the host's own memory.

use crate::argument::{bytes, bytes_mut, exclusive, place, shared};
use crate::load::free;
use crate::status::guard;
use skep::{Packet, Program};
use std::ffi::{c_int, c_void};

/// Creates a packet with a copy of these bytes.
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

/// Replaces a packet's bytes; the new ones may be part of the packet itself.
///
/// # Safety
///
/// `packet` is null or not freed and not used by anything else; `data` is null or readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_set(packet: *mut Packet, data: *const c_void, len: usize) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise; bytes within the packet itself are detected before it changes.
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

/// Address and number of a packet's bytes; null and 0 if `packet` is null.
///
/// # Safety
///
/// `packet` is null or not freed, and does not change meanwhile; `len` is null or writable.
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

/// Frees a packet.
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
/// `program` is null or of a module that is not freed; `packet` is null or not freed and not used by anything else;
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
        // Only the lower half counts: these programs return an int.
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
/// `program` is null or of a module that is not freed; `buffer` is null or initialised and writable for `len` bytes
/// and not used by anything else; `result` is null or writable and not in the buffer.
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
