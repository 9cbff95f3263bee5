//! The journal of events that later runs cannot observe: one JSON object a line, synced to disk before it counts.
//!
//! In: an [`Entry`]. Out: the lines, oldest first. Only complete lines count: the next append drops an incomplete last
//! line, because the killed run that wrote it never acknowledged it. Any other damage is an error.

use super::{StateDirError, files, io_error, random_hex};
use crate::model::names::{ClusterName, Digest};
use crate::model::plausible::is_base;
use crate::model::positions::Position;
use crate::model::recovery::{Origin, Recovery};
use crate::model::rotation::{Rotatable, Stage};
use crate::model::timestamp::parse_rfc3339;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Time, RFC 3339.
    pub at: String,
    /// User of this machine.
    pub by: String,
    /// The event.
    pub entry: Entry,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Entry {
    /// The state directory was created.
    Founded {
        /// For which cluster.
        cluster: ClusterName,
        /// Fingerprint of the cluster CA.
        ca: Digest,
    },
    /// A token for a new etcd cluster was generated.
    GenesisChosen {
        /// The token.
        token: String,
    },
    /// The token bootstrapped a cluster; it is never used again.
    GenesisSpent {
        /// The token.
        token: String,
        /// The etcd cluster id, hexadecimal.
        cluster_id: String,
    },
    /// A recovery was agreed to: it is completed as agreed, whatever is observed later.
    RecoveryChosen {
        /// The recovery.
        recovery: Recovery,
        /// The recovery that is abandoned for it, by its id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead_of: Option<String>,
    },
    /// The recovery bootstrapped a cluster that answers.
    RecoveryEnded {
        /// Its id.
        id: String,
        /// The etcd cluster id, hexadecimal.
        cluster_id: String,
    },
    /// The recovery was dropped: the previous cluster answers again.
    RecoveryDropped {
        /// Its id.
        id: String,
    },
    /// The recovery is complete, including cleanup: asking for the same recovery again starts a new one.
    RecoveryWhole {
        /// Its id.
        id: String,
    },
    /// The cluster was taken down on purpose: from here on empty disks are no data loss.
    TakenDown {
        /// Whether its data was deleted rather than archived.
        deleted: bool,
    },
    /// A credential for a person was issued.
    CredentialIssued {
        /// Common name.
        common_name: String,
        /// Organisations.
        organizations: Vec<String>,
        /// Serial number, hexadecimal.
        serial: String,
        /// End of validity, RFC 3339.
        not_after: String,
    },
    /// The log positions of etcd members, as the hosts remembered them.
    Seen {
        /// The highest position of each member.
        positions: Vec<Position>,
    },
    /// A rotation reached a stage; `None`: it ended.
    Rotation {
        /// Of which CA or key.
        what: Rotatable,
        /// The stage.
        stage: Option<Stage>,
    },
    /// A person agreed to something.
    Consent {
        /// The text that was shown.
        to: String,
        /// How: the words typed, or `--yes`.
        how: String,
    },
}

/// Creates the journal of a new state directory.
pub fn start(path: &Path, cluster: &ClusterName, ca: &Digest) -> Result<(), StateDirError> {
    let mut file = files::create_new(path, 0o600)?;
    write_line(&mut file, path, Entry::Founded { cluster: cluster.clone(), ca: *ca })
}

/// Appends an entry; it is synced to disk when this returns.
pub fn append(path: &Path, entry: Entry) -> Result<(), StateDirError> {
    let (mut file, _) = open(path)?;
    write_line(&mut file, path, entry)
}

/// All complete lines.
pub fn read(path: &Path) -> Result<Vec<Line>, StateDirError> {
    let bytes = std::fs::read(path).map_err(io_error("read", path))?;
    parse(path, &bytes).map(|(lines, _)| lines)
}

/// The unused token, or a new one.
pub fn bootstrap_token(path: &Path) -> Result<String, StateDirError> {
    let (mut file, lines) = open(path)?;
    if let Some(token) = unspent(&lines) {
        return Ok(token);
    }
    let token = random_hex(16)?;
    write_line(&mut file, path, Entry::GenesisChosen { token: token.clone() })?;
    Ok(token)
}

/// Marks the unused token as used.
pub fn spend_genesis(path: &Path, cluster_id: &str) -> Result<(), StateDirError> {
    let (mut file, lines) = open(path)?;
    let spent = || {
        lines.iter().find_map(|l| match &l.entry {
            Entry::GenesisSpent { token, cluster_id: id } if id == cluster_id => Some(token.clone()),
            _ => None,
        })
    };
    let token = match unspent(&lines) {
        Some(token) => token,
        None => match spent() {
            None => return Err(StateDirError::NothingToSpend { path: path.to_owned() }),
            // An interrupted run recorded it and is repeated: nothing to do.
            Some(_) if Past::of(&lines).bootstrapped.is_some() => return Ok(()),
            // It was recorded as taken down, but it answers.
            Some(token) => token,
        },
    };
    write_line(&mut file, path, Entry::GenesisSpent { token, cluster_id: cluster_id.to_owned() })
}

