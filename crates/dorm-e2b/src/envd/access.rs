//! Who may call the `envd` of a sandbox, and what a call needs to know about it.

use axum::http::header;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use dorm_agent_client::{Account, Agent, AgentError, GuestPath, User};
use dorm_http::{Life, Standing};
use dorm_lifecycle::{Caller, Credential, SandboxId, StateName, Wake};
use dorm_service::{InUse, SandboxView, Service, ServiceError, Use};

use super::connect::json::basic_user;
use super::fault::{Failed, Fault};
use super::path;
use super::signature::{self, Signature};
use crate::control::show;
use crate::door::{DOOR, E2b};
use crate::error::Refusal;
use crate::{ports, tokens};

/// The user of a sandbox whose image names none.
const USER: &str = "user";

/// The credentials that a path needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Needs {
    /// None, as long as the sandbox need not be resumed.
    Nothing,
    /// The access token.
    Token,
    /// The access token, or a signature for this operation.
    TokenOrSignature(signature::Operation),
}

/// A call that was admitted.
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) view: SandboxView,
    pub(crate) life: Life,
    /// The proof of the client: the token, or only the id of the sandbox.
    pub(crate) standing: Standing,
    user: Option<String>,
}

/// A user of a sandbox.
pub(crate) struct Person {
    /// The user, for the agent.
    pub(crate) user: User,
    /// The directory at which relative paths begin; the home directory for `None`.
    directory: Option<String>,
    account: Account,
}

/// Admits a request, or answers it.
pub(crate) async fn admit(
    door: &E2b,
    sandbox: SandboxId,
    (headers, uri): (&HeaderMap, &Uri),
    needs: Needs,
) -> Result<Call, Response> {
    let absent = |error| ports::unreachable(&sandbox, None, error);
    let service = door.access.daemon.of_sandbox(&sandbox).await.map_err(absent)?;
    let view = service.describe(&sandbox).await.map_err(absent)?;
    let state = view.sandbox.state.name();
    let wakes = match state {
        StateName::Terminating | StateName::Terminated => None,
        StateName::Suspended | StateName::Suspending => (view.sandbox.spec.wake == Wake::Any).then_some(true),
        StateName::Pending | StateName::Running | StateName::Snapshotting | StateName::Resuming => Some(false),
    };
    let Some(wakes) = wakes else { return Err(absent(ServiceError::NotRunning { sandbox: sandbox.clone(), state })) };
    match Proof::of(&service, &view, (headers, uri), needs) {
        Ok(Proof::Token) => {
            let caller = Caller { door: DOOR, credential: Credential::PortToken };
            let call = Call::new(door, service.as_caller(Some(caller)), view, headers);
            Ok(Call { standing: Standing::Known, ..call })
        }
        Ok(Proof::NotNeeded) => Ok(Call::new(door, service, view, headers)),
        Ok(Proof::None) if !wakes => Ok(Call::new(door, service, view, headers)),
        Ok(Proof::None) | Err(_) if wakes => {
            let message = "This sandbox can't be resumed with the credentials provided. \
                           Check your access token and try again.";
            Err(Refusal::new(StatusCode::FORBIDDEN, message).into_response())
        }
        Ok(Proof::None) => Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized access").into_response()),
        Err(message) => Err(Refusal::new(StatusCode::UNAUTHORIZED, message).into_response()),
    }
}

/// The proof that a request carries.
enum Proof {
    /// The token, or a signature that was made with it.
    Token,
    /// Nothing, and the sandbox requires nothing.
    NotNeeded,
    /// Nothing, and the path requires nothing.
    None,
}

