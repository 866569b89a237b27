"""Addresses: where a table's store is in the words of Spark's Hadoop.

    ours                              Hadoop's
    /folder                           file:///folder
    s3://bucket/a%20b                 s3a://bucket/a b, if it does not know s3 (as EMR's does)
    gs://bucket/…                     the same
    az://container/…, abfs://…, …     abfss://container@account.dfs.core.windows.net/…

Spark opens the files itself, with the credentials of its own session; nothing of the session
is set here. A classic session's Hadoop is asked what it knows; on Spark Connect nobody can be
asked, and what is missing is told by Spark when the rows are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from metatable.engine.shared_store import check_shared
from metatable.spark.demands import is_connect
from metatable.storage.errors import UsageError
from metatable.storage.store import Store

__all__ = ["root_for"]

_AZURE = ("az", "azure", "adl", "abfs", "abfss")
_HADOOPS = {"s3": ("s3", "s3a"), "s3a": ("s3a",)} | dict.fromkeys(_AZURE, ("abfss",))
"""By our scheme, the ones of Hadoop's to be tried, in this order."""

_PACKAGES = {
    "s3a": "org.apache.hadoop:hadoop-aws:{version}",
    "abfss": "org.apache.hadoop:hadoop-azure:{version}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
}
_ACCOUNTS = ("account_name", "azure_account_name", "azure_storage_account_name")


def root_for(session: Any, store: Store) -> str:
    """The address of the store for this session. Raises UsageError where it has none."""
    scheme = urlsplit(store.uri).scheme if "://" in store.uri else ""
    if not scheme:
        return f"file://{store.uri}"
    check_shared(store)
    schemes = _HADOOPS.get(scheme, (scheme,))
    known = _known(session, schemes)
    if known is None:
        raise _unknown(session, store, schemes[-1])
    rest = unquote(store.uri.partition("://")[2])  # Hadoop takes a %20 for these three characters
    return f"{known}://{_with_account(store, rest) if scheme in _AZURE else rest}"


def _known(session: Any, schemes: Sequence[str]) -> str | None:
    """The first of the schemes for which the session's Hadoop has a class."""
    if is_connect(session):
        return schemes[-1]
    from py4j.protocol import Py4JError  # noqa: PLC0415  (there is no JVM on Spark Connect)

    conf = session._jsparkSession.sessionState().newHadoopConf()
    for scheme in schemes:
        try:
            session._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
        except Py4JError:  # no such class, or none that can be loaded
            continue
        return scheme
    return None


def _unknown(session: Any, store: Store, scheme: str) -> UsageError:
    version = session._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    package = _PACKAGES.get(scheme, "").format(version=version)
    expected = f"spark.jars.packages={package}, when the session is made" if package else None
    what = f"Spark's Hadoop has no file system for {scheme}://"
    return UsageError(what, path=store.uri, expected=expected or "a connector for it")


def _with_account(store: Store, rest: str) -> str:
    """`container/…` as `container@account.dfs.core.windows.net/…`, which it may be already."""
    container, _, path = rest.partition("/")
    if "@" in container:
        return rest
    given = {name.lower(): value for name, value in store.options.items()}
    named = [given[name] for name in _ACCOUNTS if name in given]
    account = named[0] if named else os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        what = "Spark needs the name of the storage account"
        raise UsageError(what, path=store.uri, expected="account_name in storage_options")
    return f"{container}@{account}.dfs.core.windows.net/{path}"
