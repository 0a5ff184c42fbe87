"""The page on debugging, run against a fault that is planted in a copy of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.documents import ROOT, blocks
from support.planted import Planted, copy_with

PAGE = ROOT / "docs" / "debugging.md"
FAULT = Planted("start of a maximum", "ir/ops/primitive/reduce.py",
                '"max", "max", np.maximum, lowest)', '"max", "max", np.maximum, highest)', ())


def test_a_wrong_kernel_is_found_in_five_commands(tmp_path: Path) -> None:
    copy_with(FAULT, tmp_path / "project")
    (program,) = blocks(PAGE, "python")
    (tmp_path / "step.py").write_text(program)
    (tmp_path / "python").symlink_to(sys.executable)
    settings = {k: v for k, v in os.environ.items() if not k.startswith("RLX_")}
    settings |= {"PYTHONPATH": str(tmp_path / "project"),
                 "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    commands, shown = blocks(PAGE, "bash"), blocks(PAGE, "console")
    assert len(commands) == len(shown) == 5
    for command, lines in zip(commands, shown, strict=True):
        done = subprocess.run(command, shell=True, cwd=tmp_path, text=True, capture_output=True,
                              env=settings, timeout=120, check=False)
        printed = done.stdout + done.stderr
        assert all(re.search(re.escape(line.strip()), printed) for line in lines.splitlines()), (
            command, printed)
