//! Test runs of programs whose input is neither a packet alone nor words: flows, look-ups of sockets, the packet
//! filter.

use super::{ETHERNET, MOST, Runs, errno, field, only};
use crate::context::Context;
use crate::packet::{Packet, PacketInfo};
use crate::program::Program;
use skep_sys::{Errno, RunAnswer, RunRequest};
use std::cell::RefCell;

/// Families of addresses.
const INET: u32 = 2;
const INET6: u32 = 10;

/// `struct bpf_flow_keys`: the offset of the flags, which a caller may give, and its size.
const KEYS_FLAGS: usize = 48;
const KEYS_SIZE: usize = 56;

fn plain(request: &RunRequest) -> Result<(), Errno> {
    if request.flags != 0 || request.cpu != 0 || request.batch_size != 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

fn frame(request: &RunRequest) -> Result<&[u8], Errno> {
    let data = request.data.as_deref().ok_or(Errno::EINVAL)?;
    if data.len() < ETHERNET || data.len() > MOST { Err(Errno::EINVAL) } else { Ok(data) }
}

/// A program of the packet filter: the packet without its Ethernet header, in a hook without devices.
pub(super) fn netfilter(
    program: &Program,
    request: &RunRequest,
    runs: &mut Runs<'_>,
) -> Result<RunAnswer, Errno> {
    plain(request)?;
    if request.context.is_some() || request.context_out {
        return Err(Errno::EINVAL);
    }
    let data = frame(request)?;
    let packet = RefCell::new(Packet::new(data));
    let (result, duration) = runs.repeated(
        request.repeat,
        || {
            let mut packet = packet.borrow_mut();
            packet.set(data);
            packet.info = PacketInfo { ifindex: 1, ..PacketInfo::default() };
        },
        || program.run(&mut packet.borrow_mut()).map_err(|error| errno(&error)),
    )?;
    // The packet does not come back.
    Ok(RunAnswer { result, duration, data: Some(Vec::new()), ..RunAnswer::default() })
}

/// A dissector of flows: the answer is what it found (`struct bpf_flow_keys`).
pub(super) fn flow(program: &Program, request: &RunRequest, runs: &mut Runs<'_>) -> Result<RunAnswer, Errno> {
    plain(request)?;
    let data = frame(request)?;
    let given = request.context.as_deref().unwrap_or_default();
    only(given.get(KEYS_SIZE..).unwrap_or_default(), &[]).map_err(|_| Errno::E2BIG)?;
    let flags_alone = KEYS_FLAGS..KEYS_FLAGS + 4;
    only(&given[..given.len().min(KEYS_SIZE)], std::slice::from_ref(&flags_alone))?;
    let flags = field(given, KEYS_FLAGS..KEYS_FLAGS + 4) as u32;
    let context = RefCell::new(Context::of(program).map_err(|error| errno(&error))?);
    context.borrow_mut().set_data(data).map_err(|error| errno(&error))?;
    let (result, duration) = runs.repeated(
        request.repeat,
        || {
            let mut context = context.borrow_mut();
            let keys = context.flow_keys_mut();
            keys.fill(0);
            // Both headers begin behind the Ethernet header, whose type is known.
            (keys[0], keys[2]) = (ETHERNET as u8, ETHERNET as u8);
            keys[10..12].copy_from_slice(&data[12..14]);
            keys[KEYS_FLAGS..KEYS_FLAGS + 4].copy_from_slice(&flags.to_ne_bytes());
        },
        || program.run_context(&mut context.borrow_mut()).map_err(|error| errno(&error)),
    )?;
    let keys = context.into_inner().flow_keys().to_vec();
    let mut left = given[..given.len().min(KEYS_SIZE)].to_vec();
    left.resize(KEYS_SIZE, 0);
    Ok(RunAnswer { result, duration, data: Some(keys), context: Some(left), ..RunAnswer::default() })
}

/// `struct bpf_sk_lookup`, as a caller gives it.
mod lookup_fields {
    pub(super) const SIZE: usize = 72;
    pub(super) const COOKIE: usize = 0;
    pub(super) const FAMILY: usize = 8;
    pub(super) const PROTOCOL: usize = 12;
    pub(super) const REMOTE_IP4: usize = 16;
    pub(super) const REMOTE_IP6: usize = 20;
    pub(super) const REMOTE_PORT: usize = 36;
    pub(super) const LOCAL_IP4: usize = 40;
    pub(super) const LOCAL_IP6: usize = 44;
    pub(super) const LOCAL_PORT: usize = 60;
    pub(super) const DEVICE: usize = 64;
}

/// A look-up of a socket for addresses; the answer has the number of the socket that was chosen.
pub(super) fn lookup(
    program: &Program,
    request: &RunRequest,
    runs: &mut Runs<'_>,
) -> Result<RunAnswer, Errno> {
    use lookup_fields as at;
    plain(request)?;
    let given = match &request.context {
        Some(given) => given.as_slice(),
        None if request.context_out => &[],
        None => return Err(Errno::EINVAL),
    };
    only(given.get(at::SIZE..).unwrap_or_default(), &[]).map_err(|_| Errno::E2BIG)?;
    let mut bytes = given[..given.len().min(at::SIZE)].to_vec();
    bytes.resize(at::SIZE, 0);
    let word = |at: usize| field(&bytes, at..at + 4) as u32;
    // The socket and the device are the program's to learn.
    if field(&bytes, at::COOKIE..at::COOKIE + 8) != 0 || word(at::DEVICE) != 0 || word(at::DEVICE + 4) != 0 {
        return Err(Errno::EINVAL);
    }
    if word(at::LOCAL_PORT) > u32::from(u16::MAX) {
        return Err(Errno::ERANGE);
    }
    let family = word(at::FAMILY);
    if ![INET, INET6].contains(&family) {
        return Err(Errno::EAFNOSUPPORT);
    }
    let remote_port = field(&bytes, at::REMOTE_PORT..at::REMOTE_PORT + 2);
    let mut fields = vec![
        ("family", u64::from(family)),
        ("protocol", word(at::PROTOCOL).into()),
        ("remote_port", remote_port),
        ("local_port", word(at::LOCAL_PORT).into()),
    ];
    if family == INET {
        fields.extend([
            ("remote_ip4", u64::from(word(at::REMOTE_IP4))),
            ("local_ip4", word(at::LOCAL_IP4).into()),
        ]);
    }
    let six = |at: usize| {
        let bytes: [u8; 16] = bytes[at..at + 16].try_into().map_err(|_| Errno::EINVAL)?;
        Ok::<_, Errno>(std::net::Ipv6Addr::from(bytes))
    };
    let prepared = || {
        let mut context = Context::of(program)?;
        fields.iter().try_for_each(|(name, value)| context.set(name, *value))?;
        Ok::<_, crate::error::Error>(context)
    };
    let (remote, local) = (six(at::REMOTE_IP6)?, six(at::LOCAL_IP6)?);
    let context = RefCell::new(None);
    let (result, duration) = runs.repeated(
        request.repeat,
        || *context.borrow_mut() = Some(prepared()),
        || {
            let mut slot = context.borrow_mut();
            let made = slot.take().ok_or(Errno::EINVAL)?;
            let mut made = made.map_err(|error| errno(&error))?;
            if family == INET6 {
                let addresses = [("remote_ip", remote), ("local_ip", local)];
                for (name, address) in addresses {
                    made.set_address(name, address).map_err(|error| errno(&error))?;
                }
            }
            let result = program.run_context(&mut made).map_err(|error| errno(&error))?;
            *slot = Some(Ok(made));
            Ok(result)
        },
    )?;
    let chosen = match context.into_inner() {
        Some(Ok(context)) => context.chosen().map_or(0, |socket| socket.cookie),
        _ => 0,
    };
    bytes[at::COOKIE..at::COOKIE + 8].copy_from_slice(&chosen.to_ne_bytes());
    Ok(RunAnswer { result, duration, context: Some(bytes), ..RunAnswer::default() })
}
