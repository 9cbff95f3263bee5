//! `hactl certs rotate`: replaces a CA or key that is in use, while the cluster serves.
//!
//! In: the CA or key. Out: the stage that was reached. The administrator's state records the stage, and `up` brings
//! every host to it. The next stage begins only when no host is left behind: first both CAs are trusted, then the new
//! one signs, then the old one is no longer trusted. If the command is killed, it resumes at its stage when run again;
//! `up` never changes the stage.

use super::{Failure, Session, State, renew, up};
use crate::kube::{rewrite, trusted};
use crate::model::plan::Plan;
use crate::model::refusal::Refusal;
use crate::model::rotation::{NoRotation, Rotatable, Stage};
use crate::observe::Wait;
use crate::pki::{self, Chosen, key_id};
use crate::reconcile::Round;
use crate::reconcile::{Ask, Choices};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::Instant;

/// Timeout of rewriting all Secrets: a hundred thousand take a quarter of it.
const REWRITTEN_WITHIN: Duration = Duration::from_secs(3600);
/// Timeout of an API request for tokens.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout until API servers have reloaded a file and published it: they check it once a minute.
const TOLD_WITHIN: Duration = Duration::from_secs(150);
/// How long a pod may hold a token that the old key signed, seconds: the kubelet replaces a token after a day, whatever
/// its lifetime (kubelet, `pkg/kubelet/token`: `maxTTL`), and clients read the file again within minutes.
const TOKENS_S: i64 = 25 * 3600;

/// The options of the command line.
#[derive(Debug, Clone, Copy)]
pub struct Rotating {
    /// The CA or key.
    pub what: Rotatable,
    /// Whether to remove the old one although people or programs unknown to hactl may hold credentials from it.
    pub finish: bool,
    /// Whether not to wait for credentials that running pods hold: tokens of the old key, or trust in the previous CA.
    pub at_once: bool,
}

/// The result.
#[derive(Debug)]
pub struct Rotated {
    /// The CA or key.
    pub what: Rotatable,
    /// Whether the old one is still trusted, for clients that hactl does not know.
    pub old_is_trusted: bool,
    /// Secrets that were rewritten.
    pub rewritten: usize,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
}

/// The next step of [`rotate`]: its current stage, and the plan of `up` for the next one. Changes nothing.
///
/// # Errors
/// See [`Failure`].
pub async fn would_rotate(session: &Session, asked: Rotating) -> Result<(Option<Stage>, Plan), Failure> {
    let mut state = kept(session)?;
    let stage = state.contents().stage(asked.what);
    admit(session, &state, asked).await?;
    if stage.is_none() {
        state.suppose(|cluster, contents, now| pki::rotate::begin(cluster, contents, asked.what, now))?;
    }
    Ok((stage, pending(session, &state).await?))
}

fn kept(session: &Session) -> Result<State, Failure> {
    session.kept()?.ok_or_else(|| session.places.no_state())
}

async fn pending(session: &Session, state: &State) -> Result<Plan, Failure> {
    let look = Round::take(session, state, Wait::ForAll).await?;
    Ok(look.plan(state, &Choices::default(), &session.desired)?)
}

/// Replaces a CA or key, as far as no client loses a credential that hactl cannot reissue.
///
/// # Errors
/// See [`Failure`]; a host that does not answer ends it before the next stage.
pub async fn rotate(
    session: &mut Session,
    asked: Rotating,
    choices: &Choices,
    ask: &dyn Ask,
) -> Result<Rotated, Failure> {
    let what = asked.what;
    session.lock("certs rotate").await?;
    session.admit(Wait::ForAll).await?;
    super::preflight::may_issue(session).await?;
    let mut state = kept(session)?;
    let mut held = state.hold("certs rotate")?;
    admit(session, &state, asked).await?;
    consent(&state, asked, choices, ask)?;
    let agreed = Choices { yes: true, ..choices.clone() };
    // After an interruption the inventory may have changed; those changes need consent of their own.
    let mut next = choices.clone();
    if state.contents().stage(what).is_none() {
        state.rotate(what, |cluster, contents, now| pki::rotate::begin(cluster, contents, what, now))?;
        next = agreed.clone();
    }
    let mut rewritten = 0;
    loop {
        let stage = state.contents().stage(what);
        session.sink.phase(describe(what, stage));
        // `up` holds the state itself.
        drop(held);
        drop(state);
        let summary = Box::pin(up(session, &next, ask)).await?;
        next.clone_from(&agreed);
        state = kept(session)?;
        held = state.hold("certs rotate")?;
        let kubeconfig = summary.kubeconfig;
        match stage {
            Some(Stage::Spread) => {
                heard_of(session, &state, what).await?;
                state.rotate(what, |_, contents, now| pki::rotate::issue(contents, what, now))?;
            }
            Some(Stage::Issued) => {
                presented(session, &state).await?;
                if what == Rotatable::Encryption {
                    rewritten = rewrite_secrets(session, &state).await?;
                }
                if state.contents().rotations.under_way.get(&what).is_some_and(|turn| turn.everywhere_s.is_none()) {
                    state.advance(what, |contents, now| pki::rotate::arrived(contents, what, now))?;
                }
                let waits = what == Rotatable::ServiceAccount && !asked.at_once && tokens_left_s(&state) > 0;
                if what.outlives() && (!asked.finish || waits) {
                    return Ok(Rotated { what, old_is_trusted: true, rewritten, kubeconfig });
                }
                let_go_of_tokens(session, &state, what).await?;
                state.advance(what, |contents, now| pki::rotate::end(contents, what, now))?;
            }
            Some(Stage::Ending) => {
                forgotten(session, &state, what).await?;
                state.advance(what, |contents, _| pki::rotate::finish(contents, what))?;
                return Ok(Rotated { what, old_is_trusted: false, rewritten, kubeconfig });
            }
            // Another run has finished it in the meantime.
            None => return Ok(Rotated { what, old_is_trusted: false, rewritten, kubeconfig }),
        }
    }
}

