"""Runs: inputs, results, limits."""

from __future__ import annotations

import copy
import pickle

import pytest
from conftest import EXAMPLES, OBJECT, PACKET

import skep


class Packet:
    """As scapy's packets are: bytes on request."""

    def __bytes__(self) -> bytes:
        return PACKET


@pytest.mark.parametrize("packet", [PACKET, bytearray(PACKET), memoryview(PACKET), Packet()])
def test_a_packet_is_whatever_has_bytes(module: skep.Module, packet: object) -> None:
    result = module.programs["count"].run(packet)
    assert result.verdict == skep.XDP.PASS
    assert result.verdict.name == "pass"
    assert result.packet == PACKET
    assert not result.changed
    assert result.nanoseconds >= 0


def test_numbers_and_text_are_no_packets(module: skep.Module) -> None:
    count = module.programs["count"]
    with pytest.raises(TypeError, match="input of program 'count' is bytes.*found int"):
        count.run(60)
    with pytest.raises(TypeError, match="found str"):
        count.run("packet")
    assert module.variables["seen"] == 0


def test_a_result_tells_what_the_program_did(module: skep.Module) -> None:
    result = module.programs["moves"].run(PACKET)
    assert result.verdict == skep.XDP.REDIRECT and result.verdict.name == "redirect"
    assert result.redirect == skep.Redirect("device", 3, ingress=False)
    assert result.packet == PACKET[4:]
    assert result.metadata == b"\x01\x02\x03\x04"
    assert result.changed


def test_a_result_has_the_records_that_were_output(module: skep.Module) -> None:
    result = module.programs["count"].run(PACKET)
    assert [event.map for event in result.events] == ["events", "samples"]
    record = result.events[0].data
    assert module.decode("struct event", record) == {"number": 0, "length": 120}


def test_metadata_of_packets_goes_in_and_out(module: skep.Module) -> None:
    result = module.programs["marks"].run(PACKET, info={"mark": 7, "vlan": (0x8100, 5)})
    assert result.verdict == skep.TC.UNSPEC and result.verdict == -1
    assert result.info["mark"] == 8
    assert result.info["cb"] == [0, 5, 0, 0, 0]
    assert result.info["vlan"] == (0x8100, 5)
    with pytest.raises(KeyError, match="no field 'marc'; it has vlan, ingress_ifindex"):
        module.programs["marks"].run(PACKET, info={"marc": 7})
    with pytest.raises(OverflowError):
        module.programs["marks"].run(PACKET, info={"mark": 1 << 32})


def test_repeated_runs_get_the_packet_anew(module: skep.Module) -> None:
    result = module.programs["moves"].run(PACKET, repeat=20)
    assert result.packet == PACKET[4:]
    module.programs["count"].run(PACKET, repeat=1000)
    assert module.variables["seen"] == 1000
    with pytest.raises(ValueError, match="at least 1"):
        module.programs["count"].run(PACKET, repeat=0)


def test_raw_programs_run_on_buffers() -> None:
    module = skep.load(EXAMPLES / "raw.bpf.o", buffer_len=4)
    program = module.programs["sum_bytes"]
    given = bytearray([1, 2, 3, 4])
    result = program.run(given)
    assert result.verdict == 10
    assert result.packet == bytes([1, 3, 6, 10])
    assert given == bytearray([1, 2, 3, 4]), "a copy"
    with pytest.raises(skep.InputError, match="takes a buffer of 4 bytes, not one of 3"):
        program.run(b"123")
    assert program.run(given, interpreter=True).verdict == 10


def test_the_result_of_a_raw_program_has_64_bits() -> None:
    module = skep.Runtime().assemble("r0 = 0xffffffffffffffff ll\nexit")
    assert module.programs["program"].run().verdict == (1 << 64) - 1


