//! Verifies the host key or host certificate of an SSH session, and reports when the session has ended.
//!
//! In: the callbacks of russh. Out: a verdict kept for the caller, because russh itself reports only a refusal; and
//! why the session ended.

use super::known_hosts::{Judgement, Records};
use crate::transport::error::HostError;
use crate::transport::wire::printable;
use russh::client::{DisconnectReason, Handler};
use russh::keys::PublicKeyOrCertificate;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// Verifies the host key.
pub(super) struct HostKeyVerifier {
    pub(super) records: Records,
    pub(super) trust_first_use: bool,
    /// Why the key was rejected.
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
                let message = printable(info.message.as_bytes(), 200);
                (format!("sshd of the host ended it: {message}"), Ok(()))
            }
            DisconnectReason::Error(russh::Error::KeepaliveTimeout) => {
                ("the host stopped answering".to_owned(), Err(russh::Error::KeepaliveTimeout))
            }
            DisconnectReason::Error(russh::Error::Disconnect | russh::Error::HUP) => {
                ("the host closed it".to_owned(), Err(russh::Error::Disconnect))
            }
            DisconnectReason::Error(error) => (error.to_string(), Err(error)),
        };
        self.gone.send_replace(Some(why));
        outcome
    }
}
