//! Links: attachments of programs as objects.

use crate::attach::sockets_map;
use crate::attr::{Attr, LinkCreate, LinkDetach, LinkUpdate, RawTracepoint, double};
use crate::caller::{Caller, ControlGroup};
use crate::engine::{Engine, Netkit, Place};
use crate::errno::Errno;
use crate::functions::is_of_functions;
use crate::groups;
use crate::iterators::replaces;
use crate::object::{Handle, Object};
use crate::ordered::Entry;
use crate::place::{Kind, attach_type, expects, use_of};
use crate::probes::is_of_probes;
use crate::programs::{ProgramObject, read_text};
use crate::system::{Shared, System};
use alloc::string::String;
use alloc::sync::Arc;
use lock_api::Mutex;

/// Numbers of types of programs that raw tracepoints run.
const RAW_TRACEPOINT_TYPES: [u32; 2] = [17, 24];
/// `BPF_F_REPLACE`.
const F_REPLACE: u32 = 1 << 2;
/// The most bytes of the name of a tracepoint.
const TRACEPOINT: usize = 127;
/// Modes of XDP that a request may name: generic, driver, hardware.
const XDP_MODES: u32 = 0b1110;
/// Hardware, which no device here has.
const XDP_HARDWARE: u32 = 0b1000;
/// `BPF_F_NETFILTER_IP_DEFRAG`.
const F_DEFRAGMENT: u32 = 1;
/// Families of protocols that the packet filter has: `NFPROTO_IPV4`, `NFPROTO_IPV6`.
const FAMILIES: [u32; 2] = [2, 10];
/// Hooks of the packet filter: below this.
const HOOKS_END: u32 = 5;
/// The priority at which packets are defragmented.
const DEFRAGMENTATION: i32 = -400;

/// An attachment of a program. It ends when nobody holds it.
pub struct LinkObject<E: Engine> {
    id: u32,
    place: Place,
    /// The group with those around it, for places of groups.
    group: Option<ControlGroup>,
    /// The map whose elements an iterator shows.
    shown: Option<Handle<E>>,
    shared: Arc<Shared<E>>,
    state: Mutex<E::Lock, State<E>>,
    /// What attaches it, where that is not the place.
    _held: Held<E>,
}

/// What attaches a link's program as long as the link lives.
pub(crate) enum Held<E: Engine> {
    /// Its place does.
    Nothing,
    /// It is at a function of the other program.
    Function { _attachment: E::Attachment, _of: Arc<ProgramObject<E>> },
    /// It is at probes.
    Probing(#[allow(dead_code, reason = "dropping it detaches the program")] E::Probing),
}

struct State<E: Engine> {
    /// Until it was detached.
    attached: bool,
    program: Arc<ProgramObject<E>>,
}

impl<E: Engine> LinkObject<E> {
    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The program.
    pub fn program(&self) -> Arc<ProgramObject<E>> {
        Arc::clone(&self.state.lock().program)
    }

    /// The map whose elements it shows.
    pub(crate) fn shown(&self) -> Option<&Handle<E>> {
        self.shown.as_ref()
    }

    pub(crate) fn program_id(&self) -> u32 {
        self.state.lock().program.id()
    }

    /// Whether it is attached still, to something that is there.
    pub(crate) fn is_attached(&self) -> bool {
        let there = match &self.place {
            Place::Xdp { device: index, .. } | Place::Device { index, .. } => {
                self.shared.engine.has_device(*index)
            }
            _ => true,
        };
        there && self.state.lock().attached
    }

    /// The end of a device's pair whose packets its program sees, which Linux names as the link's device.
    pub(crate) fn end(&self, index: u32, attach_type: u32) -> u32 {
        match self.shared.engine.netkit(index) {
            Netkit::Primary { peer } if attach_type == attach_type::NETKIT_PEER => peer,
            _ => index,
        }
    }

