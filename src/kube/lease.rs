//! A Lease of the API: of several processes, one at a time does a kind of work, in whichever place it runs.
//!
//! In: the name of the Lease, and that of a process. Out: a [`Lease`] that the process renews, or which other process
//! holds it. An expired Lease is recognised by this process's own clock: it was not renewed while we watched.

use super::{Client, KubeError, ObjectRef};
use crate::model::pod::NAMESPACE;
use crate::model::timestamp::parse_rfc3339;
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::time::{Instant, sleep};

/// A Lease that was not renewed for this long may be taken over.
const LASTS: Duration = Duration::from_secs(15);
/// The holder gives up its work this long after it renewed the Lease the last time, before others may take it over.
const GIVES_UP: Duration = Duration::from_secs(10);
/// Between two renewals.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// Between two looks at a Lease that another process may have left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A Lease that this process holds.
#[derive(Debug)]
pub struct Lease {
    place: ObjectRef,
    holder: String,
    renewed: Instant,
    /// Its version as this process wrote it last: nobody else has it while it is the same.
    version: Option<Value>,
}

/// The result of an attempt.
#[derive(Debug)]
pub enum Attempt {
    /// It is held now.
    Taken(Lease),
    /// Another process holds it, and renews it.
    HeldBy(String),
}

/// A Lease as another process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseSeen {
    /// Who holds it.
    pub holder: String,
    /// When it was renewed, by the holder's clock, milliseconds since 1970.
    pub renewed_ms: i64,
}

