//! Lock, fencing, order, and broken or hostile streams.

use super::*;
use crate::model::facts::ClusterId;
use crate::model::names::Digest;
use crate::protocol::{EtcdAsk, LARGEST_FRAME, ObserveAsk, OpErrorKind, WaitCondition};
use tokio::io::AsyncWriteExt;

fn cluster_id(name: &str) -> Op {
    Op::WriteClusterId(ClusterId {
        cluster: name.parse().unwrap(),
        ca: Digest::new([7; 32]),
        stages: 0,
        host: None,
        machine: None,
    })
}

#[tokio::test]
async fn only_one_session_has_the_lock_and_it_ends_with_the_session() {
    let place = Place::new();
    let mut first = place.client();
    assert_eq!(first.lock("alice").await, Ok(1));
    assert_eq!(first.lock("alice").await, Ok(1));
    let mut second = place.client();
    let (by, since) = second.lock("bob").await.unwrap_err();
    assert!(by == "alice" && since.contains('T'), "{by} {since}");
    first.close().await.unwrap();
    assert_eq!(second.lock("bob").await, Ok(2));
}

#[tokio::test]
async fn a_lock_that_is_given_back_is_free_at_once_and_its_old_holder_changes_nothing_more() {
    let place = Place::new();
    let (mut first, mut second) = (place.client(), place.client());
    first.lock("alice").await.unwrap();
    second.lock("bob").await.unwrap_err();
    assert!(matches!(first.ask(Op::Unlock).await, Ok(Reply::Done)));
    assert_eq!(second.lock("bob").await, Ok(2));
    let late = first.ask(cluster_id("lab")).await.unwrap_err();
    assert_eq!(late.kind, OpErrorKind::Fenced);
}

#[tokio::test]
async fn a_run_that_lost_the_lock_is_fenced_on_every_line() {
    let place = Place::new();
    let mut holder = place.client();
    let mut other_line = place.client();
    assert_eq!(other_line.ask(cluster_id("lab")).await.unwrap_err().kind, OpErrorKind::Fenced);
    other_line.epoch = holder.lock("alice").await.unwrap();
    assert!(matches!(other_line.ask(cluster_id("lab")).await, Ok(Reply::Done)));
    holder.close().await.unwrap();
    let mut next = place.client();
    next.lock("bob").await.unwrap();
    let fault = other_line.ask(cluster_id("lab")).await.unwrap_err();
    assert!(fault.kind == OpErrorKind::Fenced && fault.what.contains("bob"), "{fault:?}");
    assert!(matches!(next.ask(cluster_id("lab")).await, Ok(Reply::Done)));
}

#[tokio::test]
async fn requests_are_answered_in_order_and_pings_not_at_all() {
    let place = Place::new();
    let mut client = place.locked().await;
    let first = client.send(cluster_id("lab")).await;
    write_json(&mut client.to, &Request { id: 99, epoch: 0, op: None }).await.unwrap();
    let second = client.send(cluster_id("other")).await;
    assert!(client.answer(first).await.is_ok());
    assert_eq!(client.answer(second).await.unwrap_err().kind, OpErrorKind::BadRequest);
}

#[tokio::test]
async fn the_cluster_id_of_another_cluster_is_never_overwritten_and_is_observed() {
    let place = Place::new();
    let mut client = place.locked().await;
    client.ask(cluster_id("lab")).await.unwrap();
    client.ask(cluster_id("other")).await.unwrap_err();
    let Reply::Facts(facts) = client.ask(Op::Observe(Box::default())).await.unwrap() else { panic!() };
    assert_eq!(facts.cluster_id.unwrap().cluster.as_str(), "lab");
    place.write("/var/lib/hactl/cluster.json", "{");
    assert!(client.ask(Op::Observe(Box::<ObserveAsk>::default())).await.unwrap_err().what.contains("cluster.json"));
}

#[tokio::test]
async fn foreign_greedy_and_stray_bytes_end_the_session_with_a_reason() {
    let greedy = [&u32::try_from(LARGEST_FRAME + 1).unwrap().to_be_bytes()[..], b"J"].concat();
    for (bytes, reason) in [
        (b"Last login: today".as_slice(), "Frame"),
        (&greedy, "TooLarge"),
        (b"\0\0\0\x02J{}", "NotARequest"),
        (b"\0\0\0\x01Bx", "StrayPiece"),
        (b"\0\0\0\0E", "StrayPiece"),
    ] {
        let place = Place::new();
        let mut client = place.client();
        client.to.write_all(bytes).await.unwrap();
        let ended = timeout(Duration::from_secs(5), &mut client.serving).await.expect("it goes on").unwrap();
        let error = format!("{:?}", ended.unwrap_err());
        assert!(error.contains(reason), "{error} instead of {reason}");
    }
}

#[tokio::test]
async fn a_flood_of_requests_ends_the_session_instead_of_filling_memory() {
    let place = Place::new();
    let mut client = place.client();
    let (mut from, mut to) = (client.from, client.to);
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = read_frame(&mut from).await {} });
    let flood = tokio::spawn(async move {
        let mut sent = 0;
        let ask = || Request { id: 1, epoch: 0, op: Some(Op::Observe(Box::default())) };
        while sent < 200_000 && write_json(&mut to, &ask()).await.is_ok() {
            sent += 1;
        }
    });
    let ended = timeout(Duration::from_secs(60), &mut client.serving).await.expect("it goes on").unwrap();
    assert!(matches!(ended, Err(ServeError::TooMany)), "{ended:?}");
    flood.await.unwrap();
    reading.await.unwrap();
}

#[tokio::test]
async fn a_program_that_runs_ends_with_the_stream() {
    let place = Place::new();
    let mut client = place.locked().await;
    let pid_file = place.at("/pid");
    let script = format!("echo $$ > {}; sleep 100", pid_file.display());
    let put = crate::protocol::FilePut {
        path: "/etc/x".to_owned(),
        mode: 0o644,
        owner: me(),
        content: "new".to_owned(),
        check: Some(vec!["sh".to_owned(), "-c".to_owned(), script]),
    };
    client.send(Op::WriteFiles { files: vec![put], remove: vec![], keep: None }).await;
    let pid = loop {
        match std::fs::read_to_string(&pid_file) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    client.close().await.unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    timeout(Duration::from_secs(5), async {
        while !state().is_empty() && !state().contains(") Z") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the program outlived its stream");
    assert_eq!(place.list("/etc"), Vec::<String>::new());
}

#[tokio::test]
async fn heartbeats_are_sent_unrequested_and_name_the_awaited_condition() {
    let place = Place::new();
    let mut client = place.client();
    let file = "/nowhere".to_owned();
    let url = "https://127.0.0.1:1".to_owned();
    let ask = EtcdAsk { url, data_dir: file.clone(), ca: file.clone(), cert: file.clone(), key: file };
    let condition = WaitCondition::EtcdQuorum(ask);
    let id = client.send(Op::Await { condition, within_ms: 2500 }).await;
    let mut received = Vec::new();
    let fault = loop {
        let Some(Frame::Json(text)) = read_frame(&mut client.from).await.unwrap() else { panic!() };
        match serde_json::from_slice(&text).unwrap() {
            Response::Heartbeat { id, on } => received.push((id, on)),
            Response::Answer { outcome, .. } => break outcome.unwrap_err(),
        }
    };
    assert!(received.iter().any(|(of, on)| *of == id && on.contains("etcd to have a quorum")), "{received:?}");
    assert!(fault.kind == OpErrorKind::TimedOut && fault.what.contains("/nowhere"), "{fault:?}");
}