def test_other_programs_run_on_contexts(module: skep.Module) -> None:
    only_disks = module.programs["only_disks"]
    result = only_disks.run(context={"major": 8})
    assert result.verdict == 1
    assert result.context["major"] == 8
    assert only_disks.run(context={"major": 9}).verdict == 0
    with pytest.raises(skep.UnknownNameError, match="no such field \"mayor\"; it has .*major"):
        only_disks.run(context={"mayor": 8})
    with pytest.raises(skep.InputError, match="takes no packet"):
        only_disks.run(info={})
    with pytest.raises(skep.InputError, match="takes no context"):
        module.programs["count"].run(PACKET, context={})


def test_a_budget_ends_a_run() -> None:
    module = skep.Runtime(budget=skep.Budget(units=1000)).load(OBJECT)
    with pytest.raises(skep.BudgetError, match="its units of work"):
        module.programs["spins"].run(PACKET)
    with pytest.raises(skep.BudgetError, match="its time"):
        module.programs["spins"].run(PACKET, budget=skep.Budget(seconds=0.001))
    assert module.programs["count"].run(PACKET).verdict.name == "pass"


def test_a_budget_needs_a_runtime_with_budgets(module: skep.Module) -> None:
    with pytest.raises(skep.RunError, match="no checks for budgets"):
        module.programs["count"].run(PACKET, budget=skep.Budget(units=1))


def test_printed_messages_reach_a_function() -> None:
    printed: list[tuple[str, str]] = []
    module = skep.Runtime(log=lambda *line: printed.append(line)).load(OBJECT)
    module.programs["prints"].run(PACKET)
    assert printed == [("prints", "packet of 60 bytes")]
    with pytest.raises(TypeError, match="log is a function"):
        skep.Runtime(log="file")  # type: ignore[arg-type]


def test_an_exception_of_the_log_is_reported_as_unraisable(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: reported.append(str(report.exc_value)))

    def log(program: str, message: str) -> None:
        raise RuntimeError("disk full")

    module = skep.Runtime(log=log).load(OBJECT)
    assert module.programs["prints"].run(PACKET).verdict.name == "pass"
    assert reported == ["disk full"]


def test_statistics_count_runs() -> None:
    module = skep.Runtime(stats=True).load(OBJECT)
    count = module.programs["count"]
    count.run(PACKET, repeat=5)
    assert count.stats.runs == 5
    assert count.stats.nanoseconds >= 0
    count.reset_stats()
    assert count.stats == (0, 0)


def test_programs_say_what_they_are(module: skep.Module) -> None:
    assert repr(module.programs["marks"]) == "<skep.Program 'marks' (sched_cls)>"
    assert "count" in module.programs and "nothing" not in module.programs
    assert set(module.programs) >= {"count", "leaf", "marks"}
    assert len(module.programs) == len(list(module.programs)) == 10


def test_verdicts_are_numbers_with_names() -> None:
    drop = skep.Verdict(1, "drop")
    assert drop == 1 and drop == skep.XDP.DROP and drop != skep.XDP.PASS
    assert repr(drop) == "<Verdict drop: 1>"
    assert str(drop) == "drop" and str(skep.Verdict(77)) == "77"
    assert hash(drop) == hash(1)
    for again in (pickle.loads(pickle.dumps(drop)), copy.deepcopy(drop)):
        assert again == drop and again.name == "drop"


def test_tail_calls_follow_the_array(module: skep.Module) -> None:
    root, stages = module.programs["root"], module.maps["stages"]
    assert list(stages) == [1] and len(stages) == 1
    assert stages[1].name == "leaf"
    assert root.run(b"\x01").verdict.name == "tx"
    assert root.run(b"\x02").verdict.name == "pass"
    stages[2] = module.programs["leaf"]
    assert root.run(b"\x02").verdict.name == "tx"
    del stages[1]
    assert root.run(b"\x01").verdict.name == "pass"
    with pytest.raises(KeyError):
        del stages[1]
    with pytest.raises(TypeError, match="are programs; found int"):
        stages[1] = 5
    with pytest.raises(skep.LoadError):
        stages[1] = module.programs["marks"]


def test_programs_that_are_not_trusted_run_as_well() -> None:
    module = skep.Runtime(untrusted=True, clock_granularity=0.001).load(OBJECT)
    assert module.programs["count"].run(PACKET).verdict.name == "pass"
