"""The old name of `attnlib.single_head.errors`, for one release."""

from attnlib.single_head.errors import *  # noqa: F403
