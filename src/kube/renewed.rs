//! A client whose credential is issued again before it expires, for work that lasts longer than a credential.
//!
//! In: what makes a client with a fresh credential. Out: a [`Client`]. Nothing is stored.

use super::client::{Answer, Chunks, Http, Request};
use super::{Client, KubeError};
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

struct Renewed<F> {
    make: F,
    every: Duration,
    current: Mutex<(Client, Instant)>,
}

impl<F: Fn() -> Result<Client, KubeError>> Renewed<F> {
    fn current(&self) -> Client {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.1.elapsed() >= self.every {
            // Without another one, the API server says what is wrong with this one.
            if let Ok(client) = (self.make)() {
                *current = (client, Instant::now());
            }
        }
        current.0.clone()
    }
}

impl<F: Fn() -> Result<Client, KubeError> + Send + Sync> Http for Renewed<F> {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
        let client = self.current();
        Box::pin(async move { client.http().send(request).await })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
        let client = self.current();
        Box::pin(async move { client.http().stream(request).await })
    }
}

impl Client {
    /// A client that is made again after this time.
    ///
    /// # Errors
    /// The first one cannot be made.
    pub fn renewed(
        every: Duration,
        make: impl Fn() -> Result<Self, KubeError> + Send + Sync + 'static,
    ) -> Result<Self, KubeError> {
        let current = Mutex::new((make()?, Instant::now()));
        Ok(Self::over(Arc::new(Renewed { make, every, current })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Numbered(u32);

    impl Http for Numbered {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Answer, String>> {
            let body = self.0.to_string().into_bytes();
            Box::pin(async move { Ok(Answer { status: 200, retry_after_s: None, body }) })
        }
        fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
            Box::pin(async { Err("no watches here".to_owned()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_made_again_after_its_time_and_kept_if_there_is_no_other() {
        let made = AtomicU32::new(0);
        let make = move || match made.fetch_add(1, Ordering::Relaxed) {
            2 => Err(KubeError::Missing { what: "the key".to_owned() }),
            number => Ok(Client::over(Arc::new(Numbered(number)))),
        };
        let client = Client::renewed(Duration::from_secs(60), make).expect("the first one");
        let answered = async || client.raw(reqwest::Method::GET, "/", Instant::now() + Duration::from_secs(1)).await;
        let mut seen = Vec::new();
        for _ in 0..6 {
            seen.push(answered().await.expect("an answer").as_u64());
            tokio::time::sleep(Duration::from_secs(40)).await;
        }
        assert_eq!(seen, [Some(0), Some(0), Some(1), Some(1), Some(1), Some(3)]);
    }
}
