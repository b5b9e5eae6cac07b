"""A Python interpreter that sleeps between questions, with its variables.

The client is E2B's; the sandbox is paused after each answer, and a question wakes it.
"""

from __future__ import annotations

from e2b_code_interpreter import Sandbox

QUESTIONS = ["data = [3, 1, 2]", "data.sort(); data", "sum(data) / len(data)"]


def main() -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    sandbox = Sandbox.create(timeout=300, lifecycle=lifecycle)
    try:
        for question in QUESTIONS:
            answer = sandbox.run_code(question)
            print(f">>> {question}")
            if answer.text is not None:
                print(answer.text)
            sandbox.pause()
            print(f"    ({sandbox.get_info().state.value})")
    finally:
        sandbox.kill()


if __name__ == "__main__":
    main()
