//! The SSH connection to each host: from the inventory first, then from OpenSSH's configuration, then the defaults.
//!
//! In: the inventory's settings of a host, and a [`Config`]. Out: a complete [`SshTarget`] with all jump hosts; and a
//! refusal with file and line for each line of the configuration that applies to one of our hosts and that hactl does
//! not support. Every unsupported setting is reported, unless it affects neither the destination of the connection nor
//! the trust in host keys.

use super::validator::Validator;
use crate::inventory::at::Place;
use crate::inventory::defaults::{PORT, USER};
use crate::inventory::openssh::{Asked, Config, Line, Settings, Spot};
use crate::inventory::problem::{Problem, Severity, Words};
use crate::model::desired::{Agent, SshTarget};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The remedy that always works.
const WITHOUT: &str = "or write `ssh: {config: none}` in the inventory, so that no configuration is read";
/// Limit of jump hosts in front of a host.
const LONGEST_WAY: usize = 8;

/// The inventory's settings of a host; `None` leaves it to the configuration.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Its name, for messages.
    pub name: String,
    /// Destination, as one would type it after `ssh`.
    pub host: Option<String>,
    /// The address of its components, the default destination.
    pub address: String,
    /// The port of its sshd.
    pub port: Option<u16>,
    /// Login user.
    pub user: Option<String>,
    /// Private key file.
    pub identity: Option<PathBuf>,
    /// Where its host key is recorded.
    pub known_hosts: Option<PathBuf>,
    /// Its pinned host key.
    pub fingerprint: Option<String>,
    /// The CA of its host key.
    pub host_ca: Option<String>,
    /// Jump hosts; empty: none.
    pub jump: Option<Vec<Hop>>,
    /// File with sudo's password.
    pub sudo_password: Option<PathBuf>,
}

/// `[user@]host[:port]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// Reads `a,b,c`, the nearest to us first; `none` is an empty list.
pub fn hops(text: &str) -> Result<Vec<Hop>, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    text.split(',').map(|hop| one_hop(hop.trim())).collect()
}

fn one_hop(text: &str) -> Result<Hop, String> {
    let rest = text.strip_prefix("ssh://").unwrap_or(text).trim_end_matches('/');
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (host, port) = if let Some(inside) = rest.strip_prefix('[') {
        let (host, port) = inside.split_once(']').ok_or("a ']' is missing")?;
        (host, port.strip_prefix(':'))
    } else if rest.matches(':').count() == 1 {
        let (host, port) = rest.split_once(':').expect("it contains one colon");
        (host, Some(port))
    } else {
        (rest, None)
    };
    let port = match port {
        None => None,
        Some(port) => match port.parse::<u16>() {
            Ok(port @ 1..) => Some(port),
            _ => return Err(format!("{port:?} is not a port")),
        },
    };
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    if host.is_empty() || host.starts_with('-') || !host.chars().all(name) {
        return Err(format!("{host:?} is neither a name nor an address"));
    }
    if user.is_some_and(|user| !is_login(user)) {
        return Err(format!("{:?} cannot be a user's name", user.unwrap_or_default()));
    }
    Ok(Hop { user: user.map(ToOwned::to_owned), host: host.to_owned(), port })
}

/// Whether a text can be a login name, also on other systems than ours.
fn is_login(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_ascii_graphic() && c != '%')
}

/// A finding about one line, with the hosts that it concerns.
struct Note {
    severity: Severity,
    words: Words,
    hosts: Vec<String>,
}

/// SSH connections to hosts, by one configuration.
pub struct Ways {
    config: Config,
    home: Option<PathBuf>,
    local_user: String,
    notes: BTreeMap<(Spot, String), Note>,
}

/// The values of OpenSSH's tokens.
struct Tokens<'a> {
    host: &'a str,
    original: &'a str,
    port: u16,
    user: &'a str,
}

impl Ways {
    /// By this configuration, for a user with this home directory.
    pub fn new(config: Config, home: Option<&Path>, local_user: &str) -> Self {
        Self { config, home: home.map(Path::to_owned), local_user: local_user.to_owned(), notes: BTreeMap::new() }
    }

