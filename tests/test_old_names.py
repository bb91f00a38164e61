"""Names of modules that were, read for one release: each gives the very functions of the module that took its place."""

import attnlib.in_context.errors
import attnlib.in_context.risk
import attnlib.single_head.errors
import attnlib.single_head.population
import attnlib.token_selection.errors
import attnlib.token_selection.population


def test_an_old_module_gives_the_functions_of_the_new_one():
    for old, new in (
        (attnlib.single_head.population, attnlib.single_head.errors),
        (attnlib.token_selection.population, attnlib.token_selection.errors),
        (attnlib.in_context.risk, attnlib.in_context.errors),
    ):
        own = {name for name, thing in vars(new).items() if getattr(thing, "__module__", "") == new.__name__}
        public = {name for name in own if not name.startswith("_")}
        assert public
        assert {name for name in public if getattr(old, name) is not getattr(new, name)} == set()
