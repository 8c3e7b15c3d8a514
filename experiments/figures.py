"""The paper's Figures 2 to 5 for one data set, laid out."""

from __future__ import annotations

import altair as alt

from experiments import calibrating as cal
from experiments import plots
from experiments.common import (
    DEFAULT,
    DISTRIBUTED,
    FEDERATED,
    LOCAL,
    MODELS,
    PUBLISHED,
    SAME_BINS,
    Case,
    Model,
)
from experiments.judges import BINS, BUCKETS, DECISIONS
from experiments.measured import (
    VARIANTS,
    Measured,
    bucket_curve,
    distance_curve,
    epsilon_curve,
    height_curve,
    size_curve,
)
from experiments.plots import Dot, Guide, Panel

TITLES = {
    FEDERATED.name: "federated (exact secure sum)",
    DISTRIBUTED.name: "distributed-dp, ε = 1",
    LOCAL.name: "local-dp, ε = 5",
}
STYLES = {
    PUBLISHED: plots.PUBLISHED_STYLE,
    SAME_BINS: plots.SAME_STYLE,
    DEFAULT: plots.DEFAULT_STYLE,
}
M_TITLE = "clients M (one row each)"
M_TICKS = (1e3, 1e4, 1e5, 1e6)
EPSILON_TICKS = (0.1, 1.0, 10.0)


def figure_2(seen: Measured) -> alt.VConcatChart:
    """Precision, recall and accuracy against the height."""

    def panel(model: Model, metric: str) -> Panel:
        default = seen.by_height[len(seen.sample), Case(model=model, variant=DEFAULT), (metric,)]
        curves = {
            variant: height_curve(seen, Case(model=model, variant=variant), metric)
            for variant in (PUBLISHED, SAME_BINS)
            if model is not FEDERATED or variant == PUBLISHED
        }
        return Panel(
            title=TITLES[model.name] if metric == DECISIONS[0] else "",
            x_title="height h (2^h bins)",
            curves={**curves, DEFAULT: plots.constant(default, seen.scope.heights)},
            note="ours, default: no error\n(declared thresholds are edges)" if default.mean == 0 else "",
            log_x=False,
            ticks=tuple(float(height) for height in seen.scope.heights if height % 2 == 0),
        )

    rows = [(f"error of {metric}", [panel(model, metric) for model in MODELS]) for metric in DECISIONS]
    return plots.page(rows, STYLES, f"Error against the height of the hierarchy: {_named(seen)}")


def figure_3(seen: Measured) -> alt.VConcatChart:
    """Precision, recall and accuracy against the number of clients."""

    def panel(model: Model, metric: str) -> Panel:
        shown = [v for v in VARIANTS if model is not FEDERATED or v != SAME_BINS]
        curves = {v: size_curve(seen, Case(model=model, variant=v), metric) for v in shown}
        exact = all(dot.point.mean == 0 for dot in curves[DEFAULT])
        return Panel(
            title=TITLES[model.name] if metric == DECISIONS[0] else "",
            x_title=M_TITLE,
            curves=curves,
            note="ours, default: no error" if exact else "",
            ticks=M_TICKS,
        )

    rows = [(f"error of {metric}", [panel(model, metric) for model in MODELS]) for metric in DECISIONS]
    return plots.page(rows, STYLES, f"Error against the number of clients, h = 10: {_named(seen)}")


UNIFORM, QUANTILE, NO_BUCKETS = (
    "uniform buckets, as published",
    "quantile buckets, as published",
    "ours, default (no buckets)",
)
AUC_STYLES = {
    UNIFORM: plots.SECOND_PUBLISHED_STYLE,
    QUANTILE: plots.PUBLISHED_STYLE,
    SAME_BINS: plots.SAME_STYLE,
    NO_BUCKETS: plots.DEFAULT_STYLE,
}
AUC_VARIANTS = {QUANTILE: PUBLISHED, SAME_BINS: SAME_BINS, NO_BUCKETS: DEFAULT}


