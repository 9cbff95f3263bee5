//! One virtual machine: its disks, its power and its network.
//!
//! In: the kernel and the disks of `image.sh`. Out: a host that answers SSH, and hactl with its inventory. All of it is
//! in the folder of a network without hosts of `hactl lab`, and is removed with that.

use super::support::{Api, Hactl};
use hactl::lab::{Lab, Silent};
use std::cell::RefCell;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the network and of the cluster.
const NAME: &str = "t-vm";
/// The third octet of the network: neither that of a user's own lab nor that of the tests with Vagrant.
const OCTET: u8 = 202;
const ADDRESS: &str = "10.88.202.11";
const GATEWAY: &str = "10.88.202.1";
/// Until a login works: on an idle machine, with one processor, sshd answered after 96 s.
const BOOT: Duration = Duration::from_mins(15);
/// An emulated processor needs no mitigations, and its time stamp counter is that of this machine.
const KERNEL: &str = "root=/dev/vda ro console=ttyS0 net.ifnames=0 noresume mitigations=off tsc=reliable";
/// One host, whose etcd and leaders may be slow.
const INVENTORY: &str = "schema: 1
cluster: t-vm
endpoint: {local: true}
ssh: {user: ops, identity: ./id_ed25519, known_hosts: ./known_hosts, config: none}
hosts:
  - {name: vm1, address: 10.88.202.11, roles: [control-plane, etcd, worker]}
# Its network has no time server; qemu sets its clock.
preflight: {ignore: [time-synchronised]}
extra:
  etcd: {args: {heartbeat-interval: 500, election-timeout: 5000}}
  kube-controller-manager: {args: {leader-elect-lease-duration: 45s, leader-elect-renew-deadline: 30s}}
  kube-scheduler: {args: {leader-elect-lease-duration: 45s, leader-elect-renew-deadline: 30s}}
";

/// The machine; its power, disks and network end with this value.
pub struct Machine {
    lab: Lab,
    qemu: RefCell<Option<Child>>,
    /// hactl, with the inventory of the machine.
    pub hactl: Hactl,
}

impl Machine {
    /// A machine with new disks, which has booted.
    pub fn create() -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if let Ok(left) = Lab::open(root, NAME) {
            left.down(&Silent).expect("what a killed run left can be removed");
        }
        let lab = Lab::network_alone(root, NAME, OCTET, &Silent).expect("the network can be made");
        let hactl = Hactl::new(lab.inventory());
        // From here on, all of it is removed also after a failure.
        let machine = Self { lab, qemu: RefCell::new(None), hactl };
        let begun = Instant::now();
        let mut image = Command::new(source("image.sh"));
        image.arg(machine.lab.dir()).args(["vm1", ADDRESS, GATEWAY]);
        assert!(image.status().expect("it can be started").success(), "the disks can be made");
        std::fs::write(machine.lab.inventory(), INVENTORY).expect("writable");
        println!("        disks made in {:.0?}", begun.elapsed());
        machine.start();
        machine
    }

    /// Switches it on, and waits until a login works.
    pub fn start(&self) {
        let file = |name: &str| self.lab.dir().join(name).display().to_string();
        // qemu writes to the files at once: what is lost with its process is what the guest's kernel had not written.
        let drive = |name: &str| format!("file={},format=raw,if=virtio,cache=writeback", file(name));
        let tap = format!("tap,id=net,ifname=hlt{OCTET},script={},downscript=no", source("ifup.sh"));
        // It ends with this thread, also if nothing can be dropped.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-display", "none"])
            .args(["-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", "4096"])
            .args(["-kernel", &file("vmlinuz"), "-initrd", &file("initrd"), "-append", KERNEL])
            .args(["-drive", &drive("disk"), "-drive", &drive("swap"), "-device", "virtio-rng-pci"])
            .args(["-netdev", &tap, "-device", "virtio-net-pci,netdev=net,mac=02:88:00:00:ca:0b,romfile="])
            .args(["-serial", &format!("file:{}", file("console"))])
            .env("BRIDGE", self.lab.bridge())
            .stdin(Stdio::null());
        let begun = Instant::now();
        *self.qemu.borrow_mut() = Some(qemu.spawn().expect("qemu can be started"));
        while self.on("echo up") != "up" {
            let ended = self.qemu.borrow_mut().as_mut().and_then(|qemu| qemu.try_wait().expect("it can be asked"));
            assert!(ended.is_none() && begun.elapsed() < BOOT, "no login works; qemu: {ended:?}\n{}", self.console());
            std::thread::sleep(Duration::from_secs(1));
        }
        println!("        a login works {:.0?} after power-on", begun.elapsed());
    }

    /// Cuts its power.
    pub fn cut(&self) {
        if let Some(mut qemu) = self.qemu.take() {
            qemu.kill().expect("qemu can be killed");
            qemu.wait().expect("its end can be awaited");
        }
    }

    /// Waits until it has booted another time than this one.
    pub fn boots_after(&self, boot: &str) {
        let begun = Instant::now();
        let again = || {
            let now = self.boot();
            !now.is_empty() && now != boot
        };
        while !again() {
            assert!(begun.elapsed() < BOOT, "it does not boot\n{}", self.console());
            std::thread::sleep(Duration::from_secs(1));
        }
        println!("        a login works {:.0?} after the request to reboot", begun.elapsed());
    }

    /// What identifies its boot; empty if it does not answer.
    pub fn boot(&self) -> String {
        self.on("cat /proc/sys/kernel/random/boot_id")
    }

    /// OpenSSH that runs a command there.
    pub fn ssh(&self, command: &str) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "IdentitiesOnly=yes"])
            .args(["-o", "StrictHostKeyChecking=yes", "-o", "ServerAliveInterval=20", "-o"])
            .arg(format!("UserKnownHostsFile={}", self.lab.known_hosts().display()))
            .arg("-i")
            .arg(self.lab.identity())
            .arg(format!("ops@{ADDRESS}"))
            .arg(command)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        ssh
    }

    /// Runs a command there and returns what it printed, without the last line end.
    pub fn on(&self, command: &str) -> String {
        let output = self.ssh(command).output().expect("ssh can be started");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// A client with the administrator's kubeconfig.
    pub fn api(&self) -> Api {
        Api::new(&self.hactl.state(NAME).join("kubeconfig"), Duration::from_secs(30))
    }

    /// The end of what its kernel and its services printed.
    fn console(&self) -> String {
        let text = std::fs::read(self.lab.dir().join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.cut();
        let ended = self.lab.down(&Silent);
        assert!(ended.is_ok() || std::thread::panicking(), "the machine is not removed: {ended:?}");
    }
}

/// A file beside this one.
fn source(name: &str) -> String {
    format!("{}/tests/vm/{name}", env!("CARGO_MANIFEST_DIR"))
}
