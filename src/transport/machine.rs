//! The connection to one host, over SSH or to a child process.
//!
//! In: typed operations with a timeout. Out: typed replies. There is one SSH connection per host. Each call runs in
//! an agent session of its own (a `hactl host` process), taken from a pool. The session is returned only if the call
//! ended in order: after a timeout or a cancelled future it is closed, which ends the operation on the host as well.

use super::access::Access;
use super::agent::{Agent, Asking, Connect, Forwarding};
use super::agent_session::{AgentSession, Greeting, Payload, Progress, Watch};
use super::counters::{Counters, Traffic};
use super::error::{HostError, STARTING};
use super::local;
use super::peers::Peer;
use super::ssh::bootstrap::{self, AgentCommand};
use super::ssh::{Forward, Session};
use crate::model::desired::SshTarget;
use crate::model::names::HostName;
use crate::protocol::{Op, Reply};
use futures::future::BoxFuture;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Concurrent sessions: below the 10 that sshd allows a connection by default (MaxSessions).
const LINES: usize = 6;
/// How long a host may take to release the lock; it does so anyway once the session has ended.
const GOODBYE: Duration = Duration::from_secs(1);
/// How long a process on our own machine may take to send its first heartbeat.
const LOCAL_START: Duration = Duration::from_secs(10);

/// How long the guard of a host may take to start the agent.
const PEER_START: Duration = Duration::from_secs(10);

/// A connection to one host.
pub struct Machine {
    name: HostName,
    carrier: Arc<Carrier>,
    gate: Semaphore,
    pool: Mutex<Pool>,
    epoch: AtomicU64,
    counters: Arc<Counters>,
    timeout: Duration,
}

enum Carrier {
    Ssh { session: Arc<Session>, entrance: AgentCommand },
    Local { program: PathBuf, args: Vec<String> },
    Guard(Arc<Peer>),
}

#[derive(Default)]
struct Pool {
    idle: Vec<AgentSession>,
    /// Sessions lent to calls.
    lent: usize,
    /// Whether sshd has refused to start one more process: then the session with the lock serves all calls.
    cramped: bool,
    lock: Lock,
    closed: bool,
}

/// The process that holds the lock of the run. It only serves requests that change nothing and wait for nothing, so
/// that abandoning an operation that hangs never releases the lock.
#[derive(Default)]
enum Lock {
    #[default]
    None,
    Here(AgentSession),
    Busy,
}

impl Pool {
    fn take_locked(&mut self) -> Option<(AgentSession, bool)> {
        match std::mem::take(&mut self.lock) {
            Lock::Here(line) if line.usable() => {
                self.lock = Lock::Busy;
                Some((line, true))
            }
            // A lock whose process has ended is not held.
            Lock::Here(_) | Lock::None => None,
            Lock::Busy => {
                self.lock = Lock::Busy;
                None
            }
        }
    }
}

