"""This package for the workers of a session, which may have another one or none."""

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

import roamcast

_SHIPPED = "_roamcast_shipped"  # on a session that has the package already


def ship(spark: SparkSession) -> None:
    """Send the package to the workers of a session, whoever made it; once."""
    if not getattr(spark, _SHIPPED, False):
        spark.addArtifacts(str(_package_zip()), pyfile=True)
        setattr(spark, _SHIPPED, True)


@cache
def _package_zip() -> Path:
    """Sorted and without dates, so that its bytes are always the same; named after them, because Spark
    refuses a second file of the same name."""
    source = Path(roamcast.__file__).parent
    folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "roamcast.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                name = Path(source.name) / path.relative_to(source)
                archive.writestr(zipfile.ZipInfo(name.as_posix()), path.read_bytes())
    digest = hashlib.sha256(target.read_bytes()).hexdigest()[:12]
    return target.rename(folder / f"roamcast-{digest}.zip")
