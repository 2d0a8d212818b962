"""Fixtures of pytest: `skep_runtime`, `skep_load`, and `skep_options` and `skep_world` to override.

    def test_drops_telnet(skep_load):
        module = skep_load("firewall.bpf.o")
        assert module.programs["firewall"].run(packet).verdict.name == "drop"
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Optional, Union

import pytest

import skep

__all__ = ["skep_load", "skep_options", "skep_runtime", "skep_world"]


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark."""
    config.addinivalue_line("markers", "skep(**options): options of skep.Runtime for the fixture skep_runtime")


def pytest_report_header() -> str:
    """The line about the version."""
    return f"skep: {skep.__version__}"


@pytest.fixture
def skep_world() -> Optional[skep.World]:
    """The world of `skep_runtime`: none. Override it to have one."""
    return None


@pytest.fixture
def skep_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options of `skep_runtime`: those of the mark `skep`, or what an override says."""
    options: dict[str, Any] = {}
    # The nearest mark last, so that it wins.
    for mark in reversed(list(request.node.iter_markers("skep"))):
        options.update(mark.kwargs)
    return options


@pytest.fixture
def skep_runtime(skep_options: dict[str, Any], skep_world: Optional[skep.World]) -> skep.Runtime:
    """A runtime for one test."""
    return skep.Runtime(**{"world": skep_world, **skep_options})


@pytest.fixture
def skep_load(request: pytest.FixtureRequest, skep_runtime: skep.Runtime) -> Callable[..., skep.Module]:
    """Loads an object into the test's runtime, with the choices of `Runtime.load`.

    A path is looked up beside the test's file, then in pytest's root directory, then in the current one.
    """

    def load(source: Union[str, os.PathLike[str], bytes], **choices: Any) -> skep.Module:
        if not isinstance(source, bytes):
            source = _found(request, source)
        return skep_runtime.load(source, **choices)

    return load


def _found(request: pytest.FixtureRequest, path: Union[str, os.PathLike[str]]) -> Path:
    places = [request.path.parent, request.config.rootpath, Path.cwd()]
    candidates = [place / path for place in places]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    listed = ", ".join(dict.fromkeys(str(candidate) for candidate in candidates))
    raise FileNotFoundError(f"there is no object {os.fspath(path)!r}; looked for {listed}")
