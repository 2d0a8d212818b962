"""The same firewall with packets of scapy: `pip install skep pytest scapy`, then `pytest`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import skep

pytest.importorskip("scapy")

from scapy.layers.inet import IP, TCP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.l2 import Dot1Q, Ether  # noqa: E402
from scapy.packet import Packet, Raw  # noqa: E402

ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
CLIENT = IP(src="203.0.113.5", dst="10.1.0.1")


@pytest.mark.parametrize(
    ("packet", "verdict"),
    [
        (ETHERNET / CLIENT / TCP(dport=80), "pass"),
        (ETHERNET / CLIENT / TCP(dport=23), "drop"),
        (ETHERNET / CLIENT / TCP(dport=80, flags="SF"), "drop"),
        (ETHERNET / Dot1Q(vlan=7) / CLIENT / UDP(dport=1900) / Raw(b"M-SEARCH"), "drop"),
        (ETHERNET / IPv6(src="2001:db8::5", dst="2001:db8::1") / UDP(dport=53), "pass"),
        (ETHERNET / IPv6(src="2001:db8:bad::5", dst="2001:db8::1") / UDP(dport=53), "drop"),
    ],
    ids=lambda value: value.summary() if isinstance(value, Packet) else value,
)
def test_verdicts(skep_load: Callable[..., skep.Module], packet: object, verdict: str) -> None:
    result = skep_load("../firewall.bpf.o").programs["firewall"].run(packet)
    assert result.verdict.name == verdict
    assert not result.changed
