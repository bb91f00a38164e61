"""The old name of `attnlib.token_selection.errors`, for one release."""

from attnlib.token_selection.errors import *  # noqa: F403
