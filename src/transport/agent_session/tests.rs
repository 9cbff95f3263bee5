//! An agent session with well-behaved peers and others.

use super::*;
use crate::model::names::Digest;
use crate::model::target::{Part, Place};
use crate::protocol::OpErrorKind;
use crate::protocol::frame::write_piece;
use std::sync::Mutex as Shared;
use tokio::io::{DuplexStream, duplex};

const QUIET: Duration = Duration::from_secs(5);

/// A session and its other side, for the test to play.
fn line() -> (AgentSession, DuplexStream, ExitReport) {
    let (near, far) = duplex(1 << 20);
    let (reader, writer) = tokio::io::split(near);
    let exit_report = ExitReport::default();
    let wire = Wire { reader: Box::new(reader), writer: Box::new(writer), exit_report: exit_report.clone() };
    (AgentSession::with_patience(wire, QUIET), far, exit_report)
}

fn nobody(_: Progress) {}

async fn ask(line: &mut AgentSession) -> Result<Reply, HostError> {
    line.call(7, Op::PruneBundles, &Payload::None, &nobody).await
}

async fn received(far: &mut DuplexStream) -> Request {
    match read_frame(far).await.unwrap() {
        Some(Frame::Json(text)) => serde_json::from_slice(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn say(far: &mut DuplexStream, id: u64, outcome: Result<Reply, OpError>) {
    write_json(far, &Response::Answer { id, outcome }).await.unwrap();
}

fn fault() -> OpError {
    OpError { kind: OpErrorKind::DiskFull, what: "no space left in /var".into(), tail: vec![] }
}

fn part(size: u64) -> Op {
    Op::Deliver(Part {
        name: "kubelet".into(),
        version: "1.36.3".into(),
        digest: Digest::new([1; 32]),
        size,
        sent_digest: Digest::new([0; 32]),
        sent_size: size,
        place: Place::Program,
    })
}

#[tokio::test]
async fn a_request_carries_the_epoch_and_its_answer_comes_back() {
    let (mut line, mut far, _) = line();
    let host = async {
        let request = received(&mut far).await;
        assert_eq!((request.id, request.epoch), (1, 7));
        say(&mut far, 1, Ok(Reply::Lines(vec!["one".into()]))).await;
        assert_eq!(received(&mut far).await.id, 2);
        say(&mut far, 2, Err(fault())).await;
    };
    let us = async {
        assert!(matches!(ask(&mut line).await, Ok(Reply::Lines(lines)) if lines == ["one"]));
        assert!(matches!(ask(&mut line).await, Err(HostError::Op(f)) if f == fault()));
        assert!(line.usable(), "a fault is an answer like any other");
    };
    tokio::join!(host, us);
}

#[tokio::test]
async fn heartbeats_report_each_awaited_condition_once() {
    let (mut line, mut far, _) = line();
    let said = Shared::new(Vec::new());
    let note = |progress| {
        if let Progress::Waiting(on) = progress {
            said.lock().unwrap().push(on);
        }
    };
    let host = async {
        received(&mut far).await;
        for (id, on) in [(1, "etcd"), (1, "etcd"), (0, "nothing of ours"), (1, "a\u{1b}[31mlog")] {
            write_json(&mut far, &Response::Heartbeat { id, on: on.into() }).await.unwrap();
            // One at a time: only the newest beat is kept.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        say(&mut far, 1, Ok(Reply::Done)).await;
    };
    let us = line.call(0, Op::PruneBundles, &Payload::None, &note);
    assert!(matches!(tokio::join!(host, us).1, Ok(Reply::Done)));
    assert_eq!(*said.lock().unwrap(), ["etcd", "a [31mlog"]);
}

#[tokio::test]
async fn a_banner_of_a_shell_is_quoted_and_cut_to_200_bytes() {
    for (banner, quote) in [
        (
            "Welcome to \x1b[1mcp1\x1b[0m!\r\nLast login: today\r\n".to_owned(),
            "Welcome to [1mcp1 [0m! Last login: today".to_owned(),
        ),
        ("x".repeat(5000), "x".repeat(200)),
        ("hi\n".to_owned(), "hi".to_owned()),
    ] {
        let (mut line, mut far, _) = line();
        far.write_all(banner.as_bytes()).await.unwrap();
        drop(far);
        let Err(HostError::Garbage { first }) = line.greeting().await else { panic!("{banner:?} passed") };
        assert_eq!(first, quote);
        assert!(!line.usable());
    }
}

#[tokio::test]
async fn endless_output_ends_the_line_and_not_our_memory() {
    let (mut line, mut far, _) = line();
    let host = async move { while far.write_all(&[b'y'; 4096]).await.is_ok() {} };
    let us = async {
        assert!(matches!(ask(&mut line).await, Err(HostError::Garbage { first }) if first.len() == 200));
        drop(line);
    };
    tokio::join!(host, us);
}

#[tokio::test]
async fn an_oversized_frame_and_a_frame_without_a_response_get_different_errors() {
    let (mut one, mut far, _) = line();
    far.write_all(b"\x7f\0\0\0J").await.unwrap();
    assert!(matches!(ask(&mut one).await, Err(HostError::TooLarge { length: 0x7f00_0000 })));

    let (mut one, mut far, _) = line();
    far.write_all(b"\0\0\0\x0fJ{\"Surprise\": 1}").await.unwrap();
    assert!(matches!(ask(&mut one).await, Err(HostError::Garbage { first }) if first == "{\"Surprise\": 1}"));

    let (mut one, mut far, _) = line();
    write_piece(&mut far, b"a blob from the host").await.unwrap();
    assert!(matches!(ask(&mut one).await, Err(HostError::Garbage { .. })));
}

#[tokio::test]
async fn an_unresponsive_host_is_noticed_even_while_it_does_not_read() {
    let (near, far) = duplex(64);
    let (reader, writer) = tokio::io::split(near);
    let wire = Wire { reader: Box::new(reader), writer: Box::new(writer), exit_report: ExitReport::default() };
    let mut line = AgentSession::with_patience(wire, Duration::from_millis(100));
    let op = Op::StopUnits { units: vec!["a-unit-with-a-name-longer-than-the-pipe.service".parse().unwrap(); 10] };
    assert!(matches!(line.call(0, op, &Payload::None, &nobody).await, Err(HostError::Silent { .. })));
    drop(far);
}

#[tokio::test]
async fn an_unrequested_answer_ends_the_session() {
    let (mut line, mut far, _) = line();
    let host = async {
        let request = received(&mut far).await;
        say(&mut far, request.id + 1, Ok(Reply::Done)).await;
    };
    let ((), outcome) = tokio::join!(host, ask(&mut line));
    assert!(matches!(outcome, Err(HostError::Misanswered { .. })));
    assert!(!line.usable());
}

#[tokio::test]
async fn a_process_that_dies_in_a_call_is_lost_with_its_last_words() {
    let (mut line, mut far, exit_report) = line();
    let host = async {
        received(&mut far).await;
        exit_report.stderr(b"panicked at the worst moment\n");
        exit_report.exit(Exit::Code(101));
        drop(far);
    };
    let ((), outcome) = tokio::join!(host, ask(&mut line));
    let Err(HostError::Lost { why }) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("101") && why.contains("worst moment"), "{why}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_end_without_a_word_and_not_garbage() {
    let (mut line, far, exit_report) = line();
    exit_report.stderr(b"sh: 1: /var/lib/hactl/bin/x/hactl: not found");
    exit_report.exit(Exit::Code(127));
    drop(far);
    let greeting = line.greeting().await.unwrap();
    assert!(matches!(greeting, Greeting::Ended { exit: Some(Exit::Code(127)), said } if said.contains("not found")));
}

#[tokio::test]
async fn a_call_that_is_dropped_spoils_its_line() {
    let (mut line, mut far, _) = line();
    assert!(tokio::time::timeout(Duration::from_millis(50), ask(&mut line)).await.is_err());
    assert!(!line.usable());
    // The session ends the stream, which ends the operation on the host.
    drop(line);
    received(&mut far).await;
    assert_eq!(read_frame(&mut far).await.unwrap(), None);
}

#[tokio::test]
async fn a_blob_is_sent_from_where_the_host_wants_it_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blob");
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let (mut line, mut far, _) = line();
    let sent = Shared::new(Vec::new());
    let note = |progress| sent.lock().unwrap().push(progress);
    let host = async {
        let request = received(&mut far).await;
        say(&mut far, request.id, Ok(Reply::Wanted { from: 1000 })).await;
        let mut got = Vec::new();
        while let Some(Frame::Piece(piece)) = read_frame(&mut far).await.unwrap() {
            got.extend(piece);
        }
        assert_eq!(got, content[1000..]);
        say(&mut far, request.id, Ok(Reply::Done)).await;
    };
    let payload = Payload::Blob(path);
    let us = line.call(0, part(300_000), &payload, &note);
    assert!(matches!(tokio::join!(host, us).1, Ok(Reply::Done)));
    assert_eq!(sent.lock().unwrap().last(), Some(&Progress::Sent { done: 300_000, total: 300_000 }));
    assert!(line.usable());
}

#[tokio::test]
async fn a_fault_in_the_middle_of_a_blob_stops_the_sending() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blob");
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    let (mut line, mut far, _) = line();
    let host = async {
        let request = received(&mut far).await;
        say(&mut far, request.id, Ok(Reply::Wanted { from: 0 })).await;
        read_frame(&mut far).await.unwrap();
        say(&mut far, request.id, Err(fault())).await;
    };
    let payload = Payload::Blob(path);
    let ((), outcome) = tokio::join!(host, line.call(0, part(8 << 20), &payload, &nobody));
    assert!(matches!(outcome, Err(HostError::Op(f)) if f.kind == OpErrorKind::DiskFull));
    assert!(!line.usable());
}

#[tokio::test]
async fn a_blob_wanted_without_need_or_beyond_its_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blob");
    std::fs::write(&path, b"short").unwrap();
    for payload in [Payload::None, Payload::Blob(path)] {
        let (mut line, mut far, _) = line();
        let host = async {
            let request = received(&mut far).await;
            say(&mut far, request.id, Ok(Reply::Wanted { from: 6 })).await;
        };
        let ((), outcome) = tokio::join!(host, line.call(0, part(5), &payload, &nobody));
        assert!(matches!(outcome, Err(HostError::Misanswered { .. })), "{outcome:?}");
        assert!(!line.usable());
    }
}
