"""Owner: the base of every class that owns an object of the library."""
from __future__ import annotations

from ctypes import c_void_p

from ._library import library


def destroy(name, pointer):
    """Frees what `pointer` points to, by the function `name`, unless that is done."""
    closed, pointer.value = c_void_p(pointer.value), None
    if closed:
        getattr(library(), name)(closed)


class Owner:
    """Owns one object of the library. close() frees it; further use of it fails with a sentence."""

    _close_name = ""

    def __init__(self):
        self._object = c_void_p()

    def close(self) -> None:
        """Frees the object. May be called again."""
        destroy(self._close_name, self._object)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_object", None):
            self.close()
