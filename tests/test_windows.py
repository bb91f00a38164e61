"""Windows, as far as it can be seen from another system: names that Python lacks there, names of files, ends of line, letters of a pipe."""

import ast
import os
import re
import signal
import subprocess
import sys
import types
from pathlib import PurePath

import pytest

from bookkit.code import tree_hash
from tests.house import PACKAGES, ROOT, files
from tests.sweeps.counting import CountingBook
from tests.tiny_book import write

# By the documentation of Python, "Availability: Unix".
MODULES = frozenset("curses fcntl grp posix pty pwd readline resource syslog termios tty".split())
NAMES = {
    "os": "WNOHANG chown chroot confstr fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp "
    "getpriority getsid getuid killpg lchown lockf mkfifo mknod nice openpty pathconf pread pwrite register_at_fork "
    "sched_getaffinity sched_setaffinity sched_yield sendfile setgid setpgid setpriority setsid setuid statvfs sync sysconf "
    "tcgetpgrp ttyname uname wait wait3 wait4 waitid",
    "signal": "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIG_BLOCK alarm pause "
    "pthread_kill pthread_sigmask setitimer sigpending sigwait",
    "time": "tzset",
}
NAMES = {module: frozenset(names.split()) for module, names in NAMES.items()}
WORDS = re.compile(rf"\b(?:{'|'.join(MODULES.union(*NAMES.values()))})\b")


def lacking(code: str) -> set[str]:
    """What `code` takes for granted and Windows lacks: modules, and names for which it does not ask with hasattr or getattr.

    Who asks whether there is a fork goes no further where there is none.
    """
    asked = set(re.findall(r'(?:has|get)attr\((\w+), "(\w+)"', code))
    if not WORDS.search(code) or ("os", "fork") in asked:
        return set()
    found = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(ast.Name(module), name) if name in NAMES.get(module, ()) and (module, name) not in asked:
                found.add(f"{module}.{name}")
            case ast.ImportFrom(module=str(module), names=names):
                found |= {f"{module}.{each.name}" for each in names if each.name in NAMES.get(module, ())}
                found |= {module} & MODULES
            case ast.Import(names=names):
                found |= {each.name for each in names} & MODULES
    return found


def test_what_is_run_beside_the_packages_can_be_imported() -> None:
    """Tests and benchmarks may need such a module at work, where they say why; without it pytest could not even collect the others."""
    found = {}
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = (
                [each.name for each in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
            )
            found |= {f"{path.relative_to(ROOT)}: {name}": name for name in names if name in MODULES}
    assert found == {}


def test_no_module_takes_for_granted_what_windows_lacks() -> None:
    spoilt = "import fcntl\nfrom os import fork\nfrom pwd import getpwuid\nos.killpg(1, signal.SIGKILL)\n"
    assert lacking(spoilt) == {"fcntl", "os.fork", "pwd", "os.killpg", "signal.SIGKILL"}
    assert lacking('if hasattr(os, "killpg"):\n    os.killpg(1, getattr(signal, "SIGKILL", 9))') == set()
    found = {path.relative_to(ROOT).as_posix(): lacking(path.read_text(encoding="utf-8")) for path in files()}
    assert {name: names for name, names in found.items() if names} == {}


# --- commands, where our modules find none of these names -----------------------------------------------------------------


class _Without(types.ModuleType):
    def __getattribute__(self, name: str):
        ours = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] in PACKAGES
        if ours and name in NAMES[super().__getattribute__("__name__")]:
            raise AttributeError(f"Windows has no {name}", name=name, obj=self)
        return super().__getattribute__(name)


def pretend() -> None:
    """From now on, in this process, for our modules: what others do on Windows is their own business."""
    for module in (os, signal):
        module.__class__ = _Without


COMMANDS = """
from pathlib import Path
import numpy as np
from tests.test_windows import pretend
pretend()
from attnbook.in_context.checkpoints import read_checkpoint, write_checkpoint
from bookkit.cli import main
asked = "rerun counting -p n 3 -o out.ipynb", "results out.ipynb", "sweep counting grid.yml -o out --jobs 1", "html"
codes = [main(command.split()) for command in asked]
assert codes == [0, 0, 0, 1], codes
write_checkpoint(Path("a.safetensors"), {"w": np.arange(3)}, {"step": 2})
assert read_checkpoint(Path("a.safetensors"))[0]["w"].tolist() == [0, 1, 2]
"""


def test_commands_do_without(tmp_path) -> None:
    book = CountingBook(tmp_path / "book")
    book.command(2)  # writes grid.yml
    for name in ("_config.yml", "book/preface.md", "requirements.txt"):
        write(book.root / name, "")
    environment = {**os.environ, **book.environment, "PYTHONPATH": f"{book.root}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], cwd=book.root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"square": 9' in done.stdout
    assert "2 points, 2 done, 0 failed, 0 missing" in done.stdout
    assert "missing: notebooks/part/01_counting.ipynb" in done.stderr  # said under the lock of the build


# --- files ----------------------------------------------------------------------------------------------------------------

RESERVED = re.compile(r'[<>:"|?*\\]|[ .]$|^(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)', re.IGNORECASE)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git, of which a download has no record")
def test_git_gives_windows_the_same_bytes_under_names_it_can_have() -> None:
    """Hashes of code name kept results, and pages are compared by their text: no end of line may change with the system."""
    windows = ["git", "-c", "core.autocrlf=true", "-c", "core.eol=crlf", "ls-files", "--eol", "-z"]
    listed = subprocess.run(windows, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    facts = {name: re.split(r"\s+", about.strip(), maxsplit=2) for about, name in (line.split("\t") for line in listed)}
    assert len(facts) > 1000
    for name, (stored, _, attributes) in facts.items():
        is_text = {"i/lf": True, "i/none": True, "i/-text": False}[stored]  # no CR is stored at all
        assert attributes == ("attr/text=auto eol=lf" if is_text else "attr/-text"), name
    assert not [name for name in facts for part in name.split("/") if RESERVED.search(part)]
    assert len({name.casefold() for name in facts}) == len(facts)
    assert max(map(len, facts)) < 120  # of the 260 that Windows allows, with the folder of the clone


def test_the_hash_of_a_folder_is_that_of_every_system(tmp_path, monkeypatch) -> None:
    """Windows compares paths without their case."""
    for name in ("B.py", "a.py", "C/x.py", "b/y.py"):
        write(tmp_path / name, name)
    here = tree_hash(tmp_path)
    monkeypatch.setattr(PurePath, "__lt__", lambda one, other: str(one).lower() < str(other).lower())
    assert [path.name for path in sorted(tmp_path.glob("*.py"))] == ["a.py", "B.py"]
    assert tree_hash(tmp_path) == here


def test_text_is_written_and_read_alike_on_every_system() -> None:
    """Windows would take its own letters and ends of line where none are named."""
    call = re.compile(r"""\.(?:read_text|write_text)\(|\bopen\((?:[^()"']*, )?["'][wax]t?["']""")
    bad = []
    for path in [*files(), *(ROOT / "benchmarks").glob("*.py")]:
        code = path.read_text(encoding="utf-8")
        for match in call.finditer(code):
            said = code[match.start() : code.find(":\n" if "open" in match[0] else ")\n", match.end())]
            if "encoding=" not in said or not ("read" in match[0] or "newline=" in said):
                bad.append(f"{path.relative_to(ROOT)}: {said}")
    assert bad == []
