"""Threads, signals, garbage collection.

No test here depends on who is first: where an order matters, threads wait for each other; elsewhere every order must
give the same. Waits have a limit of a minute, so that a deadlock fails instead of hanging.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from conftest import OBJECT, PACKET

import skep
from skep import _events, _skep

LIMIT = 60


@pytest.fixture(params=[0.005, 1e-6], ids=["usual", "often"])
def switches(request: pytest.FixtureRequest) -> Iterator[None]:
    """How often threads take turns."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(request.param)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises `KeyboardInterrupt`, also where it is ignored, as in jobs that a shell runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    """Sends the signal to the main thread itself, so that it also ends a system call in which that waits."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


T = TypeVar("T")


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """The results of threads that begin together; an exception of one is raised."""
    barrier = threading.Barrier(count)
    results: dict[int, T] = {}
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(LIMIT)
            results[number] = work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "it waits for ever"
    if failures:
        raise failures[0]
    return list(results.values())


def test_a_map_is_made_by_the_load_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = _skep.Events

    def make(native: object, room: int) -> object:
        made.append(native.name)  # type: ignore[attr-defined]
        return real(native, room)  # type: ignore[arg-type]

    monkeypatch.setattr(_events, "Events", make)
    module = skep.Runtime(cpus=4).load(OBJECT)
    assert sorted(made) == ["events", "orders", "samples"]

    # A look-up that made one would meet all the others here, and each would make its own.
    barrier = threading.Barrier(8)

    def make_at_once(native: object, room: int) -> object:
        barrier.wait(LIMIT)
        return real(native, room)  # type: ignore[arg-type]

    monkeypatch.setattr(_events, "Events", make_at_once)
    found = at_once(8, lambda _: (module.maps["events"], list(module.maps["events"])))
    assert len({id(events) for events, _ in found}) == 1
    assert sorted(made) == ["events", "orders", "samples"]


def test_loads_that_meet_in_the_making_share_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = skep.Runtime(cpus=4)
    old = runtime.load(OBJECT)
    real = _skep.Events
    barrier = threading.Barrier(8)

    def make(native: object, room: int) -> object:
        # All eight loads are here for the same map, before any of them has its end.
        barrier.wait(LIMIT)
        return real(native, room)  # type: ignore[arg-type]

    monkeypatch.setattr(_events, "Events", make)
    modules = at_once(8, lambda _: runtime.load(OBJECT, reuse_maps=old, programs=["count"]))
    modules[3].programs["count"].run(PACKET)
    assert len(list(modules[7].maps["events"])) == 1


def test_modules_replace_each_other_while_threads_read_events(switches: None) -> None:
    runtime = skep.Runtime(cpus=8)
    holder = {"module": runtime.load(OBJECT, programs=["count"])}

    def work(number: int) -> int:
        taken = 0
        if number == 0:
            for _ in range(12):
                holder["module"] = runtime.load(OBJECT, programs=["count"], reuse_maps=holder["module"])
            return taken
        # All records fit the ring: a thread that stops in the middle of a record holds back those of others.
        for _ in range(300):
            module = holder["module"]
            # An iterator that outlives its module.
            events = iter(module.maps["events"])
            module.programs["count"].run(PACKET)
            del module
            taken += len(list(events))
        return taken

    taken = sum(at_once(4, work))
    rest = len(list(holder["module"].maps["events"]))
    assert taken + rest == holder["module"].maps["totals"][0].total()["number"]


def test_modules_with_rings_come_and_go_on_all_threads(switches: None) -> None:
    runtime = skep.Runtime(cpus=8)
    shared = runtime.load(OBJECT, programs=["count"])

    def work(number: int) -> None:
        for _ in range(10):
            module = runtime.load(OBJECT, programs=["count"], reuse_maps=shared if number % 2 else None)
            module.programs["count"].run(PACKET)
            list(module.maps["samples"])

    at_once(4, work)


def test_each_event_goes_to_one_thread(module: skep.Module, switches: None) -> None:
    # All of them fit into the ring, even if no thread takes one before the end.
    each, producers = 500, 3
    events = module.maps["events"].typed("struct event")
    shared = iter(events)
    done = threading.Barrier(producers + 1)

    def work(number: int) -> list[int]:
        if number < producers:
            for _ in range(each):
                module.programs["count"].run(PACKET)
            done.wait(LIMIT)
            return []
        if number == producers:
            done.wait(LIMIT)
        # One iterator for all.
        return [event["number"] for event in shared]

    taken = [number for numbers in at_once(producers + 3, work) for number in numbers]
    taken += [event["number"] for event in events]
    assert sorted(taken) == list(range(each * producers))


