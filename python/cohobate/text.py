"""Text to ids, and ids to the windows that training steps read (text.h).

    text ──> Tokenizer.encode ──> ids
    files ──> tokenize ──> token file ──> TokenFile.batch ──> tokens, targets
                               ^──> mix ──┘  each in its share"""
from __future__ import annotations

import ctypes
import logging
import os
import threading
from array import array
from ctypes import (POINTER, byref, c_double, c_int32, c_size_t, c_uint64, c_void_p, cast,
                    sizeof)

from ._library import library
from ._owner import Owner
from ._structs import (CHAT_FORMS, DATA_FORMS, STOPPED, GoOn, coh_token_build_facts,
                       coh_token_build_options, coh_token_file_facts, coh_token_mix_options)
from ._values import (INT32_MOST, INT64_MOST, NO_LIMIT, as_count, as_name, as_path, chosen,
                      facts_of, int32_array, pointer, shaped, sized)

# Between two looks at signals: one that comes just before a wait begins does not end it.
_PATIENCE_S = 0.1


def _array(ids):
    """A list of ids as an int32 array."""
    values = array("i", ids)
    return shaped(values, "int32", (len(values),)) if ids else values


class Tokenizer(Owner):
    """Turns text into ids and back. `what` is "bytes", a Hugging Face folder, or a tokenizer's
    file. Calls of several threads wait for one another; each may have a tokenizer of its own."""

    _what = "tokenizer"
    _takes_turns = True

    def __init__(self, what="bytes"):
        super().__init__(library().coh_tokenizer_close)
        self.what = os.fsdecode(what)
        self._create(library().coh_tokenizer_open, as_path(what))

    @property
    def vocabulary(self) -> int:
        """Number of ids."""
        return self._call(library().coh_tokenizer_vocabulary)

    @property
    def end_of_text(self) -> int:
        """The id that ends a text; -1: none."""
        return self._call(library().coh_tokenizer_end_of_text)

    @property
    def begin_of_text(self) -> int:
        """The id that begins a text; -1: none."""
        return self._call(library().coh_tokenizer_begin_of_text)

    @property
    def around(self) -> tuple:
        """Two lists: the ids that belong before a text, and after it. encode() does not add
        them."""
        lists, counts = [POINTER(c_int32)() for _ in range(2)], [c_size_t() for _ in range(2)]

        def read(tokenizer):
            library().coh_tokenizer_around(tokenizer, byref(lists[0]), byref(counts[0]),
                                           byref(lists[1]), byref(counts[1]))
            return tuple(ids[:count.value] for ids, count in zip(lists, counts))

        return self._call(read)

    @property
    def identity(self) -> int:
        """A hash of everything that determines ids. Token files and training notes have it."""
        return self._call(library().coh_tokenizer_identity)

    def token_id(self, token: str) -> int:
        """The id of a token by its spelling ("<|im_end|>"); -1: there is none."""
        return self._call(library().coh_tokenizer_token_id, as_name(token, "token"))

    def encode(self, text: str | bytes):
        """Ids of a str or of bytes, as an int32 array."""
        text = text.encode() if isinstance(text, str) else bytes(memoryview(text))
        ids, count = POINTER(c_int32)(), c_size_t()
        self._call(library().coh_tokenizer_encode, text, len(text), byref(ids), byref(count))
        try:
            return _array(ids[:count.value])
        finally:
            library().coh_text_free(ids)

    def decode(self, ids) -> bytes:
        """Bytes of the text of ids."""
        ids = int32_array(list(ids), "ids")
        text, count = c_void_p(), c_size_t()
        self._call(library().coh_tokenizer_decode, pointer(ids, c_int32) if ids else None, len(ids),
                   byref(text), byref(count))
        try:
            return ctypes.string_at(text, count.value)
        finally:
            library().coh_text_free(text)

    def _describe(self, note):
        """The tokenizer's part of a training note."""
        note.tokenizer = "bytes" if self.what == "bytes" else os.path.abspath(self.what)
        note.tokenizer_identity = self.identity


