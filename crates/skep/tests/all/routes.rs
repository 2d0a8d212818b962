//! Programs that ask the world's machine where packets go, in both engines.

use skep::abi::ProgramType;
use skep::isa::assemble;
use skep::world::{Clock, Device, Machine, Random, Route, RouteKind, World};
use skep::{Engine, Module, Object, Packet, Redirect, Runtime};
use std::net::IpAddr;
use std::time::Duration;

const ENGINES: [Engine; 2] = [Engine::Jit, Engine::Interpreter];
/// The size of `struct bpf_fib_lookup` in bytes.
const PARAMS: usize = 64;

fn load(world: &World, program_type: &str, text: &str) -> Module {
    let runtime = Runtime::builder().world(world).build().unwrap();
    let insns = assemble(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    runtime.load(&Object::from_insns("p", ProgramType::from_name(program_type).unwrap(), insns)).unwrap()
}

/// `lan` (1) 10.0.0.1/24 and fd00::1/64, `wan` (2) 192.0.2.1/24 with a default route through 192.0.2.254.
fn router() -> World {
    let mut machine = Machine::new();
    let lan =
        Device::new("lan").address("10.0.0.1/24".parse().unwrap()).address("fd00::1/64".parse().unwrap());
    machine.add_device(lan).unwrap();
    let wan = Device::new("wan").address("192.0.2.1/24".parse().unwrap()).mtu(1400);
    let wan = machine.add_device(wan).unwrap();
    let gateway: IpAddr = "192.0.2.254".parse().unwrap();
    machine.add_route(Route::new("0.0.0.0/0".parse().unwrap(), wan).via(gateway).metric(7)).unwrap();
    let forbidden = Route::new("203.0.113.0/24".parse().unwrap(), wan).kind(RouteKind::Prohibit);
    machine.add_route(forbidden).unwrap();
    machine.add_neighbour(wan, gateway, "02:00:00:00:00:fe".parse().unwrap()).unwrap();
    World::new(machine)
}

/// Looks up with the parameters in the packet, which it replaces by the answer. Returns the status.
fn lookup(flags: u64) -> String {
    let words = (0..PARAMS).step_by(8);
    let inward: String = words
        .clone()
        .map(|at| format!("r1 = *(u64 *)(r7 + {at})\n*(u64 *)(r10 - {}) = r1\n", PARAMS - at))
        .collect();
    let outward: String =
        words.map(|at| format!("r1 = *(u64 *)(r10 - {})\n*(u64 *)(r7 + {at}) = r1\n", PARAMS - at)).collect();
    format!(
        "r6 = r1
         r7 = *(u32 *)(r6 + 0)
         r8 = *(u32 *)(r6 + 4)
         r1 = r7
         r1 += {PARAMS}
         if r1 > r8 goto short
         {inward}
         r1 = r6
         r2 = r10
         r2 += -{PARAMS}
         r3 = {PARAMS}
         r4 = {flags}
         call fib_lookup#69
         {outward}
         exit
         short:
         r0 = -1
         exit"
    )
}

fn question(device: u32, length: u16, source: &str, destination: &str) -> [u8; PARAMS] {
    let mut bytes = [0; PARAMS];
    bytes[6..8].copy_from_slice(&length.to_ne_bytes());
    bytes[8..12].copy_from_slice(&device.to_ne_bytes());
    for (at, text) in [(16, source), (32, destination)] {
        match text.parse().unwrap() {
            IpAddr::V4(v4) => {
                bytes[0] = 2;
                bytes[at..at + 4].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                bytes[0] = 10;
                bytes[at..at + 16].copy_from_slice(&v6.octets());
            }
        }
    }
    bytes
}

#[test]
fn a_route_is_found_with_device_gateway_and_ethernet_addresses() {
    let world = router();
    let module = load(&world, "xdp", &lookup(0));
    for engine in ENGINES {
        let mut packet = Packet::new(&question(1, 0, "10.0.0.9", "198.51.100.7"));
        assert_eq!(module.programs()[0].run_with(engine, &mut packet).unwrap(), 0);
        let answer = packet.bytes();
        assert_eq!(answer[8..12], 2u32.to_ne_bytes(), "the device");
        assert_eq!(answer[12..16], 7u32.to_ne_bytes(), "the metric");
        assert_eq!(answer[32..36], [192, 0, 2, 254], "the gateway");
        assert_eq!(answer[52..58], world.machine().device(2).unwrap().mac.0);
        assert_eq!(answer[58..64], [2, 0, 0, 0, 0, 0xfe]);
    }
}

#[test]
fn each_reason_not_to_forward_has_its_status() {
    let world = router();
    let module = load(&world, "xdp", &lookup(0));
    let cases: [(u32, u16, &str, &str, i64); 7] = [
        (1, 0, "10.0.0.9", "203.0.113.1", 3),
        (1, 0, "10.0.0.9", "10.0.0.1", 4),
        (1, 0, "fd00::9", "2001:db8::1", 4),
        (1, 0, "10.0.0.9", "10.0.0.77", 7),
        (1, 1401, "10.0.0.9", "198.51.100.7", 8),
        (1, 1400, "10.0.0.9", "198.51.100.7", 0),
        (9, 0, "10.0.0.9", "198.51.100.7", -19),
    ];
    for (device, length, source, destination, status) in cases {
        for engine in ENGINES {
            let asked = question(device, length, source, destination);
            let mut packet = Packet::new(&asked);
            let result = module.programs()[0].run_with(engine, &mut packet).unwrap() as i64;
            assert_eq!(result, status, "{destination} from device {device} with {length} bytes");
            if status < 0 {
                assert_eq!(packet.bytes(), asked, "an error leaves the parameters");
            }
            if length > 0 {
                assert_eq!(packet.bytes()[6..8], 1400u16.to_ne_bytes(), "the MTU");
            }
        }
    }
    let mut other_family = question(1, 0, "10.0.0.9", "198.51.100.7");
    other_family[0] = 1;
    let status = module.programs()[0].run(&mut Packet::new(&other_family)).unwrap() as i64;
    assert_eq!(status, -97);
    let unknown_flag = load(&world, "xdp", &lookup(1 << 6));
    let mut packet = Packet::new(&question(1, 0, "10.0.0.9", "198.51.100.7"));
    assert_eq!(unknown_flag.programs()[0].run(&mut packet).unwrap() as i64, -22);
}

#[test]
fn programs_see_a_change_of_the_machine_at_once() {
    let world = router();
    let module = load(&world, "xdp", &lookup(0));
    let status =
        || module.programs()[0].run(&mut Packet::new(&question(1, 0, "10.0.0.9", "10.0.0.77"))).unwrap();
    assert_eq!(status(), 7);
    let mac = "02:00:00:00:00:77".parse().unwrap();
    world.change(|machine| machine.add_neighbour(1, "10.0.0.77".parse().unwrap(), mac)).unwrap();
    assert_eq!(status(), 0);
    let failed = world.change(|machine| {
        machine.remove_neighbour(1, "10.0.0.77".parse().unwrap());
        machine.add_device(Device::new("lan"))
    });
    assert!(failed.is_err());
    assert_eq!(status(), 0, "a change that fails leaves the machine as it was");
}

#[test]
fn redirections_are_recorded_where_the_flags_are_known() {
    let world = World::new(Machine::new());
    let redirect = |flags: u64| format!("r1 = 3\nr2 = {flags}\ncall redirect#23\nexit");
    let to = |ingress| Some(Redirect::Device { index: 3, ingress });
    let cases = [
        ("xdp", redirect(0), 4, to(false)),
        ("xdp", redirect(1), 0, None),
        ("tc", redirect(0), 7, to(false)),
        ("tc", redirect(1), 7, to(true)),
        ("tc", redirect(2), 2, None),
        ("tc", "r1 = 3\nr2 = 0\ncall redirect_peer#155\nexit".into(), 7, Some(Redirect::Peer { index: 3 })),
        ("tc", "r1 = 3\nr2 = 1\ncall redirect_peer#155\nexit".into(), 2, None),
    ];
    for (program_type, text, result, redirect) in cases {
        let module = load(&world, program_type, &text);
        for engine in ENGINES {
            let outcome = module.programs()[0].outcome_with(engine, &mut Packet::new(&[0; 60])).unwrap();
            assert_eq!((outcome.result, outcome.redirect), (result, redirect), "{program_type}: {text}");
        }
    }
}

#[test]
fn a_redirection_of_the_run_before_is_forgotten() {
    // Redirects only if the mark is not 0, but says so always.
    let text = "r6 = *(u32 *)(r1 + 8)
                if r6 == 0 goto out
                r1 = 3
                r2 = 0
                call redirect#23
                out:
                r0 = 7
                exit";
    let module = load(&World::new(Machine::new()), "tc", text);
    let mut packet = Packet::new(&[0; 60]);
    packet.info.mark = 1;
    let outcome = module.programs()[0].outcome(&mut packet).unwrap();
    assert_eq!(outcome.redirect, Some(Redirect::Device { index: 3, ingress: false }));
    packet.info.mark = 0;
    assert_eq!(module.programs()[0].outcome(&mut packet).unwrap().redirect, None);
}

#[test]
fn a_next_hop_is_read_by_its_family() {
    let program = |family: u32, size: u64| {
        format!(
            "r1 = {family}
             *(u32 *)(r10 - 24) = r1
             r1 = 0x070200c0
             *(u32 *)(r10 - 20) = r1
             r1 = 0
             *(u32 *)(r10 - 16) = r1
             *(u32 *)(r10 - 12) = r1
             *(u32 *)(r10 - 8) = r1
             r1 = 2
             r2 = r10
             r2 += -24
             r3 = {size}
             r4 = 0
             call redirect_neigh#152
             exit"
        )
    };
    let neighbour = |next_hop: Option<&str>| {
        Some(Redirect::Neighbour { index: 2, next_hop: next_hop.map(|text| text.parse().unwrap()) })
    };
    let cases = [
        (program(2, 20), neighbour(Some("192.0.2.7"))),
        (program(10, 20), neighbour(Some("c000:207::"))),
        (program(1, 20), neighbour(None)),
        (program(2, 16), None),
    ];
    for (text, redirect) in cases {
        let module = load(&router(), "tc", &text);
        for engine in ENGINES {
            let outcome = module.programs()[0].outcome_with(engine, &mut Packet::new(&[0; 60])).unwrap();
            assert_eq!(outcome.redirect, redirect, "{text}");
        }
    }
}

#[test]
fn copies_are_taken_when_they_are_made() {
    let text = "r6 = r1
                r1 = 5
                *(u32 *)(r6 + 8) = r1       // the mark
                r1 = r6
                r2 = 2
                r3 = 0
                call clone_redirect#13
                r7 = r0
                r1 = r6
                r2 = 9                      // there is no such device
                r3 = 0
                call clone_redirect#13
                r8 = r0
                r1 = 6
                *(u32 *)(r6 + 8) = r1
                r0 = r7
                r0 |= r8
                exit";
    let module = load(&router(), "tc", text);
    for engine in ENGINES {
        let mut packet = Packet::new(&[0xab; 60]);
        let outcome = module.programs()[0].outcome_with(engine, &mut packet).unwrap();
        assert_eq!(outcome.result as u32 as i32, -22);
        let [copy] = &outcome.clones[..] else { panic!("{:?}", outcome.clones) };
        assert_eq!(copy.to, Redirect::Device { index: 2, ingress: false });
        assert_eq!((copy.packet.bytes(), copy.packet.info.mark), (&[0xab; 60][..], 5));
        assert_eq!(packet.info.mark, 6);
    }
}

#[test]
fn lengths_are_compared_with_the_devices_mtu() {
    let program = |device: u32, length: u32, delta: i32, flags: u64| {
        format!(
            "r6 = {length}
             *(u32 *)(r10 - 8) = r6
             r2 = {device}
             r3 = r10
             r3 += -8
             r4 = {delta}
             r5 = {flags}
             call check_mtu#163
             r0 <<= 32
             r0 >>= 32
             r1 = *(u32 *)(r10 - 8)
             r1 <<= 16
             r0 += r1
             exit"
        )
    };
    let mtu = 1400u64 << 16;
    let cases = [
        (program(2, 0, 0, 0), mtu),    // 60 bytes
        (program(2, 0, 1354, 0), mtu), // 1414 with the header
        (program(2, 0, 1355, 0), mtu + 1),
        (program(2, 1400, 0, 0), mtu),
        (program(2, 1400, 1, 0), mtu + 1),
        (program(2, 1500, -100, 0), mtu),
        (program(9, 7, 0, 0), (7 << 16) + u64::from(-19i32 as u32)),
        (program(2, 7, 0, 2), (7 << 16) + u64::from(-22i32 as u32)),
    ];
    for program_type in ["xdp", "tc"] {
        for (text, expected) in &cases {
            let module = load(&router(), program_type, text);
            for engine in ENGINES {
                let result = module.programs()[0].run_with(engine, &mut Packet::new(&[0; 60])).unwrap();
                assert_eq!(result as u32, *expected as u32, "{program_type}: {text}");
            }
        }
    }
}

#[test]
fn time_and_random_numbers_are_the_worlds() {
    let world = || {
        let clock = Clock::stepped(Duration::from_nanos(1000));
        World::with(Machine::new(), clock, Random::seeded(7))
    };
    for helper in [5, 125, 160, 208] {
        let world = world();
        let module = load(&world, "xdp", &format!("call {helper}\nexit"));
        let now = || module.programs()[0].run(&mut Packet::new(&[0; 14])).unwrap();
        assert_eq!((now(), now()), (1000, 1000));
        world.clock().step(Duration::from_nanos(234));
        assert_eq!(now(), 1234);
    }
    let numbers = || {
        let module = load(&world(), "xdp", "call 7\nexit");
        let draw = |engine| module.programs()[0].run_with(engine, &mut Packet::new(&[0; 14])).unwrap();
        [draw(Engine::Jit), draw(Engine::Interpreter), draw(Engine::Jit)]
    };
    assert_eq!(numbers(), numbers());
    assert_ne!(numbers()[0], numbers()[1]);
}

#[test]
fn a_loop_of_copies_does_not_take_the_hosts_memory() {
    let text = "r6 = r1
                r7 = 0
                again:
                r1 = r6
                r2 = 2
                r3 = 0
                call clone_redirect#13
                r8 = r0
                r7 += 1
                if r7 < 300 goto again
                r0 = r8
                exit";
    let module = load(&router(), "tc", text);
    for engine in ENGINES {
        let outcome = module.programs()[0].outcome_with(engine, &mut Packet::new(&[0; 60])).unwrap();
        assert_eq!((outcome.clones.len(), outcome.result as u32 as i32), (256, -12));
    }
}
