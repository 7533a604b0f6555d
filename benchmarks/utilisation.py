"""Floating-point operations of a token, and which parts of the GPU's peaks a rate of tokens is.

Model FLOP utilisation is that of PaLM (Chowdhery et al., 2022, arXiv:2204.02311, appendix B): in training a token takes

    6 N + 12 L H Q T

of a dense decoder with N weights, each in one product forward and two backward, and L layers of H heads of width Q, whose
scores and sums are T tokens wide. What is computed again, and what any implementation does beside, does not count. N here
are weights that multiply: four matrices of C x C and eight more for the two of 4 C in each block, and the classifier; not
tables that are looked up, biases and norms.

PaLM counts all of attention's square. Half of it is behind the diagonal, and is not computed where attention is causal:
work() leaves it out, and is what claims on the roof are held to."""


def weights(shape, vocabulary):
    """shape: layers, heads, channels, as in all of this file."""
    layers, _, channels = shape
    return 12 * layers * channels**2 + vocabulary * channels


def of_a_token(shape, vocabulary, sequence):
    """PaLM's."""
    layers, _, channels = shape  # of all heads together
    return 6 * weights(shape, vocabulary) + 12 * layers * channels * sequence


def work(shape, vocabulary, sequence):
    """PaLM's without what causal attention does not compute."""
    layers, _, channels = shape
    return of_a_token(shape, vocabulary, sequence) - 6 * layers * channels * sequence


def parts(tokens_per_second, shape, vocabulary, sequence, peaks):
    """Model FLOP utilisation over each of the peaks, name -> FLOP/s; those that are not known are left out."""
    flops = of_a_token(shape, vocabulary, sequence)
    return {"flops_per_token": flops,
            **{name: tokens_per_second * flops / peak for name, peak in peaks.items() if peak}}
