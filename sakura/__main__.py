"""`python -m sakura`."""

from sakura.cli import app

app()
