//! Credentials for people: the everyday kubeconfig, the break-glass one, and kubectl through SSH.

use super::{Failure, Session};
use crate::kube::{Access, Client};
use crate::model::desired::{Desired, Role};
use crate::vault::Vault;
use std::path::PathBuf;

/// Which kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bound by RBAC, for a year.
    Administrator,
    /// `system:masters`, which no RBAC rule can take away, for 8 hours.
    BreakGlass,
}

/// How API clients authenticate: as `system:masters`, with a certificate that lives an hour and is never written.
pub(super) fn access(desired: &Desired, vault: &Vault) -> Result<Access, Failure> {
    let credential = vault.ephemeral_admin()?;
    let ca = vault.publics().cluster_ca.clone();
    Ok(Access::new(ca, credential, desired.endpoint.host()))
}

/// A client through the first control-plane host whose API server answers.
pub(super) async fn client(session: &Session, access: &Access) -> Result<Client, Failure> {
    let mut last = None;
    for host in session.desired.with(Role::ControlPlane) {
        let Some(machine) = session.machines.get(&host.name) else { continue };
        match access.through(machine, host.address, session.desired.api_port).await {
            Ok(client) => return Ok(client),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Failure::NoHost { hosts: vec![] }, Failure::Api))
}

/// The administrator's kubeconfig in the state folder, made when there is none or it is about to expire.
pub(super) fn keep(session: &Session, vault: &Vault) -> Result<PathBuf, Failure> {
    Ok(vault.keep_kubeconfig(&session.desired.endpoint.url())?)
}

/// A kubeconfig for a person.
///
/// # Errors
/// State that is lost or unusable.
pub fn kubeconfig(desired: &Desired, state: &std::path::Path, kind: Kind) -> Result<Credential, Failure> {
    let vault = Vault::open(state)?.ok_or_else(|| no_state(state))?;
    let url = desired.endpoint.url();
    match kind {
        Kind::Administrator => {
            let path = vault.keep_kubeconfig(&url)?;
            Ok(Credential { text: vault.read_kubeconfig()?, path: Some(path) })
        }
        Kind::BreakGlass => Ok(Credential { text: vault.break_glass(&url)?, path: None }),
    }
}

/// A kubeconfig and where it is kept.
pub struct Credential {
    /// The file's content.
    pub text: crate::model::secret::Secret<String>,
    /// Where it lies; `None` for one that is not kept.
    pub path: Option<PathBuf>,
}

fn no_state(state: &std::path::Path) -> Failure {
    let source = std::io::Error::from(std::io::ErrorKind::NotFound);
    Failure::Local { what: format!("there is no state at {}; run `hactl up` first", state.display()), source }
}

/// Runs kubectl against the cluster through SSH: no route from here to the API is needed. Returns its exit code.
///
/// # Errors
/// No API server answers, or kubectl cannot be run.
pub async fn kubectl(session: &Session, arguments: &[String]) -> Result<u8, Failure> {
    let state = &session.places.state;
    let vault = Vault::open(state)?.ok_or_else(|| no_state(state))?;
    let access = access(&session.desired, &vault)?;
    let mut last = Failure::NoHost { hosts: vec![] };
    for host in session.desired.with(Role::ControlPlane) {
        let Some(machine) = session.machines.get(&host.name) else { continue };
        if let Err(error) = access.through(machine, host.address, session.desired.api_port).await {
            last = error.into();
            continue;
        }
        let forward = machine.forward(&host.address.to_string(), session.desired.api_port).await;
        let forward = forward.map_err(|error| Failure::Host { host: host.name.clone(), error: Box::new(error) })?;
        vault.keep_kubeconfig(&session.desired.endpoint.url())?;
        let program = program(session)?;
        let status = tokio::process::Command::new(&program)
            .arg(format!("--kubeconfig={}", vault.kubeconfig_path().display()))
            .arg(format!("--server=https://{}", forward.address()))
            .arg(format!("--tls-server-name={}", session.desired.endpoint.host()))
            .args(arguments)
            .status()
            .await
            .map_err(|source| Failure::Local { what: format!("could not run {}", program.display()), source })?;
        return Ok(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1));
    }
    Err(last)
}

/// kubectl: the user's own, or else the bundle's, unpacked beside the state.
fn program(session: &Session) -> Result<PathBuf, Failure> {
    let own = std::env::var_os("PATH").and_then(|paths| {
        std::env::split_paths(&paths).map(|dir| dir.join("kubectl")).find(|candidate| candidate.is_file())
    });
    match own {
        Some(path) => Ok(path),
        None => Ok(session.bundle()?.unpack_program("kubectl", &session.places.state)?),
    }
}
