//! The versions of Kubernetes in the manifests of the static pods: what the kubelet will run here, whether or not it
//! runs already.
//!
//! In: the manifests. Out: program name to version, without the `v`. A missing manifest, or one whose image tag is
//! not a version, is omitted.

use crate::agent::machine::root::Root;
use crate::agent::op_error::Outcome;
use crate::model::control_plane::{MANIFESTS, PROGRAMS};
use crate::model::version::Version;
use std::collections::BTreeMap;

/// The versions in the manifests.
pub(super) fn named(root: &Root) -> Outcome<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for program in PROGRAMS {
        let path = root.present(&format!("{MANIFESTS}{program}.yaml"))?;
        // An unreadable manifest counts as missing: the facts of the file explain more.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(version) = image_of(&text, program) {
            found.insert(program.to_owned(), version.to_string());
        }
    }
    Ok(found)
}

/// The version in the tag of the image of this name.
fn image_of(manifest: &str, program: &str) -> Option<Version> {
    let images = manifest.lines().filter_map(|line| line.trim().strip_prefix("image:"));
    let mut ours = images.filter_map(|image| {
        let image = image.trim().trim_matches(['"', '\'']);
        let image = image.split_once('@').map_or(image, |(tagged, _)| tagged);
        let (repository, tag) = image.rsplit_once(':')?;
        (repository.rsplit('/').next() == Some(program)).then_some(tag)
    });
    Version::parse(ours.next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_in_the_tag_of_the_programs_own_image() {
        let version =
            |image: &str| image_of(&format!("spec:\n  containers:\n    - x\n      image: {image}\n"), "kube-apiserver");
        let of = |text: &str| Version::parse(text);
        assert_eq!(version("\"registry.k8s.io/kube-apiserver:v1.35.4\""), of("1.35.4"));
        assert_eq!(version("registry.example:5000/k8s/kube-apiserver:v1.34.4@sha256:00"), of("1.34.4"));
        for other in ["registry.k8s.io/kube-scheduler:v1.35.4", "registry.k8s.io/kube-apiserver:latest", "\"\"", "x"] {
            assert_eq!(version(other), None, "{other}");
        }
    }
}