/// Facts from the journal that cannot be observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// The id of the bootstrapped cluster, unless it was taken down since.
    pub bootstrapped: Option<String>,
    /// The recovery that was agreed to and has not ended.
    pub open: Option<Recovery>,
    /// The last recovery that bootstrapped a cluster, unless that was taken down since, and whether its cleanup is
    /// complete.
    pub last: Option<(Recovery, bool)>,
    /// The recoveries that were abandoned, by id: data they restored does not count.
    pub dropped: BTreeSet<String>,
    /// The ids of all clusters that ever answered.
    pub lived: BTreeSet<String>,
    /// When a cluster was last taken down, milliseconds since 1970: older snapshots are of that cluster.
    pub taken_down_ms: Option<i64>,
    /// The highest start revision of any recovery, completed or abandoned; 0: there was none.
    pub leapt: i64,
    /// Recoveries with a start revision that no cluster can reach, because a host reported a false one: neither they
    /// nor their data count.
    pub impossible: Vec<Recovery>,
    /// The last recorded log positions of etcd members.
    pub seen: Vec<Position>,
    /// When they were recorded, milliseconds since 1970.
    pub seen_ms: Option<i64>,
}

impl Past {
    /// Computes it from all lines, the oldest first.
    pub fn of(lines: &[Line]) -> Self {
        let mut past = Self::default();
        let mut chosen: Vec<&Recovery> = Vec::new();
        for line in lines {
            match &line.entry {
                Entry::GenesisSpent { cluster_id, .. } => past.lives(cluster_id),
                Entry::RecoveryChosen { recovery, .. } if !is_base(recovery.base) => {
                    past.dropped.insert(recovery.id.clone());
                    past.impossible.push(recovery.clone());
                }
                Entry::RecoveryEnded { id, .. } if past.impossible.iter().any(|r| &r.id == id) => {}
                Entry::RecoveryChosen { recovery, instead_of } => {
                    past.dropped.extend(instead_of.clone());
                    chosen.push(recovery);
                    past.leapt = past.leapt.max(recovery.base);
                    past.open = Some(recovery.clone());
                }
                Entry::RecoveryEnded { id, cluster_id } => {
                    past.lives(cluster_id);
                    past.open = None;
                    past.last = chosen.iter().find(|r| &r.id == id).map(|recovery| ((*recovery).clone(), false));
                }
                Entry::RecoveryDropped { id } => {
                    past.open = past.open.filter(|open| &open.id != id);
                    past.impossible.retain(|recovery| &recovery.id != id);
                    past.dropped.insert(id.clone());
                }
                Entry::RecoveryWhole { id } => {
                    if let Some((recovery, whole)) = &mut past.last {
                        *whole |= &recovery.id == id;
                    }
                }
                Entry::Seen { positions } => {
                    past.seen.clone_from(positions);
                    past.seen_ms = parse_rfc3339(&line.at);
                }
                Entry::TakenDown { .. } => {
                    (past.bootstrapped, past.open, past.last) = (None, None, None);
                    past.taken_down_ms = parse_rfc3339(&line.at);
                }
                Entry::Founded { .. }
                | Entry::GenesisChosen { .. }
                | Entry::CredentialIssued { .. }
                | Entry::Rotation { .. }
                | Entry::Consent { .. } => {}
            }
        }
        past
    }

    /// Whether the last recovery restored a snapshot and its cleanup is not complete.
    pub fn abandons(&self) -> bool {
        self.last.as_ref().is_some_and(|(recovery, whole)| !whole && matches!(recovery.source, Origin::Bundle(_)))
    }

    fn lives(&mut self, cluster_id: &str) {
        self.bootstrapped = Some(cluster_id.to_owned());
        if !self.lived.insert(cluster_id.to_owned()) {
            // It was recorded as taken down, but it answers.
            self.taken_down_ms = None;
        }
    }

    /// The start revision of the last recovery that bootstrapped a cluster.
    pub fn recovered(&self) -> Option<i64> {
        self.last.as_ref().map(|(recovery, _)| recovery.base)
    }
}

fn unspent(lines: &[Line]) -> Option<String> {
    lines.iter().rev().find_map(|line| match &line.entry {
        Entry::GenesisChosen { token } => Some(Some(token.clone())),
        Entry::GenesisSpent { .. } | Entry::TakenDown { .. } => Some(None),
        _ => None,
    })?
}

/// Opens and locks the journal, drops an incomplete last line, and leaves the cursor at the end.
fn open(path: &Path) -> Result<(File, Vec<Line>), StateDirError> {
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(io_error("open", path))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| io_error("lock", path)(e.into()))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io_error("read", path))?;
    let (lines, whole) = parse(path, &bytes)?;
    file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole))).map_err(io_error("write", path))?;
    Ok((file, lines))
}

/// The complete lines, and their length in bytes.
fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<Line>, u64), StateDirError> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..whole].split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let parsed = lines.map(|(at, line)| {
        let bad = |e| StateDirError::Corrupt { path: path.to_owned(), why: format!("line {}: {e}", at + 1) };
        serde_json::from_slice(line).map_err(bad)
    });
    Ok((parsed.collect::<Result<_, _>>()?, whole as u64))
}

fn write_line(file: &mut File, path: &Path, entry: Entry) -> Result<(), StateDirError> {
    let line = Line { at: now(), by: super::lock::user(), entry };
    let mut text = serde_json::to_string(&line).map_err(|e| io_error("write", path)(e.into()))?;
    text.push('\n');
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error("write", path))
}

/// The current time, RFC 3339, whole seconds.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    now.format(&Rfc3339).unwrap_or_default()
}
