//! `dorm ca`: the certificate authority of the daemon's own hosts.

use super::connection::Connection;
use super::output::{self, Format};
use super::problem::Done;
use crate::exit;

/// Options of `dorm ca`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct CaOptions {
    #[command(flatten)]
    connection: Connection,
}

const HELP: &str = "\
The daemon answers HTTPS where it answers HTTP. Its own authority issues a certificate for localhost and for every
host of a port when a client first asks. The certificate of the authority says that it is for those domains only.
It stays the same as long as the key for secrets and the domains of the daemon do.

  dorm ca > dormouse-ca.pem
  curl --cacert dormouse-ca.pem https://8000-ID.localhost:7070/
  export SSL_CERT_FILE=$PWD/dormouse-ca.pem          # Python and OpenSSL: instead of all others
  export NODE_EXTRA_CA_CERTS=$PWD/dormouse-ca.pem    # Node: in addition to its own";

/// Prints the certificate.
pub(crate) async fn run(options: CaOptions) -> Done {
    let authority = options.connection.client()?.authority().await?;
    match options.connection.output {
        Format::Json => output::json(&authority)?,
        Format::Table => output::write(authority.certificate.as_bytes())?,
    }
    Ok(exit::OK)
}