    /// Its number in Linux's `enum bpf_link_type`.
    pub fn kind(&self) -> u32 {
        match &self.place {
            Place::RawTracepoint(_) => 1,
            Place::Function { .. } => 2,
            Place::ControlGroup { .. } => 3,
            Place::Iterator { .. } => 4,
            Place::Network { .. } => 5,
            Place::Xdp { .. } => 6,
            Place::PerfEvent { .. } => 7,
            Place::Functions { .. } => 8,
            Place::Binary { .. } => 12,
            Place::Netfilter { .. } => 10,
            Place::Device { attach_type: attach_type::NETKIT_PRIMARY | attach_type::NETKIT_PEER, .. } => 13,
            Place::Device { .. } => 11,
            Place::Sockets { .. } => 14,
        }
    }

    /// It has ended with what it was attached to.
    pub(crate) fn ended(&self) {
        self.state.lock().attached = false;
    }

    /// Detaches it, if it is attached.
    fn detach(&self) {
        let mut places = self.shared.places.lock();
        if !core::mem::take(&mut self.state.lock().attached) {
            return;
        }
        let id = self.id;
        let mut dropped = None;
        match &self.place {
            // It ends with the link.
            Place::Function { .. }
            | Place::PerfEvent { .. }
            | Place::Functions { .. }
            | Place::Binary { .. } => {}
            Place::ControlGroup { attach_type, .. } => {
                if let Some(group) = &self.group {
                    places.groups.end(group, *attach_type, id);
                    self.shared.group_changed(&places, group, *attach_type);
                }
            }
            Place::Device { index, attach_type } => {
                // Without a device there is no place, and fewer programs fit everywhere.
                let _ended = self.shared.device_change(&mut places, (*index, *attach_type), |list| {
                    list.end(id);
                    Ok(())
                });
            }
            Place::Network { id: network, attach_type } => {
                let _ended = self.shared.network_change(&mut places, (*network, *attach_type), |list| {
                    list.retain(|entry| entry.link != Some(id));
                    Ok(())
                });
            }
            Place::Iterator { .. } => {}
            Place::Sockets { map, attach_type } => {
                let _ended = self.shared.engine.place(&self.place, &[]);
                dropped = places.sockets.remove(&(*map, *attach_type));
            }
            Place::Xdp { .. } | Place::Netfilter { .. } | Place::RawTracepoint(_) => {
                let of_others = |(_, entry): &(Place, Entry<E>)| entry.link != Some(id);
                places.single.retain(of_others);
                let rest = places.single.iter().filter(|(place, _)| *place == self.place);
                let rest: alloc::vec::Vec<_> = rest.map(|(_, entry)| entry.program.program()).collect();
                let _ended = self.shared.engine.place(&self.place, &rest);
            }
        }
        drop(places);
        drop(dropped);
    }
}

impl<E: Engine> Drop for LinkObject<E> {
    fn drop(&mut self) {
        self.detach();
    }
}

impl<E: Engine> System<E> {
    pub(crate) fn link_create(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let create: LinkCreate = attr.get()?;
        let program = caller.handle(create.prog_fd)?.program()?;
        let attach_type = create.attach_type;
        if is_of_functions(program.program_type(), program.expected_attach_type()) {
            // Of extensions it is 0.
            if attach_type != program.expected_attach_type() || create.flags != 0 {
                return Err(Errno::EINVAL);
            }
            return self.function_attach(caller, program, create.target, create.more[0]);
        }
        if is_of_probes(program.program_type()) && self.engine().has_probes() {
            return self.probe_link(caller, &create, program);
        }
        let place = use_of(attach_type).ok_or(Errno::EINVAL)?;
        let fits = program.program_type() == place.program_type;
        if !fits || !expects(self.engine(), &program, attach_type) {
            return Err(Errno::EINVAL);
        }
        let id = self.with(|registry| registry.links.reserve());
        let entry = Entry { program: Arc::clone(&program), link: Some(id) };
        let (mut group, mut shown) = (None, None);
        let place = match place.kind {
            Kind::Group => {
                if create.flags != 0 {
                    return Err(Errno::EINVAL);
                }
                let found = caller.control_group(create.target)?;
                self.group_add(&found, attach_type, entry, groups::F_MULTI, None)?;
                Place::ControlGroup { id: group.insert(found).id(), attach_type }
            }
            Kind::Network => {
                if create.flags != 0 {
                    return Err(Errno::EINVAL);
                }
                let network = caller.network(Some(create.target))?;
                self.network_add(network, attach_type, entry)?;
                Place::Network { id: network, attach_type }
            }
            Kind::Sockets => {
                if create.flags != 0 {
                    return Err(Errno::EINVAL);
                }
                let map = sockets_map(caller, create.target)?;
                self.sockets_add(&map, attach_type, entry)?;
                Place::Sockets { map: map.id(), attach_type }
            }
            Kind::Device => self.device_link(caller, &create, entry)?,
            Kind::Xdp => self.xdp_link(&create, entry)?,
            Kind::Netfilter => self.netfilter_link(caller, &create, entry)?,
            Kind::Iterator => {
                let (place, map) = self.iterator_link(caller, &create, &program)?;
                shown = map;
                place
            }
        };
        self.link(caller, id, program, place, (group, shown, Held::Nothing))
    }

