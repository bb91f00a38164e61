"""The old name of `attnlib.in_context.errors`, for one release."""

from attnlib.in_context.errors import *  # noqa: F403
