//! Test runs, with the checks that Linux makes of their input.

mod repeat;
mod special;
mod system_call;

use super::errno;
use crate::context::Context;
use crate::packet::{Checksum, Packet, PacketInfo};
use crate::program::Program;
use crate::world::World;
use skep_abi::Native;
use skep_sys::{Errno, RunAnswer, RunRequest, RunsOn};
use std::ops::Range;

pub(super) use repeat::{Runs, Waiting};

/// Bytes of an Ethernet header: what a packet must have at least.
const ETHERNET: usize = 14;
/// The most bytes of a packet.
const MOST: usize = 1 << 16;
/// `BPF_F_TEST_RUN_ON_CPU`.
const F_RUN_ON_CPU: u32 = 1;
/// The most bytes of metadata before a packet.
const MOST_METADATA: usize = 32;
/// `BPF_F_TEST_XDP_LIVE_FRAMES`.
const F_LIVE_FRAMES: u32 = 2;
/// The most frames in a batch.
const MOST_FRAMES: u32 = 256;
/// The index of the loopback device.
const LOOPBACK: u32 = 1;
/// `BPF_F_TEST_SKB_CHECKSUM_COMPLETE`.
const F_CHECKSUM_COMPLETE: u32 = 4;

pub(super) fn runs_on(program: &Program) -> RunsOn {
    if program.check_runs_alone().is_err() {
        return RunsOn::Nothing;
    }
    match (program.program_type().name, program.program_type().native) {
        // Streams of sockets, and this kind of tunnel, have none.
        ("sk_skb" | "lwt_seg6local", _) => RunsOn::Nothing,
        ("flow_dissector", _) | (_, Some(Native::Xdp | Native::Skb | Native::Netfilter)) => RunsOn::Packet,
        ("raw_tracepoint" | "syscall", _) => RunsOn::Context,
        ("sk_lookup", _) => RunsOn::ContextAlone,
        _ => RunsOn::Nothing,
    }
}

pub(super) fn run(
    world: Option<&World>,
    program: &Program,
    request: &RunRequest,
    runs: &mut Runs<'_>,
) -> Result<RunAnswer, Errno> {
    match (program.program_type().name, program.program_type().native) {
        (_, Some(Native::Xdp)) => xdp(world, program, request, runs),
        (_, Some(Native::Skb)) => skb(program, request, runs),
        (_, Some(Native::Netfilter)) => special::netfilter(program, request, runs),
        ("flow_dissector", _) => special::flow(program, request, runs),
        ("sk_lookup", _) => special::lookup(program, request, runs),
        ("raw_tracepoint", _) => words(program, request, runs),
        ("syscall", _) => system_call::run(program, request, runs),
        _ => Err(Errno::ENOTSUPP),
    }
}

/// A field of a context as a caller gives it: a number of up to 8 bytes.
fn field(bytes: &[u8], at: Range<usize>) -> u64 {
    let mut word = [0; 8];
    let given = bytes.get(at.start..at.end.min(bytes.len())).unwrap_or_default();
    word[..given.len()].copy_from_slice(given);
    u64::from_ne_bytes(word)
}

