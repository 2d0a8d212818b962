//! `skep-bench world`: what a hop costs in a world, over the time of the programs themselves.
//!
//! A chain has four programs. The same packets go through it twice, in turns: by the world, which moves them from
//! program to program, and by the host, which calls the four programs one after the other. The difference is what the
//! world adds.
//!
//! | chain | |
//! |---|---|
//! | `redirect` | four pairs of devices; XDP programs send the packet from one to the next |
//! | `attached` | four XDP programs on one device, which pass |
//! | `devmap` | as `redirect`, by a map of devices |
//! | `routed` | XDP, tc ingress, a route, tc egress, and XDP behind a pair |
//! | `many-routes` | as `routed`, on a machine with 10,000 more routes and as many neighbours |

use crate::report::{Report, Target};
use crate::timing::{Batched, median, sorted};
use crate::{Common, Result, progress};
use serde_json::{Value, json};
use skep::abi::{MapDef, MapKind, ProgramType};
use skep::world::{Device, Fate, Ipv4Net, MacAddr, Machine, Place, Route, Trace, World};
use skep::{Link, Object, Packet, Program, Runtime, UpdateFlags};
use skep_packets::{Ipv4, ethernet, ethertype, ipv4, protocol, udp};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A batch lasts at least this long.
const BATCH: Duration = Duration::from_micros(200);
/// Nanoseconds that a hop may cost over the program's own time.
const WANTED: f64 = 15.0;
/// Routes and neighbours of `many-routes` that the packets do not take.
const OTHERS: u32 = 10_000;
/// Programs in a chain.
const PROGRAMS: usize = 4;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds in which each chain takes its turn, by the world and by the host.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How often each chain is loaded, at another place each time.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=64))]
    placements: u32,
    /// Packets that go through each chain before anything is measured, all of which must arrive.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    packets: u32,
    /// Measure this chain alone.
    #[arg(long, value_name = "NAME", value_parser = CHAINS.map(|(name, ..)| name))]
    chain: Option<String>,
}

/// A world with a chain of programs.
struct Chain {
    world: World,
    programs: Vec<Program>,
    /// Where the packet comes in.
    device: u32,
    /// The device that sends it in the end.
    last: u32,
    _links: Vec<Link>,
}

