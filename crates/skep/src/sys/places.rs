//! Places where programs run: those of the world's devices. Programs at other places are kept by the system call alone.

use super::errno;
use crate::error::Error;
use crate::hook::Link;
use crate::program::Program;
use crate::world::{Place, World};
use skep_btf::Btf;
use skep_sys::Errno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// `BPF_TCX_INGRESS`.
const TCX_INGRESS: u32 = 46;
/// Tracepoints of a system whose types nobody knows.
const TRACEPOINTS: [&str; 8] = [
    "sys_enter",
    "sys_exit",
    "sched_switch",
    "sched_wakeup",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
    "task_newtask",
];

/// What clients have attached to the world's devices.
#[derive(Debug, Default)]
pub(super) struct Places {
    devices: Mutex<HashMap<(u32, Place), Vec<Link>>>,
}

impl Places {
    pub(super) fn set(
        &self,
        world: Option<&World>,
        to: &skep_sys::Place,
        programs: &[&Program],
    ) -> Result<(), Errno> {
        let (index, place) = match *to {
            skep_sys::Place::Xdp { device, .. } => (device, Place::Xdp),
            skep_sys::Place::Device { index, attach_type: TCX_INGRESS } => (index, Place::Ingress),
            skep_sys::Place::Device { index, .. } => (index, Place::Egress),
            // The world has no such place: they run in test runs.
            _ => return Ok(()),
        };
        let world = world.ok_or(Errno::ENODEV)?;
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let mut links = devices.remove(&(index, place)).unwrap_or_default();
        // A device has one XDP program, which somebody else may have attached.
        let first = place == Place::Xdp && links.is_empty() && !programs.is_empty();
        if first && !world.attached(index, place).map_err(|_| Errno::EINVAL)?.is_empty() {
            return Err(Errno::EBUSY);
        }
        let done = world.replace_all(&mut links, programs, (index, place));
        if !links.is_empty() {
            devices.insert((index, place), links);
        }
        done.map_err(|error: Error| errno(&error))
    }
}

/// Whether a system with these types has a tracepoint; each has a type of its own.
pub(super) fn has_tracepoint(types: Option<&Btf>, name: &str) -> bool {
    match types {
        Some(types) => types.find(&format!("btf_trace_{name}"), skep_btf::Kind::Typedef).is_some(),
        None => TRACEPOINTS.contains(&name),
    }
}
