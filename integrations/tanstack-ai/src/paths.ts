/** The virtual root `/workspace`, which users write, and the directory of the sandbox that it stands for. */

const VIRTUAL_ROOT = "/workspace";

/** Maps paths between users and the sandbox. */
export class WorkspacePaths {
  /** The directory of the sandbox. */
  readonly root: string;

  constructor(root: string = VIRTUAL_ROOT) {
    if (!root.startsWith("/")) throw new TypeError(`the workspace root '${root}' is not absolute`);
    this.root = root.replace(/\/+$/, "") || "/";
  }

  /** The path in the sandbox. One that is not absolute is below the root. */
  toReal(path: string): string {
    if (!path.startsWith("/")) return join(this.root, path);
    return path === VIRTUAL_ROOT || path.startsWith(`${VIRTUAL_ROOT}/`)
      ? join(this.root, path.slice(VIRTUAL_ROOT.length + 1))
      : path;
  }

  /** The path as the user writes it, below the directory that the user has named. */
  toVirtual(path: string, named: string): string {
    const real = this.toReal(named);
    return path === real ? named : join(named, path.slice(real === "/" ? 1 : real.length + 1));
  }
}

function join(directory: string, rest: string): string {
  if (rest === "" || rest === ".") return directory;
  return directory.endsWith("/") ? directory + rest : `${directory}/${rest}`;
}
