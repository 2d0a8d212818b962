//! Programs that are attached through the system call run, and end with what holds them.

use super::SysEngine;
use super::tests::{Attr, File, Process};
use crate::{Packet, Runtime, World};
use skep_sys::{Command, ControlGroup, Errno, System};

const SCHED_CLS: u32 = 3;
const XDP: u32 = 6;
const CGROUP_SKB: u32 = 8;
const SK_SKB: u32 = 14;
const TCX_INGRESS: u32 = 46;
const XDP_DEVICE: u32 = 37;
const SOCKMAP: u32 = 15;
/// `BPF_F_ALLOW_MULTI` and `BPF_F_BEFORE`.
const MULTI: u32 = 2;
const BEFORE: u32 = 8;

/// A process over a world with one device, of index 1.
fn with_world() -> (Process, World) {
    let mut machine = crate::world::Machine::new();
    machine.add_device(crate::world::Device::new("eth0")).unwrap();
    let world = World::new(machine);
    let runtime = Runtime::builder().cpus(2).privileged(true).world(&world).build().unwrap();
    (Process::of(System::new(SysEngine::new(runtime, Some(world.clone())))), world)
}

impl Process {
    /// A program of a type that says where it will be attached.
    fn expecting(&mut self, (program_type, attach_type): (u32, u32), result: i32) -> i32 {
        let insns = skep_isa::assemble(&format!("r0 = {result}\nexit")).unwrap();
        let insns = skep_isa::encode_bytes(&insns).unwrap();
        let (at, licence) = (self.put(&insns), self.put(b"GPL\0"));
        let attr = Attr::default().u32(0, program_type).u32(4, insns.len() as u32 / 8).u64(8, at);
        let attr = attr.u64(16, licence).bytes(48, b"tested").u32(68, attach_type).u32(140, 0);
        self.call(Command::ProgLoad, &attr).unwrap() as i32
    }

    fn returning(&mut self, program_type: u32, result: i32) -> i32 {
        let text = format!("r0 = {result}\nexit");
        self.load_with(program_type, &text, 0, 0).0.unwrap() as i32
    }

    fn attach(&mut self, target: u32, program: i32, attach_type: u32, flags: u32) -> Result<i64, Errno> {
        let attr = Attr::default().u32(0, target).u32(4, program as u32).u32(8, attach_type).u32(12, flags);
        self.call(Command::ProgAttach, &attr)
    }

    fn link(&mut self, target: u32, program: i32, attach_type: u32, flags: u32) -> Result<i32, Errno> {
        let attr = Attr::default().u32(0, program as u32).u32(4, target).u32(8, attach_type).u32(12, flags);
        self.call(Command::LinkCreate, &attr).map(|link| link as i32)
    }

    /// A control group with an open directory.
    fn group(&mut self, outer: &[u64], id: u64) -> u32 {
        let descriptor = self.free_descriptor();
        self.files.insert(descriptor, File::Group(ControlGroup::new(outer, id)));
        descriptor as u32
    }

    fn count(&mut self, group: u32, effective: bool) -> Result<u32, Errno> {
        let attr = Attr::default().u32(0, group).u32(4, 0).u32(8, effective.into()).u32(60, 0);
        self.call(Command::ProgQuery, &attr)?;
        Ok(self.answer(24))
    }
}

fn results(world: &World) -> Vec<u32> {
    let trace = world.inject("eth0", &mut Packet::new(&[0; 64])).unwrap();
    trace.hops.iter().map(|hop| hop.result).collect()
}

#[test]
fn programs_of_a_device_run_in_the_order_that_callers_asked_for() {
    let (mut process, world) = with_world();
    // -1: the next program decides.
    let [first, second, third] = [-1, -1, 2].map(|result| process.returning(SCHED_CLS, result));
    process.attach(1, third, TCX_INGRESS, 0).unwrap();
    assert_eq!(results(&world), [2]);
    let link = process.link(1, first, TCX_INGRESS, BEFORE).unwrap();
    assert_eq!(results(&world), [u32::MAX, 2]);
    process.attach(1, second, TCX_INGRESS, BEFORE).unwrap();
    assert_eq!(results(&world), [u32::MAX, u32::MAX, 2]);
    process.descriptors.remove(&link);
    assert_eq!(results(&world), [u32::MAX, 2], "a link ends with its last descriptor");
    let detach = Attr::default().u32(0, 1).u32(4, third as u32).u32(8, TCX_INGRESS).u32(12, 0);
    process.call(Command::ProgDetach, &detach).unwrap();
    assert_eq!(results(&world), [u32::MAX]);
    process.descriptors.clear();
    assert_eq!(results(&world), [u32::MAX], "what no link holds stays");
}