def _plural(count, noun):
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _losses(facts, form, field, window):
    """What of a text is not in its token file, or not as it was, for people."""
    if facts.skipped_count:
        yield (f"{_plural(facts.skipped_count, 'line')} left out as bad: "
               f"{_text(facts.skipped_reasons)}; the first: {_text(facts.first_skipped)}")
    cut, longest = facts.cut_document_count, facts.longest_document
    if cut and (form == "chat" or "," in (field or "")):
        count = facts.document_count + facts.held_out_document_count
        kind = _plural(count, "conversation" if form == "chat" else "pair")
        is_cut = ("is", "it is") if cut == 1 else ("are", "they are")
        yield (f"{cut} of {kind} {is_cut[0]} longer than window={window} (the longest has "
               f"{longest} tokens), so {is_cut[1]} cut: window={longest - 1} holds the longest")
    if facts.binary_count:
        yield (f"{_plural(facts.file_count, 'file')} read as text; {facts.binary_count} left out "
               f"as binary (a NUL byte in the first 8 KiB), the first: {_text(facts.first_binary)}")
    if facts.other_count:
        yield (f"{_plural(facts.file_count, 'file')} read; {facts.other_count} left out: named as "
               "a configuration, or neither *.jsonl, *.ndjson or *.jl nor a *.json of documents")
    if facts.lines_as_text_count:
        yield (f"{_plural(facts.lines_as_text_count, 'file')} *.jsonl, *.ndjson or *.jl: read as "
               "text; form=\"jsonl\" or \"chat\" reads the lines")
    if facts.replaced_count:
        halves = "half" if facts.replaced_count == 1 else "halves"
        yield (f"{facts.replaced_count} {halves} of characters (\\ud800 to \\udfff alone): read as "
               "U+FFFD")
    if facts.empty_window_count:
        them = "it" if facts.empty_window_count == 1 else "them"
        yield f"{_plural(facts.empty_window_count, 'window')} left out: nothing in {them} counts"


def _remarks(facts):
    """What became of a text, for people."""
    if facts.chat_form:
        count = facts.document_count + facts.held_out_document_count
        yield f"{_plural(count, 'conversation')}, written as {_text(facts.chat_form)}"
    if facts.cut_byte:
        share = 100 * (facts.text_bytes - facts.cut_byte) / facts.text_bytes
        yield (f"cut at a line end behind byte {facts.cut_byte} of {facts.text_bytes}: the last "
               f"{share:.3g} % put aside for validation")
    elif facts.held_out_document_count:
        yield (f"{_plural(facts.document_count, 'document')}, and {facts.held_out_document_count} "
               "put aside for validation")
    if facts.file_count and not facts.binary_count and not facts.other_count:
        yield f"{_plural(facts.file_count, 'file')} read"


def _text(encoded):
    return encoded.decode(errors="replace")


def _check_form(form, field, chat_form, skip_bad):
    """Refuses options that the form of the text has no use for."""
    for name, is_given, forms in (("field", field is not None, ("jsonl",)),
                                  ("chat_form", chat_form != "auto", ("chat",)),
                                  ("skip_bad", skip_bad, ("jsonl", "chat"))):
        if is_given and form not in forms:
            names = " or ".join(f"form={each!r}" for each in forms)
            raise ValueError(f"{name} is for {names}, and the form is {form!r}: leave it out, or "
                             "give such a form")


def tokenize(tokenizer: Tokenizer | str | os.PathLike, text_path, out_path, *, form: str = "text",
             field: str | None = None, chat_form: str = "auto", window: int = 0,
             held_out_path=None, validation_split: float = 0.0, seed: int = 1, vocabulary: int = 0,
             threads: int = 0, fitted: bool = False, skip_bad: bool = False,
             separate: bool = False) -> int:
    """Writes the token file of a file, or of a folder with everything in it. Returns its number of
    ids. `tokenizer` may be what Tokenizer takes. An existing output is replaced only if it is empty
    or a token file. Options, as `cohobate tokenize` has them:

    form        "text": a file is a document. "jsonl": a line is a document, the text `field` of its
                object (None: "text"; "PROMPT,NAME": both, and the first does not count). "chat": a
                line is a conversation, {"messages": [{"role": ..., "content": ...}, ...]} or of
                another form (docs/data.md), of which the assistant's text counts as targets. A
                file may be an array of such objects
    chat_form   "auto": that of the tokenizer's chat template; else "chatml", "llama3", "llama2",
                "plain"
    window      0: documents follow one another. Else no window of this many tokens has two of them
    fitted      with a window: whole documents share one as long as they fit
    separate    with a window: fitted, and the file marks where documents begin, for a model with
                separate_documents
    held_out_path, validation_split, seed   a share (0 to 1) of the documents of a folder or of JSON
                lines, drawn by a hash of seed and text, goes to a second token file; of one text
                file the last part, from a line end on
    vocabulary  of the model that will read the ids: a larger id is refused. 0: the tokenizer's
    threads     that read files, and parts of files of lines; 0: one for each core
    skip_bad    leaves out lines of JSON that are no documents; else the first is refused, with the
                places of the others in its file

    What is not in the token file as it is in the text (lines or files left out, conversations cut,
    characters replaced) is a warning of logging.getLogger("cohobate"), and what else became of the
    text an info. An option that the form has no use for is refused. Ctrl-C ends it, and leaves
    nothing behind."""
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = Tokenizer(tokenizer)
    options, facts = coh_token_build_options(), sized(coh_token_build_facts)
    library().coh_token_build_options_init_sized(byref(options), sizeof(options))
    options.in_path, options.out_path = as_path(text_path), as_path(out_path)
    options.form = chosen(form, DATA_FORMS, "form")
    options.chat_form = chosen(chat_form, CHAT_FORMS, "chat_form")
    _check_form(form, field, chat_form, skip_bad)
    if (held_out_path is not None) != (validation_split != 0):
        raise ValueError("held_out_path goes with validation_split: give both or neither")
    options.field = None if field is None else as_name(field, "field")
    options.chat_folder = None if tokenizer.what == "bytes" else as_path(tokenizer.what)
    options.held_out_path = None if held_out_path is None else as_path(held_out_path)
    options.window = as_count(window, "window", 0, INT64_MOST)
    options.fitted, options.separate = int(fitted or separate), int(separate)
    options.validation_split, options.seed = validation_split, as_count(seed, "seed")
    options.vocabulary = as_count(vocabulary, "vocabulary", 0, INT32_MOST)
    options.thread_count = as_count(threads, "threads", 0, INT32_MOST)
    options.skip_bad = bool(skip_bad)
    _make(options, lambda: tokenizer._call(library().coh_token_file_make, byref(options),
                                           byref(facts)))
    log, name = logging.getLogger("cohobate"), os.fsdecode(text_path)
    for sentence in _remarks(facts):
        log.info("%s: %s", name, sentence)
    for sentence in _losses(facts, form, field, window):
        log.warning("%s: %s", name, sentence)
    return facts.token_count


