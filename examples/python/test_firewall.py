"""Tests of ../firewall.bpf.c in a few lines each: `pip install skep pytest`, then `pytest`."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable

import pytest

import skep

Load = Callable[..., skep.Module]

# The numbers of `enum reason`.
PASS_IPV4, DROP_TRUNCATED, DROP_ADDRESS4, DROP_PORT = 0, 4, 7, 9


def udp(source: str, port: int) -> bytes:
    """An Ethernet frame with an empty UDP datagram."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address("10.1.0.1").packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0) + addresses
    return ethernet + ip + struct.pack("!HHHH", 40000, port, 8, 0)


@pytest.fixture
def module(skep_load: Load) -> skep.Module:
    """The firewall, anew for each test."""
    return skep_load("../firewall.bpf.o")


@pytest.mark.parametrize(
    ("frame", "verdict", "reason"),
    [
        (udp("203.0.113.5", 53), skep.XDP.PASS, PASS_IPV4),
        (udp("203.0.113.5", 1900), skep.XDP.DROP, DROP_PORT),
        (udp("192.0.2.7", 53), skep.XDP.DROP, DROP_ADDRESS4),
        (udp("203.0.113.5", 53)[:20], skep.XDP.DROP, DROP_TRUNCATED),
    ],
    ids=["allowed", "port", "address", "short"],
)
def test_verdicts_are_counted_by_reason(
    module: skep.Module, frame: bytes, verdict: skep.XDP, reason: int
) -> None:
    assert module.programs["firewall"].run(frame).verdict == verdict
    totals = {key: value.total()["packets"] for key, value in module.maps["verdicts"].items()}
    assert totals == {key: int(key == reason) for key in totals}


def test_prefixes_are_blocked_while_it_runs(module: skep.Module) -> None:
    firewall, frame = module.programs["firewall"], udp("198.18.0.1", 53)
    assert firewall.run(frame).verdict.name == "pass"
    module.maps["blocked4"]["198.18.0.0/15"] = 1
    assert firewall.run(frame).verdict.name == "drop"
    del module.maps["blocked4"]["198.18.0.0/15"]
    assert firewall.run(frame).verdict.name == "pass"


def test_offenders_are_counted_unless_the_host_says_otherwise(module: skep.Module) -> None:
    firewall, offenders = module.programs["firewall"], module.maps["offenders"]
    firewall.run(udp("203.0.113.5", 1900), repeat=3)
    assert list(offenders.values()) == [3]
    offenders.clear()
    module.variables["track_offenders"] = 0
    firewall.run(udp("203.0.113.5", 1900))
    assert len(offenders) == 0


def test_a_constant_is_set_before_the_load(skep_load: Load) -> None:
    services = [{"protocol": 17, "port": int.from_bytes(struct.pack("!H", 53), "little")}]
    module = skep_load("../firewall.bpf.o", variables={"static_services": services})
    assert module.programs["firewall"].run(udp("203.0.113.5", 53)).verdict.name == "drop"


class TestInANetwork:
    """The firewall on a device: where do packets end?"""

    @pytest.fixture
    def skep_world(self) -> skep.World:
        """A machine with two devices."""
        from pathlib import Path

        return skep.World.open(Path(__file__).parents[1] / "network.toml")

    def test_what_passes_is_forwarded(self, module: skep.Module, skep_world: skep.World) -> None:
        with skep_world.attach(module.programs["firewall"], "eth0"):
            trace = skep_world.inject(udp("203.0.113.5", 1900), "eth0")
        assert trace.fate == "dropped"
        assert [hop.program for hop in trace.hops] == ["firewall"]
