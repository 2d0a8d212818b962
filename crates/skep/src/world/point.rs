//! Places in the machine's own network stack where programs are attached.
//!
//! A place has a [`Key`], and each key has a [`Hook`], made when the first program is attached there. Keys are
//! ordered, so all hooks of one place in a namespace are neighbours, in the order in which they run.

use super::World;
use super::trace::Place;
use crate::error::Error;
use crate::hook::{Hook, Link};
use crate::program::Program;
use crate::runtime::Runtime;
use skep_world::{Machine, Protocol, Socket};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

/// A place in the machine's own network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Point {
    /// A hook of the packet filter, for programs of type `netfilter`. They run in the order of the priorities, the
    /// lowest first, and those of one priority in the order of attachment, until one of them drops the packet.
    Netfilter {
        /// The network namespace.
        namespace: u32,
        /// The packets that it is for.
        family: Family,
        /// [`Place::PreRouting`], [`Place::LocalIn`], [`Place::Forward`], [`Place::LocalOut`] or
        /// [`Place::PostRouting`].
        hook: Place,
        /// The order.
        priority: i32,
    },
    /// The look-up of the socket that receives a packet, for programs of type `sk_lookup`.
    Lookup {
        /// The network namespace.
        namespace: u32,
    },
    /// The sockets of a cgroup and of those in it, for programs of type `cgroup_skb`. Those of inner cgroups run first.
    Cgroup {
        /// The cgroup's number.
        cgroup: u64,
        /// [`Place::CgroupIngress`] or [`Place::CgroupEgress`].
        hook: Place,
    },
    /// What a socket receives, for programs of type `socket_filter`.
    Socket {
        /// The socket's cookie.
        socket: u64,
    },
    /// The choice among the sockets that share the address of this one ([`Socket::reuse_port`]), for programs of type
    /// `sk_reuseport`.
    ReusePort {
        /// The cookie of a socket of the group.
        socket: u64,
    },
}

/// The family of a packet's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What hooks are known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Device(u32, Place),
    /// Namespace, family, hook, priority.
    Netfilter(u32, Family, Place, i32),
    Lookup(u32),
    /// The programs that are attached to a cgroup itself.
    Cgroup(u64, Place),
    /// All programs that run for a cgroup, those of outer ones included, in place of what outer ones have in such a
    /// list. Only the system call knows of such lists.
    #[cfg_attr(not(feature = "sys"), allow(dead_code))]
    Effective(u64, Place),
    Socket(u64),
    ReusePort(Group),
}

/// Sockets that share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    namespace: u32,
    protocol: Protocol,
    local: SocketAddr,
    device: Option<u32>,
}

/// All hooks.
pub(super) type Hooks = BTreeMap<Key, Hook>;

impl Group {
    /// The group of a socket. Connected ones are in none.
    pub(crate) fn of(socket: &Socket) -> Option<Self> {
        let Socket { namespace, protocol, local, device, .. } = *socket;
        (socket.reuse_port && socket.remote.is_none()).then_some(Self { namespace, protocol, local, device })
    }
}

impl Place {
    /// The hook of the packet filter, with Linux's number (`enum nf_inet_hooks`).
    pub(crate) const fn netfilter(self) -> Option<u8> {
        match self {
            Self::PreRouting => Some(0),
            Self::LocalIn => Some(1),
            Self::Forward => Some(2),
            Self::LocalOut => Some(3),
            Self::PostRouting => Some(4),
            _ => None,
        }
    }
}

impl Key {
    /// Whether what it is about is there.
    pub(super) fn is_in(&self, machine: &Machine) -> bool {
        match *self {
            Self::Device(index, _) => machine.find_device(index).is_some(),
            Self::Socket(cookie) => machine.socket(cookie).is_ok(),
            Self::ReusePort(group) => machine.sockets().iter().any(|socket| Group::of(socket) == Some(group)),
            Self::Netfilter(..) | Self::Lookup(_) | Self::Cgroup(..) | Self::Effective(..) => true,
        }
    }

