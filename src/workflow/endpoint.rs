//! The URL of the API in kubeconfigs, and what becomes of them if the inventory changes it.
//!
//! In: a kubeconfig, or its URL; the inventory. Out: the URL, or a note for the plan.

use crate::model::desired::{Desired, Host, Role};

/// The URL in a kubeconfig as hactl writes it.
pub(super) fn in_kubeconfig(text: &str) -> Option<String> {
    let url = text.lines().find_map(|line| line.trim_start().strip_prefix("server:"))?;
    Some(url.trim().trim_matches('"').to_owned())
}

/// The note that kubeconfigs with this URL stop working; `None`: it stays, or still leads to an API server.
pub(super) fn moved(was: &str, desired: &Desired) -> Option<String> {
    let now = desired.url_for_people();
    let host = was.strip_prefix("https://").and_then(|place| Some(place.rsplit_once(':')?.0)).unwrap_or(was);
    let host = host.trim_matches(['[', ']']);
    let is_own = |host: &Host| desired.url_of(host) == was;
    let stays = was == now
        || desired.with(Role::ControlPlane).any(is_own)
        || desired.endpoint.sans.iter().any(|name| name.as_str() == host);
    (!stays).then(|| {
        format!(
            "the endpoint changes: kubeconfigs with {was} stop working, and programs outside the cluster that use it; \
             afterwards `hactl kubeconfig` prints one with {now}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::desired::{EndpointKind, sample};

    #[test]
    fn a_changed_endpoint_is_noted_with_both_urls_unless_the_old_one_still_leads_to_an_api_server() {
        let was = sample(3).url_for_people();
        assert_eq!(moved(&was, &sample(3)), None, "it stays");
        let changes: [fn(&mut Desired); 3] = [
            |d| d.endpoint.kind = EndpointKind::Vip { address: [10, 88, 0, 101].into(), interface: None, vrid: 51 },
            |d| d.endpoint.port = 8443,
            |d| d.endpoint.kind = EndpointKind::External("api.example.com".to_owned()),
        ];
        for change in changes {
            let mut desired = sample(3);
            change(&mut desired);
            let note = moved(&was, &desired).expect("it changes");
            let now = desired.url_for_people();
            assert!(
                [was.as_str(), now.as_str(), "`hactl kubeconfig`"].iter().all(|part| note.contains(*part)),
                "{note}"
            );
        }
        let mut known = sample(3);
        known.endpoint.kind = EndpointKind::External("api.example.com".to_owned());
        known.endpoint.sans = vec!["10.88.0.100".to_owned()];
        assert_eq!(moved(&was, &known), None, "the certificates have the old address on purpose");
        assert_eq!(moved("https://10.88.0.12:6443", &sample(3)), None, "an API server has that address");
    }

    #[test]
    fn the_url_of_a_kubeconfig_is_read_from_its_text() {
        let text = "clusters:\n- name: lab\n  cluster:\n    server: \"https://10.88.0.100:6443\"\n";
        assert_eq!(in_kubeconfig(text).as_deref(), Some("https://10.88.0.100:6443"));
        assert_eq!(in_kubeconfig(""), None);
    }
}
