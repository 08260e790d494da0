"""The one exception whose message is shown to people as it stands."""


class UserError(Exception):
    """Something that the person can mend. The message is one sentence: what is wrong, and what to do."""
