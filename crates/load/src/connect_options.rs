//! How to connect to a target.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use net::tls::ClientTls;
use rustls_pki_types::ServerName;

use crate::error::Error;
use crate::load_protocol::LoadProtocol;
use crate::target::Target;

/// Connection settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct ConnectOptions {
    pub(crate) protocol: Arc<dyn LoadProtocol>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
}

impl ConnectOptions {
    /// Resolves the host of a target, and reads the files of TLS.
    pub(crate) fn resolve(target: &Target, client: &ClientTls) -> Result<ConnectOptions, Error> {
        let (host, port) = (&target.host, target.port);
        let unknown = |error: String| Error::Resolve { host: host.clone(), error };
        let found =
            (host.as_str(), port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
        let addresses: Vec<SocketAddr> = found.collect();
        // Like other clients: the address family that the system prefers.
        let first = addresses.first().ok_or_else(|| unknown("no addresses".to_owned()))?.is_ipv4();
        let addresses = addresses.into_iter().filter(|one| one.is_ipv4() == first).collect();
        let tls = match target.is_tls {
            false => None,
            true => {
                let mut config = match target.is_verified {
                    true => client.config()?,
                    false if client.ca.is_some() => {
                        let message = "sslmode=require does not verify the server certificate, so \
                                       a CA has no effect; use sslmode=verify-full";
                        return Err(Error::InvalidSettings(message.to_owned()));
                    }
                    false => client.unverified_config()?,
                };
                config.alpn_protocols =
                    target.protocol.alpn().map(<[u8]>::to_vec).into_iter().collect();
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|error| Error::ServerName {
                    host: host.clone(),
                    cause: error.to_string(),
                })?;
                Some((Arc::new(config), name))
            }
        };
        Ok(ConnectOptions { protocol: Arc::clone(&target.protocol), addresses, tls })
    }
}