impl Proof {
    fn of(
        service: &Service,
        view: &SandboxView,
        (headers, uri): (&HeaderMap, &Uri),
        needs: Needs,
    ) -> Result<Self, &'static str> {
        let sandbox = &view.sandbox.id;
        if !show::is_secure(view) {
            return Ok(Self::NotNeeded);
        }
        let presented = headers.get(ports::ACCESS_TOKEN);
        match (needs, presented) {
            (_, Some(token)) if tokens::is_envd(service, sandbox, token.as_bytes()) => Ok(Self::Token),
            (Needs::Nothing, _) => Ok(Self::None),
            (Needs::TokenOrSignature(_), Some(_)) => Err("access token present in header but does not match"),
            (Needs::TokenOrSignature(operation), None) => {
                let signature = Signature::of(uri, operation);
                signature.check(&tokens::envd(service, sandbox)).map(|()| Self::Token)
            }
            (Needs::Token, Some(_)) => Err("unauthorized access, the access token does not match"),
            (Needs::Token, None) => Err("unauthorized access, the header X-Access-Token is missing"),
        }
    }
}

impl Call {
    fn new(door: &E2b, service: Service, view: SandboxView, headers: &HeaderMap) -> Self {
        let user = user_of(headers);
        Self { service, view, life: door.life.clone(), standing: Standing::Visitor, user }
    }

    /// The id of the sandbox.
    pub(crate) fn sandbox(&self) -> &SandboxId {
        &self.view.sandbox.id
    }

    /// The agent of the sandbox, which is resumed if need be.
    pub(crate) async fn agent(&self, what: Use) -> Result<(Agent, InUse), Failed> {
        Ok(self.service.agent(self.sandbox(), what).await?)
    }

    /// The user that the request names in its header, or the default user.
    pub(crate) async fn person(&self, agent: &Agent) -> Result<Person, Failed> {
        self.person_named(agent, self.user.as_deref()).await
    }

    /// A user by name, or the default user: that of the image, `user`, or root.
    pub(crate) async fn person_named(&self, agent: &Agent, name: Option<&str>) -> Result<Person, Failed> {
        let image = self.service.image_config(self.sandbox()).await;
        let directory = image.directory;
        let found = |user: User, account| Person { user, directory: directory.clone(), account };
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let user: User = name.parse().map_err(|_| Fault::no_user(name))?;
            let account = agent.account(&user).await?;
            // A number without an entry in the sandbox's list is no user.
            return account.name.is_some().then(|| found(user, account)).ok_or_else(|| Fault::no_user(name).into());
        }
        if let Some(name) = image.user.filter(|name| !name.is_empty()) {
            let user: User = name.parse().map_err(|_| Fault::no_user(&name))?;
            let account = agent.account(&user).await?;
            return Ok(found(user, account));
        }
        let user = User::Name(USER.to_owned());
        match agent.account(&user).await {
            Ok(account) => Ok(found(user, account)),
            Err(AgentError::NoUser(_)) => {
                let root = User::Id { uid: 0, gid: None };
                let account = agent.account(&root).await?;
                Ok(found(root, account))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The answer when the sandbox cannot be reached. If it is no longer to be reached at all, that
    /// is the reason.
    pub(crate) async fn unreachable(&self, error: ServiceError) -> Response {
        let sandbox = self.sandbox();
        let error = ports::gone(&self.service, sandbox).await.unwrap_or(error);
        ports::unreachable(sandbox, None, error)
    }

    /// The answer to a failed request that is not a Connect call.
    pub(crate) async fn refuse(&self, failed: Failed) -> Response {
        match failed {
            Failed::Refused(fault) => fault.into_http(),
            Failed::Unreachable(error) => self.unreachable(error).await,
        }
    }
}

impl Person {
    /// A path as the client gives it, as an absolute path.
    pub(crate) fn path(&self, given: &str) -> Result<GuestPath, Fault> {
        let home = self.account.home.to_text();
        path::absolute(given, &home, self.directory.as_deref().unwrap_or(&home))
    }
}

/// The user that the header `Authorization` names.
fn user_of(headers: &HeaderMap) -> Option<String> {
    headers.get(header::AUTHORIZATION).and_then(basic_user).filter(|user| !user.is_empty())
}
