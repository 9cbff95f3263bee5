//! Ansible's connection variables and the OpenSSH options in them.
//!
//! In: one host's variables. Out: [`Ssh`], or nothing for a host that is not reached by SSH. Passwords are never
//! carried over or shown.

use super::super::draft::{Said, Ssh};
use super::super::node::truth;
use super::super::notes::{Notes, listed, short};
use super::super::shared;
use super::ini::words;
use super::scope::Scope;

/// Options that change nothing for hactl.
const NEEDLESS: &str = "controlmaster controlpath controlpersist serveraliveinterval serveralivecountmax connecttimeout connectionattempts \
    compression forwardagent loglevel batchmode preferredauthentications passwordauthentication";

/// A host's SSH settings; `None`: it is not reached by SSH.
pub fn ssh(scope: &Scope<'_>, notes: &mut Notes) -> Option<Ssh> {
    if let Some(said) = scope.text("ansible_connection", notes)
        && !matches!(
            said.value.as_str(),
            "ssh" | "smart" | "paramiko" | "paramiko_ssh" | "libssh" | "ansible.builtin.ssh"
        )
    {
        notes.add(
            &said.place,
            format!("{} is reached by {}, and hactl reaches hosts by SSH: left out", scope.host, short(&said.value)),
            "install an SSH server on it, and add it under hosts",
        );
        return None;
    }
    // Of two names for one option, Ansible uses the one with `ssh` if both are set for a host, wherever they are set: a
    // host's ansible_user does not replace a group's ansible_ssh_user.
    let mut ssh = Ssh {
        host: scope.first(&["ansible_ssh_host", "ansible_host"], notes),
        port: scope.port(&["ansible_ssh_port", "ansible_port"], notes),
        user: scope.first(&["ansible_ssh_user", "ansible_user"], notes),
        identity: scope.first(&["ansible_ssh_private_key_file", "ansible_private_key_file"], notes),
        ..Ssh::default()
    };
    for key in ["ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args"] {
        if let Some(said) = scope.text(key, notes) {
            options(&said, &mut ssh, notes);
        }
    }
    secrets(scope, notes);
    privileges(scope, notes);
    if let Some(said) = &ssh.identity {
        shared::relative(&said.key, said, notes);
    }
    Some(ssh)
}

fn secrets(scope: &Scope<'_>, notes: &mut Notes) {
    for key in ["ansible_become_password", "ansible_become_pass", "ansible_sudo_pass", "ansible_sudo_password"] {
        if let Some(var) = scope.raw(key) {
            notes.add(
                &var.place,
                format!("{key} is a secret, which is not carried over"),
                "write it into the first line of a file that only you can read, and name that under \
                 ssh.sudo.passwordFile; or use --ask-sudo-password",
            );
        }
    }
    for key in ["ansible_password", "ansible_ssh_pass", "ansible_ssh_password", "ansible_ssh_private_key_passphrase"] {
        if let Some(var) = scope.raw(key) {
            notes.add(
                &var.place,
                format!("{key} is a secret, which is not carried over: hactl logs in only with keys"),
                "copy your public key to the hosts (`ssh-copy-id`), and load it into the agent if it has a passphrase",
            );
        }
    }
}

fn privileges(scope: &Scope<'_>, notes: &mut Notes) {
    scope.raw("ansible_become");
    let method = scope.first(&["ansible_become_method"], notes);
    if let Some(said) = method.filter(|said| !matches!(said.value.as_str(), "sudo" | "ansible.builtin.sudo")) {
        notes.add(
            &said.place,
            format!("users become root by {}, and hactl supports only sudo", short(&said.value)),
            "allow sudo for this user, or log in as root (ssh.user)",
        );
    }
    let user = scope.first(&["ansible_become_user"], notes);
    if let Some(said) = user.filter(|said| said.value != "root") {
        notes.add(
            &said.place,
            "ansible_become_user is not root, and hactl needs root",
            "nothing, if sudo also allows this user to become root",
        );
    }
}

