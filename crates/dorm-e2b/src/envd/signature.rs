//! Signatures in URLs of files, which admit a request without a token.

use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::text::parameter;

const VERSION: &str = "v1_";
const MISSING: &str = "missing signature query parameter";
pub(crate) const INVALID: &str = "invalid signature";
const EXPIRED: &str = "signature is already expired";

/// The operation that a signature permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Read,
    Write,
}

impl Operation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The signature of a request, and what it is for.
pub(crate) struct Signature {
    operation: Operation,
    path: String,
    user: String,
    expires: Option<String>,
    presented: Option<String>,
}

impl Signature {
    /// Reads the query of a request. A parameter that is not UTF-8 makes any signature invalid.
    pub(crate) fn of(uri: &Uri, operation: Operation) -> Self {
        let text = |name| parameter(uri, name).unwrap_or_else(|_| Some("\0".to_owned()));
        Self {
            operation,
            path: text("path").unwrap_or_default(),
            user: text("username").unwrap_or_default(),
            expires: text("signature_expiration").filter(|text| !text.is_empty()),
            presented: text("signature").filter(|text| !text.is_empty()),
        }
    }

    /// Checks the signature against the token of a sandbox.
    pub(crate) fn check(&self, token: &str) -> Result<(), &'static str> {
        self.check_at(token, Timestamp::now().as_second())
    }

    fn check_at(&self, token: &str, now: i64) -> Result<(), &'static str> {
        if self.presented.is_none() {
            return Err(MISSING);
        }
        if !self.is_made_with(token) {
            return Err(INVALID);
        }
        match self.expires.as_deref().map(str::parse::<i64>) {
            None => Ok(()),
            Some(Ok(expires)) if expires >= now => Ok(()),
            Some(Ok(_)) => Err(EXPIRED),
            Some(Err(_)) => Err(INVALID),
        }
    }

    /// Whether the signature was made with this token, expired or not.
    pub(crate) fn is_made_with(&self, token: &str) -> bool {
        let presented = self.presented.as_deref().unwrap_or_default();
        self.made_with(token).as_bytes().ct_eq(presented.as_bytes()).into()
    }

    fn made_with(&self, token: &str) -> String {
        let Self { operation, path, user, expires, presented: _ } = self;
        let mut signed = format!("{path}:{}:{user}:{token}", operation.as_str());
        if let Some(expires) = expires {
            signed.push(':');
            signed.push_str(expires);
        }
        format!("{VERSION}{}", STANDARD_NO_PAD.encode(Sha256::digest(signed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
    const SIGNED: &str =
        "/files?path=hello.txt&username=user&signature=v1_gUtH%2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";

    fn signature(uri: &str, operation: Operation) -> Signature {
        Signature::of(&uri.parse().unwrap(), operation)
    }

    #[test]
    fn a_signature_is_for_one_operation_path_user_and_token() {
        assert_eq!(signature(SIGNED, Operation::Read).check(TOKEN), Ok(()));
        assert_eq!(signature(SIGNED, Operation::Write).check(TOKEN), Err(INVALID));
        assert_eq!(signature(SIGNED, Operation::Read).check("other"), Err(INVALID));
        for other in [SIGNED.replace("hello", "hallo"), SIGNED.replace("=user", "=root"), SIGNED.replace("=user", "=")]
        {
            assert_eq!(signature(&other, Operation::Read).check(TOKEN), Err(INVALID), "{other}");
        }
        assert_eq!(signature("/files?path=hello.txt", Operation::Read).check(TOKEN), Err(MISSING));
    }

    #[test]
    fn a_signature_expires() {
        let mut signed = signature("/files?path=a&signature_expiration=100&signature=x", Operation::Write);
        assert_eq!(signed.check_at(TOKEN, 99), Err(INVALID));
        signed.presented = Some(signed.made_with(TOKEN));
        assert_eq!(signed.check_at(TOKEN, 100), Ok(()));
        assert_eq!(signed.check_at(TOKEN, 101), Err(EXPIRED));
        signed.expires = None;
        assert_eq!(signed.check_at(TOKEN, 99), Err(INVALID), "the time is signed");
    }
}
