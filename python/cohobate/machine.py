"""Facts about the library and the machine that it runs on."""
from __future__ import annotations

from ._library import library


def free_bytes() -> int:
    """Bytes of main memory that a run may take now: the default budget of a plan."""
    return library().coh_machine_free_bytes()


def version() -> str:
    """The library's version, "0.1.0"."""
    return library().coh_version().decode()
