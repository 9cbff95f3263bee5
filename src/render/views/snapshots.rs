//! Snapshots: the settings and the schedule of a host.

use super::etcd::own_etcd;
use super::{runtime, turn};
use crate::model::attached::Attached;
use crate::model::bucket::{SCHEME, Storage, StorageSettings};
use crate::model::desired::{Desired, Host};
use crate::model::secret::Secret;
use crate::model::snapshot::Settings;
use crate::protocol::EtcdAsk;
use crate::render::{Input, RenderError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

/// The earliest first snapshot after the start of the timer: by then there is a cluster.
const FIRST_S: u64 = 60;

/// `/etc/hactl/snapshots.json`.
pub(crate) fn settings(input: &Input<'_>) -> String {
    let (desired, wanted) = (input.desired, &input.desired.snapshots);
    let EtcdAsk { url, data_dir, ca, cert, key } = own_etcd(desired);
    let settings = Settings {
        cluster: desired.cluster.clone(),
        authority: input.sealed.authority,
        host: input.host.name.clone(),
        every_s: wanted.every_s,
        keep: wanted.keep,
        recipients: input.sealed.recipients.to_vec(),
        drill: wanted.drill.is_some(),
        to: wanted.to.clone(),
        url,
        data_dir,
        ca,
        cert,
        key,
    };
    serde_json::to_string_pretty(&settings).expect("texts and numbers are always JSON") + "\n"
}

/// For units that run hactl on the data of a member.
#[derive(Debug, Serialize)]
pub(crate) struct OfMember {
    program: String,
    data_of_standby: Option<String>,
}

pub(crate) fn of_member(input: &Input<'_>) -> OfMember {
    let data = || input.desired.etcd.data_dir.display().to_string();
    OfMember { program: input.hactl_path.to_owned(), data_of_standby: input.host.standby.then(data) }
}

/// The directory of the file of [`storage`]: without object storage no key of it stays on a host.
pub(crate) const STORAGE: &str = "/etc/hactl/object-storage";

/// `/etc/hactl/object-storage/*`: one file if there is object storage.
pub(crate) fn storages(desired: &Desired) -> Vec<String> {
    desired.snapshots.storage.iter().map(|_| "access.toml".to_owned()).collect()
}

/// Access to it, as [`Storage::to_file`] writes it.
pub(crate) fn storage(input: &Input<'_>) -> Result<String, RenderError> {
    let wanted = input.desired.snapshots.storage.as_ref();
    let missing = |what: &str| RenderError::MissingFile { what: format!("snapshots.s3.{what}") };
    let wanted = wanted.ok_or_else(|| missing("credentials"))?;
    let mut storage = reach(wanted, input.attached).ok_or_else(|| missing("credentials or ca"))?;
    let plain = wanted.endpoint.as_ref().is_some_and(|url| url.starts_with("http://"));
    let proxy = &input.desired.proxy;
    storage.proxy = Some(if plain { &proxy.http } else { &proxy.https }).filter(|url| !url.is_empty()).cloned();
    let direct = runtime::proxy(input.desired).into_iter().find(|setting| setting.name == "NO_PROXY");
    storage.no_proxy = direct.map_or_else(String::new, |setting| setting.value);
    Ok(storage.to_file())
}

/// Access to it from this machine, whose environment defines the proxy.
pub fn reach(wanted: &StorageSettings, attached: &Attached) -> Option<Storage> {
    let login = attached.logins.get(SCHEME).and_then(|login| STANDARD.decode(login.reveal()).ok())?;
    let login = Secret::new(String::from_utf8(login).ok()?);
    let (key_id, key) = login.reveal().split_once(':')?;
    let ca = match &wanted.ca {
        Some(_) => Some(attached.authorities.get(SCHEME)?.clone()),
        None => None,
    };
    Some(Storage {
        endpoint: wanted.endpoint.clone(),
        region: wanted.region.clone(),
        key_id: key_id.to_owned(),
        key: Secret::new(key.to_owned()),
        ca,
        proxy: None,
        no_proxy: String::new(),
    })
}

/// For `snapshots/hactl-snapshot.timer`.
#[derive(Debug, Serialize)]
pub(crate) struct Timer {
    program: String,
    first_s: u64,
    every_s: u64,
}

pub(crate) fn timer(input: &Input<'_>) -> Timer {
    let every_s = input.desired.snapshots.every_s;
    let first_s = FIRST_S + turn(input, Host::may_vote, every_s);
    Timer { program: input.hactl_path.to_owned(), first_s, every_s }
}
