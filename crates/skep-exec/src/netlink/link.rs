//! Devices: RTM_GETLINK, RTM_GETADDR, and RTM_SETLINK as far as it is about XDP programs.

use super::message::{Answer, Attributes, Request, u32_at};
use super::{Caller, Network};
use skep::world::{Device, IpNet, Machine};
use skep_sys::Errno;
use std::net::IpAddr;

const NEWLINK: u16 = 16;
const NEWADDR: u16 = 20;
/// The size of `struct ifinfomsg`.
pub(super) const INFO: usize = 16;
const LOOPBACK: u16 = 772;
const ETHERNET: u16 = 1;

/// `IFLA_*` and `IFLA_XDP_*`
pub(super) mod attribute {
    pub(in super::super) const ADDRESS: u16 = 1;
    pub(in super::super) const BROADCAST: u16 = 2;
    pub(in super::super) const NAME: u16 = 3;
    pub(in super::super) const MTU: u16 = 4;
    pub(in super::super) const LINK: u16 = 5;
    pub(in super::super) const QDISC: u16 = 6;
    pub(in super::super) const QUEUE: u16 = 13;
    pub(in super::super) const STATE: u16 = 16;
    pub(in super::super) const XDP: u16 = 43;
    pub(in super::super) const OTHER_NAME: u16 = 53;
    pub(in super::super) const XDP_FD: u16 = 1;
    pub(in super::super) const XDP_ATTACHED: u16 = 2;
    pub(in super::super) const XDP_FLAGS: u16 = 3;
    pub(in super::super) const XDP_PROG_ID: u16 = 4;
    pub(in super::super) const XDP_DRV_PROG_ID: u16 = 5;
    pub(in super::super) const XDP_SKB_PROG_ID: u16 = 6;
    pub(in super::super) const XDP_EXPECTED_FD: u16 = 8;
}

/// `XDP_FLAGS_*`
const UPDATE_IF_NOEXIST: u32 = 1;
const SKB_MODE: u32 = 2;
const DRV_MODE: u32 = 4;
const HW_MODE: u32 = 8;
const REPLACE: u32 = 16;
/// The type of programs.
const XDP_TYPE: u32 = 6;

/// How a program is attached: `XDP_ATTACHED_DRV`, `XDP_ATTACHED_SKB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Driver = 1,
    Generic = 2,
}

impl Mode {
    /// By the flags of a request.
    const fn of(flags: u32) -> Self {
        if flags & SKB_MODE != 0 { Self::Generic } else { Self::Driver }
    }
}

impl Network {
    /// Tells of the devices that are asked for.
    pub(super) fn links(
        &self,
        caller: &Caller<'_, '_>,
        request: &Request<'_>,
        answer: &mut Answer,
    ) -> Result<(), Errno> {
        let machine = self.world.machine();
        if request.flags & super::message::DUMP == super::message::DUMP {
            for device in visible(&machine) {
                Self::link(caller, device, request, answer);
            }
            return Ok(());
        }
        let device = named(&machine, request)?;
        Self::link(caller, device, request, answer);
        Ok(())
    }

    fn link(caller: &Caller<'_, '_>, device: &Device, request: &Request<'_>, answer: &mut Answer) {
        let kind = if device.name == "lo" { LOOPBACK } else { ETHERNET };
        let mut info = [0; INFO];
        info[2..4].copy_from_slice(&kind.to_ne_bytes());
        info[4..8].copy_from_slice(&device.index.to_ne_bytes());
        info[8..12].copy_from_slice(&super::device::flags(device).to_ne_bytes());
        let message = answer.begin(request, NEWLINK, &info);
        answer.text(attribute::NAME, &device.name);
        answer.number(attribute::QUEUE, 1000);
        // IF_OPER_UP, IF_OPER_DOWN
        answer.attribute(attribute::STATE, &[if device.up { 6 } else { 2 }]);
        answer.number(attribute::MTU, device.mtu);
        answer.text(attribute::QDISC, "noqueue");
        answer.attribute(attribute::ADDRESS, &super::device::hardware_address(device));
        let everybody = if kind == LOOPBACK { [0; 6] } else { [0xff; 6] };
        answer.attribute(attribute::BROADCAST, &everybody);
        if let Some(peer) = device.peer {
            answer.number(attribute::LINK, peer);
        }
        let attached = caller.system.xdp(device.index).map(|xdp| (Mode::of(xdp.mode), xdp.id));
        let nest = answer.nest(attribute::XDP);
        answer.attribute(attribute::XDP_ATTACHED, &[attached.map_or(0, |(mode, _)| mode as u8)]);
        if let Some((mode, id)) = attached {
            answer.number(attribute::XDP_PROG_ID, id);
            let of_mode = match mode {
                Mode::Driver => attribute::XDP_DRV_PROG_ID,
                Mode::Generic => attribute::XDP_SKB_PROG_ID,
            };
            answer.number(of_mode, id);
        }
        answer.end_nest(nest);
        answer.end(message);
    }

