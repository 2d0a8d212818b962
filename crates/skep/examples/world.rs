//! A machine for programs to run in: a firewall with a load balancer behind it, and a packet's whole way through them,
//! and through programs in the machine's own network stack.
//!
//! ```console
//! $ cargo run -p skep --example world
//! ```

use skep::abi::{MapDef, MapKind, ProgramType};
use skep::world::{
    Clock, Device, Family, Fate, Fired, Function, Machine, Place, Point, Probe, ProbeOptions, ProbePoint,
    Protocol, Random, Registers, Route, Socket, World,
};
use skep::{Context, Object, Packet, Program, Runtime, UpdateFlags};
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // ANCHOR: fill
    let mut machine = Machine::new();
    machine.add_device(
        Device::new("eth0").mac("02:00:00:00:00:50".parse()?).address("203.0.113.1/24".parse()?),
    )?;
    let eth1 = machine.add_device(Device::new("eth1").address("192.0.2.1/24".parse()?))?;
    machine.add_route(Route::new("0.0.0.0/0".parse()?, eth1).via("192.0.2.254".parse()?))?;
    machine.add_neighbour(eth1, "192.0.2.254".parse()?, "02:00:00:00:00:fe".parse()?)?;

    let world = World::with(machine, Clock::stepped(Duration::ZERO), Random::seeded(1));
    let runtime = Runtime::builder().world(&world).build()?;
    // ANCHOR_END: fill

    // ANCHOR: change
    world.clock().step(Duration::from_secs(1)); // time passes
    world.change(|machine| machine.add_device(Device::new("eth2")))?; // programs see it from now on
    // ANCHOR_END: change

    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let load = |name: &str| runtime.load(&Object::open(format!("{examples}/{name}.bpf.o"))?);
    let (filters, balancers) = (load("firewall")?, load("balancer")?);
    let (firewall, balancer) = (&filters.programs()[0], &balancers.programs()[0]);
    let frame = question([8, 8, 8, 8], [203, 0, 113, 80]);

    // ANCHOR: inject
    let _first = world.attach(firewall, "eth0", Place::Xdp)?;
    let _second = world.attach(balancer, "eth0", Place::Xdp)?;

    let trace = world.inject("eth0", &mut Packet::new(&frame))?;
    println!("{}", trace.show(&world.machine()));
    // ANCHOR_END: inject
    assert_eq!(
        trace.show(&world.machine()).to_string(),
        "eth0 xdp: firewall pass\neth0 xdp: balancer tx\nsent by eth0"
    );
    drop((_first, _second));
    let balancer = sockets(&world, &runtime)?;
    stack(&world, &runtime, &balancer)?;
    probes(&world, &runtime)
}

/// A program that watches a function of the machine's kernel.
fn probes(world: &World, runtime: &Runtime) -> Result<(), Box<dyn std::error::Error>> {
    let insns = skep::isa::assemble("r0 = 0\nexit")?;
    let kind = ProgramType::from_name("kprobe").ok_or("no such type")?;
    let loaded = runtime.load(&Object::from_insns("watch", kind, insns))?;
    let program = &loaded.programs()[0];
    let socket = 0xffff_8880_0000_1000;
    // ANCHOR: probes
    world.change(|machine| {
        machine.probes.add_function(Function { name: "tcp_connect".into(), address: 0, size: 0 })?;
        machine.probes.add_tracepoint("sock", "inet_sock_set_state", ["int oldstate", "int newstate"])
    })?;
    let point = ProbePoint::function("tcp_connect");
    let options = ProbeOptions { cookie: 7, ..ProbeOptions::default() };
    let _watching = world.probe(program, Probe::Entry(point.clone()), options)?;

    let registers = Registers::call(&[socket]);
    let ran = world.fire(Fired::Call { point: &point, registers: &registers, result: 0 }, None)?;
    assert_eq!(ran.programs, 1);
    // ANCHOR_END: probes
    Ok(())
}

