// The kernel of JavaScript and TypeScript: it runs cells in turn, as a REPL does.
//
// Another thread reads what there is to run, so that it can terminate code that does not return.

import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { inspect } from 'node:util'
import vm from 'node:vm'
import { Worker } from 'node:worker_threads'

import { importer } from './imports.mjs'
import { translate } from './source.mjs'

const [language, questions, messages] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])]
// Objects with a method of this name have representations of their own.
const DISPLAY = Symbol.for('Jupyter.display')
// Where the frames of this kernel begin in a stack.
const OURS = /^\s+at .*(node:vm|\/(worker|imports)\.mjs)/

let count = 0
// Ends the run in progress with an error.
let interrupt = () => {}

globalThis.require = createRequire(path.join(process.cwd(), 'cell.js'))
globalThis.display = (value) => send(result(value, false))
Object.defineProperty(globalThis, '__import', { value: importer(process.cwd()) })

// A reader that is slow makes the code wait, and programs share these descriptors.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true)

process.on('SIGINT', () => interrupt())
process.on('uncaughtException', (error) => process.stderr.write(`${shownError(error)}\n`))
process.on('unhandledRejection', (error) => process.stderr.write(`${shownError(error)}\n`))

const reader = new Worker(new URL('./reader.mjs', import.meta.url), { workerData: { questions } })
reader.on('message', (question) => run(question))

function send(line) {
  let rest = Buffer.from(`${JSON.stringify(line)}\n`)
  while (rest.length > 0) rest = rest.subarray(fs.writeSync(messages, rest))
}

async function run({ code, variables, changes }) {
  assign(changes)
  const earlier = assign(variables)
  let isOver = false
  // Code that was terminated does not come here; the interrupt that follows does.
  const end = (last) => {
    if (isOver) return
    try {
      last()
    } catch (error) {
      failed(error)
    }
    isOver = true
    assign(earlier)
    send({ type: 'done' })
  }
  interrupt = () => end(() => failed(new Interrupted('the code was interrupted')))
  try {
    const value = await evaluated(code)
    end(() => value !== undefined && send(result(value, true)))
  } catch (error) {
    end(() => failed(error))
  }
}

// The value of a cell. A promise is waited for, since what its code prints belongs to the run.
async function evaluated(code) {
  const { script, names, isBody } = translate(code, language)
  for (const name of names) declare(name)
  count += 1
  const filename = `cell-${count}`
  // Not with `breakOnSigint`: while that begins and ends, a signal would end the process.
  const settled = await new vm.Script(script, { filename }).runInThisContext({ displayErrors: false })
  return isBody ? settled?.value : settled
}

// Makes room for a global variable. Some of Node.js can only be read.
function declare(name) {
  const own = Object.getOwnPropertyDescriptor(globalThis, name)
  if (own === undefined || (own.configurable && !own.writable)) {
    const value = own === undefined ? undefined : globalThis[name]
    Object.defineProperty(globalThis, name, { value, writable: true, enumerable: true, configurable: true })
  }
}

class Interrupted extends Error {
  name = 'Interrupted'
}

function failed(error) {
  const isError = error instanceof Error || Object.prototype.toString.call(error) === '[object Error]'
  const value = isError ? String(error.message) : shown(error)
  send({ type: 'error', name: isError ? String(error.name) : 'Error', value, traceback: shownError(error) })
}

// The stack of an error, down to the frame where this kernel begins.
function shownError(error) {
  const stack = error?.stack
  if (typeof stack !== 'string') return `Uncaught ${shown(error)}`
  const lines = stack.split('\n')
  const ours = lines.findIndex((line) => OURS.test(line))
  return lines.slice(0, ours < 0 ? lines.length : ours).join('\n')
}

function shown(value) {
  if (typeof value === 'string') return value
  try {
    return inspect(value)
  } catch (error) {
    return `(cannot be shown: ${error})`
  }
}

// A value as a result. Objects may have representations by MIME type, or be such representations if they are displayed.
function result(value, isMain) {
  const { 'text/plain': text, ...others } = represented(value) ?? (isMain ? undefined : bundle(value)) ?? {}
  return { type: 'bundle', main: isMain, data: { 'text/plain': text ?? shown(value), ...others } }
}

function represented(value) {
  try {
    return typeof value?.[DISPLAY] === 'function' ? value[DISPLAY]() : undefined
  } catch {
    return undefined
  }
}

function bundle(value) {
  const keys = typeof value === 'object' && value !== null ? Object.keys(value) : []
  return keys.length > 0 && keys.every((key) => /^[a-z0-9]+\/[\w.+-]+$/.test(key)) ? value : undefined
}

// Sets environment variables, and returns what they were before. `null` removes one.
function assign(variables) {
  const earlier = {}
  for (const [name, value] of Object.entries(variables)) {
    earlier[name] = process.env[name] ?? null
    if (value === null) delete process.env[name]
    else process.env[name] = value
  }
  return earlier
}
