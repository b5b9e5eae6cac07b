/**
 * Compares what the cases used with what the client offers.
 *
 *     node check-surface.ts PACKAGE...
 *
 * The types of the packages list every public method and option; the records of a run (E2B_RECORDS) tell which
 * were used and how that ended; docs/e2b.md lists those that the server refuses, each with a part of its error.
 */
import { appendFileSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import type { Use } from "./support/recording.ts";

const HERE = dirname(fileURLToPath(import.meta.url));
const PAGE = join(HERE, "../../../docs/e2b.md");

/**
 * Exported classes that users do not call: the generated HTTP client, what is made by the client itself, and
 * `OutputMessage`, in whose place callbacks get plain objects.
 */
const NOT_CALLED = new Set([
  "ApiClient",
  "VolumeConnectionConfig",
  "LogEntryStart",
  "LogEntryEnd",
  "E2B",
  "ClientFactory",
  "OutputMessage",
]);
/** Types of options that the client passes on without looking into them, or that are no dictionaries. */
const LEAVES =
  /^(McpServer|GitHubMcpServer|Logger|AbortSignal|ReadableStream|Blob|ArrayBuffer|Date|Uint8Array|Volume|TemplateBuilder|TemplateFinal|ReadyCmd|Map|URL)/;

/** A method: where its calls are recorded, and its parameters. */
type Member = { name: string; record: string; signatures: readonly ts.Signature[] };

class Surface {
  readonly options = new Map<string, Set<string>>();
  private readonly checker: ts.TypeChecker;
  readonly members: Member[] = [];

  constructor(program: ts.Program, packages: Map<string, ts.SourceFile>) {
    this.checker = program.getTypeChecker();
    for (const [name, file] of packages) this.read(name, file);
  }

  private read(name: string, file: ts.SourceFile): void {
    const module = this.checker.getSymbolAtLocation(file);
    if (module === undefined) throw new Error(`${name} has no types`);
    for (const exported of this.checker.getExportsOfModule(module)) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? this.checker.getAliasedSymbol(exported) : exported;
      const of = symbol.declarations?.[0];
      if (of === undefined || of.getSourceFile() !== file || NOT_CALLED.has(symbol.name)) continue;
      if (ts.isFunctionDeclaration(of)) this.add(symbol.name, symbol.name, this.checker.getTypeOfSymbol(symbol));
      if (ts.isClassDeclaration(of) && !this.isError(of)) this.readClass(name, symbol, of);
    }
  }

  private isError(of: ts.ClassDeclaration): boolean {
    return /(Error|Exception)$/.test(of.name?.text ?? "");
  }

  private readClass(packageName: string, symbol: ts.Symbol, of: ts.ClassDeclaration): void {
    const title = packageName === "@e2b/code-interpreter" && symbol.name === "Sandbox" ? "Interpreter" : symbol.name;
    const statics = this.checker.getTypeOfSymbol(symbol);
    const instance = this.checker.getDeclaredTypeOfSymbol(symbol);
    for (const [type, suffix] of [
      [statics, "[class]"],
      [instance, ""],
    ] as const) {
      for (const property of this.checker.getPropertiesOfType(type)) {
        const at = property.declarations?.[0];
        if (at === undefined || at.getSourceFile() !== of.getSourceFile() || !isPublic(at)) continue;
        if (!ts.isMethodDeclaration(at) && !ts.isGetAccessor(at)) continue;
        const name = `${title}.${property.name}${suffix}`;
        this.add(name, name, this.checker.getTypeOfSymbolAtLocation(property, of), ts.isGetAccessor(at));
      }
    }
  }

  private add(name: string, record: string, type: ts.Type, isGetter = false): void {
    const signatures = isGetter ? [] : type.getCallSignatures();
    this.members.push({ name, record, signatures });
    const options = new Set<string>();
    for (const signature of signatures) {
      for (const parameter of signature.getParameters()) {
        if (parameter.name === "this") continue;
        const of = this.checker.getTypeOfSymbol(parameter);
        options.add(`${name}(${parameter.name})`);
        for (const option of this.keys(of, `${name}(${parameter.name}`, new Set())) options.add(option);
      }
    }
    this.options.set(name, options);
  }

  /** The dictionaries that a value of a type can be or contain. */
  private dictionaries(type: ts.Type): ts.Type[] {
    if (type.isUnion()) return type.types.flatMap((one) => this.dictionaries(one));
    const name = type.aliasSymbol?.name ?? type.symbol?.name ?? "";
    if (LEAVES.test(name) || type.getCallSignatures().length > 0) return [];
    if (!(type.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection))) return [];
    const element = this.checker.getIndexTypeOfType(type, ts.IndexKind.Number) ?? type.getStringIndexType();
    if (element !== undefined) return this.dictionaries(element);
    const declared = this.checker.getPropertiesOfType(type);
    const isOfPackage = declared.some((one) => one.declarations?.[0]?.getSourceFile().fileName.includes("e2b"));
    return isOfPackage ? [type] : [];
  }

  /** The names of all keys that a value of a type can have. */
  private keys(type: ts.Type, at: string, seen: Set<ts.Type>): string[] {
    const found: string[] = [];
    for (const dictionary of this.dictionaries(type)) {
      if (seen.has(dictionary)) continue;
      seen.add(dictionary);
      for (const property of this.checker.getPropertiesOfType(dictionary)) {
        const of = property.declarations?.[0];
        if (of === undefined || ts.isMethodDeclaration(of)) continue;
        found.push(title(property, at), ...this.keys(this.checker.getTypeOfSymbol(property), at, seen));
      }
    }
    return found;
  }

  /** The names of the options that a recorded path of an argument stands for. */
  named(member: Member, index: number, path: string[]): string[] {
    const found: string[] = [];
    for (const signature of member.signatures) {
      const parameter = signature.getParameters().filter((one) => one.name !== "this")[index];
      if (parameter === undefined) continue;
      const at = `${member.name}(${parameter.name}`;
      if (path.length === 0) found.push(`${at})`);
      else found.push(...this.follow(this.checker.getTypeOfSymbol(parameter), path, at));
    }
    return found;
  }

  private follow(type: ts.Type, path: string[], at: string): string[] {
    const [key, ...rest] = path as [string, ...string[]];
    const found: string[] = [];
    for (const dictionary of this.dictionaries(type)) {
      const property = this.checker.getPropertyOfType(dictionary, key);
      if (property === undefined) {
        // An index of a list, or a name of a record: what is below has the same dictionaries.
        if (rest.length > 0) found.push(...this.follow(type, rest, at));
      } else if (rest.length === 0) found.push(title(property, at));
      else found.push(...this.follow(this.checker.getTypeOfSymbol(property), rest, at));
    }
    return found;
  }
}