def mix(files, out_path, *, seed: int = 1) -> list[int]:
    """Writes several token files as one, as `cohobate mix` does: each of `files` is a path, or a
    pair of a path and how often a pass shall read it (3, or 0.25: a quarter, chosen by `seed`).
    Returns how many ids each has in the mixture. An existing output is replaced only if it is empty
    or a token file. Ctrl-C ends it, and leaves nothing behind."""
    pairs = [each if isinstance(each, tuple) else (each, 1) for each in files]
    options = coh_token_mix_options()
    library().coh_token_mix_options_init_sized(byref(options), sizeof(options))
    options.out_path, options.seed = as_path(out_path), as_count(seed, "seed")
    times = (c_double * len(pairs))(*(times for _, times in pairs))
    counts, opened = (c_uint64 * len(pairs))(), []
    try:
        opened.extend(TokenFile(path) for path, _ in pairs)
        pointers = (c_void_p * len(pairs))(*(file._object.value for file in opened))
        _make(options, lambda: library().coh_token_file_mix(
            pointers, times, len(pairs), byref(options), counts))
    finally:
        for file in opened:
            file.close()
    return list(counts)


def _make(options, call):
    """Calls what makes a token file on another thread: this one may be interrupted meanwhile, where
    a callback of ctypes would drop the exception. The thread has ended when this returns or
    raises."""
    is_cancelled, has_ended, outcome = threading.Event(), threading.Event(), []
    options.go_on = GoOn(lambda _: STOPPED if is_cancelled.is_set() else 0)

    def make():
        try:
            call()
        except BaseException as error:
            outcome.append(error)
        finally:
            has_ended.set()  # an interrupted Thread.join() takes the thread for a dead one

    thread = threading.Thread(target=make, name="cohobate-tokenize")
    try:
        thread.start()
        while not has_ended.wait(_PATIENCE_S):
            pass
    except BaseException:
        is_cancelled.set()
        while thread.ident is not None and not has_ended.is_set():
            try:
                has_ended.wait(_PATIENCE_S)
            except KeyboardInterrupt:
                pass  # the first one is raised
        raise
    if outcome:
        raise outcome[0]


