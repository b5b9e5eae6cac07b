//! The fake guest's shell: simple commands joined by `;`, `&&`, `||` and newlines, with quotes,
//! `$NAME`, `$?`, `$$`, `NAME=value`, `> file`, `>> file`, and the built-ins `cd`, `export` and
//! `exit`. There are no pipes, loops or globs: unsupported syntax is refused with code 2. Without
//! `-c`, the shell reads its commands from its input.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::program::{Program, Progress, Surroundings, begin};

/// A shell and its progress in a script.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shell {
    commands: VecDeque<Simple>,
    running: Option<(Program, Option<Target>)>,
    last: i32,
    source: Source,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Source {
    Script,
    Input,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Joint {
    Always,
    AfterSuccess,
    AfterFailure,
}

#[derive(Debug, Serialize, Deserialize)]
struct Simple {
    joint: Joint,
    words: Vec<Word>,
    target: Option<(Word, Mode)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum Mode {
    Replace,
    Append,
}

#[derive(Debug, Serialize, Deserialize)]
struct Target {
    file: String,
}

type Word = Vec<Piece>;

#[derive(Debug, Serialize, Deserialize)]
enum Piece {
    Text(String),
    Variable(String),
}

impl Shell {
    /// Returns a shell with these arguments.
    pub(crate) fn begin(arguments: &[String], around: &Surroundings<'_>) -> Self {
        let mut shell = Self { commands: VecDeque::new(), running: None, last: 0, source: Source::Script };
        let options = arguments.iter().take_while(|word| word.starts_with('-')).count();
        let wants_text = arguments[..options].iter().any(|word| !word.starts_with("--") && word.contains('c'));
        match (wants_text, arguments.get(options)) {
            (true, Some(text)) => shell.load(text),
            (true, None) => shell.last = 2,
            (false, None) => shell.source = Source::Input,
            (false, Some(file)) => match around.path(file).and_then(|path| around.files.read(&path).ok()) {
                Some(text) => shell.load(&String::from_utf8_lossy(&text)),
                None => shell.last = 127,
            },
        }
        shell
    }

    pub(crate) fn child(&self) -> Option<&Program> {
        self.running.as_ref().map(|(program, _)| program)
    }

    pub(crate) fn step(&mut self, around: &mut Surroundings<'_>) -> Progress {
        if let Some((program, target)) = &mut self.running {
            let before = std::mem::take(&mut around.out);
            let progress = program.step(around);
            let new = std::mem::replace(&mut around.out, before);
            match target {
                Some(target) => write(around, &target.file, &new),
                None => around.out.extend(new),
            }
            return match progress {
                Progress::Exited(code) => {
                    self.last = code;
                    self.running = None;
                    Progress::Moved
                }
                other => other,
            };
        }
        if let Some(command) = self.commands.pop_front() {
            return self.run(command, around);
        }
        match self.source {
            Source::Script => Progress::Exited(self.last),
            Source::Input => match around.input.take_line() {
                Some(line) => {
                    self.load(&String::from_utf8_lossy(&line));
                    Progress::Moved
                }
                None if around.input.open => Progress::Waits,
                None => Progress::Exited(self.last),
            },
        }
    }

    fn load(&mut self, text: &str) {
        match parse(text) {
            Some(commands) => self.commands.extend(commands),
            None => {
                self.commands.clear();
                self.last = 2;
            }
        }
    }

    fn run(&mut self, command: Simple, around: &mut Surroundings<'_>) -> Progress {
        match command.joint {
            Joint::AfterSuccess if self.last != 0 => return Progress::Moved,
            Joint::AfterFailure if self.last == 0 => return Progress::Moved,
            Joint::Always | Joint::AfterSuccess | Joint::AfterFailure => {}
        }
        let words: Vec<String> = command.words.iter().map(|word| self.expand(word, around)).collect();
        let target = command.target.map(|(word, mode)| {
            let file = self.expand(&word, around);
            if mode == Mode::Replace {
                if let Some(path) = around.path(&file) {
                    // If this fails, the next write reports it.
                    around.files.remove(&path, dorm_agent_proto::RemoveScope::Single).ok();
                }
                write(around, &file, b"");
            }
            Target { file }
        });
        let operand = words.get(1).map(String::as_str);
        match words.first().map(String::as_str) {
            None => {}
            Some("exit") => return Progress::Exited(operand.and_then(|code| code.parse().ok()).unwrap_or(self.last)),
            Some("cd") => {
                let home = around.variables.get("HOME").cloned().unwrap_or_else(|| "/".to_owned());
                if let Some(path) = around.path(operand.unwrap_or(&home)) {
                    *around.directory = super::files::normal(&path);
                }
                self.last = 0;
            }
            Some("export") => {
                for word in &words[1..] {
                    assign(word, around);
                }
                self.last = 0;
            }
            Some(word) if words.len() == 1 && assign(word, around) => self.last = 0,
            Some(word) => match begin(&words, around) {
                Some(program) => self.running = Some((program, target)),
                None => {
                    around.err.extend(format!("sh: 1: {word}: not found\n").bytes());
                    self.last = 127;
                }
            },
        }
        Progress::Moved
    }

    fn expand(&self, word: &Word, around: &Surroundings<'_>) -> String {
        word.iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable(name) => match name.as_str() {
                    "?" => self.last.to_string(),
                    "$" => around.pid.to_string(),
                    name => around.variables.get(name).cloned().unwrap_or_default(),
                },
            })
            .collect()
    }
}

