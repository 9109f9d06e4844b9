"""`lamarck list` and `lamarck doctor`: what there is to choose from, and what is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("list")(list_options)
    app.command("doctor")(doctor)


def list_options(
    group: Annotated[str | None, typer.Argument(help="One group alone, such as env.")] = None,
    config_dir: Annotated[
        Path | None, typer.Option("--config-dir", help="A folder of your own groups.")
    ] = None,
    json_output: JSON = False,
) -> None:
    """Show what there is to choose from."""
    from lamarckian_cli.cli.output import print_json, print_table
    from lamarckian_cli.config.build import suggestion
    from lamarckian_cli.config.catalogue import GROUPS, groups
    from lamarckian_cli.config.folders import open_user_code
    from lamarckian_cli.errors import ConfigError

    open_user_code(config_dir)
    found = groups(config_dir)
    if group is not None and group not in found:
        raise ConfigError(f"{group!r} is no group{suggestion(group, found)} (there are: {', '.join(found)})")
    shown = {name: options for name, options in found.items() if group in (None, name)}
    if json_output:
        print_json(
            {
                name: [{"name": option.name, "description": option.description} for option in options]
                for name, options in shown.items()
            }
        )
        return
    for name, options in shown.items():
        title = f"{GROUPS.get(name, name)} ({name}=...)"
        print_table([title, ""], [[option.name, option.description] for option in options])


def doctor(json_output: JSON = False) -> None:
    """Say what is installed and what is missing."""
    from lamarckian_cli.cli.output import print_json, print_table
    from lamarckian_cli.launch.doctor import examine

    findings = examine()
    if json_output:
        print_json(
            {
                "ok": all(f.ok or not f.needed for f in findings),
                "checks": [
                    {"name": f.name, "ok": f.ok, "needed": f.needed, "found": f.found, "remedy": f.remedy}
                    for f in findings
                ],
            }
        )
        return
    columns = ["what", "state", "found", *(["to get it"] if any(f.remedy for f in findings) else [])]
    rows = [
        [f.name, "ok" if f.ok else "missing" if f.needed else "absent", f.found, f.remedy][: len(columns)]
        for f in findings
    ]
    print_table(columns, rows, fold=(2, 3)[: len(columns) - 2])
    if any(f.needed and not f.ok for f in findings):
        print("Something that training needs is missing; the last column has the command.")
    else:
        print("Everything that training needs is here.")
