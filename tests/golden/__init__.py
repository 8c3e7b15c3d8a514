"""Golden files: what fedassay computes and says today, stored so that a refactoring shows what it has moved.

- `cells/*.json`: the results of about 80 pairs of a task and a trust model, on small data, with a seed (`cells`).
- `help/*.txt`, `options.json`: the help of every command; names, types and defaults of its options (`commands`).
- `report/*`: a small study as the page, the model card and the terminal show it (`study`).
- `usage.json`: wrong usages of the command line, each with its exit code and its sentence (`usages`).
- `tests/vectors/envelope.json`: a request of every kind of query and trust model, a reply and a refusal as bytes
  (`messages`). Announcements, letters and the trust models' own messages have vectors beside it.

All are written anew, from the top of the repository, by::

    PYTHONPATH=src:tests python -m golden.freeze

or some of them: ``python -m golden.freeze cells help``. A change of a golden file is explained by its commit.
"""
