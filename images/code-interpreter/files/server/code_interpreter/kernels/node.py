"""JavaScript and TypeScript: a worker on Node.js."""

import asyncio
import json
import os
import shutil

from .piped import PipedKernel
from .process import ROOT

WORKER = os.path.join(ROOT, "node", "worker.mjs")
NODE = os.environ.get("CODE_INTERPRETER_NODE") or shutil.which("node") or "/usr/local/bin/node"
# A signal interrupts code that waits. Code that computes is terminated first, and interrupted by the next signal.
TERMINATE_AFTER_S = 0.5


class NodeKernel(PipedKernel):
    name = "Node.js kernel"
    # The run that will be terminated, by its end.
    _to_terminate = None
    # Whether a run was interrupted after which no other one has begun.
    _is_interrupted = False

    @classmethod
    def arguments(cls, language, pipes):
        descriptors = [str(pipes.questions[0]), str(pipes.messages[1])]
        return [NODE, "--disable-warning=ExperimentalWarning", WORKER, language, *descriptors]

    def greeting(self):
        return self._line(type="run", code="", variables={}, changes={})

    def question(self, run, changes):
        return self._line(type="run", code=run.code, variables=run.variables, changes=changes)

    async def execute(self, run, variables):
        if self._is_interrupted:
            # The last signal may come after the run that it was for. This run of no code takes it.
            self._is_interrupted = False
            await self.unless_ended(self._asked(self.greeting()))
        await super().execute(run, variables)

    def interrupt(self):
        self._is_interrupted = True
        super().interrupt()
        if self._to_terminate is not self._done:
            self._to_terminate = self._done
            asyncio.get_running_loop().call_later(TERMINATE_AFTER_S, self._terminate, self._done)

    def _terminate(self, done):
        if self.ended is None and done is self._done and not done.done():
            asyncio.ensure_future(self.send(self._line(type="terminate")))

    @staticmethod
    def _line(**members):
        return json.dumps(members) + "\n"
