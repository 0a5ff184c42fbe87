"""Code blocks of Markdown pages, run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "MPLBACKEND": "agg"}


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def run_python(arguments: list[str], folder: Path) -> str:
    """What a script prints; warnings are errors, and so is any exit status but 0."""
    done = subprocess.run([sys.executable, "-W", "error", *arguments], cwd=folder, text=True,
                          capture_output=True, env=ENVIRONMENT, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_blocks(sources: list[str], folder: Path) -> str:
    """What blocks print, run as one script in a process and a folder of their own."""
    script = folder / "blocks.py"
    script.write_text("\n".join(sources))
    return run_python([str(script)], folder)
