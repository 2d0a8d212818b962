//! Programs on devices.

use super::World;
use super::trace::Place;
use crate::error::Error;
use crate::hook::{Hook, Link};
use crate::image::Input;
use crate::program::Program;
use crate::runtime::Runtime;
use skep_world::{Device, Machine};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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

/// The programs on all devices.
#[derive(Debug, Default)]
pub(super) struct Points {
    hooks: RwLock<Arc<BTreeMap<(u32, Place), Hook>>>,
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
}

/// Devices with smaller indices are found by one load.
const DIRECT: u32 = 1024;

/// A device with its programs.
#[derive(Debug)]
pub(super) struct At {
    pub(super) device: Device,
    /// Whether its peer is in another network namespace.
    pub(super) leads_out: bool,
    pub(super) xdp: Option<Hook>,
    pub(super) ingress: Option<Hook>,
    pub(super) egress: Option<Hook>,
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
}

impl World {
    /// Attaches a program to a device. Programs at one place run in the order of attachment. Dropping the link detaches
    /// it; [`Link::replace`] replaces it while packets pass.
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such device; [`Error::WrongAttachment`] if programs of that type do not run
    /// there: `xdp` at [`Place::Xdp`], `sched_cls` and `sched_act` at the others; [`Error::OtherWorld`] if its runtime
    /// does not see this world; [`Error::ForeignProgram`] if the programs there are from another runtime.
    pub fn attach(&self, program: &Program, device: impl DeviceId, place: Place) -> Result<Link, Error> {
        let index = device.index_in(&self.machine())?;
        self.check_fits(program, place)?;
        let hook = self.hook_at(index, place, program);
        self.changed();
        hook.attach(program)
    }

    /// Ends links at a place of a device, and runs other programs there, behind those of other links.
    ///
    /// # Errors
    ///
    /// As [`World::attach`]; nothing has changed then.
    #[cfg(feature = "sys")]
    pub(crate) fn replace_all(
        &self,
        links: &mut Vec<Link>,
        programs: &[&Program],
        (index, place): (u32, Place),
    ) -> Result<(), Error> {
        programs.iter().try_for_each(|program| self.check_fits(program, place))?;
        let Some(program) = programs.first() else {
            links.clear();
            self.changed();
            return Ok(());
        };
        index.index_in(&self.machine())?;
        let hook = self.hook_at(index, place, program);
        hook.replace_all(links, programs)?;
        self.changed();
        Ok(())
    }

    /// Checks that programs of its type run at a place, and that it sees this world.
    fn check_fits(&self, program: &Program, place: Place) -> Result<(), Error> {
        let name = || program.name().to_owned();
        if !Arc::ptr_eq(&program.shared().surroundings, &self.surroundings) {
            return Err(Error::OtherWorld { program: name() });
        }
        let type_name = program.program_type().name;
        let (fits, expected) = match place {
            Place::Xdp => (program.image().input == Input::Xdp, "xdp programs"),
            Place::Ingress | Place::Egress => {
                (["sched_cls", "sched_act"].contains(&type_name), "sched_cls or sched_act programs")
            }
            Place::Devmap | Place::Cpumap => (false, "programs of elements of maps (TargetMap::set_program)"),
        };
        if fits {
            return Ok(());
        }
        let given = format!("one of type {type_name}");
        Err(Error::WrongAttachment { program: name(), expected: expected.into(), given })
    }

    /// The hook at a place, made for programs like this one if there is none.
    fn hook_at(&self, index: u32, place: Place, program: &Program) -> Hook {
        let mut hooks = self.points.hooks.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(hook) = hooks.get(&(index, place)) {
            return hook.clone();
        }
        let hook = Runtime::of(program.shared()).hook();
        let mut changed = BTreeMap::clone(&hooks);
        changed.insert((index, place), hook.clone());
        *hooks = Arc::new(changed);
        hook
    }

    /// The programs at a place of a device, in the order in which they run.
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such device; [`Error::Slots`] as for [`Program::run`].
    pub fn attached(&self, device: impl DeviceId, place: Place) -> Result<Vec<Program>, Error> {
        let index = device.index_in(&self.machine())?;
        let hook = self.hooks().get(&(index, place)).cloned();
        hook.map_or_else(|| Ok(Vec::new()), |hook| hook.programs())
    }

    /// The devices and their programs as they are now, and the number of that state.
    pub(super) fn layout(&self) -> (Arc<Layout>, u64) {
        // The number first: a change in between makes the next comparison fail.
        let version = self.version();
        let (machine, hooks) = (self.machine(), self.hooks());
        let hook = |index, place| hooks.get(&(index, place)).cloned();
        let devices = machine.devices().map(|device| {
            let index = device.index;
            let peer = device.peer.and_then(|peer| machine.find_device(peer));
            At {
                device: device.clone(),
                leads_out: peer.is_none_or(|peer| peer.namespace != device.namespace),
                xdp: hook(index, Place::Xdp),
                ingress: hook(index, Place::Ingress),
                egress: hook(index, Place::Egress),
            }
        });
        let devices: Vec<At> = devices.collect();
        let mut direct = Vec::new();
        for (place, at) in (1..).zip(&devices).take_while(|(_, at)| at.device.index < DIRECT) {
            direct.resize(at.device.index as usize, 0);
            direct.push(place);
        }
        (Arc::new(Layout { machine, devices, direct }), version)
    }

    /// The number of the present state.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.points.version.load(Ordering::Acquire)
    }

    /// Gives the state a new number, after a change. Programs on devices that are gone are detached.
    pub(super) fn changed(&self) {
        let machine = self.machine();
        let mut hooks = self.points.hooks.write().unwrap_or_else(PoisonError::into_inner);
        if hooks.keys().any(|(index, _)| machine.find_device(*index).is_none()) {
            let mut kept = BTreeMap::clone(&hooks);
            kept.retain(|(index, _), _| machine.find_device(*index).is_some());
            *hooks = Arc::new(kept);
        }
        drop(hooks);
        self.points.version.fetch_add(1, Ordering::Release);
    }

    fn hooks(&self) -> Arc<BTreeMap<(u32, Place), Hook>> {
        Arc::clone(&self.points.hooks.read().unwrap_or_else(PoisonError::into_inner))
    }
}