fn only(bytes: &[u8], allowed: &[Range<usize>]) -> Result<(), Errno> {
    let set = |(at, byte): (usize, &u8)| *byte != 0 && !allowed.iter().any(|range| range.contains(&at));
    if bytes.iter().enumerate().any(set) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `struct xdp_md`: data, its end, metadata, incoming device and queue, outgoing device.
mod md {
    pub(super) const SIZE: usize = 24;
    pub(super) const DATA: usize = 0;
    pub(super) const DATA_END: usize = 4;
    pub(super) const META: usize = 8;
    pub(super) const IFINDEX: usize = 12;
    pub(super) const QUEUE: usize = 16;
    pub(super) const EGRESS: usize = 20;
}

fn xdp(
    world: Option<&World>,
    program: &Program,
    request: &RunRequest,
    runs: &mut Runs<'_>,
) -> Result<RunAnswer, Errno> {
    let live = request.flags == F_LIVE_FRAMES;
    if !live && (request.flags != 0 || request.batch_size != 0) {
        return Err(Errno::EINVAL);
    }
    if request.batch_size > MOST_FRAMES {
        return Err(Errno::E2BIG);
    }
    if live && request.context_out {
        return Err(Errno::EINVAL);
    }
    let data = request.data.as_deref().ok_or(Errno::EINVAL)?;
    if data.len() < ETHERNET || data.len() > MOST {
        return Err(Errno::EINVAL);
    }
    let mut info = PacketInfo::default();
    let mut metadata = 0;
    if let Some(context) = &request.context {
        only(context.get(md::SIZE..).unwrap_or_default(), &[]).map_err(|_| Errno::E2BIG)?;
        let word = |at: usize| field(context, at..at + 4) as u32;
        // The metadata begins at 0, the packet at `data`, and all ends where the bytes end.
        let (from, end) = (word(md::DATA) as usize, word(md::DATA_END) as usize);
        let aligned = from.is_multiple_of(4) && from <= MOST_METADATA && data.len() >= from + ETHERNET;
        if word(md::META) != 0 || word(md::EGRESS) != 0 || end > data.len() || from > end || !aligned {
            return Err(Errno::EINVAL);
        }
        metadata = from;
        if word(md::IFINDEX) == 0 && word(md::QUEUE) != 0 {
            return Err(Errno::EINVAL);
        }
        (info.ingress_ifindex, info.rx_queue_index) = (word(md::IFINDEX), word(md::QUEUE));
    }
    if live {
        return live_frames(world, program, (request.repeat, runs), (data, metadata, info));
    }
    let packet = std::cell::RefCell::new(Packet::new(data));
    let (result, duration) = runs.repeated(
        request.repeat,
        || begin(&mut packet.borrow_mut(), (data, metadata, info)),
        || program.run(&mut packet.borrow_mut()).map_err(|error| errno(&error)),
    )?;
    let packet = packet.into_inner();
    let left = [packet.metadata(), packet.bytes()].concat();
    let mut context = [0; md::SIZE];
    let mut put = |at: usize, number: u32| context[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    put(md::DATA, packet.metadata().len() as u32);
    put(md::DATA_END, left.len() as u32);
    put(md::IFINDEX, info.ingress_ifindex);
    put(md::QUEUE, info.rx_queue_index);
    let context = (request.context.is_some() || request.context_out).then(|| context.to_vec());
    Ok(RunAnswer { result, duration, data: Some(left), context, ..RunAnswer::default() })
}

/// The packet as it comes in.
fn begin(packet: &mut Packet, (data, metadata, info): (&[u8], usize, PacketInfo)) {
    packet.set(data);
    packet.begin_after(metadata);
    packet.info = info;
}

/// Frames that come in on a device and go on as the program says. Nothing of them comes back but their size.
fn live_frames(
    world: Option<&World>,
    program: &Program,
    (repeat, runs): (u32, &mut Runs<'_>),
    (data, metadata, info): (&[u8], usize, PacketInfo),
) -> Result<RunAnswer, Errno> {
    let world = world.ok_or(Errno::ENODEV)?;
    // Without a device, they come from the machine itself.
    let device = if info.ingress_ifindex == 0 { LOOPBACK } else { info.ingress_ifindex };
    if world.machine().find_device(device).is_none() {
        return Err(Errno::ENODEV);
    }
    if info.rx_queue_index != 0 {
        // The world's devices have one queue.
        return Err(Errno::EINVAL);
    }
    let packet = std::cell::RefCell::new(Packet::new(data));
    let (_, duration) = runs.repeated(
        repeat,
        || begin(&mut packet.borrow_mut(), (data, metadata, info)),
        || {
            let sent = world.inject_through(program, device, &mut packet.borrow_mut());
            sent.map(|()| 0).map_err(|error| errno(&error))
        },
    )?;
    Ok(RunAnswer { result: 0, duration, data: Some(data.to_vec()), ..RunAnswer::default() })
}

/// The fields of `struct __sk_buff` that a caller may give, and their offsets.
mod buff {
    use std::ops::Range;

    pub(super) const SIZE: usize = 192;
    pub(super) const MARK: usize = 8;
    pub(super) const PRIORITY: usize = 32;
    pub(super) const INGRESS: usize = 36;
    pub(super) const IFINDEX: usize = 40;
    pub(super) const CB: usize = 48;
    pub(super) const TSTAMP: usize = 152;
    pub(super) const WIRE_LEN: usize = 160;
    pub(super) const GSO_SEGS: usize = 164;
    pub(super) const GSO_SIZE: usize = 176;
    pub(super) const HWTSTAMP: usize = 184;
    pub(super) const GIVEN: &[Range<usize>] = &[
        MARK..MARK + 4,
        PRIORITY..PRIORITY + 4,
        INGRESS..INGRESS + 4,
        IFINDEX..IFINDEX + 4,
        CB..CB + 20,
        TSTAMP..TSTAMP + 8,
        WIRE_LEN..WIRE_LEN + 4,
        GSO_SEGS..GSO_SEGS + 4,
        GSO_SIZE..GSO_SIZE + 4,
        HWTSTAMP..HWTSTAMP + 8,
    ];
}

fn skb(program: &Program, request: &RunRequest, runs: &mut Runs<'_>) -> Result<RunAnswer, Errno> {
    if request.flags & !F_CHECKSUM_COMPLETE != 0 || request.batch_size != 0 || request.cpu != 0 {
        return Err(Errno::EINVAL);
    }
    let data = request.data.as_deref().ok_or(Errno::EINVAL)?;
    if data.len() < ETHERNET || data.len() > MOST {
        return Err(Errno::EINVAL);
    }
    let mut info = PacketInfo { ifindex: 1, ..PacketInfo::default() };
    if let Some(context) = &request.context {
        only(context.get(buff::SIZE..).unwrap_or_default(), &[]).map_err(|_| Errno::E2BIG)?;
        only(&context[..context.len().min(buff::SIZE)], buff::GIVEN)?;
        let word = |at: usize| field(context, at..at + 4) as u32;
        (info.mark, info.priority) = (word(buff::MARK), word(buff::PRIORITY));
        (info.ingress_ifindex, info.wire_len) = (word(buff::INGRESS), word(buff::WIRE_LEN));
        (info.gso_segs, info.gso_size) = (word(buff::GSO_SEGS), word(buff::GSO_SIZE));
        info.tstamp = field(context, buff::TSTAMP..buff::TSTAMP + 8);
        info.hwtstamp = field(context, buff::HWTSTAMP..buff::HWTSTAMP + 8);
        info.cb = std::array::from_fn(|at| word(buff::CB + 4 * at));
        if word(buff::IFINDEX) != 0 {
            info.ifindex = word(buff::IFINDEX);
        }
        let lengths = info.wire_len != 0 && (info.wire_len as usize) < data.len();
        if lengths || info.gso_segs > 65_535 {
            return Err(Errno::EINVAL);
        }
    }
    if request.flags & F_CHECKSUM_COMPLETE != 0 {
        info.checksum = Checksum::Complete { sum: sum(&data[ETHERNET..]) };
    }
    // Only programs of tc see the Ethernet header; others get a packet that begins behind it.
    let sees_header = matches!(program.program_type().name, "sched_cls" | "sched_act");
    let data = if sees_header { data } else { &data[ETHERNET..] };
    let packet = std::cell::RefCell::new(Packet::new(data));
    let (result, duration) = runs.repeated(
        request.repeat,
        || {
            let mut packet = packet.borrow_mut();
            packet.set(data);
            packet.info = info;
        },
        || program.run(&mut packet.borrow_mut()).map_err(|error| errno(&error)),
    )?;
    let packet = packet.into_inner();
    let header = if sees_header { 0 } else { ETHERNET };
    let mut context = vec![0; buff::SIZE];
    let mut put = |at: usize, bytes: &[u8]| context[at..at + bytes.len()].copy_from_slice(bytes);
    let left = packet.info;
    let words = [
        (buff::MARK, left.mark),
        (buff::PRIORITY, left.priority),
        (buff::INGRESS, left.ingress_ifindex),
        (buff::IFINDEX, left.ifindex),
        (buff::WIRE_LEN, packet.bytes().len() as u32),
        (buff::GSO_SEGS, left.gso_segs),
        (buff::GSO_SIZE, left.gso_size),
    ];
    words.iter().for_each(|(at, number)| put(*at, &number.to_ne_bytes()));
    left.cb.iter().enumerate().for_each(|(at, word)| put(buff::CB + 4 * at, &word.to_ne_bytes()));
    put(buff::TSTAMP, &left.tstamp.to_ne_bytes());
    put(buff::HWTSTAMP, &left.hwtstamp.to_ne_bytes());
    put(0, &(packet.bytes().len() as u32).to_ne_bytes());
    let bytes = [&[0; ETHERNET][..header], packet.bytes()].concat();
    Ok(RunAnswer { result, duration, data: Some(bytes), context: Some(context), ..RunAnswer::default() })
}

/// The one's-complement sum of bytes, in the order of the machine.
fn sum(bytes: &[u8]) -> u32 {
    let words =
        bytes.chunks(2).map(|two| u32::from(u16::from_ne_bytes([two[0], two.get(1).copied().unwrap_or(0)])));
    words.fold(0, |sum, word| {
        let (sum, carry) = u32::overflowing_add(sum, word);
        sum + u32::from(carry)
    })
}

/// A raw tracepoint: its arguments are the context.
fn words(program: &Program, request: &RunRequest, runs: &mut Runs<'_>) -> Result<RunAnswer, Errno> {
    const MOST_ARGUMENTS: usize = 12;
    let unused =
        request.data.is_some() || request.repeat != 0 || request.context_out || request.batch_size != 0;
    if unused || request.flags & !F_RUN_ON_CPU != 0 {
        return Err(Errno::EINVAL);
    }
    if request.flags == 0 && request.cpu != 0 {
        return Err(Errno::EINVAL);
    }
    let bytes = request.context.as_deref().unwrap_or_default();
    if bytes.len() > MOST_ARGUMENTS * 8 {
        return Err(Errno::EINVAL);
    }
    let mut context = Context::of(program).map_err(|error| errno(&error))?;
    context.set_bytes(bytes).map_err(|error| errno(&error))?;
    let result = runs.once(|_| program.run_context(&mut context).map_err(|error| errno(&error)))?;
    Ok(RunAnswer { result: result as u32, ..RunAnswer::default() })
}
