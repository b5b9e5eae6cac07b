use super::*;

fn plan(text: &str) -> Result<Plan, BuildError> {
    let env = [("PATH".to_owned(), "/usr/bin".to_owned())].into();
    from_dockerfile(text, &BTreeMap::new(), &Kept { env, ..Kept::default() })
}

fn shell(line: &str) -> Step {
    Step::Run(Command::Shell(line.to_owned()))
}

#[test]
fn what_steps_can_express_becomes_steps_with_their_lines() {
    let text = r#"# syntax=docker/dockerfile:1
ARG BASE=python
FROM ${BASE}:3.12
ARG WHO=world
ENV GREETING="hello $WHO" PATH=/opt/bin:$PATH

RUN apt-get update \
    # a comment in between
    && echo "$GREETING \
done"
WORKDIR /srv
COPY requirements.txt src/ app/
USER app:app
RUN ["python3", "-c", "print(1)"]
ENTRYPOINT ["python3"]
CMD serve --port 80
"#;
    let plan = plan(text).unwrap();
    assert_eq!(plan.from, "python:3.12");
    let steps: Vec<_> = plan.steps.iter().map(|placed| (placed.line.unwrap(), placed.step.clone())).collect();
    let argv = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let wanted = [
        (5, Step::Env("GREETING".into(), "hello world".into())),
        (5, Step::Env("PATH".into(), "/opt/bin:/usr/bin".into())),
        (7, shell("apt-get update     && echo \"$GREETING done\"")),
        (11, Step::Workdir("/srv".into())),
        (12, Step::Copy(Copy::new(argv(&["requirements.txt", "src/"]), "app/".into()))),
        (13, Step::User("app:app".into())),
        (14, Step::Run(Command::Argv(argv(&["python3", "-c", "print(1)"])))),
        (15, Step::Entrypoint(argv(&["python3"]))),
        (16, Step::Cmd(argv(&["/bin/sh", "-c", "serve --port 80"]))),
    ];
    for (found, wanted) in steps.iter().zip(&wanted) {
        assert_eq!(found, wanted);
    }
    assert_eq!(steps.len(), wanted.len());
    assert_eq!(plan.steps[2].arguments, [("WHO".to_owned(), "world".to_owned())].into());
}

#[test]
fn everything_else_is_refused_with_its_line() {
    for (text, line, word) in [
        ("", 1, "FROM"),
        ("RUN true\n", 1, "FROM"),
        ("FROM a\nFROM b\n", 2, "one FROM"),
        ("FROM a AS b\nCOPY --from=b /x /y\n", 2, "--from"),
        ("FROM a\nCOPY --chmod=u+x /x /y\n", 2, "octal"),
        ("FROM a\nCOPY --chmod=10000 /x /y\n", 2, "octal"),
        ("FROM a\nCOPY --chown=$NOBODY /x /y\n", 2, "invalid user"),
        ("FROM a\nCOPY --link /x /y\n", 2, "--link"),
        ("FROM a\n\nADD https://example.com/x /x\n", 3, "ADD"),
        ("FROM a\nEXPOSE 80\n", 2, "EXPOSE"),
        ("FROM a\nHEALTHCHECK NONE\n", 2, "HEALTHCHECK"),
        ("FROM a\nLABEL a=b\n", 2, "labels"),
        ("FROM a\nONBUILD RUN x\n", 2, "ONBUILD"),
        ("FROM a\nSHELL [\"bash\"]\n", 2, "SHELL"),
        ("FROM a\nSTOPSIGNAL 9\n", 2, "STOPSIGNAL"),
        ("FROM a\nVOLUME /x\n", 2, "VOLUME"),
        ("FROM a\nRUN --mount=type=cache,target=/x true\n", 2, "--mount"),
        ("FROM --platform=linux/arm64 a\n", 1, "--platform"),
        ("FROM scratch\n", 1, "scratch"),
        ("FROM a\nRUN <<E\ntrue\nE\n", 2, "here-document"),
        ("FROM a\nENV NAME value\n", 2, "NAME=VALUE"),
        ("FROM a\nRUN \\\n  true\nENV X='\n", 4, "missing closing"),
        ("FROM a\nUSER a b\n", 2, "invalid user"),
        ("FROM a\nNONSENSE x\n", 2, ""),
    ] {
        match plan(text) {
            Err(BuildError::Line { line: found, what }) => {
                assert_eq!(found, line, "{text:?}: {what}");
                assert!(what.contains(word), "{text:?}: {what}");
            }
            other => panic!("{text:?} came to {other:?}"),
        }
    }
}

#[test]
fn a_copy_may_name_an_owner_and_a_mode() {
    let text = "FROM a\nARG WHO=app\nCOPY --chown=$WHO:app --chmod=0640 x /y\nCOPY --chown=1000 x /y\n";
    let plan = plan(text).unwrap();
    let copy = |owner: &str, mode| {
        Step::Copy(Copy { owner: Some(owner.into()), mode, ..Copy::new(vec!["x".into()], "/y".into()) })
    };
    assert_eq!(plan.steps[0].step, copy("app:app", Some(0o640)));
    assert_eq!(plan.steps[1].step, copy("1000", None));
}

#[test]
fn arguments_take_the_values_that_are_given_and_must_be_known() {
    let text = "FROM a\nARG ONE=1\nARG TWO\nENV THREE=$ONE$TWO\nRUN x\n";
    let given = |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let plan = from_dockerfile(text, &given(&[("TWO", "b")]), &Kept::default()).unwrap();
    assert_eq!(plan.steps[0].step, Step::Env("THREE".into(), "1b".into()));
    assert_eq!(plan.steps[1].arguments, given(&[("ONE", "1"), ("TWO", "b")]));
    let error = from_dockerfile(text, &given(&[("FOUR", "4")]), &Kept::default()).unwrap_err();
    assert!(error.to_string().contains("ARG FOUR"), "{error}");
}

#[test]
fn a_variable_goes_before_an_argument_of_its_name() {
    let plan = plan("FROM a\nARG X=argument\nENV X=variable\nRUN x\n").unwrap();
    assert!(plan.steps[1].arguments.is_empty());
}