def test_operations_of_maps_are_whole(module: skep.Module, switches: None) -> None:
    recent, few = module.maps["recent"], module.maps["few"]
    recent.update(dict.fromkeys(range(32), 1))

    def work(number: int) -> tuple[int, int]:
        popped = sum(recent.pop(key, 0) for key in range(32))
        return popped, few.setdefault(1, number)

    results = at_once(6, work)
    assert sum(popped for popped, _ in results) == 32
    assert {value for _, value in results} == {few[1]}


def test_mappings_can_be_read_while_they_change(module: skep.Module, switches: None) -> None:
    recent = module.maps["recent"]

    def work(number: int) -> None:
        for round in range(200):
            if number == 0:
                recent[round % 16] = round
            elif number == 1:
                recent.pop(round % 16, None)
            else:
                assert all(value < 200 for _, value in recent.items())
                assert set(recent) <= set(range(16))

    at_once(4, work)


def test_runs_leave_the_interpreter_to_others() -> None:
    module = skep.Runtime(interruptible=True, cpus=4).load(OBJECT)
    spins, failures = module.programs["spins"], []

    def spin() -> None:
        try:
            spins.run(PACKET)
        except skep.InterruptedRunError as error:
            failures.append(error)

    thread = threading.Thread(target=spin)
    thread.start()
    # Only reached while the other thread runs its program, which takes days.
    wait_until(lambda: module.variables["seen"] == 1)
    assert module.programs["count"].run(PACKET).verdict.name == "pass"
    while thread.is_alive():
        spins.interrupt()
        thread.join(0.01)
    assert len(failures) == 1 and "interrupted by the host" in str(failures[0])


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("how", ["between runs", "in a run"])
def test_ctrl_c_ends_runs(how: str) -> None:
    module = skep.Runtime(cpus=4, interruptible=how == "in a run").load(OBJECT)

    def press() -> None:
        wait_until(lambda: module.variables["seen"] > 0)
        press_ctrl_c()

    thread = threading.Thread(target=press)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        if how == "in a run":
            module.programs["spins"].run(PACKET)
        else:
            module.programs["count"].run(PACKET, repeat=1 << 60)
    thread.join(LIMIT)
    assert module.programs["count"].run(PACKET).verdict.name == "pass"


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_wait(module: skep.Module) -> None:
    thread = threading.Thread(target=press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        module.maps["events"].wait(LIMIT)
        pytest.fail("it waited to the end")
    thread.join(LIMIT)


def test_a_program_that_prints_blocks_nobody() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def log(program: str, message: str) -> None:
        begun.set()
        assert go_on.wait(LIMIT)

    runtime = skep.Runtime(cpus=4, log=log)
    module = runtime.load(OBJECT)
    thread = threading.Thread(target=module.programs["prints"].run, args=(PACKET,))
    thread.start()
    assert begun.wait(LIMIT)
    # The program is in its run, and stays there until all this is done.
    other = runtime.load(OBJECT)
    other.maps["few"][1] = 2
    del other.maps["few"][1]
    other.programs["count"].run(PACKET)
    del other
    gc.collect()
    go_on.set()
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_log_may_use_the_module() -> None:
    seen: list[int] = []
    runtime = skep.Runtime(cpus=4, log=lambda *_: seen.append(module.programs["count"].run(PACKET).verdict))
    module = runtime.load(OBJECT)
    module.programs["prints"].run(PACKET)
    assert seen == [2]


@pytest.mark.parametrize("kept", ["runtime", "module", "program", "map", "events", "array"])
def test_cycles_through_the_log_are_collected(kept: str) -> None:
    class Host:
        def __init__(self) -> None:
            runtime = skep.Runtime(cpus=2, log=self.log)
            module = runtime.load(OBJECT)
            module.programs["prints"].run(PACKET)
            self.kept = {
                "runtime": runtime,
                "module": module,
                "program": module.programs["prints"],
                "map": module.maps["few"],
                "events": iter(module.maps["events"]),
                "array": module.maps["stages"],
            }[kept]

        def log(self, program: str, message: str) -> None:
            self.message = message

    host = Host()
    assert host.message == "packet of 60 bytes"
    alive = weakref.ref(host)
    del host
    gc.collect()
    assert alive() is None


def test_the_log_lasts_as_long_as_a_program() -> None:
    printed: list[str] = []
    program = skep.Runtime(cpus=2, log=lambda *line: printed.extend(line)).load(OBJECT).programs["prints"]
    gc.collect()
    program.run(PACKET)
    assert printed == ["prints", "packet of 60 bytes"]


def test_programs_maps_and_events_outlive_their_module() -> None:
    module = skep.Runtime(cpus=2).load(OBJECT)
    program, few, events = module.programs["count"], module.maps["few"], iter(module.maps["events"])
    del module
    gc.collect()
    assert program.run(PACKET).verdict.name == "pass"
    few[1] = 1
    assert len(list(events)) == 1 and few[1] == 1


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.001)