    /// The connection to a host, with its jump hosts.
    pub fn to(&mut self, given: &Given) -> SshTarget {
        let config = std::mem::take(&mut self.config);
        let names: Vec<&str> = match &given.host {
            Some(host) => vec![host],
            None => vec![&given.name, &given.address],
        };
        let asked = Asked { names: &names, user: given.user.as_deref(), local_user: &self.local_user };
        let settings = config.settings(asked);
        self.weigh(&settings, &given.name);
        let mut target = self.target(given, &settings);
        target.jump = match &given.jump {
            Some(hops) => self.through(&config, hops, given, None, &[target.place()]),
            None => self.proxied(&config, &settings, given, &target, &[target.place()]),
        };
        self.config = config;
        target
    }

    /// Everything except the jump hosts.
    fn target(&mut self, given: &Given, settings: &Settings<'_>) -> SshTarget {
        let who = given.name.as_str();
        let original = given.host.as_deref().unwrap_or(&given.name);
        let fallback = given.host.as_deref().unwrap_or(&given.address);
        let user = given.user.clone().or_else(|| self.user(settings, who));
        let port = given.port.or_else(|| self.port(settings, who));
        let mut target = SshTarget::new(fallback, user.unwrap_or_else(|| USER.to_owned()));
        target.port = port.unwrap_or(PORT);
        // `HostName %h` is the default anyway, and here the name may stand for an address.
        if let Some(line) = settings.get("hostname").filter(|line| line.word() != "%h") {
            let tokens = Tokens { host: original, original, port: target.port, user: &target.user };
            if let Some(name) = self.expanded(line, line.word(), &tokens, "h", who) {
                let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
                if name.is_empty() || name.starts_with('-') || !name.chars().all(fine) {
                    self.refuse(line, who, "this is neither a name nor an address", "correct the line");
                } else {
                    target.host = name;
                }
            }
        }
        target.identity.clone_from(&given.identity);
        target.fingerprint.clone_from(&given.fingerprint);
        target.host_ca.clone_from(&given.host_ca);
        target.sudo_password.clone_from(&given.sudo_password);
        target.key_alias = settings.get("hostkeyalias").map(|line| line.word().to_owned());
        let (host, user) = (target.host.clone(), target.user.clone());
        let tokens = Tokens { host: &host, original, port: target.port, user: &user };
        if given.identity.is_none() {
            target.identities = self.files(settings, "identityfile", &tokens, who);
        }
        target.certificates = self.files(settings, "certificatefile", &tokens, who);
        target.identities_only = settings.get("identitiesonly").is_some_and(|line| line.says("yes"));
        target.agent = self.agent(settings, &tokens, who);
        target.known_hosts = match &given.known_hosts {
            Some(file) => vec![file.clone()],
            None => self.known_hosts(settings, &tokens, who),
        };
        target
    }

    fn user(&mut self, settings: &Settings<'_>, who: &str) -> Option<String> {
        let line = settings.get("user")?;
        if is_login(line.word()) {
            return Some(line.word().to_owned());
        }
        self.none(line, who, "this cannot be a user's name", "write only the login name, without tokens")
    }

    fn port(&mut self, settings: &Settings<'_>, who: &str) -> Option<u16> {
        let line = settings.get("port")?;
        match line.word().parse::<u16>() {
            Ok(port @ 1..) => Some(port),
            _ => self.none(line, who, "this is not a port", "write a number from 1 to 65535"),
        }
    }

    fn files(&mut self, settings: &Settings<'_>, key: &str, tokens: &Tokens<'_>, who: &str) -> Vec<PathBuf> {
        let lines: Vec<&Line> = settings.all(key).filter(|line| !line.says("none")).collect();
        lines.into_iter().filter_map(|line| self.path(line, line.word(), tokens, who)).collect()
    }

