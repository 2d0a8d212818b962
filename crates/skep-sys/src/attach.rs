//! Programs at their places: `BPF_PROG_ATTACH`, `BPF_PROG_DETACH`, and what links share with them.
//!
//! This library keeps which programs are at which place, in which order, and who holds them there. An engine is told
//! the whole list of a place after each change of it.

use crate::attr::{Attr, ProgAttach};
use crate::caller::{Caller, ControlGroup};
use crate::engine::{Engine, Netkit, Place};
use crate::errno::Errno;
use crate::groups::{self, Groups};
use crate::maps::MapObject;
use crate::object::Object;
use crate::ordered::{self, Entry, Ordered, Relative, Where};
use crate::place::{Kind, Use, attach_type, expects, use_of};
use crate::programs::ProgramObject;
use crate::system::{Shared, System};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The flags of control groups.
const GROUP_FLAGS: u32 = groups::F_OVERRIDE | groups::F_MULTI | groups::F_REPLACE | groups::F_PREORDER;
/// The most links that look up sockets of a network namespace.
const MOST_LOOKUPS: usize = 64;
/// The kinds of maps of sockets.
const SOCKMAP: u32 = 15;
const SOCKHASH: u32 = 18;

/// All places that have programs.
pub(crate) struct Places<E: Engine> {
    pub(crate) groups: Groups<E>,
    /// By device and type of attachment.
    pub(crate) devices: BTreeMap<(u32, u32), Ordered<E>>,
    /// The filters of traffic control behind them.
    pub(crate) filters: BTreeMap<(u32, u32), Vec<Arc<ProgramObject<E>>>>,
    /// By namespace and type of attachment.
    pub(crate) networks: BTreeMap<(u64, u32), Vec<Entry<E>>>,
    /// By map and type of attachment.
    pub(crate) sockets: BTreeMap<(u32, u32), Entry<E>>,
    /// Places for one program: XDP of a device, a priority of the packet filter.
    pub(crate) single: Vec<(Place, Entry<E>)>,
}

impl<E: Engine> Places<E> {
    pub(crate) const fn new() -> Self {
        Self {
            groups: Groups::new(),
            devices: BTreeMap::new(),
            filters: BTreeMap::new(),
            networks: BTreeMap::new(),
            sockets: BTreeMap::new(),
            single: Vec::new(),
        }
    }
}

fn programs<E: Engine>(entries: &[Entry<E>]) -> Vec<&E::Program> {
    entries.iter().map(|entry| entry.program.program()).collect()
}

impl<E: Engine> Shared<E> {
    /// Tells the engine what runs for a group, and for those in it that have programs.
    pub(crate) fn group_changed(&self, places: &Places<E>, group: &ControlGroup, attach_type: u32) {
        for concerned in places.groups.concerned(group, attach_type) {
            let has_own = !places.groups.own(&concerned, attach_type).0.is_empty();
            // A group without programs has those of the group around it, which the engine knows.
            let run = if has_own { places.groups.effective(&concerned, attach_type) } else { Vec::new() };
            let place = Place::ControlGroup { id: concerned.id(), attach_type };
            // Programs of groups run in any number, so an engine has no reason to refuse.
            let _kept = self.engine.place(&place, &programs(&run));
        }
    }

