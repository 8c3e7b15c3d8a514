"""Exact discrete noise against OpenDP, and shares of it, at three sizes and three scales each.

    python benchmarks/samplers.py

Both sides draw the same laws from secure randomness; OpenDP runs once per row (it takes seconds), ours is the
best of three. A check at the end compares the two samples, so that speed is not bought with a wrong law.

Shares (Pólya and Skellam) have no peer that draws them exactly. They are timed beside NumPy's floating-point
samplers of the same laws, which nobody should release with, to show what being exact costs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from time import perf_counter

import numpy as np
import opendp.prelude as dp
from scipy import stats

from fedassay.privacy.accounting import GAUSSIAN, LAPLACE, SKELLAM, draw, draw_parts, noise_of
from fedassay.privacy.randomness import SecureRandomness

SIZES = (10_000, 100_000, 1_000_000)
SCALES = (1.0, 40.0, 10_000.0)


def theirs(law: str, scale: float, count: int) -> Callable[[], list[int]]:
    distance = dp.l1_distance(T="i64") if law == LAPLACE else dp.l2_distance(T="f64")
    make = dp.m.make_laplace if law == LAPLACE else dp.m.make_gaussian
    mechanism = make(dp.vector_domain(dp.atom_domain(T="i64")), distance, scale)
    zeros = [0] * count
    return lambda: mechanism(zeros)


def seconds(work: Callable[[], object], *, repetitions: int) -> float:
    taken = []
    for _ in range(repetitions):
        started = perf_counter()
        work()
        taken.append(perf_counter() - started)
    return min(taken)


def floats(law: str, scale: float, parts: Fraction, count: int) -> Callable[[], object]:
    generator, r = np.random.default_rng(1), float(parts)
    if law == SKELLAM:
        mean = r * scale * scale / 2
        return lambda: generator.poisson(mean, count) - generator.poisson(mean, count)
    p = -np.expm1(-1 / scale)
    return lambda: generator.negative_binomial(r, p, count) - generator.negative_binomial(r, p, count)


def shares(source: SecureRandomness) -> None:
    print(
        f"\n{'shares of':18} {'scale':>8} {'parts':>7} {'draws':>9} {'NumPy':>10} {'fedassay':>10} {'per draw':>9}"
    )
    for law in (LAPLACE, SKELLAM):
        for scale in SCALES:
            noise = noise_of(law, Fraction(scale))
            for parts in (Fraction(1, 1000), Fraction(1, 10), Fraction(5, 4)):
                for count in SIZES:
                    slow = seconds(floats(law, scale, parts, count), repetitions=3)
                    fast = seconds(
                        lambda noise=noise, count=count, parts=parts: draw_parts(noise, count, parts, source),
                        repetitions=2,
                    )
                    print(
                        f"{law:18} {scale:8.0f} {parts!s:>7} {count:9,} {slow:8.4f} s {fast:8.4f} s "
                        f"{1e9 * fast / count:6.0f} ns",
                        flush=True,
                    )


def main() -> None:
    dp.enable_features("contrib")
    source = SecureRandomness()
    print(f"{'law':18} {'scale':>8} {'draws':>9} {'OpenDP':>10} {'fedassay':>10} {'ratio':>7}")
    for law in (LAPLACE, GAUSSIAN):
        for scale in SCALES:
            noise = noise_of(law, Fraction(scale))
            for count in SIZES if scale == SCALES[1] else SIZES[:2]:
                slow = seconds(theirs(law, scale, count), repetitions=1)
                fast = seconds(lambda noise=noise, count=count: draw(noise, count, source), repetitions=3)
                row = f"{law:18} {scale:8.0f} {count:9,} {slow:8.3f} s {fast:8.4f} s {slow / fast:6.0f}x"
                print(row, flush=True)
    for law in (LAPLACE, GAUSSIAN):
        sample = np.array(theirs(law, 40.0, 50_000)())
        p_value = stats.ks_2samp(sample, draw(noise_of(law, Fraction(40)), 50_000, source)).pvalue
        print(
            f"{law}: two-sample Kolmogorov-Smirnov p-value {p_value:.2f} (near 0 would mean different laws)"
        )
    shares(source)


if __name__ == "__main__":
    main()
