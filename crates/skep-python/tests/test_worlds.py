"""Worlds: packets on their way through a machine."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from conftest import EXAMPLES, OBJECT, PACKET

import skep

WORLD = """
clock = "5s"

[[device]]
name = "eth0"
mac = "02:00:00:00:00:50"
addresses = ["203.0.113.80/24"]

[[device]]
name = "eth1"
addresses = ["10.1.0.254/24"]

[[neighbour]]
device = "eth1"
address = "10.1.0.1"
mac = "02:00:00:00:01:01"
"""


def frame(source: str, port: int) -> bytes:
    """A UDP datagram to 10.1.0.1."""
    ethernet = bytes.fromhex("020000000050 020000000099 0800")
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address("10.1.0.1").packed
    ip = bytearray(bytes.fromhex("4500001c 00000000 40110000") + addresses)
    total = sum(int.from_bytes(ip[at : at + 2], "big") for at in range(0, 20, 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    ip[10:12] = (~total & 0xFFFF).to_bytes(2, "big")
    return ethernet + bytes(ip) + (1000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes.fromhex("00080000")


def test_a_packet_goes_its_whole_way() -> None:
    world = skep.World.from_toml(WORLD)
    module = skep.load(EXAMPLES / "firewall.bpf.o", world=world)
    with world.attach(module.programs["firewall"], "eth0"):
        passed = world.inject(frame("203.0.113.5", 53), "eth0")
        dropped = world.inject(frame("203.0.113.5", 1900), "eth0")
    assert passed.fate == "sent" and passed.end.device == "eth1"
    assert passed.packet[:6] == bytes.fromhex("020000000101")
    (hop,) = passed.hops
    assert (hop.program, hop.device, hop.place, hop.verdict.name) == ("firewall", "eth0", "xdp", "pass")
    assert dropped.fate == "dropped" and dropped.end.text == "dropped by firewall: drop"
    assert str(dropped).startswith("eth0 xdp: firewall drop")
    # The first device, without the program.
    assert world.inject(frame("203.0.113.5", 1900)).hops == ()
    assert module.variables["frames_seen"] == 2


def test_a_link_lasts_as_long_as_its_object() -> None:
    world = skep.World.from_toml(WORLD)
    module = skep.load(EXAMPLES / "firewall.bpf.o", world=world)
    link = world.attach(module.programs["firewall"])
    assert len(world.inject(frame("203.0.113.5", 53)).hops) == 1
    link.detach()
    link.detach()
    assert world.inject(frame("203.0.113.5", 53)).hops == ()


def test_traffic_control_sees_packets_too() -> None:
    world = skep.World.from_toml(WORLD)
    module = skep.load(EXAMPLES / "flows.bpf.o", world=world)
    (program,) = module.programs.values()
    with world.attach(program, "eth0"), world.attach(program, 2, "egress"):
        trace = world.inject(frame("203.0.113.5", 53))
    assert [(hop.device, hop.place) for hop in trace.hops] == [("eth0", "ingress"), ("eth1", "egress")]
    assert len(module.maps["flows"]) == 1


def test_the_clock_is_the_worlds() -> None:
    world = skep.World.from_toml(WORLD)
    assert world.now == 5_000_000_000
    assert world.step(1.5) == 0
    assert world.now == 6_500_000_000
    with pytest.raises(skep.WorldError, match="clock"):
        skep.World.from_toml('[[device]]\nname = "a"').step(1)


def test_a_step_within_a_step_is_an_error() -> None:
    world = skep.World.from_toml(WORLD)
    seen: list[object] = []

    def log(program: str, message: str) -> None:
        with pytest.raises(skep.WorldError, match="another step is in progress"):
            world.step(1)
        seen.append((message, world.now))

    module = skep.Runtime(cpus=2, world=world, log=log).load(OBJECT.with_name("ticks.bpf.o"))
    assert module.programs["winds"].run(PACKET).verdict.name == "pass"
    assert world.step(1) == 1
    assert seen == [("tick", 5_000_001_000)]
    assert world.now == 6_000_000_000


def test_errors_name_the_part(tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text("[[device]]\nnames = 5")
    with pytest.raises(skep.WorldError, match=r"(?s)world.toml: .*names"):
        skep.World.open(path)
    world = skep.World.from_toml(WORLD)
    module = skep.load(EXAMPLES / "firewall.bpf.o", world=world)
    firewall = module.programs["firewall"]
    with pytest.raises(skep.WorldError, match="eth7"):
        world.attach(firewall, "eth7")
    with pytest.raises(ValueError, match="no place 'roof'; it has: xdp, ingress"):
        world.attach(firewall, "eth0", "roof")
    with pytest.raises(skep.WorldError, match="does not fit"):
        world.attach(firewall, "eth0", "egress")
    stranger = skep.load(EXAMPLES / "firewall.bpf.o").programs["firewall"]
    with pytest.raises(skep.WorldError, match="does not see this world"):
        world.attach(stranger)
    with pytest.raises(skep.WorldError, match="no devices"):
        skep.World.from_toml("").inject(b"")


def test_devices_are_listed() -> None:
    world = skep.World.open(EXAMPLES / "network.toml")
    assert list(world.devices) == ["eth0", "eth1"]
    assert world.devices["eth0"].mac == "02:00:00:00:00:50"
    assert "10.1.0.254/24" in world.devices["eth1"].addresses
    assert repr(world) == "<skep.World with eth0, eth1>"
