"""Owner: the base of every class that owns an object of the library.

The one idea: the pointer lives in a handle, which frees it once, after the handles of the objects
made from it. Whichever comes first closes the handle: close(), the end of a with block, the last
reference to the owner, or the interpreter's exit. A method takes the pointer from `_object`, which
raises once the handle is closed. So nothing is freed twice, and nothing is used after that."""
from __future__ import annotations

import logging
import os
import weakref
from ctypes import byref, c_void_p

from .errors import Error


class _Handle:
    """A pointer, and the function that frees it. It has no reference to its owner, or the owner
    would live for ever."""

    def __init__(self, free, process):
        self.pointer, self.process = c_void_p(), process
        self.made_from_it = weakref.WeakSet()
        # Empty: done. A list's pop() is atomic, and any thread may collect garbage.
        self.to_free = [free]

    def is_of_another_process(self):
        return self.process is not None and self.process != os.getpid()

    def free(self):
        """Returns what a free function returns: the error of a background save, which is known only
        when its engine is gone; None: there was none. Raises if an engine is at work: nothing that
        it uses is freed then."""
        failed = None
        for handle in list(self.made_from_it):
            failed = handle.free() or failed
        while self.to_free:
            free, pointer, self.pointer = self.to_free.pop(), self.pointer, c_void_p()
            if not pointer or self.is_of_another_process():
                continue
            try:
                failed = free(pointer) or failed
            except Error:
                self.pointer = pointer
                self.to_free.append(free)
                raise
        return failed

    def close(self):
        failed = self.free()
        if failed is not None:
            raise failed


class Owner:
    """Owns one object of the library. close() frees it; a later use of it raises Error."""

    _what = "object"  # in messages
    _has_threads = False  # a forked child then has the memory of the object, but not its threads

    def __init__(self, free, made_from: Owner | None = None):
        self._handle = _Handle(free, os.getpid() if self._has_threads else None)
        if made_from is not None:
            made_from._handle.made_from_it.add(self._handle)
        weakref.finalize(self, self._handle.close)

    def _create(self, create, *arguments):
        """Calls a function whose last parameter is the address of the new pointer."""
        create(*arguments, byref(self._handle.pointer))

    @property
    def _object(self):
        """The pointer, for a call of the library."""
        if not self._handle.pointer:
            raise Error(f"this {self._what} was closed: make another one")
        if self._handle.is_of_another_process():
            raise Error(f"this {self._what} belongs to process {self._handle.process}, and a forked"
                        " process does not have its threads: make another one here")
        return self._handle.pointer

    def close(self) -> None:
        """Frees the object. May be called again. An Error of a save in the background that failed
        is raised when everything is freed."""
        self._handle.close()

    def __enter__(self):
        self._object  # raises if it was closed
        return self

    def __exit__(self, kind, *_):
        failed = self._handle.free()
        if failed is None:
            return
        if kind is None:
            raise failed
        logging.getLogger("cohobate").error("%s", failed)  # the exception under way is raised

    def __reduce_ex__(self, _protocol):
        raise TypeError(f"this {self._what} owns memory of the library: it can be neither copied "
                        "nor pickled")
