//! What a person does about a fault that a guard reports.
//!
//! In: the kind and the host. Out: one sentence without a full stop, as a hint of `status` and `guard explain`.

use super::fault::FaultKind;
use super::names::HostName;

/// What to do about a fault; `HOST` stands for the host where it is not known.
pub fn remedy(kind: FaultKind, host: Option<&HostName>) -> String {
    let text = match kind {
        FaultKind::EtcdStopped => "hactl up starts it; if it stops again, on HOST: journalctl -u etcd -n 50",
        FaultKind::EtcdFrozen => "once the other members are healthy, on HOST: systemctl restart etcd",
        FaultKind::EtcdDataLost | FaultKind::EtcdDamaged | FaultKind::EtcdFenced => {
            "while the others have quorum, hactl up removes the member and adds it again; without quorum: hactl \
             recover --dry-run"
        }
        FaultKind::EtcdNotVoting => {
            "hactl up makes it a voter, or a standby if another host has its vote; to keep it out, remove its role etcd"
        }
        FaultKind::EtcdVotersGone => {
            "power them on; if they are lost, remove them from the inventory, then run hactl up --prune NAME"
        }
        FaultKind::EtcdVoteFree => {
            "power the other host on; if it is lost, exchange its role etcd and the `standby` of HOST, then run hactl up"
        }
        FaultKind::EtcdDiverged | FaultKind::EtcdCorrupt => {
            "take a snapshot of each etcd host (hactl snapshot take --host), then hactl recover replaces the member"
        }
        FaultKind::EtcdQuorumLost => {
            "power on what is not heard: nothing is lost then; if it cannot come back: hactl recover --dry-run"
        }
        FaultKind::EtcdFull => "hactl recover frees space and lets etcd accept writes again",
        FaultKind::EtcdSlowLeader => {
            "find out what slows the disk of HOST down (iostat -x 1); etcd writes as fast as the disk of its leader"
        }
        FaultKind::EtcdDiskStalled => "on HOST: dmesg shows what the disk waits for; a reboot may help",
        FaultKind::ApiCrashLoop => {
            "undo the last change of its settings and run hactl up; on HOST: ls /var/log/pods/*kube-apiserver*"
        }
        FaultKind::ApiFrozen => "on HOST: pkill -9 -x kube-apiserver; the kubelet starts it again",
        FaultKind::KubeletFrozen => "on HOST: systemctl restart kubelet; pods keep running",
        FaultKind::NodeMissing => {
            "on HOST: systemctl restart kubelet creates the Node again, and hactl up its labels; pods keep running"
        }
        FaultKind::RuntimeFrozen => "on HOST: systemctl restart containerd; pods keep running",
        FaultKind::BalancerFrozen => "on HOST: systemctl restart haproxy",
        FaultKind::EtcdBalancerFrozen => "on HOST: systemctl restart hactl-etcd-balancer",
        FaultKind::KeepalivedFrozen => "on HOST: systemctl restart keepalived",
        FaultKind::VipMissing => {
            "hactl up starts keepalived; if it runs, on a load balancer: journalctl -u keepalived -u hactl-vrrp-filter"
        }
        FaultKind::VipDuplicate => {
            "let VRRP (IP protocol 112) pass between the load balancers; on each: nft list table inet hactl_vrrp"
        }
        FaultKind::DiskFull => {
            "free space on HOST, or enlarge the file system; for journals: journalctl --vacuum-size=500M"
        }
        FaultKind::ClockSkew => "synchronise the clock of HOST: chronyc makestep, or timedatectl set-ntp true",
        FaultKind::CertificateExpiring => "hactl up renews certificates, hactl certs rotate CAs; hactl certs list",
        FaultKind::HostUnreachable => {
            "power HOST on; if it is lost, reinstall it and run hactl up, or replace it: hactl up --prune HOST"
        }
        FaultKind::PowerDue => {
            "power HOST on; why its power was not switched is in hactl guard history, and in the journal of hactl-heal"
        }
        FaultKind::Partitioned => "check the network between HOST and the others: TCP port 10270 between guards",
        FaultKind::GuardDown => "on HOST: systemctl restart hactl-guard; journalctl -u hactl-guard -n 50 says why",
        FaultKind::Flapping => "look for its cause on HOST: journalctl -p warning --since -30min",
        FaultKind::ForeignHealer => {
            "let one of them heal HOST: exclude its Node there, or write healing.foreign: ignore, then run hactl up"
        }
        FaultKind::NeedsUp => "hactl up",
    };
    text.replace("HOST", host.map_or("HOST", HostName::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_remedy_that_names_a_command_or_a_place_and_the_host() {
        let host: HostName = "cp3".parse().unwrap();
        for kind in FaultKind::ALL {
            let text = remedy(*kind, Some(&host));
            assert!(!text.contains("HOST") && !text.ends_with('.') && text.len() < 130, "{kind}: {text}");
        }
        assert!(remedy(FaultKind::EtcdFrozen, Some(&host)).contains("on cp3: systemctl restart etcd"));
    }
}
