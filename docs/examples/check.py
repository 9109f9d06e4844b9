"""Hold the two example games against the interface: run it in this folder."""

import subprocess
import sys

from race.game import Race
from remote.client import Remote

from lamarckian_cli.mdp.check import check_mdp

print(check_mdp(Race()))
server = subprocess.Popen([sys.executable, "remote/server.py", "5758"])
try:
    print(check_mdp(Remote(port=5758), matches=1))
finally:
    server.kill()
    server.wait()