#[test]
fn an_xdp_link_makes_room_for_no_other_and_is_replaced_in_place() {
    let (mut process, world) = with_world();
    let [pass, drop] = [2, 1].map(|result| process.returning(XDP, result));
    let link = process.link(1, pass, XDP_DEVICE, 0).unwrap();
    assert_eq!(process.link(1, drop, XDP_DEVICE, 0), Err(Errno::EBUSY));
    assert_eq!(results(&world), [2]);
    let update = Attr::default().u32(0, link as u32).u32(4, drop as u32).u32(12, 0);
    process.call(Command::LinkUpdate, &update).unwrap();
    assert_eq!(results(&world), [1]);
    process.call(Command::LinkDetach, &Attr::default().u32(0, link as u32)).unwrap();
    assert!(results(&world).is_empty());
    assert_eq!(process.call(Command::LinkUpdate, &update), Err(Errno::ENOLINK));
    // The host's own programs count.
    let object = crate::Object::from_insns(
        "host",
        skep_abi::ProgramType::from_name("xdp").unwrap(),
        skep_isa::assemble("r0 = 2\nexit").unwrap(),
    );
    let module = process.system.engine().runtime().load(&object).unwrap();
    let _host = world.attach(&module.programs()[0], 1, crate::world::Place::Xdp).unwrap();
    assert_eq!(process.link(1, pass, XDP_DEVICE, 0), Err(Errno::EBUSY));
}

#[test]
fn attachments_end_with_their_control_group() {
    let mut process = Process::new();
    let (outer, inner) = (process.group(&[1], 10), process.group(&[1, 10], 11));
    let program = process.returning(CGROUP_SKB, 1);
    process.attach(outer, program, 0, MULTI).unwrap();
    process.attach(outer, program, 1, MULTI).unwrap();
    let link = process.link(inner, program, 0, 0).unwrap();
    assert_eq!((process.count(inner, false), process.count(inner, true)), (Ok(1), Ok(2)));
    assert_eq!(process.system.control_groups(), [10, 11]);
    let system = process.system.clone();
    system.end_control_group(11);
    assert_eq!((process.count(inner, false), process.count(inner, true)), (Ok(0), Ok(1)));
    assert_eq!(process.info(link, 32)[16..24], [0; 8], "the link's group is gone");
    let update = Attr::default().u32(0, link as u32).u32(4, program as u32).u32(12, 0);
    assert_eq!(process.call(Command::LinkUpdate, &update), Err(Errno::ENOLINK));
    system.end_control_group(10);
    process.descriptors.clear();
    assert_eq!(process.next_id(Command::ProgGetNextId, 0), Err(Errno::ENOENT), "nothing holds the program");
}

#[test]
fn a_program_of_a_map_of_sockets_that_uses_the_map_ends_with_it() {
    let mut process = Process::new();
    let map = process.map(SOCKMAP, 4, 4, 1).unwrap();
    let text = format!("r1 = map_fd {map}\nr0 = 1\nexit");
    let text = text.replace(&format!("map_fd {map}"), "0 ll");
    let mut insns = skep_isa::encode_bytes(&skep_isa::assemble(&text).unwrap()).unwrap();
    // BPF_PSEUDO_MAP_FD.
    insns[1] |= 1 << 4;
    insns[4..8].copy_from_slice(&map.to_ne_bytes());
    let program = process.load_bytes(SK_SKB, &insns, 0, 0).0.unwrap() as i32;
    process.attach(map as u32, program, 5, 0).unwrap();
    process.descriptors.remove(&program);
    assert!(process.next_id(Command::ProgGetNextId, 0).is_ok(), "the map holds it");
    process.descriptors.clear();
    assert_eq!(process.next_id(Command::ProgGetNextId, 0), Err(Errno::ENOENT));
    assert_eq!(process.next_id(Command::MapGetNextId, 0), Err(Errno::ENOENT));
}

