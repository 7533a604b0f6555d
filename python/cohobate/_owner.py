"""Owner: the base of every class that owns an object of the library.

The one idea: the pointer lies in a handle, which frees it once, after the handles of the objects
made from it. Whichever comes first closes the handle: close(), the end of a with block, the last
reference to the owner, or the interpreter's exit. Each call of the library goes through `_call`,
which raises once the handle is closed and names the call to the handle, which is not freed before
the call has returned. So nothing is freed twice, and nothing is used after that, whatever another
thread does."""
from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from ctypes import byref, c_void_p

from .errors import Error


_handles = weakref.WeakSet()


class _Handle:
    """A pointer, and the function that frees it. It has no reference to its owner, or the owner
    would live for ever."""

    def __init__(self, free, what, process, takes_turns):
        self.pointer, self.to_free, self.what, self.process = c_void_p(), free, what, process
        self.made_from_it = weakref.WeakSet()
        # Calls under way. A call removes itself also if Ctrl-C ends it; a number would be lost.
        self.calls = set()
        self.takes_turns = takes_turns
        self.make_locks()
        _handles.add(self)

    def make_locks(self):
        # Between a look at pointer or calls and what follows from it; any thread may collect
        # garbage, also in between.
        self.lock = threading.RLock()
        # Of the calls of an object that the library takes one at a time.
        self.turn = threading.RLock() if self.takes_turns else contextlib.nullcontext()

    def is_of_another_process(self):
        return self.process is not None and self.process != os.getpid()

    def checked(self):
        """The pointer of an object that may be used."""
        if not self.pointer:
            raise Error(f"this {self.what} was closed: make another one")
        if self.is_of_another_process():
            raise Error(f"this {self.what} belongs to process {self.process}, and a forked process "
                        "does not have its threads: make another one here")
        return self.pointer

    def begin(self, call):
        with self.lock:
            pointer = self.checked()
            self.calls.add(call)
        return pointer

    def call(self, function, *arguments):
        with self.turn:
            call = object()
            try:
                return function(self.begin(call), *arguments)
            finally:
                self.calls.discard(call)

    def check_idle(self):
        if self.calls:
            raise Error(f"this {self.what} is at work: close it after the call that is under way, "
                        "not in its progress or in another thread")

    def free(self):
        """Returns what a free function returns: the error of a background save, which is known only
        when its engine is gone; None: there was none. Raises if the object is in use: nothing that
        the call uses is freed then."""
        failed = None
        if self.is_of_another_process():
            self.pointer, self.calls = c_void_p(), set()
        self.check_idle()
        for handle in list(self.made_from_it):
            failed = handle.free() or failed
        with self.lock:
            self.check_idle()
            pointer, self.pointer = self.pointer, c_void_p()
        return self.to_free(pointer) or failed if pointer else failed

    def close(self):
        failed = self.free()
        if failed is not None:
            raise failed

    def end(self):
        """Closes without an owner. At the interpreter's exit a thread may still be in a call, which
        keeps what it uses."""
        try:
            failed = self.free()
        except Error:
            return
        if failed is not None:
            raise failed


def _leave_the_parents_calls():
    """Of a forked child, which has only one thread: the locks that others held stay held, and what
    they were calling is changed by half."""
    for handle in list(_handles):
        handle.make_locks()
        if handle.calls:
            handle.process = os.getppid()


os.register_at_fork(after_in_child=_leave_the_parents_calls)


class Owner:
    """Owns one object of the library. close() frees it; a later use of it raises Error."""

    _what = "object"  # in messages
    _has_threads = False  # a forked child then has the memory of the object, but not its threads
    _takes_turns = False  # calls of several threads wait for one another

    def __init__(self, free, made_from: Owner | None = None):
        self._handle = _Handle(free, self._what, os.getpid() if self._has_threads else None,
                               self._takes_turns)
        if made_from is not None:
            made_from._handle.made_from_it.add(self._handle)
        weakref.finalize(self, self._handle.end)

    def _create(self, create, *arguments):
        """Calls a function whose last parameter is the address of the new pointer."""
        create(*arguments, byref(self._handle.pointer))

    def _call(self, function, *arguments):
        """Calls a function with the pointer before the arguments."""
        return self._handle.call(function, *arguments)

    @property
    def _object(self):
        """The pointer. It may be freed at any time, except in `_call`."""
        return self._handle.checked()

    def close(self) -> None:
        """Frees the object. May be called again. An Error of a save in the background that failed
        is raised when everything is freed. In a call of the object, of this thread or another one,
        it frees nothing, which is an Error."""
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
