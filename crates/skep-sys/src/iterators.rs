//! Iterators: links of programs that are shown objects, and what those programs write.
//!
//! ```text
//!   BPF_LINK_CREATE  program, map? --> link          BPF_ITER_CREATE  link --> descriptor with all that is written
//!                                       '--> pin, opened --> the same
//! ```
//!
//! Linux walks while the descriptor is read. Here the whole walk is made before there is a descriptor: so its errors
//! are those of the call, and what is read is what there was at the call.

use crate::attr::{Attr, IterCreate, LinkCreate, check_tail, double};
use crate::caller::Caller;
use crate::engine::{Engine, Place};
use crate::errno::Errno;
use crate::links::LinkObject;
use crate::maps::MapObject;
use crate::object::{Handle, Object};
use crate::programs::ProgramObject;
use crate::system::System;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The bytes of `union bpf_iter_link_info` that this library knows.
const INFO: usize = 16;
/// The most bytes of it.
const MOST_INFO: u32 = 4096;
/// The iterator over elements of a map that its link names.
const ELEMENTS: &str = "bpf_map_elem";

/// What an iterator shows its program.
pub enum Shown<'a, E: Engine> {
    /// The elements of a map.
    Elements(&'a MapObject<E>),
    /// Maps.
    Maps(&'a [Arc<MapObject<E>>]),
    /// Programs.
    Programs(&'a [Arc<ProgramObject<E>>]),
    /// Links.
    Links(&'a [Arc<LinkObject<E>>]),
    /// Objects of the engine's own: sockets.
    OfEngine,
}

impl<E: Engine> System<E> {
    /// The place of a link of an iterator, and the map that it holds.
    pub(crate) fn iterator_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        program: &ProgramObject<E>,
    ) -> Result<(Place, Option<Handle<E>>), Errno> {
        if create.target != 0 || create.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let [_, _, len, ..] = create.more;
        let address = double(&create.more, 0);
        if (address == 0) != (len == 0) {
            return Err(Errno::EINVAL);
        }
        let mut info = [0; INFO];
        if address != 0 {
            check_tail(caller, address, len, INFO as u32, MOST_INFO)?;
            caller.read(address, &mut info[..(len as usize).min(INFO)])?;
        }
        let target = self.engine().iterates(program.program()).ok_or(Errno::ENOENT)?;
        let map = match target {
            ELEMENTS => match i32::from_ne_bytes([info[0], info[1], info[2], info[3]]) {
                0 => return Err(Errno::EBADF),
                descriptor => Some(caller.handle(descriptor)?),
            },
            _ => None,
        };
        let mut id = 0;
        if let Some(handle) = &map {
            let Object::Map(map) = handle.object() else { return Err(Errno::EINVAL) };
            self.engine().may_show(program.program(), &Shown::Elements(map))?;
            id = map.id();
        }
        Ok((Place::Iterator { target: target.to_string(), map: id }, map))
    }

    pub(crate) fn iter_create(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let create: IterCreate = attr.get()?;
        if create.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let link = caller.handle(create.link_fd)?.link()?;
        self.settle_sockets(caller);
        let written = self.iterate(&link)?;
        caller.output(&written).map(i64::from)
    }

    /// All that the program of an iterator's link writes, as somebody reads it who opens a pin of the link.
    ///
    /// # Errors
    ///
    /// [`Errno::EINVAL`] for other links; [`Errno::E2BIG`] if the program writes too much, [`Errno::EAGAIN`] if it asks
    /// to be run again and again.
    pub fn iterate(&self, link: &LinkObject<E>) -> Result<Vec<u8>, Errno> {
        let Place::Iterator { target, .. } = link.place() else { return Err(Errno::EINVAL) };
        let program = link.program();
        let run = |shown: &Shown<'_, E>| self.engine().iterate(program.program(), shown);
        match &**target {
            "bpf_map" => run(&Shown::Maps(&self.with(|all| all.maps.all()))),
            "bpf_prog" => run(&Shown::Programs(&self.with(|all| all.programs.all()))),
            "bpf_link" => run(&Shown::Links(&self.with(|all| all.links.all()))),
            "tcp" | "udp" => run(&Shown::OfEngine),
            _ => match link.shown().map(Handle::object) {
                Some(Object::Map(map)) => run(&Shown::Elements(map)),
                _ => Err(Errno::EINVAL),
            },
        }
    }
}

/// Whether a program may take the place of another in an iterator's link.
pub(crate) fn replaces<E: Engine>(new: &ProgramObject<E>, old: &ProgramObject<E>) -> bool {
    new.expected_attach_type() == old.expected_attach_type() && new.attached_to() == old.attached_to()
}
