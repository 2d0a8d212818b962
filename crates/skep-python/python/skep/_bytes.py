"""Whatever stands for bytes: packets of other libraries too."""

from __future__ import annotations

__all__ = ["bytes_of"]


def bytes_of(value: object, what: str) -> bytes:
    """The bytes of `bytes`, `bytearray`, `memoryview`, or of an object with `__bytes__`, like scapy's packets.

    A number is none: `bytes(60)` would be 60 zeroes.
    """
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    to_bytes = getattr(type(value), "__bytes__", None)
    if to_bytes is None:
        raise TypeError(
            f"{what} is bytes, bytearray, memoryview or an object with __bytes__; found {type(value).__name__}"
        )
    made = to_bytes(value)
    if not isinstance(made, bytes):
        raise TypeError(f"__bytes__ of {type(value).__name__} returned {type(made).__name__}, not bytes")
    return made
