//! Packets beyond their bytes: metadata, and what a run did besides its result.

use crate::argument::{exclusive, place, shared};
use crate::helper::StatePointer;
use crate::options::{self, Options};
use crate::own_type::{OwnType, Part};
use crate::status::{Failure, guard};
use skep::{Packet, Program, Redirect, Vlan};
use std::ffi::{c_int, c_void};

/// `skep_packet_info`: metadata of a packet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Metadata {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Time stamp in nanoseconds.
    pub tstamp: u64,
    /// The device's own time stamp in nanoseconds.
    pub hwtstamp: u64,
    /// Index of the interface that it came in on.
    pub ingress_ifindex: u32,
    /// Index of the interface that it is at.
    pub ifindex: u32,
    /// Index of its receive queue.
    pub rx_queue_index: u32,
    /// To whom it was addressed.
    pub pkt_type: u32,
    /// Mark.
    pub mark: u32,
    /// Priority.
    pub priority: u32,
    /// Transmit queue.
    pub queue_mapping: u32,
    /// Index of traffic control.
    pub tc_index: u32,
    /// Class of traffic control.
    pub tc_classid: u32,
    /// Flow hash.
    pub hash: u32,
    /// Bytes on the wire.
    pub wire_len: u32,
    /// Segments in which it is sent.
    pub gso_segs: u32,
    /// Payload of a segment.
    pub gso_size: u32,
    /// Protocol of a VLAN tag beside the packet; 0 without one.
    pub vlan_protocol: u32,
    /// Priority and number of that tag.
    pub vlan_tci: u32,
    /// Scratch words.
    pub cb: [u32; 5],
}

/// `skep_outcome`: what a run did.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OutcomeInfo {
    /// Size of this structure in bytes.
    pub size: usize,
    /// The result.
    pub verdict: u32,
    /// `enum skep_redirect`.
    pub redirect: u32,
    /// The device, CPU or socket.
    pub target: u64,
    /// 1 if it comes in there.
    pub ingress: u32,
    /// 1 if the bytes changed.
    pub changed: u32,
    /// Copies that were sent elsewhere.
    pub clones: u64,
}

// SAFETY: three words and twenty halves of words, without padding.
unsafe impl Options for Metadata {
    const NAME: &'static str = "skep_packet_info";
}

// SAFETY: words and pairs of halves, without padding.
unsafe impl Options for OutcomeInfo {
    const NAME: &'static str = "skep_outcome";
}

impl OutcomeInfo {
    /// Redirections in the order of `enum skep_redirect`.
    pub const REDIRECTS: [&'static str; 8] = [
        "SKEP_REDIRECT_NONE",
        "SKEP_REDIRECT_DEVICE",
        "SKEP_REDIRECT_PEER",
        "SKEP_REDIRECT_NEIGHBOUR",
        "SKEP_REDIRECT_DEVICES",
        "SKEP_REDIRECT_CPU",
        "SKEP_REDIRECT_STREAM",
        "SKEP_REDIRECT_SOCKET",
    ];
}

/// A packet's metadata.
///
/// # Safety
///
/// `packet` is null or not freed, and does not change meanwhile; `info` is null or writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_info_of(packet: *const Packet, info: *mut Metadata) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let of = &unsafe { shared(packet, "skep_packet_info_of: packet")? }.info;
        let found = Metadata {
            size: 0,
            tstamp: of.tstamp,
            hwtstamp: of.hwtstamp,
            ingress_ifindex: of.ingress_ifindex,
            ifindex: of.ifindex,
            rx_queue_index: of.rx_queue_index,
            pkt_type: of.pkt_type,
            mark: of.mark,
            priority: of.priority,
            queue_mapping: of.queue_mapping,
            tc_index: of.tc_index,
            tc_classid: of.tc_classid,
            hash: of.hash,
            wire_len: of.wire_len,
            gso_segs: of.gso_segs,
            gso_size: of.gso_size,
            vlan_protocol: of.vlan.map_or(0, |vlan| vlan.protocol.into()),
            vlan_tci: of.vlan.map_or(0, |vlan| vlan.tci.into()),
            cb: of.cb,
        };
        // SAFETY: the caller's promise.
        unsafe { options::write(info, found) }
    })
}