fn write(around: &mut Surroundings<'_>, file: &str, bytes: &[u8]) {
    let Some(path) = around.path(file) else { return };
    if let Err(failure) = around.files.append(&path, bytes, around.stamp) {
        around.err.extend(format!("sh: {failure}\n").bytes());
    }
}

fn assign(word: &str, around: &mut Surroundings<'_>) -> bool {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
            around.variables.insert(name.to_owned(), value.to_owned());
            true
        }
        Some(_) | None => false,
    }
}

/// Returns the commands of a script; `None` if it contains syntax that this shell does not support.
fn parse(text: &str) -> Option<Vec<Simple>> {
    let mut commands = Vec::new();
    let mut current = Simple { joint: Joint::Always, words: Vec::new(), target: None };
    let mut redirect: Option<Mode> = None;
    let mut rest = text.chars().peekable();
    let mut end = |current: &mut Simple, next: Joint| {
        let done = std::mem::replace(current, Simple { joint: next, words: Vec::new(), target: None });
        if !done.words.is_empty() || done.target.is_some() {
            commands.push(done);
        }
    };
    while let Some(&symbol) = rest.peek() {
        match symbol {
            ' ' | '\t' | '\r' => drop(rest.next()),
            '#' => while rest.next_if(|symbol| *symbol != '\n').is_some() {},
            ';' | '\n' => {
                rest.next();
                end(&mut current, Joint::Always);
            }
            '&' | '|' => {
                rest.next();
                rest.next_if_eq(&symbol)?;
                end(&mut current, if symbol == '&' { Joint::AfterSuccess } else { Joint::AfterFailure });
            }
            '>' => {
                rest.next();
                redirect = Some(if rest.next_if_eq(&'>').is_some() { Mode::Append } else { Mode::Replace });
            }
            '<' | '(' | ')' | '`' | '*' => return None,
            _ => {
                let word = word(&mut rest)?;
                match redirect.take() {
                    Some(mode) => current.target = Some((word, mode)),
                    None => current.words.push(word),
                }
            }
        }
    }
    end(&mut current, Joint::Always);
    Some(commands)
}

fn word(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Word> {
    let mut pieces = Word::new();
    let mut text = String::new();
    let mut quote: Option<char> = None;
    while let Some(&symbol) = rest.peek() {
        match (quote, symbol) {
            (Some(open), close) if open == close => quote = None,
            (None, '\'' | '"') => quote = Some(symbol),
            (None, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '>' | '<' | '(' | ')') => break,
            (None | Some('"'), '\\') => {
                rest.next();
                text.push(*rest.peek()?);
            }
            (None | Some('"'), '$') => {
                rest.next();
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Variable(variable(rest)?));
                continue;
            }
            (_, symbol) => text.push(symbol),
        }
        rest.next();
    }
    if quote.is_some() {
        return None;
    }
    pieces.push(Piece::Text(text));
    Some(pieces)
}

fn variable(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    match rest.peek()? {
        '?' | '$' => rest.next().map(String::from),
        '{' => {
            rest.next();
            let mut name = String::new();
            loop {
                match rest.next()? {
                    '}' => return Some(name),
                    symbol => name.push(symbol),
                }
            }
        }
        _ => {
            let mut name = String::new();
            while let Some(symbol) = rest.next_if(|symbol| symbol.is_ascii_alphanumeric() || *symbol == '_') {
                name.push(symbol);
            }
            if name.is_empty() { None } else { Some(name) }
        }
    }
}
