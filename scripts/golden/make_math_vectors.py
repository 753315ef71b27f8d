#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Values of exp, exp2, log, pow and tanh, rounded from 200 bits, for testdata/math/vectors.txt.

  make_math_vectors.py FILE

Each line is a function, its arguments and its result, as hexadecimal floats. Arguments are random
over the range of each function, near its limits, and those of many random ones whose result lies
nearest to the middle of two doubles. Needs numpy with an 80-bit long double, and mpmath; the same
bytes every time.
"""

import pathlib
import sys

import mpmath
import numpy

RANDOM, SEARCHED, HARD = 150, 400_000, 60
LIMITS = {"exp": (-745.0, 709.0), "exp2": (-1074.0, 1023.0), "log": (-1073.0, 1023.0), "tanh": (-19.0, 19.0)}
ROUND = {"exp": [709.782712893384, -708.4, -745.13, 5e-324, -5e-324, 1e-17, 0.5, 1.0, -1.0],
         "exp2": [-1074.0, -1073.5, -1022.5, 1023.9999999999999, 0.5, -0.25, 1e-17],
         "log": [5e-324, 1e-310, 1.7976931348623157e308, 0.5, 2.0, 0.9999999999999999, 1.0000000000000002, 10.0],
         "tanh": [5e-324, 3.7e-9, 3.8e-9, 0.0013, 0.0014, 0.5, 19.9]}
POWERS = [(10.0, -323.0), (10.0, 308.0), (3.0, 2.0), (1.5, -3.0), (-2.0, 3.0), (-2.5, -3.0), (-3.0, 4.0),
          (0.9999999999999999, 1e17), (1.0000000000000002, -3e17), (2.0, 0.5), (5e-324, 0.5), (5e-324, -0.9),
          (1e-310, 1.03), (1.7976931348623157e308, 0.9999), (7.0, 1e-300), (4.0, -537.0)]


def exact(name, arguments):
    values = [mpmath.mpf(float(argument)) for argument in arguments]
    if name == "pow":
        return mpmath.power(*values)
    return {"exp": mpmath.exp, "exp2": lambda x: mpmath.power(2, x), "log": mpmath.log,
            "tanh": mpmath.tanh}[name](*values)


def rounded(value):
    """Returns the double nearest to a value; mpmath's own conversion rounds twice below 2^-1022."""
    if abs(value) < mpmath.mpf(2) ** -1022:
        units = int(mpmath.nint(value * mpmath.mpf(2) ** 1074))
        return units * 5e-324
    return float(value)


def from_middle(name, arguments):
    """Returns how far a result is from the middle of two doubles, in units of its last place."""
    value = abs(exact(name, arguments))
    place = mpmath.mpf(2) ** max(int(mpmath.floor(mpmath.log(value, 2))) - 52, -1074)
    return abs(mpmath.frac(value / place) - 0.5)


def random_arguments(name, rng, count):
    """Returns arrays of arguments, one for each that the function takes."""
    if name == "pow":
        x = numpy.exp2(rng.uniform(-40.0, 40.0, count))
        return [x, rng.uniform(-700.0, 700.0, count) / numpy.maximum(numpy.abs(numpy.log(x)), 0.7)]
    low, high = LIMITS[name]
    if name == "log":
        near = rng.uniform(0.9, 1.1, count)
        return [numpy.where(rng.random(count) < 0.5, near, numpy.exp2(rng.uniform(low, high, count)))]
    small = rng.choice([-1.0, 1.0], count) * numpy.exp2(rng.uniform(-27.0, 3.0, count))
    return [numpy.where(rng.random(count) < 0.5, small, rng.uniform(low, high, count))]


def hard_arguments(name, rng):
    """Returns the arguments among SEARCHED whose results are hardest to round."""
    columns = random_arguments(name, rng, SEARCHED)
    function = {"pow": numpy.power, "exp": numpy.exp, "exp2": numpy.exp2, "log": numpy.log, "tanh": numpy.tanh}[name]
    results = numpy.abs(function(*[column.astype(numpy.longdouble) for column in columns]))
    mantissas = numpy.frexp(results)[0] * numpy.longdouble(2.0) ** 53
    distance = numpy.abs(mantissas - numpy.floor(mantissas) - numpy.longdouble(0.5))
    near = numpy.argsort(distance)[:4 * HARD]
    candidates = [tuple(float(column[i]) for column in columns) for i in near]
    return sorted(candidates, key=lambda arguments: from_middle(name, arguments))[:HARD]


def main():
    mpmath.mp.prec = 200
    rng = numpy.random.Generator(numpy.random.PCG64(33))
    lines = []
    for name in ("exp", "exp2", "log", "pow", "tanh"):
        cases = POWERS if name == "pow" else [(x,) for x in ROUND[name]]
        columns = random_arguments(name, rng, RANDOM)
        cases = cases + [tuple(float(column[i]) for column in columns) for i in range(RANDOM)]
        for arguments in cases + hard_arguments(name, rng):
            numbers = [*arguments, rounded(exact(name, arguments))]
            lines.append(" ".join([name] + [number.hex() for number in numbers]))
    pathlib.Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
