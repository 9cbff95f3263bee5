//! What others may have put on a host before hactl, at the places of the tables.

use super::*;
use crate::model::foreign::{FOLDERS, SHARED, WRITTEN, shared_at};

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[test]
fn the_name_of_each_file_shows_that_it_is_hactls_or_it_is_known_that_others_may_write_there() {
    let mut seen = BTreeSet::new();
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let files = rendered(&desired, host, &facts(host)).unwrap().into_iter().flat_map(|set| set.files);
            for file in files {
                let marks = SHARED.iter().any(|shared| shared.mark == file.path);
                if let Some(shared) = shared_at(&file.path) {
                    seen.insert(shared.path);
                } else if !marks {
                    let below = FOLDERS.iter().any(|folder| is_below(&file.path, folder));
                    assert!(file.path.contains("hactl") || below, "{shape}: {} may be of others", file.path);
                    continue;
                }
                assert!(file.content.starts_with(WRITTEN), "{shape}: {} is not known as hactl's", file.path);
            }
        }
    }
    assert_eq!(seen, SHARED.iter().map(|shared| shared.path).collect::<BTreeSet<_>>(), "each is written somewhere");
}

#[test]
fn a_service_of_a_shared_file_has_its_mark_on_every_host_on_which_hactl_runs_it() {
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let paths = super::paths(&desired, host);
            for shared in SHARED.iter().filter(|shared| paths.iter().any(|path| path == shared.path)) {
                let name = &host.name;
                assert!(paths.iter().any(|path| path == shared.mark), "{shape}: {name} lacks that of {}", shared.path);
                let runs = units(&desired, host).iter().any(|unit| unit.as_str() == shared.service);
                assert!(runs, "{shape}: {name} does not run {}", shared.service);
            }
        }
    }
}

#[test]
fn of_each_directory_that_a_wipe_takes_it_is_recorded_whether_others_used_it_and_its_files_are_named_too() {
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let (ask, paths) = (wipe(&desired, host, true), super::paths(&desired, host));
            let whole = ask.remove.iter().filter(|path| paths.iter().any(|file| is_below(file, path)));
            // The inventory names that of etcd.
            let data = ask.data.iter().filter(|path| Path::new(path) != desired.etcd.data_dir);
            for folder in whole.chain(data) {
                let known = folder.contains("hactl") || FOLDERS.contains(&folder.as_str());
                assert!(known, "{shape}: {folder} may have been in use");
            }
            for path in paths.iter().filter(|path| !path.starts_with("/etc/haproxy/")) {
                assert!(ask.remove.contains(path), "{shape}: {path} would stay in a directory of others");
            }
        }
    }
}

#[test]
fn a_wipe_names_every_file_in_the_directories_of_keys_that_a_host_of_any_role_may_have() {
    let folders = ["/etc/etcd/pki", "/etc/kubernetes/config", "/etc/kubernetes/pki"];
    let mut all = BTreeSet::new();
    for (_, desired) in shapes() {
        for host in &desired.hosts {
            let files = super::paths(&desired, host).into_iter().chain(crate::pki::current_files(host));
            all.extend(files.filter(|path| folders.iter().any(|folder| is_below(path, folder))));
        }
    }
    for key in ["/etc/etcd/pki/peer.key.new", "/etc/kubernetes/config/encryption.yaml", "/etc/kubernetes/pki/sa.key"] {
        assert!(all.contains(key), "{key}");
    }
    for (shape, desired) in shapes() {
        for host in &desired.hosts {
            let remove: BTreeSet<String> = wipe(&desired, host, true).remove.into_iter().collect();
            let left: Vec<&String> = all.difference(&remove).collect();
            assert!(left.is_empty(), "{shape}: {} keeps {left:?}", host.name);
        }
    }
}
