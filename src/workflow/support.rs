//! `hactl support-bundle`: collects diagnostics in one archive, for a person without access to the cluster.
//!
//! In: a session. Out: an archive with pages of every host, of the cluster and of this machine. It needs no host that
//! answers: a page that cannot be collected contains the reason.

use super::{Choices, Failure, Session, State};
use crate::model::desired::Host;
use crate::model::names::HostName;
use crate::model::support::{GatherAsk, Page, is_place};
use crate::observe::Wait;
use crate::protocol::{Op, Reply};
use crate::reconcile::Round;
use crate::report::{self, Style};
use crate::statedir::{JOURNAL, RUNS};
use crate::support::{Archive, Written};
use crate::transport::Payload;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::Instant;

/// Timeout of a host that collects its pages.
const GATHERING: Duration = Duration::from_secs(180);
/// Timeout of the API for a list of one kind.
const LISTING: Duration = Duration::from_secs(10);
/// How many of the newest run logs are included.
const NEWEST_RUNS: usize = 10;
/// The most pages of a host.
const PAGES: usize = 2000;
/// How many hosts collect in parallel: each sends some megabytes.
const AT_ONCE: usize = 8;
/// The largest run log that is included, bytes.
const LARGEST: u64 = 8 << 20;
/// The requests to the API, by page.
const LISTS: [(&str, &str); 9] = [
    ("version", "/version"),
    ("nodes", "/api/v1/nodes"),
    ("pods", "/api/v1/namespaces/kube-system/pods"),
    ("events", "/api/v1/namespaces/kube-system/events"),
    ("events-of-nodes", "/api/v1/namespaces/default/events"),
    ("leases", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"),
    ("deployments", "/apis/apps/v1/namespaces/kube-system/deployments"),
    ("daemonsets", "/apis/apps/v1/namespaces/kube-system/daemonsets"),
    ("certificate-requests", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
];
const README: &str = include_str!("../../templates/support/README.txt");

/// The options of the archive.
#[derive(Debug)]
pub struct Wanted {
    /// The archive.
    pub to: PathBuf,
    /// The directory inside the archive.
    pub folder: String,
    /// How far back journals go, hours.
    pub hours: u32,
}

/// The result.
#[derive(Debug)]
pub struct Supported {
    /// The archive.
    pub written: Written,
    /// Hosts without pages in it, with the reason.
    pub missing: BTreeMap<HostName, String>,
}

type Pages = Vec<Page>;

/// Collects the pages and writes the archive.
///
/// # Errors
/// The archive cannot be written.
pub async fn support(session: &Session, wanted: &Wanted) -> Result<Supported, Failure> {
    let state = session.state(false).await;
    // Hosts redact their own secrets before they answer.
    let known = super::secrets::known(session, state.as_ref().ok());
    let mut archive = Archive::create(&wanted.to, &wanted.folder, &known, OffsetDateTime::now_utc())?;
    let phase = |doing: String| session.sink.phase(doing);
    phase(match session.machines.len() {
        0 => "no host answers: collecting local files only".to_owned(),
        hosts => format!("collecting journals and logs of {}", report::words::count(hosts, "host")),
    });
    let (hosts, cluster) = tokio::join!(hosts(session, wanted.hours, &mut archive), cluster(session, &state));
    let (mut missing, given) = hosts?;
    let (cluster, kubernetes) = cluster;
    missing.extend(session.unreachable.iter().map(|(host, unreachable)| (host.clone(), unreachable.why.clone())));
    let mut pages: Pages = own(session);
    pages.extend(cluster);
    for (host, why) in &missing {
        pages.push(page(&format!("hosts/{host}/nothing.txt"), format!("{host} sent nothing: {why}\n")));
    }
    pages.push(page("README.txt", readme(session, &kubernetes, &missing, &given)));
    for page in &pages {
        archive.add(&page.name, &page.text, page.struck)?;
    }
    Ok(Supported { written: archive.finish()?, missing })
}

/// Hosts that sent nothing, with the reason, and the number of pages of the others.
type Gathered = (BTreeMap<HostName, String>, BTreeMap<HostName, usize>);

/// Writes each host's pages into the archive as they arrive: those of a hundred hosts would not fit into memory.
async fn hosts(session: &Session, hours: u32, archive: &mut Archive) -> Result<Gathered, Failure> {
    let one = async |host: &Host| {
        let machine = session.machines.get(&host.name)?;
        let units = crate::render::units(&session.desired, host);
        let ask = GatherAsk { units, files: crate::render::paths(&session.desired, host), hours };
        let pages = match machine.call(Op::Gather(ask), Payload::None, GATHERING, &|_| {}).await {
            Ok(Reply::Pages(pages)) => Ok(pages),
            Ok(_) => Err("it sent an unexpected reply".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Some((host.name.clone(), pages))
    };
    let all: Vec<_> = session.desired.hosts.iter().map(one).collect();
    let mut answers = std::pin::pin!(futures::stream::iter(all).buffer_unordered(session.at_once.clamp(1, AT_ONCE)));
    let (mut missing, mut given) = Gathered::default();
    while let Some(answer) = answers.next().await {
        match answer {
            Some((host, Ok(pages))) => {
                let pages: Pages = pages.into_iter().filter(|p| is_place(&p.name)).take(PAGES).collect();
                for page in &pages {
                    archive.add(&format!("hosts/{host}/{}", page.name), &whole(page), page.struck)?;
                }
                given.insert(host, pages.len());
            }
            Some((host, Err(why))) => drop(missing.insert(host, why)),
            None => {}
        }
    }
    Ok((missing, given))
}

/// A host's page, with a note on omitted bytes. Control characters are removed, because a compromised host must not
/// control the reader's terminal.
fn whole(page: &Page) -> String {
    let text = report::words::clean(&page.text);
    match page.left_out {
        0 => text,
        bytes => format!("({bytes} earlier bytes are omitted)\n{text}"),
    }
}

/// The output of status, plan and the API, and the version of Kubernetes as `status` shows it.
async fn cluster(session: &Session, state: &Result<State, Failure>) -> (Pages, String) {
    let mut kubernetes = session.desired.versions.kubernetes.clone();
    let state = match state {
        Ok(state) => state,
        Err(failure) => {
            let unusable = page("cluster/state.txt", stated("the administrator's state cannot be used", failure));
            return (vec![unusable], kubernetes);
        }
    };
    let mut pages = Pages::new();
    match Round::take(session, state, Wait::ForAll).await {
        Ok(look) => {
            let checks = look.checks(session).await;
            let desired = &session.desired;
            kubernetes = report::status::kubernetes(desired, &look.facts);
            pages.push(page("cluster/status.txt", report::status_text(desired, &look.facts, &checks, &Style::plain())));
            pages.push(page("cluster/status.json", report::status_json(desired, &look.facts, &checks).to_string()));
            let facts = serde_json::to_string_pretty(&look.facts).unwrap_or_else(|e| e.to_string());
            pages.push(page("cluster/facts.json", facts));
            match look.plan(state, &Choices::default(), desired) {
                Ok(plan) => {
                    pages.push(page("cluster/plan.txt", report::plan_text(&plan, &Style::plain())));
                    pages.push(page("cluster/plan.json", report::plan_json(&plan).to_string()));
                }
                Err(failure) => pages.push(page("cluster/plan.txt", stated("there is no plan", &failure))),
            }
        }
        Err(failure) => pages.push(page("cluster/status.txt", stated("the cluster cannot be observed", &failure))),
    }
    pages.extend(api(session, state).await);
    (pages, kubernetes)
}

async fn api(session: &Session, state: &State) -> Pages {
    let client = async { Ok::<_, Failure>(crate::reconcile::api_client(session, &state.api_access()).await?) };
    let client = match client.await {
        Ok(client) => client,
        Err(failure) => return vec![page("cluster/api/nothing.txt", stated("no API server answers", &failure))],
    };
    let mut pages = Pages::new();
    for (name, path) in LISTS {
        let answer = client.raw(reqwest::Method::GET, path, Instant::now() + LISTING).await;
        pages.push(match answer {
            Ok(value) => page(&format!("cluster/api/{name}.json"), format!("{value:#}\n")),
            Err(error) => page(&format!("cluster/api/{name}.txt"), stated("this could not be listed", &error)),
        });
    }
    pages
}

/// The pages of this machine: the inventory, the journal, the logs of the newest runs.
fn own(session: &Session) -> Pages {
    let dir = &session.places.state;
    let mut pages = vec![page("administrator/inventory.yaml", session.inventory.clone())];
    pages.push(page(&format!("administrator/{JOURNAL}"), text(&dir.join(JOURNAL))));
    let runs = std::fs::read_dir(dir.join(RUNS)).into_iter().flatten();
    let mut runs: Vec<PathBuf> = runs.flatten().map(|entry| entry.path()).collect();
    // Their names start with the time.
    runs.sort();
    for run in runs.iter().rev().take(NEWEST_RUNS) {
        let name = format!("administrator/{RUNS}/{}", run.file_name().unwrap_or_default().to_string_lossy());
        if is_place(&name) {
            pages.push(page(&name, text(run)));
        }
    }
    pages
}

fn text(path: &Path) -> String {
    match std::fs::metadata(path) {
        Ok(found) if found.len() > LARGEST => format!("(left out: {} bytes)\n", found.len()),
        _ => std::fs::read(path)
            .map_or_else(|error| format!("({error})\n"), |bytes| String::from_utf8_lossy(&bytes).into_owned()),
    }
}

fn page(name: &str, text: String) -> Page {
    Page { name: name.to_owned(), text, left_out: 0, struck: 0 }
}

/// A failure with its chain of causes.
fn stated(what: &str, error: &dyn std::error::Error) -> String {
    format!("{what}: {}\n", report::words::chain(Some(error)).join("\n  because: "))
}

/// The table of contents of the archive.
fn readme(
    session: &Session,
    kubernetes: &str,
    missing: &BTreeMap<HostName, String>,
    given: &BTreeMap<HostName, usize>,
) -> String {
    let mut hosts = String::new();
    for host in &session.desired.hosts {
        let said = match missing.get(&host.name) {
            Some(why) => format!("nothing: {why}"),
            None => format!("{} pages", given.get(&host.name).copied().unwrap_or_default()),
        };
        let _ = writeln!(hosts, "  {:<20} {said}", host.name.as_str());
    }
    let now = OffsetDateTime::now_utc().format(&time::format_description::well_known::Rfc3339).unwrap_or_default();
    README
        .replace("{cluster}", session.desired.cluster.as_str())
        .replace("{now}", &now)
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{kubernetes}", kubernetes)
        .replace("{hosts}", hosts.trim_end())
}
