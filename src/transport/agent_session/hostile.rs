//! An agent session with hostile peers: an answer or an error comes back, within the timeout, and nothing panics.

use super::*;
use crate::mutate;
use crate::protocol::LARGEST_FRAME;
use futures::StreamExt as _;
use tokio::io::duplex;

/// A short timeout for missing heartbeats.
const TIMEOUT: Duration = Duration::from_millis(300);

fn frame(kind: u8, payload: &str) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], &[kind], payload.as_bytes()].concat()
}

fn replies() -> Vec<Vec<u8>> {
    let good: Vec<Vec<u8>> = [
        r#"{"Heartbeat":{"id":1,"on":"etcd"}}"#,
        r#"{"Answer":{"id":1,"outcome":{"Ok":{"Lines":["a","b"]}}}}"#,
        r#"{"Answer":{"id":1,"outcome":{"Ok":"Done"}}}"#,
        r#"{"Answer":{"id":1,"outcome":{"Ok":{"Wanted":{"from":0}}}}}"#,
        r#"{"Answer":{"id":1,"outcome":{"Ok":{"Locked":{"epoch":18446744073709551615}}}}}"#,
        r#"{"Answer":{"id":2,"outcome":{"Ok":"Connected"}}}"#,
        r#"{"Answer":{"id":1,"outcome":{"Err":{"kind":"disk-full","what":"no space","tail":["x"]}}}}"#,
    ]
    .iter()
    .map(|text| frame(b'J', text))
    .collect();
    [good.clone(), vec![good.concat(), frame(b'E', ""), frame(b'B', "piece"), b"Last login: today\r\n".to_vec()]]
        .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_whatever_a_host_sends_and_only_an_answer_keeps_the_session_usable() {
    let good = replies();
    let words = ["\0\0\0\u{2}J{}", "Heartbeat", "Answer", "\"id\":1", "\"Ok\":", "\"Done\"", "\u{1}\0\0\0J", "null"];
    let all = (0..1500).map(|case| one(case, &good, &words));
    // Many at a time: each spends most of its time waiting for the timeout.
    futures::stream::iter(all).buffer_unordered(100).collect::<Vec<()>>().await;
}

async fn one(case: u64, good: &[Vec<u8>], words: &[&str]) {
    let mut dice = crate::Dice::new(case);
    let said = mutate::damaged(&mut dice, good, words);
    let stays = dice.below(8) == 0;
    let (near, mut far) = duplex(64 << 10);
    let (reader, writer) = tokio::io::split(near);
    let wire = Wire { reader: Box::new(reader), writer: Box::new(writer), exit_report: ExitReport::default() };
    let mut line = AgentSession::with_patience(wire, TIMEOUT);
    let host = async move {
        // A session that has ended reads no further.
        let _ = far.write_all(&said).await;
        if stays {
            tokio::time::sleep(TIMEOUT * 3).await;
        }
    };
    let call = line.call(0, Op::PruneBundles, &Payload::None, &|_| {});
    let both = async { tokio::join!(host, call).1 };
    let outcome = tokio::time::timeout(Duration::from_secs(30), both).await;
    match outcome.unwrap_or_else(|_| panic!("case {case} hangs")) {
        Ok(_) | Err(HostError::Op(_)) => {}
        Err(error) => {
            assert!(!line.usable(), "case {case}: after {error} the session must not be used again");
            let words = error.to_string();
            assert!(words.len() < 4000 && !words.contains('\u{1b}'), "case {case}: {words:?}");
        }
    }
}

#[tokio::test]
async fn a_claim_of_the_largest_frame_costs_nothing_until_it_arrives() {
    let claim = [&u32::try_from(LARGEST_FRAME).unwrap().to_be_bytes()[..], b"J{"].concat();
    let mut lines = Vec::new();
    for _ in 0..64 {
        let (near, mut far) = duplex(1 << 10);
        let (reader, writer) = tokio::io::split(near);
        far.write_all(&claim).await.unwrap();
        let wire = Wire { reader: Box::new(reader), writer: Box::new(writer), exit_report: ExitReport::default() };
        lines.push((AgentSession::with_patience(wire, TIMEOUT), far));
    }
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = resident();
    tokio::time::sleep(TIMEOUT / 3).await;
    // 64 claims of 16 MiB are a gibibyte; other tests of this process allocate their own meanwhile.
    assert!(resident() < before + (400 << 10), "memory was allocated for claimed sizes");
    drop(lines);
}
