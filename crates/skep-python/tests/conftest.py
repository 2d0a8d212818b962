"""What all tests share: the objects, and a module with everything."""

from __future__ import annotations

from pathlib import Path

import pytest

import skep

ROOT = Path(__file__).resolve().parents[3]
OBJECT = Path(__file__).parent / "objects" / "all.bpf.o"
EXAMPLES = ROOT / "examples"
PACKET = bytes(range(60))


@pytest.fixture
def module() -> skep.Module:
    """A module with a map of each kind, in a runtime of its own."""
    return skep.Runtime(cpus=4).load(OBJECT)