    /// Checks that the machine has such a place.
    fn check(&self, machine: &Machine) -> Result<(), Error> {
        let Self::Device(index, place) = *self else { return Ok(()) };
        let netkit = machine.device(index)?.netkit;
        let both = matches!(place, Place::NetkitPrimary | Place::NetkitPeer);
        if both && netkit.is_none_or(|netkit| !netkit.primary) {
            return Err(skep_world::Error::NoNetkit { index }.into());
        }
        Ok(())
    }

    /// What types of programs run there, by name; and what to say to others.
    fn types(&self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Device(_, Place::Xdp) => (&["xdp"], "xdp programs"),
            Self::Device(_, Place::Ingress | Place::Egress | Place::NetkitPrimary | Place::NetkitPeer) => {
                (&["sched_cls", "sched_act"], "sched_cls or sched_act programs")
            }
            Self::Device(_, Place::Devmap | Place::Cpumap) => {
                (&[], "programs of elements of maps (TargetMap::set_program)")
            }
            Self::Device(..) => (&[], "programs of the network stack (World::attach_at)"),
            Self::Netfilter(_, _, hook, _) if hook.netfilter().is_none() => {
                (&[], "a hook of the packet filter, like Place::LocalIn")
            }
            Self::Netfilter(..) => (&["netfilter"], "netfilter programs"),
            Self::Lookup(_) => (&["sk_lookup"], "sk_lookup programs"),
            Self::Cgroup(_, Place::CgroupIngress | Place::CgroupEgress)
            | Self::Effective(_, Place::CgroupIngress | Place::CgroupEgress) => {
                (&["cgroup_skb"], "cgroup_skb programs")
            }
            Self::Cgroup(..) | Self::Effective(..) => (&[], "Place::CgroupIngress or Place::CgroupEgress"),
            Self::Socket(_) => (&["socket_filter"], "socket_filter programs"),
            Self::ReusePort(_) => (&["sk_reuseport"], "sk_reuseport programs"),
        }
    }
}

impl Point {
    fn key(self, machine: &Machine) -> Result<Key, Error> {
        Ok(match self {
            Self::Netfilter { namespace, family, hook, priority } => {
                Key::Netfilter(namespace, family, hook, priority)
            }
            Self::Lookup { namespace } => Key::Lookup(namespace),
            Self::Cgroup { cgroup, hook } => Key::Cgroup(cgroup, hook),
            Self::Socket { socket } => Key::Socket(machine.socket(socket)?.cookie),
            Self::ReusePort { socket: cookie } => {
                let group = Group::of(machine.socket(cookie)?);
                Key::ReusePort(group.ok_or(skep_world::Error::NoGroup { cookie })?)
            }
        })
    }
}