    fn device_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        entry: Entry<E>,
    ) -> Result<Place, Errno> {
        use crate::ordered::{F_REPLACE, F_WHERE};
        let attach_type = create.attach_type;
        let index = self.device(create.target, attach_type)?;
        let [relative, ..] = create.more;
        let revision = double(&create.more, 2);
        let place = use_of(attach_type).ok_or(Errno::EINVAL)?;
        let to = self.where_to(caller, create.flags, relative, revision, place)?;
        let shared = self.shared();
        shared.device_change(&mut shared.places.lock(), (index, attach_type), |list| {
            // Linux says first what the list is like.
            let known = create.flags & !(F_WHERE | F_REPLACE) == 0;
            let mut list_then = list.clone();
            list_then.attach(entry, &to, None)?;
            if !known {
                return Err(Errno::EINVAL);
            }
            *list = list_then;
            Ok(())
        })?;
        Ok(Place::Device { index, attach_type })
    }

    fn xdp_link(&self, create: &LinkCreate, entry: Entry<E>) -> Result<Place, Errno> {
        let device = create.target as u32;
        if !self.engine().has_device(device) || create.flags & !XDP_MODES != 0 {
            return Err(Errno::EINVAL);
        }
        if create.flags & XDP_HARDWARE != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode = create.flags;
        let taken = |place: &Place| matches!(place, Place::Xdp { device: other, .. } if *other == device);
        let elsewhere =
            matches!(entry.program.expected_attach_type(), attach_type::XDP_DEVMAP | attach_type::XDP_CPUMAP);
        self.single_link(Place::Xdp { device, mode }, entry, elsewhere, taken)
    }

    fn netfilter_link(
        &self,
        caller: &mut impl Caller<E>,
        create: &LinkCreate,
        entry: Entry<E>,
    ) -> Result<Place, Errno> {
        let [family, hook, priority, flags, ..] = create.more;
        let priority = priority as i32;
        if create.flags != 0 {
            return Err(Errno::EINVAL);
        }
        if !FAMILIES.contains(&family) {
            return Err(Errno::EAFNOSUPPORT);
        }
        if hook >= HOOKS_END {
            return Err(Errno::EPROTO);
        }
        if flags & !F_DEFRAGMENT != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if priority == i32::MIN || priority == i32::MAX {
            return Err(Errno::ERANGE);
        }
        if flags & F_DEFRAGMENT != 0 {
            // Nothing here puts fragments together, as in a kernel without the module that does.
            return Err(if priority <= DEFRAGMENTATION { Errno::ERANGE } else { Errno::ENOENT });
        }
        let place = Place::Netfilter { network: caller.network(None)?, family, hook, priority };
        let same = place.clone();
        self.single_link(place, entry, false, move |other| *other == same)
    }

