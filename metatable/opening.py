"""Create a table, or open one that is there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from metatable.arguments import in_order
from metatable.data.columns.schema import decode_schema, encode_schema, normal
from metatable.data.columns.schema_text import TableSchema
from metatable.data.config.option_checks import check_mapping
from metatable.data.config.options import COPY_ON_WRITE, Options
from metatable.data.hoodie.properties import PROPERTIES_PATH, TableProperties
from metatable.data.keys.keygen import KeyGenerator
from metatable.data.rows.merge import check_ordering
from metatable.index import create_index
from metatable.metadata.commits.other_formats import other_format
from metatable.metadata.commits.refusals import check_properties
from metatable.metadata.manifests.manifest import WRITER_FORMAT, Manifest, least_reader
from metatable.metadata.manifests.versions import load_newest
from metatable.metadata.partitions.overlap import check_clustered
from metatable.metadata.partitions.stored import partitions_of
from metatable.storage import clock
from metatable.storage.errors import ConflictError, CorruptError, UpgradeError, UsageError
from metatable.storage.store import Store
from metatable.table import Table

__all__ = ["create", "open_table"]

Uri = str | os.PathLike[str]


def create(
    uri: Uri,
    schema: pa.Schema,
    *,
    key: str | Sequence[str],
    partition_by: str | Sequence[str] = (),
    ordering: str | None = None,
    index: str = "metadata_bloom",
    table_type: str = COPY_ON_WRITE,
    cluster_by: str | Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make an empty table, and open it.

    `uri`: a folder, or an address such as `s3://bucket/rides`; `storage_options` go to the client
    of its store.
    `schema`: the table's columns. `key`: those that identify a row; `partition_by`: those that name
    its partition; `ordering`: of rows with one key, the greatest value in this column wins.
    A timestamp that orders a merge-on-read table is stored in microseconds.
    `index`: `metadata_bloom`, `bloom`, `record`, `hbase`, `bucket`, or a name that was registered.
    `table_type`: `cow` (copy-on-write), where commits write file groups anew, or `mor`
    (merge-on-read), where they put logs on top of them, which readers merge and `compact_logs`
    makes one file of.
    `cluster_by`: columns by which new files are cut, so that each value lies in few files: in the
    order of one, or along a space-filling curve through several; without any, by the key.
    `options`: other fields of `metatable.Options`, such as `key_scope`, `buckets`, `hfile_codec`.

    Raises UsageError for what cannot be a table, and where there is one already, of whatever
    format (Hudi, Delta, Iceberg), or where the store knows no put-if-absent; ConflictError where
    somebody else creates another one here.
    """
    if not isinstance(schema, pa.Schema):
        found, expected = type(schema).__name__, "a pyarrow.Schema, such as that of its rows"
        raise UsageError("a table is created from a schema", found=found, expected=expected)
    store = Store(uri, storage_options)
    schema = normal(schema)
    if options is not None:
        check_mapping(options)
    given = {
        "key": in_order("key", key),
        "partition_by": in_order("partition_by", partition_by),
        "ordering": ordering,
        "index": index,
        "table_type": table_type,
        "cluster_by": in_order("cluster_by", cluster_by),
    }
    name = store.uri.rpartition("/")[2] or "table"
    made = Options.create(name, schema.names, options=options, **given)  # type: ignore[arg-type]
    kept = partitions_of(made, create_index(made))
    made = made.keeping({one.name: one.bucket_count for one in kept})
    schema = _ordered(schema, made)
    KeyGenerator(made, schema)
    check_ordering(schema, ordering)
    check_clustered(TableSchema.of(schema), made, made.cluster_by)
    _refuse_others(store)
    store.check_refusals()
    asked = {"reader": least_reader(made), "writer": WRITER_FORMAT}
    told = encode_schema(schema)
    manifest = Manifest(1, "create", told, made, time_ms=clock.now_ms(), format=asked)
    if not store.create(manifest.path, manifest.encode()):
        manifest = _begun(store, manifest)
    schema = decode_schema(manifest.schema, manifest.path)
    properties = TableProperties.of(manifest.options, schema).encode()
    if not store.create(PROPERTIES_PATH, properties):  # last: with it, the table is there
        raise ConflictError("somebody else has just created this table: open it", path=store.uri)
    return Table(store)


def _ordered(schema: pa.Schema, options: Options) -> pa.Schema:
    """The columns, the ordering one in microseconds if it has moments and logs go by it: Hudi 0.15
    on Spark reads base files so, and compares numbers, so that milliseconds of logs always lose."""
    if options.ordering is None or not (options.has_logs and options.hudi_readable):
        return schema
    place = schema.get_field_index(options.ordering)
    field = schema.field(place)
    if not pa.types.is_timestamp(field.type):
        return schema
    return schema.set(place, field.with_type(pa.timestamp("us", field.type.tz)))


def _refuse_others(store: Store) -> None:
    """Raise UsageError where there is a table already, of ours or of another format."""
    asked = (partial(store.size, PROPERTIES_PATH), partial(other_format, store))
    size, other = store.together(asked)
    if size is not None:
        raise UsageError("there is a table here already: open it", path=store.uri)
    if other is not None:
        expected = "a folder without one"
        what = "there is a table of another format here"
        raise UsageError(what, path=store.uri, expected=expected, found=other)


def open_table(uri: Uri, storage_options: Mapping[str, str] | None = None) -> Table:
    """Open a table. Raises NotFoundError where there is none, UpgradeError for a table of another
    Hudi writer (`adopt` makes an index for it), or in a form that this version must not touch."""
    store = Store(uri, storage_options)
    properties = check_properties(store)
    newest = load_newest(store)
    if newest is None:
        raise UpgradeError(
            "a Hudi table that metatable did not create: metatable.adopt makes an index for it",
            path=store.uri,
        )
    properties.check(newest.options)
    return Table(store)


def _begun(store: Store, manifest: Manifest) -> Manifest:
    """Version 1 as it lies there: of a creation that died, or of one that is under way.

    It is finished, by whoever comes first, if it is the table that was asked for.
    """
    newest = load_newest(store)
    if newest is None or newest.version > 1:
        raise CorruptError(
            "a table without its properties: restore the file",
            path=f"{store.uri}/{PROPERTIES_PATH}",
        )
    salts = replace(manifest.options, key_salts=newest.options.key_salts)
    columns = [TableSchema.decode(one.schema, one.path) for one in (manifest, newest)]
    if salts != newest.options or columns[0] != columns[1]:
        raise ConflictError(
            "somebody else creates, or began to create, another table here: open it, or,"
            " where nobody does, delete the folder .hoodie",
            path=store.uri,
            expected=_definition(manifest),
            found=_definition(newest),
        )
    return newest


def _definition(manifest: Manifest) -> dict[str, Any]:
    options = manifest.options
    named = {name: getattr(options, name) for name in ("key", "partition_by", "ordering", "index")}
    return named | {"schema": manifest.schema}