#[test]
fn runs_are_counted_while_somebody_asks_for_statistics() {
    const RUN_TIME: std::ops::Range<usize> = 192..200;
    const RUN_COUNT: std::ops::Range<usize> = 200..208;
    let mut process = Process::new();
    let program = process.returning(XDP, 2);
    let data = process.put(&[0; 64]);
    let run = Attr::default().u32(0, program as u32).u32(8, 64).u64(16, data).u32(32, 5).u32(76, 0);
    let counted = |process: &mut Process| {
        process.call(Command::ProgTestRun, &run).unwrap();
        let info = process.info(program, 232);
        let number = |at: std::ops::Range<usize>| u64::from_ne_bytes(info[at].try_into().unwrap());
        (number(RUN_COUNT), number(RUN_TIME) > 0)
    };
    assert_eq!(counted(&mut process), (0, false));
    let enable = Attr::default().u32(0, 0);
    let [first, second] = [(); 2].map(|()| process.call(Command::EnableStats, &enable).unwrap() as i32);
    assert_eq!(counted(&mut process), (5, true));
    process.descriptors.remove(&first);
    assert_eq!(counted(&mut process), (10, true));
    process.descriptors.remove(&second);
    assert_eq!(counted(&mut process), (10, true));
}

#[test]
fn frames_that_live_on_go_their_way_through_the_world() {
    /// `BPF_F_TEST_XDP_LIVE_FRAMES`.
    const LIVE_FRAMES: u32 = 2;
    let (mut process, _world) = with_world();
    let [pass, drop] = [2, 1].map(|result| process.returning(XDP, result));
    let behind = process.returning(SCHED_CLS, 2);
    process.attach(1, behind, TCX_INGRESS, 0).unwrap();
    process.call(Command::EnableStats, &Attr::default().u32(0, 0)).unwrap();
    let data = process.put(&[0; 64]);
    for (program, seen) in [(pass, 5), (drop, 5), (pass, 10)] {
        let run = Attr::default().u32(0, program as u32).u32(8, 64).u64(16, data).u32(32, 5);
        process.call(Command::ProgTestRun, &run.u32(64, LIVE_FRAMES).u32(76, 0)).unwrap();
        let info = process.info(behind, 232);
        assert_eq!(info[200..208], u64::to_ne_bytes(seen), "the program behind sees what passes");
    }
}

/// The number of the process's network namespace.
const NETWORK: u64 = 4_026_531_840;

/// A world whose `eth0` (1) has 10.0.0.1, and a server at port 53 in the control group 11.
fn with_server() -> (Process, World) {
    let mut machine = crate::world::Machine::new();
    let address = "10.0.0.1/24".parse().unwrap();
    machine.add_device(crate::world::Device::new("eth0").address(address)).unwrap();
    for (id, parent) in [(1, None), (10, Some(1)), (11, Some(10))] {
        machine.cgroups.insert(id, crate::world::Cgroup { id, parent, ..Default::default() });
    }
    let mut server = crate::world::Socket::bound("0.0.0.0:53".parse().unwrap());
    server.cgroup = 11;
    machine.add_socket(server).unwrap();
    let world = World::new(machine);
    let runtime = Runtime::builder().cpus(2).privileged(true).world(&world).build().unwrap();
    let engine = SysEngine::new(runtime, Some(world.clone())).network(NETWORK, 0);
    let mut process = Process::of(System::new(engine));
    process.network = NETWORK;
    (process, world)
}

/// The way of a datagram to the server.
fn served(world: &World) -> Vec<String> {
    let (from, to) = (std::net::Ipv4Addr::new(10, 0, 0, 9), std::net::Ipv4Addr::new(10, 0, 0, 1));
    let inner = skep_packets::udp((from.into(), 1000), (to.into(), 53), b"question");
    let header = skep_packets::Ipv4 { protocol: 17, ttl: 64, id: 1, fragment: 0, options: &[] };
    let inner = skep_packets::ipv4(from, to, header, &inner);
    let frame =
        skep_packets::ethernet([2, 0, 0, 0, 0, 1], [6; 6], &[], skep_packets::ethertype::IPV4, &inner);
    let trace = world.inject("eth0", &mut Packet::new(&frame)).unwrap();
    let text = trace.show(&world.machine()).to_string();
    // All programs have that name.
    text.lines().map(|line| line.replace(" tested", "")).collect()
}

