//! Snapshots in object storage: a real S3 server on this machine, and its faults. `cargo test --test storage`; needs
//! root for a disk that is full.

#![allow(
    clippy::print_stdout,
    clippy::type_complexity,
    clippy::format_collect,
    reason = "a suite without a harness prints what it ran"
)]
#![allow(clippy::unwrap_used)]

#[path = "../support/scenarios.rs"]
mod scenarios;
#[path = "../support/served.rs"]
mod served;
#[path = "../support/storage.rs"]
mod storage;
#[path = "../lab/tiny_tls.rs"]
#[allow(dead_code, reason = "the server in it is the lab's")]
mod tiny_tls;

use hactl::model::bucket::{BucketUrl, Storage};
use hactl::model::secret::Secret;
use hactl::snapshot::{Bucket, BucketError, BucketTrouble};
use served::free;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use storage::{LOGIN, ObjectStorage, bucket};
use tiny_tls::TestCa;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NAME: &str = "lab-20261122T134733822Z-cp1.hactl";

struct World {
    at: SocketAddr,
    _server: ObjectStorage,
    ca: TestCa,
    root: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let ca = TestCa::new("object storage");
        let buckets = root.path().join("buckets");
        bucket(&buckets, "backup");
        let (cert, key) = ca.pair(LOCAL);
        let at = free(LOCAL);
        let server = ObjectStorage::start(&buckets, at, (&cert, &key));
        Self { at, _server: server, ca, root }
    }
    fn storage(&self) -> Storage {
        Storage {
            endpoint: Some(format!("https://{}", self.at)),
            region: hactl::model::bucket::REGION.to_owned(),
            key_id: LOGIN.0.to_owned(),
            key: Secret::new(LOGIN.1.to_owned()),
            ca: Some(self.ca.cert.clone()),
            proxy: None,
            no_proxy: String::new(),
        }
    }
    /// A file of this many bytes, each different from its neighbours.
    fn file(&self, bytes: usize) -> PathBuf {
        let at = self.root.path().join(format!("{bytes}.hactl"));
        let text: Vec<u8> =
            (0..bytes).map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 13 & 0xff).unwrap()).collect();
        fs::write(&at, text).unwrap();
        at
    }
}

