"""Hydra, as `lamarck` uses it: its whole command line, our folders, and no noise of its own.

`run_hydra` hands arguments to a `hydra.main` task. HYDRA_FULL_ERROR makes Hydra raise
what it would print, so that every error leaves here as one ConfigError.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lamarckian_cli.config.callbacks import failure, forget_sweeps, remove_unused, sweep_jobs
from lamarckian_cli.config.catalogue import groups, keys
from lamarckian_cli.config.explain import explain
from lamarckian_cli.config.flags import check_flags
from lamarckian_cli.config.folders import added_entries, all_folders, conf_dir, config_dir_of, open_user_code
from lamarckian_cli.errors import ConfigError, LamarckError, RunError

Task = Callable[[DictConfig], Any]
VERSION_BASE = "1.3"
TRAIN, EVOLVE = "config", "evolve"
"""The primary file of each command that composes one."""

FOLDER_NAME_LIMIT = 120  # characters; file systems stop at 255 bytes


class AddedFolders(SearchPathPlugin):
    """Puts LAMARCK_CONFIG_PATH behind our own folder, for every way into Hydra."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for entry in added_entries():
            path = entry if entry.startswith("pkg://") else f"file://{entry}"
            search_path.append(provider="LAMARCK_CONFIG_PATH", path=path)


def run_hydra(
    task: Task, arguments: Sequence[str], *, program: str, config_name: str = TRAIN
) -> list[JobReturn]:
    """Do what `program arguments` asks of Hydra; `task` gets each composed configuration.

    The jobs of a sweep, those that failed among them; empty where it is none.
    """
    overrides, flags = check_flags(arguments, program)
    if {"-m", "--multirun"} & set(flags):
        overrides = [*_names_of_jobs(overrides), *overrides]
    prepare(config_dir_of(arguments))
    forget_sweeps()
    main = hydra.main(config_path=str(conf_dir()), config_name=config_name, version_base=VERSION_BASE)(task)
    with (
        mock.patch.dict("os.environ", {"HYDRA_FULL_ERROR": "1"}),
        mock.patch.object(sys, "argv", [program, *overrides, *flags]),
        readable_errors(arguments),
        sweep_jobs() as jobs,
    ):
        try:
            main()
        except Exception as error:
            if all(failure(job) is not error for job in jobs):
                raise
        finally:
            remove_unused()
    return jobs


def compose(overrides: Sequence[str], *, config_name: str = TRAIN) -> DictConfig:
    """The configuration that `overrides` give, resolved, without Hydra running a job."""
    prepare(None)
    with readable_errors():
        try:
            with hydra.initialize_config_dir(config_dir=str(conf_dir()), version_base=VERSION_BASE):
                config = hydra.compose(config_name, overrides=list(overrides), return_hydra_config=True)
            before = HydraConfig.instance().cfg
            HydraConfig.instance().set_config(config)  # `run.dir` is named by what Hydra chose
            try:
                with open_dict(config):
                    del config["hydra"]
                OmegaConf.resolve(config)
            finally:
                HydraConfig.instance().cfg = before
            return config
        finally:
            GlobalHydra.instance().clear()


def prepare(config_dir: Path | None) -> None:
    """Make the user's folders and classes known; harmless when done again."""
    open_user_code(config_dir)
    all_folders(config_dir)  # Hydra passes over a folder that is not there; here it is an error
    Plugins.instance().register(AddedFolders)


def plain(config: DictConfig) -> dict[str, Any]:
    """The configuration as dicts, lists and scalars, with every interpolation resolved."""
    with readable_errors():
        values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def is_multirun() -> bool:
    """Whether the task at work is one of several jobs."""
    return bool(HydraConfig.get().mode == RunMode.MULTIRUN)


def output_dir() -> Path:
    """The folder that Hydra made for the task at work."""
    return Path(HydraConfig.get().runtime.output_dir)


def choice(group: str) -> str | None:
    """The option of `group` that the task at work was composed with; None outside of a task."""
    chosen = HydraConfig.get().runtime.choices.get(group) if HydraConfig.initialized() else None
    return None if chosen is None else str(chosen)


