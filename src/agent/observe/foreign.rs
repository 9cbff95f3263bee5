//! What others use on this host of the places that hactl is going to use.
//!
//! In: the files and programs that hactl is going to write. Out: those that are not hactl's, each with the service or
//! the process that uses it. A file that is as its package installed it counts as nobody's: hactl installs the packages
//! of balancers itself.

use crate::agent::machine::files::read_stamp;
use crate::agent::machine::root::Root;
use crate::agent::machine::{foreign, packages, ports, units};
use crate::agent::op_error::Outcome;
use crate::model::foreign::{CONTAINERD, CONTAINERD_SOCKET, DOCKER, DOCKER_SOCKET, Foreign, SHARED, Shared, shared_at};
use crate::model::units::unit;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet};

/// The services of others that are in use, each with its unit file.
type Services = BTreeMap<&'static str, String>;

/// What is not hactl's of these files and programs. Before the host belongs to a cluster also the directories that are
/// in use.
pub(crate) async fn look(root: &Root, places: Vec<String>) -> Outcome<Vec<Foreign>> {
    let is_asked = |shared: &Shared| places.iter().any(|path| path == shared.path);
    let taken: Vec<Shared> = SHARED.into_iter().filter(is_asked).collect();
    let reading = root.blocking(move |root| {
        let mut others = Vec::new();
        for path in places {
            if foreign::is_of_others(&root.path(&path)?)? {
                others.push(path);
            }
        }
        let theirs: Vec<Shared> = taken.into_iter().filter(|shared| !is_hactls(root, shared)).collect();
        let folders = if read_stamp(root)?.is_none() { foreign::folders_in_use(root)? } else { Vec::new() };
        Ok((others, theirs, folders))
    });
    let (others, theirs, folders) = reading.await?;
    // At the same time: the package manager may be slow.
    let changed = others.into_iter().map(|path| async move {
        let is_as_installed = root.is_host() && packages::is_as_installed(&path).await;
        (!is_as_installed).then_some(path)
    });
    let paths: Vec<String> = join_all(changed).await.into_iter().flatten().collect();
    let services = in_use(root, &theirs).await?;
    let mut found = judged(paths, &services);
    let containerds = theirs.iter().any(|shared| shared.service == CONTAINERD);
    if containerds && ![CONTAINERD, DOCKER].iter().any(|service| services.contains_key(service)) {
        let by = root.blocking(|root| Ok(ports::listener_at(root, CONTAINERD_SOCKET))).await?;
        found.extend(by.map(|by| Foreign { path: CONTAINERD_SOCKET.to_owned(), used_by: Some(by) }));
    }
    found.extend(folders.into_iter().map(|folder| Foreign { path: folder.to_owned(), used_by: None }));
    Ok(found)
}

/// Whether hactl runs the service of this file.
fn is_hactls(root: &Root, shared: &Shared) -> bool {
    [root.own(shared.mark), root.below(&shared.unit_path())].iter().any(|path| foreign::is_written(path))
}

/// Those of the services of these files, and Docker beside containerd, that run or start at the next boot.
async fn in_use(root: &Root, theirs: &[Shared]) -> Outcome<Services> {
    if !root.is_host() {
        return Ok(Services::new());
    }
    let mut names: BTreeSet<&'static str> = theirs.iter().map(|shared| shared.service).collect();
    if names.contains(CONTAINERD) {
        // An idle service is started again by its socket.
        names.extend([DOCKER, DOCKER_SOCKET]);
    }
    let units: Vec<_> = names.iter().copied().map(unit).collect();
    let shown = names.into_iter().zip(units::show(&units).await?);
    let used = shown.filter(|(_, shown)| shown.known() && shown.is_in_use());
    Ok(used.map(|(name, shown)| (name, shown.file().to_owned())).collect())
}

