"""Exceptions: Error for a call that failed, Refusal for a plan or a run that does not fit.

The one idea: an exception is plain data, copied from the library when the call failed. So it can be
pickled, and outlives everything else."""


class Error(Exception):
    """A call of the library failed. The text is the library's sentence: what failed, with which
    figures, what to do.

    status     name of the C code: "COH_ERR_ARGUMENT", "COH_ERR_IO", ... (status.h)
    exit_code  exit code that the command line program ends with"""

    def __init__(self, sentence: str, status: str = "COH_ERR_ARGUMENT", exit_code: int = 2):
        super().__init__(sentence)
        self.status = status
        self.exit_code = exit_code


class Refusal(Error):
    """A plan or a run does not fit. Attributes are the members of coh_refusal (refusal.h):

    reason       "in-memory", "far-tier", "step", ...
    tier         the tier that is short: "device", "host", "disk"; None: none, or several
    given_bytes, needed_bytes, short_bytes; 0: not about bytes
    is_proven    True: no plan of these options fits
    changes      what helps, the cheapest first: each has kind ("raise", "add-disk", ...), tier,
                 bytes, microbatch, is_least
    and is_least, is_gpu, is_with_disk, microbatch, operator_name, pin, profile, path, items"""

    def __init__(self, sentence: str, status: str = "COH_ERR_FULL", exit_code: int = 3, **figures):
        super().__init__(sentence, status, exit_code)
        self.__dict__.update(figures)
