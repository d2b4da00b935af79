"""What `utility_tabular.py` compares with: models that are trained, not prompted.

diffprivlib and scikit-learn are no dependencies of the library. Where they are not
installed, the figures are missing and the benchmark says so:

    pip install diffprivlib "scikit-learn<1.8"

diffprivlib 0.6.6 can't be imported with later versions of scikit-learn. Its bounds
and norms come from the public schema, as here all bounds do. Its labels are those that
the rows have; the tables' labels are public, so nothing is given away by that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from utility_tabular_report import (
    DIFFPRIVLIB_BAYES,
    DIFFPRIVLIB_LOGISTIC,
    EPSILONS,
    LOCAL_BAYES,
    LOCAL_LOGISTIC,
    TRAINED_BAYES,
    TRAINED_LOGISTIC,
)
from utility_tabular_schemas import LABEL

if TYPE_CHECKING:
    from utility_tabular import Table

    from langchain_dpicl.tabular import LDPTable, TableSchema

DRAWN = 5000
"""Rows that are drawn from an `LDPTable` to train on."""

Matrix = NDArray[np.float64]
Answers = tuple["Baseline", list[str]]


@dataclass(frozen=True)
class Baseline:
    """What was trained, and at what epsilon; None where it is not private."""

    what: str
    epsilon: float | None


def missing_libraries() -> list[str]:
    """Return what can't be compared with here, and why."""
    reasons = {"scikit-learn": _missing(_scikit), "diffprivlib": _missing(_diffprivlib)}
    return [
        f"No figures of {name}, which can't be imported: {reason}."
        for name, reason in reasons.items()
        if reason
    ]


def _missing(load: Callable[[], Any]) -> str | None:
    try:
        load()
    except ImportError as error:
        return str(error)
    return None


def _scikit() -> Any:
    from sklearn import linear_model, naive_bayes

    return linear_model, naive_bayes


def _diffprivlib() -> Any:
    from diffprivlib import models

    return models


def features(schema: TableSchema, rows: Sequence[Any]) -> Matrix:
    """Return rows as numbers, each column with a norm of at most 1.

    A number runs from -1 to 1 between its public bounds; a category is one of several
    zeros and ones.
    """
    parts: list[Matrix] = []
    for column in schema.features:
        cells = [row[column.name] for row in rows]
        if column.kind == "categorical":
            parts.append(np.eye(column.domain_size)[column.codes(cells)])
        else:
            scaled = column.grid(cells).astype(float) / column.bound
            parts.append(scaled.reshape(-1, 1))
    return np.hstack(parts)


def binned_features(schema: TableSchema, rows: Sequence[Any], *, raw: bool) -> Matrix:
    """Return rows as zeros and ones, numbers by their bins."""
    parts: list[Matrix] = []
    for column in schema.features:
        cells = [row[column.name] for row in rows]
        if raw:
            codes = column.codes(cells)
        else:
            known = {column.code_value(at): at for at in range(column.domain_size)}
            codes = np.array([known[cell] for cell in cells])
        parts.append(np.eye(column.domain_size)[codes])
    return np.hstack(parts)


def _labels(schema: TableSchema, rows: Sequence[Any]) -> NDArray[np.int64]:
    return schema.label_column.codes([row[LABEL] for row in rows])


def private(table: Table, run: int) -> Iterator[Answers]:
    """Train on all rows: without privacy in the first run, and by diffprivlib."""
    schema = table.schema
    train, test = features(schema, table.train), features(schema, table.test)
    labels = _labels(schema, table.train)

    def answers(model: Any) -> list[str]:
        return _fitted(model, schema, train, labels, test)

    try:
        linear, bayes = _scikit()
    except ImportError:
        return
    if run == 0:
        logistic = linear.LogisticRegression(max_iter=500)
        yield Baseline(TRAINED_LOGISTIC, None), answers(logistic)
        yield Baseline(TRAINED_BAYES, None), answers(bayes.GaussianNB())
    try:
        models = _diffprivlib()
    except ImportError:
        return
    lower = np.array(train.shape[1] * [0.0])
    lower[_numeric(schema)] = -1.0
    bounds = (lower, np.ones(train.shape[1]))
    norm = math.sqrt(len(schema.features))
    for epsilon in EPSILONS:
        logistic = models.LogisticRegression(
            epsilon=epsilon, data_norm=norm, random_state=run
        )
        yield Baseline(DIFFPRIVLIB_LOGISTIC, epsilon), answers(logistic)
        naive = models.GaussianNB(epsilon=epsilon, bounds=bounds, random_state=run)
        yield Baseline(DIFFPRIVLIB_BAYES, epsilon), answers(naive)


def reconstructed(
    table: Table, released: LDPTable, epsilon: float, run: int
) -> Iterator[Answers]:
    """Train on rows that are drawn from what was released; it costs nothing more."""
    try:
        linear, bayes = _scikit()
    except ImportError:
        return
    schema = table.schema
    drawn = released.sample(DRAWN, balanced=False)
    train = binned_features(schema, drawn, raw=False)
    test = binned_features(schema, table.test, raw=True)
    labels = _labels(schema, drawn)
    kinds: tuple[tuple[str, Callable[[], Any]], ...] = (
        (LOCAL_LOGISTIC, lambda: linear.LogisticRegression(random_state=run)),
        (LOCAL_BAYES, bayes.BernoulliNB),
    )
    for what, make in kinds:
        yield (
            Baseline(what, epsilon),
            _fitted(make(), schema, train, labels, test),
        )


def _fitted(
    model: Any,
    schema: TableSchema,
    train: Matrix,
    labels: NDArray[np.int64],
    test: Matrix,
) -> list[str]:
    """Train and return what the model says of the test rows."""
    if len(set(labels.tolist())) == 1:
        found = np.full(len(test), labels[0])
    else:
        with warnings.catch_warnings():
            # Of too few iterations at much noise, and of versions.
            warnings.simplefilter("ignore")
            found = model.fit(train, labels).predict(test)
    column = schema.label_column
    return [column.code_text(int(code)) for code in found]


def _numeric(schema: TableSchema) -> list[int]:
    """Return the places of numbers among the features."""
    places, at = [], 0
    for column in schema.features:
        if column.kind == "categorical":
            at += column.domain_size
        else:
            places.append(at)
            at += 1
    return places
