"""``python -m attnlib``: the same as the command `attnlib`, which the distribution installs."""

import sys
from importlib.metadata import entry_points

if __name__ == "__main__":
    (command,) = entry_points(group="console_scripts", name="attnlib")
    sys.exit(command.load()())
