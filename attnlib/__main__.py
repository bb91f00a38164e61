"""``python -m attnlib``: the same as the command `attnlib`, which the distribution installs."""

import sys

if __name__ == "__main__":
    # Ctrl-C while modules are imported shows no traceback; a command hears it later itself.
    sys.excepthook = lambda kind, *rest: None if kind is KeyboardInterrupt else sys.__excepthook__(kind, *rest)
    from importlib.metadata import entry_points

    from attnlib.extras import how_to_install

    try:
        command = next(iter(entry_points(group="console_scripts", name="attnlib"))).load()
    except (StopIteration, ModuleNotFoundError):  # attnlib alone, without the book
        sys.exit(f"attnlib: error: the commands come with the book's packages: {how_to_install('rerun')}")
    sys.exit(command())
