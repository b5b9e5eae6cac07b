"""bash: an interactive shell without a terminal, which is told what to run on its standard input.

Interactive, since such a shell continues with its next line when it is interrupted; another one would end. The code is
not on that line but in a file: bash reads its input byte by byte.
"""

import os
import re
import shlex
import shutil
import tempfile

from .. import output
from ..errors import KernelEnded
from .piped import PipedKernel
from .python import DIRECTORY

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class BashKernel(PipedKernel):
    name = "bash shell"

    def __init__(self, process, variables, pipes):
        super().__init__(process, variables, pipes)
        self._place = tempfile.mkdtemp(prefix="code-interpreter-", dir=DIRECTORY)
        self._file = os.path.join(self._place, "code")
        self._messages = pipes.messages[1]

    @classmethod
    def arguments(cls, _language, _pipes):
        return ["bash", "--norc", "--noprofile", "--noediting", "-i"]

    @classmethod
    def stdin(cls, pipes):
        return pipes.questions[0]

    @classmethod
    def inherited(cls, pipes):
        return [pipes.messages[1]]

    def greeting(self):
        # Without prompts, and without a meaning of `!` that only a person at a terminal expects.
        return f"PS1= PS2= PROMPT_COMMAND=; set +H; {self._answer('0')}"

    def question(self, run, changes):
        with open(self._file, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(run.code)
        lines = [assignment(name, value) for name, value in changes.items() if NAME.match(name)]
        for name, value in run.variables.items():
            lines.append(f"__earlier_{name}=${{{name}+x}}${{{name}-}}; {assignment(name, value)}")
        # Programs do not get the descriptors of the shell's own pipes.
        lines.append(f'eval -- "$(<{shlex.quote(self._file)})" </dev/null {self._messages}>&-')
        lines.append("__status=$?")
        for name in run.variables:
            kept = f"__earlier_{name}"
            back = f'if [ -n "${kept}" ]; then export {name}="${{{kept}#x}}"; else unset {name}; fi'
            lines.append(f"{back}; unset {kept}")
        lines.append(self._answer("$__status"))
        return "\n".join(lines)

    async def execute(self, run, variables):
        try:
            status = (await super().execute(run, variables))["status"]
        except KernelEnded:
            # `exit` ends a shell as it should.
            if run.cut or (status := self._process.returncode) < 0:
                raise
        if status != 0:
            message = f"exit code {status}"
            await run.put(output.error("ExitCode", message, message))

    async def close(self):
        await super().close()
        shutil.rmtree(self._place, ignore_errors=True)

    def _answer(self, status):
        return f'printf \'{{"type":"done","status":%d}}\\n\' {status} >&{self._messages}\n'


def assignment(name, value):
    return f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