class TokenFile(Owner):
    """A token file, cut into windows of training as `cohobate train` cuts it. len() is its number
    of ids.

    id_bytes    for ids of another program (llm.c, nanoGPT): 2 or 4 bytes each, or 0: as they look;
                None: for a token file
    vocabulary  of such ids; 0: the smallest that holds them"""

    _what = "token file"
    _takes_turns = True

    def __init__(self, path, *, id_bytes: int | None = None, vocabulary: int = 0):
        super().__init__(library().coh_token_file_close)
        self.path = os.path.abspath(os.fsdecode(path))
        vocabulary = as_count(vocabulary, "vocabulary", 0, INT32_MOST)
        if id_bytes is None:
            self._create(library().coh_token_file_open, as_path(path))
        else:
            self._create(library().coh_token_file_open_raw, as_path(path), vocabulary,
                         as_count(id_bytes, "id_bytes", 0, 4))

    @property
    def facts(self):
        """Members of coh_token_file_facts: token_count, vocabulary, hash, has_mask, ..."""
        facts = sized(coh_token_file_facts)
        self._call(library().coh_token_file_facts_get, byref(facts))
        return facts_of(facts)

    def __len__(self):
        return self.facts.token_count

    def __bool__(self):
        return True

    def check(self) -> None:
        """Reads the whole file and compares its hash."""
        self._call(library().coh_token_file_check)

    def read(self, begin: int, count: int):
        """`count` ids from id `begin` on, as an int32 array."""
        begin, count = as_count(begin, "begin"), as_count(count, "count")
        ids = (c_int32 * max(min(count, len(self)), 1))()  # NULL is refused, and more than there is
        self._call(library().coh_token_file_read, begin, count, ids)
        return _array(ids[:count])

    def window_count(self, sequence: int) -> int:
        """Windows of `sequence` tokens in one pass over the data."""
        return self._call(library().coh_token_file_window_count,
                          as_count(sequence, "sequence", 1, INT64_MOST))

    def batch(self, step: int, batch: int, sequence: int, seed: int = 1, *, first_step: int = 0,
              first_window: int = 0, positions: bool = False):
        """Tokens and targets of step `step`, counted from 0: two int32 arrays [batch, sequence]. A
        target of -1 does not count. The same windows as those of `cohobate train --seed`.

        positions                 True: a third array, the position of each token in its document,
                                  for a model with separate_documents
        first_step, first_window  of a run that changed its data or its batch: step `first_step`
                                  began with window `first_window` (TrainingNote.data_options)"""
        batch, sequence = self._sizes(batch, sequence)
        begin = as_count(first_step, "first_step")
        first_window = as_count(first_window, "first_window")
        # windows are counted up to 2**64 - 1
        most = min(begin + (NO_LIMIT + 1 - first_window) // batch - 1, NO_LIMIT)
        first = first_window + (as_count(step, "step", begin, most) - begin) * batch
        seed = as_count(seed, "seed")
        if self.window_count(sequence) == 0:  # the library's sentence, before memory is taken
            self._call(library().coh_token_file_window_positions, seed, 0, sequence, c_int32(),
                       c_int32(), None)
        return self._rows(batch, sequence, lambda i: (seed, first + i),
                          library().coh_token_file_window_positions, positions)

    def batches(self, batch: int, sequence: int, *, start: int = 0, stop: int | None = None,
                seed: int = 1, first_step: int = 0, first_window: int = 0,
                positions: bool = False):
        """Iterates over batch(step, ...) for the steps from `start` up to `stop`; None: without
        end, since a new pass over the data begins where one ends, in another order."""
        step = start
        while stop is None or step < stop:
            yield self.batch(step, batch, sequence, seed, first_step=first_step,
                             first_window=first_window, positions=positions)
            step += 1

    def stretch(self, begin: int, batch: int, sequence: int, *, positions: bool = False):
        """Tokens and targets of `batch` stretches that follow one another in the file from id
        `begin` on: for a loss over a whole text. Targets beyond the end of the file do not count.
        positions as in batch()."""
        batch, sequence = self._sizes(batch, sequence)
        count, begin = len(self), as_count(begin, "begin")
        rows = min(batch, -(-max(count - begin, 1) // sequence))
        return self._rows(batch, sequence, lambda i: (begin + i * sequence,),
                          library().coh_token_file_stretch_positions, positions, rows)

    @staticmethod
    def _sizes(batch, sequence):
        batch = as_count(batch, "batch", 1, INT32_MOST)
        sequence = as_count(sequence, "sequence", 1, INT32_MOST)
        as_count(batch * sequence, "batch * sequence", 1, INT32_MOST)
        return batch, sequence

    def _rows(self, batch, sequence, at, read, positions, rows=None):
        """Two or three arrays, of which `read` fills row i with what is at(i). Other rows do not
        count."""
        count = batch * sequence
        arrays = [array("i", [fill]) * count for fill in ((0, -1, 0) if positions else (0, -1))]
        to = [pointer(each, c_int32) for each in arrays]

        def fill(file):
            for i in range(batch if rows is None else rows):
                place = 4 * i * sequence
                places = [cast(byref(each, place), POINTER(c_int32)) for each in to]
                read(file, *at(i), sequence, *places, *([] if positions else [None]))

        self._call(fill)
        to.clear()
        return tuple(shaped(each, "int32", (batch, sequence)) for each in arrays)

    def _describe(self, note):
        """The file's part of a training note."""
        facts = self.facts
        note.data, note.data_hash = self.path, facts.hash
        if facts.is_raw and not facts.is_llmc:
            note.form = {"id_bytes": facts.id_bytes}
