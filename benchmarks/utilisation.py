"""Floating-point operations of a token, and the fraction of the GPU's peaks that a rate of tokens reaches.

Model FLOP utilisation is that of PaLM (Chowdhery et al., 2022, arXiv:2204.02311, appendix B): in training a token takes

    6 N + 12 L H Q T

for a dense decoder with N weights, each in one product forward and two backward, and L layers of H heads of width Q,
whose scores and sums are T tokens wide. Recomputation, and other operations of an implementation, do not count. N
counts weights that multiply: four matrices of C x C and eight more for the two of 4 C in each block, and the
classifier; not lookup tables, biases and norms.

PaLM counts all of attention's square. Half of it is masked, and is not computed in causal attention: work() excludes
it, and is used for claims on the roof."""


def weights(shape, vocabulary):
    """shape: layers, heads, channels, as everywhere in this file."""
    layers, _, channels = shape
    return 12 * layers * channels**2 + vocabulary * channels


def of_a_token(shape, vocabulary, sequence):
    """By PaLM's definition."""
    layers, _, channels = shape  # of all heads together
    return 6 * weights(shape, vocabulary) + 12 * layers * channels * sequence


def work(shape, vocabulary, sequence):
    """PaLM's, without what causal attention does not compute."""
    layers, _, channels = shape
    return of_a_token(shape, vocabulary, sequence) - 6 * layers * channels * sequence


def parts(tokens_per_second, shape, vocabulary, sequence, peaks):
    """Model FLOP utilisation for each of the peaks, name -> FLOP/s; unknown ones are left out."""
    flops = of_a_token(shape, vocabulary, sequence)
    return {"flops_per_token": flops,
            **{name: tokens_per_second * flops / peak for name, peak in peaks.items() if peak}}
