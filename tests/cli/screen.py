"""A terminal for tests: a program on a pseudo-terminal, and what its screen shows.

The emulator knows the few escape codes that the program may use, and fails on any other. It counts lines that wrap."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time

CODE = re.compile(rb"\x1b\[(\??[0-9;]*)([A-Za-z])")


class Screen:
    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.main, self.other = self.blank(), None  # other: the main screen, while the alternate one is shown
        self.x = self.y = self.wrapped = self.scrolled = 0
        self.has_cursor, self.rest, self.kept = True, b"", (0, 0)

    def blank(self):
        return [[" "] * self.columns for _ in range(self.rows)]

    @property
    def lines(self):
        return ["".join(line).rstrip() for line in self.main]

    def line_feed(self):
        if self.y < self.rows - 1:
            self.y += 1
        else:
            self.main.pop(0)
            self.main.append([" "] * self.columns)
            self.scrolled += 1

    def put(self, letter):
        if self.x == self.columns:
            self.wrapped += 1
            self.x = 0
            self.line_feed()
        self.main[self.y][self.x] = letter
        self.x += 1

    def code(self, numbers, letter):
        if (numbers, letter) == ("?1049", "h"):
            assert self.other is None
            self.other, self.main, self.kept = self.main, self.blank(), (self.x, self.y)
        elif (numbers, letter) == ("?1049", "l"):
            self.main, self.other, (self.x, self.y) = self.other, None, self.kept
        elif numbers == "?25":
            self.has_cursor = letter == "h"
        elif letter == "H" and not numbers:
            self.x = self.y = 0
        elif letter == "K" and not numbers:
            self.main[self.y][self.x:] = [" "] * (self.columns - self.x)
        elif letter == "J" and numbers in ("", "2"):
            begin = 0 if numbers else self.y + 1
            if not numbers:
                self.main[self.y][self.x:] = [" "] * (self.columns - self.x)
            for y in range(begin, self.rows):
                self.main[y] = [" "] * self.columns
        elif letter != "m":
            raise AssertionError(f"escape code {numbers}{letter}")

    def feed(self, data):
        data, self.rest = self.rest + data, b""
        while data:
            if data[0] == 0x1b:
                found = CODE.match(data)
                if not found:
                    assert len(data) < 16, data[:20]
                    self.rest = data
                    return
                self.code(found[1].decode(), found[2].decode())
                data = data[found.end():]
                continue
            size = 1 if data[0] < 0x80 else 2 if data[0] < 0xe0 else 3 if data[0] < 0xf0 else 4
            if len(data) < size:
                self.rest = data
                return
            letter, data = data[:size].decode(), data[size:]
            if letter == "\r":
                self.x = 0
            elif letter == "\n":
                self.line_feed()
            else:
                assert letter.isprintable(), repr(letter)
                self.put(letter)


class Terminal:
    """A program whose input and output are a terminal of its own."""

    def __init__(self, *command, columns=80, rows=24, **names):
        self.screen = Screen(columns, rows)
        self.shown = b""
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(list(map(str, command)), stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8", **names},
                                        start_new_session=True, preexec_fn=self.take)

    @staticmethod
    def take():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C and a new size reach the program

    def read(self, seconds):
        """Shows what comes within that time. Returns whether something came."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        piece = os.read(self.master, 65536)
        self.shown += piece
        self.screen.feed(piece)
        return True

    def until(self, test, seconds=60):
        end = time.monotonic() + seconds
        while not test(self.screen.lines):
            if time.monotonic() > end:
                raise AssertionError("\n".join(self.screen.lines))
            self.read(0.1)
        while self.read(0.05):  # a screen comes in pieces
            pass

    def wait(self, seconds=60):
        """Waits for the end; returns the exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                raise AssertionError("it did not end: " + "\n".join(self.screen.lines))
            self.read(0.1)
        while self.read(0.1):
            pass
        return self.process.returncode

    def press(self, key):
        os.write(self.master, key)

    def resize(self, columns, rows):
        self.screen = Screen(columns, rows)
        self.screen.other = self.screen.blank()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_as_before(self):
        return (termios.tcgetattr(self.slave) == self.before and self.screen.other is None
                and self.screen.has_cursor)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