impl Lease {
    /// Who holds a Lease, or has left it; `None`: it does not exist.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn look(client: &Client, name: &str, until: Instant) -> Result<Option<LeaseSeen>, KubeError> {
        let live = client.get(&place(name), until).await?;
        let text = |field: &str| live.as_ref().and_then(|live| live["spec"][field].as_str());
        Ok(text("holderIdentity").filter(|holder| !holder.is_empty()).map(|holder| LeaseSeen {
            holder: holder.to_owned(),
            renewed_ms: text("renewTime").and_then(parse_rfc3339).unwrap_or(0),
        }))
    }

    /// Takes the Lease. If another process holds it, watches for as long as that would have to renew it.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn take(client: &Client, name: &str, holder: &str, until: Instant) -> Result<Attempt, KubeError> {
        let place = place(name);
        let mut seen: Option<(Value, Instant)> = None;
        loop {
            let live = client.get(&place, until).await?;
            let spec = live.as_ref().map_or(&Value::Null, |live| &live["spec"]);
            let by = spec["holderIdentity"].as_str().unwrap_or_default();
            if !by.is_empty() && by != holder {
                let is_expired = match &seen {
                    Some((before, _)) if before != spec => return Ok(Attempt::HeldBy(by.to_owned())),
                    Some((_, since)) => since.elapsed() >= LASTS,
                    None => {
                        seen = Some((spec.clone(), Instant::now()));
                        false
                    }
                };
                if !is_expired {
                    if Instant::now() >= until {
                        return Ok(Attempt::HeldBy(by.to_owned()));
                    }
                    sleep(LOOK_EVERY).await;
                    continue;
                }
            }
            let begun = Instant::now();
            let result = match &live {
                None => client.create(&object(&place, holder), until).await,
                Some(live) => client.merge(&place, &taken(live, holder), until).await,
            };
            match result {
                Ok(written) => {
                    let version = version(&written);
                    return Ok(Attempt::Taken(Self { place, holder: holder.to_owned(), renewed: begun, version }));
                }
                Err(error) if error.is_conflict() && Instant::now() < until => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Until when the work may write.
    pub fn until(&self) -> Instant {
        self.renewed + GIVES_UP
    }

    /// Renews it, if that is due.
    ///
    /// # Errors
    /// [`KubeError::Missing`]: another process has it. Else it could not be renewed for so long that others may take it
    /// over.
    pub async fn renew(&mut self, client: &Client) -> Result<(), KubeError> {
        let begun = Instant::now();
        if begun.duration_since(self.renewed) < RENEW_EVERY {
            return Ok(());
        }
        match self.renew_once(client, self.until().min(begun + ATTEMPT)).await {
            Ok(written) => {
                (self.renewed, self.version) = (begun, version(&written));
                Ok(())
            }
            Err(error) if Instant::now() < self.until() && !matches!(error, KubeError::Missing { .. }) => {
                // The answer may have been lost.
                self.version = None;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn renew_once(&self, client: &Client, until: Instant) -> Result<Value, KubeError> {
        if let Some(version) = &self.version {
            match client.merge(&self.place, &renewed(version), until).await {
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                outcome => return outcome,
            }
        }
        let live = client.get(&self.place, until).await?;
        let Some(live) = live.filter(|live| live["spec"]["holderIdentity"] == self.holder.as_str()) else {
            return Err(KubeError::Missing { what: format!("{} of this process", self.place) });
        };
        client.merge(&self.place, &renewed(&version(&live).unwrap_or_default()), until).await
    }

    /// Deletes it, so that the next process need not wait.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn release(self, client: &Client) -> Result<(), KubeError> {
        let until = Instant::now() + ATTEMPT;
        let Some(live) = client.get(&self.place, until).await? else { return Ok(()) };
        if live["spec"]["holderIdentity"] != self.holder.as_str() {
            return Ok(());
        }
        let uid = live.pointer("/metadata/uid").and_then(Value::as_str);
        match client.delete_if(&self.place, uid, None, until).await {
            Err(error) if error.is_conflict() => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

fn place(name: &str) -> ObjectRef {
    ObjectRef::new("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), name)
}

fn version(live: &Value) -> Option<Value> {
    live.pointer("/metadata/resourceVersion").cloned()
}

/// The patch of this version of a Lease that renews it.
fn renewed(version: &Value) -> Value {
    json!({"metadata": {"resourceVersion": version}, "spec": {"renewTime": now()}})
}

/// The time as a Lease has it: with six digits of a second, always.
fn now() -> String {
    let shape = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    OffsetDateTime::now_utc().format(&shape).unwrap_or_default()
}

fn held(holder: &str, transitions: u64) -> Value {
    json!({
        "holderIdentity": holder,
        "leaseDurationSeconds": LASTS.as_secs(),
        "acquireTime": now(),
        "renewTime": now(),
        "leaseTransitions": transitions,
    })
}

fn object(place: &ObjectRef, holder: &str) -> Value {
    json!({
        "apiVersion": place.api_version, "kind": place.kind,
        "metadata": {"name": place.name, "namespace": place.namespace},
        "spec": held(holder, 0),
    })
}

/// The patch of this version of a Lease that takes it over.
fn taken(live: &Value, holder: &str) -> Value {
    let transitions = live.pointer("/spec/leaseTransitions").and_then(Value::as_u64).unwrap_or(0);
    json!({
        "metadata": {"resourceVersion": live.pointer("/metadata/resourceVersion")},
        "spec": held(holder, transitions.saturating_add(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Answer, Chunks, Http, Request};
    use futures::future::BoxFuture;
    use std::sync::{Arc, Mutex};

    /// An API server with at most one Lease.
    #[derive(Clone, Default)]
    struct Api(Arc<Mutex<Option<Value>>>);

    impl Api {
        fn client(&self) -> Client {
            Client::over(Arc::new(self.clone()))
        }
        fn holder(&self) -> Value {
            self.0.lock().unwrap().as_ref().map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
        }
        fn answer(&self, request: &Request) -> (u16, Value) {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
            let mut lease = self.0.lock().unwrap();
            let next = lease.as_ref().and_then(|lease| lease["metadata"]["resourceVersion"].as_u64()).unwrap_or(0) + 1;
            match (request.method.as_str(), &mut *lease) {
                ("GET", Some(lease)) => return (200, lease.clone()),
                ("POST", place @ None) => *place = Some(body),
                ("DELETE", place @ Some(_)) => {
                    *place = None;
                    return (200, Value::Null);
                }
                ("PATCH", Some(lease)) => {
                    if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                        return (409, Value::Null);
                    }
                    for (key, value) in body["spec"].as_object().unwrap() {
                        lease["spec"][key] = value.clone();
                    }
                }
                ("POST", Some(_)) => return (409, Value::Null),
                _ => return (404, Value::Null),
            }
            let lease = lease.as_mut().unwrap();
            lease["metadata"]["resourceVersion"] = json!(next);
            (200, lease.clone())
        }
    }

    impl Http for Api {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Answer, String>> {
            let (status, body) = self.answer(&request);
            Box::pin(async move { Ok(Answer { status, retry_after_s: None, body: body.to_string().into_bytes() }) })
        }
        fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
            Box::pin(async { Err("no watches here".to_owned()) })
        }
    }

    async fn take(api: &Api, holder: &str) -> Attempt {
        let until = Instant::now() + Duration::from_secs(60);
        Lease::take(&api.client(), "work", holder, until).await.expect("an answer")
    }

    async fn taken_by(api: &Api, holder: &str) -> Lease {
        match take(api, holder).await {
            Attempt::Taken(lease) => lease,
            Attempt::HeldBy(other) => panic!("{other} holds it"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_process_at_a_time_holds_a_lease() {
        let api = Api::default();
        let mut lease = taken_by(&api, "a").await;
        let client = api.client();
        let renewing = async {
            loop {
                sleep(Duration::from_secs(3)).await;
                lease.renew(&client).await.expect("it is held");
            }
        };
        tokio::select! {
            _ = renewing => unreachable!("it renews for ever"),
            attempt = take(&api, "b") => assert!(matches!(attempt, Attempt::HeldBy(by) if by == "a")),
        }
        assert_eq!(api.holder(), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_given_back_is_free_at_once_and_one_that_is_not_renewed_after_its_time() {
        let api = Api::default();
        taken_by(&api, "a").await.release(&api.client()).await.expect("an answer");
        let begun = Instant::now();
        let mut lease = taken_by(&api, "b").await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        taken_by(&api, "c").await;
        assert!(begun.elapsed() >= LASTS, "{:?}", begun.elapsed());
        let renewed = lease.renew(&api.client()).await;
        assert!(matches!(renewed, Err(KubeError::Missing { .. })), "another process has it");
        lease.release(&api.client()).await.expect("an answer");
        assert_eq!(api.holder(), "c", "it is not the Lease of b that is deleted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_gives_up_its_work_before_others_may_take_it_over() {
        let api = Api::default();
        let mut lease = taken_by(&api, "a").await;
        // No answer is an error that may pass.
        let unreachable = Client::over(Arc::new(Broken));
        sleep(Duration::from_secs(3)).await;
        assert!(lease.renew(&unreachable).await.is_ok());
        sleep(GIVES_UP).await;
        assert!(lease.renew(&unreachable).await.is_err());
        assert!(GIVES_UP + ATTEMPT <= LASTS);
    }

    struct Broken;

    impl Http for Broken {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Answer, String>> {
            Box::pin(async { Err("no route".to_owned()) })
        }
        fn stream(&self, _: Request) -> BoxFuture<'_, Result<(u16, Chunks), String>> {
            Box::pin(async { Err("no route".to_owned()) })
        }
    }
}
