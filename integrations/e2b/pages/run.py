"""Runs the programs of the pages of E2B's documentation, and compares or writes the table of their results.

    run.py PAGE

PAGE is the page with the table. With DORM_UPDATE, the table is written.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SECTION = re.compile(r"(<!-- pages -->\n)(.*?)(<!-- end -->)", re.S)

PAGES = {
    "sandbox": "Sandbox, lifecycle",
    "persistence": "Persistence",
    "auto_resume": "Auto-resume",
    "snapshots": "Snapshots, filesystem-only snapshots, fork",
    "properties": "Metadata, list, connect, environment variables, metrics",
    "internet_access": "Internet access, secured access",
    "filesystem": "Filesystem: read & write, metadata, watch, upload, download",
    "commands": "Commands, streaming, background, interactive terminal",
    "git_integration": "Git integration",
    "volumes": "Volumes",
    "templates": "Templates",
    "code_interpreting": "Code interpreting",
    "mcp": "MCP gateway",
    "cli": "CLI",
}
"""Programs, and the pages that their examples are from."""

ELSEWHERE = {
    "Connect LLMs; analyze data with AI; MCP examples": "needs an account with the provider of a model",
    "Connect storage bucket": "needs a bucket of a cloud",
    "Private registries": "needs an account with a registry",
    "Proxy tunneling; custom domain; SSH access": "needs a server of the user's own on the internet",
    "Lifecycle events API and webhooks; rate limits; CLI authentication": "belongs to E2B's account",
    "MCP: available servers": "the servers and their keys are their makers'",
    "Supported languages: R, Java": "refused: the interpreter has Python, JavaScript, TypeScript and Bash",
    "Template examples (Claude Code, Desktop, Next.js, Expo)": "download their packages from the internet",
}
"""Pages without a program, and why."""


@dataclass
class Result:
    """The results of a program by example."""

    examples: dict[str, str]
    said: str


def program(name: str, language: str) -> Path:
    extension = {"python": "py", "javascript": "mjs", "shell": "sh"}[language]
    return HERE / language / f"{name}.{extension}"


def run(name: str, language: str) -> Result | None:
    """Run a program; return nothing if there is none in this language."""
    path = program(name, language)
    if not path.exists():
        return None
    interpreter = {"python": sys.executable, "javascript": "node", "shell": "bash"}[language]
    environment = {**os.environ, "PATH": f"{os.environ.get('E2B_CASES_NODE', '')}:{os.environ['PATH']}"}
    done = subprocess.run(
        [interpreter, path], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900
    )
    examples = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"example"'):
            example = json.loads(line)
            examples[example["example"]] = example["result"]
    if done.returncode != 0 and all(result == "as promised" for result in examples.values()):
        examples["(the program)"] = f"exit code {done.returncode}"
    return Result(examples, done.stdout + done.stderr)


def rows(name: str, title: str, results: dict[str, Result]) -> list[str]:
    """Return the rows of a page: one for each example."""
    found = []
    examples = dict.fromkeys(example for result in results.values() for example in result.examples)
    for example in examples:
        cells = []
        for language, result in results.items():
            if example in result.examples:
                path = program(name, language).relative_to(HERE)
                cells.append(f"[{language}](../integrations/e2b/pages/{path}): {result.examples[example]}")
        found.append(f"| {title} | {example} | {'; '.join(cells)} |")
    return found


def main() -> int:
    page = Path(sys.argv[1])
    languages = ["python", "javascript", "shell"]
    jobs = [(name, language) for name in PAGES for language in languages]
    with ThreadPoolExecutor(2) as pool:
        ran = dict(zip(jobs, pool.map(lambda job: run(*job), jobs), strict=True))
    table = ["| page | example | program and result |", "|---|---|---|"]
    failed = []
    for name, title in PAGES.items():
        results = {language: ran[name, language] for language in languages if ran[name, language] is not None}
        table += rows(name, title, results)
        for language, result in results.items():
            wrong = [f"{key}: {value}" for key, value in result.examples.items() if value != "as promised"]
            if wrong or not result.examples:
                failed.append(f"{name} in {language}: {'; '.join(wrong)}\n{result.said}")
    table += [f"| {title} | all | no program: {reason} |" for title, reason in ELSEWHERE.items()]
    text = page.read_text()
    written = SECTION.sub(lambda match: match[1] + "\n".join(table) + "\n" + match[3], text)
    if "DORM_UPDATE" in os.environ:
        page.write_text(written)
    elif written != text:
        failed.append(f"the table of {page} is stale: run this with DORM_UPDATE=1")
    count = sum(len(result.examples) for result in ran.values() if result is not None)
    if "E2B_SUMMARY" in os.environ:
        Path(os.environ["E2B_SUMMARY"]).write_text(f"E2B's documentation: {count} examples of {len(PAGES)} programs\n")
    for failure in failed:
        print(failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
