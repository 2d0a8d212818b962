//! Programs on devices, and all programs as they are at one time.
//!
//! ```text
//!   Points     key --> hook, shared by all threads         changed by attachments
//!   Layout     device --> its hooks, namespace --> ...      made anew by an injector after a change, then only read
//! ```

use super::World;
use super::point::{Family, Group, Hooks, Key};
use super::trace::Place;
use crate::error::Error;
use crate::hook::{Hook, Link};
use crate::program::Program;
use skep_world::{Device, Machine};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

/// A device, by its index or by its name.
pub trait DeviceId: sealed::Sealed {
    /// The device's index.
    ///
    /// # Errors
    ///
    /// If the machine has no such device.
    fn index_in(&self, machine: &Machine) -> Result<u32, skep_world::Error>;
}

impl DeviceId for u32 {
    fn index_in(&self, machine: &Machine) -> Result<u32, skep_world::Error> {
        machine.device(*self).map(|device| device.index)
    }
}

impl DeviceId for str {
    fn index_in(&self, machine: &Machine) -> Result<u32, skep_world::Error> {
        machine.device_named(self).map(|device| device.index)
    }
}

impl<T: DeviceId + ?Sized> DeviceId for &T {
    fn index_in(&self, machine: &Machine) -> Result<u32, skep_world::Error> {
        (**self).index_in(machine)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for str {}
    impl<T: Sealed + ?Sized> Sealed for &T {}
}

/// All programs.
#[derive(Debug, Default)]
pub(super) struct Points {
    pub(super) hooks: RwLock<Arc<Hooks>>,
    /// Changed after each change of the machine or of the hooks. The Release increments pair with the Acquire loads of
    /// [`World::version`]: a thread that sees the number sees the change.
    version: AtomicU64,
}

/// The devices with their programs, as they were at one time.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) machine: Arc<Machine>,
    /// In the order of their indices.
    devices: Vec<At>,
    /// The places in `devices` of those with an index below [`DIRECT`], plus one; 0 for none.
    direct: Vec<u32>,
    /// The hooks of the packet filter in the order in which they run, and the look-ups, by namespace.
    stacks: HashMap<u32, Stack>,
    /// By cgroup: the programs of the cgroup itself, and a whole list.
    cgroups: HashMap<(u64, Place), Cgroup>,
    sockets: HashMap<u64, Hook>,
    groups: BTreeMap<Group, Hook>,
}

/// Devices with smaller indices are found by one load.
const DIRECT: u32 = 1024;

/// A device with its programs.
#[derive(Debug)]
pub(super) struct At {
    pub(super) device: Device,
    /// Whether its peer is in another network namespace.
    pub(super) leads_out: bool,
    /// Whether the packet filter of its namespace has programs.
    pub(super) filtered: bool,
    pub(super) xdp: Option<Hook>,
    pub(super) ingress: Option<Hook>,
    pub(super) egress: Option<Hook>,
    /// The programs of this end of a pair that only programs connect.
    pub(super) netkit: Option<Hook>,
}

/// The programs in the network stack of a namespace.
#[derive(Debug, Default)]
struct Stack {
    filters: BTreeMap<(Family, Place), Vec<Hook>>,
    lookup: Option<Hook>,
}

/// The programs of a cgroup.
#[derive(Debug, Default)]
struct Cgroup {
    own: Option<Hook>,
    effective: Option<Hook>,
}

impl Layout {
    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&At> {
        match self.direct.get(index as usize) {
            Some(place) => self.devices.get((*place as usize).wrapping_sub(1)),
            None => self.search(index),
        }
    }

    #[cold]
    fn search(&self, index: u32) -> Option<&At> {
        let place = self.devices.binary_search_by_key(&index, |at| at.device.index).ok()?;
        self.devices.get(place)
    }

    /// The programs of a hook of the packet filter.
    pub(super) fn filters(&self, namespace: u32, family: Family, hook: Place) -> &[Hook] {
        let stack = self.stacks.get(&namespace);
        stack.and_then(|stack| stack.filters.get(&(family, hook))).map_or(&[], |hooks| hooks)
    }

    /// The programs that look up sockets of a namespace.
    pub(super) fn lookup(&self, namespace: u32) -> Option<&Hook> {
        self.stacks.get(&namespace)?.lookup.as_ref()
    }

    /// The programs that run for a socket of a cgroup, with the numbers of the cgroups that have them.
    pub(super) fn of_cgroup(&self, cgroup: u64, hook: Place) -> Vec<(u64, &Hook)> {
        if self.cgroups.is_empty() {
            return Vec::new();
        }
        let found = |id: u64| Some((id, self.cgroups.get(&(id, hook))?));
        let path: Vec<_> = self.machine.cgroup_path(cgroup).filter_map(found).collect();
        let own = path.iter().filter_map(|(id, of)| Some((*id, of.own.as_ref()?)));
        // A list is whole: outer ones do not count.
        let effective = path.iter().find_map(|(id, of)| Some((*id, of.effective.as_ref()?)));
        own.chain(effective).collect()
    }

