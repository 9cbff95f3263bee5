//! The way to each host: the inventory's own words first, then OpenSSH's configuration, then the defaults.
//!
//! In: what the inventory says of a host, and a [`Config`]. Out: an [`SshTarget`] that needs nothing else to be looked up, with every
//! host to go through; and for each line of the configuration that applies to one of our hosts and cannot be honoured a
//! refusal that names file and line. What OpenSSH would do and hactl cannot is never passed over in silence, unless it changes
//! neither where we connect nor whom we trust.

use super::Validator;
use crate::inventory::openssh::{Asked, Config, Line, Settings, Spot};
use crate::inventory::problem::{Problem, Severity, Words};
use crate::model::desired::{Agent, SshTarget};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The way out that is always open.
const WITHOUT: &str = "or write `ssh: {config: none}` in the inventory, so that no configuration is read";
/// Hosts to go through on the way to one.
const LONGEST_WAY: usize = 8;

/// What the inventory itself says of a host; `None` leaves it to the configuration.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Its name, for messages.
    pub name: String,
    /// Where to reach it: what one would type after `ssh`.
    pub host: Option<String>,
    /// The address of its components, where it is reached unless somebody says otherwise.
    pub address: String,
    /// The port of its sshd.
    pub port: Option<u16>,
    /// Who logs in.
    pub user: Option<String>,
    /// With which key.
    pub identity: Option<PathBuf>,
    /// Where its host key is recorded.
    pub known_hosts: Option<PathBuf>,
    /// Its pinned host key.
    pub fingerprint: Option<String>,
    /// The authority of its host key.
    pub host_ca: Option<String>,
    /// Whom to go through; an empty list: nobody.
    pub jump: Option<Vec<Hop>>,
    /// Where sudo's password lies.
    pub sudo_password: Option<PathBuf>,
}

/// `[user@]host[:port]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

/// Reads `a,b,c`, the nearest to us first; `none` is nobody.
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
            _ => return Err(format!("{port:?} is no port")),
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

/// A login name as other systems than ours have them.
fn is_login(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_ascii_graphic() && c != '%')
}

/// What is said of one line, and of which hosts.
struct Note {
    severity: Severity,
    words: Words,
    hosts: Vec<String>,
}

/// Ways to hosts, by one configuration.
pub struct Ways {
    config: Config,
    home: Option<PathBuf>,
    local_user: String,
    notes: BTreeMap<(Spot, String), Note>,
}

/// What the words of a line may stand for.
struct Tokens<'a> {
    host: &'a str,
    original: &'a str,
    port: u16,
    user: &'a str,
}

impl Ways {
    /// By this configuration, for somebody who is at home there.
    pub fn new(config: Config, home: Option<&Path>, local_user: &str) -> Self {
        Self { config, home: home.map(Path::to_owned), local_user: local_user.to_owned(), notes: BTreeMap::new() }
    }

    /// The whole way to a host.
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

    /// Everything but whom to go through.
    fn target(&mut self, given: &Given, settings: &Settings<'_>) -> SshTarget {
        let who = given.name.as_str();
        let original = given.host.as_deref().unwrap_or(&given.name);
        let fallback = given.host.as_deref().unwrap_or(&given.address);
        let user = given.user.clone().or_else(|| self.user(settings, who));
        let port = given.port.or_else(|| self.port(settings, who));
        let mut target = SshTarget::new(fallback, user.unwrap_or_else(|| super::hosts::USER.to_owned()));
        target.port = port.unwrap_or(super::hosts::PORT);
        // `HostName %h` is what holds anyway, and here the name typed may stand for an address.
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
        self.refuse(line, who, "this cannot be a user's name", "write the login name alone, without tokens");
        None
    }