/// OpenSSH's command line options.
fn options(said: &Said, ssh: &mut Ssh, notes: &mut Notes) {
    let Ok(words) = words(&said.value) else {
        notes.add(
            &said.place,
            format!("{} cannot be split into words: left out", said.key),
            "put the options into ~/.ssh/config, which hactl reads",
        );
        return;
    };
    let mut left: Vec<String> = Vec::new();
    let mut set = |option: &str, value: &str, notes: &mut Notes| {
        let here = |text: &str| Some(Said::new(text, said.key.as_str(), said.place.as_str()));
        match (option.to_ascii_lowercase().as_str(), value) {
            ("proxyjump", hops) => ssh.jump = here(hops),
            ("proxycommand", command) => match jump_of(command) {
                Some((hop, plain)) => {
                    ssh.jump = here(&hop);
                    if !plain {
                        notes.add(
                            &said.place,
                            "options of the jump host are not carried over",
                            "write them into ~/.ssh/config below `Host` and its name; by default hactl uses the user \
                             and key of the host behind it",
                        );
                    }
                }
                None => notes.add(
                    &said.place,
                    "ProxyCommand runs a program, which hactl does not support",
                    "name the jump host under ssh.jump",
                ),
            },
            ("identityfile", path) => ssh.identity = ssh.identity.take().or(here(path)),
            ("user", user) => ssh.user = ssh.user.take().or(here(user)),
            ("port", port) => {
                let port = port.parse().ok().map(|port: u16| Said::new(port, said.key.as_str(), said.place.as_str()));
                ssh.port = ssh.port.take().or(port);
            }
            ("userknownhostsfile", path) if !matches!(path, "/dev/null" | "none") => ssh.known_hosts = here(path),
            ("userknownhostsfile" | "stricthostkeychecking" | "checkhostip", _) => {
                if truth(value) != Some(true) {
                    shared::unverified(&said.place, notes);
                }
            }
            ("identitiesonly", _) => {}
            (other, _) if NEEDLESS.split(' ').any(|needless| needless == other) => {}
            // A word that is not an option's name may be a secret.
            _ if option.starts_with('-') || option.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                left.push(option.to_owned());
            }
            _ => left.push("a word".to_owned()),
        }
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let mut value =
            |inline: &str| if inline.is_empty() { words.next().unwrap_or_default() } else { inline.to_owned() };
        match word.get(..2).unwrap_or(&word) {
            "-o" => {
                let pair = value(&word[2..]);
                let (option, value) = pair.split_once('=').or_else(|| pair.split_once(' ')).unwrap_or((&pair, ""));
                set(option.trim(), value.trim(), notes);
            }
            "-J" => set("proxyjump", &value(&word[2..]), notes),
            "-i" => set("identityfile", &value(&word[2..]), notes),
            "-l" => set("user", &value(&word[2..]), notes),
            "-p" => set("port", &value(&word[2..]), notes),
            "-F" => set("-F (another configuration; name it under ssh.config)", &value(&word[2..]), notes),
            "-C" | "-q" | "-T" | "-t" | "-4" | "-A" | "-v" => {}
            other => set(if other.starts_with('-') { other } else { "?" }, "", notes),
        }
    }
    if !left.is_empty() {
        left.dedup();
        notes.add(
            &said.place,
            format!("options of {} not carried over: {}", said.key, listed(&left, 10)),
            "write those that you need into ~/.ssh/config, which hactl reads",
        );
    }
}

/// The jump host of `ssh -W %h:%p [-p PORT] [USER@]HOST`, and whether there are no other options.
fn jump_of(command: &str) -> Option<(String, bool)> {
    let words = words(command).ok()?;
    let (program, rest) = words.split_first()?;
    if program != "ssh" && !program.ends_with("/ssh") {
        return None;
    }
    let (mut host, mut user, mut port, mut forwards, mut plain) = (None, None, None, false, true);
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let mut value = |flag: &str| match word.strip_prefix(flag) {
            Some("") => rest.next().cloned(),
            other => other.map(ToOwned::to_owned),
        };
        match word.get(..2).unwrap_or(word) {
            "-W" => forwards = value("-W")? == "%h:%p",
            "-p" => port = value("-p"),
            "-l" => user = value("-l"),
            "-o" => {
                let option = value("-o")?.to_ascii_lowercase();
                plain &= NEEDLESS.split(' ').any(|needless| option.starts_with(needless));
            }
            "-i" | "-F" | "-J" | "-c" | "-m" => {
                value(word.get(..2)?)?;
                plain = false;
            }
            flag if flag.starts_with('-') => {}
            _ if host.is_none() => host = Some(word.clone()),
            _ => return None,
        }
    }
    let host = host.filter(|host| forwards && !host.contains(['%', '{']))?;
    let user = user.map(|user| format!("{user}@")).filter(|_| !host.contains('@')).unwrap_or_default();
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some((format!("{user}{host}{port}"), plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Ssh, Vec<String>) {
        let mut ssh = Ssh::default();
        let mut notes = Notes::default();
        options(&Said::new(text, "ansible_ssh_common_args", "h:1"), &mut ssh, &mut notes);
        (ssh, notes.into_list().into_iter().map(|note| note.what).collect())
    }

    #[test]
    fn a_jump_host_is_found_in_every_common_notation() {
        for text in [
            "-o ProxyJump=ops@gate:2200",
            "-J ops@gate:2200",
            "-oProxyJump=ops@gate:2200 -C",
            "-o ProxyCommand=\"ssh -W %h:%p -q -p 2200 ops@gate\"",
            "-o ProxyCommand='ssh -W %h:%p -l ops -p2200 gate'",
        ] {
            let (ssh, notes) = read(text);
            assert_eq!(ssh.jump.map(|said| said.value).as_deref(), Some("ops@gate:2200"), "{text}");
            assert!(notes.is_empty(), "{text}: {notes:?}");
        }
    }

    #[test]
    fn a_program_and_its_secrets_are_named_and_not_shown() {
        let (ssh, notes) = read("-o ProxyCommand='sshpass -p hunter2 ssh gate' hunter3 -b hunter4 -o 'hunter5!'");
        assert!(ssh.jump.is_none() && notes.len() == 2, "{notes:?}");
        assert!(!format!("{notes:?}").contains("hunter"), "{notes:?}");
    }

    #[test]
    fn unverified_host_keys_are_reported() {
        let (ssh, notes) = read("-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ControlMaster=auto");
        assert!(ssh.known_hosts.is_none());
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(read("-o UserKnownHostsFile=/k").0.known_hosts.map(|s| s.value).as_deref(), Some("/k"));
    }
}
