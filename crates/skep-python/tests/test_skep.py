"""The package as people use it, installed from its wheel."""

import asyncio
import pathlib
import select
import threading

import pytest

import skep

ROOT = pathlib.Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
TYPED = ROOT / "crates/skep/tests/objects/typed/typed.bpf.o"
OBJECTS = ROOT / "crates/skep-cli/tests/objects"


def udp(source=1000, destination=53, payload=b""):
    """An Ethernet frame with an IPv4 UDP datagram from 10.0.0.1 to 10.0.0.2."""
    length = 8 + len(payload)
    ip = bytes([0x45, 0]) + (20 + length).to_bytes(2, "big") + bytes([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
    ports = source.to_bytes(2, "big") + destination.to_bytes(2, "big")
    return bytes(12) + b"\x08\x00" + ip + ports + length.to_bytes(2, "big") + bytes(2) + payload


def test_a_packet_has_a_verdict_and_the_maps_say_why():
    module = skep.load(EXAMPLES / "firewall.bpf.o")
    outcome = module["firewall"].run(udp())
    assert (outcome.verdict, outcome.result, int(outcome)) == ("pass", 2, 2)
    assert outcome.data == udp() and not outcome.changed
    # The short one is no frame at all.
    assert module["firewall"].run(b"\x00" * 14).verdict in ("pass", "drop")
    counted = sum(sum(value.packets for value in of_cpus) for of_cpus in module.maps["verdicts"].values())
    assert counted == 2


def test_both_engines_agree():
    module = skep.load(EXAMPLES / "firewall.bpf.o")
    for port in range(0, 65536, 4099):
        packet = udp(destination=port)
        compiled, interpreted = (module["firewall"].run(packet, interpret=how) for how in (False, True))
        assert (compiled.verdict, compiled.data) == (interpreted.verdict, interpreted.data)


def test_scapys_packets_are_packets():
    scapy = pytest.importorskip("scapy.all", reason="scapy not found")
    module = skep.load(EXAMPLES / "flows.bpf.o")
    packet = scapy.Ether() / scapy.IP(src="10.0.0.1", dst="10.0.0.2") / scapy.UDP(sport=5, dport=6)
    module["account_flows"].run(packet)
    assert len(module.maps["flows"]) == 1


def test_a_map_is_a_mapping_of_structures():
    module = skep.load(EXAMPLES / "flows.bpf.o")
    flows = module.maps["flows"]
    assert (len(flows), flows.kind, flows.max_entries) == (0, "hash", 8192)
    for port in (1, 2, 2):
        module["account_flows"].run(udp(source=port))
    assert len(flows) == 2
    by_port = {key.source_port: value for key, value in flows.items()}
    assert sorted(value.packets for value in by_port.values()) == [1, 2]
    key = next(iter(flows))
    assert key in flows and flows[key].packets == flows[dict(key)]["packets"]
    flows[key] = {"packets": 2**63 + 1}
    assert flows[key].packets == 2**63 + 1, "every digit is kept"
    del flows[key]
    assert key not in flows and flows.get(key) is None
    with pytest.raises(KeyError):
        del flows[key]
    flows.clear()
    assert not flows
    with pytest.raises(AttributeError, match="its members: "):
        key.no_such_member


def test_wrong_values_are_named_with_their_place():
    flows = skep.load(EXAMPLES / "flows.bpf.o").maps["flows"]
    key = {"source_port": 1}
    with pytest.raises(ValueError, match=r"flows: value.packets: -1 does not fit"):
        flows[key] = {"packets": -1}
    with pytest.raises(ValueError, match="flows: key.*no_such_member"):
        flows[{"no_such_member": 1}]
    with pytest.raises(ValueError, match="flows: key: expected 40 bytes, found 3"):
        flows[b"abc"]
    with pytest.raises(TypeError):
        flows[object()]
    assert len(flows) == 0
    flows[bytes(40)] = bytes(40)
    assert len(flows) == 1


def test_variables_are_set_before_and_after_a_load():
    module = skep.load(TYPED, variables={"limit": 5})
    assert module.variables["limit"] == 5
    assert "limit" in module.variables and len(module.variables) == len(list(module.variables))
    with pytest.raises(KeyError, match="no_such_variable"):
        module.variables["no_such_variable"]
    with pytest.raises(KeyError, match="no_such_variable"):
        skep.load(TYPED, variables={"no_such_variable": 5})
    with pytest.raises(ValueError, match="limit: .* does not fit"):
        skep.load(TYPED, variables={"limit": 2**70})


def test_a_queue_is_filled_before_a_run_and_emptied_after():
    module = skep.load(EXAMPLES / "contacts.bpf.o", maps={"latest": [{"source": 1}, {"source": 2}]})
    latest = module.maps["latest"]
    assert (latest.kind, latest.peek().source) == ("queue", 1)
    assert [latest.pop().source, latest.pop().source, latest.pop()] == [1, 2, None]


def test_a_refusal_says_what_is_wrong_and_where():
    with pytest.raises(skep.Refused, match="r0 may be null") as refused:
        skep.load(OBJECTS / "missing_null_check.bpf.o")
    refused = refused.value
    assert (refused.program, refused.code, refused.line) == ("careless", "maybe-null", 19)
    assert "*count += 1" in refused.source and "bpf_map_lookup_elem" in str(refused)
    assert isinstance(refused, skep.SkepError)


@pytest.mark.parametrize("source", [b"", b"no object", EXAMPLES / "no_such.bpf.o", ROOT / "README.md"])
def test_what_is_no_object_is_refused(source):
    with pytest.raises(skep.SkepError):
        skep.load(source)


def test_wrong_names_come_with_the_right_ones():
    module = skep.load(EXAMPLES / "contacts.bpf.o")
    with pytest.raises(KeyError, match="its programs: contact, forget"):
        module["nobody"]
    with pytest.raises(KeyError, match="nothing"):
        module.maps["nothing"]
    with pytest.raises(TypeError, match="no field colour; their fields: .*mark"):
        module["contact"].run(udp(), colour=7)
    with pytest.raises(TypeError, match="packet"):
        module["contact"].run()
    with pytest.raises(TypeError, match="expected bytes"):
        module["contact"].run(42)


def test_a_buffer_is_changed_by_a_program_over_buffers():
    module = skep.load(EXAMPLES / "raw.bpf.o", buffer_len=4)
    outcome = module["sum_bytes"].run(bytearray([1, 2, 3, 250]))
    assert outcome.result == 256
    with pytest.raises(skep.SkepError):
        module["sum_bytes"].run(b"12345")


def test_messages_come_to_the_log():
    said = []
    module = skep.load(EXAMPLES / "hello.bpf.o", log=lambda program, message: said.append((program, message)))
    module["hello"].run(udp())
    assert said == [("hello", "hello, packet of 42 bytes")]


def test_an_error_in_the_log_ends_neither_the_program_nor_the_process(capsys):
    def broken(_program, _message):
        raise RuntimeError("the log is broken")

    with pytest.warns(pytest.PytestUnraisableExceptionWarning, match="the log is broken") as _:
        module = skep.load(EXAMPLES / "hello.bpf.o", log=broken)
        assert module["hello"].run(udp()).verdict == "pass"


def test_records_of_a_ring_come_by_outcome_descriptor_and_asyncio():
    module = skep.load(TYPED)
    ring = module.ring("events")
    emitting = module["emit"]
    outcome = emitting.run(udp())
    assert [name for name, _ in outcome.events] == ["events"]
    assert ring.poll() == [outcome.events[0][1]]
    assert ring.poll() == [] and ring.poll(timeout=0.01) == []
    # The descriptor is readable once there is a record.
    assert select.select([ring], [], [], 0)[0] == []
    emitting.run(udp())
    assert select.select([ring], [], [], 5)[0] == [ring]
    assert len(ring.poll()) == 1

    async def first():
        loop = asyncio.get_running_loop()
        arrived = loop.create_future()
        loop.add_reader(ring, lambda: arrived.done() or arrived.set_result(ring.poll()))
        loop.call_later(0.01, emitting.run, udp())
        return await asyncio.wait_for(arrived, 5)

    assert len(asyncio.run(first())) == 1


def test_a_thread_that_waits_for_a_record_lets_others_run():
    module = skep.load(TYPED)
    ring = module.ring("events")
    found = []
    waiting = threading.Thread(target=lambda: found.extend(ring.poll(timeout=10)))
    waiting.start()
    module["emit"].run(udp())
    waiting.join()
    assert len(found) == 1


WORLD = """
clock = "1s"
[[device]]
name = "eth0"
addresses = ["10.0.0.254/24"]
[[device]]
name = "eth1"
addresses = ["192.0.2.1/24"]
"""


def test_a_packet_goes_its_whole_way_through_a_world():
    world = skep.World(WORLD)
    module = skep.load(EXAMPLES / "hello.bpf.o", world=world, log=lambda *_: None)
    link = world.attach(module["hello"], "eth0")
    trace = world.inject("eth0", udp())
    assert trace.hops == [("hello", "pass")] and "hello" in str(trace)
    link.close()
    assert world.inject("eth0", udp()).hops == []
    assert world.step(2.5) == 3_500_000_000
    with pytest.raises(skep.SkepError, match="eth7"):
        world.inject("eth7", udp())
    with pytest.raises(skep.SkepError, match="xdp, ingress or egress"):
        world.attach(module["hello"], "eth0", "everywhere")
    with pytest.raises(skep.SkepError):
        skep.World("[[device]]\nname = 5")


def test_fixtures_load_beside_the_test(bpf_load, bpf_world):
    module = bpf_load("../../../examples/hello.bpf.o", world=bpf_world(WORLD), log=lambda *_: None)
    assert module["hello"].run(udp()).verdict == "pass"


def test_threads_of_python_run_one_program():
    module = skep.load(EXAMPLES / "flows.bpf.o")
    run = module["account_flows"].run
    threads = [threading.Thread(target=lambda: [run(udp()) for _ in range(200)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [flow.packets for flow in module.maps["flows"].values()] == [1600]


def test_a_thousand_loads_leave_nothing_behind():
    runtime = skep.Runtime()

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1])

    for round in range(1000):
        runtime.load(EXAMPLES / "hello.bpf.o")
        if round == 200:
            runtime.synchronize()
            before = resident()
    runtime.synchronize()
    assert resident() < before + 2048, "pages"
