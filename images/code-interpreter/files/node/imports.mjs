// Imports of cells, relative to the directory of their context.

import { execFile } from 'node:child_process'
import { createRequire, isBuiltin } from 'node:module'
import os from 'node:os'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

// Where packages are installed that code names as `npm:NAME`.
const PACKAGES = path.join(os.homedir(), '.cache', 'code-interpreter')

// The function that cells call instead of `import()`.
export function importer(directory) {
  const near = createRequire(path.join(directory, 'cell.js'))
  return async (specifier, options) => import(await place(String(specifier), near), options)
}

async function place(specifier, near) {
  if (specifier.startsWith('npm:')) return installed(specifier.slice('npm:'.length))
  if (isBuiltin(specifier) || /^[a-z]{2,}:/.test(specifier)) return specifier
  return pathToFileURL(near.resolve(specifier)).href
}

// The package `NAME[@VERSION][/PATH]`, which npm installs unless it is there.
async function installed(text) {
  const [, name, version, inside] = /^((?:@[^/@]+\/)?[^/@]+)(@[^/]+)?(\/.*)?$/.exec(text) ?? []
  if (name === undefined) throw new TypeError(`'npm:${text}' does not name a package`)
  const require = createRequire(path.join(PACKAGES, 'cell.js'))
  const resolved = () => pathToFileURL(require.resolve(name + (inside ?? ''))).href
  if (version === undefined) {
    try {
      return resolved()
    } catch {
      // It is not installed yet.
    }
  }
  const options = ['install', '--no-audit', '--no-fund', '--prefix', PACKAGES, name + (version ?? '')]
  await promisify(execFile)('npm', options)
  return resolved()
}