/// Makes the programs of a chain, with their devices and places.
type Make = fn(&Runtime, &World) -> Result<Vec<(Program, u32, Place)>>;
/// Name, devices, programs.
type Kind = (&'static str, fn() -> Result<Machine>, Make);

const CHAINS: [Kind; 5] = [
    ("redirect", pairs, redirects),
    ("attached", pairs, attached),
    ("devmap", pairs, devmaps),
    ("routed", router, routed),
    ("many-routes", large_router, routed),
];

/// `in`, then four pairs: the packet leaves by one end and comes in at the other. The last device is alone.
fn pairs() -> Result<Machine> {
    let mut machine = Machine::new();
    machine.add_device(Device::new("in"))?;
    for pair in 0..PROGRAMS - 1 {
        machine.add_pair(Device::new(format!("a{pair}")), Device::new(format!("b{pair}")))?;
    }
    machine.add_device(Device::new("out"))?;
    Ok(machine)
}

/// The devices at which the programs of [`pairs`] are, and those to which they send.
fn places() -> impl Iterator<Item = (u32, u32)> {
    (0..PROGRAMS as u32).map(|at| (1 + 2 * at, 2 + 2 * at))
}

fn router() -> Result<Machine> {
    let mut machine = Machine::new();
    machine.add_device(Device::new("in").address("10.0.0.1/24".parse()?))?;
    let left = Device::new("left").address("192.0.2.1/24".parse()?);
    let (left, _) = machine.add_pair(left, Device::new("right").namespace(1))?;
    machine.add_device(Device::new("out").namespace(1))?;
    machine.add_neighbour(left, "192.0.2.9".parse()?, MacAddr([2, 9, 9, 9, 9, 9]))?;
    Ok(machine)
}

/// The other routes are to networks all over the address space.
fn large_router() -> Result<Machine> {
    let mut machine = router()?;
    let left = machine.device_named("left")?.index;
    for number in 0..OTHERS {
        let address = Ipv4Addr::from_bits(u32::MAX / OTHERS * number);
        machine.add_route(Route::new(Ipv4Net::new(address, 24)?.trunc().into(), left).metric(1))?;
        machine.add_neighbour(left, address.into(), MacAddr([2; 6]))?;
    }
    Ok(machine)
}

fn program(runtime: &Runtime, name: &str, kind: &str, text: &str) -> Result<Program> {
    let kind = ProgramType::from_name(kind).ok_or("no such type")?;
    let object = Object::from_insns(name, kind, skep::isa::assemble(text)?);
    Ok(runtime.load(&object)?.programs()[0].clone())
}

fn redirects(runtime: &Runtime, _: &World) -> Result<Vec<(Program, u32, Place)>> {
    let one = |(at, to)| {
        let text = format!("r1 = {to}\nr2 = 0\ncall redirect#23\nexit");
        Ok((program(runtime, "redirects", "xdp", &text)?, at, Place::Xdp))
    };
    places().map(one).collect()
}

fn attached(runtime: &Runtime, _: &World) -> Result<Vec<(Program, u32, Place)>> {
    let one = |at| {
        let result = if at + 1 < PROGRAMS { 2 } else { 3 };
        Ok((program(runtime, "passes", "xdp", &format!("r0 = {result}\nexit"))?, 1, Place::Xdp))
    };
    (0..PROGRAMS).map(one).collect()
}

fn devmaps(runtime: &Runtime, _: &World) -> Result<Vec<(Program, u32, Place)>> {
    let text = "r1 = map[0] ll\nr2 = 0\nr3 = 0\ncall redirect_map#51\nexit";
    let bytes = skep::isa::encode_bytes(&skep::isa::assemble(text)?)?;
    let xdp = ProgramType::from_name("xdp").ok_or("no such type")?;
    let one = |(at, to): (u32, u32)| {
        let map = MapDef::new("ports", MapKind::Devmap, 4, 4, 1);
        let object = Object::from_bytecode_and_maps("sends", xdp, &bytes, vec![map])?;
        let module = runtime.load(&object)?;
        module.maps()[0].update(&0u32.to_ne_bytes(), &to.to_ne_bytes(), UpdateFlags::Any)?;
        Ok((module.programs()[0].clone(), at, Place::Xdp))
    };
    places().map(one).collect()
}

fn routed(runtime: &Runtime, _: &World) -> Result<Vec<(Program, u32, Place)>> {
    Ok(vec![
        (program(runtime, "early", "xdp", "r0 = 2\nexit")?, 1, Place::Xdp),
        (program(runtime, "ingress", "tc", "r0 = 0\nexit")?, 1, Place::Ingress),
        (program(runtime, "egress", "tc", "r0 = 0\nexit")?, 2, Place::Egress),
        (program(runtime, "behind", "xdp", "r1 = 4\nr2 = 0\ncall redirect#23\nexit")?, 3, Place::Xdp),
    ])
}

impl Chain {
    fn new(machine: fn() -> Result<Machine>, make: Make) -> Result<Self> {
        let world = World::new(machine()?);
        let runtime = Runtime::builder().world(&world).build()?;
        let (mut programs, mut links) = (Vec::new(), Vec::new());
        for (program, device, place) in make(&runtime, &world)? {
            links.push(world.attach(&program, device, place)?);
            programs.push(program);
        }
        let mut chain = Self { world, programs, device: 1, last: 0, _links: links };
        let trace = chain.world.inject(chain.device, &mut Packet::new(&frame()))?;
        let Fate::Sent { device } = trace.fate else { return Err(format!("ended: {trace:?}").into()) };
        chain.last = device;
        if trace.hops.len() != PROGRAMS {
            return Err(format!("it met {} programs", trace.hops.len()).into());
        }
        Ok(chain)
    }

    /// Sends packets, which must all arrive.
    fn check(&self, packets: u32) -> Result<()> {
        let (mut injector, mut trace) = (self.world.injector(), Trace::default());
        let (bytes, mut packet) = (frame(), Packet::new(&[]));
        for number in 0..packets {
            packet.set(&bytes);
            injector.inject(self.device, &mut packet, &mut trace)?;
            if trace.fate != (Fate::Sent { device: self.last }) || trace.hops.len() != PROGRAMS {
                return Err(format!("packet {number} ended elsewhere: {trace:?}").into());
            }
        }
        Ok(())
    }

    fn by_world(&self) -> Batched<impl FnMut() + use<>> {
        let (mut injector, mut trace) = (self.world.injector(), Trace::default());
        let (device, bytes, mut packet) = (self.device, frame(), Packet::new(&[]));
        Batched::new(BATCH, move || {
            packet.set(&bytes);
            // It has been done before: what could fail has not.
            let _ = std::hint::black_box(injector.inject(device, &mut packet, &mut trace));
        })
    }

    fn by_host(&self) -> Batched<impl FnMut() + use<>> {
        let (programs, bytes, mut packet) = (self.programs.clone(), frame(), Packet::new(&[]));
        Batched::new(BATCH, move || {
            packet.set(&bytes);
            for program in &programs {
                let _ = std::hint::black_box(program.run(&mut packet));
            }
        })
    }
}

/// A datagram for another network.
fn frame() -> Vec<u8> {
    let (from, to) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(192, 0, 2, 9));
    let inner = udp((IpAddr::V4(from), 1000), (IpAddr::V4(to), 53), b"a question");
    let header = Ipv4 { protocol: protocol::UDP, ttl: 64, id: 1, fragment: 0, options: &[] };
    ethernet([2, 0, 0, 0, 0, 1], [6; 6], &[], ethertype::IPV4, &ipv4(from, to, header, &inner))
}