/// A session lent for one call: it is returned if it can be used again, however the call ends.
struct Lease<'a> {
    machine: &'a Machine,
    line: Option<AgentSession>,
    holds_lock: bool,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let line = self.line.take().filter(AgentSession::usable);
        let mut pool = self.machine.pool();
        pool.lent -= 1;
        if self.holds_lock {
            pool.lock = Lock::None;
        }
        match line {
            Some(line) if !pool.closed && self.holds_lock => pool.lock = Lock::Here(line),
            Some(line) if !pool.closed => pool.idle.push(line),
            _ => {}
        }
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Machine {
    /// Connects by SSH, installs hactl if it is not there, and starts the agent. A prepared host costs one exec.
    pub async fn connect(name: &HostName, target: &SshTarget, access: &Access) -> Result<Self, HostError> {
        let counters = Arc::new(Counters::default());
        let session = Arc::new(Session::open(target, access, counters.clone()).await?);
        let (line, entrance) = bootstrap::start(&session, target, access).await?;
        Ok(Self::with(name, Carrier::Ssh { session, entrance }, line, counters, access.connect_timeout))
    }

    /// Starts `program host ARGS...` on this machine.
    pub async fn local(name: &HostName, program: &Path, args: &[String]) -> Result<Self, HostError> {
        let counters = Arc::new(Counters::default());
        let args: Vec<String> = std::iter::once("host".to_owned()).chain(args.iter().cloned()).collect();
        let carrier = Carrier::Local { program: program.to_owned(), args };
        let line = carrier.line(&counters, LOCAL_START).await?;
        Ok(Self::with(name, carrier, line, counters, LOCAL_START))
    }

    /// Connects to the guard of another host, by mutual TLS. It permits only what a repair takes.
    pub(super) async fn guard(peer: Peer) -> Result<Self, HostError> {
        let (counters, name) = (Arc::new(Counters::default()), peer.host.clone());
        let carrier = Carrier::Guard(Arc::new(peer));
        let line = carrier.line(&counters, PEER_START).await?;
        Ok(Self::with(&name, carrier, line, counters, PEER_START))
    }

    fn with(name: &HostName, carrier: Carrier, line: AgentSession, counters: Arc<Counters>, timeout: Duration) -> Self {
        let pool = Mutex::new(Pool { idle: vec![line], ..Pool::default() });
        Self {
            name: name.clone(),
            carrier: Arc::new(carrier),
            gate: Semaphore::new(LINES),
            pool,
            epoch: AtomicU64::new(0),
            counters,
            timeout,
        }
    }

    async fn ask(&self, op: Op, payload: &Payload, watch: Watch<'_>) -> Result<Reply, HostError> {
        let quick = matches!(op, Op::Lock { .. } | Op::Observe(_) | Op::EtcdHash { .. });
        let locking = matches!(op, Op::Lock { .. });
        let (mut lease, _turn) = loop {
            let turn = self.gate.acquire().await.map_err(|_| closed())?;
            match self.lease(quick, locking).await {
                Err(HostError::NoMoreSessions) if self.can_wait() => turn.forget(),
                lease => break (lease?, turn),
            }
        };
        let line = lease.line.as_mut().expect("taken only when dropped");
        let outcome = line.call(self.epoch.load(SeqCst), op, payload, watch).await;
        if let Ok(Reply::Locked { epoch, .. }) = outcome {
            self.epoch.store(epoch, SeqCst);
            lease.holds_lock = true;
        }
        outcome.map_err(|error| self.explain(error))
    }

    /// After a refusal: whether waiting makes sense. If so there is one permit less from now on, but never none,
    /// because the calls that are waited for hold theirs.
    fn can_wait(&self) -> bool {
        let mut pool = self.pool();
        pool.cramped = true;
        pool.lent > 0
    }

    /// A session for one call.
    async fn lease(&self, quick: bool, locking: bool) -> Result<Lease<'_>, HostError> {
        if let Some(lease) = self.spare(quick, locking)? {
            return Ok(lease);
        }
        match self.carrier.line(&self.counters, self.timeout).await {
            Ok(line) => Ok(self.lend(&mut self.pool(), line, false)),
            Err(HostError::NoMoreSessions) => {
                self.pool().cramped = true;
                self.spare(quick, locking)?.ok_or(HostError::NoMoreSessions)
            }
            Err(error) => Err(error),
        }
    }

    /// A session that exists already.
    fn spare(&self, quick: bool, locking: bool) -> Result<Option<Lease<'_>>, HostError> {
        let mut pool = self.pool();
        if pool.closed {
            return Err(closed());
        }
        pool.idle.retain(AgentSession::usable);
        // A repeated lock request goes to the session that holds the lock.
        let first = if locking { pool.take_locked() } else { None };
        let found = first.or_else(|| pool.idle.pop().map(|line| (line, false)));
        let found = found.or_else(|| if quick || pool.cramped { pool.take_locked() } else { None });
        Ok(found.map(|(line, holds_lock)| self.lend(&mut pool, line, holds_lock)))
    }

    fn lend(&self, pool: &mut Pool, line: AgentSession, holds_lock: bool) -> Lease<'_> {
        pool.lent += 1;
        Lease { machine: self, line: Some(line), holds_lock }
    }

    fn explain(&self, error: HostError) -> HostError {
        match &*self.carrier {
            Carrier::Ssh { session, .. } => session.explain(error),
            Carrier::Local { .. } | Carrier::Guard(_) => error,
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agent for Machine {
    fn name(&self) -> &HostName {
        &self.name
    }

    fn hactl_path(&self) -> String {
        match &*self.carrier {
            Carrier::Ssh { entrance, .. } => entrance.program().to_owned(),
            Carrier::Local { program, .. } => program.display().to_string(),
            // No file of a host is written over this connection.
            Carrier::Guard(_) => String::new(),
        }
    }

    fn call<'a>(&'a self, op: Op, payload: Payload, timeout: Duration, watch: Watch<'a>) -> Asking<'a> {
        Box::pin(async move {
            let waiting_on = Mutex::new(String::new());
            let note = |progress: Progress| {
                if let Progress::Waiting(on) = &progress {
                    on.clone_into(&mut waiting_on.lock().unwrap_or_else(PoisonError::into_inner));
                }
                watch(progress);
            };
            let outcome = tokio::time::timeout(timeout, self.ask(op, &payload, &note)).await;
            let mut outcome = outcome.unwrap_or_else(|_| {
                let waiting_on = std::mem::take(&mut *waiting_on.lock().unwrap_or_else(PoisonError::into_inner));
                Err(HostError::too_slow("the operation", timeout, waiting_on))
            });
            if let Ok(Reply::Facts(facts)) = &mut outcome {
                facts.judge(&self.name);
            }
            outcome
        })
    }

    /// By sshd of the host, or by the agent if sshd forbids forwarding.
    fn forward(&self, to: IpAddr, port: u16) -> Forwarding<'_> {
        Box::pin(async move {
            let Carrier::Ssh { session, .. } = &*self.carrier else {
                return Forward::direct(&to.to_string(), port).await;
            };
            match Forward::through(session.clone(), &to.to_string(), port).await {
                Err(HostError::ForwardingForbidden) => {
                    let (carrier, counters, timeout) = (self.carrier.clone(), self.counters.clone(), self.timeout);
                    let start = move || {
                        let (carrier, counters) = (carrier.clone(), counters.clone());
                        async move { carrier.line(&counters, timeout).await }
                    };
                    Forward::relayed(start, to, port).await
                }
                forward => forward,
            }
        })
    }

    fn counters(&self) -> Traffic {
        self.counters.traffic()
    }

    fn holds_lock(&self) -> bool {
        match &self.pool().lock {
            Lock::None => false,
            Lock::Here(line) => line.usable(),
            Lock::Busy => true,
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.gate.close();
            let (idle, lock) = {
                let mut pool = self.pool();
                pool.closed = true;
                (std::mem::take(&mut pool.idle), std::mem::take(&mut pool.lock))
            };
            if let Lock::Here(mut line) = lock {
                // Otherwise the next run may arrive before the host has noticed that this one has ended.
                let _ = tokio::time::timeout(GOODBYE, line.call(0, Op::Unlock, &Payload::None, &|_| {})).await;
            }
            drop(idle);
            if let Carrier::Ssh { session, .. } = &*self.carrier {
                session.close().await;
            }
        })
    }
}