    fn agent(&mut self, settings: &Settings<'_>, tokens: &Tokens<'_>, who: &str) -> Agent {
        match settings.get("identityagent") {
            None => Agent::Environment,
            Some(line) if line.says("none") => Agent::None,
            Some(line) if line.word() == "SSH_AUTH_SOCK" || line.word() == "$SSH_AUTH_SOCK" => Agent::Environment,
            Some(line) if line.word().starts_with('$') => {
                let remedy = "write the socket's path, or SSH_AUTH_SOCK";
                self.refuse(line, who, "hactl does not read environment variables here", remedy);
                Agent::Environment
            }
            Some(line) => self.path(line, line.word(), tokens, who).map_or(Agent::Environment, Agent::At),
        }
    }

    fn known_hosts(&mut self, settings: &Settings<'_>, tokens: &Tokens<'_>, who: &str) -> Vec<PathBuf> {
        let (own, everybody) = (settings.get("userknownhostsfile"), settings.get("globalknownhostsfile"));
        if own.is_none() && everybody.is_none() {
            return Vec::new();
        }
        let mut files = Vec::new();
        if let Some(line) = own {
            for word in &line.words {
                if word.eq_ignore_ascii_case("none") || word == "/dev/null" {
                    let remedy = "put the host's key there, or pin it in the inventory (ssh.fingerprint, ssh.hostCA)";
                    self.warn(line, who, "hactl always records host keys: it uses ~/.ssh/known_hosts instead", remedy);
                    continue;
                }
                files.extend(self.path(line, word, tokens, who));
            }
        }
        if files.is_empty() {
            files.extend(self.home.as_ref().map(|home| home.join(".ssh/known_hosts")));
        }
        match everybody {
            Some(line) => {
                let words: Vec<&String> = line.words.iter().filter(|w| !w.eq_ignore_ascii_case("none")).collect();
                for word in words {
                    files.extend(self.path(line, word, tokens, who));
                }
            }
            None => files.push(PathBuf::from("/etc/ssh/ssh_known_hosts")),
        }
        files
    }

    /// The jump hosts of the configuration.
    fn proxied(
        &mut self,
        config: &Config,
        settings: &Settings<'_>,
        given: &Given,
        target: &SshTarget,
        behind: &[String],
    ) -> Vec<SshTarget> {
        let who = given.name.as_str();
        let Some(line) = settings.get("proxy") else { return Vec::new() };
        if line.says("none") {
            return Vec::new();
        }
        if line.key == "proxycommand" {
            self.refuse(
                line,
                who,
                "hactl does not run programs to reach a host",
                "write `ProxyJump HOST` here, or `jump: HOST` under ssh in the inventory (`jump: none`: directly)",
            );
            return Vec::new();
        }
        let original = given.host.as_deref().unwrap_or(&given.name);
        let tokens = Tokens { host: &target.host, original, port: target.port, user: &target.user };
        let Some(text) = self.expanded(line, line.word(), &tokens, "hnpr", who) else { return Vec::new() };
        match hops(&text) {
            Ok(hops) => self.through(config, &hops, given, Some(line), behind),
            Err(why) => {
                self.refuse(
                    line,
                    who,
                    &format!("this is not a chain of jump hosts: {why}"),
                    "write [user@]host[:port],...",
                );
                Vec::new()
            }
        }
    }