/// Runs the benchmark.
///
/// # Errors
///
/// A chain cannot be made, or a packet does not arrive.
pub(crate) fn run(args: &Args, common: Common) -> Result<Report> {
    let (rounds, placements, packets) = if common.quick {
        (args.rounds.min(2), 1, args.packets.min(1000))
    } else {
        (args.rounds, args.placements, args.packets)
    };
    let kinds = CHAINS.iter().filter(|(name, ..)| args.chain.as_ref().is_none_or(|chain| chain == name));
    let kinds: Vec<&Kind> = kinds.collect();
    let (mut by_world, mut by_host, mut chains) = (Vec::new(), Vec::new(), Vec::new());
    for placement in 0..placements {
        for (name, machine, make) in &kinds {
            let chain = Chain::new(*machine, *make)?;
            if placement == 0 {
                progress(format!("{packets} packets through {name}"));
                chain.check(packets)?;
            }
            by_world.push(chain.by_world());
            by_host.push(chain.by_host());
            chains.push(chain);
        }
    }
    for round in 0..rounds {
        if round % 100 == 0 {
            progress(format!("round {} of {rounds}", round + 1));
        }
        for (world, host) in by_world.iter_mut().zip(&mut by_host) {
            world.turn();
            host.turn();
        }
    }
    let best = |times: &[f64]| sorted(times.iter().copied())[0];
    let rows: Vec<Value> = (0..kinds.len())
        .map(|chain| {
            let of = |at: usize| (best(&by_world[at].times), best(&by_host[at].times));
            let places: Vec<_> = (chain..by_world.len()).step_by(kinds.len()).map(of).collect();
            let world = median(places.iter().map(|(world, _)| *world));
            let host = median(places.iter().map(|(_, host)| *host));
            let hops = sorted(places.iter().map(|(world, host)| (world - host) / PROGRAMS as f64));
            json!({
                "chain": kinds[chain].0, "ns_world": world, "ns_host": host, "ns_hop": median(hops.iter().copied()),
                "ns_hop_best_placement": hops[0], "ns_hop_worst_placement": hops[hops.len() - 1],
                "packets_checked": packets,
            })
        })
        .collect();
    let targets = rows.iter().map(|row| {
        let name = format!("a hop of {}", row["chain"].as_str().unwrap_or_default());
        Target::at_most(name, "ns", WANTED, row["ns_hop"].as_f64().unwrap_or(f64::NAN))
    });
    let targets = targets.collect();
    let summary = format!("ns, best of {rounds} rounds, median of {placements} placements");
    let mut report = Report::new("world", summary);
    report.fields(json!({"rounds": rounds, "placements": placements}));
    let columns = "chain; packet by the world = ns_world:1; by the host = ns_host:1; a hop more = ns_hop:1; \
                   best placement = ns_hop_best_placement:1; worst = ns_hop_worst_placement:1";
    report.table("rows", "chains of four programs", &rows, columns);
    Ok(report.targets(targets))
}
