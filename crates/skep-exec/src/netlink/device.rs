//! Devices by ioctl(2) of any socket: what if_nametoindex(3) and its like ask.

use crate::listener::Answer;
use crate::process::Process;
use skep::world::Device;
use skep_sys::{Caller, Errno};

use super::Network;
use super::link::visible;

/// `SIOCGIF*`
const NAME: u32 = 0x8910;
const FLAGS: u32 = 0x8913;
const MTU: u32 = 0x8921;
const ADDRESS: u32 = 0x8927;
const INDEX: u32 = 0x8933;
/// The requests that are answered.
pub(crate) const REQUESTS: [u32; 5] = [NAME, FLAGS, MTU, ADDRESS, INDEX];
/// The size of `struct ifreq`, and of its first part, the name.
const SIZE: usize = 40;
const NAMED: usize = 16;

/// `IFF_*` of a device.
pub(super) fn flags(device: &Device) -> u32 {
    let (up, broadcast, loopback, running) = (1, 2, 8, 0x40);
    let (multicast, lower_up) = (0x1000, 0x1_0000);
    let state = if device.up { up | running | lower_up } else { 0 };
    state | if device.name == "lo" { loopback } else { broadcast | multicast }
}

/// Its Ethernet address; none of `lo`.
pub(super) fn hardware_address(device: &Device) -> [u8; 6] {
    if device.name == "lo" { [0; 6] } else { device.mac.0 }
}

impl Network {
    /// Answers for the devices of the world instead of the kernel.
    pub(crate) fn ioctl(&self, process: &mut Process<'_>, arguments: [u64; 6]) -> Answer {
        let [descriptor, request, address, ..] = arguments;
        if process.file(descriptor as i32).is_err() {
            return Answer::Error(Errno::EBADF);
        }
        self.about_device(process, request as u32, address).map_or_else(Answer::Error, |()| Answer::Value(0))
    }

    fn about_device(&self, process: &mut Process<'_>, request: u32, address: u64) -> Result<(), Errno> {
        let mut asked = [0; SIZE];
        process.read(address, &mut asked)?;
        let machine = self.world.machine();
        if request == NAME {
            let index = asked[NAMED..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
            let device = visible(&machine).find(|device| device.index == index).ok_or(Errno::ENODEV)?;
            let mut name = [0; NAMED];
            let len = device.name.len().min(NAMED - 1);
            name[..len].copy_from_slice(&device.name.as_bytes()[..len]);
            return process.write(address, &name);
        }
        let name = asked[..NAMED].split(|byte| *byte == 0).next().unwrap_or_default();
        let device = visible(&machine).find(|device| device.name.as_bytes() == name).ok_or(Errno::ENODEV)?;
        let mut value = [0; 16];
        match request {
            INDEX => value[..4].copy_from_slice(&device.index.to_ne_bytes()),
            MTU => value[..4].copy_from_slice(&device.mtu.to_ne_bytes()),
            FLAGS => value[..2].copy_from_slice(&(flags(device) as u16).to_ne_bytes()),
            ADDRESS => {
                value[..2].copy_from_slice(&(if device.name == "lo" { 772u16 } else { 1 }).to_ne_bytes());
                value[2..8].copy_from_slice(&hardware_address(device));
            }
            _ => return Err(Errno::EINVAL),
        }
        process.write(address.wrapping_add(NAMED as u64), &value)
    }
}
