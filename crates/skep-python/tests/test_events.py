"""Events of ring buffers and perf events."""

from __future__ import annotations

import math
import os
import selectors
import threading

import pytest
from conftest import OBJECT, PACKET

import skep
from skep._events import EventStream


def test_iterating_takes_the_events_that_are_there(module: skep.Module) -> None:
    events = module.maps["events"]
    assert list(events) == [] and events.read() is None
    module.programs["count"].run(PACKET, repeat=2)
    assert list(events) == [b"\0\0\0\0\x78\0\0\0", b"\1\0\0\0\x78\0\0\0"]
    assert list(events) == []


def test_events_have_types(module: skep.Module) -> None:
    module.programs["count"].run(PACKET, repeat=2)
    typed = module.maps["events"].typed("struct event")
    assert next(iter(typed)) == {"number": 0, "length": 120}
    assert typed.read() == {"number": 1, "length": 120}
    module.programs["count"].run(PACKET)
    assert module.maps["events"].typed("struct flow").read() == b"\2\0\0\0\x78\0\0\0", "of another size"


def test_samples_have_the_cpu(module: skep.Module) -> None:
    samples = module.maps["samples"]
    module.programs["count"].run(PACKET)
    (sample,) = samples
    assert isinstance(sample, skep.Sample)
    assert 0 <= sample.cpu < 4
    assert sample.data[:8] == b"\0\0\0\0\x78\0\0\0"
    assert samples.lost() == 0


def test_samples_that_find_no_room_are_counted() -> None:
    module = skep.Runtime(cpus=1).load(OBJECT, sample_bytes=4096)
    module.programs["count"].run(PACKET, repeat=1000)
    samples = module.maps["samples"]
    assert samples.lost() > 0
    assert len(list(samples)) > 0


def test_a_descriptor_tells_of_events(module: skep.Module) -> None:
    events = module.maps["events"]
    with selectors.DefaultSelector() as selector:
        selector.register(events, selectors.EVENT_READ)
        assert list(events) == [] and selector.select(0) == []
        module.programs["count"].run(PACKET)
        ((key, _),) = selector.select(60)
        assert key.fd == events.fileno()
        assert len(list(events)) == 1
        assert selector.select(0) == []


def test_waiting_ends_with_an_event_or_the_timeout(module: skep.Module) -> None:
    events = module.maps["events"]
    assert not events.wait(0)
    assert not events.wait(0.001)
    module.programs["count"].run(PACKET)
    assert events.wait(0) and events.wait()
    assert len(list(events)) == 1
    assert not events.wait(0)


@pytest.mark.parametrize("timeout", [math.inf, 1e10])
def test_a_wait_may_be_longer_than_the_system_knows(timeout: float) -> None:
    class Pipe:
        """Has an event from the second look on; its descriptor is readable at once."""

        def __init__(self) -> None:
            self.looks = 0
            self.reader, self.writer = os.pipe()
            os.write(self.writer, b"x")

        def ready(self) -> bool:
            self.looks += 1
            return self.looks > 1

        def fileno(self) -> int:
            return self.reader

    pipe = Pipe()
    try:
        assert EventStream(pipe, bytes).wait(timeout)  # type: ignore[arg-type]
        assert pipe.looks == 2
    finally:
        os.close(pipe.reader)
        os.close(pipe.writer)


def test_a_stream_waits_for_events_of_other_threads(module: skep.Module) -> None:
    events = module.maps["events"].typed("struct event")
    runner = threading.Thread(target=module.programs["count"].run, args=(PACKET,), kwargs={"repeat": 100})
    runner.start()
    stream = events.stream(60)
    numbers = [next(stream)["number"] for _ in range(100)]
    runner.join()
    assert numbers == list(range(100))
    assert list(events.stream(0)) == []


def test_orders_reach_the_program(module: skep.Module) -> None:
    orders = module.maps["orders"]
    for number in (1, 2, 3):
        assert orders.send(number.to_bytes(4, "little"))
    module.programs["takes_orders"].run(PACKET)
    assert module.variables["seen"] == 6
    assert not orders.send(bytes(4096)), "it never fits"
    with pytest.raises(TypeError):
        orders.send(5)


def test_modules_that_share_a_ring_share_its_consumer() -> None:
    runtime = skep.Runtime(cpus=2)
    old = runtime.load(OBJECT)
    new = runtime.load(OBJECT, reuse_maps=old)
    assert old.maps["events"]._events.is_same(new.maps["events"]._events)
    new.programs["count"].run(PACKET)
    assert len(list(old.maps["events"])) == 1
    del old
    new.programs["count"].run(PACKET)
    assert len(list(new.maps["events"])) == 1


def test_a_consumer_ends_with_its_last_user() -> None:
    runtime = skep.Runtime(cpus=2)
    module = runtime.load(OBJECT)
    for _ in range(50):
        module = runtime.load(OBJECT, reuse_maps=module)
    module.programs["count"].run(PACKET)
    assert len(list(module.maps["events"])) == 1
