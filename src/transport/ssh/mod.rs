//! One SSH connection to a host, which carries many channels.
//!
//! In: the address and the credentials. Out: [`Session`]: programs started on the host ([`Session::exec`]),
//! connections made from it ([`Session::tunnel`]), and why it ended. Every wait on the network has a deadline, here
//! or in the kernel (unacknowledged data) or in russh (keepalives).

mod auth;
pub(super) mod bootstrap;
mod certificate;
mod dial;
mod forward;
mod host_key_verifier;
mod identity;
mod jump;
mod known_hosts;
mod root;
mod rsa;

pub use forward::Forward;
pub(super) use jump::Jumps;
pub(super) use root::Passwords;
pub use root::usable as usable_password;

use super::access::Access;
use super::counters::{Counted, Counters, Paced};
use super::error::{Barrier, HostError};
use super::wire::{Exit, ExitReport, Wire, intake};
use crate::model::desired::SshTarget;
use host_key_verifier::HostKeyVerifier;
use known_hosts::Records;
use russh::client::{self, Handle, Msg};
use russh::keys::Algorithm;
use russh::{
    Channel, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf, Disconnect, Preferred, cipher,
};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::bytes::Bytes;

/// A host that answers none of three of these is gone.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long an orderly disconnect may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// One SSH connection to a host.
pub(crate) struct Session {
    handle: Handle<HostKeyVerifier>,
    gone: watch::Receiver<Option<String>>,
    counters: Arc<Counters>,
    timeout: Duration,
    /// The host, `user@host:port`.
    place: String,
    /// The connection to the jump host, if there is one.
    _by: Option<Arc<Session>>,
}

impl Session {
    /// Connects, verifies the host key, logs in.
    pub(super) async fn open(target: &SshTarget, access: &Access, counters: Arc<Counters>) -> Result<Self, HostError> {
        let records = Records::of(target, &record_files(target, access))?;
        let by = access.jumps.through(&target.jump, access).await?;
        let types = records.types();
        // Only the fingerprint of a pinned key is known: the host is asked for each key type in turn.
        let queries: Vec<&[Algorithm]> = if records.is_pinned() { types.chunks(1).collect() } else { vec![&types[..]] };
        let mut first_error = None;
        for ask in queries {
            match Self::shake_hands(target, access, &counters, by.clone(), &records, ask).await {
                Ok(mut session) => {
                    auth::log_in(&mut session.handle, target, access).await.map_err(|error| session.explain(error))?;
                    return Ok(session);
                }
                Err(Attempt::NoSuchType(error)) => drop(first_error.get_or_insert(error)),
                Err(Attempt::Failed(error @ HostError::KeyChanged { .. })) if records.is_pinned() => {
                    // A changed key explains more than a missing key type.
                    if !matches!(first_error, Some(HostError::KeyChanged { .. })) {
                        first_error = Some(error);
                    }
                }
                Err(Attempt::Failed(error)) => return Err(error),
            }
        }
        Err(first_error.expect("at least one key type is asked for"))
    }

