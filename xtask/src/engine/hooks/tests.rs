//! Where hooks put their lines, and which ones are refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use super::Hooks;

const GO: &str = "\
package mm

func (m *M) first() {
	check()
	if ok {
		same()
	}
}

func (m *M) second() {
	check()
	same()
	same2()
}
";

fn hooks(texts: &[&str]) -> Hooks {
    let mut hooks = Hooks { hooks: Vec::new(), files: BTreeMap::new(), inputs: BTreeMap::new() };
    for (number, text) in texts.iter().enumerate() {
        hooks.add(format!("hooks/{number}.toml"), text.as_bytes().to_vec()).unwrap();
    }
    hooks
}

fn hook(function: &str, anchor: &str, place: &str, lines: &str) -> String {
    format!(
        "[[hook]]\nfile = \"mm.go\"\nfunction = \"{function}\"\nanchor = '''\n{anchor}'''\nplace = \"{place}\"\n\
         lines = '''\n{lines}'''\nwhy = \"a test\"\n"
    )
}

/// The text of the file after the hooks.
fn applied(texts: &[&str]) -> String {
    let mut changed = hooks(texts).apply(|_| Ok(GO.to_owned())).unwrap();
    changed.remove("mm.go").unwrap()
}

fn refused(texts: &[&str]) -> String {
    format!("{:#}", hooks(texts).apply(|_| Ok(GO.to_owned())).expect_err("refused"))
}

#[test]
fn lines_are_put_before_and_after_the_lines_of_the_anchor() {
    let second = "func (m *M) second(";
    let before = applied(&[&hook(second, "heck()", "before", "\tours()\n")]);
    assert_eq!(before, GO.replacen("second() {\n", "second() {\n\tours()\n", 1));
    for anchor in ["\tcheck()\n\tsame()\n", "ck()\n\tsame()"] {
        let after = applied(&[&hook(second, anchor, "after", "\tours()")]);
        assert_eq!(after, GO.replace("\tsame2", "\tours()\n\tsame2"), "{anchor:?}");
    }
}

#[test]
fn replaced_text_need_not_be_a_line() {
    let text = applied(&[&hook("func (m *M) first(", "if ok", "replace", "if ok && ours")]);
    assert_eq!(text, GO.replace("if ok", "if ok && ours"));
}

#[test]
fn without_a_function_the_anchor_is_searched_in_the_whole_file() {
    let text = applied(&[&hook("", "package mm", "after", "\nimport \"ours\"\n")]);
    assert_eq!(text, GO.replace("package mm\n", "package mm\n\nimport \"ours\"\n"));
}

#[test]
fn a_hook_applies_to_the_result_of_those_before_it() {
    let first = hook("func (m *M) first(", "check()", "after", "\tours()\n");
    let second = hook("func (m *M) first(", "ours()", "replace", "theirs()");
    let text = applied(&[&first, &second]);
    assert_eq!(text, GO.replacen("\tcheck()\n", "\tcheck()\n\ttheirs()\n", 1));
}

#[test]
fn an_anchor_that_is_missing_or_not_unique_is_refused_with_all_names() {
    let first = "func (m *M) first(";
    for (function, anchor, reason) in [
        (first, "same2()", "the anchor is missing"),
        ("func (m *M) second(", "same", "the anchor occurs more than once"),
        ("", "check()", "the anchor occurs more than once"),
        (first, "", "the anchor is empty"),
        ("func (m *M) third(", "check()", "the function is missing"),
        ("func (m *M) ", "check()", "the function occurs more than once"),
        ("m *M) first(", "check()", "the function is missing"),
    ] {
        let said = refused(&[&hook(function, anchor, "before", "\tours()\n")]);
        for part in ["hooks/0.toml", "mm.go", function, anchor, reason] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

#[test]
fn a_function_without_an_end_is_refused() {
    let hooks = hooks(&[&hook("func f(", "x", "before", "y")]);
    let error = hooks.apply(|_| Ok("func f() {\n\tx\n".to_owned())).expect_err("refused");
    assert!(format!("{error:#}").contains("the function has no end"), "{error:#}");
}

#[test]
fn a_function_in_a_call_ends_with_the_parenthesis() {
    let go = "var F = sync(func() {\n\tx\n})\n\nfunc other() {\n\tx\n}\n";
    let changed = hooks(&[&hook("var F = ", "x", "after", "\ty\n")]).apply(|_| Ok(go.to_owned())).unwrap();
    assert_eq!(changed["mm.go"], go.replacen("\tx\n", "\tx\n\ty\n", 1));
}

#[test]
fn a_hook_without_a_reason_or_with_an_unknown_field_is_refused() {
    let valid = hook("", "package mm", "after", "x");
    for text in [valid.replace("a test", " "), valid.replace("why", "because"), valid.replace("after", "near")] {
        let mut hooks = hooks(&[]);
        assert!(hooks.add("hooks/x.toml".to_owned(), text.clone().into_bytes()).is_err(), "{text}");
    }
}

#[test]
fn a_directory_without_hooks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Hooks::read(directory.path()).is_err());
    std::fs::create_dir(directory.path().join("hooks")).unwrap();
    let error = Hooks::read(directory.path()).err().expect("refused");
    assert!(error.to_string().starts_with("there are no hooks in "), "{error}");
}

#[test]
fn files_are_found_by_their_paths() {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in
        [("hooks/a.toml", hook("", "package mm", "after", "x")), ("files/pkg/mm/ours.go", "package mm\n".to_owned())]
    {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let hooks = Hooks::read(directory.path()).unwrap();
    let files: Vec<_> = hooks.files().collect();
    assert_eq!(files, [("pkg/mm/ours.go", directory.path().join("files/pkg/mm/ours.go").as_path())]);
    let inputs: Vec<_> = hooks.inputs().map(|(name, _)| name).collect();
    assert_eq!(inputs, ["files/pkg/mm/ours.go", "hooks/a.toml"]);
}
