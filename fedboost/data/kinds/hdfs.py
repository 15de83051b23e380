"""Hadoop's storage; it needs Hadoop's library and Java on the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedboost.data.kinds.kind import Storage
from fedboost.ground.errors import ConfigError

if TYPE_CHECKING:
    from fedboost.data.sources import SourceSpec


def _file_system(source: SourceSpec, _place: str, _options: dict[str, str]) -> tuple[Any, str]:
    import pyarrow.fs as pafs

    try:
        filesystem, path = pafs.FileSystem.from_uri(source.path)
        return filesystem, path
    except OSError as error:
        if "libjvm" in str(error) or "libhdfs" in str(error):
            raise ConfigError(
                "hdfs:// needs Hadoop's own library (libhdfs) and Java on the party's machine",
                todo="install them, and set HADOOP_HOME and CLASSPATH",
                private=str(error),
            ) from None
        raise


HDFS_STORAGE = Storage(scheme="hdfs", port="8020", opened=_file_system)
