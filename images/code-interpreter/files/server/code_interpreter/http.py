"""The requests of clients. Errors are plain text."""

import asyncio
import json

from tornado import iostream, web

from . import output
from .contexts import Contexts
from .errors import KernelEnded, Refused
from .variables import Variables

# Code, its variables and their JSON.
BODY_BYTES_MAX = 64 << 20
# Of silence, after which a line tells whether the client is still there.
KEEPALIVE_S = 5


class Handler(web.RequestHandler):
    def initialize(self, contexts: Contexts, variables: Variables):
        self.contexts = contexts
        self.variables = variables

    def prepare(self):
        # Before this request counts as one whose client may be gone.
        self.variables.refresh()

    def fields(self, **kinds):
        """The fields of the body that have these names and types; those that are absent are `None`."""
        try:
            body = json.loads(self.request.body or b"{}")
        except ValueError as error:
            raise Refused(400, f"The request body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise Refused(400, "The request body is not a JSON object")
        values = {name: body.get(name) for name in kinds}
        for name, kind in kinds.items():
            if values[name] is not None and not isinstance(values[name], kind):
                raise Refused(400, f"The field '{name}' must be of the type {'object' if kind is dict else 'string'}")
        return values

    def write_error(self, status_code, **options):
        error = options.get("exc_info", (None, None, None))[1]
        if isinstance(error, Refused):
            status_code, message = error.status, error.message
        elif isinstance(error, KernelEnded):
            message = str(error)
        else:
            message = f"{self._reason}: {error}" if error is not None else self._reason
        self.set_status(status_code)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(message)

    def log_exception(self, kind, value, traceback):
        if not isinstance(value, (Refused, KernelEnded)):
            super().log_exception(kind, value, traceback)


class Health(Handler):
    async def get(self):
        await self.contexts.started()
        self.set_header("Content-Type", "application/json")
        self.finish('"OK"')


class Execute(Handler):
    # Those that are sending lines.
    active = set()
    run = None

    @classmethod
    def drop(cls):
        """Closes the connections of all runs."""
        for handler in list(cls.active):
            handler.request.connection.stream.close()

    async def post(self):
        fields = self.fields(code=str, context_id=str, language=str, env_vars=dict)
        context = self.context(fields["context_id"], fields["language"])
        if fields["code"] is None:
            raise Refused(400, "The field 'code' is missing")
        self.run = context.submit(fields["code"], variables(fields["env_vars"]))
        self.set_header("Content-Type", "application/x-ndjson")
        self.active.add(self)
        ended = False
        try:
            while not ended:
                try:
                    async with asyncio.timeout(KEEPALIVE_S):
                        lines = await self.run.take()
                except TimeoutError:
                    lines = [output.keepalive()]
                if ended := lines[-1] is None:
                    lines.pop()
                for line in lines:
                    self.write(output.encode(line))
                if not ended:
                    await self.flush()
        except iostream.StreamClosedError:
            pass
        finally:
            self.active.discard(self)
            self.run.leave()

    def context(self, identifier, language):
        if identifier is not None and language is not None:
            raise Refused(400, "Only one of context_id or language can be provided")
        if identifier is not None:
            return self.contexts.of(identifier)
        return self.contexts.default(language or "python")

    def on_connection_close(self):
        if self.run is not None:
            self.run.leave()


def variables(given):
    """The variables for one run. Programs in a sandbox cannot have others."""
    for name, value in (given or {}).items():
        if not name or "=" in name or "\0" in name:
            raise Refused(400, f"'{name}' cannot be the name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise Refused(400, f"The value of the variable '{name}' must be a string without NUL")
    return given or {}


class All(Handler):
    async def get(self):
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps([context.shown() for context in self.contexts.all()]))

    async def post(self):
        fields = self.fields(language=str, cwd=str)
        context = await self.contexts.create(fields["language"] or "python", fields["cwd"])
        self.finish(context.shown())


class One(Handler):
    async def delete(self, identifier):
        await self.contexts.remove(identifier)
        self.null()

    def null(self):
        self.set_header("Content-Type", "application/json")
        self.finish("null")


class Restart(One):
    async def post(self, identifier):
        await self.contexts.of(identifier).restart()
        self.null()


class Unknown(Handler):
    def prepare(self):
        raise Refused(404, f"{self.request.method} {self.request.path} is not known here")


def application(contexts, variables):
    own = {"contexts": contexts, "variables": variables}
    variables.continued = Execute.drop
    routes = [
        (r"/health", Health, own),
        (r"/execute", Execute, own),
        (r"/contexts", All, own),
        (r"/contexts/([^/]+)", One, own),
        (r"/contexts/([^/]+)/restart", Restart, own),
    ]
    return web.Application(routes, default_handler_class=Unknown, default_handler_args=own, log_function=lambda _: None)
