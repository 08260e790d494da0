"""Where things are on this machine."""

import os
from pathlib import Path

import platformdirs

DATA = Path(__file__).resolve().parent.parent / "data"
MODEL_FOLDER = DATA / "models" / "nano-flux2"
SHIPPED_TEMPLATES = DATA / "templates"


def home() -> Path:
    """The folder for caches and templates of this user; ``SAKURA_HOME`` moves it."""
    return Path(os.environ.get("SAKURA_HOME") or platformdirs.user_cache_dir("sakura"))


def cache_folder() -> Path:
    return home() / "caches"


def own_templates() -> Path:
    return home() / "templates"