    /// Takes a place for one program, unless it is taken, or the program runs elsewhere.
    fn single_link(
        &self,
        place: Place,
        entry: Entry<E>,
        elsewhere: bool,
        taken: impl Fn(&Place) -> bool,
    ) -> Result<Place, Errno> {
        let shared = self.shared();
        let mut places = shared.places.lock();
        if places.single.iter().any(|(other, _)| taken(other)) {
            return Err(Errno::EBUSY);
        }
        if elsewhere {
            return Err(Errno::EINVAL);
        }
        self.engine().place(&place, &[entry.program.program()])?;
        places.single.push((place.clone(), entry));
        Ok(place)
    }

    pub(crate) fn raw_tracepoint_open(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let open: RawTracepoint = attr.get_padded(core::mem::size_of::<RawTracepoint>())?;
        let program = caller.handle(open.prog_fd)?.program()?;
        if is_of_functions(program.program_type(), program.expected_attach_type()) {
            if open.name != 0 {
                return Err(Errno::EINVAL);
            }
            return self.function_attach(caller, program, 0, 0);
        }
        if !RAW_TRACEPOINT_TYPES.contains(&program.program_type()) {
            return Err(Errno::EINVAL);
        }
        let name = String::from_utf8(read_text(caller, open.name, TRACEPOINT)?).map_err(|_| Errno::ENOENT)?;
        if !self.engine().has_tracepoint(&name) {
            return Err(Errno::ENOENT);
        }
        let probing = match self.engine().has_probes() {
            true => self.engine().probe_raw(&name, &program, open.cookie)?,
            false => None,
        };
        let place = Place::RawTracepoint(name);
        if let Some(probing) = probing {
            return self.link_holding(caller, program, place, Held::Probing(probing));
        }
        let id = self.with(|registry| registry.links.reserve());
        let shared = self.shared();
        let mut places = shared.places.lock();
        places.single.push((place.clone(), Entry { program: Arc::clone(&program), link: Some(id) }));
        drop(places);
        self.link(caller, id, program, place, (None, None, Held::Nothing))
    }

    /// A link that is attached by what it holds.
    pub(crate) fn link_holding(
        &self,
        caller: &mut impl Caller<E>,
        program: Arc<ProgramObject<E>>,
        place: Place,
        held: Held<E>,
    ) -> Result<i64, Errno> {
        let id = self.with(|registry| registry.links.reserve());
        self.link(caller, id, program, place, (None, None, held))
    }

    fn link(
        &self,
        caller: &mut impl Caller<E>,
        id: u32,
        program: Arc<ProgramObject<E>>,
        place: Place,
        (group, shown, held): (Option<ControlGroup>, Option<Handle<E>>, Held<E>),
    ) -> Result<i64, Errno> {
        let state = Mutex::new(State { attached: true, program });
        let shared = self.shared();
        let object = Arc::new(LinkObject { id, place, group, shown, shared, state, _held: held });
        self.with(|registry| registry.links.insert(id, &object));
        caller.install(Handle::new(self.shared(), Object::Link(object))).map(i64::from)
    }

    pub(crate) fn link_update(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let update: LinkUpdate = attr.get()?;
        if update.flags & !F_REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let link = caller.handle(update.link_fd)?.link()?;
        let new = caller.handle(update.new_fd)?.program()?;
        let old = match (update.flags & F_REPLACE, update.old_fd) {
            (0, 0) => None,
            (0, _) => return Err(Errno::EINVAL),
            (_, descriptor) => Some(caller.handle(descriptor)?.program()?),
        };
        let before = link.update(new, old.as_ref())?;
        drop(before);
        Ok(0)
    }

