//! Programs of devices that no link holds and no call of bpf(2) attaches: those that come by routing sockets.
//!
//! Who serves such sockets keeps what they say beside the program: modes, priorities, names. Here is what runs, in one
//! order with what links and `BPF_PROG_ATTACH` have attached.

use crate::engine::{Engine, Place};
use crate::errno::Errno;
use crate::object::Handle;
use crate::ordered::Entry;
use crate::system::System;
use alloc::vec::Vec;

/// The XDP program of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// Its identifier.
    pub id: u32,
    /// The flags of the request that attached it: the mode (`XDP_FLAGS_SKB_MODE` and others).
    pub mode: u32,
    /// Whether a link holds it.
    pub linked: bool,
}

impl<E: Engine> System<E> {
    /// The XDP program of a device.
    pub fn xdp(&self, device: u32) -> Option<XdpProgram> {
        let shared = self.shared();
        let places = shared.places.lock();
        places.single.iter().find_map(|(place, entry)| match place {
            Place::Xdp { device: of, mode } if *of == device => {
                Some(XdpProgram { id: entry.program.id(), mode: *mode, linked: entry.link.is_some() })
            }
            _ => None,
        })
    }

    /// Attaches an XDP program to a device in place of the one that it has, or ends that one.
    ///
    /// # Errors
    ///
    /// [`Errno::EBUSY`] if a link holds the device's program; [`Errno::EINVAL`] if the handle is no program; those of
    /// the engine.
    pub fn set_xdp(&self, device: u32, mode: u32, program: Option<&Handle<E>>) -> Result<(), Errno> {
        let program = program.cloned().map(Handle::program).transpose()?;
        let shared = self.shared();
        let mut places = shared.places.lock();
        let here = |place: &Place| matches!(place, Place::Xdp { device: of, .. } if *of == device);
        let at = places.single.iter().position(|(place, _)| here(place));
        if at.is_some_and(|at| places.single[at].1.link.is_some()) {
            return Err(Errno::EBUSY);
        }
        let place = Place::Xdp { device, mode };
        let run: Vec<_> = program.iter().map(|program| program.program()).collect();
        self.engine().place(&place, &run)?;
        let ended = at.map(|at| places.single.remove(at));
        if let Some(program) = program {
            places.single.push((place, Entry { program, link: None }));
        }
        drop(places);
        // After the lock: it may be the program's last user.
        drop(ended);
        Ok(())
    }

    /// Sets the filters of a direction of a device, which run after the programs of tcx. `attach_type`: that of tcx for
    /// the direction.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] if a handle is no program; those of the engine. Then nothing has changed.
    pub fn set_filters(&self, device: u32, attach_type: u32, filters: &[&Handle<E>]) -> Result<(), Errno> {
        let filters: Vec<_> =
            filters.iter().map(|filter| Handle::clone(filter).program()).collect::<Result<_, _>>()?;
        let shared = self.shared();
        let mut places = shared.places.lock();
        let key = (device, attach_type);
        let first = places.devices.get(&key).map_or(&[][..], |list| &list.entries);
        shared.device_runs(key, first, &filters)?;
        let ended = if filters.is_empty() {
            places.filters.remove(&key)
        } else {
            places.filters.insert(key, filters)
        };
        drop(places);
        drop(ended);
        Ok(())
    }
}
