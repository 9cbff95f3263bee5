//! One client of several API servers: it asks one until that does not answer, and then the next.
//!
//! In: a client of each. Out: a [`Client`]. A request that had no answer fails, as with one server: its sender
//! knows whether it may be sent again.

use super::Client;
use super::client::{Answer, Chunks, Http, Request};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A request that is given up after this time has waited for a server that is frozen or cut off.
const SLOW: Duration = Duration::from_secs(2);

struct Servers {
    all: Vec<Client>,
    current: AtomicUsize,
}

/// A request under way. Without an answer, the next server is asked from then on.
struct Asked<'a> {
    servers: &'a Servers,
    at: usize,
    begun: Instant,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.begun.elapsed() >= SLOW {
            self.servers.skip(self.at);
        }
    }
}

impl Servers {
    fn ask(&self) -> (Asked<'_>, Client) {
        let at = self.current.load(Ordering::Relaxed);
        let asked = Asked { servers: self, at, begun: Instant::now(), is_answered: false };
        (asked, self.all[at % self.all.len()].clone())
    }

    /// The next one is asked from now on, unless another request has found out the same before.
    fn skip(&self, at: usize) {
        let _ = self.current.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Asked<'_> {
    fn answered<T>(mut self, answer: Result<T, String>) -> Result<T, String> {
        self.is_answered = true;
        if answer.is_err() {
            self.servers.skip(self.at);
        }
        answer
    }
}

impl Http for Servers {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        let (asked, client) = self.ask();
        Box::pin(async move { asked.answered(client.http().send(request).await) })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        let (asked, client) = self.ask();
        Box::pin(async move { asked.answered(client.http().stream(request).await) })
    }
}

impl Client {
    /// A client of these API servers, the first one preferred; `None` without any.
    pub fn of_servers(all: Vec<Self>) -> Option<Self> {
        (!all.is_empty()).then(|| Self::over(Arc::new(Servers { all, current: AtomicUsize::new(0) })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::ObjectRef;
    use serde_json::json;
    use std::time::Duration;
    use tokio::time::Instant;

    /// How a server is.
    #[derive(Clone, Copy)]
    enum Is {
        Down,
        Frozen,
        Well,
    }

    /// Answers with its name.
    struct Named(&'static str, Is);

    impl Http for Named {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Answer, String>> {
            let (name, is) = (self.0, self.1);
            Box::pin(async move {
                match is {
                    Is::Down => Err("connection refused".to_owned()),
                    Is::Frozen => std::future::pending().await,
                    Is::Well => {
                        let body = json!({"name": name}).to_string().into_bytes();
                        Ok(Answer { status: 200, retry_after_s: None, body })
                    }
                }
            })
        }
        fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
            Box::pin(async { Err("no watches here".to_owned()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_down_or_frozen_is_left_for_the_next_one() {
        let all = [Named("a", Is::Down), Named("b", Is::Frozen), Named("c", Is::Well), Named("d", Is::Well)];
        let client = Client::of_servers(all.map(|one| Client::over(Arc::new(one))).into()).expect("there are some");
        let node = ObjectRef::node(&"cp1".parse().unwrap());
        let get = async || client.get(&node, Instant::now() + Duration::from_secs(5)).await;
        assert!(get().await.is_err(), "b is asked, and does not answer");
        for _ in 0..3 {
            assert_eq!(get().await.unwrap().unwrap()["name"], "c");
        }
    }

    #[test]
    fn without_servers_there_is_no_client() {
        assert!(Client::of_servers(Vec::new()).is_none());
    }
}
