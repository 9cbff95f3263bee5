//! The drain rules of a cluster, for one Node.
//!
//! In: a Node's name. Out: its rules, and what could not be read. A cluster that does not serve the kinds has no rules.

use super::{Client, KubeError, ObjectRef};
use crate::model::drain_rule::{API, CLUSTER_KIND, DrainRule, DrainRules, KIND};
use crate::model::names::HostName;
use crate::model::selector::labels_of;
use serde_json::Value;
use tokio::time::Instant;

impl Client {
    /// The rules for the pods of a Node, and a sentence for each rule that cannot be read and so selects nothing.
    ///
    /// # Errors
    /// See [`KubeError`].
    pub async fn drain_rules(&self, host: &HostName, until: Instant) -> Result<(DrainRules, Vec<String>), KubeError> {
        let (of_cluster, of_namespaces) =
            tokio::try_join!(self.served(CLUSTER_KIND.1, until), self.served(KIND.1, until))?;
        let (mut rules, mut unread) = (Vec::new(), Vec::new());
        for object in of_cluster.iter().chain(&of_namespaces) {
            match DrainRule::of(object) {
                Ok(rule) => rules.push(rule),
                Err(why) => unread.push(format!("{why}; it selects no pods")),
            }
        }
        if rules.is_empty() {
            return Ok((DrainRules::default(), unread));
        }
        let node = self.get(&ObjectRef::node(host), until).await?.unwrap_or(Value::Null);
        let rules = DrainRules::of(rules, &labels_of(&node));
        if !rules.ask_for_namespaces() {
            return Ok((rules, unread));
        }
        let namespaces = self.list("/api/v1/namespaces", "", until).await?;
        let name = |object: &Value| Some(object.pointer("/metadata/name")?.as_str()?.to_owned());
        let labels = namespaces.iter().filter_map(|object| Some((name(object)?, labels_of(object)))).collect();
        Ok((rules.with_namespaces(labels), unread))
    }

    /// The objects of one of the kinds; none if the API server does not serve it.
    async fn served(&self, plural: &str, until: Instant) -> Result<Vec<Value>, KubeError> {
        match self.list(&format!("/apis/{API}/{plural}"), "", until).await {
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            found => found,
        }
    }
}