    /// Changes the programs of a device, if the engine takes the new ones.
    pub(crate) fn device_change<T>(
        &self,
        places: &mut Places<E>,
        (index, attach_type): (u32, u32),
        change: impl FnOnce(&mut Ordered<E>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let key = (index, attach_type);
        let mut list = places.devices.get(&key).cloned().unwrap_or_default();
        let result = change(&mut list)?;
        let filters = places.filters.get(&key).map_or(&[][..], |filters| filters);
        self.device_runs(key, &list.entries, filters)?;
        if list.entries.is_empty() {
            places.devices.remove(&key);
        } else {
            places.devices.insert(key, list);
        }
        Ok(result)
    }

    /// Tells the engine what runs at a device: the programs of tcx, then filters.
    pub(crate) fn device_runs(
        &self,
        (index, attach_type): (u32, u32),
        entries: &[Entry<E>],
        filters: &[Arc<ProgramObject<E>>],
    ) -> Result<(), Errno> {
        let mut run = programs(entries);
        run.extend(filters.iter().map(|filter| filter.program()));
        self.engine.place(&Place::Device { index, attach_type }, &run)
    }

    /// Changes the programs of a network namespace.
    pub(crate) fn network_change<T>(
        &self,
        places: &mut Places<E>,
        (id, attach_type): (u64, u32),
        change: impl FnOnce(&mut Vec<Entry<E>>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let key = (id, attach_type);
        let mut list = places.networks.get(&key).cloned().unwrap_or_default();
        let result = change(&mut list)?;
        self.engine.place(&Place::Network { id, attach_type }, &programs(&list))?;
        if list.is_empty() {
            places.networks.remove(&key);
        } else {
            places.networks.insert(key, list);
        }
        Ok(result)
    }

    /// The programs of a map of sockets end with its last user.
    pub(crate) fn end_sockets(&self, map: u32) {
        let mut places = self.places.lock();
        let keys: Vec<_> = places.sockets.range((map, 0)..=(map, u32::MAX)).map(|(key, _)| *key).collect();
        let ended: Vec<_> = keys.iter().filter_map(|key| places.sockets.remove(key)).collect();
        for (map, attach_type) in keys {
            let _ended = self.engine.place(&Place::Sockets { map, attach_type }, &[]);
        }
        drop(places);
        drop(ended);
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn prog_attach(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let attach: ProgAttach = attr.get()?;
        let place = use_of(attach.attach_type).ok_or(Errno::EINVAL)?;
        let known = match place.kind {
            Kind::Device => ordered::F_WHERE | ordered::F_REPLACE,
            _ if attach.relative != 0 || attach.expected_revision != 0 => return Err(Errno::EINVAL),
            _ => GROUP_FLAGS,
        };
        if attach.flags & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let program = caller.handle(attach.prog_fd)?.program()?;
        let fits = program.program_type() == place.program_type;
        if !fits || !expects(self.engine(), &program, attach.attach_type) {
            return Err(Errno::EINVAL);
        }
        match place.kind {
            Kind::Group => self.group_attach(caller, &attach, program)?,
            Kind::Network => self.dissector_attach(caller, &attach, program)?,
            Kind::Sockets => self.sockets_attach(caller, &attach, program)?,
            Kind::Device => self.device_attach(caller, &attach, program)?,
            // Only by links.
            Kind::Xdp | Kind::Netfilter | Kind::Iterator => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    pub(crate) fn prog_detach(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let detach: ProgAttach = attr.get()?;
        let place = use_of(detach.attach_type).ok_or(Errno::EINVAL)?;
        match place.kind {
            Kind::Device if detach.flags & !ordered::F_WHERE != 0 => return Err(Errno::EINVAL),
            Kind::Device => {}
            _ if detach.flags != 0 || detach.relative != 0 || detach.expected_revision != 0 => {
                return Err(Errno::EINVAL);
            }
            _ => {}
        }
        match place.kind {
            Kind::Group => self.group_detach(caller, &detach, place)?,
            Kind::Network => self.dissector_detach(caller, &detach)?,
            Kind::Sockets => self.sockets_detach(caller, &detach, place)?,
            Kind::Device => self.device_detach(caller, &detach, place)?,
            Kind::Xdp | Kind::Netfilter | Kind::Iterator => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    fn group_attach(
        &self,
        caller: &mut impl Caller<E>,
        attach: &ProgAttach,
        program: Arc<ProgramObject<E>>,
    ) -> Result<(), Errno> {
        let group = caller.control_group(attach.target)?;
        let replaces = attach.flags & groups::F_REPLACE != 0 && attach.flags & groups::F_MULTI != 0;
        let replaced = if replaces { Some(caller.handle(attach.replace_fd)?.program()?) } else { None };
        let entry = Entry { program, link: None };
        self.group_add(&group, attach.attach_type, entry, attach.flags, replaced.as_ref())
    }

    /// Attaches a program to a group.
    pub(crate) fn group_add(
        &self,
        group: &ControlGroup,
        attach_type: u32,
        entry: Entry<E>,
        flags: u32,
        replaced: Option<&Arc<ProgramObject<E>>>,
    ) -> Result<(), Errno> {
        let shared = self.shared();
        let mut places = shared.places.lock();
        places.groups.attach(group, attach_type, entry, flags, replaced)?;
        shared.group_changed(&places, group, attach_type);
        Ok(())
    }

    fn group_detach(
        &self,
        caller: &mut impl Caller<E>,
        detach: &ProgAttach,
        place: Use,
    ) -> Result<(), Errno> {
        let group = caller.control_group(detach.target)?;
        // Where there can be only one program, it need not be named.
        let program = caller.handle(detach.prog_fd).and_then(|handle| handle.program()).ok();
        let program = program.filter(|program| program.program_type() == place.program_type);
        let shared = self.shared();
        let mut places = shared.places.lock();
        let ended = places.groups.detach(&group, detach.attach_type, program.as_ref())?;
        shared.group_changed(&places, &group, detach.attach_type);
        drop(places);
        drop(ended);
        Ok(())
    }

    fn dissector_attach(
        &self,
        caller: &mut impl Caller<E>,
        attach: &ProgAttach,
        program: Arc<ProgramObject<E>>,
    ) -> Result<(), Errno> {
        // Look-ups of sockets are attached by links. The namespace is the caller's own.
        let plain = attach.flags == 0 && attach.target == 0 && attach.replace_fd == 0;
        if attach.attach_type != attach_type::FLOW_DISSECTOR || !plain {
            return Err(Errno::EINVAL);
        }
        let network = caller.network(None)?;
        let shared = self.shared();
        shared.network_change(&mut shared.places.lock(), (network, attach.attach_type), |list| {
            match list.first() {
                Some(entry) if entry.link.is_some() => return Err(Errno::EEXIST),
                Some(entry) if Arc::ptr_eq(&entry.program, &program) => return Err(Errno::EINVAL),
                _ => {}
            }
            *list = alloc::vec![Entry { program, link: None }];
            Ok(())
        })
    }

    fn dissector_detach(&self, caller: &mut impl Caller<E>, detach: &ProgAttach) -> Result<(), Errno> {
        if detach.attach_type != attach_type::FLOW_DISSECTOR || detach.target != 0 {
            return Err(Errno::EINVAL);
        }
        let program = caller.handle(detach.prog_fd)?.program()?;
        let network = caller.network(None)?;
        let shared = self.shared();
        shared.network_change(&mut shared.places.lock(), (network, detach.attach_type), |list| {
            match list.first() {
                None => Err(Errno::ENOENT),
                Some(entry) if entry.link.is_some() => Err(Errno::EINVAL),
                Some(entry) if !Arc::ptr_eq(&entry.program, &program) => Err(Errno::ENOENT),
                Some(_) => {
                    list.clear();
                    Ok(())
                }
            }
        })
    }

    /// Adds a link's program to a network namespace.
    pub(crate) fn network_add(&self, network: u64, attach_type: u32, entry: Entry<E>) -> Result<(), Errno> {
        let shared = self.shared();
        shared.network_change(&mut shared.places.lock(), (network, attach_type), |list| {
            let most = if attach_type == attach_type::FLOW_DISSECTOR { 1 } else { MOST_LOOKUPS };
            if list.iter().any(|entry| entry.link.is_none()) {
                return Err(Errno::EEXIST);
            }
            if list.len() >= most {
                return Err(Errno::E2BIG);
            }
            list.push(entry);
            Ok(())
        })
    }

    fn sockets_attach(
        &self,
        caller: &mut impl Caller<E>,
        attach: &ProgAttach,
        program: Arc<ProgramObject<E>>,
    ) -> Result<(), Errno> {
        if attach.flags != 0 || attach.replace_fd != 0 {
            return Err(Errno::EINVAL);
        }
        let map = sockets_map(caller, attach.target)?;
        self.sockets_add(&map, attach.attach_type, Entry { program, link: None })
    }

    /// Puts a program into its place of a map of sockets; it takes the place of one that no link holds.
    pub(crate) fn sockets_add(
        &self,
        map: &MapObject<E>,
        attach_type: u32,
        entry: Entry<E>,
    ) -> Result<(), Errno> {
        let shared = self.shared();
        let mut places = shared.places.lock();
        check_verdicts(&places, map.id(), attach_type)?;
        let key = (map.id(), attach_type);
        if places.sockets.get(&key).is_some_and(|old| old.link.is_some()) {
            return Err(Errno::EBUSY);
        }
        let place = Place::Sockets { map: map.id(), attach_type };
        self.engine().place(&place, &[entry.program.program()])?;
        let old = places.sockets.insert(key, entry);
        drop(places);
        drop(old);
        Ok(())
    }

    fn sockets_detach(
        &self,
        caller: &mut impl Caller<E>,
        detach: &ProgAttach,
        place: Use,
    ) -> Result<(), Errno> {
        if detach.replace_fd != 0 {
            return Err(Errno::EINVAL);
        }
        let map = sockets_map(caller, detach.target)?;
        let program = caller.handle(detach.prog_fd)?.program()?;
        if program.program_type() != place.program_type {
            return Err(Errno::EINVAL);
        }
        let shared = self.shared();
        let mut places = shared.places.lock();
        check_verdicts(&places, map.id(), detach.attach_type)?;
        let key = (map.id(), detach.attach_type);
        match places.sockets.get(&key) {
            Some(entry) if !Arc::ptr_eq(&entry.program, &program) => return Err(Errno::ENOENT),
            None => return Err(Errno::ENOENT),
            Some(entry) if entry.link.is_some() => return Err(Errno::EBUSY),
            Some(_) => {}
        }
        self.engine().place(&Place::Sockets { map: key.0, attach_type: key.1 }, &[])?;
        let ended = places.sockets.remove(&key);
        drop(places);
        drop(ended);
        Ok(())
    }

    fn device_attach(
        &self,
        caller: &mut impl Caller<E>,
        attach: &ProgAttach,
        program: Arc<ProgramObject<E>>,
    ) -> Result<(), Errno> {
        let index = self.device(attach.target, attach.attach_type)?;
        let replaces = attach.flags & ordered::F_REPLACE != 0;
        let replaced = if replaces {
            let old = caller.handle(attach.replace_fd)?.program()?;
            Some(Some(old).filter(|old| old.program_type() == program.program_type()).ok_or(Errno::EINVAL)?)
        } else {
            None
        };
        let flags = attach.flags;
        let to = self.place_by(caller, flags, attach.relative, attach.expected_revision, &program)?;
        let shared = self.shared();
        shared.device_change(&mut shared.places.lock(), (index, attach.attach_type), |list| {
            list.attach(Entry { program, link: None }, &to, replaced.as_ref())
        })
    }

    fn device_detach(
        &self,
        caller: &mut impl Caller<E>,
        detach: &ProgAttach,
        place: Use,
    ) -> Result<(), Errno> {
        let program = match detach.prog_fd {
            0 => None,
            descriptor => {
                let program = caller.handle(descriptor)?.program()?;
                if program.program_type() != place.program_type {
                    return Err(Errno::EINVAL);
                }
                Some(program)
            }
        };
        let index = self.device(detach.target, detach.attach_type)?;
        let to = self.where_to(caller, detach.flags, detach.relative, detach.expected_revision, place)?;
        let shared = self.shared();
        let ended = shared.device_change(&mut shared.places.lock(), (index, detach.attach_type), |list| {
            list.detach(program.as_ref(), &to)
        })?;
        drop(ended);
        Ok(())
    }

    /// The device of that index, if it has places of that type.
    pub(crate) fn device(&self, index: i32, attach_type: u32) -> Result<u32, Errno> {
        let index = index as u32;
        if !self.engine().has_device(index) {
            return Err(Errno::ENODEV);
        }
        match (attach_type, self.engine().netkit(index)) {
            (attach_type::NETKIT_PRIMARY | attach_type::NETKIT_PEER, Netkit::No) => Err(Errno::ENXIO),
            (attach_type::NETKIT_PRIMARY | attach_type::NETKIT_PEER, Netkit::Peer) => Err(Errno::EACCES),
            _ => Ok(index),
        }
    }

    fn place_by(
        &self,
        caller: &mut impl Caller<E>,
        flags: u32,
        relative: u32,
        revision: u64,
        program: &ProgramObject<E>,
    ) -> Result<Where<E>, Errno> {
        let place = Use { kind: Kind::Device, program_type: program.program_type() };
        self.where_to(caller, flags, relative, revision, place)
    }

    /// Where the flags of a request say: before or after a program or a link, by descriptor or identifier.
    pub(crate) fn where_to(
        &self,
        caller: &mut impl Caller<E>,
        flags: u32,
        relative: u32,
        revision: u64,
        place: Use,
    ) -> Result<Where<E>, Errno> {
        let by_id = flags & ordered::F_ID != 0;
        let relative = if flags & ordered::F_LINK != 0 {
            let link = if by_id {
                self.with(|all| all.links.get(relative)).ok_or(Errno::ENOENT)?
            } else {
                caller.handle(relative as i32)?.link()?
            };
            Some(Relative { program: link.program(), link: Some(link.id()) })
        } else if by_id || relative != 0 {
            let program = if by_id {
                self.with(|all| all.programs.get(relative)).ok_or(Errno::ENOENT)?
            } else {
                caller.handle(relative as i32)?.program()?
            };
            Some(Relative { program, link: None })
        } else {
            None
        };
        if relative.as_ref().is_some_and(|other| other.program.program_type() != place.program_type) {
            return Err(Errno::EINVAL);
        }
        Ok(Where { flags, relative, revision })
    }

    /// The control groups that have programs. What a front finds gone it [ends](System::end_control_group).
    pub fn control_groups(&self) -> Vec<u64> {
        self.shared().places.lock().groups.ids()
    }

    /// Ends the attachments of a control group that is gone.
    pub fn end_control_group(&self, id: u64) {
        let shared = self.shared();
        let mut places = shared.places.lock();
        let ended = places.groups.forget(id);
        let mut links = Vec::new();
        for (attach_type, group, entries) in &ended {
            shared.group_changed(&places, group, *attach_type);
            let ids = entries.iter().filter_map(|entry| entry.link);
            links.extend(ids.filter_map(|id| self.with(|all| all.links.get(id))));
        }
        links.iter().for_each(|link| link.ended());
        // A link's end takes the lock.
        drop(places);
        drop(links);
        drop(ended);
    }
}

/// A map of sockets, by a descriptor.
pub(crate) fn sockets_map<E: Engine>(
    caller: &mut impl Caller<E>,
    descriptor: i32,
) -> Result<Arc<MapObject<E>>, Errno> {
    let handle = caller.handle(descriptor)?;
    let Object::Map(map) = handle.object() else { return Err(Errno::EINVAL) };
    if matches!(map.kind(), SOCKMAP | SOCKHASH) { Ok(Arc::clone(map)) } else { Err(Errno::EOPNOTSUPP) }
}

/// A map has a verdict for streams or one for all sockets, not both.
pub(crate) fn check_verdicts<E: Engine>(places: &Places<E>, map: u32, attach_type: u32) -> Result<(), Errno> {
    let other = match attach_type {
        attach_type::VERDICT => attach_type::ANY_VERDICT,
        attach_type::ANY_VERDICT => attach_type::VERDICT,
        _ => return Ok(()),
    };
    if places.sockets.contains_key(&(map, other)) { Err(Errno::EBUSY) } else { Ok(()) }
}
