//! Credentials for people and programs: the usual kubeconfig, the break-glass one, kubectl through SSH, and the
//! certificate of a reader of metrics.

use super::{Failure, Places, Session, State};
use crate::execute::{ConnectApi as _, SERVER_NAME};
use crate::model::desired::{Desired, Role};
use crate::model::secret::Secret;
use crate::pki::Credential;
use crate::reconcile::Failure as Stop;
use std::path::PathBuf;

/// Which kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Subject to RBAC, valid for a year.
    Administrator,
    /// `system:masters`, which RBAC cannot revoke, valid for 8 hours.
    BreakGlass,
}

/// A kubeconfig for a person.
///
/// # Errors
/// State that is lost or unusable.
pub fn kubeconfig(desired: &Desired, places: &Places, kind: Kind) -> Result<Secret<String>, Failure> {
    let state = existing(desired, places)?;
    let url = desired.url_for_people();
    match kind {
        Kind::Administrator => {
            let path = state.keep_kubeconfig(&url)?;
            let text = std::fs::read_to_string(&path);
            let what = || format!("could not read {}", path.display());
            Ok(Secret::new(text.map_err(|source| Failure::Local { what: what(), source })?))
        }
        Kind::BreakGlass => state.break_glass(&url),
    }
}

/// A certificate that reads metrics, and those of the CAs to verify hosts, and kubelets, by.
///
/// # Errors
/// State that is lost or unusable.
pub fn reader(desired: &Desired, places: &Places, name: &str) -> Result<(Credential, [String; 2]), Failure> {
    existing(desired, places)?.reader(name)
}

pub(super) fn existing(desired: &Desired, places: &Places) -> Result<State, Failure> {
    State::open(&places.state, &desired.cluster)?.ok_or_else(|| places.no_state())
}

/// Runs kubectl against the cluster through SSH, without a route from here to the API. Returns its exit code.
///
/// # Errors
/// No API server answers, or kubectl cannot be run.
pub async fn kubectl(session: &Session, arguments: &[String]) -> Result<u8, Failure> {
    let state = existing(&session.desired, &session.places)?;
    let access = state.api_access();
    let config = state.keep_kubeconfig(&session.desired.url_for_people())?;
    let mut last = Failure::from(Stop::NoHost { hosts: vec![] });
    for host in session.desired.with(Role::ControlPlane) {
        let Some(machine) = session.machines.get(&host.name) else { continue };
        if let Err(error) = access.connect(&**machine, host.address, session.desired.api_port).await {
            last = error.into();
            continue;
        }
        let forward = machine.forward(host.address, session.desired.api_port).await;
        let forward = forward.map_err(|error| Failure::of_host(&host.name, error))?;
        let program = program(session)?;
        let status = tokio::process::Command::new(&program)
            .arg(format!("--kubeconfig={}", config.display()))
            .arg(format!("--server=https://{}", forward.address()))
            .arg(format!("--tls-server-name={SERVER_NAME}"))
            .args(arguments)
            .status()
            .await
            .map_err(|source| Failure::Local { what: format!("could not run {}", program.display()), source })?;
        return Ok(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1));
    }
    Err(last)
}

/// kubectl: the user's own, or the bundle's, unpacked beside the state.
fn program(session: &Session) -> Result<PathBuf, Failure> {
    let own = std::env::var_os("PATH").and_then(|paths| {
        std::env::split_paths(&paths).map(|dir| dir.join("kubectl")).find(|candidate| candidate.is_file())
    });
    match own {
        Some(path) => Ok(path),
        None => Ok(session.bundle()?.unpack_program("kubectl", &session.places.state)?),
    }
}
