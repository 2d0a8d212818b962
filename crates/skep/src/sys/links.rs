//! Attachments that a world has places for.

use super::errno;
use crate::hook::Link;
use crate::program::Program;
use crate::world::{Place, World};
use skep_sys::{Attachment, Errno};

/// An attachment to a device of the world.
#[derive(Debug)]
pub struct SysLink {
    link: Link,
}

/// `BPF_XDP`, `BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`.
const XDP: u32 = 37;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;
/// The modes of XDP that a request may ask for: generic, driver, and not hardware.
const XDP_MODES: u32 = 0b110;

impl SysLink {
    pub(super) fn attach(world: Option<&World>, program: &Program, to: &Attachment) -> Result<Self, Errno> {
        let Attachment::Device { index, attach_type, flags } = to else {
            // Not provided yet, as on a kernel that is older than the kind of link.
            return Err(Errno::EINVAL);
        };
        let place = match *attach_type {
            XDP => Place::Xdp,
            TCX_INGRESS => Place::Ingress,
            TCX_EGRESS => Place::Egress,
            _ => return Err(Errno::EINVAL),
        };
        let world = world.ok_or(Errno::ENODEV)?;
        if place == Place::Xdp {
            if flags & !XDP_MODES != 0 {
                return Err(Errno::EINVAL);
            }
            // A device has one XDP program.
            if !world.attached(*index, place).map_err(|_| Errno::EINVAL)?.is_empty() {
                return Err(Errno::EBUSY);
            }
        }
        let link = world.attach(program, *index, place).map_err(|error| errno(&error))?;
        Ok(Self { link })
    }

    pub(super) fn replace(&self, program: &Program) -> Result<(), Errno> {
        self.link.replace(program).map(drop).map_err(|error| errno(&error))
    }
}
