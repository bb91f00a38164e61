"""Who uses a public name, and which claims check it.

*Mentions.* A function mentions what its code names, under whatever name it was imported; a class what its methods name; a set of
claims its judges. Annotations and decorators do not count.

*Pages.* A page uses a name if its code cells mention it, or lead to a definition of the book's packages that does.

*Claims.* A claim checks a name if its judge leads to it in the same way, or a function leads to it that makes what the
judge is given: one whose return type names the type of an argument of the judge.

The library, which is every package without judges and the modules of public names, is not followed: what it calls inside is its
own affair. A public function that checks its arguments and hands them to another one of its module is that one, too (`core`).
"""

import ast
import builtins
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, ModuleType
from typing import Any

_SHELL = re.compile(r"^(\s*)[%!].*$", flags=re.M)  # lines for IPython
_SIMPLE = (bool, int, float, str, bytes, type(None))


class Reach:
    """The rules, for the packages of one book.

    Args:
        packages: their names.
        library: whether a module, by its name, belongs to what is not followed.
    """

    def __init__(self, packages: Iterable[str], library: Callable[[str], bool]) -> None:
        self._packages = tuple(packages)
        self._library = library
        self._next: dict[int, list[Any]] = {}
        self._made: defaultdict[int, list[Any]] = defaultdict(list)
        self._scanned: set[str] = set()
        self._kept: list[Any] = []  # what `_next` knows by its id stays alive

    def used(self, cells: Iterable[str]) -> set[int]:
        """Ids of what the code cells of a page lead to."""
        text = "\n".join(_SHELL.sub(r"\1pass", cell) for cell in cells)
        code = compile(text, "<page>", "exec", dont_inherit=True, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return self._reached(self._mentions(code, _imported(text, self._packages)))

    def checked(self, judge: Any) -> set[int]:
        """Ids of what a judge leads to, and what the makers of its arguments do."""
        given = [
            kind for name, words in _annotations(judge).items() if name != "return" for kind in _kinds(judge, words)
        ]
        return self._reached([judge, *(maker for kind in given for maker in self._makers().get(id(kind), ()))])

    def _makers(self) -> dict[int, list[Any]]:
        """Class -> functions of the book, as far as it is loaded, whose return type names it."""
        for name in sorted(set(sys.modules) - self._scanned):
            self._scanned.add(name)
            if self._ours(name) and not self._library(name):
                for made in vars(sys.modules[name]).values():
                    if inspect.isfunction(made) and made.__module__ == name:
                        for kind in _kinds(made, _annotations(made).get("return", "")):
                            self._made[id(kind)].append(made)
        return self._made

    def _ours(self, module: str | None) -> bool:
        return (module or "").partition(".")[0] in self._packages

    def _reached(self, start: Iterable[Any]) -> set[int]:
        found: set[int] = set()
        waiting = list(start)
        while waiting:
            current = waiting.pop()
            if id(current) not in found:
                found.add(id(current))
                waiting += self._of(current)
        return found

    def _of(self, thing: Any) -> list[Any]:
        """What a thing mentions, among what belongs to the book."""
        if id(thing) not in self._next:
            self._kept.append(thing)
            self._next[id(thing)] = [part for part in self._parts(thing) if not isinstance(part, _SIMPLE)]
        return self._next[id(thing)]

    def _parts(self, thing: Any) -> Iterator[Any]:
        plain = inspect.unwrap(getattr(thing, "py_func", thing)) if callable(thing) else thing
        if inspect.isfunction(plain) or inspect.isclass(plain):
            if self._ours(plain.__module__) and not self._library(plain.__module__):
                yield from self._inside(plain)
        elif isinstance(plain, dict | list | tuple):
            yield from plain.values() if isinstance(plain, dict) else plain
        elif judge := getattr(plain, "judge", None):  # a claim in a set of claims
            yield judge
        else:
            yield type(plain)

    def _inside(self, plain: Any) -> Iterator[Any]:
        if inspect.isfunction(plain):
            yield from self._mentions(plain.__code__, plain.__globals__)
            yield from (*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values())
            yield from (value for value in inspect.getclosurevars(plain).nonlocals.values() if value is not plain)
        else:
            for part in vars(plain).values():
                yield (
                    getattr(part, "fget", None)
                    or getattr(part, "func", None)
                    or getattr(part, "__func__", None)
                    or part
                )

    def _mentions(self, code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
        words = list(code.co_names)
        modules = [sys.modules[word] for word in words if self._ours(word) and word in sys.modules]  # imports inside
        modules += [
            value for word in words if isinstance(value := names.get(word), ModuleType) and self._ours(value.__name__)
        ]
        for word in words:
            for value in (names.get(word), *(vars(module).get(word) for module in modules)):
                if value is not None and not isinstance(value, (ModuleType, *_SIMPLE)):
                    yield value
        for part in code.co_consts:
            if isinstance(part, CodeType):
                yield from self._mentions(part, names)


def _imported(text: str, packages: tuple[str, ...]) -> dict[str, Any]:
    """What the import statements of a page bring of the book's packages, by the page's names."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if {name.partition(".")[0] for name in named} & set(packages):
                exec(compile(ast.Module([node], []), "<page>", "exec"), found)  # the pages are the book's own code
    return found


def core(made: Any) -> Any:
    """The function of its module that a function calls at its end with its own first argument; None if there is none."""
    if not inspect.isfunction(made):
        return None
    node = ast.parse(textwrap.dedent(inspect.getsource(made))).body[0]
    call = getattr(node.body[-1], "value", None)
    first = next(iter(inspect.signature(made).parameters), None)
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
        found = inspect.unwrap(made).__globals__.get(call.func.id)
        if getattr(call.args[0], "id", "") == first and getattr(found, "__module__", "") == made.__module__:
            return found
    return None


def _annotations(made: Any) -> dict[str, str]:
    given = getattr(made, "__annotations__", {})
    return {
        name: words if isinstance(words, str) else getattr(words, "__name__", str(words))
        for name, words in given.items()
    }


def _kinds(made: Any, words: str) -> Iterator[type]:
    """Classes that an annotation names where it stands."""
    for word in re.findall(r"[A-Za-z_][\w.]*", words):
        first, *rest = word.split(".")
        value = inspect.unwrap(made).__globals__.get(first)
        for name in rest:
            value = getattr(value, name, None)
        if inspect.isclass(value) and value.__module__ not in (builtins.__name__, "torch", "numpy"):
            yield value