/// The next stage, for a person who waits.
fn describe(what: Rotatable, stage: Option<Stage>) -> String {
    match stage {
        Some(Stage::Spread) => format!("{what}: distributing the new one to every host; the old one is still in use"),
        Some(Stage::Issued) => format!("{what}: putting the new one into use; the old one is still trusted"),
        Some(Stage::Ending) | None => format!("{what}: removing the old one"),
    }
}

/// Refuses a rotation that cannot begin or continue now.
async fn admit(session: &Session, state: &State, asked: Rotating) -> Result<(), Failure> {
    let what = asked.what;
    let refuse = |why: NoRotation| Err(Refusal::CannotRotate { what, why }.into());
    let named = &session.desired.named.pki;
    let brought = match what {
        Rotatable::ClusterCa => named.cluster.is_some(),
        Rotatable::EtcdCa => named.etcd.is_some(),
        Rotatable::FrontProxyCa => named.front_proxy.is_some(),
        Rotatable::ServiceAccount => named.service_account.is_some(),
        Rotatable::SigningCa | Rotatable::KubeletServingCa | Rotatable::Encryption => false,
    };
    if brought {
        return refuse(NoRotation::Brought);
    }
    let under_way = &state.contents().rotations.under_way;
    // The intermediate CA is rotated together with the CA above it.
    let concerned =
        |other: &Rotatable| *other != what && (other.along().contains(&what) || what.along().contains(other));
    let above = |other: &Rotatable| !what.along().contains(other) || !under_way.contains_key(&what);
    if let Some(other) = under_way.keys().copied().filter(|other| concerned(other) && above(other)).min() {
        return refuse(NoRotation::Other { other });
    }
    if !under_way.contains_key(&what) {
        if asked.finish {
            return refuse(NoRotation::NotBegun);
        }
        let until_s = state.contents().rotations.cross.as_ref().map_or(i64::MIN, |cross| cross.not_after_s);
        let vouched = until_s > OffsetDateTime::now_utc().unix_timestamp();
        if vouched && what == Rotatable::ClusterCa && !asked.at_once {
            return refuse(NoRotation::StillVouched { until_s });
        }
        let plan = pending(session, state).await?;
        return match plan.steps.first() {
            Some(first) => refuse(NoRotation::NotWhole { steps: plan.steps.len(), first: first.action.to_string() }),
            None => Ok(()),
        };
    }
    let left_s = tokens_left_s(state);
    let waits = what == Rotatable::ServiceAccount && asked.finish && !asked.at_once && left_s > 0;
    if waits { refuse(NoRotation::TooYoung { left_s }) } else { Ok(()) }
}

/// How long pods may still hold tokens of the old key, seconds, since the last API server stopped signing with it; 0 if
/// the new key does not sign yet.
fn tokens_left_s(state: &State) -> i64 {
    let turn = state.contents().rotations.under_way.get(&Rotatable::ServiceAccount);
    let issued = turn.filter(|turn| turn.stage == Stage::Issued);
    let now_s = OffsetDateTime::now_utc().unix_timestamp();
    issued.map_or(0, |turn| turn.everywhere_s.unwrap_or(now_s) + TOKENS_S - now_s)
}

