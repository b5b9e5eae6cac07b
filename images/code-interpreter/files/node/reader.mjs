// The thread that reads what there is to run. The main thread may be busy with code that does not return.

import inspector from 'node:inspector'
import net from 'node:net'
import { StringDecoder } from 'node:string_decoder'
import { parentPort, workerData } from 'node:worker_threads'

const session = new inspector.Session()
session.connectToMainThread()

const decoder = new StringDecoder('utf8')
const pipe = new net.Socket({ fd: workerData.questions, readable: true, writable: false })
let pieces = []

pipe.on('data', (piece) => {
  const [first, ...others] = decoder.write(piece).split('\n')
  pieces.push(first)
  for (const other of others) {
    take(JSON.parse(pieces.join('')))
    pieces = [other]
  }
})
// The server has ended.
pipe.on('close', () => process.kill(process.pid, 'SIGKILL'))

function take(question) {
  if (question.type === 'terminate') session.post('Runtime.terminateExecution')
  else parentPort.postMessage(question)
}
