//! The error codes: one table with the status and the meaning of each. Responses, the OpenAPI
//! document and `docs/reference/errors.md` are made from it.

use std::fmt::Write as _;

use axum::http::StatusCode;
use dorm_service::Code;

/// A code in the body of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ErrorCode {
    /// A code of the service.
    Service(Code),
    /// No valid credentials.
    Unauthorized,
    /// Valid credentials that do not permit the request.
    Forbidden,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// The request is for a host name that is not served.
    WrongHost,
    /// A program inside a sandbox did not answer with HTTP.
    NoAnswer,
}

impl From<Code> for ErrorCode {
    fn from(code: Code) -> Self {
        Self::Service(code)
    }
}

/// The documentation of a code.
pub(crate) struct Meaning {
    /// The code.
    pub(crate) code: &'static str,
    /// Its HTTP status.
    pub(crate) status: StatusCode,
    /// The code in words.
    pub(crate) title: &'static str,
    /// When it is returned, with other statuses it may have.
    pub(crate) meaning: &'static str,
    /// The next step for the caller.
    pub(crate) next_step: &'static str,
    /// Whether the same request can succeed later.
    pub(crate) retry: &'static str,
}

impl ErrorCode {
    /// Every code, in the order of their statuses.
    pub(crate) const ALL: [Self; 18] = [
        Self::Service(Code::InvalidArgument),
        Self::Unauthorized,
        Self::Forbidden,
        Self::Service(Code::NotFound),
        Self::MethodNotAllowed,
        Self::Service(Code::Conflict),
        Self::Service(Code::Gone),
        Self::WrongHost,
        Self::Service(Code::Failed),
        Self::Service(Code::Damaged),
        Self::Service(Code::Unreadable),
        Self::Service(Code::StoreFailed),
        Self::Service(Code::Internal),
        Self::Service(Code::PortClosed),
        Self::NoAnswer,
        Self::Service(Code::Unavailable),
        Self::Service(Code::TimedOut),
        Self::Service(Code::NoRoom),
    ];

    /// Its documentation.
    #[allow(clippy::too_many_lines, reason = "a table")]
    pub(crate) const fn meaning(self) -> Meaning {
        match self {
            Self::Service(Code::InvalidArgument) => Meaning {
                code: "invalid_argument",
                status: StatusCode::BAD_REQUEST,
                title: "Invalid argument",
                meaning: "A parameter, a header or the body is invalid. The status is 408 for a body that stalls, \
                          413 for one that is too large, 416 for a range that the file does not have, 422 for an \
                          idempotency key that was used for another request, and 426 for a request that should be a \
                          WebSocket upgrade.",
                next_step: "Correct the request; `detail` names the field.",
                retry: "No",
            },
            Self::Unauthorized => Meaning {
                code: "unauthorized",
                status: StatusCode::UNAUTHORIZED,
                title: "Unauthorized",
                meaning: "The request has no valid API key or, for a private port of a sandbox, no valid key, port \
                          token or cookie.",
                next_step: "Send the key as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
                retry: "No",
            },
            Self::Forbidden => Meaning {
                code: "forbidden",
                status: StatusCode::FORBIDDEN,
                title: "Forbidden",
                meaning: "The scope of the API key does not include this request, the request names a path of the \
                          daemon's host over the network, or a browser link has expired.",
                next_step: "Use a key with full access, the socket `api.sock`, or a new link.",
                retry: "No",
            },
            Self::Service(Code::NotFound) => Meaning {
                code: "not_found",
                status: StatusCode::NOT_FOUND,
                title: "Not found",
                meaning: "The object or the route that the request names does not exist.",
                next_step: "List the objects of that kind.",
                retry: "No",
            },
            Self::MethodNotAllowed => Meaning {
                code: "method_not_allowed",
                status: StatusCode::METHOD_NOT_ALLOWED,
                title: "Method not allowed",
                meaning: "The route exists, but not with this method.",
                next_step: "See the OpenAPI document for the methods of the route.",
                retry: "No",
            },
            Self::Service(Code::Conflict) => Meaning {
                code: "conflict",
                status: StatusCode::CONFLICT,
                title: "Conflict",
                meaning: "The request does not fit the current state: a name is taken, an object is in use, or the \
                          sandbox is in a state that does not permit it. The status is 412 if `If-Match` names \
                          another revision than the current one.",
                next_step: "Follow `next_step`; `detail` says what is in the way.",
                retry: "After the state has changed",
            },
            Self::Service(Code::Gone) => Meaning {
                code: "gone",
                status: StatusCode::GONE,
                title: "Gone",
                meaning: "The sandbox is terminated, or the requested events were removed because of their age.",
                next_step: "Create a new sandbox, or start from the oldest event that is kept.",
                retry: "No",
            },
            Self::WrongHost => Meaning {
                code: "wrong_host",
                status: StatusCode::MISDIRECTED_REQUEST,
                title: "Wrong host",
                meaning: "The daemon does not serve the host name of the request. This protects against DNS \
                          rebinding.",
                next_step: "Use `localhost`, an IP address, or a domain given with `dorm serve --domain`.",
                retry: "No",
            },
            Self::Service(Code::Failed) => Meaning {
                code: "failed",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                title: "Operation failed",
                meaning: "The operation was attempted and failed; nothing was lost. The status is 503 if the gateway \
                          could not resume a sandbox for a request to one of its ports.",
                next_step: "Follow `next_step`; `dorm doctor` and the log of the daemon have details.",
                retry: "Yes, it may succeed",
            },
            Self::Service(Code::Damaged) => Meaning {
                code: "damaged",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                title: "Damaged data",
                meaning: "A saved state or an image that this host should have is damaged or missing.",
                next_step: "Use another snapshot, or import the image again; `GET /v1/quarantine` lists the damage.",
                retry: "No",
            },
            Self::Service(Code::Unreadable) => Meaning {
                code: "unreadable",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                title: "Unreadable record",
                meaning: "A record cannot be read. It is kept unchanged, with everything that it may depend on.",
                next_step: "Stop the daemon and run `dorm repair --dry-run`.",
                retry: "No",
            },
            Self::Service(Code::StoreFailed) => Meaning {
                code: "store_failed",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                title: "Store failed",
                meaning: "The database of the daemon failed; nothing was changed.",
                next_step: "See the log of the daemon.",
                retry: "After the cause is removed",
            },
            Self::Service(Code::Internal) => Meaning {
                code: "internal",
                status: StatusCode::INTERNAL_SERVER_ERROR,
                title: "Internal error",
                meaning: "A fault in Dormouse.",
                next_step: "See the log of the daemon, and report it.",
                retry: "No",
            },
            Self::Service(Code::PortClosed) => Meaning {
                code: "port_closed",
                status: StatusCode::BAD_GATEWAY,
                title: "Port closed",
                meaning: "No program listens on this port inside the sandbox.",
                next_step: "Start a program that listens on it, on all addresses or on loopback.",
                retry: "Once a program listens",
            },
            Self::NoAnswer => Meaning {
                code: "no_answer",
                status: StatusCode::BAD_GATEWAY,
                title: "No answer",
                meaning: "The program on this port of the sandbox closed the connection without a valid HTTP \
                          response.",
                next_step: "Check the program and its output.",
                retry: "It may succeed",
            },
            Self::Service(Code::Unavailable) => Meaning {
                code: "unavailable",
                status: StatusCode::SERVICE_UNAVAILABLE,
                title: "Unavailable",
                meaning: "The daemon is stopping, too many connections are open, other requests take all the memory \
                          for bodies or for responses, or the sandbox does not respond at the moment.",
                next_step: "Wait, and try again.",
                retry: "Yes, after the seconds in `Retry-After` if it is sent",
            },
            Self::Service(Code::TimedOut) => Meaning {
                code: "timed_out",
                status: StatusCode::GATEWAY_TIMEOUT,
                title: "Timed out",
                meaning: "The operation took longer than it may.",
                next_step: "Follow `next_step`.",
                retry: "Yes, it may succeed",
            },
            Self::Service(Code::NoRoom) => Meaning {
                code: "no_room",
                status: StatusCode::INSUFFICIENT_STORAGE,
                title: "No room",
                meaning: "A limit is reached: free disk or memory of the host or a volume, a budget of the daemon or \
                          project, a count, or no sandbox of a pool is ready. The status is 503 if the gateway could \
                          not resume a sandbox for a request to one of its ports.",
                next_step: "Follow `next_step`: suspend or terminate sandboxes, delete snapshots and images, or raise \
                            the limit.",
                retry: "After there is room",
            },
        }
    }
}

