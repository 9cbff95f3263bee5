//! The stream as a connection to a port of this host, and to nothing else.

use super::*;
use crate::protocol::OpErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn listening() -> (TcpListener, u16) {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A session whose stream is a connection, and the other end of the connection.
async fn relayed(place: &Place) -> (Client, u64, TcpStream) {
    let (listener, port) = listening().await;
    let mut client = place.client();
    let id = client.send(Op::Relay { to: HERE, port }).await;
    assert!(matches!(client.answer(id).await, Ok(Reply::Connected)));
    (client, id, listener.accept().await.unwrap().0)
}

/// The next frame that is not a message.
async fn brought(client: &mut Client) -> Frame {
    loop {
        match timeout(Duration::from_secs(10), read_frame(&mut client.from)).await.expect("nothing came").unwrap() {
            Some(Frame::Json(text)) => {
                let response: Response = serde_json::from_slice(&text).unwrap();
                assert!(matches!(response, Response::Heartbeat { .. }), "{response:?}");
            }
            other => return other.expect("the session ended"),
        }
    }
}

#[tokio::test]
async fn a_relay_carries_both_directions_until_both_ends_are_done() {
    let place = Place::new();
    let (mut client, id, mut far) = relayed(&place).await;
    client.piece(b"question").await;
    client.end().await;
    let mut received = String::new();
    far.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "question", "the end of one direction is passed on, and the other stays open");
    far.write_all(b"answer").await.unwrap();
    drop(far);
    assert_eq!(brought(&mut client).await, Frame::Piece(b"answer".to_vec()));
    assert_eq!(brought(&mut client).await, Frame::End);
    assert!(matches!(client.answer(id).await, Ok(Reply::Done)));
    // Afterwards it is a session like any other.
    assert!(matches!(client.ask(Op::Observe(Box::default())).await, Ok(Reply::Facts(_))));
}

#[tokio::test]
async fn nothing_but_this_host_is_ever_dialled() {
    let place = Place::new();
    let mut client = place.client();
    for foreign in ["192.0.2.1", "169.254.169.254", "8.8.8.8", "2001:db8::1"] {
        let fault = client.ask(Op::Relay { to: foreign.parse().unwrap(), port: 80 }).await.unwrap_err();
        assert!(
            fault.kind == OpErrorKind::BadRequest && fault.what.contains("not an address of this host"),
            "{fault:?}"
        );
    }
    let (listener, port) = listening().await;
    drop(listener);
    let fault = client.ask(Op::Relay { to: HERE, port }).await.unwrap_err();
    assert!(fault.what.contains(&format!("port {port}")), "{fault:?}");
    // A fault is an answer, and no pieces are expected after it.
    client.piece(b"stray").await;
    let ended = timeout(Duration::from_secs(5), &mut client.serving).await.expect("it goes on").unwrap();
    assert!(matches!(ended, Err(ServeError::StrayPiece)), "{ended:?}");
}

#[tokio::test]
async fn a_relay_reports_a_closed_port_and_data_still_in_transit_does_no_harm() {
    let place = Place::new();
    let (mut client, _, far) = relayed(&place).await;
    // Unread data makes the kernel reset the connection.
    client.piece(&[7; 1000]).await;
    far.readable().await.unwrap();
    drop(far);
    let outcome = loop {
        client.piece(&[7; 1000]).await;
        match timeout(Duration::from_secs(10), read_frame(&mut client.from)).await.expect("nothing came").unwrap() {
            Some(Frame::Json(text)) => match serde_json::from_slice(&text).unwrap() {
                Response::Answer { outcome, .. } => break outcome,
                Response::Heartbeat { .. } => {}
            },
            Some(_) => {}
            None => panic!("the session ended"),
        }
    };
    assert!(outcome.unwrap_err().what.contains("broke"));
    client.piece(&[7; 10]).await;
    client.end().await;
    assert!(matches!(client.ask(Op::Observe(Box::default())).await, Ok(Reply::Facts(_))));
}

#[tokio::test]
async fn a_relay_ends_with_its_stream() {
    let place = Place::new();
    let (client, _, mut far) = relayed(&place).await;
    client.close().await.unwrap();
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), far.read_to_end(&mut rest)).await.expect("the connection outlived it").ok();
}