    pub(crate) fn link_detach(&self, caller: &mut impl Caller<E>, attr: &Attr) -> Result<i64, Errno> {
        let detach: LinkDetach = attr.get()?;
        let link = caller.handle(detach.link_fd)?.link()?;
        match link.place {
            Place::RawTracepoint(_)
            | Place::Function { .. }
            | Place::PerfEvent { .. }
            | Place::Functions { .. }
            | Place::Binary { .. }
            | Place::Iterator { .. } => return Err(Errno::EOPNOTSUPP),
            _ => {}
        }
        link.detach();
        Ok(0)
    }
}

impl<E: Engine> LinkObject<E> {
    /// Changes its program, and returns the one before. `old`: the one that it must have.
    fn update(
        &self,
        new: Arc<ProgramObject<E>>,
        old: Option<&Arc<ProgramObject<E>>>,
    ) -> Result<Arc<ProgramObject<E>>, Errno> {
        match self.place {
            Place::RawTracepoint(_)
            | Place::Function { .. }
            | Place::PerfEvent { .. }
            | Place::Functions { .. }
            | Place::Binary { .. } => return Err(Errno::EINVAL),
            Place::Netfilter { .. } => return Err(Errno::EOPNOTSUPP),
            _ => {}
        }
        let mut places = self.shared.places.lock();
        let (attached, current) = {
            let state = self.state.lock();
            (state.attached, Arc::clone(&state.program))
        };
        if !attached {
            return Err(Errno::ENOLINK);
        }
        if old.is_some_and(|old| !Arc::ptr_eq(old, &current)) {
            return Err(Errno::EPERM);
        }
        if new.program_type() != current.program_type() {
            return Err(Errno::EINVAL);
        }
        let engine = &self.shared.engine;
        match &self.place {
            Place::ControlGroup { attach_type, .. } => {
                if !expects(engine, &new, *attach_type) {
                    return Err(Errno::EINVAL);
                }
                if let Some(group) = &self.group {
                    places.groups.update(group, *attach_type, self.id, Arc::clone(&new));
                    self.shared.group_changed(&places, group, *attach_type);
                }
            }
            Place::Network { id, attach_type } => {
                self.shared.network_change(&mut places, (*id, *attach_type), |list| {
                    let mine = list.iter_mut().filter(|entry| entry.link == Some(self.id));
                    mine.for_each(|entry| entry.program = Arc::clone(&new));
                    Ok(())
                })?;
            }
            Place::Device { index, attach_type } => {
                if !Arc::ptr_eq(&new, &current) {
                    self.shared.device_change(&mut places, (*index, *attach_type), |list| {
                        list.update(self.id, Arc::clone(&new))
                    })?;
                }
            }
            Place::Sockets { map, attach_type } => {
                engine.place(&self.place, &[new.program()])?;
                if let Some(entry) = places.sockets.get_mut(&(*map, *attach_type)) {
                    entry.program = Arc::clone(&new);
                }
            }
            Place::Xdp { .. } => {
                if new.expected_attach_type() != current.expected_attach_type() {
                    return Err(Errno::EINVAL);
                }
                engine.place(&self.place, &[new.program()])?;
                let mine = places.single.iter_mut().filter(|(_, entry)| entry.link == Some(self.id));
                mine.for_each(|(_, entry)| entry.program = Arc::clone(&new));
            }
            Place::Iterator { .. } if replaces(&new, &current) => {}
            Place::RawTracepoint(_)
            | Place::Netfilter { .. }
            | Place::Function { .. }
            | Place::PerfEvent { .. }
            | Place::Functions { .. }
            | Place::Binary { .. }
            | Place::Iterator { .. } => {
                return Err(Errno::EINVAL);
            }
        }
        let before = core::mem::replace(&mut self.state.lock().program, new);
        drop(places);
        Ok(before)
    }
}
