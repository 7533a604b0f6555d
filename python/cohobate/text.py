"""Text to ids, and ids to the windows that training steps read (text.h).

    text ──> Tokenizer.encode ──> ids
    files ──> tokenize ──> token file ──> TokenFile.batch ──> tokens, targets"""
from __future__ import annotations

import ctypes
from array import array
from ctypes import POINTER, byref, c_int32, c_size_t, c_uint64, c_void_p, cast

from ._library import library
from ._owner import Owner
from ._structs import coh_token_file_facts
from ._values import as_path, facts_of, pointer, shaped, sized


class Tokenizer(Owner):
    """Turns text into ids and back. `what` is "bytes", a Hugging Face folder, or a tokenizer's
    file."""

    _what = "tokenizer"

    def __init__(self, what="bytes"):
        super().__init__(library().coh_tokenizer_close)
        self._create(library().coh_tokenizer_open, as_path(what))

    @property
    def vocabulary(self) -> int:
        """Number of ids."""
        return library().coh_tokenizer_vocabulary(self._object)

    @property
    def end_of_text(self) -> int:
        """The id that ends a text; -1: none."""
        return library().coh_tokenizer_end_of_text(self._object)

    def encode(self, text: str | bytes):
        """Ids of a str or of bytes, as an int32 array."""
        text = text.encode() if isinstance(text, str) else bytes(text)
        ids, count = POINTER(c_int32)(), c_size_t()
        library().coh_tokenizer_encode(self._object, text, len(text), byref(ids), byref(count))
        try:
            values = array("i", ids[:count.value])
        finally:
            library().coh_text_free(ids)
        return shaped(values, "int32", (len(values),)) if len(values) else values

    def decode(self, ids) -> bytes:
        """Bytes of the text of ids."""
        ids = array("i", list(ids))
        text, count = c_void_p(), c_size_t()
        library().coh_tokenizer_decode(self._object, pointer(ids, c_int32) if ids else None,
                                       len(ids), byref(text), byref(count))
        try:
            return ctypes.string_at(text, count.value)
        finally:
            library().coh_text_free(text)


def tokenize(tokenizer: Tokenizer, text_path, out_path) -> int:
    """Writes the token file of a text file, or of every text file in a folder. Returns its number
    of ids."""
    count = c_uint64()
    library().coh_token_file_build(tokenizer._object, as_path(text_path), as_path(out_path), 0,
                                   None, byref(count))
    return count.value


class TokenFile(Owner):
    """A token file, cut into windows of training as `cohobate train` cuts it."""

    _what = "token file"

    def __init__(self, path):
        super().__init__(library().coh_token_file_close)
        self._create(library().coh_token_file_open, as_path(path))

    @property
    def facts(self):
        """Members of coh_token_file_facts: token_count, vocabulary, hash, ..."""
        facts = sized(coh_token_file_facts)
        library().coh_token_file_facts_get(self._object, byref(facts))
        return facts_of(facts)

    def window_count(self, sequence: int) -> int:
        """Windows of `sequence` tokens in one pass over the data."""
        return library().coh_token_file_window_count(self._object, sequence)

    def batch(self, step: int, batch: int, sequence: int, seed: int = 1):
        """Tokens and targets of step `step`, counted from 0: two int32 arrays [batch, sequence]. A
        target of -1 does not count. The same windows as those of `cohobate train --seed`."""
        tokens, targets = (array("i", bytes(4 * batch * sequence)) for _ in range(2))
        to, to_targets = pointer(tokens, c_int32), pointer(targets, c_int32)
        for i in range(batch):
            at = 4 * i * sequence
            library().coh_token_file_window(self._object, seed, step * batch + i, sequence,
                                            cast(byref(to, at), POINTER(c_int32)),
                                            cast(byref(to_targets, at), POINTER(c_int32)))
        del to, to_targets
        return (shaped(tokens, "int32", (batch, sequence)),
                shaped(targets, "int32", (batch, sequence)))
