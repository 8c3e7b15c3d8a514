"""Smoothing of noisy distribution functions: Clarabel and HiGHS against ours, and which smoothing errs least.

    python benchmarks/smoothing.py                     times (about two minutes)
    python benchmarks/smoothing.py --plot FILE.svg     the same, as a figure too
    python benchmarks/smoothing.py --accuracy          mean squared errors instead (about four minutes)

The bar: at 2^15 values at least 50 times Clarabel (p = 2) and 50 times HiGHS (p = 1), where `tests/tasks/distribution`
holds residuals and duality gaps to 1e-12. All solve the same problem in its leanest form, one constraint per increment
with two entries per node of the tree; HiGHS is given the dual, which it solves faster than the primal. Only the
solvers' own time counts, not the building of matrices. Ours includes checking the input.
Times are processor time, of which other work on a shared machine takes less than of the clock's, and all three use
one thread; Clarabel and HiGHS run three times, ours seven times, the best counts. `difference` compares the minima that
were found, relative to ours. Ratios are from this run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from time import process_time

import altair as alt
import clarabel
import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from fedassay.estimation.least_squares import LeastSquares, best_widths
from fedassay.estimation.tree import Tree
from fedassay.tasks.distribution.smoothing.curves import Problem, isotonic, l1, l2

HEIGHTS = (8, 10, 12, 15, 18, 20)
LARGEST_OF_PEERS = 15
ROWS = 100_000


def path_noise(rng: np.random.Generator, height: int, epsilon: float) -> np.ndarray:
    """The paper's mechanism for add-remove neighbours: Laplace noise on all nodes, added along each path."""
    scale, noise = ((height + 2) // 2) / epsilon, np.zeros(1)
    for _ in range(height):
        noise = np.repeat(noise + rng.laplace(0, scale, len(noise)), 2)
    return noise + rng.laplace(0, scale, len(noise))


def tree_noise(rng: np.random.Generator, height: int, epsilon: float) -> np.ndarray:
    """The best fan-out under pure epsilon, least squares over all levels."""
    widths = best_widths(1 << height, lambda levels: 2.0 * levels**2)
    tree, scale = Tree(leaves=1 << height, widths=widths), len(widths) / epsilon
    fit = LeastSquares(tree=tree, variances=(2 * scale**2,) * tree.levels)
    return np.cumsum(fit.estimate(rng.laplace(0, scale, tree.length)))


# --- times ----------------------------------------------------------------------------------------------


def steady(height: int, epsilon: float) -> tuple[np.ndarray, float]:
    """The paper's synthetic data: Poisson(3) rows per point."""
    rng = np.random.default_rng(height)
    counts = rng.poisson(3, 1 << height)
    return np.cumsum(counts) + path_noise(rng, height, epsilon), float(counts.sum())


def wandering(height: int) -> tuple[np.ndarray, float]:
    """A random walk: what took ours the most rounds."""
    return np.cumsum(np.random.default_rng(height).normal(size=1 << height)), 1.0


def incidence(count: int) -> sparse.csc_matrix:
    """How nodes move increments: node (a, b] takes from increment b and gives to increment a."""
    levels = range(count.bit_length())
    starts = np.concatenate([np.arange(0, count, 1 << level) for level in levels])
    ends = np.concatenate([np.arange(1 << level, count + 1, 1 << level) for level in levels])
    nodes, ones = np.arange(len(starts)), np.ones(len(starts))
    entries = np.r_[ones, -ones], (np.r_[starts, ends], np.r_[nodes, nodes])
    return sparse.csc_matrix(entries, shape=(count + 1, len(starts)))


def with_clarabel(curve: np.ndarray, top: float) -> Callable[[], float]:
    B, q = incidence(len(curve)), np.diff(curve, prepend=0.0, append=top)
    nodes = B.shape[1]
    squares, cost, cone = (
        sparse.eye(nodes, format="csc"),
        np.zeros(nodes),
        [clarabel.NonnegativeConeT(len(q))],
    )
    settings, minus = clarabel.DefaultSettings(), sparse.csc_matrix(-B)
    settings.verbose = False

    def solve() -> float:
        return 2 * clarabel.DefaultSolver(squares, cost, minus, q, cone, settings).solve().obj_val

    return solve


def with_highs(curve: np.ndarray, top: float) -> Callable[[], float]:
    B, q = incidence(len(curve)), np.diff(curve, prepend=0.0, append=top)
    both = sparse.vstack([B.T, -B.T], format="csc")
    ones = np.ones(both.shape[0])
    return lambda: -float(linprog(q, A_ub=both, b_ub=ones, method="highs-ds").fun)


def fastest(work: Callable[[], float], *, repetitions: int) -> tuple[float, float]:
    """The value, and the seconds of the fastest repetition."""
    value, best = 0.0, float("inf")
    for _ in range(repetitions):
        started = process_time()
        value = work()
        best = min(best, process_time() - started)
    return value, best


PEERS = {l2: ("Clarabel", with_clarabel), l1: ("HiGHS", with_highs)}


def objective(method: Callable[..., np.ndarray], curve: np.ndarray, top: float) -> float:
    """What `l2` or `l1` has minimised."""
    problem, power = Problem.of(curve, top, None), 2 if method is l2 else 1
    levels, _ = problem.l2_solution() if method is l2 else problem.l1_solution()
    return sum(float((np.abs(level) ** power).sum()) for level in levels) * problem.scale**power


def compare(title: str, height: int, curve: np.ndarray, top: float) -> Iterator[dict[str, object]]:
    for method in (l2, l1, isotonic):
        _, seconds = fastest(lambda method=method: float(method(curve, top=top)[-1]), repetitions=7)
        yield {"who": f"fedassay {method.__name__}", "values": len(curve), "seconds": seconds}
        row = f"{method.__name__:9} {title:9} 2^{height:<3} {1e3 * seconds:9.2f} ms"
        row += f" {1e9 * seconds / len(curve):6.0f} ns"
        if method in PEERS and height <= LARGEST_OF_PEERS:
            name, peer = PEERS[method]
            theirs, slow = fastest(peer(curve, top), repetitions=3)
            yield {"who": name, "values": len(curve), "seconds": slow}
            difference = theirs / objective(method, curve, top) - 1
            row += f"   {name:8} {1e3 * slow:9.1f} ms {slow / seconds:6.0f}x   difference {difference:+.0e}"
        print(row, flush=True)


def times(plot: str | None) -> None:
    print(f"{'method':9} {'curve':9} {'size':5} {'time':>12} {'per value':>9}")
    measured = []
    for height in HEIGHTS:
        measured += compare("ε = 1", height, *steady(height, 1.0))
    for title, curve, top in (("ε = 0.1", *steady(15, 0.1)), ("walk", *wandering(15))):
        list(compare(title, 15, curve, top))
    if plot is not None:
        log = alt.Scale(type="log")
        chart = alt.Chart(alt.Data(values=measured)).mark_line(point=True)
        chart.encode(
            x=alt.X("values:Q", scale=alt.Scale(type="log", base=2), title="values of the curve"),
            y=alt.Y("seconds:Q", scale=log, title="seconds"),
            color=alt.Color("who:N", title=None),
        ).properties(width=420, height=260).save(plot)


# --- errors ---------------------------------------------------------------------------------------------


def shapes(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """True curves of 100,000 rows on a grid of `count` points."""
    t = (np.arange(count) + 0.5) / count

    def drawn(density: np.ndarray) -> np.ndarray:
        return rng.multinomial(ROWS, density / density.sum())

    equal = np.diff(np.arange(count + 1) * ROWS // count)
    masses = {
        "even": drawn(np.ones(count)),
        "quantile grid": equal,
        "bell": drawn(np.exp(-(((t - 0.5) / 0.1) ** 2) / 2)),
        "flat tails": drawn((np.abs(t - 0.5) < 0.01).astype(float)),
        "concentrated": drawn(np.exp(-t / 0.005)),
        "8 atoms": np.bincount(rng.choice(rng.choice(count, 8, replace=False), ROWS), minlength=count),
    }
    return {name: np.cumsum(mass).astype(float) for name, mass in masses.items()}


def error_ratios(truth: np.ndarray, noises: list[np.ndarray], *, known: bool) -> list[str]:
    """The mean squared error of each smoothing over that of none, with its standard error.

    `known`: the number of rows is public; otherwise the noisy curve's own last value is the top.
    """
    before, after = [], []
    for noise in noises:
        curve = truth + noise
        top = ROWS if known else max(curve[-1], 1.0)
        before.append((noise**2).mean())
        after.append([((method(curve, top=top) - truth) ** 2).mean() for method in (isotonic, l2, l1)])
    ratios = np.mean(after, axis=0) / np.mean(before)
    spread = (
        np.std(np.array(after) - np.outer(before, ratios), axis=0) / np.mean(before) / np.sqrt(len(noises))
    )
    return [f"{ratio:.3g} ± {error:.1g}" for ratio, error in zip(ratios, spread, strict=True)]


def accuracy() -> None:
    print("| points | noise | ε | curve | isotonic | l2 | l1 | isotonic, noisy top | l2 | l1 |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for height, runs in ((10, 200), (15, 40)):
        rng = np.random.default_rng(height)
        truths = shapes(rng, 1 << height)
        for name, draw in (("path", path_noise), ("tree", tree_noise)):
            for epsilon in (0.1, 1.0):
                noises = [draw(rng, height, epsilon) for _ in range(runs)]
                for shape, truth in truths.items():
                    cells = error_ratios(truth, noises, known=True) + error_ratios(truth, noises, known=False)
                    print(
                        f"| 2^{height} | {name} | {epsilon:g} | {shape} | " + " | ".join(cells) + " |",
                        flush=True,
                    )


def absolute_by_simplex(curve: np.ndarray, top: float) -> np.ndarray:
    B, q = incidence(len(curve)), np.diff(curve, prepend=0.0, append=top)
    both = sparse.hstack([-B, B], format="csc")
    nodes = linprog(np.ones(both.shape[1]), A_ub=both, b_ub=q, method="highs-ds").x.reshape(2, -1)
    return np.cumsum(q + B @ (nodes[0] - nodes[1]))[:-1]


def absolute_by_interior_point(curve: np.ndarray, top: float) -> np.ndarray:
    B, q = incidence(len(curve)), np.diff(curve, prepend=0.0, append=top)
    count, settings = 2 * B.shape[1], clarabel.DefaultSettings()
    settings.verbose = False
    constraints = sparse.vstack([sparse.hstack([-B, B]), -sparse.eye(count)], format="csc")
    limits, cone = np.r_[q, np.zeros(count)], [clarabel.NonnegativeConeT(len(q) + count)]
    nothing = sparse.csc_matrix((count, count))
    solver = clarabel.DefaultSolver(nothing, np.ones(count), constraints, limits, cone, settings)
    nodes = np.array(solver.solve().x).reshape(2, -1)
    return np.cumsum(q + B @ (nodes[0] - nodes[1]))[:-1]


def choices() -> None:
    """`l1` has many solutions: the errors of ours and of those that solvers happen to return."""
    print("\n| curve | l1, ours | HiGHS, simplex | Clarabel, interior point |\n|---|---|---|---|")
    height, rng = 9, np.random.default_rng(9)
    noises = [path_noise(rng, height, 1.0) for _ in range(60)]
    ways = (lambda curve, top: l1(curve, top=top), absolute_by_simplex, absolute_by_interior_point)
    for shape, truth in shapes(rng, 1 << height).items():
        errors = [np.mean([((way(truth + x, ROWS) - truth) ** 2).mean() for x in noises]) for way in ways]
        before = np.mean([(x**2).mean() for x in noises])
        print(f"| {shape} | " + " | ".join(f"{error / before:.2f}" for error in errors) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accuracy", action="store_true", help="mean squared errors instead of times")
    parser.add_argument("--plot", metavar="FILE", help="write the times as a figure")
    options = parser.parse_args()
    if options.accuracy:
        accuracy()
        choices()
    else:
        times(options.plot)


if __name__ == "__main__":
    main()