/// The reference page of the error codes, `docs/reference/errors.md`.
pub fn error_reference() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         Generated from the table of error codes; do not edit.\n\n\
         Every response of the native API that is not a success has a body of the type `application/problem+json` \
         (RFC 9457):\n\n\
         ```json\n\
         {\n  \
           \"type\": \"/errors/not_found\",\n  \
           \"title\": \"Not found\",\n  \
           \"status\": 404,\n  \
           \"detail\": \"there is no sandbox 'agent-7'\",\n  \
           \"code\": \"not_found\",\n  \
           \"next_step\": \"list the existing sandboxes\"\n\
         }\n\
         ```\n\n\
         `code` is what programs should compare; it has the same meaning in every response. `type` is `/errors/` \
         followed by the code: a stable identifier that cannot be fetched. `detail` says what failed and why, and \
         `next_step` what to do about it; it is empty if `detail` says everything. Both are for people and may change. \
         Errors inside a stream and inside other responses have the same members.\n\n\
         | code | status | meaning | what to do | retry |\n\
         |---|---|---|---|---|\n",
    );
    for code in ErrorCode::ALL {
        let Meaning { code, status, meaning, next_step, retry, .. } = code.meaning();
        // Writing to a string does not fail.
        let _ = writeln!(page, "| `{code}` | {} | {meaning} | {next_step} | {retry} |", status.as_u16());
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_code_of_the_service_is_in_the_table_under_its_own_name() {
        let words: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.meaning().code).collect();
        assert_eq!(words.len(), ErrorCode::ALL.len(), "a code is there twice");
        for code in Code::ALL {
            assert!(ErrorCode::ALL.contains(&code.into()), "{}", code.as_str());
            assert_eq!(ErrorCode::from(code).meaning().code, code.as_str());
        }
    }

    #[test]
    fn the_committed_page_is_the_one_of_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors.md");
        let page = error_reference();
        if std::env::var_os("DORM_UPDATE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == page, "docs/reference/errors.md is stale: run this test with DORM_UPDATE=1");
    }
}
