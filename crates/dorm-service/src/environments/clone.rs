//! Brings the code of a workspace into a sandbox: clones a repository, or copies uploaded files.

use dorm_agent_client::{ExitStatus, Output, Variable};
use dorm_lifecycle::SandboxId;
use dorm_lifecycle::environment::Code as WorkspaceCode;
use dorm_store::Code;
use futures_util::StreamExt as _;
use std::sync::Arc;

use super::attempt::{Maker, Stop};
use super::run::Ended;
use crate::builds::put_context;
use crate::error::{BuildProblem, ServiceError};
use crate::ops::exec::CommandInput;

/// Clones into the working directory. The token is only in the environment of git and its helper:
/// neither a file nor an argument has it.
const CLONE: &str = r#"set -eu
command -v git >/dev/null 2>&1 || { echo "the image has no git" >&2; exit 127; }
if [ -e .git ]; then echo "the directory has a repository already: it is kept as it is"; exit 0; fi
if [ -n "$(ls -A)" ]; then echo "the directory is not empty" >&2; exit 1; fi
git() { command git -c safe.directory='*' -c credential.helper= \
  -c credential.helper='!f() { test "$1" = get && test -n "${DORM_GIT_TOKEN:-}" && printf "username=x-access-token\npassword=%s\n" "$DORM_GIT_TOKEN"; }; f' "$@"; }
depth=${DORM_GIT_DEPTH:+--depth=$DORM_GIT_DEPTH}
case "$DORM_GIT_REF" in
  '') git clone --progress $depth -- "$DORM_GIT_URL" . ;;
  *[!0-9a-f]*) git clone --progress $depth --branch "$DORM_GIT_REF" -- "$DORM_GIT_URL" . ;;
  *) if [ ${#DORM_GIT_REF} -ge 40 ]; then
       git init -q . && git remote add origin "$DORM_GIT_URL"
       git fetch --progress $depth origin "$DORM_GIT_REF" && git checkout -q --detach FETCH_HEAD
     else git clone --progress $depth --branch "$DORM_GIT_REF" -- "$DORM_GIT_URL" .; fi ;;
esac
"#;

/// The longest output of `git rev-parse` that is read.
const COMMIT_BYTES_MAX: usize = 200;

impl Maker {
    /// Clones the repository of the workspace.
    pub(super) async fn clone_code(&mut self, at: usize, sandbox: &SandboxId) -> Result<(), Stop> {
        let Some(WorkspaceCode::Git { url, reference, depth }) = self.record.workspace.code.clone() else {
            return Ok(());
        };
        let mut job = self.job(at, &["/bin/sh", "-c", CLONE], sandbox)?;
        let token =
            match &self.attempt.token {
                Some(sealed) => {
                    let opened = self.service.shared.open_token(sealed);
                    Some(opened.map_err(|error| {
                        Stop::failed(Code::Failed, format!("the token of the clone is lost: {error}"))
                    })?)
                }
                None => None,
            };
        let depth = depth.map(|depth| depth.to_string()).unwrap_or_default();
        let variables = [
            ("DORM_GIT_URL", url.as_str()),
            ("DORM_GIT_REF", reference.as_deref().unwrap_or_default()),
            ("DORM_GIT_DEPTH", &depth),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ALLOW_PROTOCOL", "http:https:ssh:git"),
            // A server that sends nothing for a minute is given up.
            ("GIT_HTTP_LOW_SPEED_LIMIT", "1"),
            ("GIT_HTTP_LOW_SPEED_TIME", "60"),
        ];
        let token_variable = token.as_ref().map(|token| ("DORM_GIT_TOKEN", token.expose()));
        for (name, value) in variables.into_iter().chain(token_variable) {
            let variable = Variable::new(name.to_owned(), value.to_owned());
            job.spec.variables.push(variable.map_err(|_| Stop::failed(Code::InvalidArgument, "the token has a NUL"))?);
        }
        job.hidden.extend(token.map(|token| token.expose().to_owned()));
        let cloned = self.unless(job.run()).await?;
        let is_cloned = matches!(&cloned, Ok(Ended { exit: Some(ExitStatus::Code(0)), .. }));
        if is_cloned {
            let commit = self.unless(self.commit_in(at, sandbox)).await??;
            self.update(|_, attempt| (attempt.commit, attempt.token) = (commit, None)).await?;
        }
        self.ended(at, cloned, "the clone").await
    }

    /// Returns the commit that is checked out.
    async fn commit_in(&self, at: usize, sandbox: &SandboxId) -> Result<Option<String>, Stop> {
        let mut job = self.job(at, &["git", "-c", "safe.directory=*", "rev-parse", "HEAD"], sandbox)?;
        job.spec.label = None;
        let limit = Some(job.limit);
        let asked = async {
            let mut execution = job.service.exec(&job.sandbox, job.spec, CommandInput::Empty, limit).await?;
            let (mut said, mut exit) = (Vec::new(), None);
            while let Some(output) = execution.next().await {
                match output? {
                    Output::Stdout { bytes, .. } if said.len() < COMMIT_BYTES_MAX => said.extend_from_slice(&bytes),
                    Output::Exited(status) => exit = Some(status),
                    _ => {}
                }
            }
            Ok::<_, ServiceError>((said, exit))
        };
        let (said, exit) = match asked.await {
            Ok(answer) => answer,
            // The clone itself is done.
            Err(error) if error.code() == Code::Unavailable => return Ok(None),
            Err(error) => return Err(self.stop(error)),
        };
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        // A guest may say anything.
        let is_commit = [40, 64].contains(&said.len()) && said.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok((exit == Some(ExitStatus::Code(0)) && is_commit).then_some(said))
    }

    /// Copies the uploaded files of the workspace.
    pub(super) async fn copy_upload(&mut self, at: usize, sandbox: &SandboxId) -> Result<(), Stop> {
        let Some(WorkspaceCode::Upload(key)) = self.record.workspace.code.clone() else { return Ok(()) };
        let directory = self.record.workspace.directory.clone();
        let owner = self.record.workspace.user.clone();
        let copied = async {
            let storage = &self.service.shared.storage;
            let context = storage.context(self.service.project(), &key).await?;
            let context = Arc::new(context.ok_or(BuildProblem::NoContext(key))?);
            put_context(&self.service, sandbox, &context, &directory, owner.as_deref()).await
        };
        let copied = self.unless(copied).await?;
        let ended = copied.map(|()| Ended { exit: Some(ExitStatus::Code(0)), timed_out: false, tail: String::new() });
        self.ended(at, ended, "copying").await
    }
}