/// A program that gives all ports to one server.
fn sockets(world: &World, runtime: &Runtime) -> Result<Program, Box<dyn std::error::Error>> {
    let text = "
        r6 = r1
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        r1 = map[0] ll
        call map_lookup_elem#1
        if r0 == 0 goto pass
        r7 = r0
        r1 = r6
        r2 = r7
        r3 = 0
        call sk_assign#124
        r1 = r7
        call sk_release#86
  pass: r0 = 1
        exit";
    let bytecode = skep::isa::encode_bytes(&skep::isa::assemble(text)?)?;
    let sk_lookup = ProgramType::from_name("sk_lookup").ok_or("a type of Linux")?;
    let servers = MapDef::new("servers", MapKind::Sockmap, 4, 8, 1);
    let object = Object::from_bytecode_and_maps("balancer", sk_lookup, &bytecode, [servers])?;
    let module = runtime.load(&object)?;
    let (steer, servers) = (&module.programs()[0], module.map("servers").ok_or("it has one")?);

    // ANCHOR: sockets
    let mut server = Socket::listening(([203, 0, 113, 1], 8080).into());
    server.cgroup = 7;
    let server = world.change(|machine| machine.add_socket(server))?;
    servers.set_member(&0_u32.to_ne_bytes(), skep::socket_member(server.clone()), UpdateFlags::Any)?;

    let to = "203.0.113.1:443".parse()?;
    let found =
        world.machine().find_socket(0, Protocol::Tcp, to, "198.51.100.7:50000".parse()?, None).cloned();
    assert_eq!(found, None); // nobody listens there, so the program is asked

    let mut request = Context::of(steer)?;
    request.set("family", 2)?;
    request.set("protocol", 6)?;
    request.set("local_port", to.port().into())?;
    assert_eq!(steer.run_context(&mut request)?, 1);
    assert_eq!(request.chosen(), Some(&server));
    // ANCHOR_END: sockets
    Ok(steer.clone())
}

/// A firewall, a balancer and a cgroup's filter in the machine's own network stack.
fn stack(world: &World, runtime: &Runtime, balancer: &Program) -> Result<(), Box<dyn std::error::Error>> {
    let returning = |name: &str, kind: &str, result: i32| -> Result<Program, Box<dyn std::error::Error>> {
        let insns = skep::isa::assemble(&format!("r0 = {result}\nexit"))?;
        let kind = ProgramType::from_name(kind).ok_or("a type of Linux")?;
        Ok(runtime.load(&Object::from_insns(name, kind, insns))?.programs()[0].clone())
    };
    let wall = &returning("wall", "netfilter", 1)?;
    let quota = &returning("quota", "cgroup_skb/ingress", 0)?;
    let frame = request();

    // ANCHOR: stack
    let hook = Place::LocalIn;
    let input = Point::Netfilter { namespace: 0, family: Family::V4, hook, priority: 0 };
    let group = Point::Cgroup { cgroup: 7, hook: Place::CgroupIngress };
    let _wall = world.attach_at(wall, input)?;
    let _balancer = world.attach_at(balancer, Point::Lookup { namespace: 0 })?;
    let _quota = world.attach_at(quota, group)?;

    let trace = world.inject("eth0", &mut Packet::new(&frame))?;
    println!("{}", trace.show(&world.machine()));
    // ANCHOR_END: stack
    assert_eq!(
        trace.show(&world.machine()).to_string(),
        "eth0 input: wall accept\neth0 socket look-up: balancer pass\neth0 cgroup ingress: quota drop\n\
         dropped by quota: drop"
    );
    assert_eq!(trace.fate, Fate::Dropped { program: "quota".into(), verdict: "drop" });
    Ok(())
}

/// An Ethernet frame with a TCP segment for port 443 of `eth0`.
fn request() -> Vec<u8> {
    let mut frame = question([198, 51, 100, 7], [203, 0, 113, 1]);
    frame[23] = 6;
    frame[34..54]
        .copy_from_slice(&[0x0f, 0xa0, 1, 187, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// An Ethernet frame with a datagram for port 53.
fn question(from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0x50]);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame[26..30].copy_from_slice(&from);
    frame[30..34].copy_from_slice(&to);
    // The header's checksum (RFC 1071).
    let words = frame[14..34].chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    // Ports 4000 and 53, 26 bytes, no checksum.
    frame[34..42].copy_from_slice(&[0x0f, 0xa0, 0, 53, 0, 26, 0, 0]);
    frame
}