def figure_4(seen: Measured) -> alt.VConcatChart:
    """The AUC against the number of buckets, of clients, and epsilon."""
    rows = seen.scope.rows

    def by_buckets(model: Model) -> Panel:
        published, same = Case(model=model, variant=PUBLISHED), Case(model=model, variant=SAME_BINS)
        default = seen.by_buckets[rows, Case(model=model, variant=DEFAULT), ("all bins", 0)]
        curves = {
            UNIFORM: bucket_curve(seen, published, "uniform"),
            QUANTILE: bucket_curve(seen, published, "quantile"),
            SAME_BINS: bucket_curve(seen, same, "quantile"),
            NO_BUCKETS: plots.constant(default, BUCKETS),
        }
        if model is FEDERATED:
            del curves[SAME_BINS]
        guides = (
            Guide(label="1/2B", line=tuple((b, 1 / (2 * b)) for b in BUCKETS)),
            Guide(label="1/3B²", line=tuple((b, 1 / (3 * b * b)) for b in BUCKETS)),
        )
        title, ticks = TITLES[model.name], (4.0, 16.0, 64.0, 256.0)
        return Panel(title=title, x_title="buckets B", curves=curves, guides=guides, ticks=ticks)

    def by_size(model: Model) -> Panel:
        curves = {
            name: size_curve(seen, Case(model=model, variant=variant), "roc_auc")
            for name, variant in AUC_VARIANTS.items()
        }
        return Panel(x_title=M_TITLE, curves=curves, ticks=M_TICKS)

    def by_epsilon(model: Model) -> Panel | None:
        if model is FEDERATED:  # no noise, no epsilon
            return None
        curves = {
            name: epsilon_curve(seen, Case(model=model, variant=variant), "roc_auc")
            for name, variant in AUC_VARIANTS.items()
        }
        return Panel(title=model.name, x_title="ε", curves=curves, ticks=EPSILON_TICKS)

    layout: list[tuple[str, list[Panel | None]]] = [
        ("error of the AUC", [by_buckets(model) for model in MODELS]),
        ("error of the AUC", [by_size(model) for model in MODELS]),
        ("error of the AUC", [by_epsilon(model) for model in MODELS]),
    ]
    return plots.page(layout, AUC_STYLES, f"Error of the AUC: {_named(seen)}")


CALIBRATION_STYLES = {
    cal.HISTOGRAM: plots.PUBLISHED_STYLE,
    cal.BBQ: plots.SECOND_PUBLISHED_STYLE,
    cal.OUR_HISTOGRAM: plots.SAME_STYLE,
    cal.OUR_BBQ: plots.DEFAULT_STYLE,
    cal.OUR_CHOICE: plots.THIRD_STYLE,
    cal.UNTOUCHED: plots.PLAIN_STYLE,
    cal.CENTRAL: plots.BLACK_STYLE,
}


def figure_5(seen: Measured) -> alt.VConcatChart:
    """Calibration errors: what calibrators leave against the number of bins, and their distance from the truth."""

    def left(model: Model) -> Panel:
        names = [name for name in CALIBRATION_STYLES if name != cal.OUR_HISTOGRAM]
        curves = {
            name: [Dot(x=bins, point=seen.held_out[model.name, name, bins]) for bins in BINS]
            for name in names
        }
        floor = tuple((bins, seen.held_out[model.name, cal.FLOOR, bins].mean) for bins in BINS)
        return Panel(
            title=TITLES[model.name],
            x_title="bins of the calibration error",
            curves=curves,
            guides=(Guide(label=cal.FLOOR, line=floor, below=True),),
            ticks=(5.0, 10.0, 20.0, 50.0),
        )

    def distance(model: Model) -> Panel:
        names = (cal.HISTOGRAM, cal.BBQ, cal.OUR_HISTOGRAM, cal.OUR_BBQ)
        curves = {name: distance_curve(seen, model, name) for name in names}
        return Panel(x_title="clients M that fit", curves=curves, ticks=M_TICKS)

    layout = [
        ("calibration error left", [left(model) for model in MODELS]),
        ("distance from the truth", [distance(model) for model in MODELS]),
    ]
    return plots.page(layout, CALIBRATION_STYLES, f"Calibration: {_named(seen)}")


def figure_6(seen: Measured) -> alt.VConcatChart:
    """The estimated calibration error of the model as it is, against the number of bins."""
    rows = seen.scope.rows

    def panel(model: Model) -> Panel:
        shown = [v for v in VARIANTS if model is not FEDERATED or v != SAME_BINS]
        curves = {
            v: [
                Dot(x=bins, point=seen.estimated[rows, Case(model=model, variant=v), ("ece", bins)])
                for bins in BINS
            ]
            for v in shown
        }
        ticks = (5.0, 10.0, 20.0, 50.0)
        return Panel(title=TITLES[model.name], x_title="bins", curves=curves, ticks=ticks)

    layout = [("error of the estimate", [panel(model) for model in MODELS])]
    return plots.page(layout, STYLES, f"Error of the estimated calibration error: {_named(seen)}")


def _named(seen: Measured) -> str:
    return f"{seen.sample.name}, {len(seen.sample):,} rows"
