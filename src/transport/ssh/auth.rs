//! SSH login: an identity file, else those of OpenSSH's configuration, else the SSH agent, else the default files.
//!
//! In: an SSH session after its key exchange. Out: a session after its login, or the keys that were tried and the
//! methods that the host accepts. A certificate for a key is offered before the key itself. RSA never signs with
//! SHA-1.

use super::certificate::{now, worth_showing};
use super::host_key_verifier::HostKeyVerifier;
use super::identity::{Identity, Key, expanded, read};
use super::known_hosts::describe;
use crate::model::desired::{Agent, SshTarget};
use crate::transport::access::Access;
use crate::transport::error::{HostError, LOGGING_IN};
use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, Certificate, HashAlg, PrivateKeyWithHashAlg, PublicKey};
use russh::{AgentAuthError, MethodKind, Signer};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// A signature may wait for a touch on a hardware key.
const SIGNING: Duration = Duration::from_secs(60);
/// The files tried when none is named.
const USUAL: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

struct Login<'a> {
    handle: &'a mut Handle<HostKeyVerifier>,
    target: &'a SshTarget,
    timeout: Duration,
    /// The agent, connected when it is first needed.
    socket: Option<PathBuf>,
    tried: Vec<String>,
    accepted: Vec<String>,
}

/// The result of an attempt.
enum Door {
    Open,
    Shut,
    /// No further attempt can succeed.
    Bolted,
}

/// Signs with a key that the agent holds, also for a certificate that it does not hold.
struct ByKey<'a>(&'a mut AgentClient<UnixStream>);

impl Signer for ByKey<'_> {
    type Error = AgentAuthError;

    async fn auth_sign(
        &mut self,
        identity: &AgentIdentity,
        hash: Option<HashAlg>,
        to_sign: Vec<u8>,
    ) -> Result<Vec<u8>, AgentAuthError> {
        let key = AgentIdentity::from(identity.public_key().into_owned());
        Ok(self.0.sign_request(&key, hash, to_sign).await?)
    }
}

/// Logs in.
pub(super) async fn log_in(
    handle: &mut Handle<HostKeyVerifier>,
    target: &SshTarget,
    access: &Access,
) -> Result<(), HostError> {
    let socket = match &target.agent {
        Agent::Environment => access.agent.clone(),
        Agent::At(socket) => Some(expanded(socket)),
        Agent::None => None,
    };
    let timeout = access.connect_timeout;
    let mut login = Login { handle, target, timeout, socket, tried: Vec::new(), accepted: Vec::new() };
    let door = match &target.identity {
        Some(path) => login.named(path).await?,
        None if target.identities.is_empty() => login.usual(access.ssh_dir.as_deref()).await?,
        None => login.listed().await?,
    };
    match door {
        Door::Open => Ok(()),
        Door::Shut | Door::Bolted => Err(HostError::AuthFailed {
            address: target.address(),
            user: target.user.clone(),
            tried: login.tried,
            accepted: login.accepted,
        }),
    }
}

