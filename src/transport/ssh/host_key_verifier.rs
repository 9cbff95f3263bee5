//! The doorman stands at the door of an SSH session: judges the host's key or certificate, and says when the session has ended.
//!
//! In: russh's callbacks. Out: a verdict kept for the caller, who otherwise would only learn "no"; and why the session ended.

use super::known_hosts::{Judgement, Records};
use crate::transport::error::HostError;
use russh::client::{DisconnectReason, Handler};
use russh::keys::PublicKeyOrCertificate;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Judges the host's key.
pub(super) struct HostKeyVerifier {
    pub(super) records: Records,
    pub(super) trust_first_use: bool,
    /// Why the key was turned away.
    pub(super) verdict: Arc<Mutex<Option<HostError>>>,
    /// Why the session ended, once it has.
    pub(super) gone: watch::Sender<Option<String>>,
}

impl HostKeyVerifier {
    fn judge(&self, presented: &PublicKeyOrCertificate) -> Result<(), HostError> {
        let key = presented.public_key();
        let judged = match presented.certificate() {
            Some(certificate) => self.records.judge_certificate(certificate, super::certificate::now()),
            None => self.records.judge(&key, self.trust_first_use),
        };
        match judged? {
            Judgement::Known => Ok(()),
            Judgement::FirstMeeting => self.records.record(&key),
        }
    }
}

impl Handler for HostKeyVerifier {
    type Error = russh::Error;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        match self.judge(presented) {
            Ok(()) => Ok(true),
            Err(error) => {
                *self.verdict.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                Ok(false)
            }
        }
    }

    async fn disconnected(&mut self, reason: DisconnectReason<russh::Error>) -> Result<(), russh::Error> {
        let (why, outcome) = match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let message = crate::transport::wire::printable(info.message.as_bytes(), 200);
                (format!("the host's sshd ended it: {message}"), Ok(()))
            }
            DisconnectReason::Error(russh::Error::KeepaliveTimeout) => {
                ("the host stopped answering".to_owned(), Err(russh::Error::KeepaliveTimeout))
            }
            DisconnectReason::Error(russh::Error::Disconnect | russh::Error::HUP) => {
                ("the host's end was closed".to_owned(), Err(russh::Error::Disconnect))
            }
            DisconnectReason::Error(error) => (error.to_string(), Err(error)),
        };
        self.gone.send_replace(Some(why));
        outcome
    }
}
