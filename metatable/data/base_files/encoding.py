"""How the columns of a base file are stored: as dictionaries or not, by a codec or by none.

Who writes a new file looks at some of its rows and decides for all; who writes one that follows
another does as that one does, so that its pages may stand beside others of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from metatable.data.columns.schema import COMMIT_COLUMN, META_COLUMNS, NAME_COLUMN, PATH_COLUMN
from metatable.data.config.options import Options
from metatable.data.rows.taking import taken
from metatable.storage.arrays import Float64s

__all__ = ["Encoding"]

_SAMPLE = 8192
"""Rows looked at to decide whether a column is worth a dictionary."""

_RUN = 4096
"""Rows behind each other that are encoded to decide whether a column is worth a codec."""

_LEAST_ROWS = 16 * _RUN
"""Of fewer rows, encoding some of them twice would cost more than it spares."""

_WORTH = 16
"""A codec is worth its calls where it spares a part in so many: each page takes one when it is
written, and whenever it is read."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How leaf columns are stored, by their paths."""

    dictionaries: Collection[str]
    """Those whose values are stored once, and the places of these."""
    plain: Collection[str] = ()
    """Those without a codec, beside the ones that never have one (`codecs`)."""

    @classmethod
    def of(cls, rows: pa.Table, options: Options) -> Encoding:
        """That of a new file whose first rows these are."""
        dictionaries = _worth_a_dictionary(rows)
        return cls(dictionaries, _not_worth_a_codec(rows, dictionaries, options))

    def codecs(self, schema: pa.Schema, options: Options) -> dict[str, str]:
        """The codec of each leaf column. What has one value in a file, or some in long runs, is a
        few bytes a page: no codec makes fewer of them."""
        plain = {*_few_valued(options), *self.plain}
        return {
            leaf: "none" if field.name in plain else options.parquet_codec
            for field in schema
            for leaf in _leaves(field)
        }


def _few_valued(options: Options) -> tuple[str, ...]:
    return COMMIT_COLUMN, PATH_COLUMN, NAME_COLUMN, *options.partition_by


def _worth_a_dictionary(table: pa.Table) -> list[str]:
    """Leaf columns whose values repeat in a sample; nested ones are not looked at, but get one, nor
    Hudi's own, of which three repeat and two never do."""
    if not table.num_rows:
        return []
    rows = pa.array(
        np.linspace(0, table.num_rows - 1, min(_SAMPLE, table.num_rows)).astype(np.int64)
    )
    worth = [COMMIT_COLUMN, PATH_COLUMN, NAME_COLUMN]
    for field in table.schema:
        if field.name in META_COLUMNS:
            continue
        if pa.types.is_nested(field.type):
            worth += _leaves(field)
        elif pa.types.is_boolean(field.type) or len(rows) == 1:
            continue
        elif pc.count_distinct(taken(table.select([field.name]), rows)[0]).as_py() * 2 <= len(rows):
            worth.append(field.name)
    return worth


def _not_worth_a_codec(
    rows: pa.Table, dictionaries: Collection[str], options: Options
) -> frozenset[str]:
    """Columns of numbers, and of dictionaries, that the codec makes hardly smaller: values as
    likely as each other, in no order. Rows behind each other tell, encoded with and without: taken
    here and there, values that come in patterns would look as if they had none."""
    few = _few_valued(options)
    names = [
        field.name
        for field in rows.schema
        if field.name not in few and _may_do_without(field, dictionaries)
    ]
    if rows.num_rows < _LEAST_ROWS or options.parquet_codec == "none" or not names:
        return frozenset()
    run = rows.select(names).slice((rows.num_rows - _RUN) // 2, _RUN)
    runs = min(rows.num_rows, options.row_group_rows) / _RUN
    dictionary, data = _sizes(run, dictionaries, "none")
    packed_dictionary, packed_data = _sizes(run, dictionaries, options.parquet_codec)
    every = dictionary + runs * data
    spared = every - packed_dictionary - runs * packed_data
    return frozenset(np.array(names)[spared * _WORTH < every].tolist())


def _may_do_without(field: pa.Field, dictionaries: Collection[str]) -> bool:
    kind = field.type
    is_number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return is_number or (field.name in dictionaries and not pa.types.is_nested(kind))


def _sizes(rows: pa.Table, dictionaries: Collection[str], codec: str) -> tuple[Float64s, Float64s]:
    """Bytes of each column as it would be stored: of its dictionary, and of all else."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression=codec,
        use_dictionary=[name for name in rows.column_names if name in dictionaries],
        write_statistics=False,
        store_schema=False,
    )
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    columns = [group.column(leaf) for leaf in range(group.num_columns)]
    every = np.array([one.total_compressed_size for one in columns], np.float64)
    first = np.array([_dictionary_bytes(one) for one in columns], np.float64)
    return first, every - first


def _dictionary_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    if not chunk.has_dictionary_page:
        return 0
    size: int = chunk.data_page_offset - chunk.dictionary_page_offset
    return size


def _leaves(field: pa.Field) -> list[str]:
    """Parquet's paths of the leaves below a field."""
    kind = field.type
    if pa.types.is_struct(kind):
        below = [leaf for inner in kind for leaf in _leaves(inner)]
    elif pa.types.is_list(kind):
        below = [f"list.{leaf}" for leaf in _leaves(kind.value_field.with_name("element"))]
    elif pa.types.is_map(kind):
        key = ["key_value.key"]
        below = key + [f"key_value.{leaf}" for leaf in _leaves(kind.item_field.with_name("value"))]
    else:
        return [field.name]
    return [f"{field.name}.{leaf}" for leaf in below]
