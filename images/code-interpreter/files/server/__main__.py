"""Runs the package beside this file: `python3 server`."""

from code_interpreter.main import main

main()