/// Sets a packet's metadata.
///
/// # Safety
///
/// `packet` is null or not freed, and used by nothing else meanwhile; `info` is null or readable for the size that it
/// gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_packet_set_info(packet: *mut Packet, info: *const Metadata) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, to both.
        let (packet, of) =
            unsafe { (exclusive(packet, "skep_packet_set_info: packet")?, options::read(info)?) };
        let of = of.ok_or_else(|| Failure::argument("skep_packet_set_info: info is NULL"))?;
        let half = |value: u32, name: &str| {
            u16::try_from(value)
                .map_err(|_| Failure::argument(format!("skep_packet_info: {name} has 16 bits")))
        };
        let (protocol, tci) = (half(of.vlan_protocol, "vlan_protocol")?, half(of.vlan_tci, "vlan_tci")?);
        let info = &mut packet.info;
        info.tstamp = of.tstamp;
        info.hwtstamp = of.hwtstamp;
        info.ingress_ifindex = of.ingress_ifindex;
        info.ifindex = of.ifindex;
        info.rx_queue_index = of.rx_queue_index;
        info.pkt_type = of.pkt_type;
        info.mark = of.mark;
        info.priority = of.priority;
        info.queue_mapping = of.queue_mapping;
        info.tc_index = of.tc_index;
        info.tc_classid = of.tc_classid;
        info.hash = of.hash;
        info.wire_len = of.wire_len;
        info.gso_segs = of.gso_segs;
        info.gso_size = of.gso_size;
        info.vlan = (protocol != 0).then_some(Vlan { protocol, tci });
        info.cb = of.cb;
        Ok(())
    })
}

/// Runs a program on a packet, and tells what it did.
///
/// # Safety
///
/// `program` is null or valid; `packet` is null or not freed and not used by anything else; `outcome` is null or
/// writable for the size that it gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_outcome(
    program: *const Program,
    packet: *mut Packet,
    outcome: *mut OutcomeInfo,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (program, packet) = unsafe {
            let packet = exclusive(packet, "skep_program_outcome: packet")?;
            (shared(program, "skep_program_outcome: program")?, packet)
        };
        // A wrong size has no effect.
        // SAFETY: the caller's promise.
        unsafe { options::check(outcome)? };
        let found = program.outcome(packet)?;
        let (redirect, target, ingress) = match found.redirect {
            None => (0, 0, false),
            Some(Redirect::Device { index, ingress }) => (1, index.into(), ingress),
            Some(Redirect::Peer { index }) => (2, index.into(), true),
            Some(Redirect::Neighbour { index, .. }) => (3, index.into(), false),
            Some(Redirect::Devices) => (4, found.devices.len() as u64, false),
            Some(Redirect::Cpu { cpu }) => (5, cpu.into(), false),
            Some(Redirect::Stream { cookie, ingress }) => (6, cookie, ingress),
            Some(Redirect::Socket { socket }) => (7, socket.into(), false),
            // The library is as old as this enum.
            Some(_) => (u32::MAX, 0, false),
        };
        let filled = OutcomeInfo {
            size: 0,
            verdict: found.result as u32,
            redirect,
            target,
            ingress: ingress.into(),
            changed: found.changed.into(),
            clones: found.clones.len() as u64,
        };
        // SAFETY: the caller's promise.
        unsafe { options::write(outcome, filled) }
    })
}

/// Runs a program on a packet with a state for helpers.
///
/// # Safety
///
/// As for `skep_program_run`; `state` is what the host's helpers expect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_run_with(
    program: *const Program,
    packet: *mut Packet,
    state: *mut c_void,
    verdict: *mut u32,
) -> c_int {
    guard(|| {
        let to = place(verdict, "skep_program_run_with: verdict")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let program = shared(program, "skep_program_run_with: program")?;
            let packet = exclusive(packet, "skep_program_run_with: packet")?;
            to.write(program.run_with_state(packet, &mut StatePointer(state))? as u32);
        }
        Ok(())
    })
}

/// Runs a program of a type of the host's own, with a state for helpers.
///
/// # Safety
///
/// `program` is null or valid; `type` is null or not freed; `value` is null or the host's structure of this type, as
/// the header says; `state` is what the host's helpers expect; `verdict` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skep_program_run_typed(
    program: *const Program,
    r#type: *const OwnType,
    value: *mut c_void,
    state: *mut c_void,
    verdict: *mut i32,
) -> c_int {
    guard(|| {
        let to = place(verdict, "skep_program_run_typed: verdict")?;
        // SAFETY: not null, and the caller's promise.
        unsafe {
            let program = shared(program, "skep_program_run_typed: program")?;
            let own = shared(r#type, "skep_program_run_typed: type")?;
            let value = place(value, "skep_program_run_typed: value")?;
            let mut state = StatePointer(state);
            let mut with_state = program.with_state(&mut state);
            to.write(with_state.run_data(own.host(), &mut own.lent(value), &mut Part(value))?);
        }
        Ok(())
    })
}
