//! Pairs of devices that only programs connect: made and removed by RTM_NEWLINK and RTM_DELLINK.

use super::Network;
use super::link::{INFO, attribute, named};
use super::message::{Attributes, EXCLUSIVE, Request, u32_at};
use skep::world::{Device, Machine, Netkit, NetkitPolicy};
use skep_sys::Errno;

/// `IFLA_LINKINFO` and what is in it.
const LINK_INFO: u16 = 18;
const KIND: u16 = 1;
const DATA: u16 = 2;
/// `IFLA_NETKIT_*`.
const PEER_INFO: u16 = 1;
const POLICY: u16 = 3;
const PEER_POLICY: u16 = 4;
const MODE: u16 = 5;
/// `NETKIT_PASS`, `NETKIT_DROP`.
const PASS: u32 = 0;
const DROP: u32 = 2;
/// `NETKIT_L3`, the highest mode.
const L3: u32 = 1;
/// The devices of a world to which pairs are added.
const MOST: usize = 1024;
/// `IFF_UP`.
const UP: u32 = 1;

impl Network {
    /// Makes a pair. Other kinds of devices cannot be made.
    pub(super) fn new_link(&self, request: &Request<'_>) -> Result<(), Errno> {
        let attributes = Attributes::behind(request.body, INFO);
        let machine = self.world.machine();
        match named(&machine, request) {
            Ok(_) if request.flags & EXCLUSIVE != 0 => return Err(Errno::EEXIST),
            Ok(_) => return Err(Errno::EOPNOTSUPP),
            // Linux chooses names.
            Err(Errno::ENODEV | Errno::EINVAL) => {}
            Err(error) => return Err(error),
        }
        let info = attributes.nested(LINK_INFO).ok_or(Errno::EOPNOTSUPP)?;
        if info.text(KIND) != Some(b"netkit") {
            return Err(Errno::EOPNOTSUPP);
        }
        let data = info.nested(DATA).unwrap_or_default();
        if data.number(MODE).is_some_and(|mode| mode > L3) {
            return Err(Errno::EINVAL);
        }
        let (first, second) = (policy(data.number(POLICY))?, policy(data.number(PEER_POLICY))?);
        let peer = data.get(PEER_INFO).unwrap_or_default();
        let first = End { primary: true, policy: first, header: request.body, attributes };
        let behind = Attributes::behind(peer, INFO);
        let second = End { primary: false, policy: second, header: peer, attributes: behind };
        self.world.change(|machine| {
            // Each change copies the machine.
            if machine.devices().count() >= MOST {
                return Err(Errno::ENOSPC);
            }
            let first = first.device(machine)?;
            let first_name = first.name.clone();
            let second = second.device_beside(machine, &first_name)?;
            machine.add_pair(first, second).map_err(|_| Errno::EEXIST)
        })?;
        Ok(())
    }

    /// Removes a pair, with the programs that are attached to it.
    pub(super) fn delete_link(&self, request: &Request<'_>) -> Result<(), Errno> {
        self.world.change(|machine| {
            let device = named(machine, request)?;
            if device.netkit.is_none() {
                return Err(Errno::EOPNOTSUPP);
            }
            let ends = [Some(device.index), device.peer];
            ends.into_iter()
                .flatten()
                .try_for_each(|end| machine.remove_device(end).map(drop).map_err(|_| Errno::ENODEV))
        })
    }
}

/// One end of a pair, as a request describes it.
struct End<'a> {
    primary: bool,
    policy: NetkitPolicy,
    /// `struct ifinfomsg`, or nothing.
    header: &'a [u8],
    attributes: Attributes<'a>,
}

impl End<'_> {
    fn device(&self, machine: &Machine) -> Result<Device, Errno> {
        self.device_beside(machine, "")
    }

    /// `other`: a name that is taken already.
    fn device_beside(&self, machine: &Machine, other: &str) -> Result<Device, Errno> {
        let name = match self.attributes.text(attribute::NAME) {
            Some(name) => std::str::from_utf8(name).map_err(|_| Errno::EINVAL)?.to_owned(),
            None => free_name(machine, other),
        };
        if name == other || machine.device_named(&name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let index = u32_at(self.header, 4).unwrap_or(0);
        if i32::try_from(index).is_err() {
            return Err(Errno::EINVAL);
        }
        if machine.find_device(index).is_some() {
            return Err(Errno::EEXIST);
        }
        let mut device = Device::new(name).index(index);
        device.netkit = Some(Netkit { primary: self.primary, policy: self.policy });
        device.up = u32_at(self.header, 8).is_some_and(|flags| flags & UP != 0);
        device.mtu = self.attributes.number(attribute::MTU).unwrap_or(device.mtu);
        Ok(device)
    }
}

/// The first name of Linux's pattern that is free.
fn free_name(machine: &Machine, other: &str) -> String {
    let mut names = (0u32..).map(|number| format!("nk{number}"));
    let free = names.find(|name| name != other && machine.device_named(name).is_err());
    free.unwrap_or_default()
}

fn policy(number: Option<u32>) -> Result<NetkitPolicy, Errno> {
    match number {
        None | Some(PASS) => Ok(NetkitPolicy::Pass),
        Some(DROP) => Ok(NetkitPolicy::Blackhole),
        Some(_) => Err(Errno::EINVAL),
    }
}
