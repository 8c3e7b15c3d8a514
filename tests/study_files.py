"""Study files for tests."""

from __future__ import annotations

BINARY = """\
name = "readmission-spring"
title = "Readmission within 30 days"
model = "readmission-net 2.1"

[data]
path = "scores.parquet"
client = "hospital"

[data.columns]
score = "p"
label = "y"

[privacy]
privacy = "distributed-dp"
epsilon = 2.0
delta = 1e-6
rows_per_client = 100
training_epsilon = 3.0

[privacy.parameters]
dropout = 0.2

[runtime]
seed = 1

[split]
holdout = 0.25

[expected]
rows = 100_000
clients = 40
prevalence = 0.2
auc = 0.8

[tasks.evaluate]
thresholds = [0.1, 0.5]

[tasks.calibrate]
method = "isotonic"

[tasks.conformal]
level = 0.9

[tasks.conformal95]
task = "conformal"
level = 0.95
"""

CLASSES = """\
name = "species"
[data]
path = "z.npz"
partition = "iid"
clients = 5
[data.columns]
class = "y"
logits = "z"
[tasks.evaluate]
[tasks.calibrate]
method = "temperature"
[tasks.conformal]
conditional = "class"
"""

FILE_DROP = """\
name = "release"
[privacy]
privacy = "distributed-dp"
epsilon = 1.0
[runtime]
name = "file-drop"
drop = "drop"
key = "keys/coordinator.key"
roster = "roster.toml"
[tasks.evaluate]
[tasks.conformal]
sets = "binary"
"""

DEPLOYMENT = """\
name = "release"
[runtime]
name = "flower-deployment"
app = "app"
address = "127.0.0.1:9093"
root_certificates = "ca.crt"
timeout = 30
[tasks.evaluate]
"""
