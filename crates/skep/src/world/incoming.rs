//! Where a program meets the packets that come in on a device, if nobody says where it is attached.

use super::World;
use super::attach::DeviceId;
use super::point::{Family, Point};
use super::trace::Place;
use crate::error::Error;
use crate::hook::Link;
use crate::program::Program;
use skep_world::Machine;
use std::collections::BTreeSet;

impl World {
    /// Attaches a program where it meets the packets that come in on a device: `xdp`, `sched_cls` and `sched_act`
    /// there; in the network stack of the device's namespace, `netfilter` before routing, for both families, and
    /// `sk_lookup`;
    /// `cgroup_skb` at the outermost control groups of sockets. Programs of other types meet none: there are no links
    /// then.
    ///
    /// ```
    /// use skep::world::{Device, Machine, World};
    /// use skep::{Object, Packet, Runtime};
    ///
    /// let mut machine = Machine::new();
    /// machine.add_device(Device::new("eth0"))?;
    /// let world = World::new(machine);
    /// let runtime = Runtime::builder().world(&world).build()?;
    /// let load = |program_type| {
    ///     let insns = skep::isa::assemble("r0 = 0\nexit")?;
    ///     let program_type = skep::abi::ProgramType::from_name(program_type).ok_or("no such type")?;
    ///     Ok::<_, Box<dyn std::error::Error>>(runtime.load(&Object::from_insns("wall", program_type, insns))?)
    /// };
    /// let (wall, filter) = (load("netfilter")?, load("socket_filter")?);
    /// assert_eq!(world.attach_incoming(&wall.programs()[0], "eth0")?.len(), 2, "for IPv4 and IPv6");
    /// assert!(world.attach_incoming(&filter.programs()[0], "eth0")?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As of [`World::attach`] and [`World::attach_at`].
    pub fn attach_incoming(&self, program: &Program, device: impl DeviceId) -> Result<Vec<Link>, Error> {
        let machine = self.machine();
        let device = device.index_in(&machine)?;
        match program.program_type().name {
            "xdp" => Ok(vec![self.attach(program, device, Place::Xdp)?]),
            "sched_cls" | "sched_act" => Ok(vec![self.attach(program, device, Place::Ingress)?]),
            name => {
                let namespace = machine.find_device(device).map_or(0, |device| device.namespace);
                points(&machine, namespace, name)
                    .into_iter()
                    .map(|point| self.attach_at(program, point))
                    .collect()
            }
        }
    }
}

fn points(machine: &Machine, namespace: u32, program_type: &str) -> Vec<Point> {
    match program_type {
        "netfilter" => {
            let at = |family| Point::Netfilter { namespace, family, hook: Place::PreRouting, priority: 0 };
            [Family::V4, Family::V6].map(at).to_vec()
        }
        "sk_lookup" => vec![Point::Lookup { namespace }],
        // Each socket is in one of the outermost groups.
        "cgroup_skb" => {
            let sockets = machine.sockets().iter().map(|socket| socket.cgroup);
            let outermost: BTreeSet<u64> =
                sockets.filter_map(|cgroup| machine.cgroup_path(cgroup).last()).collect();
            let at = |cgroup| Point::Cgroup { cgroup, hook: Place::CgroupIngress };
            outermost.into_iter().map(at).collect()
        }
        _ => Vec::new(),
    }
}
