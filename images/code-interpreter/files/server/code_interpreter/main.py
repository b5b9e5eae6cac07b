"""Starts the server."""

import argparse
import asyncio
import os

from .contexts import Contexts
from .http import BODY_BYTES_MAX, application
from .variables import Variables


async def serve(options):
    variables = Variables(options.variables)
    variables.watch(asyncio.get_running_loop())
    contexts = Contexts(options.home, variables, options.load)
    server = application(contexts, variables).listen(
        options.port, options.host, max_buffer_size=2 * BODY_BYTES_MAX, max_body_size=BODY_BYTES_MAX
    )
    await contexts.started()
    if options.port == 0:
        port = next(iter(server._sockets.values())).getsockname()[1]
        print(port, flush=True)
    await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser(prog="code_interpreter", description="Runs code in contexts.")
    parser.add_argument("--host", default="0.0.0.0", help="the address to listen on")
    parser.add_argument("--port", type=int, default=49999, help="the port to listen on; 0 prints one that is free")
    parser.add_argument("--home", default=os.path.expanduser("~"), help="the directory of contexts that name none")
    parser.add_argument("--load", action="append", default=[], metavar="MODULE", help="a module to import in advance")
    parser.add_argument("--variables", help="the FIFO into which the agent's hook writes the variables of the sandbox")
    asyncio.run(serve(parser.parse_args()))