/// Files and programs of others with the services that use them. A service is named also if no file of its own is in
/// the way: hactl replaces its whole unit, and Docker uses containerd.
fn judged(paths: Vec<String>, services: &Services) -> Vec<Foreign> {
    let mut found = Vec::new();
    for path in paths {
        let used_by = shared_at(&path).map(|shared| shared.service).filter(|service| services.contains_key(service));
        found.push(Foreign { path, used_by: used_by.map(str::to_owned) });
    }
    for (service, file) in services {
        let is_named = found.iter().any(|foreign| foreign.used_by.as_deref() == Some(*service));
        let is_replaced = SHARED.iter().any(|shared| shared.service == *service && shared.path == shared.unit_path());
        // Its socket is named only if Docker itself is not in use.
        let is_docker = *service == DOCKER || (*service == DOCKER_SOCKET && !services.contains_key(DOCKER));
        let path = if is_docker { CONTAINERD_SOCKET } else { file.as_str() };
        if is_docker || (is_replaced && !is_named) {
            found.push(Foreign { path: path.to_owned(), used_by: Some((*service).to_owned()) });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_service_in_use_is_named_with_its_files_or_its_unit_and_a_balancer_with_the_files_of_its_package_is_not() {
        let services = |names: &[&'static str]| -> Services {
            names.iter().map(|name| (*name, format!("/lib/systemd/system/{name}"))).collect()
        };
        let of = |paths: &[&str], names: &[&'static str]| {
            let found = judged(paths.iter().map(|path| (*path).to_owned()).collect(), &services(names));
            found.into_iter().map(|f| (f.path, f.used_by.unwrap_or_default())).collect::<Vec<_>>()
        };
        let are = |all: &[(&str, &str)]| {
            all.iter().map(|(path, by)| ((*path).to_owned(), (*by).to_owned())).collect::<Vec<_>>()
        };
        let (haproxy, kubectl) = ("/etc/haproxy/haproxy.cfg", "/usr/local/bin/kubectl");
        let balancer = "haproxy.service";
        assert_eq!(of(&[haproxy, kubectl], &[balancer]), are(&[(haproxy, balancer), (kubectl, "")]));
        assert_eq!(of(&[haproxy], &[]), are(&[(haproxy, "")]));
        assert_eq!(of(&[], &[balancer, "keepalived.service"]), are(&[]));
        let containerd = "/lib/systemd/system/containerd.service";
        let docker = (CONTAINERD_SOCKET, DOCKER);
        assert_eq!(of(&[], &[CONTAINERD, DOCKER]), are(&[(containerd, CONTAINERD), docker]));
        assert_eq!(of(&[], &[DOCKER_SOCKET, DOCKER]), are(&[docker]));
        assert_eq!(of(&[], &[DOCKER_SOCKET]), are(&[(CONTAINERD_SOCKET, DOCKER_SOCKET)]), "it starts Docker again");
        let config = "/etc/containerd/config.toml";
        assert_eq!(of(&[config], &[CONTAINERD]), are(&[(config, CONTAINERD)]));
    }

    #[tokio::test]
    async fn files_of_others_are_found_and_those_of_hactl_are_not_and_directories_only_before_the_first_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        let write = |path: &'static str, text: &str| {
            fs::create_dir_all(root.own(path).parent().unwrap()).unwrap();
            fs::write(root.own(path), text).unwrap();
        };
        write("/etc/haproxy/haproxy.cfg", "frontend shop\n");
        write("/etc/keepalived/keepalived.conf", "# Written by hactl: an earlier cluster.\n");
        write("/opt/cni/bin/bridge", "program");
        // A loss of power may leave one of hactl so.
        write("/usr/local/bin/runc", "");
        fs::create_dir_all(root.own("/etc/containerd")).unwrap();
        let asked = ["/etc/haproxy/haproxy.cfg", "/etc/keepalived/keepalived.conf", "/usr/local/bin/runc"];
        let found = async || {
            let found = look(&root, asked.map(str::to_owned).into()).await.unwrap();
            found.into_iter().map(|foreign| foreign.path).collect::<Vec<_>>()
        };
        assert_eq!(found().await, ["/etc/haproxy/haproxy.cfg", "/opt/cni/bin"]);
        let cluster_id = r#"{"cluster":"lab","ca":"0707070707070707070707070707070707070707070707070707070707070707"}"#;
        write("/var/lib/hactl/cluster.json", cluster_id);
        assert_eq!(found().await, ["/etc/haproxy/haproxy.cfg"], "later, hactl itself uses the directories");
        assert!(look(&root, vec!["../etc/passwd".to_owned()]).await.is_err());
    }
}
