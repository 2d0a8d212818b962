//! Programs over a map of targets at index 0, which they redirect to by the packet's first byte.

use super::*;
use skep::abi::{MapDef, MapKind};
use skep::isa::encode_bytes;
use skep::{Engine, MapError, Module, Redirect, TargetMap, UpdateFlags};

fn redirects(flags: u64) -> String {
    format!(
        "r2 = *(u32 *)(r1 + 0)
         r3 = *(u32 *)(r1 + 4)
         r4 = r2
         r4 += 1
         r0 = 0
         if r4 > r3 goto out
         r2 = *(u8 *)(r2 + 0)
         r1 = map[0] ll
         r3 = {flags}
         call redirect_map#51
         out:
         exit"
    )
}

fn load(runtime: &Runtime, def: MapDef, text: &str) -> Module {
    let bytes = encode_bytes(&assemble(text).unwrap_or_else(|e| panic!("{e}"))).unwrap();
    let xdp = ProgramType::from_name("xdp").unwrap();
    let object = Object::from_bytecode_and_maps("sends", xdp, &bytes, vec![def]).unwrap();
    runtime.load(&object).unwrap()
}

fn devices(kind: MapKind) -> MapDef {
    MapDef::new("ports", kind, 4, 8, 8)
}

fn put(module: &Module, key: u32, value: &[u8]) -> Result<(), MapError> {
    module.maps()[0].update(&key.to_ne_bytes(), value, UpdateFlags::Any)
}

fn words(first: u32, second: u32) -> Vec<u8> {
    [first.to_ne_bytes(), second.to_ne_bytes()].concat()
}

fn packet(first: u8) -> Packet {
    let mut bytes = [0; 60];
    bytes[0] = first;
    Packet::new(&bytes)
}

#[test]
fn a_map_of_cpus_without_a_capacity_gets_one_element_for_each() {
    let runtime = Runtime::builder().cpus(5).build().unwrap();
    let cpus = |entries| MapDef::new("cpus", MapKind::Cpumap, 4, 8, entries);
    let entries = |def| load(&runtime, def, &redirects(2)).maps()[0].def().max_entries;
    assert_eq!((entries(cpus(0)), entries(cpus(3))), (5, 3));
}

#[test]
fn elements_lead_to_devices_and_empty_ones_to_the_verdict_in_the_flags() {
    for kind in [MapKind::Devmap, MapKind::DevmapHash] {
        for engine in [Engine::Jit, Engine::Interpreter] {
            let net = Net::new(router());
            let module = load(&net.runtime, devices(kind), &redirects(2));
            put(&module, 3, &words(2, 0)).unwrap();
            let run = |first| {
                let outcome = module.programs()[0].outcome_with(engine, &mut packet(first)).unwrap();
                (outcome.verdict, outcome.redirect)
            };
            let to_wan = (Some("redirect"), Some(Redirect::Device { index: 2, ingress: false }));
            assert_eq!(run(3), to_wan);
            assert_eq!(run(4), (Some("pass"), None));
            assert_eq!(run(200), (Some("pass"), None), "beyond the end");
            module.maps()[0].delete(&3u32.to_ne_bytes()).unwrap();
            assert_eq!(run(3), (Some("pass"), None));
            let wrong = load(&net.runtime, devices(kind), &redirects(1 << 7));
            put(&wrong, 3, &words(2, 0)).unwrap();
            let outcome = wrong.programs()[0].outcome_with(engine, &mut packet(3)).unwrap();
            assert_eq!((outcome.verdict, outcome.redirect), (Some("aborted"), None));
        }
    }
}

#[test]
fn a_packet_leaves_by_all_devices_of_a_map_but_its_own() {
    for kind in [MapKind::Devmap, MapKind::DevmapHash] {
        let net = Net::new(router());
        net.world.change(|machine| machine.add_device(Device::new("third"))).unwrap();
        let module = load(&net.runtime, devices(kind), &redirects(8 | 16));
        for device in 1..=3 {
            put(&module, device, &words(device, 0)).unwrap();
        }
        let _link = net.world.attach(&module.programs()[0], "wan", Place::Xdp).unwrap();
        let trace = net.inject("wan", &mut packet(0));
        let mut fates = vec![trace.fate.clone()];
        fates.extend(trace.copies.iter().map(|copy| copy.fate.clone()));
        fates.sort_by_key(|fate| format!("{fate:?}"));
        assert_eq!(fates, [Fate::Sent { device: 1 }, Fate::Sent { device: 3 }]);
        let mut outcome = module.programs()[0].outcome(&mut packet(0)).unwrap();
        outcome.devices.sort_unstable();
        assert_eq!((outcome.redirect, outcome.devices), (Some(Redirect::Devices), vec![1, 2, 3]));
    }
}