impl Connect for Access {
    fn connect<'a>(
        &'a self,
        host: &'a HostName,
        target: &'a SshTarget,
    ) -> BoxFuture<'a, Result<Arc<dyn Agent>, HostError>> {
        Box::pin(async move {
            let machine = Machine::connect(host, target, &self.to(host)).await?;
            Ok(Arc::new(machine) as Arc<dyn Agent>)
        })
    }
}

impl Carrier {
    async fn line(&self, counters: &Arc<Counters>, timeout: Duration) -> Result<AgentSession, HostError> {
        let mut line = AgentSession::over(match self {
            Self::Ssh { session, entrance } => entrance.wire(session).await?,
            Self::Local { program, args } => local::start(program, args, counters)?,
            Self::Guard(peer) => peer.wire(counters).await?,
        });
        match tokio::time::timeout(timeout, line.greeting()).await {
            Ok(Ok(Greeting::Hello)) => Ok(line),
            Ok(Ok(Greeting::Ended { exit, said })) => {
                Err(HostError::BootstrapFailed { output: format!("{said} ({exit:?})").trim().to_owned() })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(HostError::too_slow(STARTING, timeout, "")),
        }
    }
}

fn closed() -> HostError {
    HostError::Lost { why: "hactl closed the connection".to_owned() }
}