fn place(text: &str) -> BucketUrl {
    text.parse().unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The error of a failed upload, and how long it took.
fn refused(storage: &Storage, at: &str, file: &Path) -> (BucketError, Duration) {
    let begun = Instant::now();
    let error = run(async { Bucket::open(storage, place(at)).unwrap().put(NAME, file).await }).unwrap_err();
    println!("        {error}");
    let text = error.to_string();
    assert!(!text.contains(storage.key.reveal()), "the error does not show the key: {text}");
    assert!(text.starts_with(at) && text.len() < 400 && !text.contains('\n'), "{text}");
    (error, begun.elapsed())
}

fn there_and_back(world: &World) {
    run(async {
        let bucket = Bucket::open(&world.storage(), place("s3://backup/dr/lab-1")).unwrap();
        // One request; several, the last of them shorter; several whole ones.
        for bytes in [100_000, 20_000_003, 16 << 20] {
            let (file, back) = (world.file(bytes), world.root.path().join("back"));
            bucket.put(NAME, &file).await.unwrap();
            let below = Bucket::open(&world.storage(), place("s3://backup/dr")).unwrap().list().await.unwrap();
            let found: Vec<_> = below.iter().map(|one| (one.url(), one.bytes)).collect();
            assert_eq!(found, [(format!("s3://backup/dr/lab-1/{NAME}"), bytes as u64)]);
            bucket.get(NAME, bytes as u64, &mut File::create(&back).unwrap()).await.unwrap();
            assert!(fs::read(&back).unwrap() == fs::read(&file).unwrap(), "{bytes} bytes come back as they were");
        }
        bucket.remove(NAME).await.unwrap();
        assert_eq!(bucket.list().await.unwrap(), []);
        let other = world.root.path().join("buckets/backup/dr/lab-1/readme.txt");
        fs::create_dir_all(other.parent().unwrap()).unwrap();
        fs::write(&other, "somebody else's").unwrap();
        assert_eq!(bucket.list().await.unwrap(), [], "a file that is no snapshot is not listed");
        fs::remove_file(other).unwrap();
    });
}

fn refusals(world: &World) {
    let file = world.file(100_000);
    let wrong = Storage { key: Secret::new("another-key".to_owned()), ..world.storage() };
    let (error, _) = refused(&wrong, "s3://backup/dr", &file);
    assert_eq!(error.trouble, BucketTrouble::Refused);
    assert!(error.to_string().contains("403 (SignatureDoesNotMatch"), "{error}");
    let stranger = Storage { key_id: "AKSTRANGER".to_owned(), ..world.storage() };
    let (error, _) = refused(&stranger, "s3://backup/dr", &file);
    assert!(error.to_string().contains("No user exists with the provided access key"), "{error}");
    let (error, _) = refused(&world.storage(), "s3://nowhere/dr", &file);
    assert!(error.trouble == BucketTrouble::Missing && error.to_string().contains("no such bucket"), "{error}");
    let missing = run(async {
        let bucket = Bucket::open(&world.storage(), place("s3://backup/dr")).unwrap();
        bucket.claims(NAME).await.unwrap_err()
    });
    assert_eq!(missing.to_string(), format!("s3://backup/dr/{NAME} does not exist"));
}

fn unreachable(world: &World) {
    let file = world.file(100_000);
    let nobody = Storage { endpoint: Some(format!("https://{}", free(LOCAL))), ..world.storage() };
    let (error, took) = refused(&nobody, "s3://backup/dr", &file);
    assert!(error.trouble == BucketTrouble::Dark && error.to_string().contains("Connection refused"), "{error}");
    assert!(took < Duration::from_secs(10), "reported after {took:?}");
    let unknown = Storage { endpoint: Some("https://no-such-name.invalid".to_owned()), ..world.storage() };
    let (error, _) = refused(&unknown, "s3://backup/dr", &file);
    assert_eq!(error.trouble, BucketTrouble::Dark);
    let other = Storage { ca: Some(TestCa::new("somebody else").cert), ..world.storage() };
    let (error, _) = refused(&other, "s3://backup/dr", &file);
    assert!(error.trouble == BucketTrouble::Dark && error.to_string().contains("certificate"), "{error}");
}

fn cut_short(world: &World) {
    let at = world.root.path().join("buckets/backup/cut");
    fs::create_dir_all(&at).unwrap();
    fs::write(at.join(NAME), vec![7; 300_000]).unwrap();
    let error = run(async {
        Bucket::open(&world.storage(), place("s3://backup/cut")).unwrap().claims(NAME).await.unwrap_err()
    });
    assert!(error.to_string().contains("is not complete"), "{error}");
    fs::write(at.join(NAME), "").unwrap();
    let error = run(async {
        Bucket::open(&world.storage(), place("s3://backup/cut")).unwrap().claims(NAME).await.unwrap_err()
    });
    assert!(error.to_string().contains("is not complete"), "{error}");
}

/// A file system of 24 MiB, unmounted when this value is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(&at).status().unwrap();
        assert!(mount.success(), "a small file system can be mounted");
        Self(at)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn full(world: &World) {
    let disk = SmallDisk::new(world.root.path().join("small"));
    bucket(&disk.0, "backup");
    let (cert, key) = world.ca.pair(LOCAL);
    let at = free(LOCAL);
    let server = ObjectStorage::start(&disk.0, at, (&cert, &key));
    let storage = Storage { endpoint: Some(format!("https://{at}")), ..world.storage() };
    let (error, took) = refused(&storage, "s3://backup/dr", &world.file(40_000_000));
    assert!(took < Duration::from_secs(90), "reported after {took:?}");
    assert_eq!(error.trouble, BucketTrouble::Full);
    // The failed upload uses no space: a smaller one fits.
    run(async { Bucket::open(&storage, place("s3://backup/dr")).unwrap().put(NAME, &world.file(12 << 20)).await })
        .unwrap();
    drop(server);
}

fn main() {
    let scenarios: &[scenarios::Scenario<World>] = &[
        ("a snapshot comes back from object storage unchanged, after one request or several", true, there_and_back),
        ("a rejected key and a missing bucket are reported as such", true, refusals),
        ("storage that does not answer or has an untrusted certificate is reported as unreachable", true, unreachable),
        ("a truncated snapshot in object storage is refused", true, cut_short),
        ("full storage is reported as such, and a smaller snapshot fits afterwards", true, full),
    ];
    scenarios::run("storage", World::new(), scenarios);
}
