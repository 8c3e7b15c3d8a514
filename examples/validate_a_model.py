"""A biostatistician validates one model over five hospitals, none of which hands over a row.

    python examples/validate_a_model.py [FOLDER]

The model is a naive Bayes classifier of breast tumours, trained on some of the 569 that come with scikit-learn. The
others are dealt to five simulated hospitals of different sizes. One study asks: how well does the model rank, can its
probabilities be believed, and which sets of diagnoses cover the truth 19 times out of 20? Under the secure sum,
nobody learns more than totals over all hospitals.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import fedassay
from fedassay.cli import run_command

HOSPITALS = ("Aarau", "Bern", "Chur", "Delemont", "Emmen")

STUDY = """\
name = "tumours"
title = "Malignant or not: a naive Bayes classifier in five hospitals"
model = "naive-bayes 1.0"

[data]
path = "scores.csv"
client = "hospital"

[data.columns]
score = "probability"
label = "malignant"

[privacy]
privacy = "secure-sum"

[runtime]
seed = 1

[split]
holdout = 0.5    # of so few rows, half is kept to judge what the other half has fitted

[tasks.evaluate]
thresholds = [0.1, 0.5]

[tasks.calibrate]
method = "platt"

[tasks.conformal]
level = 0.95
"""


def scored_patients() -> pd.DataFrame:
    """What the hospitals would have: one row per patient, the model's probability and the truth."""
    features, benign = load_breast_cancer(return_X_y=True)
    malignant = 1 - benign
    train, rest, y_train, y_rest = train_test_split(
        features, malignant, train_size=100, stratify=malignant, random_state=0
    )
    model = GaussianNB().fit(train, y_train)
    hospital = np.random.default_rng(0).choice(HOSPITALS, len(rest), p=(0.3, 0.25, 0.2, 0.15, 0.1))
    return pd.DataFrame(
        {"hospital": hospital, "probability": model.predict_proba(rest)[:, 1], "malignant": y_rest}
    )


def main(folder: Path) -> None:
    """Write the data and the study, run it, and read what it says."""
    folder.mkdir(parents=True, exist_ok=True)
    patients = scored_patients()
    patients.to_csv(folder / "scores.csv", index=False)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    print(
        f"{len(patients)} patients in {patients.hospital.nunique()} hospitals. The study is {folder / 'study.toml'}.\n"
    )

    # The same as `fedassay run study.toml` in a terminal.
    if code := run_command(["run", str(folder / "study.toml"), "--quiet"]):
        sys.exit(code)

    results = folder / "tumours"
    result = fedassay.Result.from_json((results / "result.json").read_text(encoding="utf-8"))
    print(result["verdict"]["text"], "\n")
    auc = result["tasks"]["evaluate"]["results"]["roc_auc"]
    print(f"AUC {auc['value']:.3f}, 95% interval {auc['interval'][0]:.3f} to {auc['interval'][1]:.3f}.")

    # What a hospital does with the artefacts: nothing leaves its machine.
    new = np.array([0.02, 0.5, 1.0])
    calibrated = fedassay.load_calibrator(results / "calibrator.json").predict(new)
    sets = fedassay.ConformalPredictor.load(results / "conformal.json").predict_set(score=new)
    names = np.array(["benign", "malignant"])
    for score, better, held in zip(new, calibrated, sets, strict=True):
        words = " or ".join(names[held]) or "neither"
        print(f"The model says {score:.2f}: calibrated {better:.2f}, prediction set: {words}.")
    print(f"\nReport: {results / 'report.html'}. Check it: fedassay verify {results} --any-key")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "validated"))
