//! The built binary as `hactl host`: it finds and reads copies of snapshots in a process of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hactl::model::blob::SnapshotBlob;
use hactl::model::names::Digest;
use hactl::model::secret::Secret;
use hactl::model::snapshot::{Manifest, Point, Proof, SCHEMA, by_name};
use hactl::protocol::{CopiesAsk, Op, Reply};
use hactl::snapshot::{Recipients, Writer, new_identity, public_of};
use hactl::transport::{Agent as _, Machine, Payload};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "lab-20261122T060000000Z-cp1.hactl";

fn write_snapshot(at: &Path) {
    let to = Recipients::parse(&public_of(&new_identity()).expect("just made")).expect("a key");
    let mut writer = Writer::begin(File::create(at).expect("a file"), &to).expect("it can be written");
    writer.write_all(&vec![7; 70_000]).expect("it can be written");
    let state = to.text(&Secret::new("keys".to_owned())).expect("memory");
    let digest = Digest::of(b"snapshot");
    let manifest = |sealed, state| Manifest {
        schema: SCHEMA,
        cluster: "lab".parse().expect("a name"),
        authority: digest,
        host: "cp1".parse().expect("a name"),
        taken_ms: by_name(NAME).expect("a snapshot's name").taken_ms,
        point: Point { cluster: "abc".into(), term: 2, index: 3, revision: 4, high_water: 5 },
        etcd: "3.6.16".into(),
        hactl: "0.1.0".into(),
        snapshot: SnapshotBlob { digest, size: 1, sent_digest: digest, sent_size: 1 },
        sealed,
        state,
        proof: Proof { keys: 1, hash: 2, restored_ms: 3 },
    };
    writer.end(&state, None, manifest).expect("it can be ended");
}

#[tokio::test]
async fn a_host_finds_a_copy_and_sends_it_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().to_str().expect("letters").to_owned();
    write_snapshot(&folder.path().join(NAME));
    let program = Path::new(env!("CARGO_BIN_EXE_hactl"));
    let machine = Machine::local(&"cp1".parse().expect("a name"), program, &[]).await.expect("it starts");
    let ask = async |ask| machine.call(Op::Copies(ask), Payload::None, Duration::from_secs(30), &|_| {}).await;
    let gone = format!("{directory}/gone");
    let find = CopiesAsk::Find {
        cluster: "lab".parse().expect("a name"),
        authority: None,
        named: None,
        all: false,
        directories: vec![directory.clone(), gone.clone()],
    };
    let Ok(Reply::Copies(found)) = ask(find).await else { panic!("copies were asked for") };
    assert_eq!(found[0].copies[0].bundle.name, NAME);
    assert_eq!(found[1].trouble, Some(format!("{gone} does not exist; check that it is mounted")));
    let read = |from| CopiesAsk::Read { directory: directory.clone(), name: NAME.to_owned(), from };
    let Ok(Reply::Bytes(text)) = ask(read(0)).await else { panic!("bytes were asked for") };
    let whole = std::fs::read(folder.path().join(NAME)).expect("it is there");
    assert!(STANDARD.decode(text).expect("base64") == whole, "every byte of it");
    let Ok(Reply::Bytes(text)) = ask(read(found[0].copies[0].bundle.bytes)).await else { panic!("an end") };
    assert_eq!(text, "");
    let other = CopiesAsk::Read { directory, name: "../other.hactl".to_owned(), from: 0 };
    let refused = ask(other).await.expect_err("it leads out of the directory").to_string();
    assert!(refused.contains("is not the name of a snapshot") || refused.contains("reading a directory"), "{refused}");
}