    fn port(&mut self, settings: &Settings<'_>, who: &str) -> Option<u16> {
        let line = settings.get("port")?;
        match line.word().parse::<u16>() {
            Ok(port @ 1..) => Some(port),
            _ => {
                self.refuse(line, who, "this is no port", "write a number from 1 to 65535");
                None
            }
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
                self.refuse(line, who, "hactl reads no environment variable named here", remedy);
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
                    self.warn(
                        line,
                        who,
                        "hactl never forgets host keys: it uses ~/.ssh/known_hosts instead",
                        "put the host's key there, or pin it in the inventory (ssh.fingerprint, ssh.hostCA)",
                    );
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

    /// Whom the configuration goes through.
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
                "hactl runs no program to reach a host",
                "say `ProxyJump HOST` here, or `jump: HOST` under ssh in the inventory (`jump: none`: directly)",
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

    /// The hosts to go through, each looked up by its own name. What nobody says of one is as for the host behind it.
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
                    let what = format!("the way goes through {} to reach {}", jump.place(), jump.place());
                    let remedy =
                        format!("exclude it: `Host * !{}` above the line, or `ProxyJump none` for it", hop.host);
                    self.refuse(line, who, &what, &remedy);
                }
                return way;
            }
            // As `ssh -J` does it: only the first is reached in its own way, the others through the one before.
            if index == 0 {
                let nearer = Given { host: given.host, ..behind.clone() };
                let before = self.proxied(config, &settings, &nearer, &jump, &seen);
                way.extend(before);
            }
            way.push(jump);
        }
        way
    }

    /// What applies and cannot be honoured, whatever the inventory says.
    fn weigh(&mut self, settings: &Settings<'_>, who: &str) {
        for line in settings.lines() {
            let off = line.says("no") || line.says("none");
            let (what, remedy) = match line.key.as_str() {
                "canonicalizehostname" if !off => (
                    "hactl does not complete host names",
                    "write the full name: as HostName here, or as ssh.host in the inventory",
                ),
                "pkcs11provider" if !off => (
                    "hactl does not ask smart cards itself",
                    "load the key into the agent (ssh-add -s PROVIDER) and take the line out for this host",
                ),
                "knownhostscommand" if !off => (
                    "hactl runs no program to learn host keys",
                    "write the keys into a known_hosts file, or pin them in the inventory (ssh.fingerprint, ssh.hostCA)",
                ),
                "revokedhostkeys" if !off => (
                    "hactl reads revoked host keys from known_hosts alone",
                    "write them there as `@revoked * TYPE KEY`, and take the line out for this host",
                ),
                "bindaddress" | "bindinterface" if !off => (
                    "hactl leaves it to the system which address it connects from",
                    "set a route instead, and take the line out for this host",
                ),
                "pubkeyauthentication" if off => {
                    ("hactl logs in with keys and certificates alone", "allow them for this host")
                }
                "refuseconnection" => ("it forbids connections to this host", "take the line out for this host"),
                "stricthostkeychecking" if off || line.says("off") || line.says("accept-new") => {
                    self.warn(
                        line,
                        who,
                        "hactl is strict about host keys, whatever this says",
                        "`--trust-first-use` records keys that it has not seen; one that changed is refused all the same",
                    );
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
            let what = format!("hactl does not know {}", line.written);
            self.refuse(line, who, &what, "is it misspelled? `IgnoreUnknown` in a line above passes over it");
        }
        for line in &settings.undecided {
            self.refuse(
                line,
                who,
                "hactl cannot tell whether this applies: it runs no programs and knows no networks",
                "use `Host`, or `Match` with all, host, originalhost, user and localuser alone",
            );
        }
    }

    /// A path with `~/` and tokens resolved.
    fn path(&mut self, line: &Line, word: &str, tokens: &Tokens<'_>, who: &str) -> Option<PathBuf> {
        if word.contains("${") {
            self.refuse(line, who, "hactl reads no environment variables here", "write the path out");
            return None;
        }
        let text = self.expanded(line, word, tokens, "dhlnprui", who)?;
        if text.chars().any(char::is_control) {
            self.refuse(line, who, "this is not a path", "write the path of a file");
            return None;
        }
        let home = self.home.clone();
        match (text.strip_prefix('~'), home) {
            (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                Some(home.join(rest.trim_start_matches('/')))
            }
            (Some(_), _) => {
                self.refuse(line, who, "hactl does not know whose home this is", "write the path out");
                None
            }
            // Relative paths are relative to the current directory in OpenSSH too, which is hardly ever meant.
            (None, _) if !text.starts_with('/') => {
                self.refuse(line, who, "this path depends on the current directory", "write it out, or from ~/");
                None
            }
            (None, _) => Some(PathBuf::from(text)),
        }
    }

    /// A word with those of OpenSSH's tokens resolved that it may have.
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
                    let what = format!("hactl does not know what %{} stands for here", token.unwrap_or(' '));
                    self.refuse(line, who, &what, "write it out");
                    return None;
                }
            }
        }
        Some(text)
    }

    fn refuse(&mut self, line: &Line, who: &str, what: &str, remedy: &str) {
        self.note(Severity::Error, line, who, what, &format!("{remedy}; {WITHOUT}"));
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

    /// Hands everything found to the judge, each line once with the hosts that it applies to.
    pub fn tell(self, judge: &mut Validator<'_>, asked_at: crate::inventory::at::Place) {
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
