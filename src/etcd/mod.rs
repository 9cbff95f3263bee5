//! Operations on one etcd member: its own report, the content of its files without it, and membership changes through
//! it.
//!
//! In: the access to the member ([`Access`]) and a timeout. Out: an [`EtcdView`], a hash, a completed change, or an
//! [`EtcdError`]. Every call has a deadline: a member without quorum accepts connections and never answers. Members
//! are named by peer URL; ids are looked up just before they are used and never stored.

mod alarms;
mod change;
pub mod disk;
mod positions;
mod room;
mod snapshot;
mod view;

pub use alarms::{Alarm, alarms};
pub use change::change;
pub use positions::{Known, Reporter, Witness, witness};
pub use room::{disarm_nospace, make_room};
pub use snapshot::snapshot;
pub use view::{Election, hash, holds_quorum, raw, view};

use crate::model::causes::causes;
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use std::error::Error as _;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// The access to a member: its client URL, and certificates in PEM.
pub struct Access {
    /// Client URL, `https://127.0.0.1:2379`.
    pub url: String,
    /// The CA of its server certificate.
    pub ca: Vec<u8>,
    /// Our certificate.
    pub cert: Vec<u8>,
    /// Our key.
    pub key: Zeroizing<Vec<u8>>,
}

/// Why an operation on a member failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The URL is not one of a client port.
    #[error("{0:?} is not an etcd client URL such as https://127.0.0.1:2379")]
    Url(String),
    /// Nothing listens there.
    #[error("nothing answers at {address}: {why}")]
    NotListening {
        /// Host and port.
        address: String,
        /// Whether the host itself refused; else it is unreachable.
        refused: bool,
        /// The error of the operating system.
        why: String,
    },
    /// The member was reached, or at least its port, and did not answer in time.
    #[error("etcd did not answer within {within_ms} ms when asked to {doing}{}", if *doing == "read with quorum" { ": most likely it has no quorum" } else { "" })]
    Silent {
        /// The request.
        doing: &'static str,
        /// The timeout, milliseconds.
        within_ms: u128,
    },
    /// The member knows no leader, so that it can neither read with a quorum nor write.
    #[error("etcd has no leader: it has no quorum, or is just electing one")]
    Leaderless,
    /// The member refused.
    #[error("etcd refused to {doing}: {message}")]
    Refused {
        /// The request.
        doing: &'static str,
        /// Its error.
        message: String,
    },
    /// The connection failed, certificates included.
    #[error("could not {doing}: {message}")]
    Transport {
        /// The operation.
        doing: &'static str,
        /// The whole chain of causes.
        message: String,
    },
    /// The member list does not have the member.
    #[error("the member list has no member at {peer}")]
    NoSuchMember {
        /// Its peer URL.
        peer: String,
    },
    /// The member does not have the expected state.
    #[error("{peer} {what}")]
    Unfit {
        /// Its peer URL.
        peer: String,
        /// The unexpected state.
        what: &'static str,
    },
}

/// An open connection to one member.
pub(crate) struct Link(Client);

impl Access {
    /// Connects: fails at once if nothing listens.
    pub(crate) async fn connect(&self, within: Duration) -> Result<Link, EtcdError> {
        let bad = || EtcdError::Url(self.url.clone());
        let address = self.url.split_once("://").ok_or_else(bad)?.1.trim_end_matches('/');
        let silent = |_| EtcdError::Silent { doing: "accept a connection", within_ms: within.as_millis() };
        let probe = timeout(within, TcpStream::connect(address)).await.map_err(silent)?;
        probe.map_err(|e| EtcdError::NotListening {
            address: address.to_owned(),
            refused: e.kind() == std::io::ErrorKind::ConnectionRefused,
            why: e.to_string(),
        })?;
        let tls = TlsOptions::new()
            .ca_certificate(Certificate::from_pem(&self.ca))
            .identity(Identity::from_pem(&self.cert, self.key.as_slice()));
        let mut options = ConnectOptions::new().with_connect_timeout(within);
        if self.url.starts_with("https://") {
            options = options.with_tls(tls);
        }
        let client = ask("set up a connection", within, Client::connect([&self.url], Some(options))).await?;
        Ok(Link(client))
    }
}

/// One call with a deadline, and the message of its failure.
async fn ask<T>(
    doing: &'static str,
    within: Duration,
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T, EtcdError> {
    match timeout(within, call).await {
        Err(_) => Err(EtcdError::Silent { doing, within_ms: within.as_millis() }),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(etcd_client::Error::GRpcStatus(status))) => match status.source() {
            None => Err(EtcdError::Refused { doing, message: status.message().to_owned() }),
            // A status created here from a failed connection; the cause is further down its chain.
            Some(cause) => Err(EtcdError::Transport { doing, message: causes(cause) }),
        },
        Ok(Err(etcd_client::Error::TransportError(error))) => {
            Err(EtcdError::Transport { doing, message: causes(&error) })
        }
        Ok(Err(error)) => Err(EtcdError::Transport { doing, message: error.to_string() }),
    }
}
