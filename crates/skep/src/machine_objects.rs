//! Tasks and cgroups as objects that programs hold: the runtime's share of each.
//!
//! ```text
//!   machine: task 7, cgroup 3  --first use-->  object of task 7 --owns--> object of cgroup 3
//!            change of the machine  -->  objects follow: another cgroup, another level, or gone
//! ```
//!
//! An object is made when a program first meets what it stands for. It is found by its number as long as the machine
//! has that; a task that comes back later is another object. A program that holds a reference to one that is gone
//! keeps its memory, and calls treat it as a task or cgroup that has ended.
//!
//! **Following the machine.** Each update takes the machine as it is, changes the object under the lock, and begins
//! again if the machine was replaced meanwhile. So the last update is about the last machine, whoever makes it, and
//! the lock stays a leaf.
//!
//! **Never null.** The current task and a task's cgroup always exist for a program. Without a task, or without memory
//! for one more, it is the idle task, number 0; a cgroup that the machine does not have is one of number 0.

use crate::dispatch::Dispatch;
use crate::error::Error;
use crate::surroundings::{Follower, Surroundings};
use skep_maps::objects::{Layout, MachineObject, Shape, ShapeError, acquire};
use skep_world::Machine;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The objects of one runtime.
pub(crate) struct MachineObjects {
    surroundings: Arc<Surroundings>,
    ready: OnceLock<Ready>,
}

struct Ready {
    tasks: Arc<Layout>,
    cgroups: Arc<Layout>,
    idle: MachineObject,
    nowhere: MachineObject,
    known: Mutex<Known>,
}

/// What programs have met, by number. The runtime has a share of each.
#[derive(Default)]
struct Known {
    tasks: BTreeMap<u32, MachineObject>,
    cgroups: BTreeMap<u64, MachineObject>,
}

/// Objects to be released without a lock.
type Released = Vec<MachineObject>;

impl MachineObjects {
    pub(crate) fn new(surroundings: &Arc<Surroundings>) -> Self {
        Self { surroundings: Arc::clone(surroundings), ready: OnceLock::new() }
    }

    /// Prepares for programs that use such objects; before the first of them runs. `layout` makes layouts of the
    /// runtime.
    ///
    /// # Errors
    ///
    /// [`Error::ObjectType`] if there is no memory.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        layout: impl Fn(&Shape) -> Result<Arc<Layout>, ShapeError>,
    ) -> Result<(), Error> {
        if self.ready.get().is_some() {
            return Ok(());
        }
        let failed = |source| Error::ObjectType { ty: "struct task_struct".to_owned(), source };
        let tasks = layout(&MachineObject::task_shape()).map_err(failed)?;
        let cgroups = layout(&MachineObject::cgroup_shape()).map_err(failed)?;
        let none = || failed(ShapeError::NoObject);
        let nowhere = make(&cgroups, 0).ok_or_else(none)?;
        let Some(idle) = make(&tasks, 0) else {
            release(vec![nowhere]);
            return Err(none());
        };
        put(idle, share(nowhere));
        let ready = Ready { tasks, cgroups, idle, nowhere, known: Mutex::default() };
        // Another load may have been first; dropping this one releases it.
        if self.ready.set(ready).is_ok() {
            let follower: Arc<dyn Follower> = Arc::clone(self) as _;
            self.surroundings.add_follower(Arc::downgrade(&follower));
        }
        Ok(())
    }

    /// The address of the task that programs run in.
    pub(crate) fn current_task(&self) -> u64 {
        let Some(ready) = self.ready.get() else { return 0 };
        let current = self.surroundings.with(|machine| machine.task.as_ref().map(|task| task.pid));
        let found = current.and_then(|pid| self.task(pid));
        found.unwrap_or(ready.idle).address()
    }

    /// The task of that number, if the machine has it.
    pub(crate) fn task(&self, pid: u32) -> Option<MachineObject> {
        let ready = self.ready.get()?;
        let known = ready.known().tasks.get(&pid).copied();
        known.or_else(|| self.follow(|machine, ready, released| ready.task(machine, pid, released)))
    }

    /// The cgroup of that number, if the machine has it.
    pub(crate) fn cgroup(&self, number: u64) -> Option<MachineObject> {
        let ready = self.ready.get()?;
        let known = ready.known().cgroups.get(&number).copied();
        known.or_else(|| self.follow(|machine, ready, released| ready.cgroup(machine, number, released)))
    }

    /// Makes an update about the machine as it is now.
    fn follow<T>(&self, update: impl Fn(&Machine, &Ready, &mut Released) -> Option<T>) -> Option<T> {
        let ready = self.ready.get()?;
        let mut released = Vec::new();
        let found = loop {
            let machine = self.surroundings.machine();
            let found = update(&machine, ready, &mut released);
            if Arc::ptr_eq(&machine, &self.surroundings.machine()) {
                break found;
            }
        };
        release(released);
        found
    }
}

