"""What `pciescope convert` is compared with: numpy, into an array that is there already.

    peers.py KERNEL SAMPLES MILLISECONDS

prints a line "numpy:how median best" for each way: nanoseconds of a pass, measured as peers.c does.
"""

import sys
import time

import numpy as np

FEWEST, BATCH_NS, DEGREES = 15, 50e3, 57.29577951308232


def ways(operation, x, out):
    """How numpy does it, by name; the factor has the output's type, so that nothing wider is computed."""
    factor = {"scale": 0.1, "unsigned": 1 / 32768, "signed": 1 / 32768, "degrees": DEGREES / 8192}.get(operation)
    if factor is None:
        yield "copyto", lambda: np.copyto(out, x)
        yield "astype", lambda: x.astype(out.dtype)
        return
    factor = out.dtype.type(factor)
    if operation == "scale":
        offset = out.dtype.type(-5)

        def two_passes():
            np.multiply(x, factor, out=out)
            np.add(out, offset, out=out)

        yield "multiply+add", two_passes
        return
    yield "multiply", lambda: np.multiply(x, factor, out=out)


def timed(way, times):
    begun = time.perf_counter_ns()
    for _ in range(times):
        way()
    return time.perf_counter_ns() - begun


def measure(way, most_ns):
    way()
    batch = 1
    while timed(way, batch) < BATCH_NS:
        batch *= 2
    turns, begun = [], time.perf_counter_ns()
    while len(turns) < FEWEST or time.perf_counter_ns() - begun < most_ns:
        turns.append(timed(way, batch) / batch)
    turns.sort()
    return turns[len(turns) // 2], turns[0]


def main():
    kernel, samples, milliseconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    sample, operation, output, *decimation = kernel.split("-")
    step = int(decimation[0][1:]) if decimation else 1
    types = {"u16": np.uint16, "i16": np.int16, "f32": np.float32, "f64": np.float64}
    words = np.random.default_rng(1).integers(0, 1 << 16, samples, dtype=np.uint16).view(types[sample])
    x = words[: samples // step * step : step]
    out = np.ones(len(x), dtype=types[output])
    for name, way in ways(operation, x, out):
        median, best = measure(way, milliseconds * 1e6)
        print(f"numpy:{name} {median:.3f} {best:.3f}")


main()