impl Login<'_> {
    /// The one identity that the inventory names.
    async fn named(&mut self, path: &Path) -> Result<Door, HostError> {
        let unusable = |why: String| HostError::IdentityUnreadable { path: path.to_owned(), why };
        match read(path).map_err(unusable)? {
            Identity::Key(key) => self.with_key(path, *key).await,
            Identity::AgentOnly(key, why) => {
                let advice = format!(
                    "{why}: add it to the SSH agent (ssh-add {}), and hactl uses it from there",
                    path.display()
                );
                let Some((mut agent, held)) = self.agent().await? else { return Err(unusable(advice)) };
                match self.held(&mut agent, &held, path, &key).await? {
                    Some(door) => Ok(door),
                    None => Err(unusable(advice)),
                }
            }
        }
    }

    /// The identities of OpenSSH's configuration that exist; then, unless it says otherwise, the other keys of the
    /// agent.
    async fn listed(&mut self) -> Result<Door, HostError> {
        let mut agent = self.willing_agent().await;
        let mut offered = Vec::new();
        for path in self.target.identities.clone() {
            let path = expanded(&path);
            let door = match read(&path) {
                Ok(Identity::Key(key)) => {
                    offered.push(key.public().key_data().clone());
                    self.with_key(&path, *key).await?
                }
                Ok(Identity::AgentOnly(key, why)) => {
                    offered.push(key.key_data().clone());
                    let door = match &mut agent {
                        Some((agent, held)) => self.held(agent, held, &path, &key).await?,
                        None => None,
                    };
                    door.unwrap_or_else(|| self.agent_only(&path, why))
                }
                Err(why) => self.unusable(&path, &why),
            };
            if !matches!(door, Door::Shut) {
                return Ok(door);
            }
        }
        if let (Some((agent, held)), false) = (&mut agent, self.target.identities_only) {
            for identity in held.iter().filter(|held| !offered.contains(held.public_key().key_data())) {
                match self.with_agent(agent, identity, &[]).await? {
                    Door::Shut => {}
                    door => return Ok(door),
                }
            }
        }
        Ok(Door::Shut)
    }

    /// The keys of the agent, then the default files.
    async fn usual(&mut self, folder: Option<&Path>) -> Result<Door, HostError> {
        let mut silent_agent = None;
        let mut offered = Vec::new();
        match self.agent().await {
            Ok(Some((mut agent, held))) if !self.target.identities_only => {
                for identity in &held {
                    offered.push(identity.public_key().key_data().clone());
                    match self.with_agent(&mut agent, identity, &[]).await? {
                        Door::Shut => {}
                        door => return Ok(door),
                    }
                }
            }
            Ok(_) => {}
            Err(error) => {
                self.tried.push(format!("{error}"));
                silent_agent = Some(error);
            }
        }
        let mut files = 0;
        for path in folder.into_iter().flat_map(|folder| USUAL.map(|name| folder.join(name))) {
            if !path.exists() {
                continue;
            }
            match read(&path) {
                Ok(Identity::Key(key)) if offered.contains(key.public().key_data()) => {}
                Ok(Identity::Key(key)) => {
                    files += 1;
                    match self.with_key(&path, *key).await? {
                        Door::Shut => {}
                        door => return Ok(door),
                    }
                }
                Ok(Identity::AgentOnly(key, _)) if offered.contains(key.key_data()) => {}
                Ok(Identity::AgentOnly(_, why)) => drop(self.agent_only(&path, why)),
                Err(why) => drop(self.unusable(&path, &why)),
            }
        }
        match silent_agent {
            Some(error) if files == 0 => Err(error),
            _ => Ok(Door::Shut),
        }
    }

    /// Notes a key that only the agent could use.
    fn agent_only(&mut self, path: &Path, why: &str) -> Door {
        self.tried.push(format!("not {}, because {why}: add it to the SSH agent (ssh-add)", path.display()));
        Door::Shut
    }

    /// Notes a file without a usable key.
    fn unusable(&mut self, path: &Path, why: &str) -> Door {
        self.tried.push(format!("not {}: {why}", path.display()));
        Door::Shut
    }

    /// The certificates for a key: the one beside it, and those of OpenSSH's configuration.
    fn certificates(&mut self, path: &Path, key: &PublicKey) -> Vec<Certificate> {
        let mut beside = expanded(path).into_os_string();
        beside.push("-cert.pub");
        let beside = PathBuf::from(beside);
        let mut found = Vec::new();
        for file in std::iter::once(beside.clone()).chain(self.target.certificates.clone()) {
            let text = match std::fs::read_to_string(expanded(&file)) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound && file == beside => continue,
                Err(error) => {
                    self.tried.push(format!("not the certificate {}: {error}", file.display()));
                    continue;
                }
            };
            let judged = Certificate::from_openssh(&text).map_err(|error| format!("it cannot be parsed: {error}"));
            match judged.and_then(|certificate| worth_showing(&certificate, now()).map(|()| certificate)) {
                Ok(certificate) if certificate.public_key() == key.key_data() => found.push(certificate),
                // It belongs to another identity.
                Ok(_) if file != beside => {}
                Ok(_) => self.tried.push(format!("not the certificate {}: it belongs to another key", file.display())),
                Err(why) => self.tried.push(format!("not the certificate {}: {why}", file.display())),
            }
        }
        found
    }

    /// A key from a file, its certificates first.
    async fn with_key(&mut self, path: &Path, key: Key) -> Result<Door, HostError> {
        let certificates = self.certificates(path, key.public());
        let name = path.display().to_string();
        let key = match key {
            Key::Plain(key) => Arc::new(*key),
            Key::Rsa(mut key) => {
                let Some(hash) = self.rsa_hash(&name).await else { return Ok(Door::Shut) };
                let (public, within) = (key.public().clone(), self.timeout);
                return self.signed_by(&mut *key, (&name, within), public, Some(hash), &certificates).await;
            }
        };
        let user = self.target.user.clone();
        for certificate in certificates {
            self.tried.push(format!("{name} with its certificate"));
            let attempt = self.handle.authenticate_openssh_cert(user.clone(), key.clone(), certificate);
            let outcome = timeout(self.timeout, attempt).await;
            match self.outcome(outcome)? {
                Door::Shut => {}
                door => return Ok(door),
            }
        }
        self.tried.push(format!("{name} ({})", describe(key.public_key())));
        let key = PrivateKeyWithHashAlg::new(key, None);
        let outcome = timeout(self.timeout, self.handle.authenticate_publickey(user, key)).await;
        self.outcome(outcome)
    }

    /// The hash that an RSA key signs with here; `None` if the host supports SHA-1 only, which is then noted.
    async fn rsa_hash(&mut self, name: &str) -> Option<HashAlg> {
        match timeout(self.timeout, self.handle.best_supported_rsa_hash()).await {
            Ok(Ok(Some(Some(best)))) => Some(best),
            Ok(Ok(Some(None))) => {
                self.tried.push(format!("not {name}: the host supports RSA with SHA-1 only"));
                None
            }
            // The host does not say: every sshd since 2016 supports this one. An unreachable host shows at the
            // attempt.
            Ok(Ok(None) | Err(_)) | Err(_) => Some(HashAlg::Sha512),
        }
    }

    /// A key with which another signs, its certificates first.
    async fn signed_by<S: Signer>(
        &mut self,
        signer: &mut S,
        (name, within): (&str, Duration),
        public: PublicKey,
        hash: Option<HashAlg>,
        certificates: &[Certificate],
    ) -> Result<Door, HostError>
    where
        S::Error: Display,
    {
        let user = self.target.user.clone();
        for certificate in certificates {
            self.tried.push(format!("{name} with its certificate"));
            let attempt = self.handle.authenticate_certificate_with(user.clone(), certificate.clone(), hash, signer);
            let outcome = timeout(within, attempt).await;
            match self.outcome(outcome)? {
                Door::Shut => {}
                door => return Ok(door),
            }
        }
        self.tried.push(format!("{name} ({})", describe(&public)));
        let outcome = timeout(within, self.handle.authenticate_publickey_with(user, public, hash, signer)).await;
        self.outcome(outcome)
    }

    /// A key whose file cannot sign, if the agent holds it; `None` if it does not.
    async fn held(
        &mut self,
        agent: &mut AgentClient<UnixStream>,
        held: &[AgentIdentity],
        path: &Path,
        key: &PublicKey,
    ) -> Result<Option<Door>, HostError> {
        let mut ours: Vec<&AgentIdentity> =
            held.iter().filter(|held| held.public_key().key_data() == key.key_data()).collect();
        // Keys for which the agent has a certificate come first.
        ours.sort_by_key(|held| matches!(held, AgentIdentity::PublicKey { .. }));
        let mut door = None;
        for identity in ours {
            let certificates = match identity {
                AgentIdentity::PublicKey { .. } => self.certificates(path, key),
                AgentIdentity::Certificate { .. } => Vec::new(),
            };
            match self.with_agent(agent, identity, &certificates).await? {
                Door::Shut => door = Some(Door::Shut),
                open => return Ok(Some(open)),
            }
        }
        Ok(door)
    }

    /// An identity of the agent; one that is a key may have certificates of its own, which come first.
    async fn with_agent(
        &mut self,
        agent: &mut AgentClient<UnixStream>,
        identity: &AgentIdentity,
        certificates: &[Certificate],
    ) -> Result<Door, HostError> {
        let (key, name) = (identity.public_key().into_owned(), format!("{} of the SSH agent", identity.comment()));
        let mut hash = None;
        if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
            hash = self.rsa_hash(&name).await;
            if hash.is_none() {
                return Ok(Door::Shut);
            }
        }
        let AgentIdentity::Certificate { certificate, .. } = identity else {
            return self.signed_by(&mut ByKey(agent), (&name, SIGNING), key, hash, certificates).await;
        };
        self.tried.push(format!("{name} ({})", describe(&key)));
        let (user, certificate) = (self.target.user.clone(), certificate.clone());
        let attempt = self.handle.authenticate_certificate_with(user, certificate, hash, agent);
        let outcome = timeout(SIGNING, attempt).await;
        self.outcome(outcome)
    }

    fn outcome<E: Display>(&mut self, outcome: Result<Result<AuthResult, E>, Elapsed>) -> Result<Door, HostError> {
        match outcome {
            Ok(Ok(AuthResult::Success)) => Ok(Door::Open),
            Ok(Ok(AuthResult::Failure { remaining_methods, partial_success })) => {
                if self.handle.is_closed() {
                    // The reply never came: MaxAuthTries, most likely.
                    self.tried.push(
                        "then the host closed the connection (too many keys? name one with ssh.identity; or has the \
                         account expired?)"
                            .to_owned(),
                    );
                    return Ok(Door::Bolted);
                }
                self.accepted = remaining_methods.iter().map(|m| <&str>::from(m).to_owned()).collect();
                if partial_success {
                    self.accepted.push("a second factor, which hactl cannot provide".to_owned());
                    return Ok(Door::Bolted);
                }
                Ok(if remaining_methods.contains(&MethodKind::PublicKey) { Door::Shut } else { Door::Bolted })
            }
            // If one key does not sign, the next may.
            Ok(Err(why)) => {
                if let Some(last) = self.tried.last_mut() {
                    last.push_str(&format!(", which did not sign: {why}"));
                }
                Ok(if self.handle.is_closed() { Door::Bolted } else { Door::Shut })
            }
            Err(_) => Err(HostError::too_slow(LOGGING_IN, self.timeout, "")),
        }
    }

    /// The agent and its keys; `None` if there is no agent.
    async fn agent(&self) -> Result<Option<(AgentClient<UnixStream>, Vec<AgentIdentity>)>, HostError> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let unavailable = |why: String| HostError::AgentUnavailable { socket: socket.clone(), why };
        let mut agent = match timeout(self.timeout, AgentClient::connect_uds(socket)).await {
            Ok(agent) => agent.map_err(|e| unavailable(e.to_string()))?,
            Err(_) => return Err(unavailable("it did not accept the connection".to_owned())),
        };
        match timeout(SIGNING, agent.request_identities()).await {
            Ok(held) => Ok(Some((agent, held.map_err(|e| unavailable(e.to_string()))?))),
            Err(_) => Err(unavailable("it did not list its keys".to_owned())),
        }
    }

    /// The agent where files can replace it: a failure is only noted.
    async fn willing_agent(&mut self) -> Option<(AgentClient<UnixStream>, Vec<AgentIdentity>)> {
        match self.agent().await {
            Ok(agent) => agent,
            Err(error) => {
                self.tried.push(error.to_string());
                None
            }
        }
    }
}