impl World {
    /// Attaches a program to a place in the network stack. Dropping the link detaches it; [`Link::replace`] replaces it
    /// while packets pass.
    ///
    /// ```
    /// use skep::world::{Device, Family, Fate, Machine, Place, Point, Socket, World};
    /// use skep::{Object, Packet, Runtime};
    /// # use skep_packets::{Ipv4, ethernet, ethertype, ipv4, protocol, udp};
    ///
    /// let mut machine = Machine::new();
    /// machine.add_device(Device::new("eth0").address("10.0.0.1/24".parse()?))?;
    /// let server = machine.add_socket(Socket::bound("10.0.0.1:53".parse()?))?;
    /// let world = World::new(machine);
    /// let runtime = Runtime::builder().world(&world).build()?;
    /// # let (from, to) = ([10, 0, 0, 9], [10, 0, 0, 1]);
    /// # let inner = udp(((from).into(), 1000), ((to).into(), 53), b"question");
    /// # let header = Ipv4 { protocol: protocol::UDP, ttl: 64, id: 1, fragment: 0, options: &[] };
    /// # let question = ipv4(from.into(), to.into(), header, &inner);
    /// # let question = Packet::new(&ethernet([2, 0, 0, 0, 0, 1], [6; 6], &[], ethertype::IPV4, &question));
    /// let mut packet = question.clone(); // a datagram to 10.0.0.1:53
    /// assert_eq!(world.inject("eth0", &mut packet)?.fate, Fate::Received { device: 1, socket: server.cookie });
    ///
    /// let insns = skep::isa::assemble("r0 = 0\nexit").expect("the text is right");
    /// let netfilter = skep::abi::ProgramType::from_name("netfilter").expect("a type");
    /// let module = runtime.load(&Object::from_insns("wall", netfilter, insns))?;
    /// let input = Point::Netfilter { namespace: 0, family: Family::V4, hook: Place::LocalIn, priority: 0 };
    /// let _link = world.attach_at(&module.programs()[0], input)?;
    /// let trace = world.inject("eth0", &mut question.clone())?;
    /// assert_eq!(trace.show(&world.machine()).to_string(), "eth0 input: wall drop\ndropped by wall: drop");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::World`] if there is no such socket, or it shares its address with no other; [`Error::WrongAttachment`]
    /// if programs of that type do not run there, or the hook is none of the place; [`Error::OtherWorld`] if its
    /// runtime does not see this world; [`Error::ForeignProgram`] if the programs there are from another runtime.
    pub fn attach_at(&self, program: &Program, point: Point) -> Result<Link, Error> {
        let key = point.key(&self.machine())?;
        self.attach_to(program, key)
    }

    pub(super) fn attach_to(&self, program: &Program, key: Key) -> Result<Link, Error> {
        key.check(&self.machine())?;
        self.check_fits(program, key)?;
        let hook = self.hook_at(key, program);
        let link = hook.attach(program)?;
        self.changed();
        Ok(link)
    }

    /// Ends links at a place, and runs other programs there, behind those of other links.
    ///
    /// # Errors
    ///
    /// As [`World::attach_at`]; nothing has changed then.
    #[cfg(feature = "sys")]
    pub(crate) fn replace_all(
        &self,
        links: &mut Vec<Link>,
        programs: &[&Program],
        key: Key,
    ) -> Result<(), Error> {
        programs.iter().try_for_each(|program| self.check_fits(program, key))?;
        let Some(program) = programs.first() else {
            links.clear();
            if matches!(key, Key::Effective(..)) {
                // Only this function attaches there.
                self.change_hooks(|hooks| drop(hooks.remove(&key)));
            }
            self.changed();
            return Ok(());
        };
        key.check(&self.machine())?;
        let hook = self.hook_at(key, program);
        hook.replace_all(links, programs)?;
        self.changed();
        Ok(())
    }

    /// Checks that programs of its type run at a place, and that it sees this world.
    fn check_fits(&self, program: &Program, key: Key) -> Result<(), Error> {
        let name = || program.name().to_owned();
        if !Arc::ptr_eq(&program.shared().surroundings, &self.surroundings) {
            return Err(Error::OtherWorld { program: name() });
        }
        let type_name = program.program_type().name;
        let (types, expected) = key.types();
        if types.contains(&type_name) {
            return Ok(());
        }
        let given = format!("one of type {type_name}");
        Err(Error::WrongAttachment { program: name(), expected: expected.into(), given })
    }

    /// The hook at a place, made for programs like this one if there is none.
    fn hook_at(&self, key: Key, program: &Program) -> Hook {
        self.change_hooks(|hooks| {
            hooks.entry(key).or_insert_with(|| Runtime::of(program.shared()).hook()).clone()
        })
    }

    /// Replaces the hooks by changed ones.
    pub(super) fn change_hooks<T>(&self, change: impl FnOnce(&mut Hooks) -> T) -> T {
        let mut hooks = self.points.hooks.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut hooks))
    }

    pub(super) fn hooks(&self) -> Arc<Hooks> {
        Arc::clone(&self.points.hooks.read().unwrap_or_else(PoisonError::into_inner))
    }
}
