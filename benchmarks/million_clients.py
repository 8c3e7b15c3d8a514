"""One-row clients under each trust model: seconds and peak memory at 10^4, 10^5 and 10^6 clients.

Each run is a process of its own, so that its peak memory is its own. The bar: seconds, and under 2 GB.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

SIZES = (10_000, 100_000, 1_000_000)


def one(name: str, clients: int) -> dict[str, float]:
    import numpy as np

    import fedassay
    from fedassay.trust import TRUST_MODELS

    rng = np.random.default_rng(0)
    score = rng.random(clients)
    data = {"p": score, "y": (rng.random(clients) < score).astype(np.int8)}
    trust = TRUST_MODELS[name]()
    budget = fedassay.Budget(epsilon=1.0) if trust.private else None
    started = time.perf_counter()
    result = fedassay.evaluate(data, score="p", label="y", privacy=trust, budget=budget)
    assert result.runtime["mode"] == "aggregate"
    return {
        "seconds": time.perf_counter() - started,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "roc_auc": result["roc_auc"]["value"],
    }


def main() -> None:
    from fedassay.trust import TRUST_MODELS

    print(f"{'trust model':<14} {'clients':>10} {'seconds':>9} {'peak GB':>9} {'ROC AUC':>9}")
    for name in TRUST_MODELS:
        for clients in SIZES:
            output = subprocess.run(
                [sys.executable, __file__, name, str(clients)], capture_output=True, text=True, check=True
            ).stdout
            row = json.loads(output)
            seconds, memory = f"{row['seconds']:.2f}", f"{row['gigabytes']:.2f}"
            print(f"{name:<14} {clients:>10,} {seconds:>9} {memory:>9} {row['roc_auc']:>9.5f}")
            assert row["gigabytes"] < 2


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