    /// As [`set_link`](Self::set_link), by the request that also makes devices, which is not to make one.
    pub(super) fn change_link(
        &self,
        caller: &mut Caller<'_, '_>,
        request: &Request<'_>,
    ) -> Result<(), Errno> {
        // iproute2 asks so whether there is such a request at all.
        named(&self.world.machine(), request).map_err(|_| Errno::ENODEV)?;
        self.set_link(caller, request)
    }

    /// Attaches, replaces or detaches a program.
    pub(super) fn set_link(&self, caller: &mut Caller<'_, '_>, request: &Request<'_>) -> Result<(), Errno> {
        let machine = self.world.machine();
        let index = named(&machine, request)?.index;
        let xdp = Attributes::behind(request.body, INFO).nested(attribute::XDP);
        // Nothing else of a device can be changed.
        let xdp = xdp.ok_or(Errno::EOPNOTSUPP)?;
        let Some(descriptor) = xdp.number(attribute::XDP_FD) else { return Err(Errno::EINVAL) };
        let flags = xdp.number(attribute::XDP_FLAGS).unwrap_or(0);
        let modes = flags & (SKB_MODE | DRV_MODE | HW_MODE);
        if flags & !(UPDATE_IF_NOEXIST | REPLACE | modes) != 0 || modes.count_ones() > 1 {
            return Err(Errno::EINVAL);
        }
        if modes == HW_MODE {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode = if modes == SKB_MODE { Mode::Generic } else { Mode::Driver };
        let program = match descriptor as i32 {
            ..=-1 => None,
            descriptor => Some(caller.program(descriptor, XDP_TYPE)?),
        };
        let expected = match (flags & REPLACE, xdp.number(attribute::XDP_EXPECTED_FD)) {
            (0, _) => None,
            (_, None) => return Err(Errno::EINVAL),
            (_, Some(descriptor)) => Some(match descriptor as i32 {
                ..=-1 => None,
                descriptor => Some(caller.program(descriptor, XDP_TYPE)?.object().id()),
            }),
        };
        // One request after the other.
        let _state = self.state.lock();
        let xdp = caller.system.xdp(index);
        if xdp.is_some_and(|xdp| xdp.linked) {
            return Err(Errno::EBUSY);
        }
        let current = xdp.map(|xdp| (Mode::of(xdp.mode), xdp.id));
        let of_mode = current.filter(|(now, _)| *now == mode || modes == 0);
        if expected.is_some_and(|expected| expected != of_mode.map(|(_, id)| id)) {
            return Err(Errno::EEXIST);
        }
        if flags & UPDATE_IF_NOEXIST != 0 && program.is_some() && of_mode.is_some() {
            return Err(Errno::EBUSY);
        }
        if program.is_none() && of_mode.is_none() {
            return Ok(());
        }
        if program.is_some() && modes != 0 && current.is_some_and(|(now, _)| now != mode) {
            // Both cannot be active at the same time.
            return Err(Errno::EEXIST);
        }
        let modes = if modes == 0 { xdp.map_or(0, |xdp| xdp.mode) } else { modes };
        caller.system.set_xdp(index, modes, program.as_ref())
    }

    /// Tells of the addresses of all devices.
    pub(super) fn addresses(&self, request: &Request<'_>, answer: &mut Answer) -> Result<(), Errno> {
        let machine = self.world.machine();
        let family = request.body.first().copied().unwrap_or(0);
        for device in visible(&machine) {
            for address in &device.addresses {
                let of = match address {
                    IpNet::V4(_) => libc::AF_INET as u8,
                    IpNet::V6(_) => libc::AF_INET6 as u8,
                };
                if family != 0 && family != of {
                    continue;
                }
                // struct ifaddrmsg: permanent, of the whole world.
                let mut info = [of, address.prefix_len(), 0x80, 0, 0, 0, 0, 0];
                info[4..].copy_from_slice(&device.index.to_ne_bytes());
                let message = answer.begin(request, NEWADDR, &info);
                let bytes = match address.addr() {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                // IFA_ADDRESS, IFA_LOCAL, IFA_LABEL
                answer.attribute(1, &bytes);
                if of == libc::AF_INET as u8 {
                    answer.attribute(2, &bytes);
                    answer.text(3, &device.name);
                }
                answer.end(message);
            }
        }
        Ok(())
    }
}

/// The devices of the first namespace.
pub(super) fn visible(machine: &Machine) -> impl Iterator<Item = &Device> {
    machine.devices().filter(|device| device.namespace == 0)
}

/// The device that a request is about.
pub(super) fn named<'a>(machine: &'a Machine, request: &Request<'_>) -> Result<&'a Device, Errno> {
    let index = u32_at(request.body, 4).filter(|_| request.body.len() >= INFO).ok_or(Errno::EINVAL)?;
    let attributes = Attributes::behind(request.body, INFO);
    let name = attributes.text(attribute::NAME).or_else(|| attributes.text(attribute::OTHER_NAME));
    let is_it = |device: &&Device| match name {
        _ if index != 0 => device.index == index,
        Some(name) => device.name.as_bytes() == name,
        None => false,
    };
    if index == 0 && name.is_none() {
        return Err(Errno::EINVAL);
    }
    visible(machine).find(is_it).ok_or(Errno::ENODEV)
}