    /// The filter of a socket.
    pub(super) fn of_socket(&self, cookie: u64) -> Option<&Hook> {
        self.sockets.get(&cookie)
    }

    /// The programs that choose a socket of a group.
    pub(super) fn of_group(&self, group: &Group) -> Option<&Hook> {
        self.groups.get(group)
    }
}

impl World {
    /// Attaches a program to a device. Programs at one place run in the order of attachment. Dropping the link detaches
    /// it; [`Link::replace`] replaces it while packets pass. [`World::attach_at`] has the places that are not about a
    /// device.
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such device; [`Error::WrongAttachment`] if programs of that type do not run
    /// there: `xdp` at [`Place::Xdp`], `sched_cls` and `sched_act` at [`Place::Ingress`], [`Place::Egress`] and those
    /// of netkit; [`Error::OtherWorld`] if its runtime
    /// does not see this world; [`Error::ForeignProgram`] if the programs there are from another runtime.
    pub fn attach(&self, program: &Program, device: impl DeviceId, place: Place) -> Result<Link, Error> {
        let index = device.index_in(&self.machine())?;
        self.attach_to(program, Key::Device(index, place))
    }

    /// The programs at a place of a device, in the order in which they run.
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such device; [`Error::Slots`] as for [`Program::run`].
    pub fn attached(&self, device: impl DeviceId, place: Place) -> Result<Vec<Program>, Error> {
        let index = device.index_in(&self.machine())?;
        let hook = self.hooks().get(&Key::Device(index, place)).cloned();
        hook.map_or_else(|| Ok(Vec::new()), |hook| hook.programs())
    }

    /// The devices and all programs as they are now, and the number of that state.
    pub(super) fn layout(&self) -> (Arc<Layout>, u64) {
        // The number first: a change in between makes the next comparison fail.
        let version = self.version();
        let (machine, hooks) = (self.machine(), self.hooks());
        let mut layout = Layout {
            machine: Arc::clone(&machine),
            devices: Vec::new(),
            direct: Vec::new(),
            stacks: HashMap::new(),
            cgroups: HashMap::new(),
            sockets: HashMap::new(),
            groups: BTreeMap::new(),
        };
        // What nobody uses any more costs nothing.
        for (key, hook) in hooks.iter().filter(|(_, hook)| !hook.is_empty()) {
            let hook = hook.clone();
            match *key {
                Key::Device(..) => {}
                // The keys are in the order of the priorities.
                Key::Netfilter(namespace, family, at, _) => {
                    let filters = &mut layout.stacks.entry(namespace).or_default().filters;
                    filters.entry((family, at)).or_default().push(hook);
                }
                Key::Lookup(namespace) => {
                    layout.stacks.entry(namespace).or_default().lookup = Some(hook);
                }
                Key::Cgroup(id, at) => layout.cgroups.entry((id, at)).or_default().own = Some(hook),
                Key::Effective(id, at) => {
                    layout.cgroups.entry((id, at)).or_default().effective = Some(hook);
                }
                Key::Socket(cookie) => drop(layout.sockets.insert(cookie, hook)),
                Key::ReusePort(group) => drop(layout.groups.insert(group, hook)),
            }
        }
        let hook = |index, place| {
            let hook = hooks.get(&Key::Device(index, place)).filter(|hook| !hook.is_empty());
            hook.cloned()
        };
        let devices = machine.devices().map(|device| {
            let index = device.index;
            let peer = device.peer.and_then(|peer| machine.find_device(peer));
            let stack = layout.stacks.get(&device.namespace);
            At {
                device: device.clone(),
                leads_out: peer.is_none_or(|peer| peer.namespace != device.namespace),
                filtered: stack.is_some_and(|stack| !stack.filters.is_empty()),
                xdp: hook(index, Place::Xdp),
                ingress: hook(index, Place::Ingress),
                egress: hook(index, Place::Egress),
                netkit: device.netkit.and_then(|netkit| match (netkit.primary, device.peer) {
                    (true, _) => hook(index, Place::NetkitPrimary),
                    (false, Some(peer)) => hook(peer, Place::NetkitPeer),
                    (false, None) => None,
                }),
            }
        });
        layout.devices = devices.collect();
        for (place, at) in (1..).zip(&layout.devices).take_while(|(_, at)| at.device.index < DIRECT) {
            layout.direct.resize(at.device.index as usize, 0);
            layout.direct.push(place);
        }
        (Arc::new(layout), version)
    }

    /// The number of the present state.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.points.version.load(Ordering::Acquire)
    }

    /// Gives the state a new number, after a change. Programs are detached from devices and sockets that are gone.
    pub(super) fn changed(&self) {
        let machine = self.machine();
        if self.hooks().keys().any(|key| !key.is_in(&machine)) {
            self.change_hooks(|hooks| hooks.retain(|key, _| key.is_in(&machine)));
        }
        self.points.version.fetch_add(1, Ordering::Release);
    }
}