    /// The jump hosts, each resolved by its own name. A setting that is missing is taken from the host behind it.
    fn through(
        &mut self,
        config: &Config,
        hops: &[Hop],
        behind: &Given,
        cause: Option<&Line>,
        seen: &[String],
    ) -> Vec<SshTarget> {
        let mut way = Vec::new();
        for (index, hop) in hops.iter().enumerate() {
            let names = [hop.host.as_str()];
            let asked = Asked { names: &names, user: hop.user.as_deref(), local_user: &self.local_user };
            let settings = config.settings(asked);
            let who = behind.name.as_str();
            self.weigh(&settings, who);
            let mut given = Given {
                name: who.to_owned(),
                host: Some(hop.host.clone()),
                address: hop.host.clone(),
                port: hop.port,
                user: hop.user.clone(),
                host_ca: behind.host_ca.clone(),
                ..Given::default()
            };
            if given.user.is_none() && settings.get("user").is_none() {
                given.user.clone_from(&behind.user);
            }
            if settings.all("identityfile").next().is_none() {
                given.identity.clone_from(&behind.identity);
            }
            if settings.get("userknownhostsfile").is_none() {
                given.known_hosts.clone_from(&behind.known_hosts);
            }
            let jump = self.target(&given, &settings);
            let seen: Vec<String> = seen.iter().cloned().chain([jump.place()]).collect();
            if seen[..seen.len() - 1].contains(&jump.place()) || seen.len() > LONGEST_WAY {
                if let Some(line) = cause.or_else(|| settings.get("proxy")) {
                    let what = format!("the connection jumps through {} to reach {}", jump.place(), jump.place());
                    let remedy =
                        format!("exclude it: `Host * !{}` above the line, or `ProxyJump none` for it", hop.host);
                    self.refuse(line, who, &what, &remedy);
                }
                return way;
            }
            // As with `ssh -J`: only the first uses its own jump hosts, the others the one before.
            if index == 0 {
                let nearer = Given { host: given.host, ..behind.clone() };
                let before = self.proxied(config, &settings, &nearer, &jump, &seen);
                way.extend(before);
            }
            way.push(jump);
        }
        way
    }

    /// Lines that apply and that hactl does not support, whatever the inventory contains.
    fn weigh(&mut self, settings: &Settings<'_>, who: &str) {
        for line in settings.lines() {
            let off = line.says("no") || line.says("none");
            let (what, remedy) = match line.key.as_str() {
                "canonicalizehostname" if !off => (
                    "hactl does not complete host names",
                    "write the full name: as HostName here, or as ssh.host in the inventory",
                ),
                "pkcs11provider" if !off => (
                    "hactl does not access smart cards itself",
                    "load the key into the agent (ssh-add -s PROVIDER) and remove the line for this host",
                ),
                "knownhostscommand" if !off => (
                    "hactl does not run programs to get host keys",
                    "write the keys into known_hosts, or pin them in the inventory (ssh.fingerprint, ssh.hostCA)",
                ),
                "revokedhostkeys" if !off => (
                    "hactl reads revoked host keys only from known_hosts",
                    "write them there as `@revoked * TYPE KEY`, and remove the line for this host",
                ),
                "bindaddress" | "bindinterface" if !off => (
                    "hactl uses the source address that the system chooses",
                    "set a route instead, and remove the line for this host",
                ),
                "pubkeyauthentication" if off => {
                    ("hactl logs in only with keys and certificates", "allow them for this host")
                }
                "refuseconnection" => ("it forbids connections to this host", "remove the line for this host"),
                "stricthostkeychecking" if off || line.says("off") || line.says("accept-new") => {
                    let remedy = "`--trust-first-use` records unknown host keys; a changed host key is still refused";
                    self.warn(line, who, "hactl always verifies host keys", remedy);
                    continue;
                }
                _ => continue,
            };
            self.refuse(line, who, what, remedy);
        }
        for line in &settings.broken {
            self.refuse(line, who, line.broken.unwrap_or("it has no value"), "complete the line");
        }
        for line in &settings.unknown {
            let what = format!("unknown option {}", line.written);
            self.refuse(line, who, &what, "check the spelling; `IgnoreUnknown` in a line above makes hactl ignore it");
        }
        for line in &settings.undecided {
            self.refuse(
                line,
                who,
                "hactl cannot tell whether this applies: it does not run programs and knows no networks",
                "use `Host`, or `Match` with only all, host, originalhost, user and localuser",
            );
        }
    }