#[test]
fn programs_of_groups_namespaces_and_the_packet_filter_meet_the_worlds_packets() {
    const INET_INGRESS: u32 = 0;
    const SK_LOOKUP: (u32, u32) = (30, 36);
    const NETFILTER: (u32, u32) = (32, 45);
    let (mut process, world) = with_server();
    let end = "received on eth0 by socket 1 (udp 0.0.0.0:53)";
    assert_eq!(served(&world), [end]);
    // The packet filter, by priorities.
    let mut filter = |result: i32, priority: i32| {
        let program = process.expecting(NETFILTER, result);
        let attr = Attr::default().u32(0, program as u32).u32(4, 0).u32(8, NETFILTER.1).u32(12, 0);
        let attr = attr.u32(16, 2).u32(20, 1).u32(24, priority as u32).u32(28, 0);
        process.call(Command::LinkCreate, &attr).unwrap() as i32
    };
    let passes = filter(1, 10);
    assert_eq!(served(&world), ["eth0 input: accept", end]);
    let drops = filter(0, -10);
    assert_eq!(served(&world), ["eth0 input: drop", "dropped by: drop"]);
    process.descriptors.remove(&drops);
    assert_eq!(served(&world), ["eth0 input: accept", end], "a link ends with its last descriptor");
    process.descriptors.remove(&passes);
    assert_eq!(served(&world), [end]);
    // Control groups: those inside first, and what the flags say.
    let (outer, inner) = (process.group(&[1], 10), process.group(&[1, 10], 11));
    let [yes, no] = [1, 0].map(|result| process.returning(CGROUP_SKB, result));
    process.attach(outer, yes, INET_INGRESS, MULTI).unwrap();
    assert_eq!(
        served(&world),
        ["eth0 cgroup ingress: pass", end],
        "the server's group has no list of its own"
    );
    let link = process.link(inner, no, INET_INGRESS, 0).unwrap();
    let ran = ["eth0 cgroup ingress: drop", "eth0 cgroup ingress: pass", "dropped by: drop"];
    assert_eq!(served(&world), ran);
    process.descriptors.remove(&link);
    assert_eq!(served(&world), ["eth0 cgroup ingress: pass", end]);
    process.system.clone().end_control_group(10);
    assert_eq!(served(&world), [end]);
    // The namespace's look-ups.
    let network = process.free_descriptor();
    process.files.insert(network, File::Network(NETWORK));
    let drop = process.expecting(SK_LOOKUP, 0);
    let link = process.link(network as u32, drop, SK_LOOKUP.1, 0).unwrap();
    assert_eq!(served(&world), ["eth0 socket look-up: drop", "dropped by: drop"]);
    process.descriptors.remove(&link);
    assert_eq!(served(&world), [end]);
}

/// As Linux 6.12 answers.
#[test]
fn programs_of_netkit_are_attached_to_the_primary_end() {
    use crate::world::{Device, Netkit, NetkitPolicy};
    const PRIMARY: u32 = 54;
    const PEER: u32 = 55;
    let mut machine = crate::world::Machine::new();
    machine.add_device(Device::new("eth0")).unwrap();
    let end =
        |name: &str, primary| Device::new(name).netkit(Netkit { primary, policy: NetkitPolicy::Blackhole });
    machine.add_pair(end("nk0", true), end("nk1", false)).unwrap();
    let world = World::new(machine);
    let runtime = Runtime::builder().cpus(2).privileged(true).world(&world).build().unwrap();
    let mut process = Process::of(System::new(SysEngine::new(runtime, Some(world.clone()))));
    let program = process.returning(SCHED_CLS, 0);
    for at in [PRIMARY, PEER] {
        assert_eq!(process.link(1, program, at, 0), Err(Errno::ENXIO), "no netkit");
        assert_eq!(process.link(3, program, at, 0), Err(Errno::EACCES), "the other end");
        assert_eq!(process.link(99, program, at, 0), Err(Errno::ENODEV));
    }
    let back = crate::Object::from_insns(
        "back",
        skep_abi::ProgramType::from_name("xdp").unwrap(),
        skep_isa::assemble("r0 = 3\nexit").unwrap(),
    );
    let back = process.system.engine().runtime().load(&back).unwrap();
    let _back = world.attach(&back.programs()[0], "nk1", crate::world::Place::Xdp).unwrap();
    let passes = || world.inject("nk1", &mut Packet::new(&[0; 64])).unwrap().hops.len() > 1;
    assert!(!passes(), "nobody connects the ends");
    let primary = process.link(2, program, PRIMARY, 0).unwrap();
    assert!(!passes(), "that program is for what the primary end sends");
    let peer = process.link(2, program, PEER, 0).unwrap();
    assert!(passes());
    // BPF_LINK_TYPE_NETKIT, with the end whose packets the program sees.
    let shown = |process: &mut Process, link| {
        let info = process.info(link, 32);
        [0, 16, 20].map(|at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap()))
    };
    assert_eq!(shown(&mut process, primary), [13, 2, PRIMARY]);
    assert_eq!(shown(&mut process, peer), [13, 3, PEER]);
    process.descriptors.remove(&peer);
    assert!(!passes(), "a link ends with its last descriptor");
    world.change(|machine| machine.remove_device(2)).unwrap();
    assert_eq!(shown(&mut process, primary), [13, 0, PRIMARY], "the device is gone");
}
