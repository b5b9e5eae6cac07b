"""Runs every example, and compares what it prints with the file beside it. With DORM_UPDATE, writes the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    environment = {**os.environ, "PATH": f"{os.environ.get('E2B_CASES_NODE', '')}:{os.environ['PATH']}"}
    examples = sorted([*HERE.glob("*.py"), *HERE.glob("*.ts")])
    examples.remove(HERE / Path(__file__).name)
    failed = 0
    for example in examples:
        command = [sys.executable if example.suffix == ".py" else "node", example]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600
        )
        output = output_of(example)
        if "DORM_UPDATE" in os.environ and done.returncode == 0:
            output.write_text(done.stdout)
        if done.returncode != 0 or done.stdout != output.read_text():
            failed += 1
            print(f"{example.name} printed:\n{done.stdout}{done.stderr}")
    if "E2B_SUMMARY" in os.environ:
        Path(os.environ["E2B_SUMMARY"]).write_text(f"examples for clients of E2B: {len(examples)}\n")
    return 1 if failed else 0


def output_of(example: Path) -> Path:
    """Return the file with what an example prints; both languages may have one of a name."""
    return example.with_suffix(f"{example.suffix}.out")


if __name__ == "__main__":
    sys.exit(main())