    /// A path with `~/` and tokens resolved.
    fn path(&mut self, line: &Line, word: &str, tokens: &Tokens<'_>, who: &str) -> Option<PathBuf> {
        if word.contains("${") {
            return self.none(line, who, "hactl does not read environment variables here", "write the full path");
        }
        let text = self.expanded(line, word, tokens, "dhlnprui", who)?;
        if text.chars().any(char::is_control) {
            return self.none(line, who, "this is not a path", "write the path of a file");
        }
        let home = self.home.clone();
        match (text.strip_prefix('~'), home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                Some(home.join(rest.trim_start_matches('/')))
            }
            (Some(_), _) => {
                self.none(line, who, "hactl does not know this user's home directory", "write the full path")
            }
            // Relative paths are relative to the current directory in OpenSSH too, which is rarely intended.
            (None, _) if !text.starts_with('/') => {
                self.none(line, who, "this path depends on the current directory", "start it with / or ~/")
            }
            (None, _) => Some(PathBuf::from(text)),
        }
    }

    /// A word with OpenSSH's tokens resolved, as far as the option allows them.
    fn expanded(&mut self, line: &Line, word: &str, tokens: &Tokens<'_>, allowed: &str, who: &str) -> Option<String> {
        let mut text = String::new();
        let mut chars = word.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let token = chars.next();
            let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
            match token.filter(|t| *t == '%' || allowed.contains(*t)) {
                Some('%') => text.push('%'),
                Some('d') => text.push_str(&self.home.as_ref().map(|h| h.display().to_string()).unwrap_or_default()),
                Some('h') => text.push_str(tokens.host),
                Some('n') => text.push_str(tokens.original),
                Some('p') => text.push_str(&tokens.port.to_string()),
                Some('r') => text.push_str(tokens.user),
                Some('u') => text.push_str(&self.local_user),
                Some('i') => text.push_str(&rustix::process::getuid().as_raw().to_string()),
                Some('l') => text.push_str(&machine()),
                _ => {
                    let what = format!("hactl does not support the token %{} here", token.unwrap_or(' '));
                    return self.none(line, who, &what, "write its value");
                }
            }
        }
        Some(text)
    }

    fn refuse(&mut self, line: &Line, who: &str, what: &str, remedy: &str) {
        self.note(Severity::Error, line, who, what, &format!("{remedy}; {WITHOUT}"));
    }

    fn none<T>(&mut self, line: &Line, who: &str, what: &str, remedy: &str) -> Option<T> {
        self.refuse(line, who, what, remedy);
        None
    }

    fn warn(&mut self, line: &Line, who: &str, what: &str, remedy: &str) {
        self.note(Severity::Warning, line, who, what, remedy);
    }

    fn note(&mut self, severity: Severity, line: &Line, who: &str, what: &str, remedy: &str) {
        let what = format!("{}: {what}", line.written);
        let words = Words::new(what.clone(), "", remedy);
        let note = self.notes.entry((line.spot, what)).or_insert(Note { severity, words, hosts: Vec::new() });
        if !note.hosts.iter().any(|host| host == who) {
            note.hosts.push(who.to_owned());
        }
    }

    /// Reports all findings to the validator: each line once, with the hosts that it applies to.
    pub fn tell(self, judge: &mut Validator<'_>, asked_at: Place) {
        let show = |spot: Option<Spot>| spot.and_then(|spot| Some((spot.place, self.config.origin(spot.file)?)));
        for trouble in &self.config.troubles {
            let words = Words::new(&trouble.what, "", format!("{}; {WITHOUT}", trouble.remedy));
            judge.problems.push(match show(trouble.spot) {
                Some((place, origin)) => {
                    Problem::new(Severity::Error, &origin.path.display().to_string(), &origin.text, place, words)
                }
                None => Problem::new(Severity::Error, judge.file, judge.source, asked_at, words),
            });
        }
        for ((spot, _), note) in &self.notes {
            let Some((place, origin)) = show(Some(*spot)) else { continue };
            let hosts = match note.hosts.as_slice() {
                [one] => one.clone(),
                [first, .., last] if note.hosts.len() > 3 => {
                    format!("{} hosts, {first} to {last}", note.hosts.len())
                }
                several => several.join(", "),
            };
            let mut words = note.words.clone();
            words.what = format!("{} (it applies to {hosts})", words.what);
            let problem = Problem::new(note.severity, &origin.path.display().to_string(), &origin.text, place, words);
            match note.severity {
                Severity::Error => judge.problems.push(problem),
                Severity::Warning => judge.warnings.push(problem),
            }
        }
    }
}