def task_overrides() -> list[str]:
    """The overrides of the task at work, as given."""
    return [str(o) for o in HydraConfig.get().overrides.task]


@contextmanager
def readable_errors(arguments: Sequence[str] = ()) -> Iterator[None]:
    """Turn what Hydra, OmegaConf and the YAML reader raise into a ConfigError."""
    try:
        yield
    except LamarckError:
        raise
    except Exception as error:
        names = _modules_of(error)
        known = isinstance(error, HydraException | OmegaConfBaseException | YAMLError)
        if known or (names[-1].startswith("hydra.") and not isinstance(error, OSError)):
            raise ConfigError(explain(error, arguments)) from error
        if isinstance(error, OSError) and error.filename is not None and not _is_of_task(names):
            place, reason = error.filename, error.strerror
            raise RunError(f"{place} cannot be made ({reason}); give run.dir another place") from error
        raise


def _names_of_jobs(words: Sequence[str]) -> list[str]:
    """The override by which a sweep names its jobs' folders by the keys that vary, if any does."""
    try:
        overrides = OverridesParser.create().parse_overrides(list(words))
    except HydraException:
        return []  # Hydra is about to meet it as well
    swept = {o.key_or_group for o in overrides if o.is_sweep_override()}
    fixed = {o.key_or_group for o in overrides} - swept
    if not swept or not fixed:
        return []
    listed = ",".join(f"'{key}'" for key in sorted(fixed))
    return [f"hydra.job.config.override_dirname.exclude_keys=[{listed}]"]


def _modules_of(error: Exception) -> list[str]:
    """The modules that the error came through, where it was raised last."""
    names: list[str] = [""]
    trace = error.__traceback__
    while trace is not None:
        names.append(str(trace.tb_frame.f_globals.get("__name__", "")))
        trace = trace.tb_next
    return names


def _is_of_task(names: Sequence[str]) -> bool:
    """Whether Hydra had called us back: a task's own errors are not for us to dress."""
    hydra_at = next((i for i, name in enumerate(names) if name.startswith("hydra.")), len(names))
    return any(name.startswith("lamarckian_cli.") for name in names[hydra_at:])


def folder_name(text: str) -> str:
    """`text` as the name of one folder: short, and without what a shell or Hydra would want quoted."""
    name = re.sub(r"[^\w.+-]", "-", text)
    if len(name) <= FOLDER_NAME_LIMIT:
        return name
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: FOLDER_NAME_LIMIT - 9]}-{digest}"


def env_name(chosen: str, *, _root_: DictConfig) -> str:
    """The value of the key that the option `chosen` leaves to the user (env.id); else the option itself."""
    option = next((o for o in groups().get("env", []) if o.name == chosen), None)
    for key in keys(option.path) if option is not None else ():
        given = OmegaConf.select(_root_, f"env.{key.name}", throw_on_missing=False)
        if key.value == "???" and given is not None:
            return str(given)
    return chosen


def _open_kwargs() -> DictConfig:
    """A key `kwargs` that takes any key inside it; everywhere else only known keys are taken."""
    node = OmegaConf.create({"kwargs": {}})
    OmegaConf.set_struct(node.kwargs, False)
    return node


def _open_search() -> DictConfig:
    """Keys `search.algo` and `search.reward` that take any key inside them."""
    node = OmegaConf.create({"search": {"algo": {}, "reward": {}}})
    for name in ("algo", "reward"):
        OmegaConf.set_struct(node.search[name], False)
    return node


# For problem=training: base/search@_here_.
ConfigStore.instance().store(group="problem/base", name="search", node=_open_search())
# For the defaults list of environments whose `kwargs` go to a library: base/kwargs@_here_.
ConfigStore.instance().store(group="env/base", name="kwargs", node=_open_kwargs())
# At import, for a launcher's worker process resolves names before it runs the task.
OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
OmegaConf.register_new_resolver("env_name", env_name, replace=True)
