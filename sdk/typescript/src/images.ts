/** Images: the root file systems that sandboxes boot from. */

import { type Data, toBody } from "./bytes.js";
import type { ComposeImage, ExportedImage, Image, ImportProgress, PullImage } from "./generated/types.js";
import { Pages } from "./pages.js";
import { type CallOptions, split, type Transport } from "./transport.js";

/** Options of calls that report their progress. */
export interface ProgressOptions extends CallOptions {
  /** Receives the progress. */
  onProgress?: ((progress: ImportProgress) => void) | undefined;
}

/** The images of the daemon. */
export class Images {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists images. */
  list(options: { limit?: number | undefined } & CallOptions = {}): Pages<Image> {
    const { call, fields } = split(options);
    return new Pages(async (after) => {
      const page = await this.#transport.call("listImages", { ...fields, after }, call);
      return { items: page.images, next: page.next };
    });
  }

  /** Returns an image by a tag, a digest, or a digest prefix of at least 8 digits. */
  async get(reference: string, options: CallOptions = {}): Promise<Image> {
    return await this.#transport.call("getImage", { reference }, options);
  }

  /** Deletes an image. */
  async delete(reference: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call("deleteImage", { reference }, options);
  }

  /** Pulls an image from a registry. Aborting the call does not end the pull. */
  async pull(reference: string, options: Omit<PullImage, "reference"> & ProgressOptions = {}): Promise<Image> {
    const { signal, onProgress, ...fields } = options;
    return await this.#transport.finish("pullImage", {}, { body: { reference, ...fields }, signal }, onProgress);
  }

  /** Imports a tar archive: of a root file system, an OCI layout, or a Docker archive. */
  async upload(archive: Data, options: { tag?: string | undefined } & ProgressOptions = {}): Promise<Image> {
    const { signal, onProgress, tag } = options;
    return await this.#transport.finish("uploadImage", { tag }, { body: toBody(archive), signal }, onProgress);
  }

  /** Imports an archive at a path of the daemon's host. Only over its Unix socket. */
  async import(path: string, options: { tag?: string | undefined } & ProgressOptions = {}): Promise<Image> {
    const { signal, onProgress, tag } = options;
    return await this.#transport.finish("importImage", {}, { body: { path, tag }, signal }, onProgress);
  }

  /** Makes an image of a filesystem snapshot, a build or another image, with another configuration. */
  async compose(request: ComposeImage, options: ProgressOptions = {}): Promise<Image> {
    const { signal, onProgress } = options;
    return await this.#transport.finish("composeImage", {}, { body: request, signal }, onProgress);
  }

  /** Returns an image as a tar archive with an OCI layout. */
  async download(reference: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return await this.#transport.download("downloadImage", { reference }, options);
  }

  /** Writes an image to a path of the daemon's host. Only over its Unix socket. */
  async export(reference: string, path: string, options: CallOptions = {}): Promise<ExportedImage> {
    return await this.#transport.call("exportImage", { reference }, { body: { path }, ...options });
  }
}
