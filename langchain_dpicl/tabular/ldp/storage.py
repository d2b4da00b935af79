"""A file of counted reports, of the kind `ldp_table` (`common/file_format.py`).

Its fields are `schema`, `terms` (epsilon, split, model, unit_key, rows_per_unit),
`record` and `counts` (`ReportCounts.to_dict`). Counts are functions of reports, so all
of it is public. What is loaded is checked: that counts, schema, terms and record agree,
and that the events cost no more than the record says, and no less than the reports did.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from langchain_dpicl.common import file_format
from langchain_dpicl.common.file_format import LDP_TABLE
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.released.checking import (
    checked_record,
    events_of,
    pure_epsilon,
)
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.result import Collected, reconstructed
from langchain_dpicl.tabular.ldp.terms import (
    MECHANISM,
    RELATION,
    LDPTerms,
    same_epsilons,
)
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import TOLERANCE

_UNFIT = (
    DPError,
    InvalidParameterError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
)

Path_ = str | os.PathLike[str]


def write(path: Path_, found: Collected, *, overwrite: bool) -> None:
    """Write what was collected to a file; see `LDPTable.save`."""
    terms = found.terms
    split = terms.split
    content = {
        "schema": terms.schema.describe(),
        "terms": {
            "epsilon": terms.epsilon,
            "split": split
            if isinstance(split, str)
            else {name: float(part) for name, part in split.items()},
            "model": terms.model,
            "unit_key": terms.unit_key,
            "rows_per_unit": terms.rows_per_unit,
        },
        "record": found.record,
        "counts": found.counts.to_dict(),
    }
    file_format.write(path, content, LDP_TABLE, overwrite=overwrite)


def read(path: Path_, schema: TableSchema | None) -> Collected:
    """Read what `write` wrote, and check it; see `LDPTable.load`.

    Raises:
        InvalidParameterError: If it is no such file, was changed, contradicts itself,
            or is of another schema.
    """
    content, reason = file_format.read(path, LDP_TABLE), ""
    try:
        found = _collected(content)
    except _UNFIT as error:
        reason = str(error) if isinstance(error, DPError) else ""
        reason = reason or "a part of it is missing or of another form"
    if reason:
        raise InvalidParameterError(
            f"{str(path)!r} holds no {LDP_TABLE.words}: {reason.rstrip('.')}. "
            f"{LDP_TABLE.way_out}"
        )
    if schema is not None and schema.fingerprint() != found.terms.schema.fingerprint():
        raise InvalidParameterError(
            f"{os.fspath(path)!r} holds reports of another schema. Leave schema= out "
            "to take the file's."
        )
    return found


def _collected(content: Mapping[str, Any]) -> Collected:
    """Put a file's parts together, refusing those that contradict each other."""
    record = checked_record(content["record"])
    stored = content["terms"]
    terms = LDPTerms(
        schema=TableSchema(**content["schema"]),
        epsilon=stored["epsilon"],
        split=stored["split"],
        model=stored["model"],
        unit_key=stored["unit_key"],
        rows_per_unit=stored["rows_per_unit"],
    )
    terms.check()
    counts = ReportCounts.from_dict(content["counts"])
    own, said = terms.described(), record["parameters"]
    epsilons = said["epsilons"]
    agrees = (
        record["mechanism"] == MECHANISM
        and record["relation"] == RELATION
        and record["unit_key"] == terms.unit_key
        and record["delta"] == 0
        and said["rows_per_unit"] == terms.rows_per_unit
        and said["split"] == own["split"]
        and counts.domain_sizes == tuple(terms.sizes.values())
        and counts.label == terms.label
        and counts.n == said["n_reports"] > 0
        and said["schema"] == own["schema"]
        and said["epsilon"] == own["epsilon"] <= record["epsilon"]
        and own["epsilon"] <= pure_epsilon(events_of(record)) * (1 + TOLERANCE)
        and list(epsilons) == list(own["epsilons"])
        and same_epsilons(own["epsilons"], epsilons)
    )
    if not agrees:
        raise InvalidParameterError(
            "its counts, schema and record contradict each other"
        )
    distribution = reconstructed(terms, epsilons, counts)
    return Collected(terms, epsilons, counts, distribution, record)
