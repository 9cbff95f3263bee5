//! Trees whose owner places links and hard links to other files in them.

use super::*;
use crate::protocol::OpErrorKind;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

/// A user that owns nothing here.
const STRANGER: (u32, u32) = (54_321, 54_321);

/// `outside/secret`, and `tree/` in which links lead there: what must stay as it is, and the tree.
fn linked() -> (tempfile::TempDir, PathBuf, Tree) {
    let place = tempfile::tempdir().unwrap();
    let (outside, tree) = (place.path().join("outside"), place.path().join("tree"));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(tree.join("member/wal")).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    fs::write(tree.join("member/wal/log"), "log").unwrap();
    symlink(&outside, tree.join("member/folder")).unwrap();
    symlink(outside.join("secret"), tree.join("member/file")).unwrap();
    let tree = Tree::there(&tree).unwrap();
    (place, outside, tree)
}

#[test]
fn targets_of_links_in_a_tree_are_neither_copied_nor_removed_nor_opened() {
    let (place, outside, tree) = linked();
    let member = tree.below(&["member"]).unwrap();
    assert!(member.sub("folder").unwrap().is_none());
    assert!(member.file("file").is_err() && member.file_to_write("file").is_err());
    let copy = tree.fresh("copy").unwrap();
    member.copy_into(&copy, &|_| false).unwrap();
    let copied: Vec<_> = copy.names().unwrap();
    assert_eq!(copied, ["wal"]);
    assert_eq!(fs::read(place.path().join("tree/copy/wal/log")).unwrap(), b"log");
    tree.clear("member").unwrap();
    assert_eq!(tree.names().unwrap(), ["copy"]);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[test]
fn swapping_a_directory_for_a_link_removes_nothing_elsewhere() {
    let (place, outside, tree) = linked();
    let (real, link) = (place.path().join("tree/real"), place.path().join("tree/link"));
    symlink(&outside, &link).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // One of the two is missing while it is being removed.
                let _ = renameat_with(CWD, &real, CWD, &link, RenameFlags::EXCHANGE);
            }
        });
        for _ in 0..2000 {
            let _ = fs::create_dir(&real);
            let _ = fs::write(real.join("secret"), "of the tree");
            // The other thread decides whether it is gone at the end; an error is fine.
            let _ = tree.clear("real");
            if fs::symlink_metadata(&link).is_err() {
                let _ = symlink(&outside, &link);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // The loop itself may have written to the other one, through the link.
    assert!(outside.join("kept").exists());
}

#[test]
fn root_gives_away_no_file_that_a_link_or_a_second_name_in_the_tree_stands_for() {
    if !rustix::process::geteuid().is_root() {
        // Only root can change owners; the lab suite does it as root.
        return;
    }
    let (place, outside, tree) = linked();
    let owner = |path: &Path| (fs::metadata(path).unwrap().uid(), fs::metadata(path).unwrap().gid());
    tree.own(STRANGER).unwrap();
    assert_eq!(owner(&place.path().join("tree/member/wal/log")), STRANGER);
    assert_eq!((owner(&outside), owner(&outside.join("secret"))), ((0, 0), (0, 0)));
    let second = place.path().join("tree/member/wal/second");
    fs::hard_link(outside.join("secret"), &second).unwrap();
    let member = tree.below(&["member", "wal"]).unwrap();
    for fault in [tree.own(STRANGER).unwrap_err(), member.file("second").unwrap_err()] {
        assert!(fault.kind == OpErrorKind::BadRequest && fault.what.contains("2 names"), "{fault:?}");
    }
    assert_eq!(owner(&second), (0, 0));
    // A file of the owner may have any number of names.
    chown(&second, Some(STRANGER.0), Some(STRANGER.1)).unwrap();
    tree.own(STRANGER).unwrap();
    assert!(member.file("second").unwrap().is_some());
}

#[test]
fn a_path_follows_only_hactls_own_links() {
    let (place, outside, _) = linked();
    let link = place.path().join("way");
    symlink("outside/../outside", &link).unwrap();
    let inside = Tree::open(&link.join("new/and/deeper")).unwrap();
    assert!(inside.is_none());
    Tree::made(&link.join("new/and/deeper")).unwrap();
    assert!(outside.join("new/and/deeper").is_dir());
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::lchown(&link, Some(STRANGER.0), Some(STRANGER.1)).unwrap();
        let fault = Tree::open(&link.join("new")).unwrap_err();
        assert!(fault.what.contains("a link that user 54321 made"), "{fault:?}");
        assert!(Tree::made(&link.join("other")).is_err());
        assert!(!outside.join("other").exists());
    }
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_block() {
    let (place, _, tree) = linked();
    let at = place.path().join("tree/db");
    let made = std::process::Command::new("mkfifo").arg(&at).status().unwrap();
    assert!(made.success());
    assert!(tree.file("db").unwrap_err().what.contains("not a regular file"));
    tree.sync().unwrap_err();
    tree.clear("db").unwrap();
    assert!(!at.exists());
}

#[test]
fn files_created_in_a_tree_belong_to_root_alone_and_replace_existing_ones() {
    let (place, outside, tree) = linked();
    symlink(outside.join("secret"), place.path().join("tree/etcd.log")).unwrap();
    io::Write::write_all(&mut tree.fresh_file("etcd.log").unwrap(), b"said").unwrap();
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    symlink(&outside, place.path().join("tree/work")).unwrap();
    let work = tree.fresh("work").unwrap();
    assert_eq!(fs::metadata(work.anchor()).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2, "nothing was made there");
}

#[test]
fn a_full_disk_under_etcds_files_is_a_full_disk_with_the_path_that_users_know() {
    let (place, _, tree) = linked();
    let path = tree.anchor().join("member/snap/db");
    let shown = place.path().join("tree/member/snap/db").display().to_string();
    for full in [Errno::NOSPC, Errno::DQUOT] {
        let fault = tree.words(&DiskError::Write { path: path.clone(), source: full.into() });
        assert_eq!(fault.kind, OpErrorKind::DiskFull);
        assert!(fault.what.contains(&format!("for {shown}:")), "{}", fault.what);
    }
    let other = [
        DiskError::Write { path: path.clone(), source: Errno::IO.into() },
        DiskError::Io { path: path.clone(), source: Errno::NOSPC.into() },
        DiskError::Damaged { path, at: 16, what: "a page" },
    ];
    for error in other {
        let fault = tree.words(&error);
        assert_eq!(fault.kind, OpErrorKind::Failed, "{error}");
        assert!(fault.what.contains(&shown) && !fault.what.contains("/proc/"), "{}", fault.what);
    }
}

#[test]
fn a_tree_reports_missing_space_with_its_path() {
    let (place, _, tree) = linked();
    tree.ensure_space(1).unwrap();
    let fault = tree.ensure_space(u64::MAX).unwrap_err();
    assert_eq!(fault.kind, OpErrorKind::DiskFull);
    assert!(fault.what.contains(&place.path().join("tree").display().to_string()), "{}", fault.what);
}
