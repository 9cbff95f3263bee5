//! The user's own manifests in a run: the last add-on, compared with the cluster with hactl's own credential.
//!
//! In: the objects that the inventory lists, and an observation. Out: an add-on of the target, the differences, and the
//! fate of objects that are no longer wanted. The hosts do not do this: their observers may read neither Secrets nor
//! kinds that hactl does not know.

use super::{Authority, Failure, Fleet, api_client};
use crate::execute::ApiClient;
use crate::kube::manifests::{Fate, compare, fates, in_order, marked};
use crate::model::attached::{Attached, UserObject};
use crate::model::desired::Desired;
use crate::model::event::Event;
use crate::model::facts::Facts;
use crate::model::plan::object_in_words;
use crate::model::target::{Addon, MANIFESTS, NODES, Target, identity, object_key};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of the API for all of them.
const WITHIN: Duration = Duration::from_secs(30);

/// Labels the objects of one of hactl's own add-ons. Nodes have their own record.
pub fn mark(addon: &mut Addon) {
    if addon.name != NODES {
        addon.objects = std::mem::take(&mut addon.objects).into_iter().map(marked).collect();
    }
}

/// The add-on of the user's objects; none without any.
pub fn addon(attached: &Attached) -> Option<Addon> {
    let mut objects: Vec<_> = attached.manifests.iter().map(|object| marked(object.object.clone())).collect();
    in_order(&mut objects);
    let some = !objects.is_empty();
    some.then(|| Addon { name: MANIFESTS.to_owned(), objects, needed_for_ready: false })
}

/// Objects of the user that belong to hactl: file, line and reason.
///
/// # Errors
/// A template cannot be used.
pub fn collisions(desired: &Desired, attached: &Attached) -> Result<Vec<(String, usize, String)>, Failure> {
    if attached.manifests.is_empty() {
        return Ok(Vec::new());
    }
    let own: BTreeMap<String, String> = crate::render::owned(desired)?.into_iter().collect();
    let one = |object: &UserObject| {
        let key = object_key(&object.object);
        let addon = own.get(&identity(&key))?;
        Some((object.file.clone(), object.line, format!("{} belongs to hactl's own {addon}", object_in_words(&key))))
    };
    Ok(attached.manifests.iter().filter_map(one).collect())
}

/// Completes the facts with those that only hactl's own credential may read.
///
/// # Errors
/// A credential cannot be created, or the user's objects belong to hactl.
pub(super) async fn complete(
    fleet: &Fleet,
    authority: &dyn Authority,
    target: &Target,
    facts: &mut Facts,
) -> Result<(), Failure> {
    let addon = target.addons.iter().find(|addon| addon.name == MANIFESTS);
    let problems = collisions(&fleet.desired, authority.attached())?;
    if !problems.is_empty() {
        let words = |(file, line, what): (String, usize, String)| format!("{file}:{line}: {what}");
        return Err(Failure::Manifests { problems: problems.into_iter().map(words).collect() });
    }
    // No drift at all means that no API server answers.
    if facts.drift.is_empty() || (addon.is_none() && facts.stale.is_empty()) {
        return Ok(());
    }
    let client = match api_client(fleet, &*authority.access()?).await {
        Ok(client) => client,
        Err(error) => {
            facts.stale.clear();
            say(fleet, "could not query the API for the objects of `manifests`", &error.to_string());
            return Ok(());
        }
    };
    if let Err(error) = ask(&client, addon, facts).await {
        facts.stale.clear();
        say(fleet, "could not compare the objects of `manifests`", &error.to_string());
    }
    Ok(())
}

fn say(fleet: &Fleet, what: &str, why: &str) {
    fleet.sink.emit(Event::Warning { text: format!("{what}: {why}") });
}

async fn ask(client: &ApiClient, addon: Option<&Addon>, facts: &mut Facts) -> Result<(), crate::kube::KubeError> {
    let until = Instant::now() + WITHIN;
    if let Some(addon) = addon {
        facts.drift.insert(addon.name.clone(), compare(client, &addon.objects, until).await?);
    }
    for stale in facts.stale.values_mut() {
        let keys: Vec<String> = stale.iter().map(|s| s.key.clone()).collect();
        for (object, (_, fate)) in stale.iter_mut().zip(fates(client, &keys, until).await?) {
            object.kept = match fate {
                Fate::Delete => None,
                Fate::LetGo(why) => Some(why),
            };
        }
    }
    Ok(())
}
