"""What the public terms of both tables have: a schema, a unit, and how many rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import PositiveFloat, PositiveInt, field_validator, model_validator
from typing_extensions import Self

from langchain_dpicl.accounting import Charge
from langchain_dpicl.common import file_format, parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import Public
from langchain_dpicl.tabular.schema import TableSchema


class TableTerms(Public):
    """The public terms of a release: its identity, its key, and part of its record.

    Attributes:
        table_schema: The public schema.
        unit_key: The column that says whose a row is; None: each row is a unit.
        rows_per_unit: Most rows of a unit that take part.
        epsilon: What a unit pays at delta 0; None leaves it to the account.
        row_unit: The `unit_key` of the records that rows were read from, one row a unit
            (`TextRows`); None: a row is not known to be more than a row.
    """

    mechanism: ClassVar[str]
    """The release's public name, in the account and in records."""

    table_schema: TableSchema
    unit_key: str | None = None
    rows_per_unit: PositiveInt = 1
    epsilon: PositiveFloat | None = None
    row_unit: str | None = None

    @field_validator("table_schema", mode="before")
    @classmethod
    def _schema(cls, given: Any) -> Any:
        return TableSchema(**given) if isinstance(given, Mapping) else given

    @field_validator("rows_per_unit")
    @classmethod
    def _count(cls, given: int) -> int:
        return parameters.count(given, "it")

    @field_validator("epsilon", mode="before")
    @classmethod
    def _finite(cls, given: Any) -> float | None:
        return None if given is None else parameters.epsilon(given, "it")

    @model_validator(mode="after")
    def _of_units(self) -> Self:
        if self.unit_key is not None and not self.unit_key.strip():
            raise ValueError("unit_key: it must be the name of a column")
        if self.unit_key is None and self.rows_per_unit != 1:
            raise ValueError(
                "rows_per_unit= needs unit_key=, the column that says whose a row is: "
                "without one each row is a unit of its own"
            )
        return self

    @property
    def charged_unit(self) -> str | None:
        """What names the protected unit for the account; None: a row."""
        return self.unit_key or self.row_unit

    @property
    def unit(self) -> str:
        """What is protected, for the record."""
        if self.unit_key is not None:
            return f"all rows with the same {self.unit_key!r}"
        if self.row_unit is not None:
            return f"all records with the same {self.row_unit!r}, read as one row"
        return "one row"

    def charge(self) -> Charge:
        """Return what a release is charged."""
        raise NotImplementedError

    def digest(self) -> str:
        """Return what tells releases apart that are not the same measurement."""
        return file_format.digest(self.model_dump(mode="json"))

    def parameters(self) -> dict[str, Any]:
        """Return the terms for the record, the schema by its digest."""
        hidden = {"table_schema", "unit_key", "row_unit"}
        terms = self.model_dump(mode="json", exclude=hidden)
        schema = self.table_schema.fingerprint()
        return {"schema": schema, **terms, "text_key": "text", "label_key": "label"}


def require_schema(schema: Any) -> TableSchema:
    """Refuse what is no schema, before a model's error could show it.

    Raises:
        InvalidParameterError: If it is none.
    """
    if not isinstance(schema, TableSchema):
        raise InvalidParameterError(
            f"schema must be a TableSchema, not {type(schema).__name__}: it says which "
            "values and bounds are public. draft_schema(model, about=...) drafts one."
        )
    return schema
