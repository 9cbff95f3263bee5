//! The probe of certificates: whether one of the host expires soon.

use super::{Found, Seen};
use crate::agent::machine::root::Root;
use crate::agent::machine::when::now_ms;
use crate::model::certificate::CertFact;
use crate::model::fault::FaultKind;
use crate::model::timestamp::date;
use std::fs;

/// The folder of the certificates that the kubelet renews.
const KUBELETS: &str = "/var/lib/kubelet/pki";
/// The folders of those that hactl renews.
const RENEWED: [&str; 4] = ["/etc/etcd/pki", "/etc/kubernetes/pki", "/etc/hactl/guard", "/etc/hactl/metrics"];
/// A certificate with less than this left was not renewed in time, seconds. `hactl up` and the hosts renew a
/// certificate of a year when a third of it is left.
const SOON_S: i64 = 30 * 86_400;
/// A larger file is no certificate.
const LARGEST: u64 = 256 << 10;

/// The certificate that expires first, if it does so soon.
pub(super) async fn look(root: &Root) -> Seen {
    let [hactl, kubelet] = [first(root, &RENEWED).await?, first(root, &[KUBELETS]).await?];
    let found = hactl.into_iter().chain(kubelet).min();
    let due = found.filter(|(end, _)| end.saturating_sub(now_ms() / 1000) < SOON_S);
    let words = |(end, path): (i64, String)| format!("{path} expires on {}", date(end.saturating_mul(1000)));
    Some(due.into_iter().map(|due| Found::new(FaultKind::CertificateExpiring, words(due))).collect())
}

/// When the first certificate expires that hactl renews, seconds since 1970. The kubelet renews its own, later than
/// hactl does.
pub async fn first_to_renew(root: &Root) -> Option<i64> {
    first(root, &RENEWED).await?.map(|(end, _)| end)
}

/// The end and the path of the certificate in these folders that expires first; `None`: they cannot be read.
async fn first(root: &Root, folders: &'static [&'static str]) -> Option<Option<(i64, String)>> {
    let found = root.blocking(move |root| {
        let mut soonest: Option<(i64, String)> = None;
        for folder in folders {
            // A host without this role has no such folder.
            let Ok(entries) = fs::read_dir(root.below(folder)) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let current = name.ends_with(".crt") || name.ends_with("-current.pem");
                if !current || entry.metadata().is_ok_and(|meta| meta.len() > LARGEST) {
                    continue;
                }
                let Ok(text) = fs::read(entry.path()) else { continue };
                for certificate in CertFact::read_pem(&text) {
                    let end = certificate.not_after_s;
                    if soonest.as_ref().is_none_or(|(other, _)| end < *other) {
                        soonest = Some((end, format!("{folder}/{name}")));
                    }
                }
            }
        }
        Ok(soonest)
    });
    found.await.ok()
}
