# Generated from _async/artifacts.py by scripts/generate_sync.py; do not edit.
"""Images, snapshots and builds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from .. import _operations as ops
from .._request import Request
from .._sse import ServerSentEvent
from .._values import Duration, decode, seconds
from ..types import (
    Build,
    BuildContext,
    BuildLog,
    BuildLogLine,
    BuildStepRequest,
    BuildTemplate,
    Egress,
    ExportedImage,
    Image,
    ImageConfig,
    ImportProgress,
    Pull,
    PushedSnapshot,
    ResourcesRequest,
    Snapshot,
)
from ._io import Content
from ._opening import opens_stream
from .resources import Resource
from .stream import ByteStream, EventStream, Stream

T = TypeVar("T")

OnProgress = Callable[[ImportProgress], Any]
"""A function that is called with the progress of a long request."""


class LongResource(Resource):
    """Objects whose making takes long."""

    def _done(self, request: Request, kind: type[T], on_progress: OnProgress | None) -> T:
        """Send a request that reports its progress, and return what it makes."""
        done: list[T] = []

        def step(event: ServerSentEvent) -> ImportProgress | None:
            if event.kind == "progress":
                return decode(ImportProgress, event.json())
            if event.kind == "done":
                done.append(decode(kind, event.json()))
            return None

        stream: EventStream[ImportProgress] = EventStream(self._transport, step, last=("done",))
        with stream.open(request):
            for progress in stream:
                if on_progress is not None:
                    on_progress(progress)
        return done[0]

    def _download(self, request: Request) -> Stream[bytes]:
        response = self._transport.send(request, stream=True)
        return ByteStream(self._transport.config.server, response)


class Images(LongResource):
    """Images: read-only root file systems with their configuration."""

    def get(self, reference: str) -> Image:
        """Return an image by its tag, its digest, or the beginning of its digest."""
        return self._transport.json(ops.GET_IMAGE(reference), Image)

    def list(self, *, limit: int | None = None) -> Iterator[Image]:
        """Yield all images, ordered by digest. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_IMAGES(query={"limit": limit}), "images", Image)

    def delete(self, reference: str) -> None:
        """Delete an image. Fails while a living sandbox or a snapshot uses it."""
        self._transport.send(ops.DELETE_IMAGE(reference))

    def pull(
        self,
        reference: str,
        *,
        tag: str | None = None,
        architecture: str | None = None,
        pull: Pull | None = None,
        insecure: bool | None = None,
        on_progress: OnProgress | None = None,
    ) -> Image:
        """Pull an image from a registry. Data that an earlier pull has fetched is not fetched again.

        Args:
            reference: `HOST/NAME` with `:TAG` or `@sha256:DIGEST`. Without a host, Docker Hub.
            tag: A further tag for the image.
            architecture: Such as `arm64`. Default: that of the host.
            pull: When to contact the registry: `always`, the default, `missing` or `never`.
            insecure: Permit a registry on another host without TLS.
            on_progress: Called with the progress.
        """
        body = {
            "reference": reference,
            "tag": tag,
            "architecture": architecture,
            "pull": pull,
            "insecure": insecure,
        }
        return self._done(ops.PULL_IMAGE(body=body), Image, on_progress)

    def upload(
        self, archive: Content, *, tag: str | None = None, on_progress: OnProgress | None = None
    ) -> Image:
        """Import an image from an archive on this computer.

        Args:
            archive: A tar archive, plain or compressed, of a root file system, an OCI layout or a
                Docker archive.
            tag: A tag for the image. Another image with this tag loses it.
            on_progress: Called with the progress, once the archive is sent.
        """
        request = ops.UPLOAD_IMAGE(query={"tag": tag}, content=archive)
        return self._done(request, Image, on_progress)

    def import_path(
        self, path: str | os.PathLike[str], *, tag: str | None = None, on_progress: OnProgress | None = None
    ) -> Image:
        """Import an image from a directory or an archive on the daemon's host.

        Only clients of the daemon's Unix socket may do that.
        """
        body = {"path": os.fspath(path), "tag": tag}
        return self._done(ops.IMPORT_IMAGE(body=body), Image, on_progress)

    def compose(
        self,
        *,
        image: str | None = None,
        snapshot: str | None = None,
        config: ImageConfig | None = None,
        tag: str | None = None,
        build: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Image:
        """Create an image from the files of a filesystem snapshot or of another image.

        Args:
            image: The image whose files to use.
            snapshot: ID of the snapshot whose files to use.
            config: The configuration. Nothing is inherited.
            tag: A tag for the image. Another image with this tag loses it.
            build: Identifies what the image is made from: an image with the same value is reused.
            on_progress: Called with the progress.
        """
        body = {"image": image, "snapshot": snapshot, "config": config, "tag": tag, "build": build}
        return self._done(ops.COMPOSE_IMAGE(body=body), Image, on_progress)

    @opens_stream
    def download(self, reference: str) -> Stream[bytes]:
        """Stream an image as a tar archive with an OCI layout."""
        return self._download(ops.DOWNLOAD_IMAGE(reference))

    def export_path(self, reference: str, path: str | os.PathLike[str]) -> ExportedImage:
        """Write an image to a file on the daemon's host.

        Only clients of the daemon's Unix socket may do that.
        """
        request = ops.EXPORT_IMAGE(reference, body={"path": os.fspath(path)})
        return self._transport.json(request, ExportedImage)


class Snapshots(LongResource):
    """Snapshots. `sandbox.checkpoint` takes them."""

    def get(self, snapshot: str) -> Snapshot:
        """Return a snapshot."""
        return self._transport.json(ops.GET_SNAPSHOT(snapshot), Snapshot)

    def list(
        self, *, source: str | None = None, name: str | None = None, limit: int | None = None
    ) -> Iterator[Snapshot]:
        """Yield snapshots, ordered by the time they were taken.

        Args:
            source: Only snapshots of the sandbox with this id.
            name: Only the snapshot with this name.
            limit: Number of snapshots in one response.
        """
        query = {"source": source, "name": name, "limit": limit}
        return self._transport.pages(ops.LIST_SNAPSHOTS(query=query), "snapshots", Snapshot)

    def delete(self, snapshot: str, *, when_free: bool | None = None) -> None:
        """Delete a snapshot.

        Args:
            snapshot: ID of the snapshot.
            when_free: If it is in use, delete it when it no longer is, instead of failing.
        """
        self._transport.send(ops.DELETE_SNAPSHOT(snapshot, query={"when_free": when_free}))

    def files(self, snapshot: str, *, idempotency_key: str | None = None) -> Snapshot:
        """Create a filesystem snapshot from the files of a memory snapshot."""
        headers = {"Idempotency-Key": idempotency_key}
        return self._transport.json(ops.EXTRACT_SNAPSHOT_FILES(snapshot, headers=headers), Snapshot)

    @opens_stream
    def export(self, snapshot: str) -> Stream[bytes]:
        """Stream a snapshot as an archive that any host with its image can import."""
        return self._download(ops.EXPORT_SNAPSHOT(snapshot))

    def import_archive(
        self,
        archive: Content,
        *,
        labels: Mapping[str, str] | None = None,
        expires: Duration | None = None,
        idempotency_key: str | None = None,
    ) -> Snapshot:
        """Import an exported snapshot. It gets a new id.

        Args:
            archive: The archive: bytes, an open file, or pieces of bytes.
            labels: Labels in addition to those in the archive.
            expires: Time after which the snapshot is deleted automatically. Default: never.
            idempotency_key: A unique text; a repeated call with it makes no second snapshot.
        """
        query = {"labels": json.dumps(labels) if labels else None, "expires_secs": seconds(expires)}
        headers = {"Idempotency-Key": idempotency_key}
        request = ops.IMPORT_SNAPSHOT(query=query, content=archive, headers=headers)
        return self._transport.json(request, Snapshot)

    def push(
        self,
        snapshot: str,
        reference: str,
        *,
        insecure: bool | None = None,
        on_progress: OnProgress | None = None,
    ) -> PushedSnapshot:
        """Push a snapshot to a registry.

        Args:
            snapshot: ID of the snapshot.
            reference: `HOST/NAME:TAG`.
            insecure: Permit a registry on another host without TLS.
            on_progress: Called with the progress.
        """
        body = {"reference": reference, "insecure": insecure}
        return self._done(ops.PUSH_SNAPSHOT(snapshot, body=body), PushedSnapshot, on_progress)

    def pull(
        self,
        reference: str,
        *,
        labels: Mapping[str, str] | None = None,
        expires: Duration | None = None,
        insecure: bool | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Snapshot:
        """Pull a snapshot from a registry. It gets a new id.

        Args:
            reference: `HOST/NAME:TAG`.
            labels: Labels in addition to those in the archive.
            expires: Time after which the snapshot is deleted automatically. Default: never.
            insecure: Permit a registry on another host without TLS.
            idempotency_key: A unique text; a repeated call with it makes no second snapshot.
            on_progress: Called with the progress.
        """
        body = {
            "reference": reference,
            "labels": labels,
            "expires_secs": seconds(expires),
            "insecure": insecure,
        }
        headers = {"Idempotency-Key": idempotency_key}
        return self._done(ops.PULL_SNAPSHOT(body=body, headers=headers), Snapshot, on_progress)


class Builds(Resource):
    """Builds of images and templates."""

    def create(
        self,
        *,
        dockerfile: str | None = None,
        base: str | None = None,
        steps: Sequence[BuildStepRequest] | None = None,
        tag: str | None = None,
        template: BuildTemplate | None = None,
        context: str | None = None,
        arguments: Mapping[str, str] | None = None,
        start_command: str | None = None,
        ready_command: str | None = None,
        egress: Egress | None = None,
        resources: ResourcesRequest | None = None,
        step_timeout: Duration | None = None,
        force: bool | None = None,
        idempotency_key: str | None = None,
    ) -> Build:
        """Request a build, from either a Dockerfile or a base image with steps.

        The daemon carries it out, whether or not the client stays; `get` waits for its end.

        Args:
            dockerfile: The text of the Dockerfile.
            base: The base image, for a build from `steps`.
            steps: The steps, in order.
            tag: A tag for the image. Another image of the project with this tag loses it.
            template: The template that the result becomes.
            context: Hash of the uploaded context that steps copy files from.
            arguments: Values for the `ARG`s of the Dockerfile.
            start_command: A line for `/bin/sh` that becomes the entrypoint.
            ready_command: A line for `/bin/sh` that exits with 0 once the program is ready.
            egress: Where steps may connect to.
            resources: Limits of the sandbox of each step.
            step_timeout: Time limit of each step. Default: 30 minutes.
            force: Run also steps whose results are known.
            idempotency_key: A unique text; a repeated call with it makes no second build.
        """
        body = {
            "dockerfile": dockerfile,
            "from": base,
            "steps": steps,
            "tag": tag,
            "template": template,
            "context": context,
            "arguments": arguments,
            "start_command": start_command,
            "ready_command": ready_command,
            "egress": egress,
            "resources": resources,
            "step_timeout_secs": seconds(step_timeout),
            "force": force,
        }
        headers = {"Idempotency-Key": idempotency_key}
        return self._transport.json(ops.CREATE_BUILD(body=body, headers=headers), Build)

    def get(self, build: str, *, wait: Duration | None = None) -> Build:
        """Return a build.

        Args:
            build: The id of the build.
            wait: How long to wait for its end, at most 600 seconds. Default: not at all.
        """
        query = {"wait_secs": seconds(wait)}
        return self._transport.json(ops.GET_BUILD(build, query=query, waits=wait is not None), Build)

    def list(self, *, limit: int | None = None) -> Iterator[Build]:
        """Yield builds, the oldest first. `limit` is the number in one response."""
        return self._transport.pages(ops.LIST_BUILDS(query={"limit": limit}), "builds", Build)

    def cancel(self, build: str) -> Build:
        """Cancel a build. Its state is `cancelled` once nothing of it is left."""
        return self._transport.json(ops.CANCEL_BUILD(build), Build)

    def log(
        self,
        build: str,
        *,
        offset: int | None = None,
        lines: int | None = None,
        wait: Duration | None = None,
    ) -> BuildLog:
        """Return lines of the log of a build.

        Args:
            build: The id of the build.
            offset: The first line, such as `next_offset` of the previous result. Default: 0.
            lines: Number of lines, 1,000 at most.
            wait: How long to wait for a line, at most 600 seconds. Default: not at all.
        """
        query = {"offset": offset, "lines": lines, "wait_secs": seconds(wait)}
        request = ops.GET_BUILD_LOG(build, query=query, waits=wait is not None)
        return self._transport.json(request, BuildLog)

    @opens_stream
    def follow(self, build: str, *, offset: int | None = None) -> Stream[BuildLogLine]:
        """Stream the log of a build, until it has ended.

        Args:
            build: The id of the build.
            offset: The first line. Default: 0.
        """

        def resume(last_id: str | None) -> Request:
            begin = offset if last_id is None else int(last_id) + 1
            return ops.GET_BUILD_LOG(build, query={"offset": begin})

        stream = EventStream(self._transport, _log_line, last=("end",), resume=resume)
        return stream.open(resume(None))

    def context(self, hash: str) -> BuildContext:
        """Return a context that was uploaded before. A missing one is a `NotFoundError`."""
        return self._transport.json(ops.GET_BUILD_CONTEXT(hash), BuildContext)

    def upload_context(self, hash: str, archive: Content) -> BuildContext:
        """Upload the files that steps of a build copy.

        Args:
            hash: Chosen by the caller: the same hash always means the same files.
            archive: A tar archive, plain or compressed: bytes, an open file, or pieces of bytes.
        """
        request = ops.UPLOAD_BUILD_CONTEXT(hash, content=archive)
        return self._transport.json(request, BuildContext)


def _log_line(event: ServerSentEvent) -> BuildLogLine | None:
    return decode(BuildLogLine, event.json()) if event.kind == "line" else None
