//! A machine for programs to run in: a firewall with a load balancer behind it, and a packet's whole way through them.
//!
//! ```console
//! $ cargo run -p skep --example world
//! ```

use skep::world::{Clock, Device, Machine, Place, Random, Route, World};
use skep::{Object, Packet, Runtime};
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
    Ok(())
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