/** The name of a key: that of its type, or of the parameter if its type has no name. */
function title(property: ts.Symbol, at: string): string {
  let of: ts.Node | undefined = property.declarations?.[0]?.parent;
  while (of !== undefined && !ts.isInterfaceDeclaration(of) && !ts.isTypeAliasDeclaration(of)) {
    if (ts.isParameter(of) || ts.isMethodDeclaration(of)) return `${at}.${property.name})`;
    of = of.parent;
  }
  return of === undefined ? `${at}.${property.name})` : `${of.name.text}.${property.name}`;
}

function isPublic(of: ts.Declaration): boolean {
  return (ts.getCombinedModifierFlags(of) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) === 0;
}

/** The refused methods and options of the page, each with a part of its error. */
function refused(): Map<string, string> {
  const section = /<!-- refused: javascript -->\n(.*?)<!-- end -->/s.exec(readFileSync(PAGE, "utf8"))?.[1] ?? "";
  const rows = [...section.matchAll(/^\| (`.+`) \| (.+?) \|$/gm)];
  return new Map(rows.flatMap((row) => [...row[1]!.matchAll(/`([^`]+)`/g)].map((name) => [name[1]!, row[2]!])));
}

/** The text of the refusal of a method or option: of its own, or of the method or type that has it. */
function refusalOf(name: string, refusals: Map<string, string>): string | undefined {
  const plain = name.replace("[class]", "");
  for (const [listed, text] of refusals) {
    if (plain === listed || plain.startsWith(`${listed}(`) || plain.startsWith(`${listed}.`)) return text;
  }
  return undefined;
}

/** The records of all processes, as uses of methods and options. */
function used(surface: Surface): Map<string, Use> {
  const uses = new Map<string, Use>();
  const add = (name: string, use: Use) => {
    const total = uses.get(name) ?? { ok: 0, errors: [] };
    uses.set(name, { ok: total.ok + use.ok, errors: [...total.errors, ...use.errors] });
  };
  const members = new Map(surface.members.map((member) => [member.record, member]));
  const directory = process.env["E2B_RECORDS"] ?? "";
  for (const file of readdirSync(directory)) {
    const record = JSON.parse(readFileSync(join(directory, file), "utf8")) as { [name: string]: Use };
    for (const [recorded, use] of Object.entries(record)) {
      const [name, argument] = recorded.split("#") as [string, string | undefined];
      const member = members.get(name);
      if (member === undefined) continue;
      if (argument === undefined) {
        add(member.name, use);
        continue;
      }
      const [index, ...path] = argument.split(".") as [string, ...string[]];
      for (const option of new Set(surface.named(member, Number(index), path))) add(option, use);
    }
  }
  return uses;
}

function main(names: string[]): number {
  const paths = new Map(names.map((name) => [name, join(HERE, "node_modules", name, "dist/index.d.ts")]));
  const program = ts.createProgram([...paths.values()], { module: ts.ModuleKind.NodeNext, skipLibCheck: true });
  const files = new Map([...paths].map(([name, path]) => [name, program.getSourceFile(path)!]));
  const surface = new Surface(program, files);
  const [uses, refusals] = [used(surface), refused()];
  const offered = new Set(surface.members.flatMap((member) => [member.name, ...surface.options.get(member.name)!]));
  const problems: string[] = [];
  for (const name of [...offered].sort()) {
    // With a logger, the older client refuses every answer that it gets in Node.js 24; a case shows that.
    if (names.includes("e2b-2.45") && name.endsWith(".logger")) continue;
    const use = uses.get(name) ?? { ok: 0, errors: [] };
    const refusal = refusalOf(name, refusals);
    if (refusal === undefined && use.ok === 0) {
      const seen = use.errors.length > 0 ? `; it failed with '${use.errors[0]}'` : "";
      problems.push(`${name} is not exercised by a case and not listed as refused${seen}`);
    } else if (refusal !== undefined && !use.errors.some((error) => error.includes(refusal))) {
      problems.push(`${name} is listed as refused with '${refusal}', which no case has seen`);
    } else if (refusal !== undefined && use.ok > 0) problems.push(`${name} is listed as refused, but works`);
  }
  for (const problem of problems) console.log(problem);
  const listed = [...offered].filter((name) => refusalOf(name, refusals) !== undefined).length;
  const summary = process.env["E2B_SUMMARY"];
  const line = `  ${offered.size} methods and options: ${offered.size - listed} exercised, ${listed} refused as listed\n`;
  if (problems.length === 0 && summary !== undefined) appendFileSync(summary, line);
  return problems.length === 0 ? 0 : 1;
}

process.exitCode = main(process.argv.slice(2));
