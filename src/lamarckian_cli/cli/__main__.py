"""`python -m lamarckian_cli.cli` is `lamarck`."""

import sys

from lamarckian_cli.cli.main import run

sys.exit(run())