    async fn shake_hands(
        target: &SshTarget,
        access: &Access,
        counters: &Arc<Counters>,
        by: Option<Arc<Session>>,
        records: &Records,
        types: &[Algorithm],
    ) -> Result<Self, Attempt> {
        let timeout = access.connect_timeout;
        let address = target.address();
        let stream = dial::dial(target, by.as_deref(), access.dial_timeout()).await.map_err(Attempt::Failed)?;
        counters.connection();
        let stream = Counted::new(stream, counters.clone());
        let verdict = Arc::new(Mutex::new(None));
        let (going, gone) = watch::channel(None);
        let doorman = HostKeyVerifier {
            records: records.clone(),
            trust_first_use: access.trust_first_use,
            verdict: verdict.clone(),
            gone: going,
        };
        let shaken = tokio::time::timeout(
            timeout,
            client::connect_stream(Arc::new(config(types, records.certificate_types())), stream, doorman),
        )
        .await;
        if let Some(verdict) = verdict.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(Attempt::Failed(verdict));
        }
        let handshake = |why: String| HostError::Handshake { address: address.clone(), why };
        match shaken {
            Ok(Ok(handle)) => {
                Ok(Self { handle, gone, counters: counters.clone(), timeout, place: target.place(), _by: by })
            }
            Ok(Err(russh::Error::NoCommonAlgo { kind, ours, theirs })) => {
                let error = handshake(format!(
                    "it offers no {kind:?} that hactl supports ({}), but {}",
                    ours.join(" "),
                    theirs.join(" ")
                ));
                let no_such_type = matches!(kind, russh::AlgorithmKind::Key);
                Err(if no_such_type { Attempt::NoSuchType(error) } else { Attempt::Failed(error) })
            }
            Ok(Err(russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_))) => {
                Err(Attempt::Failed(HostError::Unreachable { address, barrier: Barrier::HungUp, said: String::new() }))
            }
            Ok(Err(error)) => Err(Attempt::Failed(handshake(error.to_string()))),
            Err(_) => Err(Attempt::Failed(handshake(format!(
                "no key exchange within {timeout:?}; check that it is an SSH server"
            )))),
        }
    }

    /// Why the session ended; `None` while it lives.
    pub(super) fn gone(&self) -> Option<String> {
        let why = self.gone.borrow().clone();
        why.or_else(|| self.handle.is_closed().then(|| "the connection was closed".to_owned()))
    }

    /// Adds why an agent session or login failed, if the whole connection ended.
    pub(super) fn explain(&self, error: HostError) -> HostError {
        match (error, self.gone()) {
            (HostError::Lost { .. }, Some(why)) => HostError::Lost { why },
            (error, _) => error,
        }
    }

    fn lost(&self, otherwise: &str) -> HostError {
        HostError::Lost { why: self.gone().unwrap_or_else(|| otherwise.to_owned()) }
    }

    /// Starts a program on the host. The command must be constant except for hexadecimal digits: it passes through a
    /// shell.
    pub(super) async fn exec(&self, command: &str) -> Result<Wire, HostError> {
        let starting = async {
            let channel = match self.handle.channel_open_session().await {
                // sshd counts a session that has just ended until its next loop; after an echo it has completed one.
                Err(russh::Error::ChannelOpenFailure(_)) => {
                    self.handle.send_ping().await?;
                    self.handle.channel_open_session().await?
                }
                opened => opened?,
            };
            let (reader, writer) = channel.split();
            let hangup = Hangup(Some(writer));
            hangup.exec(command).await?;
            Ok::<_, russh::Error>((reader, hangup))
        };
        let (reader, hangup) = match tokio::time::timeout(self.timeout, starting).await {
            Ok(Ok(started)) => started,
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => return Err(HostError::NoMoreSessions),
            Ok(Err(error)) => return Err(self.lost(&error.to_string())),
            Err(_) => {
                return Err(HostError::too_slow("starting a program", self.timeout, ""));
            }
        };
        self.counters.exec();
        let writer = Box::new(Paced::new(hangup.writer().make_writer(), self.counters.clone()));
        let (to, intake) = intake();
        let exit_report = ExitReport::default();
        tokio::spawn(pump(reader, hangup, to, exit_report.clone()));
        Ok(Wire { reader: Box::new(intake), writer, exit_report })
    }

    /// Opens a connection from the host to an address.
    async fn tunnel(&self, host: &str, port: u16) -> Result<Channel<Msg>, HostError> {
        let unreachable = |barrier| HostError::Unreachable {
            address: format!("{host}:{port}"),
            barrier,
            said: "seen from the host".to_owned(),
        };
        let opening = self.handle.channel_open_direct_tcpip(host, u32::from(port), "127.0.0.1", 0);
        match tokio::time::timeout(self.timeout, opening).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited))) => {
                Err(HostError::ForwardingForbidden)
            }
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => Err(unreachable(Barrier::Refused)),
            Ok(Err(error)) => Err(self.lost(&error.to_string())),
            Err(_) => Err(unreachable(Barrier::TimedOut)),
        }
    }

    /// Disconnects, and waits briefly until the host has noticed.
    pub(super) async fn close(&self) {
        let mut gone = self.gone.clone();
        let parting = async {
            if self.handle.disconnect(Disconnect::ByApplication, "done", "en").await.is_ok() {
                // An error means that the verifier is gone, and the session with it.
                let _ = gone.wait_for(Option::is_some).await;
            }
        };
        // A host that does not answer is left anyway: dropping the session closes the connection.
        let _ = tokio::time::timeout(GOODBYE, parting).await;
    }
}

