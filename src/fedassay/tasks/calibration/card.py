"""Cards of the calibrations: of scores and of logits."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.tasks.card import KindCard
from fedassay.tasks.command import ARTEFACT_FILE, CLASSIFIER_COLUMNS, CommandCard

CALIBRATE = KindCard(
    name="calibrate",
    title="Calibration of a binary classifier",
    section="Calibration",
    order=30,
    purpose="does the model need a calibrator, and which? It is judged on rows that it has not seen",
    reads="scores",
    command=CommandCard(
        sentence="Fit a calibrator to a part of the rows and judge it on the others, with intervals.",
        order=12,
        entry_point=Named("fedassay.api:calibrate"),
        inputs=(*CLASSIFIER_COLUMNS, ARTEFACT_FILE),
        without=("classes",),
    ),
    columns=("score", "label"),
    task=Named("fedassay.tasks.calibration.calibrate:Calibrate"),
    parameters=Named("fedassay.tasks.calibration.parameters:CalibrateParameters"),
    document=Named("fedassay.tasks.calibration.document:CalibrationDocument"),
    results=Named("fedassay.tasks.calibration.results:CalibrationResults"),
    forecast=Named("fedassay.tasks.calibration.forecast:CalibrationForecast"),
    forecast_of="a calibration: how far the fitted map will be from the truth; with --classes, that of logits",
    artefact=Named("fedassay.artefacts.stored_calibrator:Calibrator.of"),
    artefact_file="calibrator.json",
    rules=Named("fedassay.tasks.calibration.parameters:CalibrationRules"),
    in_first_study=True,
)

CALIBRATE_CLASSES = KindCard(
    name="calibrate-classes",
    asked_as="calibrate",
    reads="logits",
    title="Calibration of a classifier with several classes",
    section="Calibration",
    order=31,
    purpose=CALIBRATE.purpose,
    columns=("class", "logits"),
    task=Named("fedassay.tasks.calibration.multiclass.calibrate:CalibrateMulticlass"),
    parameters=Named("fedassay.tasks.calibration.parameters:CalibrateMulticlassParameters"),
    document=Named("fedassay.tasks.calibration.multiclass.document:ClassCalibrationDocument"),
    results=Named("fedassay.tasks.calibration.results:ClassCalibrationResults"),
    forecast=Named("fedassay.tasks.calibration.multiclass.forecast:ClassCalibrationForecast"),
    artefact=Named("fedassay.artefacts.stored_calibrator:ClassCalibrator.of"),
    artefact_file="calibrator.json",
    rules=Named("fedassay.tasks.calibration.parameters:ClassCalibrationRules"),
    example={"classes": 10},
)
