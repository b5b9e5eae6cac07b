"""A server that runs code in contexts, for the clients of E2B's code interpreter.

Each context is a program that keeps its state between runs: an IPython kernel for Python, a worker on Node.js for
JavaScript and TypeScript, and a shell for bash. The server knows how to start, feed, interrupt and end them. It does
not know what is in the code.

    request ─► http ─► contexts ─► run ─► kernels/python, kernels/node or kernels/bash
                                    └──► output, line by line, back to the client

Nothing here is a clock: the memory of this program is saved and restored with its sandbox, and no run may fail because
time has passed meanwhile.
"""