impl Follower for MachineObjects {
    fn machine_changed(&self) {
        let Some(ready) = self.ready.get() else { return };
        let (tasks, cgroups): (Vec<u32>, Vec<u64>) = {
            let known = ready.known();
            (known.tasks.keys().copied().collect(), known.cgroups.keys().copied().collect())
        };
        for number in cgroups {
            self.follow(|machine, ready, released| ready.cgroup(machine, number, released));
        }
        for pid in tasks {
            self.follow(|machine, ready, released| ready.task(machine, pid, released));
        }
    }
}

impl Ready {
    /// A leaf: nothing is released or waited for under it.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes, changes or ends the object of a task.
    fn task(&self, machine: &Machine, pid: u32, released: &mut Released) -> Option<MachineObject> {
        let mut known = self.known();
        let Some(task) = machine.task_numbered(pid) else {
            released.extend(known.tasks.remove(&pid).inspect(|gone| gone.end()));
            return None;
        };
        let object = match known.tasks.get(&pid) {
            Some(object) => *object,
            None => {
                let made = make(&self.tasks, pid.into())?;
                known.tasks.insert(pid, made);
                made
            }
        };
        object.set_tgid(task.tgid);
        let group = self.known_cgroup(&mut known, machine, task.cgroup, released);
        let group = group.unwrap_or(self.nowhere);
        if object.cgroup().is_none_or(|before| before.address() != group.address()) {
            released.extend(put(object, share(group)));
        }
        Some(object)
    }

    fn cgroup(&self, machine: &Machine, number: u64, released: &mut Released) -> Option<MachineObject> {
        self.known_cgroup(&mut self.known(), machine, number, released)
    }

    /// Makes, changes or ends the object of a cgroup.
    fn known_cgroup(
        &self,
        known: &mut Known,
        machine: &Machine,
        number: u64,
        released: &mut Released,
    ) -> Option<MachineObject> {
        if !machine.cgroups.contains_key(&number) {
            released.extend(known.cgroups.remove(&number).inspect(|gone| gone.end()));
            return None;
        }
        let object = match known.cgroups.get(&number) {
            Some(object) => *object,
            None => {
                let made = make(&self.cgroups, number)?;
                known.cgroups.insert(number, made);
                made
            }
        };
        object.set_level(machine.cgroup_path(number).count().saturating_sub(1) as u32);
        Some(object)
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let known = std::mem::take(&mut *self.known());
        release(known.tasks.into_values().chain([self.idle]).collect());
        release(known.cgroups.into_values().chain([self.nowhere]).collect());
    }
}

/// A new object, of which the caller has the only share.
fn make(layout: &Arc<Layout>, number: u64) -> Option<MachineObject> {
    let address = layout.alloc_from_host();
    if address == 0 {
        return None;
    }
    // SAFETY: it was made with that layout, which is of a machine's objects.
    let object = unsafe { MachineObject::at(address) };
    object.begin(number);
    Some(object)
}

/// One more share of an object that the runtime has.
fn share(object: MachineObject) -> MachineObject {
    // SAFETY: it counts its owners, and this runtime is one of them.
    unsafe { acquire(object.address()) };
    object
}

/// Puts a task into a cgroup, of which the caller has a share; returns the one before with its share.
fn put(task: MachineObject, group: MachineObject) -> Option<MachineObject> {
    // SAFETY: the caller's promise; tasks come from this module.
    unsafe { task.set_cgroup(group) }
}

fn release(objects: Released) {
    for object in objects {
        // SAFETY: the runtime's share, or a task's that was taken out.
        unsafe { object.release_from_host() };
    }
}

/// The runtime's layouts are those of its dispatch, which maps keep.
pub(crate) fn layouts<'a>(
    dispatch: &'a Dispatch,
    memory: &'a skep_maps::Reclamation,
    limit: u64,
) -> impl Fn(&Shape) -> Result<Arc<Layout>, ShapeError> + 'a {
    move |shape| dispatch.objects.layout(memory, limit, shape)
}