enum Attempt {
    /// The host has no key of the type that was asked for.
    NoSuchType(HostError),
    Failed(HostError),
}

fn record_files(target: &SshTarget, access: &Access) -> Vec<PathBuf> {
    if target.known_hosts.is_empty() {
        let own = access.ssh_dir.iter().map(|folder| folder.join("known_hosts"));
        own.chain([PathBuf::from("/etc/ssh/ssh_known_hosts")]).collect()
    } else {
        target.known_hosts.iter().map(|file| identity::expanded(file)).collect()
    }
}

fn config(types: &[Algorithm], certificates: &'static [Algorithm]) -> client::Config {
    client::Config {
        preferred: Preferred {
            key: Cow::Owned(types.to_vec()),
            // Requested only where a CA is on record: a certificate that cannot be verified is worth less than a key.
            host_key_certificates: Cow::Borrowed(certificates),
            // Processors do AES-GCM several times faster than any other cipher.
            cipher: Cow::Borrowed(&[
                cipher::AES_128_GCM,
                cipher::AES_256_GCM,
                cipher::CHACHA20_POLY1305,
                cipher::AES_256_CTR,
                cipher::AES_128_CTR,
            ]),
            compression: Cow::Borrowed(&[russh::compression::NONE]),
            ..Preferred::DEFAULT
        },
        window_size: 4 << 20,
        maximum_packet_size: 64 << 10,
        channel_buffer_size: 256,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: 3,
        nodelay: true,
        ..client::Config::default()
    }
}

/// The writing half of a channel. It closes the channel when it is dropped; that of russh does not, and the process
/// would stay.
struct Hangup(Option<ChannelWriteHalf<Msg>>);

impl Hangup {
    fn writer(&self) -> &ChannelWriteHalf<Msg> {
        self.0.as_ref().expect("taken only when dropped")
    }
    async fn exec(&self, command: &str) -> Result<(), russh::Error> {
        self.writer().exec(true, command).await
    }
}

impl Drop for Hangup {
    fn drop(&mut self) {
        // Without a runtime the connection is ending as well.
        if let (Some(writer), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // An error means that the connection is closed already, and the channel with it.
                let _ = writer.close().await;
            });
        }
    }
}

/// Moves the output of a program into its wire, until either end closes.
async fn pump(mut channel: ChannelReadHalf, hangup: Hangup, to: mpsc::Sender<Bytes>, exit_report: ExitReport) {
    loop {
        let message = tokio::select! {
            message = channel.wait() => message,
            () = to.closed() => break,
        };
        match message {
            Some(ChannelMsg::Data { data }) => {
                if to.send(data).await.is_err() {
                    break;
                }
            }
            Some(ChannelMsg::ExtendedData { data, .. }) => exit_report.stderr(&data),
            Some(ChannelMsg::ExitStatus { exit_status }) => {
                exit_report.exit(Exit::Code(i32::try_from(exit_status).unwrap_or(i32::MAX)));
            }
            Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                exit_report.exit(Exit::Signal(format!("{signal_name:?}")));
            }
            Some(ChannelMsg::Failure) => {
                exit_report.stderr(b"sshd of the host does not allow programs");
                exit_report.exit(Exit::Code(255));
                break;
            }
            Some(ChannelMsg::Close) | None => break,
            Some(_) => {}
        }
    }
    drop(hangup);
}

#[cfg(test)]
mod tests;
