//! The keys of OpenSSH's configuration, by hactl's treatment of them.
//!
//! In: a key in lower case. Out: whether hactl uses or refuses it (see `check/`), it has no effect here, or
//! OpenSSH does not have it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Keys that hactl uses, or refuses because it does not support them.
const WEIGHED: &str = "\
    bindaddress bindinterface canonicalizehostname certificatefile globalknownhostsfile hostkeyalias hostname \
    identitiesonly identityagent identityfile knownhostscommand pkcs11provider port proxycommand proxyjump \
    pubkeyauthentication refuseconnection revokedhostkeys stricthostkeychecking user userknownhostsfile";

/// Keys that change neither the destination, nor the user, nor the trust in host keys. hactl chooses algorithms itself
/// and logs in only with keys; settings that make OpenSSH trust more have no effect on hactl.
const IGNORED: &str = "\
    addkeystoagent addressfamily batchmode canonicaldomains canonicalizefallbacklocal canonicalizemaxdots \
    canonicalizepermittedcnames casignaturealgorithms challengeresponseauthentication channeltimeout checkhostip \
    cipher ciphers clearallforwardings compression compressionlevel connectionattempts connecttimeout controlmaster \
    controlpath controlpersist dsaauthentication dynamicforward enableescapecommandline enablesshkeysign escapechar \
    exitonforwardfailure fingerprinthash forkafterauthentication forwardagent forwardx11 forwardx11timeout \
    forwardx11trusted gatewayports gssapiauthentication gssapiclientidentity gssapidelegatecredentials \
    gssapikexalgorithms gssapikeyexchange gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns hashknownhosts \
    hostbasedacceptedalgorithms hostbasedauthentication hostbasedkeytypes hostkeyalgorithms ignoreunknown ipqos \
    kbdinteractiveauthentication kbdinteractivedevices kexalgorithms localcommand localforward loglevel logverbose \
    macs nohostauthenticationforlocalhost numberofpasswordprompts obscurekeystroketiming passwordauthentication \
    permitlocalcommand permitremoteopen preferredauthentications protocol proxyusefdpass pubkeyacceptedalgorithms \
    pubkeyacceptedkeytypes rekeylimit remotecommand remoteforward requesttty requiredrsasize rhostsrsaauthentication \
    rsaauthentication securitykeyprovider sendenv serveralivecountmax serveraliveinterval sessiontype setenv \
    skeyauthentication stdinnull streamlocalbindmask streamlocalbindunlink syslogfacility tag tcpkeepalive tunnel \
    tunneldevice updatehostkeys usekeychain useprivilegedport useroaming verifyhostkeydns versionaddendum \
    visualhostkey warnweakcrypto xauthlocation";

static WEIGHED_SET: LazyLock<BTreeSet<&str>> = LazyLock::new(|| WEIGHED.split_ascii_whitespace().collect());
static IGNORED_SET: LazyLock<BTreeSet<&str>> = LazyLock::new(|| IGNORED.split_ascii_whitespace().collect());

/// Whether a key has no effect on hactl.
pub fn is_ignored(key: &str) -> bool {
    IGNORED_SET.contains(key)
}

/// Whether it is a key of OpenSSH.
pub fn is_known(key: &str) -> bool {
    is_ignored(key) || WEIGHED_SET.contains(key)
}

/// Whether all its lines apply, not only the first.
pub fn is_list(key: &str) -> bool {
    matches!(key, "identityfile" | "certificatefile")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_know_no_key_twice() {
        assert!([WEIGHED, IGNORED].iter().all(|list| list.split_ascii_whitespace().is_sorted()));
        assert!(WEIGHED_SET.is_disjoint(&IGNORED_SET));
    }

    #[test]
    fn every_key_of_the_client_of_this_machine_is_known() {
        // `ssh -G` prints each key that has a value. This test fails first if OpenSSH is newer than the list.
        let Ok(shown) = std::process::Command::new("ssh").args(["-F", "none", "-G", "host"]).output() else { return };
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let unknown: Vec<String> = shown
            .lines()
            .filter_map(|line| Some(line.split(' ').next()?.to_ascii_lowercase()))
            .filter(|key| !is_known(key) && key != "host")
            .collect();
        assert_eq!(unknown, Vec::<String>::new());
    }
}
