"""The user's own classes, found again by who opens a run: from any folder, without `--config-dir`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lamarckian_cli.config.folders import open_user_code
from lamarckian_cli.errors import ConfigError, MissingPackage, RunError
from lamarckian_cli.launch.runfolder import RunFolder


@contextmanager
def code_of(folder: RunFolder) -> Iterator[None]:
    """Let what is made inside name classes in the folders that the run remembers, then in this one.

    Raises RunError where a module is missing and one of those folders is gone.
    """
    remembered = folder.code()
    open_user_code(remembered=remembered)
    try:
        yield
    except (ConfigError, MissingPackage) as error:
        gone = [str(place) for place in remembered if not place.is_dir()]
        if not gone or not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        raise RunError(
            f"{error} ({folder.path} had code from folders that are gone: {', '.join(gone)})"
        ) from error