/// Writes the index of the sending interface into the packet, and returns the verdict in its second byte.
const MARKS: &str = "r2 = *(u32 *)(r1 + 0)
    r3 = *(u32 *)(r1 + 4)
    r5 = *(u32 *)(r1 + 20)
    r4 = r2
    r4 += 4
    r0 = 0
    if r4 > r3 goto out
    *(u8 *)(r2 + 2) = r5
    r0 = *(u8 *)(r2 + 1)
    out:
    exit";

fn at_section(runtime: &Runtime, section: &str, text: &str) -> Program {
    let kind = ProgramType::from_name(section).unwrap();
    let insns = assemble(text).unwrap();
    runtime.load(&Object::from_insns("behind", kind, insns)).unwrap().programs()[0].clone()
}

#[test]
fn a_targets_program_sees_the_device_and_decides() {
    for kind in [MapKind::Devmap, MapKind::DevmapHash] {
        let net = Net::new(router());
        let module = load(&net.runtime, devices(kind), &redirects(0));
        put(&module, 3, &words(2, 0)).unwrap();
        let behind = at_section(&net.runtime, "xdp/devmap", MARKS);
        let map = TargetMap::new(&module.maps()[0]).unwrap();
        map.set_program(3, &behind).unwrap();
        let _link = net.world.attach(&module.programs()[0], "lan", Place::Xdp).unwrap();
        let show = |second: u8| {
            let mut packet = packet(3);
            packet.bytes_mut()[1] = second;
            let trace = net.inject("lan", &mut packet);
            (trace.show(&net.world.machine()).to_string(), packet.bytes()[2])
        };
        let met = "lan xdp: sends redirect to wan\nwan devmap: behind ";
        assert_eq!(show(2), (format!("{met}pass\nsent by wan"), 2));
        assert_eq!(show(1), (format!("{met}drop\ndropped by behind: drop"), 2));
        assert_eq!(show(3), (format!("{met}tx\ndropped by behind: tx"), 2));
        // The program is the element's: another element, or a new one, does not have it.
        put(&module, 3, &words(2, 0)).unwrap();
        assert_eq!(show(2).0, "lan xdp: sends redirect to wan\nsent by wan");
        map.set_program(3, &behind).unwrap();
        drop(behind);
        assert_eq!(
            show(2).0,
            "lan xdp: sends redirect to wan\ndropped: the program of the target on wan is gone"
        );
        // A new program does not take the number of one that is gone.
        let other = at_section(&net.runtime, "xdp/devmap", "r0 = 2\nexit");
        put(&module, 4, &words(2, 0)).unwrap();
        map.set_program(4, &other).unwrap();
        assert!(show(2).0.ends_with("is gone"));
    }
}

#[test]
fn another_cpu_goes_on_with_the_packet() {
    let net = Net::new(router());
    let def = MapDef::new("cpus", MapKind::Cpumap, 4, 8, 4);
    let module = load(&net.runtime, def, &redirects(1));
    put(&module, 3, &words(192, 0)).unwrap();
    let _link = net.world.attach(&module.programs()[0], "lan", Place::Xdp).unwrap();
    let show = |second: u8| {
        let mut packet = packet(3);
        packet.bytes_mut()[1] = second;
        net.inject("lan", &mut packet).show(&net.world.machine()).to_string()
    };
    let ignored = "delivered on lan"; // to a group of stations
    assert_eq!(show(0), format!("lan xdp: sends redirect to CPU 3\n{ignored}"));
    let behind = at_section(&net.runtime, "xdp/cpumap", &MARKS.replace("r5 = *(u32 *)(r1 + 20)", "r5 = 0"));
    let map = TargetMap::new(&module.maps()[0]).unwrap();
    map.set_program(3, &behind).unwrap();
    let met = "lan xdp: sends redirect to CPU 3\nlan cpumap: behind ";
    assert_eq!(show(2), format!("{met}pass\n{ignored}"));
    assert_eq!(show(1), format!("{met}drop\ndropped by behind: drop"));
    let early = at_section(&net.runtime, "xdp", "r0 = 2\nexit");
    let refused = map.set_program(3, &early).unwrap_err().to_string();
    assert!(refused.contains("programs of section xdp/cpumap"), "{refused}");
}

