//! Creates the namespaces of a lease and the links between them: see the picture in the crate's
//! documentation.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;

use dorm_engine::LeaseId;

use crate::layout::{
    GATEWAY, GATEWAY_MAC, INNER_INTERFACE, Layout, PREFIX_LENGTH, SANDBOX, SANDBOX_INTERFACE, SANDBOX_MAC,
    UPLINK_GATEWAY_MAC, UPLINK_HOST_MAC, UPLINK_INTERFACE, path,
};
use crate::links::{End, LinkError, Links};
use crate::namespace;

/// Why something of a lease could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WiringError {
    /// A namespace could not be created or used.
    #[error("cannot use network namespace {0}")]
    Namespace(String, #[source] io::Error),
    /// The kernel refused a change of links.
    #[error(transparent)]
    Links(#[from] LinkError),
}

/// Creates the namespaces and the link between host and gateway, in the host's namespace.
pub(crate) fn host(layout: &Layout, id: LeaseId, mtu: u16) -> Result<(), WiringError> {
    let gateway = layout.gateway_namespace(id);
    for name in [&layout.sandbox_namespace(id), &gateway] {
        namespace::create(&path(name)).map_err(|source| WiringError::Namespace(name.clone(), source))?;
    }
    let uplink = layout.uplink(id);
    let end = End { name: &uplink, mac: UPLINK_HOST_MAC, mtu: Some(mtu) };
    let peer = End { name: UPLINK_INTERFACE, mac: UPLINK_GATEWAY_MAC, mtu: Some(mtu) };
    let mut links = Links::open()?;
    links.add_pair(end, peer, Some(opened(&gateway)?.as_fd()))?;
    links.set_no_own_address(&uplink)?;
    links.add_address(&uplink, layout.uplink_host(id), PREFIX_LENGTH)?;
    links.set_up(&uplink)?;
    Ok(links.set_neighbour(&uplink, layout.uplink_gateway(id), UPLINK_GATEWAY_MAC)?)
}

/// Creates the link to the sandbox and configures the gateway's ends, in the gateway's namespace.
pub(crate) fn gateway(layout: &Layout, id: LeaseId) -> Result<(), WiringError> {
    let end = End { name: INNER_INTERFACE, mac: GATEWAY_MAC, mtu: None };
    let peer = End { name: SANDBOX_INTERFACE, mac: SANDBOX_MAC, mtu: None };
    let mut links = Links::open()?;
    links.add_pair(end, peer, Some(opened(&layout.sandbox_namespace(id))?.as_fd()))?;
    links.add_address(INNER_INTERFACE, GATEWAY, PREFIX_LENGTH)?;
    links.set_up(INNER_INTERFACE)?;
    links.set_neighbour(INNER_INTERFACE, SANDBOX, SANDBOX_MAC)?;
    links.add_address(UPLINK_INTERFACE, layout.uplink_gateway(id), PREFIX_LENGTH)?;
    links.set_up(UPLINK_INTERFACE)?;
    links.set_neighbour(UPLINK_INTERFACE, layout.uplink_host(id), UPLINK_HOST_MAC)?;
    Ok(links.add_default_route(layout.uplink_host(id))?)
}

/// Configures the sandbox's end, in the sandbox's namespace.
pub(crate) fn sandbox() -> Result<(), LinkError> {
    let mut links = Links::open()?;
    links.set_up("lo")?;
    links.add_address(SANDBOX_INTERFACE, SANDBOX, PREFIX_LENGTH)?;
    links.set_up(SANDBOX_INTERFACE)?;
    links.add_default_route(GATEWAY)
}

fn opened(namespace: &str) -> Result<File, WiringError> {
    File::open(path(namespace)).map_err(|source| WiringError::Namespace(namespace.to_owned(), source))
}
