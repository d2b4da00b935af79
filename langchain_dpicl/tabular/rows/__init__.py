"""Reading private tables: chunks of columns, and which rows take part.

`read_chunks` brings rows of any kind (text files, frames, mappings, a database) into
one form, chunk by chunk. `RowReader` checks and encodes every row, and hands on those
that are in a fresh Poisson sample of the units, a bounded number of each unit.
"""

from langchain_dpicl.tabular.rows.arrow import ArrowRows
from langchain_dpicl.tabular.rows.chunks import CHUNK_SIZE, Chunk, read_chunks
from langchain_dpicl.tabular.rows.reader import RowReader
from langchain_dpicl.tabular.rows.sql import SQLRows
from langchain_dpicl.tabular.rows.text_files import CSVRows, JSONRows

__all__ = [
    "CHUNK_SIZE",
    "ArrowRows",
    "CSVRows",
    "Chunk",
    "JSONRows",
    "RowReader",
    "SQLRows",
    "read_chunks",
]
