//! `#[skep::test]` as a host's tests use it.

use skep::{Module, Packet, Runtime, World};
use std::time::Duration;

/// An Ethernet frame with an IPv4 UDP datagram.
fn frame() -> [u8; 42] {
    let mut frame = [0; 42];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..42].copy_from_slice(&[0x03, 0xe8, 0, 53, 0, 8, 0, 0]);
    frame
}

#[skep::test(object = "../../examples/firewall.bpf.o")]
fn a_test_gets_a_module(module: Module) {
    let firewall = module.program("firewall").unwrap();
    let verdict = firewall.run(&mut Packet::new(&frame())).unwrap();
    assert_eq!(firewall.program_type().verdict(verdict), Some("pass"));
    assert_eq!(module.variable("frames_seen").unwrap(), 1u64.to_ne_bytes());
}

#[skep::test(object = "../../examples/firewall.bpf.o")]
fn another_test_has_maps_of_its_own(module: Module) {
    assert_eq!(module.variable("frames_seen").unwrap(), 0u64.to_ne_bytes());
}

#[skep::test(object = "../../examples/flows.bpf.o")]
fn its_clock_moves_only_when_it_says_so(world: World, mut module: Module) -> Result<(), skep::Error> {
    let flows = module.program("account_flows").unwrap().clone();
    flows.run(&mut Packet::new(&frame()))?;
    world.step(Duration::from_millis(20));
    flows.run(&mut Packet::new(&frame()))?;
    module = module.clone();
    let (_, flow) = module.map("flows").unwrap().entries().next().unwrap();
    let words: Vec<u64> = flow.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words[2..4], [1_000_000_000, 1_020_000_000]);
    Ok(())
}

#[skep::test(object = "no such object")]
#[should_panic(expected = "no such object")]
fn a_missing_object_is_named(_runtime: Runtime) {}