#[test]
fn a_socket_takes_the_packet() {
    let net = Net::new(router());
    let module = load(&net.runtime, MapDef::new("xsks", MapKind::Xskmap, 4, 4, 4), &redirects(2));
    put(&module, 3, &77u32.to_ne_bytes()).unwrap();
    assert_eq!(module.maps()[0].lookup(&3u32.to_ne_bytes()).unwrap(), Some(77u32.to_ne_bytes().to_vec()));
    let _link = net.world.attach(&module.programs()[0], "lan", Place::Xdp).unwrap();
    assert_eq!(net.inject("lan", &mut packet(3)).fate, Fate::Socket { socket: 77 });
    assert_eq!(net.inject("lan", &mut packet(2)).fate, Fate::OtherHost { device: 1 });
}

#[test]
fn what_is_no_target_is_refused() {
    let net = Net::new(router());
    let refused = |def: MapDef, key: u32, value: &[u8]| {
        put(&load(&net.runtime, def, &redirects(0)), key, value).unwrap_err().to_string()
    };
    assert_eq!(
        refused(devices(MapKind::DevmapHash), 1, &words(0, 0)),
        "map `ports`: the value of key 01 00 00 00 is no target: a device's index is not 0, and a program is set by \
         itself"
    );
    assert!(refused(devices(MapKind::Devmap), 1, &words(2, 5)).contains("a program is set by itself"));
    assert!(refused(devices(MapKind::DevmapHash), 1, &words(2, 5)).contains("a program is set by itself"));
    assert!(refused(devices(MapKind::Devmap), 8, &words(2, 0)).contains("8"));
    let cpus = MapDef::new("cpus", MapKind::Cpumap, 4, 8, 4);
    assert!(refused(cpus.clone(), 1, &words(16385, 0)).contains("1 to 16384 packets"));
    let module = load(&net.runtime, cpus, &redirects(0));
    let map = TargetMap::new(&module.maps()[0]).unwrap();
    let behind = at_section(&net.runtime, "xdp/cpumap", "r0 = 2\nexit");
    assert!(map.set_program(1, &behind).is_err(), "an empty element has no program");
    let short = MapDef::new("ports", MapKind::Devmap, 4, 4, 8);
    let module = load(&net.runtime, short, &redirects(0));
    put(&module, 1, &2u32.to_ne_bytes()).unwrap();
    let behind = at_section(&net.runtime, "xdp/devmap", "r0 = 2\nexit");
    assert!(TargetMap::new(&module.maps()[0]).unwrap().set_program(1, &behind).is_err(), "no room");
    for (kind, key_size, value_size) in [
        (MapKind::Devmap, 4, 12),
        (MapKind::DevmapHash, 8, 4),
        (MapKind::Cpumap, 4, 2),
        (MapKind::Xskmap, 4, 8),
    ] {
        let def = MapDef::new("bad", kind, key_size, value_size, 4);
        assert!(skep::Map::create(&def, &skep::MapOptions { cpus: 1, limit: 1 << 20 }).is_err(), "{kind}");
    }
}

#[test]
fn programs_read_a_devices_element_and_cannot_write_it() {
    let net = Net::new(router());
    let text = |access: &str| {
        format!(
            "r1 = 3
             *(u32 *)(r10 - 4) = r1
             r1 = map[0] ll
             r2 = r10
             r2 += -4
             call map_lookup_elem#1
             if r0 == 0 goto none
             {access}
             exit
             none:
             r0 = 0
             exit"
        )
    };
    for kind in [MapKind::Devmap, MapKind::DevmapHash] {
        let module = load(&net.runtime, devices(kind), &text("r0 = *(u32 *)(r0 + 0)"));
        for engine in [Engine::Jit, Engine::Interpreter] {
            module.maps()[0].delete(&3u32.to_ne_bytes()).ok();
            let run = || module.programs()[0].run_with(engine, &mut packet(0)).unwrap();
            assert_eq!(run(), 0);
            put(&module, 3, &words(2, 0)).unwrap();
            assert_eq!(run(), 2);
        }
        let bytes = encode_bytes(&assemble(&text("r1 = 9\n*(u32 *)(r0 + 0) = r1\nr0 = 0")).unwrap()).unwrap();
        let xdp = ProgramType::from_name("xdp").unwrap();
        let object = Object::from_bytecode_and_maps("writes", xdp, &bytes, vec![devices(kind)]).unwrap();
        assert!(matches!(net.runtime.load(&object), Err(Error::Refused { .. })), "{kind}");
    }
}
