// Translates the source of a cell into a script that can be run after others: types are removed, imports become
// expressions, and what is declared at the top becomes a property of the global object, so that it stays and can be
// declared again. Code with `await` at the top becomes the body of an async function.

import { stripTypeScriptTypes } from 'node:module'

import { parse } from 'acorn'

const OPTIONS = { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true }

// Returns the script for a cell, the names that it declares, and whether its value is a promise for an object with the
// value of the cell. A source that cannot be parsed stays as it is: running it says what is wrong with it.
export function translate(code, language) {
  const source = withoutTypes(code, language)
  try {
    return new Translation(source, parse(source, OPTIONS)).script()
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    return { script: source, names: [], isBody: false }
  }
}

// Code that is an object literal as a whole is meant as a value, not as a block.
function withoutTypes(code, language) {
  const strip = (source) => (language === 'typescript' ? stripTypeScriptTypes(source, { mode: 'transform' }) : source)
  if (!/^\s*\{/.test(code) || /;\s*$/.test(code)) return strip(code)
  try {
    const wrapped = strip(`(${code}\n)`)
    parse(wrapped, OPTIONS)
    return wrapped
  } catch {
    return strip(code)
  }
}

class Translation {
  constructor(source, tree) {
    this.source = source
    this.tree = tree
    this.edits = []
    this.names = new Set()
    this.functions = []
    this.isAsync = tree.body.some((statement) => statement.type === 'ImportDeclaration') || awaits(tree)
  }

  script() {
    for (const statement of this.tree.body) this.top(statement)
    if (!this.isAsync) return { script: this.edited(), names: [...this.names], isBody: false }
    const last = this.tree.body.at(-1)
    if (last?.type === 'ExpressionStatement') {
      this.insert(last.expression.start, 'return { value: (')
      this.insert(last.expression.end, ') }')
    }
    const names = this.functions.length === 0 ? '' : `Object.assign(globalThis, { ${this.functions.join(', ')} });`
    const script = `(async () => { ${names}${this.edited()}\n})()`
    return { script, names: [...this.names], isBody: true }
  }

  // A statement at the top.
  top(statement) {
    switch (statement.type) {
      case 'ImportDeclaration':
        this.replace(statement.start, statement.end, this.imported(statement))
        return
      case 'ExportNamedDeclaration':
        if (statement.declaration === null) {
          this.replace(statement.start, statement.end, '')
          return
        }
        this.replace(statement.start, statement.declaration.start, '')
        this.top(statement.declaration)
        return
      case 'VariableDeclaration':
        if (statement.kind !== 'var' || this.isAsync) this.assigned(statement)
        break
      case 'ClassDeclaration':
        this.names.add(statement.id.name)
        this.insert(statement.start, `void (${statement.id.name} = `)
        this.insert(statement.end, ')')
        break
      case 'FunctionDeclaration':
        this.functions.push(statement.id.name)
        break
    }
    this.inside(statement, false)
  }

  // Every node below: imports, and variables that an async function would keep for itself.
  inside(node, isInFunction) {
    for (const child of children(node)) {
      if (child.type === 'ImportExpression') this.replace(child.start, child.start + 'import'.length, '__import')
      if (child.type === 'VariableDeclaration' && child.kind === 'var' && this.isAsync && !isInFunction) this.assigned(child, node)
      this.inside(child, isInFunction || isFunction(child))
    }
  }

  // Makes a declaration an assignment. In the head of a loop, it has no value that could be seen.
  assigned(declaration, parent) {
    const { declarations } = declaration
    const first = declarations[0]
    const isHead = parent !== undefined && (parent.init === declaration || parent.left === declaration)
    const isTarget = parent !== undefined && parent.left === declaration
    this.replace(declaration.start, first.start, isHead ? '' : 'void (')
    for (const { id, init, end } of declarations) {
      bound(id, this.names)
      if (init === null && !isTarget) this.insert(end, declaration.kind === 'var' ? ` = ${id.name}` : ' = undefined')
    }
    if (!isHead) this.insert(declarations.at(-1).end, ')')
  }

  // The statement that has the effect of an import.
  imported({ source, specifiers }) {
    const from = `await __import(${this.source.slice(source.start, source.end)})`
    const parts = []
    let whole = '__module'
    for (const { type, local, imported } of specifiers) {
      this.names.add(local.name)
      if (type === 'ImportNamespaceSpecifier') parts.push(`${local.name} = ${whole}`)
      else if (type === 'ImportDefaultSpecifier') parts.push(`${local.name} = ${whole}.default`)
      else parts.push(`${local.name} = ${whole}[${JSON.stringify(imported.name ?? imported.value)}]`)
    }
    return parts.length === 0 ? `${from};` : `{ const ${whole} = ${from}; ${parts.join('; ')} };`
  }

  insert(at, text) {
    this.replace(at, at, text)
  }

  replace(start, end, text) {
    this.edits.push({ start, end, text })
  }

  edited() {
    // Edits at one place stay in their order.
    const edits = this.edits.map((edit, order) => ({ ...edit, order }))
    edits.sort((one, other) => one.start - other.start || one.order - other.order)
    let [text, at] = ['', 0]
    for (const { start, end, text: added } of edits) {
      text += this.source.slice(at, start) + added
      at = Math.max(at, end)
    }
    return text + this.source.slice(at)
  }
}

function* children(node) {
  for (const member of Object.values(node)) {
    for (const child of Array.isArray(member) ? member : [member]) {
      if (typeof child?.type === 'string') yield child
    }
  }
}

function isFunction({ type }) {
  return /Function/.test(type) || type === 'StaticBlock' || type === 'PropertyDefinition'
}

// Whether code awaits outside of functions.
function awaits(node) {
  if (node.type === 'AwaitExpression' || (node.type === 'ForOfStatement' && node.await)) return true
  for (const child of children(node)) if (!isFunction(child) && awaits(child)) return true
  return false
}

// Adds the names that a pattern binds.
function bound(pattern, names) {
  switch (pattern?.type) {
    case 'Identifier':
      names.add(pattern.name)
      break
    case 'ObjectPattern':
      for (const property of pattern.properties) bound(property.value ?? property.argument, names)
      break
    case 'ArrayPattern':
      for (const element of pattern.elements) bound(element, names)
      break
    case 'AssignmentPattern':
      bound(pattern.left, names)
      break
    case 'RestElement':
      bound(pattern.argument, names)
      break
  }
}