fn consent(state: &State, asked: Rotating, choices: &Choices, ask: &dyn Ask) -> Result<(), Failure> {
    if choices.yes {
        return Ok(());
    }
    let what = asked.what;
    let restarts = match what {
        Rotatable::ClusterCa | Rotatable::SigningCa => {
            "control planes and kubelets are restarted in turn at each of its stages"
        }
        Rotatable::KubeletServingCa => {
            "control planes are restarted in turn at each of its stages, and kubelets once; `kubectl logs` and `exec` \
             do not work for a Node for seconds, while its kubelet requests its next certificate"
        }
        Rotatable::EtcdCa => "etcd's members and API servers are restarted in turn, twice",
        Rotatable::FrontProxyCa => "nothing is restarted",
        Rotatable::ServiceAccount => "API servers and controller managers are restarted in turn at each of its stages",
        Rotatable::Encryption => {
            "API servers are restarted in turn at each of its stages, and every Secret is rewritten"
        }
    };
    let ends = match (what, asked.finish) {
        (Rotatable::ClusterCa, true) => "; kubeconfigs that were given to people become invalid",
        (Rotatable::SigningCa, true) => "; certificates that people had the API sign become invalid",
        (Rotatable::ServiceAccount, true) => "; tokens that were copied out of the cluster become invalid",
        _ => "",
    };
    let begun = if state.contents().stage(what).is_some() { "resumes" } else { "starts" };
    Ok(ask.yes("Continue?", &format!("this {begun} the rotation of {what}: {restarts}{ends}"))?)
}

/// Waits until every component presents the certificate that is in its file.
async fn presented(session: &Session, state: &State) -> Result<(), Failure> {
    let chosen: Chosen = pki::choose(&session.desired, &[], &[])?;
    let behind = renew::taken_up(session, &state.publics(), &chosen).await;
    if behind.is_empty() { Ok(()) } else { Err(Failure::Unverified { checks: behind }) }
}

async fn rewrite_secrets(session: &Session, state: &State) -> Result<usize, Failure> {
    let access = state.api_access();
    let client = crate::reconcile::api_client(session, &access).await?;
    let sink = Arc::clone(&session.sink);
    sink.phase("rewriting all Secrets with the new key");
    let stated = |done: usize, of: usize| {
        if done.is_multiple_of(500) {
            sink.phase(format!("rewriting all Secrets with the new key: {done} of {of}"));
        }
    };
    Ok(rewrite::secrets(&client, Instant::now() + REWRITTEN_WITHIN, stated).await?)
}

/// Waits until aggregated API servers can trust the next front proxy CA, before API servers use it: API servers publish
/// it in an object.
async fn heard_of(session: &Session, state: &State, what: Rotatable) -> Result<(), Failure> {
    let turn = state.contents().rotations.under_way.get(&what);
    let Some(turn) = turn.filter(|_| what == Rotatable::FrontProxyCa) else { return Ok(()) };
    let client = crate::reconcile::api_client(session, &state.api_access()).await?;
    Ok(trusted::holds(&client, &turn.other.public, Instant::now() + TOLD_WITHIN).await?)
}

/// Removes old CAs from that object: API servers only add CAs to it, so aggregated API servers would trust the old ones
/// forever.
async fn forgotten(session: &Session, state: &State, what: Rotatable) -> Result<(), Failure> {
    let under_way = &state.contents().rotations.under_way;
    let of = |what: &Rotatable| under_way.get(what).filter(|turn| turn.other.public.contains("CERTIFICATE"));
    let old: Vec<&str> = what.along().iter().filter_map(of).map(|turn| turn.other.public.as_str()).collect();
    if old.is_empty() || matches!(what, Rotatable::EtcdCa | Rotatable::KubeletServingCa) {
        return Ok(());
    }
    let client = crate::reconcile::api_client(session, &state.api_access()).await?;
    Ok(trusted::forget(&client, &old, Instant::now() + TOLD_WITHIN).await?)
}

/// Replaces the tokens in Secrets, which do not expire and which nothing else renews.
async fn let_go_of_tokens(session: &Session, state: &State, what: Rotatable) -> Result<(), Failure> {
    let turn = state.contents().rotations.under_way.get(&what);
    let Some(turn) = turn.filter(|_| what == Rotatable::ServiceAccount) else { return Ok(()) };
    let Some(kid) = key_id(&turn.other.public) else { return Ok(()) };
    let access = state.api_access();
    let client = crate::reconcile::api_client(session, &access).await?;
    let until = Instant::now() + TIMEOUT;
    for secret in rewrite::tokens(&client, &kid, until).await? {
        rewrite::renew_token(&client, &secret, until).await?;
        session.sink.warn(format!("{secret} gets another token: copies of the previous one are invalid now"));
    }
    Ok(())
}
